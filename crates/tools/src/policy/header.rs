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

/// Headers that frame the request. Set from outside, they would let one request become two.
const FRAMING: [&str; 10] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Connection",
    "Te",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// Whether this header frames the request, so that only the connection itself may set it.
pub(crate) fn is_framing(name: &str) -> bool {
    FRAMING.iter().any(|framing| framing.eq_ignore_ascii_case(name))
}

/// Whether a policy may add this header. `Host` would send the call to another virtual host.
pub(super) fn is_injectable(name: &str) -> bool {
    !is_framing(name) && !name.eq_ignore_ascii_case("host")
}

/// Parts of names whose values are credentials, as [`plain`] spells names.
const SECRET_PARTS: [&str; 12] = [
    "auth",
    "token",
    "secret",
    "password",
    "passwd",
    "cookie",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "signature",
    "session",
];

/// Words that hold such a part and name nothing secret. Whoever wrote something is an argument of many tools.
const OPEN_WORDS: [&str; 2] = ["authority", "author"];

/// Without case, `-` and `_`, which every service writes differently.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|letter| !matches!(letter, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

fn has_secret_part(plain: &str) -> bool {
    SECRET_PARTS.iter().any(|part| plain.contains(part))
}

/// Whether the value of this header must not appear in a trace, log or event.
pub(crate) fn is_secret(name: &str) -> bool {
    has_secret_part(&plain(name))
}

/// [`is_secret`] for the fields of a body and the parameters of a query, which also name things that no header does.
pub(crate) fn is_secret_field(name: &str) -> bool {
    let mut name = plain(name)
        .replace("authoriz", "auth")
        .replace("authoris", "auth");
    for word in OPEN_WORDS {
        name = name.replace(word, " ");
    }
    has_secret_part(&name)
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
    fn a_header_that_frames_the_request_is_known_in_every_spelling() {
        for name in ["te", "TRANSFER-ENCODING", "Content-length", "proxy-connection"] {
            assert!(is_framing(name) && !is_injectable(name), "{name}");
        }
        assert!(!is_injectable("hOST") && !is_framing("Host"));
        assert!(is_injectable("X-Tenant"));
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
            "x_api_key",
            "X-Access-Key",
            "Private-Key",
        ] {
            assert!(is_secret(name) && is_secret_field(name), "{name}");
        }
        for name in ["X-Tenant", "Content-Type", "X-Omnia-Tool-Name"] {
            assert!(!is_secret(name) && !is_secret_field(name), "{name}");
        }
        for name in ["author", "co_authors", "certificateAuthority"] {
            assert!(!is_secret_field(name), "{name}");
        }
        for name in ["authorisation", "author_token", "o-auth", "Session_Id"] {
            assert!(is_secret_field(name), "{name}");
        }
    }
}
