//! IP addresses and ranges, as fields accept them that are older than the strict form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::json;

use super::{Errors, Field};

/// An address as Go's older parser reads it, which accepts leading zeros.
pub(crate) fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        // Go takes an address of version 4 in either form for the same.
        return Some(address.to_canonical());
    }
    let parts: Vec<u8> = text.split('.').map(octet).collect::<Option<_>>()?;
    <[u8; 4]>::try_from(parts)
        .ok()
        .map(|parts| IpAddr::V4(parts.into()))
}

fn octet(text: &str) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number
        .then(|| text.trim_start_matches('0'))
        .and_then(|digits| {
            if digits.is_empty() {
                Some(0)
            } else {
                digits.parse().ok()
            }
        })
}

/// What is wrong with an address.
pub(crate) fn check(field: &Field<'_>, errors: &mut Errors) {
    let text = field.text();
    if parse(text).is_none() {
        field.invalid_text(
            errors,
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
        return;
    }
    match text.parse::<IpAddr>() {
        Err(_) => field.invalid_text(errors, "must not have leading 0s"),
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            field.invalid_text(errors, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(_) => {}
    }
}

/// What is wrong with an address that must be in the form in which it is written out.
pub(crate) fn check_strictly(field: &Field<'_>, errors: &mut Errors) {
    let before = errors.len();
    check(field, errors);
    if errors.len() > before {
        return;
    }
    let canonical = parse(field.text()).map_or_else(String::new, |address| address.to_string());
    if field.text() != canonical {
        field.invalid_text(errors, format!("must be in canonical form ({canonical:?})"));
    }
}

/// Whose an address is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A Pod's: those of this machine have its own address, which on a cluster no Pod has.
    Pod,
    /// Somebody else's, or nobody says whose.
    Anybody,
}

/// What is wrong with an address that traffic is to be sent to.
pub(crate) fn check_endpoint(field: &Field<'_>, owner: Owner, errors: &mut Errors) {
    let text = field.text();
    let Some(address) = parse(text) else {
        field.invalid_text(errors, "must be a valid IP address");
        return;
    };
    if address.is_unspecified() {
        field.invalid_text(errors, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() && owner == Owner::Anybody {
        field.invalid_text(errors, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    let (is_local, is_local_multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (
            address.is_unicast_link_local(),
            address.segments()[0] & 0xff0f == 0xff02,
        ),
    };
    if is_local {
        field.invalid_text(
            errors,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        );
    }
    if is_local_multicast {
        field.invalid_text(
            errors,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        );
    }
}

/// Whether there is one address of each version, and no more.
pub(crate) fn is_dual_stack<'text>(texts: impl IntoIterator<Item = &'text str>) -> bool {
    let versions: Vec<bool> = texts
        .into_iter()
        .filter_map(parse)
        .map(|address| address.is_ipv6())
        .collect();
    versions.contains(&true) && versions.contains(&false)
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    address: IpAddr,
    length: u8,
}

impl Range {
    /// A range as Go's older parser reads it.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let parsed = parse(address)?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u8 = length.parse().ok().filter(|_| is_number)?;
        let (address, most) = match (parsed, address.contains(':')) {
            (IpAddr::V4(address), true) => (IpAddr::V6(address.to_ipv6_mapped()), 128),
            (address @ IpAddr::V4(_), false) => (address, 32),
            (address @ IpAddr::V6(_), _) => (address, 128),
        };
        (length <= most).then_some(Self { address, length })
    }

    /// The first address of the range.
    fn first(self) -> IpAddr {
        match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
        }
    }

    /// Whether `other` is a part of this range, and not all of it.
    pub(crate) fn strictly_contains(self, other: Self) -> bool {
        let beginning = Self {
            address: other.first(),
            length: self.length,
        };
        self.length < other.length
            && self.address.is_ipv4() == other.address.is_ipv4()
            && beginning.first() == self.first()
    }
}

/// What is wrong with a range.
pub(crate) fn check_range(field: &Field<'_>, text: &str, errors: &mut Errors) {
    let mut refuse = |detail: &str| field.invalid_as(errors, json!(text), detail);
    let Some(range) = Range::parse(text) else {
        refuse("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)");
        return;
    };
    let (address, length) = text.split_once('/').unwrap_or((text, ""));
    let has_zeros = address.parse::<IpAddr>().is_err() || (length.len() > 1 && length.starts_with('0'));
    let is_mapped = matches!(range.address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if has_zeros {
        refuse("must not have leading 0s in IP or prefix length");
    } else if is_mapped {
        refuse("must not have an IPv4-mapped IPv6 address");
    } else if range.first() != range.address {
        refuse("must not have bits set beyond the prefix length");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::field::FieldPath;

    fn told(rule: fn(&Field<'_>, &mut Errors), text: &str) -> Vec<String> {
        let (value, mut errors) = (Value::from(text), Vec::new());
        rule(&Field::new(&value, FieldPath::of("ip")), &mut errors);
        errors.into_iter().map(|error| error.detail).collect()
    }

    #[test]
    fn addresses_are_read_as_the_reference_reads_them_ka_010() {
        for right in ["10.0.0.1", "::1", "2001:DB8::1"] {
            assert_eq!(told(check, right), [] as [&str; 0], "{right}");
        }
        assert_eq!(told(check, "010.0.0.1"), ["must not have leading 0s"]);
        assert_eq!(
            told(check, "::ffff:10.0.0.1"),
            ["must not be an IPv4-mapped IPv6 address"]
        );
        for wrong in ["", "x", "1.2.3", "1.2.3.256", "fe80::1%eth0"] {
            assert_eq!(told(check, wrong).len(), 1, "{wrong}");
        }
        assert_eq!(
            told(check_strictly, "2001:DB8::1"),
            ["must be in canonical form (\"2001:db8::1\")"]
        );
        for (refused, word) in [
            ("0.0.0.0", "unspecified"),
            ("127.1.2.3", "loopback"),
            ("169.254.1.1", "link-local range"),
            ("fe80::1", "link-local range"),
            ("224.0.0.9", "multicast"),
            ("ff02::1", "multicast"),
        ] {
            let of_anybody =
                |field: &Field<'_>, errors: &mut Errors| check_endpoint(field, Owner::Anybody, errors);
            assert!(told(of_anybody, refused)[0].contains(word), "{refused}");
        }
        let of_pod = |field: &Field<'_>, errors: &mut Errors| check_endpoint(field, Owner::Pod, errors);
        assert_eq!(told(of_pod, "127.0.0.1"), [] as [&str; 0]);
        assert_eq!(told(of_pod, "169.254.1.1").len(), 1);
        assert!(is_dual_stack(["10.0.0.1", "fd00::1"]) && !is_dual_stack(["10.0.0.1", "10.0.0.2"]));
    }

    #[test]
    fn ranges_are_read_and_compared_ka_010() {
        let told = |text: &str| {
            let (value, mut errors) = (Value::Null, Vec::new());
            check_range(&Field::new(&value, FieldPath::of("cidr")), text, &mut errors);
            errors.into_iter().map(|error| error.detail).collect::<Vec<_>>()
        };
        for right in ["10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "10.0.0.1/32"] {
            assert_eq!(told(right), [] as [&str; 0], "{right}");
        }
        for (wrong, word) in [
            ("10.0.0.0", "valid CIDR"),
            ("10.0.0.0/33", "valid CIDR"),
            ("010.0.0.0/8", "leading 0s"),
            ("10.0.0.0/08", "leading 0s"),
            ("10.0.0.1/8", "bits set"),
            ("::ffff:10.0.0.0/104", "mapped"),
        ] {
            assert!(told(wrong)[0].contains(word), "{wrong}");
        }
        let range = |text: &str| Range::parse(text).into_iter().next();
        let contains = |outer: &str, inner: &str| {
            range(outer)
                .zip(range(inner))
                .is_some_and(|(outer, inner)| outer.strictly_contains(inner))
        };
        assert!(contains("10.0.0.0/8", "10.1.0.0/16") && contains("0.0.0.0/0", "10.0.0.0/8"));
        assert!(!contains("10.0.0.0/8", "11.0.0.0/16") && !contains("10.0.0.0/8", "10.0.0.0/8"));
        assert!(!contains("0.0.0.0/0", "fd00::/8"));
    }
}
