//! Quantities in the one form in which they are stored: `0.5` is `500m`, `1024Mi` is `1Gi`. Requirement KA-011.

/// What a number is multiplied with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// A power of ten, with its letter.
    Decimal(i32),
    /// A power of 1024.
    Binary(u32),
    /// A power of ten that is written as such, and with which letter.
    Exponent(i32, char),
}

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
/// Everything is counted in these: nothing smaller is kept.
const NANO: i128 = 1_000_000_000;

/// The canonical form of a quantity; `None` for a text that is in that form, is none, or is too large to say.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
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
    let scale = scale(suffix)?;
    if fraction.is_empty() && matches!(scale, Scale::Exponent(power, _) if power % 3 == 0) {
        return None;
    }
    let nano = sign * nanos(whole, fraction, scale)?;
    let written = match scale {
        Scale::Binary(_) if nano.abs() >= 1024 * NANO => binary(nano),
        Scale::Binary(_) | Scale::Decimal(_) => decimal(nano),
        Scale::Exponent(_, letter) => exponent(nano, letter),
    };
    (written != text).then_some(written)
}

fn scale(suffix: &str) -> Option<Scale> {
    if let Some((_, power)) = DECIMAL.iter().find(|(letter, _)| *letter == suffix) {
        return Some(Scale::Decimal(*power));
    }
    if let Some(power) = BINARY.iter().position(|letters| *letters == suffix) {
        return u32::try_from(power).ok().map(Scale::Binary);
    }
    let letter = suffix
        .chars()
        .next()
        .filter(|letter| matches!(letter, 'e' | 'E'))?;
    let power: i32 = suffix.get(1..)?.parse().ok()?;
    (-18..=18)
        .contains(&power)
        .then_some(Scale::Exponent(power, letter))
}

/// The size of a number, rounded away from zero.
fn nanos(whole: &str, fraction: &str, scale: Scale) -> Option<i128> {
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, power) = match scale {
        Scale::Decimal(power) | Scale::Exponent(power, _) => (1, power),
        Scale::Binary(power) => (1024_i128.checked_pow(power)?, 0),
    };
    let digits = digits.checked_mul(factor)?;
    let places = power + 9 - i32::try_from(fraction.len()).ok()?;
    let shift = 10_i128.checked_pow(places.unsigned_abs())?;
    if places >= 0 {
        digits.checked_mul(shift)
    } else {
        Some(digits / shift + i128::from(digits % shift != 0))
    }
}

/// The largest power of ten in steps of three that leaves no fraction.
fn split(nano: i128) -> (i128, i32) {
    let mut power = 18;
    while power > -9 {
        let unit = NANO * 10_i128.pow(u32::try_from(power.max(0)).unwrap_or(0))
            / 10_i128.pow(u32::try_from((-power).max(0)).unwrap_or(0));
        if nano % unit == 0 {
            return (nano / unit, power);
        }
        power -= 3;
    }
    (nano, -9)
}

fn decimal(nano: i128) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    let (number, power) = split(nano);
    let letter = DECIMAL
        .iter()
        .find(|(_, known)| *known == power)
        .map_or("", |(letter, _)| letter);
    format!("{number}{letter}")
}

fn exponent(nano: i128, letter: char) -> String {
    if nano == 0 {
        return "0".to_owned();
    }
    match split(nano) {
        (number, 0) => number.to_string(),
        (number, power) => format!("{number}{letter}{power}"),
    }
}

fn binary(nano: i128) -> String {
    let mut number = nano / NANO + i128::from(nano % NANO > 0);
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
    use super::canonical;

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
}
