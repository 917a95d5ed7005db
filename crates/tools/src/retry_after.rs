//! `Retry-After` of a tool's answer (OM-394).

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// The wait a `Retry-After` value asks for at `now`: seconds (a fraction is rounded up) or an HTTP
/// date, where a date in the past is no wait. Anything else is `None`.
pub(crate) fn parse(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.starts_with(|first: char| first.is_ascii_digit())
        && let Ok(seconds) = value.parse::<f64>()
    {
        return Duration::try_from_secs_f64(seconds.ceil()).ok();
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(
        date.duration_since(SystemTime::from(now))
            .unwrap_or(Duration::ZERO),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn seconds_and_dates_are_understood_om_394_d12() {
        let now: Timestamp = "1994-11-06T08:49:07Z".parse().unwrap();
        for (value, expected) in [
            ("120", Some(120)),
            ("1.5", Some(2)),
            ("0", Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(30)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(30)),
            ("Sun Nov  6 08:49:37 1994", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("later", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(parse(value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }
}
