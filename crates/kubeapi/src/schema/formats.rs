//! The formats of strings and numbers that schemas name, as the reference checks them
//! (`k8s.io/kube-openapi/pkg/validation/strfmt`). Formats that it does not know demand nothing. Requirement KA-013.

use std::{net::IpAddr, sync::LazyLock};

use base64::Engine as _;
use regex::Regex;

/// A known format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name, as messages show it.
    pub name: &'static str,
    check: Option<fn(&str) -> bool>,
}

impl Format {
    /// Whether `text` has the format. Formats of numbers accept every text.
    pub fn accepts(&self, text: &str) -> bool {
        self.check.is_none_or(|check| check(text))
    }

    /// Whether this is a format of strings.
    pub fn is_textual(&self) -> bool {
        self.check.is_some()
    }
}

/// The format of that name; hyphens do not count.
pub(super) fn by_name(name: &str) -> Option<Format> {
    let normal = name.replace('-', "");
    FORMATS
        .iter()
        .find(|format| format.name.replace('-', "") == normal)
        .copied()
}

const fn textual(name: &'static str, check: fn(&str) -> bool) -> Format {
    Format {
        name,
        check: Some(check),
    }
}

const fn numeric(name: &'static str) -> Format {
    Format { name, check: None }
}

static FORMATS: &[Format] = &[
    numeric("int32"),
    numeric("int64"),
    numeric("float"),
    numeric("double"),
    textual("bsonobjectid", |text| {
        text.len() == 24 && text.chars().all(|c| c.is_ascii_hexdigit())
    }),
    textual("uri", is_uri),
    textual("email", is_email),
    textual("hostname", is_hostname),
    textual("ipv4", |text| matches!(text.parse::<IpAddr>(), Ok(IpAddr::V4(_)))),
    textual("ipv6", |text| matches!(text.parse::<IpAddr>(), Ok(IpAddr::V6(_)))),
    textual("cidr", is_cidr),
    textual("mac", is_mac),
    textual("uuid", |text| is_uuid(text, None)),
    textual("uuid3", |text| is_uuid(text, Some('3'))),
    textual("uuid4", |text| is_uuid(text, Some('4'))),
    textual("uuid5", |text| is_uuid(text, Some('5'))),
    textual("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    textual("isbn10", is_isbn10),
    textual("isbn13", is_isbn13),
    textual("creditcard", is_credit_card),
    textual("ssn", |text| matches_pattern(&SSN, text)),
    textual("hexcolor", |text| matches_pattern(&HEX_COLOR, text)),
    textual("rgbcolor", |text| matches_pattern(&RGB_COLOR, text)),
    textual("byte", is_base64),
    textual("password", |_| true),
    textual("date", |text| {
        text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
    }),
    textual("duration", is_duration),
    textual("date-time", is_date_time),
    textual("k8s-short-name", |text| crate::names::label(text).is_empty()),
    textual("k8s-long-name", |text| crate::names::subdomain(text).is_empty()),
];

type LazyPattern = LazyLock<Option<Regex>>;

fn matches_pattern(pattern: &LazyPattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|regex| regex.is_match(text))
}

static SSN: LazyPattern = LazyLock::new(|| Regex::new(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").ok());
static HEX_COLOR: LazyPattern = LazyLock::new(|| Regex::new(r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").ok());
static RGB_COLOR: LazyPattern = LazyLock::new(|| {
    let part = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    Regex::new(&format!(r"^rgb\({part},{part},{part}\)$")).ok()
});
static HOSTNAME: LazyPattern = LazyLock::new(|| {
    Regex::new(concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)",
        r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
    ))
    .ok()
});
static DATE_TIME: LazyPattern = LazyLock::new(|| {
    Regex::new(
        r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$",
    )
    .ok()
});
static GO_DURATION: LazyPattern = LazyLock::new(|| {
    Regex::new(r"^[+-]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$").ok()
});
static WORD_DURATION: LazyPattern = LazyLock::new(|| {
    Regex::new(r"^[0-9]+\s*(ns|us|µs|μs|ms|s|m|h|d|w|nano(second)?s?|micro(second)?s?|milli(second)?s?|sec(ond)?s?|min(ute)?s?|h(ou)?rs?|hour|days?|weeks?)$").ok()
});
static CREDIT_CARD: LazyPattern = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}",
        r"|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    ))
    .ok()
});

/// An absolute URI or an absolute path, as `net/url.ParseRequestURI` accepts.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let scheme_is_valid = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    scheme_is_valid && (!rest.starts_with("//") || authority_is_valid(&rest[2..]))
}

fn authority_is_valid(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((_, after)) => after,
            None => return false,
        },
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.chars().all(|c| c.is_ascii_digit()))
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(open), Some(closed)) => &closed[open + 1..],
        _ => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else {
        return false;
    };
    let atom = |part: &str| {
        !part.is_empty()
            && part
                .chars()
                .all(|c| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii())
    };
    let local_is_valid =
        (local.len() > 2 && local.starts_with('"') && local.ends_with('"')) || local.split('.').all(atom);
    local_is_valid && domain.split('.').all(atom)
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && matches_pattern(&HOSTNAME, text) && text.split('.').all(|label| label.len() <= 63)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    if length.is_empty() || !length.chars().all(|c| c.is_ascii_digit()) {
        return false;
    }
    match (address.parse::<IpAddr>(), length.parse::<u8>()) {
        (Ok(IpAddr::V4(_)), Ok(length)) => length <= 32,
        (Ok(IpAddr::V6(_)), Ok(length)) => length <= 128,
        _ => false,
    }
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len())
            && parts
                .iter()
                .all(|part| part.len() == width && part.chars().all(|c| c.is_ascii_hexdigit()))
    };
    groups(':', 2, &[6, 8, 20]) || groups('-', 2, &[6, 8, 20]) || groups('.', 4, &[3, 4, 10])
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let bytes = text.as_bytes();
    let mut digits = String::with_capacity(32);
    let mut at = 0;
    for width in [8, 4, 4, 4, 12] {
        if !digits.is_empty() && bytes.get(at) == Some(&b'-') {
            at += 1;
        }
        let Some(group) = bytes.get(at..at + width) else {
            return false;
        };
        if !group.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        digits.extend(group.iter().map(|byte| char::from(byte.to_ascii_lowercase())));
        at += width;
    }
    if at != bytes.len() {
        return false;
    }
    let Some(version) = version else { return true };
    let variant_matters = version != '3';
    digits.chars().nth(12) == Some(version)
        && (!variant_matters || matches!(digits.chars().nth(16), Some('8' | '9' | 'a' | 'b')))
}

