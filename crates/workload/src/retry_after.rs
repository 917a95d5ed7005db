//! `Retry-After` in every form that servers send (D12, OM-394).

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// The wait a `Retry-After` value asks for at `now`: whole or fractional seconds (rounded up), or one of the three HTTP
/// date forms; a date in the past is no wait. Anything else is `None`, so that the caller's own delay applies.
pub fn parse(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        let seconds: f64 = value.parse().ok()?;
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
    fn every_form_of_retry_after_is_understood_om_394_d12() {
        let now: Timestamp = "1994-11-06T08:49:07Z".parse().unwrap();
        for (value, expected) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("1.5", Some(2)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(30)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(30)),
            ("Sun Nov  6 08:49:37 1994", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-5", None),
            ("1e3", None),
            ("1.2.3", None),
            (".", None),
            ("", None),
            ("99999999999999999999999999", None),
        ] {
            assert_eq!(parse(value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }
}
