//! Amounts of bytes as `resources` writes them: `64Mi`, `1.5G`, `128974848`, `129e6`.

/// The bytes of a quantity, rounded up; `None` for text that is none, which the API refuses.
pub(super) fn bytes(text: &str) -> Option<u64> {
    scaled(text, 1.0)
}

/// A quantity in billionths, as container engines count processors, rounded up.
pub(super) fn billionths(text: &str) -> Option<u64> {
    scaled(text, 1e9)
}

fn scaled(text: &str, scale: f64) -> Option<u64> {
    let end = text
        .find(|letter: char| !matches!(letter, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "" => 1.0,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024_f64.powi(2),
        "Gi" => 1024_f64.powi(3),
        "Ti" => 1024_f64.powi(4),
        "Pi" => 1024_f64.powi(5),
        "Ei" => 1024_f64.powi(6),
        exponent => 10_f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let bytes = (number * factor * scale).ceil();
    // More than a machine has is no limit that could be rounded wrongly.
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_the_api_writes_them() {
        for (text, expected) in [
            ("128974848", Some(128_974_848)),
            ("64Mi", Some(64 << 20)),
            ("1.5Gi", Some(3 << 29)),
            ("129M", Some(129_000_000)),
            ("129e6", Some(129_000_000)),
            ("129E6", Some(129_000_000)),
            ("1E", Some(1_000_000_000_000_000_000)),
            ("128974848000m", Some(128_974_848)),
            ("1m", Some(1)),
            ("0", Some(0)),
            ("-1", None),
            ("", None),
            ("Mi", None),
            ("64MB", None),
            ("64e", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
