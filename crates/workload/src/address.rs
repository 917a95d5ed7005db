//! Which addresses a workload may reach. Sources: OM-325, `interfaces.md` 3.
//!
//! Link-local and cloud metadata addresses are refused for every tool and model, whatever their spelling. Private and
//! loopback addresses are allowed unless a connector is built without them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names under which cloud providers serve instance credentials.
const METADATA_HOSTS: &[&str] = &[
    "metadata",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data",
    "instance-data.ec2.internal",
];

/// Addresses outside of the link-local ranges at which a host or a cloud gives instances their credentials and
/// configuration. Each is published by its provider; link-local ones (169.254.169.254, 169.254.170.2, fe80::a9fe:a9fe
/// and the like) fall under the rule for their range.
const METADATA_ADDRESSES: &[IpAddr] = &[
    // Alibaba Cloud, "Access instance metadata".
    v4(100, 100, 100, 200),
    // Azure, "What is IP address 168.63.129.16?" (the wire server, on a public address).
    v4(168, 63, 129, 16),
    // Oracle Cloud Infrastructure Classic, "Retrieving Instance Metadata".
    v4(192, 0, 0, 192),
    // AWS, "Access instance metadata for an EC2 instance" (IMDS on Nitro instances).
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254]),
    // AWS, "Set up the Amazon EKS Pod Identity Agent".
    v6([0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023]),
    // Google Cloud, "Query VM metadata" (IPv6-only instances).
    v6([0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254]),
    // Oracle Cloud Infrastructure, "Getting Instance Metadata" (IPv6).
    v6([0xfd00, 0x00c1, 0, 0, 0, 0, 0xa9fe, 0xa9fe]),
    // Akamai (Linode), "Metadata service API".
    v6([0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1]),
    // Scaleway, "Instance metadata".
    v6([0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042]),
];

const fn v4(first: u8, second: u8, third: u8, fourth: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(first, second, third, fourth))
}

const fn v6(segments: [u16; 8]) -> IpAddr {
    let [a, b, c, d, e, f, g, h] = segments;
    IpAddr::V6(Ipv6Addr::new(a, b, c, d, e, f, g, h))
}

/// Whether `host` is a well-known name of a metadata service; case and a trailing dot do not matter.
pub fn metadata_host(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    METADATA_HOSTS.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// The rule that forbids `address`, in words for an error text, or `None` where it may be dialled.
pub fn refused(address: IpAddr, allow_private: bool) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refused_v4(address, allow_private),
        IpAddr::V6(address) => refused_v6(address, allow_private),
    }
}

fn refused_v4(address: Ipv4Addr, allow_private: bool) -> Option<&'static str> {
    let [first, second, ..] = address.octets();
    if address.is_link_local() {
        return Some("link-local addresses serve instance metadata");
    }
    if METADATA_ADDRESSES.contains(&IpAddr::V4(address)) {
        return Some("this address serves instance metadata");
    }
    if address.is_multicast() || address.is_broadcast() {
        return Some("multicast and broadcast addresses are no endpoints");
    }
    let carrier_shared = first == 100 && (64..128).contains(&second);
    if !allow_private && (address.is_private() || address.is_loopback() || first == 0 || carrier_shared) {
        return Some("private and loopback addresses are not allowed here");
    }
    None
}

fn refused_v6(address: Ipv6Addr, allow_private: bool) -> Option<&'static str> {
    if let Some(inner) = embedded_v4(address) {
        return refused_v4(inner, allow_private);
    }
    let first = address.segments()[0];
    if first & 0xffc0 == 0xfe80 {
        return Some("link-local addresses serve instance metadata");
    }
    if METADATA_ADDRESSES.contains(&IpAddr::V6(address)) {
        return Some("this address serves instance metadata");
    }
    if address.is_multicast() {
        return Some("multicast and broadcast addresses are no endpoints");
    }
    let unique_local = first & 0xfe00 == 0xfc00;
    if !allow_private && (unique_local || address.is_loopback() || address.is_unspecified()) {
        return Some("private and loopback addresses are not allowed here");
    }
    None
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64 (`64:ff9b::/96`) and 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return Some(mapped);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        (0x0064, 0xff9b, 0, 0, 0, 0) => Some(join(g, h)),
        (0x2002, ..) => Some(join(b, c)),
        // `::` and `::1` are addresses of their own, not compatible forms.
        (0, 0, 0, 0, 0, 0) if g != 0 || h > 1 => Some(join(g, h)),
        _ => None,
    }
}

