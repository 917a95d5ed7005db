//! Which addresses a workload may reach. Source: OM-325.
//!
//! Link-local and cloud metadata addresses are refused for every tool and model, whatever their spelling. Private and
//! loopback addresses are allowed unless a connector is built without them. These are the only rules: the connector
//! applies them to what it dials, the controllers to what a ToolRegistry may name.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use url::{Host, Url};

/// A rule that forbids a host. Its text says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A well-known name of a metadata service.
    MetadataName,
    /// A well-known address of a metadata service outside of the link-local ranges.
    MetadataAddress,
    /// `169.254.0.0/16` or `fe80::/10`.
    LinkLocal,
    /// Multicast or broadcast.
    ManyReceivers,
    /// Private, shared, unspecified or loopback, where a connector is built without them.
    Private,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::MetadataName => "this name serves instance metadata",
            Self::MetadataAddress => "this address serves instance metadata",
            Self::LinkLocal => "link-local addresses serve instance metadata",
            Self::ManyReceivers => "multicast and broadcast addresses are no endpoints",
            Self::Private => "private and loopback addresses are not allowed here",
        })
    }
}

/// A host that may not be reached, and the rule that says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("address {address} of host {host:?} is refused: {rule}")]
pub struct Refusal {
    /// The host as it was asked for.
    pub host: String,
    /// The address it stands for in plain form, or its name where the name itself is refused.
    pub address: String,
    /// The rule.
    pub rule: Rule,
}

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

/// Why the host of `url` may not be reached, or `None` where it may or where there is none. Names are not looked up here.
///
/// The URL parser has already turned decimal, octal, hexadecimal and short spellings of an IPv4 address, one trailing
/// dot, upper case and percent-encoding into their plain form, so no spelling of an address passes for a name.
pub fn refused_url_host(url: &Url, allow_private: bool) -> Option<Refusal> {
    let (address, rule) = match url.host()? {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            let rule = metadata_host(name).then_some(Rule::MetadataName)?;
            (name.to_owned(), rule)
        }
        Host::Ipv4(address) => (address.to_string(), refused_v4(address, allow_private)?),
        Host::Ipv6(address) => (address.to_string(), refused_v6(address, allow_private)?),
    };
    let host = url.host_str().unwrap_or_default().to_owned();
    Some(Refusal { host, address, rule })
}

/// Whether `host` is a well-known name of a metadata service; case and trailing dots do not matter.
pub fn metadata_host(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    METADATA_HOSTS.iter().any(|name| name.eq_ignore_ascii_case(host))
}

/// The rule that forbids `address`, or `None` where it may be dialled.
pub fn refused(address: IpAddr, allow_private: bool) -> Option<Rule> {
    match address {
        IpAddr::V4(address) => refused_v4(address, allow_private),
        IpAddr::V6(address) => refused_v6(address, allow_private),
    }
}

fn refused_v4(address: Ipv4Addr, allow_private: bool) -> Option<Rule> {
    let [first, second, ..] = address.octets();
    if address.is_link_local() {
        return Some(Rule::LinkLocal);
    }
    if METADATA_ADDRESSES.contains(&IpAddr::V4(address)) {
        return Some(Rule::MetadataAddress);
    }
    if address.is_multicast() || address.is_broadcast() {
        return Some(Rule::ManyReceivers);
    }
    let carrier_shared = first == 100 && (64..128).contains(&second);
    if !allow_private && (address.is_private() || address.is_loopback() || first == 0 || carrier_shared) {
        return Some(Rule::Private);
    }
    None
}

fn refused_v6(address: Ipv6Addr, allow_private: bool) -> Option<Rule> {
    if let Some(inner) = embedded_v4(address) {
        return refused_v4(inner, allow_private);
    }
    let first = address.segments()[0];
    if first & 0xffc0 == 0xfe80 {
        return Some(Rule::LinkLocal);
    }
    if METADATA_ADDRESSES.contains(&IpAddr::V6(address)) {
        return Some(Rule::MetadataAddress);
    }
    if address.is_multicast() {
        return Some(Rule::ManyReceivers);
    }
    let unique_local = first & 0xfe00 == 0xfc00;
    if !allow_private && (unique_local || address.is_loopback() || address.is_unspecified()) {
        return Some(Rule::Private);
    }
    None
}