fn is_isbn10(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if compact.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (index, character) in compact.iter().enumerate() {
        let digit = match character.to_digit(10) {
            Some(digit) => digit,
            None if index == 9 && *character == 'X' => 10,
            None => return false,
        };
        sum += (10 - u32::try_from(index).unwrap_or(0)) * digit;
    }
    sum.is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(|c| !matches!(c, '-' | ' ')).collect();
    if compact.len() != 13 {
        return false;
    }
    let mut sum = 0;
    for (index, character) in compact.iter().enumerate() {
        let Some(digit) = character.to_digit(10) else {
            return false;
        };
        sum += if index % 2 == 0 { digit } else { 3 * digit };
    }
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !matches_pattern(&CREDIT_CARD, &digits) {
        return false;
    }
    let sum: u32 = digits
        .chars()
        .rev()
        .filter_map(|c| c.to_digit(10))
        .enumerate()
        .map(|(index, digit)| match (index % 2, digit * 2) {
            (0, _) => digit,
            (_, doubled) if doubled > 9 => doubled - 9,
            (_, doubled) => doubled,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_base64(text: &str) -> bool {
    // Go's decoder skips line ends.
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    base64::engine::general_purpose::STANDARD.decode(compact).is_ok()
}

fn is_date_time(text: &str) -> bool {
    matches_pattern(&DATE_TIME, text) && text.to_ascii_uppercase().parse::<jiff::Timestamp>().is_ok()
}

fn is_duration(text: &str) -> bool {
    matches_pattern(&GO_DURATION, text) || matches_pattern(&WORD_DURATION, text)
}

/// The length of time that a text stands for which Go's `time.ParseDuration` reads: `32s`, `1m30s`.
pub(crate) fn parse_go_duration(text: &str) -> Option<jiff::SignedDuration> {
    matches_pattern(&GO_DURATION, text)
        .then(|| parse_duration(text))
        .flatten()
}

/// The length of time that a text of the format `duration` stands for.
pub(super) fn parse_duration(text: &str) -> Option<jiff::SignedDuration> {
    if !is_duration(text) {
        return None;
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut nanoseconds: f64 = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().ok()?;
        rest = rest[digits..].trim_start();
        let letters = rest
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(rest.len());
        nanoseconds += number * unit(&rest[..letters])?;
        rest = &rest[letters..];
    }
    let signed = if negative { -nanoseconds } else { nanoseconds };
    jiff::SignedDuration::try_from_secs_f64(signed / 1e9).ok()
}

/// The nanoseconds of a unit of time.
fn unit(name: &str) -> Option<f64> {
    Some(match name {
        "" | "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        "d" => 86_400e9,
        "w" => 604_800e9,
        _ if name.starts_with("nano") => 1.0,
        _ if name.starts_with("micro") => 1e3,
        _ if name.starts_with("milli") => 1e6,
        _ if name.starts_with("sec") => 1e9,
        _ if name.starts_with("min") => 60e9,
        _ if name.starts_with('h') => 3600e9,
        _ if name.starts_with("day") => 86_400e9,
        _ if name.starts_with("week") => 604_800e9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::by_name;

    #[test]
    fn every_pattern_compiles_and_formats_tell_good_from_bad() {
        // KA-013
        let cases = [
            ("date-time", "2024-12-15T19:30:20.000Z", "2024-12-15"),
            ("date", "2024-12-15", "2024-13-15"),
            ("uri", "https://example.com/a?b", "example.com"),
            ("email", "a.b@example.com", "a.b"),
            ("hostname", "a.example.com", "-a"),
            ("ipv4", "10.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("mac", "00:00:5e:00:53:01", "00:00:5e:00:53"),
            ("uuid", "A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99"),
            (
                "uuid4",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "a0eebc99-9c0b-1ef8-bb6d-6bb9bd380a11",
            ),
            ("isbn10", "0321751043", "0321751044"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("ssn", "111-22-3333", "111-22-333"),
            ("hexcolor", "#FFFFFF", "#FFFFF"),
            ("rgbcolor", "rgb(255, 255, 25)", "rgb(256,0,0)"),
            ("byte", "aGVsbG8=", "aGVsbG8"),
            ("duration", "22 ns", "22 bananas"),
            ("duration", "1h30m", "1x"),
            ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
        ];
        for (name, good, bad) in cases {
            let format = by_name(name).expect(name);
            assert!(format.accepts(good), "{name} should accept {good}");
            assert!(!format.accepts(bad), "{name} should refuse {bad}");
        }
        assert!(by_name("datetime").is_some(), "hyphens do not count");
        assert!(by_name("made-up").is_none());
    }
}