/// The address that `host` spells, whatever the spelling: dotted, decimal, octal, hexadecimal or shortened IPv4, with a
/// trailing dot, IPv6 with or without brackets or zone. `None` for a name that has to be looked up.
pub fn literal_address(host: &str) -> Option<IpAddr> {
    let bare = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    let without_zone = bare.split_once('%').map_or(bare, |(address, _)| address);
    if let Ok(address) = without_zone.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(address));
    }
    // The URL standard's host parser knows every spelling of IPv4.
    match url::Host::parse(bare) {
        Ok(url::Host::Ipv4(address)) => Some(IpAddr::V4(address)),
        Ok(url::Host::Ipv6(address)) => Some(IpAddr::V6(address)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn verdict(host: &str) -> Option<&'static str> {
        refused(literal_address(host).unwrap(), true)
    }

    #[test]
    fn om_325_every_spelling_of_a_metadata_address_is_refused() {
        for host in [
            "169.254.169.254",
            "169.254.169.254.",
            "2852039166",
            "0xA9FEA9FE",
            "0251.0376.0251.0376",
            "169.254.43518",
            "0xa9.0xfe.0xa9.0xfe",
            "[fe80::1]",
            "fe80::1%eth0",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::169.254.169.254]",
            "[2002:a9fe:a9fe::1]",
            "[::169.254.169.254]",
            "[fd00:ec2::254]",
            "100.100.100.200",
        ] {
            assert!(verdict(host).is_some(), "{host}");
        }
    }

    #[test]
    fn om_325_metadata_addresses_outside_of_the_link_local_ranges_are_refused_and_their_neighbours_are_not() {
        for host in [
            "168.63.129.16",
            "0xa83f8110",
            "[::ffff:168.63.129.16]",
            "[64:ff9b::168.63.129.16]",
            "192.0.0.192",
            "[fd00:ec2::23]",
            "[fd20:ce::254]",
            "[fd20:00ce:0:0::0254]",
            "[fd00:c1::a9fe:a9fe]",
            "[fd00:a9fe:a9fe::1]",
            "[fd00:42::42]",
        ] {
            assert_eq!(
                verdict(host),
                Some("this address serves instance metadata"),
                "{host}"
            );
        }
        for host in ["168.63.129.17", "192.0.0.193", "[fd20:ce::255]", "[fd00:42::43]"] {
            assert_eq!(verdict(host), None, "{host}");
        }
    }

    #[test]
    fn om_325_private_and_loopback_addresses_are_allowed_by_default() {
        for host in [
            "10.0.0.7",
            "172.16.0.1",
            "192.168.1.1",
            "127.0.0.1",
            "[::1]",
            "[fd12::1]",
            "0.0.0.0",
            "8.8.8.8",
        ] {
            assert_eq!(verdict(host), None, "{host}");
        }
    }

    #[test]
    fn private_and_loopback_addresses_can_be_excluded() {
        for host in [
            "10.0.0.7",
            "127.0.0.1",
            "[::1]",
            "[fd12::1]",
            "0.0.0.0",
            "[::ffff:10.0.0.1]",
            "100.64.0.1",
            "[::]",
        ] {
            assert!(refused(literal_address(host).unwrap(), false).is_some(), "{host}");
        }
        assert_eq!(refused(literal_address("8.8.8.8").unwrap(), false), None);
    }

    #[test]
    fn om_325_metadata_names_are_known_in_any_case_and_with_a_trailing_dot() {
        for host in [
            "metadata",
            "Metadata.Google.Internal.",
            "instance-data",
            "metadata.goog",
        ] {
            assert!(metadata_host(host), "{host}");
        }
        assert!(!metadata_host("metadata.example.com"));
    }

    #[test]
    fn names_are_not_taken_for_addresses() {
        for host in ["orders", "orders.default.svc", "a.b", ""] {
            assert_eq!(literal_address(host), None, "{host}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_host_text_panics(host in ".{0,40}") {
            let _ = literal_address(&host);
            let _ = metadata_host(&host);
        }
    }
}
