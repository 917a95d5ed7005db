//! Durations in Go's syntax (OM-005).

use std::time::Duration;

use thiserror::Error;

/// Why a text is not a duration that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// Not of the form `1h30m`, `1.5s` or `0`.
    #[error("{0:?} is not a duration like 30s, 1m30s or 1.5h")]
    Syntax(String),
    /// Below zero, where only a span of time makes sense.
    #[error("{0:?} is negative")]
    Negative(String),
    /// Longer than about 292 years, the longest that Go can hold.
    #[error("{0:?} is longer than a duration can be")]
    TooLong(String),
}

const UNITS: [(&str, u64); 8] = [
    // Longer names first: `m` is a prefix of `ms`.
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration: an optional sign, then `0` or numbers with units (`90s`, `1m30s`, `1.5h`).
///
/// # Errors
///
/// [`DurationError`], which quotes the text. A bare number other than `0` is a syntax error.
pub fn parse_go(text: &str) -> Result<Duration, DurationError> {
    let syntax = || DurationError::Syntax(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_length = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .ok_or_else(syntax)?;
        let (number, after) = rest.split_at(number_length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(syntax());
        }
        let (unit, scale) = UNITS
            .iter()
            .filter(|(unit, _)| after.starts_with(unit))
            .max_by_key(|(unit, _)| unit.len())
            .ok_or_else(syntax)?;
        if !whole.is_empty() {
            let whole: u64 = whole.parse().map_err(|_| too_long())?;
            total += u128::from(whole) * u128::from(*scale);
        }
        total += fraction_nanoseconds(fraction, *scale);
        if total > i64::MAX as u128 {
            return Err(too_long());
        }
        rest = &after[unit.len()..];
    }
    if negative && total > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    u64::try_from(total)
        .map(Duration::from_nanos)
        .map_err(|_| too_long())
}

/// `0.fraction` of a unit. Digits beyond the eighteenth are below a nanosecond of any unit.
fn fraction_nanoseconds(fraction: &str, scale: u64) -> u128 {
    let mut value: u128 = 0;
    let mut divisor: u128 = 1;
    for digit in fraction.bytes().take(18) {
        value = value * 10 + u128::from(digit - b'0');
        divisor *= 10;
    }
    value * u128::from(scale) / divisor
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_in_go_syntax_om_005() {
        for (text, nanoseconds) in [
            ("0", 0u64),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("90s", 90_000_000_000),
            ("1m30s", 90_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("100ms", 100_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("3us2ns", 3_002),
            ("3µs", 3_000),
            ("3μs", 3_000),
            ("1h1m1s1ms1us1ns", 3_661_001_001_001),
            ("0.000000001s", 1),
        ] {
            assert_eq!(
                parse_go(text).unwrap(),
                Duration::from_nanos(nanoseconds),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_a_duration_is_an_error_om_005() {
        for text in [
            "", "5", "1", "+", "-", "s", ".s", "1..5s", "1.5.2s", "10 s", "1d", "five", "1h2", "ms1",
        ] {
            assert_eq!(
                parse_go(text),
                Err(DurationError::Syntax(text.to_owned())),
                "{text}"
            );
        }
        assert_eq!(parse_go("-1s"), Err(DurationError::Negative("-1s".into())));
        assert_eq!(
            parse_go("9999999999999h"),
            Err(DurationError::TooLong("9999999999999h".into()))
        );
        assert!(matches!(
            parse_go("99999999999999999999999s"),
            Err(DurationError::TooLong(_))
        ));
    }

    #[test]
    fn the_schema_pattern_and_the_parser_agree_on_syntax() {
        let pattern = regex::Regex::new(crate::schemas::DURATION_PATTERN).unwrap();
        for text in [
            "0", "90s", "1m30s", "1.5h", ".5s", "1.s", "3µs", "-1s", "", "5", "s", "1..5s", "10 s", "1d",
            "+0", "1h2",
        ] {
            let parsed = !matches!(parse_go(text), Err(DurationError::Syntax(_)));
            assert_eq!(pattern.is_match(text), parsed, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_a_panic(text in "[-+]?[0-9.]{0,30}(ns|us|µs|ms|s|m|h|d)?[0-9.hms]{0,10}") {
            let _ = parse_go(&text);
        }
    }
}
