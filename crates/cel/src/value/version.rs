//! Versions (`1.2.3-alpha.1+build`) by the rules of Semantic Versioning 2.0.0.

use std::cmp::Ordering;

const DIGITS: &str = "0123456789";

/// A version.
#[derive(Clone, Debug)]
pub struct Version {
    /// The three numbers.
    pub(crate) numbers: [u64; 3],
    pre: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    // Numbers come before texts.
    Number(u64),
    Text(String),
}

impl Version {
    /// Reads a version; the error is the reference's explanation.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let parts: Vec<&str> = text.splitn(3, '.').collect();
        let [major, minor, rest] = parts.as_slice() else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let major = number("major", "Major", major)?;
        let minor = number("minor", "Minor", minor)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (*rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = number("patch", "Patch", patch)?;
        let pre = match pre {
            Some(pre) => pre.split('.').map(pre_part).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_identifier(part) {
                return Err(format!("Invalid character(s) found in build meta data {part:?}"));
            }
        }
        Ok(Self {
            numbers: [major, minor, patch],
            pre,
        })
    }

    /// Reads a version that may begin with `v`, have fewer numbers, or zeros in front of them.
    pub(crate) fn parse_tolerant(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("Short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        self.numbers
            .cmp(&other.numbers)
            // What has no suffix comes after what has one.
            .then_with(|| self.pre.is_empty().cmp(&other.pre.is_empty()))
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let short = part.trim_start_matches('0');
    if short.starts_with(|first: char| DIGITS.contains(first)) {
        short.to_owned()
    } else {
        format!("0{short}")
    }
}

fn number(name: &str, capital: &str, text: &str) -> Result<u64, String> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("Invalid character(s) found in {name} number {text:?}"));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!(
            "{capital} number must not contain leading zeroes {text:?}"
        ));
    }
    text.parse().map_err(|error: std::num::ParseIntError| {
        let reason = match error.kind() {
            std::num::IntErrorKind::PosOverflow => "value out of range",
            _ => "invalid syntax",
        };
        format!("strconv.ParseUint: parsing {text:?}: {reason}")
    })
}

fn is_identifier(part: &str) -> bool {
    part.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn pre_part(part: &str) -> Result<Part, String> {
    if part.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        if part.len() > 1 && part.starts_with('0') {
            return Err(format!(
                "Numeric PreRelease version must not contain leading zeroes {part:?}"
            ));
        }
        return part
            .parse()
            .map(Part::Number)
            .map_err(|_| format!("strconv.ParseUint: parsing {part:?}: value out of range"));
    }
    if !is_identifier(part) {
        return Err(format!("Invalid character(s) found in prerelease {part:?}"));
    }
    Ok(Part::Text(part.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_have_the_order_of_the_standard() {
        let ordered = [
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "1.0.1",
            "1.10.0",
        ];
        for pair in ordered.windows(2) {
            let (left, right) = (Version::parse(pair[0]).unwrap(), Version::parse(pair[1]).unwrap());
            assert!(left.compare(&right).is_lt(), "{pair:?}");
        }
        assert_eq!(
            Version::parse("1.0.0+a").unwrap(),
            Version::parse("1.0.0+b").unwrap()
        );
        assert_eq!(
            Version::parse_tolerant("v01.2").unwrap(),
            Version::parse("1.2.0").unwrap()
        );
        for wrong in ["", "1.2", "1.2.x", "01.2.3", "1.2.3-", "1.2.3-01", "v1.2.3"] {
            assert!(Version::parse(wrong).is_err(), "{wrong}");
        }
    }
}
