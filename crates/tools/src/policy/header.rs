//! Names of headers: spelling, which may be injected, which must not be shown.

/// The canonical spelling of a header's name (`x-tenant` → `X-Tenant`), as Go's HTTP library has it. A name
/// that is no header name stays as it is.
pub fn canonical_name(name: &str) -> String {
    if !is_name(name) {
        return name.to_owned();
    }
    let mut upper = true;
    name.chars()
        .map(|character| {
            let spelled = if upper {
                character.to_ascii_uppercase()
            } else {
                character.to_ascii_lowercase()
            };
            upper = character == '-';
            spelled
        })
        .collect()
}

/// Whether this can be a header's name at all.
pub(super) fn is_name(name: &str) -> bool {
    http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// Whether this can be a header's value.
pub(super) fn is_value(value: &str) -> bool {
    http::HeaderValue::from_str(value).is_ok()
}

/// Headers that frame the request. A policy that could set them could smuggle a second request or send
/// the call to another virtual host.
const FRAMING: [&str; 11] = [
    "Connection",
    "Content-Length",
    "Host",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Connection",
    "Te",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
    "Expect",
];

/// Whether a policy may add this header.
pub(super) fn is_injectable(name: &str) -> bool {
    !FRAMING.contains(&canonical_name(name).as_str())
}

/// Parts of names whose values are credentials.
const SECRET_PARTS: [&str; 11] = [
    "auth",
    "token",
    "secret",
    "password",
    "passwd",
    "cookie",
    "api-key",
    "apikey",
    "credential",
    "signature",
    "session",
];

/// Whether the value of this header must not appear in a trace, log or event.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_go_does() {
        for (name, canonical) in [
            ("x-tenant", "X-Tenant"),
            ("X-TENANT-ID", "X-Tenant-Id"),
            ("etag", "Etag"),
            ("x--a", "X--A"),
            ("x_y", "X_y"),
            ("not a name", "not a name"),
            ("", ""),
        ] {
            assert_eq!(canonical_name(name), canonical);
        }
    }

    #[test]
    fn credentials_are_recognised_by_their_name() {
        for name in [
            "Authorization",
            "proxy-authorization",
            "Cookie",
            "X-Api-Key",
            "X-Auth-Token",
            "X-Amz-Signature",
        ] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["X-Tenant", "Content-Type", "X-Omnia-Tool-Name"] {
            assert!(!is_secret(name), "{name}");
        }
    }
}
