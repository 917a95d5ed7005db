//! Endpoints: what an address in a spec may be.

use url::Url;

/// Parses an absolute `http` or `https` URL.
///
/// # Errors
///
/// A sentence that says what is wrong with the text.
pub fn absolute_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text:?} is not an absolute URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{text:?} must be an http or https URL"));
    }
    Ok(url)
}

/// Host and port of `host:port`, as a gRPC endpoint is written.
///
/// # Errors
///
/// A sentence that says what is wrong with the text.
pub fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let wrong = || format!("{text:?} must be host:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    let bracketed = bare.len() != host.len();
    if bare.is_empty() || bare.contains(['/', '@', ' ', '?', '#']) || (bare.contains(':') && !bracketed) {
        return Err(wrong());
    }
    let port: u16 = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
    Ok((bare.to_owned(), port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_absolute_http_urls_are_endpoints() {
        for text in [
            "",
            "/sse",
            "example.com",
            "ftp://example.com/",
            "http://",
            "file:///etc/passwd",
        ] {
            assert!(absolute_url(text).is_err(), "{text}");
        }
    }

    #[test]
    fn grpc_endpoints_are_host_and_port() {
        assert_eq!(
            host_and_port("orders.shop.svc:50051").unwrap(),
            ("orders.shop.svc".into(), 50051)
        );
        assert_eq!(host_and_port("[::1]:50051").unwrap(), ("::1".into(), 50051));
        for text in [
            "",
            "orders",
            ":1",
            "orders:",
            "orders:0",
            "orders:99999",
            "http://orders:1",
            "::1:5",
            "a b:1",
        ] {
            assert!(host_and_port(text).is_err(), "{text}");
        }
    }
}
