//! The one form in which a quantity is stored: `0.5` is `500m`, `1024Mi` is `1Gi`. Requirement KA-011.

use super::{Base, NANO, Quantity, nanos, suffix_of};

const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// The largest exponent that is written as such.
const MOST_EXPONENT: i32 = 18;

/// How a quantity is written: with which letters, or with an exponent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// `500m`, `1k`
    Decimal,
    /// `1Gi`
    Binary,
    /// `1e3`, with the letter that was sent.
    Exponent(char),
}

impl Notation {
    /// How `text`, a quantity, is written.
    pub fn of(text: &str) -> Self {
        let suffix = text.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        match suffix.chars().next() {
            Some(letter @ ('e' | 'E')) if suffix.len() > 1 => Self::Exponent(letter),
            _ if suffix.ends_with('i') => Self::Binary,
            _ => Self::Decimal,
        }
    }
}

impl Quantity {
    /// The quantity as it is stored; `None` for one that is too large to say.
    pub fn written(self, notation: Notation) -> Option<String> {
        let nanos = self.nanos();
        (nanos.abs() < i128::MAX).then(|| write(nanos, notation))
    }
}

/// The canonical form of a quantity; `None` for a text that is in that form, is none, or is too large to say.
pub fn canonical_quantity(text: &str) -> Option<String> {
    let (negative, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let end = unsigned
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // Unusual spellings of usual numbers stay as they were sent.
    let is_unusual = whole.is_empty()
        || (whole != "0" && whole.starts_with('0'))
        || number.ends_with('.')
        || fraction.contains('.');
    if is_unusual {
        return None;
    }
    let (base, exponent) = suffix_of(suffix).ok()?;
    let notation = Notation::of(text);
    if matches!(notation, Notation::Exponent(_))
        && (exponent.abs() > MOST_EXPONENT || fraction.is_empty() && exponent % 3 == 0)
    {
        return None;
    }
    let (factor, power) = match base {
        Base::Decimal => (1, exponent),
        Base::Binary => (1_i64.checked_shl(exponent.unsigned_abs())?, 0),
    };
    let scale = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let size = nanos(&format!("{whole}{fraction}"), factor, scale);
    if size == i128::MAX {
        return None;
    }
    let written = write(if negative { -size } else { size }, notation);
    (written != text).then_some(written)
}

fn write(nanos: i128, notation: Notation) -> String {
    match notation {
        Notation::Binary if nanos.abs() >= 1024 * NANO => binary(nanos),
        Notation::Binary | Notation::Decimal => decimal(nanos),
        Notation::Exponent(letter) => exponent(nanos, letter),
    }
}

/// The largest power of ten in steps of three that leaves no fraction.
fn split(nanos: i128) -> (i128, i32) {
    let mut power = MOST_EXPONENT;
    while power > -9 {
        let unit = NANO * 10_i128.pow(u32::try_from(power.max(0)).unwrap_or(0))
            / 10_i128.pow(u32::try_from((-power).max(0)).unwrap_or(0));
        if nanos % unit == 0 {
            return (nanos / unit, power);
        }
        power -= 3;
    }
    (nanos, -9)
}

fn decimal(nanos: i128) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    let (number, power) = split(nanos);
    let letter = DECIMAL
        .iter()
        .find(|(_, known)| *known == power)
        .map_or("", |(letter, _)| letter);
    format!("{number}{letter}")
}

fn exponent(nanos: i128, letter: char) -> String {
    if nanos == 0 {
        return "0".to_owned();
    }
    match split(nanos) {
        (number, 0) => number.to_string(),
        (number, power) => format!("{number}{letter}{power}"),
    }
}

fn binary(nanos: i128) -> String {
    let mut number = nanos / NANO + i128::from(nanos % NANO > 0);
    let mut power = 0;
    while power + 1 < BINARY.len() && number % 1024 == 0 {
        number /= 1024;
        power += 1;
    }
    format!("{number}{}", BINARY.get(power).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::{super::Quantity, Notation, canonical_quantity as canonical};

    #[test]
    fn quantities_take_the_form_that_the_reference_stores_ka_011() {
        for (sent, stored) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1000", "1k"),
            ("1.5k", "1500"),
            ("100000", "100k"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1.5Ki", "1536"),
            ("0.5Ki", "512"),
            ("512", "512"),
            ("1e3", "1e3"),
            ("12e3", "12e3"),
            ("1e2", "100"),
            ("5e-1", "500e-3"),
            ("1e-3", "1e-3"),
            ("1500e0", "1500e0"),
            ("0", "0"),
            ("1Ki", "1Ki"),
            ("1000Ki", "1000Ki"),
            ("+1", "+1"),
            ("01", "01"),
            ("1.", "1."),
            ("9223372036854775807", "9223372036854775807"),
            ("10E", "10E"),
            ("-1000m", "-1"),
            ("0.1n", "1n"),
            ("x", "x"),
        ] {
            assert_eq!(canonical(sent).as_deref().unwrap_or(sent), stored, "{sent}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_canonical_stays_so(number in "[0-9]{1,25}(\\.[0-9]{0,12})?", suffix in "(|[numkMGTPE]|[KMGTPE]i|[eE]-?[0-9]{1,3})") {
            let text = format!("{number}{suffix}");
            if let Some(canonical_text) = canonical(&text) {
                proptest::prop_assert_eq!(canonical(&canonical_text), None, "{} of {}", canonical_text, text);
            }
        }
    }

    #[test]
    fn a_sum_is_written_as_its_first_part_was_ka_011() {
        let sum = |left: &str, right: &str| {
            let sum = Quantity::parse(left)
                .unwrap()
                .plus(Quantity::parse(right).unwrap());
            sum.written(Notation::of(left)).unwrap()
        };
        assert_eq!(sum("500m", "1"), "1500m");
        assert_eq!(sum("512Mi", "512Mi"), "1Gi");
        assert_eq!(sum("1e3", "1k"), "2e3");
    }
}