/// The IPv4 address that an IPv6 address stands for: mapped, translated (`::ffff:0:0:0/96`), compatible, NAT64
/// (`64:ff9b::/96`) and 6to4.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if let Some(mapped) = address.to_ipv4_mapped() {
        return Some(mapped);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        (0x0064, 0xff9b, 0, 0, 0, 0) | (0, 0, 0, 0, 0xffff, 0) => Some(join(g, h)),
        (0x2002, ..) => Some(join(b, c)),
        // `::` and `::1` are addresses of their own, not compatible forms.
        (0, 0, 0, 0, 0, 0) if g != 0 || h > 1 => Some(join(g, h)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What the rules say about `host` in a URL, private addresses allowed or not.
    fn judged(host: &str, allow_private: bool) -> Option<Rule> {
        let url = Url::parse(&format!("http://{host}/")).unwrap();
        refused_url_host(&url, allow_private).map(|refusal| refusal.rule)
    }

    fn verdict(host: &str) -> Option<Rule> {
        judged(host, true)
    }

    #[test]
    fn om_325_every_spelling_of_a_link_local_address_is_refused() {
        for host in [
            "169.254.169.254",
            "169.254.0.1:8080",
            "169.254.169.254.",
            "user@169.254.169.254",
            "%31%36%39.254.169.254",
            "2852039166",
            "0xA9FEA9FE",
            "0251.0376.0251.0376",
            "169.254.43518",
            "0xa9.0xfe.0xa9.0xfe",
            "[fe80::1]",
            "[FE80::1]:80",
            "[febf::1]",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[::ffff:0:169.254.169.254]",
            "[::ffff:0:a9fe:a9fe]",
            "[64:ff9b::169.254.169.254]",
            "[2002:a9fe:a9fe::1]",
            "[::169.254.169.254]",
        ] {
            assert_eq!(verdict(host), Some(Rule::LinkLocal), "{host}");
        }
    }

    #[test]
    fn om_325_no_url_carries_a_zone_past_the_rules() {
        for host in ["[fe80::1%eth0]", "[fe80::1%25eth0]", "fe80::1%eth0"] {
            assert!(Url::parse(&format!("http://{host}/")).is_err(), "{host}");
        }
    }

    #[test]
    fn om_325_metadata_addresses_outside_of_the_link_local_ranges_are_refused_and_their_neighbours_are_not() {
        for host in [
            "100.100.100.200",
            "168.63.129.16",
            "0xa83f8110",
            "[::ffff:168.63.129.16]",
            "[::ffff:0:168.63.129.16]",
            "[64:ff9b::168.63.129.16]",
            "192.0.0.192",
            "[fd00:ec2::254]",
            "[fd00:ec2::23]",
            "[fd20:ce::254]",
            "[fd20:00ce:0:0::0254]",
            "[fd00:c1::a9fe:a9fe]",
            "[fd00:a9fe:a9fe::1]",
            "[fd00:42::42]",
        ] {
            assert_eq!(verdict(host), Some(Rule::MetadataAddress), "{host}");
        }
        for host in [
            "100.100.100.201",
            "168.63.129.17",
            "169.253.0.1",
            "192.0.0.193",
            "[fd00:ec2::253]",
            "[fd20:ce::255]",
            "[fd00:42::43]",
        ] {
            assert_eq!(verdict(host), None, "{host}");
        }
    }

    #[test]
    fn om_325_private_and_loopback_addresses_and_other_names_are_allowed_by_default() {
        for host in [
            "10.0.0.7:8080",
            "172.16.0.1",
            "192.168.1.1",
            "127.0.0.1:9000",
            "localhost",
            "[::1]",
            "[fc00::1]",
            "[fd12::1]",
            "0.0.0.0",
            "8.8.8.8",
            "[::ffff:0:8.8.8.8]",
            "orders",
            "svc.ns.svc.cluster.local",
            "metadata.example.com",
        ] {
            assert_eq!(verdict(host), None, "{host}");
        }
    }

    #[test]
    fn multicast_and_broadcast_addresses_are_refused() {
        for host in [
            "224.0.0.1",
            "255.255.255.255",
            "[ff02::1]",
            "[::ffff:224.0.0.1]",
            "[2002:e000:1::]",
        ] {
            assert_eq!(verdict(host), Some(Rule::ManyReceivers), "{host}");
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
            "[::ffff:0:10.0.0.1]",
            "100.64.0.1",
            "[::]",
        ] {
            assert_eq!(judged(host, false), Some(Rule::Private), "{host}");
        }
        assert_eq!(judged("8.8.8.8", false), None);
    }

    #[test]
    fn om_325_metadata_names_are_known_in_any_case_and_with_trailing_dots() {
        for host in [
            "metadata",
            "metadata.google.internal.",
            "METADATA.Google.Internal",
            "metadata.goog",
            "instance-data",
            "instance-data.ec2.internal",
            "instance-data.ec2.internal..",
        ] {
            assert_eq!(verdict(host), Some(Rule::MetadataName), "{host}");
            assert!(metadata_host(host), "{host}");
        }
        assert!(!metadata_host("metadata.example.com"));
    }

    #[test]
    fn a_refusal_has_the_host_as_written_and_the_address_in_plain_form() {
        let url = Url::parse("http://user:secret@[::FFFF:a9fe:a9fe]:80/?key=secret").unwrap();
        assert_eq!(
            refused_url_host(&url, true).unwrap().to_string(),
            "address ::ffff:169.254.169.254 of host \"[::ffff:a9fe:a9fe]\" is refused: link-local addresses serve instance metadata"
        );
        let url = Url::parse("http://metadata./").unwrap();
        assert_eq!(refused_url_host(&url, true).unwrap().address, "metadata");
    }

    proptest::proptest! {
        #[test]
        fn no_host_text_panics(host in ".{0,40}") {
            if let Ok(url) = Url::parse(&format!("http://{host}/")) {
                let _ = refused_url_host(&url, true);
            }
            let _ = metadata_host(&host);
        }
    }
}
