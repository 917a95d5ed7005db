//! Endpoints: what an address in a spec may be, and what an MCP server's may not (OM-325).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Names under which clouds serve their metadata.
const METADATA_NAMES: [&str; 5] = [
    "metadata.google.internal",
    "metadata",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];

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

/// Why the host of a URL is refused: it is link-local or serves cloud metadata. Private addresses, loopback and names
/// inside the cluster are allowed; names are not resolved here.
///
/// The URL parser has already turned decimal, octal, hexadecimal and short spellings of an IPv4 address, trailing
/// dots, upper case and percent-encoding into their plain form, as a client that connects would.
#[must_use]
pub fn refused_host(url: &Url) -> Option<String> {
    match url.host()? {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            METADATA_NAMES
                .contains(&name.as_str())
                .then(|| format!("host {name} is a cloud metadata service"))
        }
        Host::Ipv4(address) => refused_address(IpAddr::V4(address)),
        Host::Ipv6(address) => refused_address(IpAddr::V6(address)),
    }
}

fn refused_address(address: IpAddr) -> Option<String> {
    let refused = match address {
        IpAddr::V4(address) => refused_v4(address),
        IpAddr::V6(address) => refused_v6(address) || embedded_v4(address).is_some_and(refused_v4),
    };
    refused.then(|| format!("host {address} is a link-local or cloud metadata address"))
}

fn refused_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || address == Ipv4Addr::new(100, 100, 100, 200)
}

fn refused_v6(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local() || address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)
}

/// The IPv4 address inside a mapped, compatible or NAT64 IPv6 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let last = Ipv4Addr::from(((u32::from(segments[6])) << 16) | u32::from(segments[7]));
    match segments[..6] {
        [0, 0, 0, 0, 0, 0xffff | 0] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(last),
        _ => None,
    }
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

    fn refused(text: &str) -> bool {
        refused_host(&absolute_url(text).unwrap()).is_some()
    }

    #[test]
    fn link_local_and_metadata_hosts_are_refused_in_every_spelling_om_325_v_31() {
        for text in [
            "http://169.254.169.254/sse",
            "http://169.254.0.1:8080/",
            "http://[fe80::1]/",
            "http://[FE80::1]:80/",
            "http://[febf::1]/",
            "http://metadata.google.internal./x",
            "http://METADATA.google.internal/x",
            "http://metadata/",
            "http://metadata.goog/",
            "http://instance-data/",
            "http://instance-data.ec2.internal/",
            "http://0xA9FEA9FE/",
            "http://0xa9.0xfe.0xa9.0xfe/",
            "http://0251.0376.0251.0376/",
            "http://2852039166/",
            "http://169.254.43518/",
            "http://169.254.169.254./",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::169.254.169.254]/",
            "http://[64:ff9b::169.254.169.254]/",
            "http://[fd00:ec2::254]/",
            "http://100.100.100.200/latest",
            "http://%31%36%39.254.169.254/",
            "http://user@169.254.169.254/",
        ] {
            assert!(refused(text), "{text}");
        }
    }

    #[test]
    fn private_loopback_and_cluster_hosts_are_allowed_om_325_v_32() {
        for text in [
            "http://10.0.0.7:8080/sse",
            "http://172.16.0.1/",
            "http://192.168.1.1/",
            "http://127.0.0.1:9000/mcp",
            "http://localhost/mcp",
            "http://[::1]/mcp",
            "http://[fc00::1]/",
            "http://[fd00:ec2::253]/",
            "http://svc.ns.svc.cluster.local/mcp",
            "https://metadata.example.com/",
            "http://169.253.0.1/",
            "http://100.100.100.201/",
        ] {
            assert!(!refused(text), "{text}");
        }
    }

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
