//! Moments. CEL's range goes to the end of the year 9999, two days past jiff's, and "never expires" is
//! commonly written as just that end; so a moment is kept as the time since 1970.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// Seconds of 0001-01-01T00:00:00Z, the first moment CEL knows.
const FIRST_SECOND: i64 = -62_135_596_800;
/// Seconds of 9999-12-31T23:59:59Z, the last one.
const LAST_SECOND: i64 = 253_402_300_799;
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// A moment between the years 1 and 9999, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    since_epoch: SignedDuration,
}

impl Timestamp {
    /// The moment this long after 1970-01-01T00:00:00Z, if CEL has it.
    pub fn from_duration(since_epoch: SignedDuration) -> Option<Self> {
        let nanoseconds = since_epoch.as_nanos();
        let second = i64::try_from(nanoseconds.div_euclid(1_000_000_000)).ok()?;
        (FIRST_SECOND..=LAST_SECOND)
            .contains(&second)
            .then_some(Self { since_epoch })
    }

    /// The moment this many seconds after 1970-01-01T00:00:00Z, if CEL has it.
    pub fn from_second(second: i64) -> Option<Self> {
        Self::from_duration(SignedDuration::from_secs(second))
    }

    /// Time since 1970-01-01T00:00:00Z.
    pub fn as_duration(self) -> SignedDuration {
        self.since_epoch
    }

    /// Whole seconds since 1970-01-01T00:00:00Z, rounded down.
    pub fn as_second(self) -> i64 {
        i64::try_from(self.since_epoch.as_nanos().div_euclid(1_000_000_000)).unwrap_or(LAST_SECOND)
    }

    /// Reads RFC 3339 and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
        let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
        let shaped = (0..19).all(|index| match separators.iter().find(|(at, _)| *at == index) {
            Some((_, separator)) => bytes.get(index) == Some(separator),
            None => digit(index),
        });
        if !shaped {
            return None;
        }
        let civil: DateTime = text.get(..19)?.parse().ok()?;
        let mut rest = text.get(19..)?;
        let mut nanoseconds = 0_i64;
        if let Some(after) = rest.strip_prefix('.') {
            let length = after.bytes().take_while(u8::is_ascii_digit).count();
            if length == 0 {
                return None;
            }
            let mut scale = 100_000_000;
            for digit in after.bytes().take(length.min(9)) {
                nanoseconds += i64::from(digit - b'0') * scale;
                scale /= 10;
            }
            rest = after.get(length..)?;
        }
        let offset = match rest.as_bytes() {
            b"Z" => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let hours: i64 = rest.get(1..3)?.parse().ok()?;
                let minutes: i64 = rest.get(4..6)?.parse().ok()?;
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let seconds = hours * 3600 + minutes * 60;
                if *sign == b'-' { -seconds } else { seconds }
            }
            _ => return None,
        };
        let elapsed = civil
            .duration_since(EPOCH)
            .checked_sub(SignedDuration::from_secs(offset))?
            .checked_add(SignedDuration::from_nanos(nanoseconds))?;
        Self::from_duration(elapsed)
    }

    /// Date and time in UTC.
    pub(crate) fn utc(self) -> Option<DateTime> {
        EPOCH.checked_add(self.since_epoch).ok()
    }

    /// Date and time in a zone; `None` when that is past the calendar.
    pub(crate) fn in_zone(self, zone: &TimeZone) -> Option<DateTime> {
        // Zones only know jiff's range; the last days of 9999 use the offset of its end.
        let known = jiff::Timestamp::from_duration(self.since_epoch).unwrap_or(jiff::Timestamp::MAX);
        self.at_offset(zone.to_offset(known))
    }

    fn at_offset(self, offset: Offset) -> Option<DateTime> {
        let seconds = SignedDuration::from_secs(i64::from(offset.seconds()));
        EPOCH.checked_add(self.since_epoch.checked_add(seconds)?).ok()
    }
}

impl From<jiff::Timestamp> for Timestamp {
    /// Moments before the year 1 become its beginning; jiff's end lies within CEL's range.
    fn from(time: jiff::Timestamp) -> Self {
        let first = SignedDuration::from_secs(FIRST_SECOND);
        Self {
            since_epoch: time.as_duration().max(first),
        }
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with as many digits of the fraction as there are.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.utc() {
            Some(civil) => write!(formatter, "{civil}Z"),
            None => write!(formatter, "{}s since 1970", self.since_epoch.as_secs()),
        }
    }
}
