//! Numbers, times and durations as the reference writes and reads them.

use jiff::SignedDuration;

/// A double as Go's `%g` prints it: the shortest digits, with an exponent below 1e-4 and from 1e+06.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A duration as seconds with `s`, fraction without trailing zeros: `1.5s`.
pub(crate) fn duration(value: SignedDuration) -> String {
    let nanoseconds = value.as_nanos();
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let nanoseconds = nanoseconds.unsigned_abs();
    let (seconds, fraction) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
    if fraction == 0 {
        return format!("{sign}{seconds}s");
    }
    let digits = format!("{fraction:09}");
    format!("{sign}{seconds}.{}s", digits.trim_end_matches('0'))
}

/// Reads a duration as Go's `time.ParseDuration` does: `1h30m`, `-1.5s`, `0`. `None` when the text
/// is none or does not fit 64 bits of nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Option<SignedDuration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let whole_length = digits(rest);
        let whole: i128 = match whole_length {
            0 => 0,
            1..=19 => rest[..whole_length].parse().ok()?,
            _ => return None,
        };
        rest = &rest[whole_length..];
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            let length = digits(after);
            fraction = &after[..length];
            rest = &after[length..];
        }
        if whole_length == 0 && fraction.is_empty() {
            return None;
        }
        let unit_length = rest
            .find(|character: char| character == '.' || character.is_ascii_digit())
            .unwrap_or(rest.len());
        let unit: i128 = match &rest[..unit_length] {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        rest = &rest[unit_length..];
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut scale = unit;
        for digit in fraction.bytes().take(18) {
            total += i128::from(digit - b'0') * scale / 10;
            scale /= 10;
        }
    }
    let total = if negative { -total } else { total };
    i64::try_from(total).ok().map(SignedDuration::from_nanos)
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}
