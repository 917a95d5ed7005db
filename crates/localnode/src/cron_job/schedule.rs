//! When a CronJob is due. The API has checked the words; here they get a meaning.
//!
//! The fields are read as Kubernetes reads them and handed to the library as plain lists, so that its own extensions and
//! readings of the syntax do not matter; it finds the times, and knows what to do where clocks are changed.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The times of a schedule.
#[derive(Debug)]
pub(super) struct Schedule {
    times: Times,
    zone: TimeZone,
}

#[derive(Debug)]
enum Times {
    /// `@every`: so long after the time before.
    Every(Duration),
    Fields(Box<Cron>),
}

/// Why a schedule has no times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    #[error("invalid timeZone: {0:?}: unknown time zone")]
    Zone(String),
    #[error("unparseable schedule: {schedule:?}: {detail}")]
    Words { schedule: String, detail: String },
}

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const DAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &MONTHS),
    (0, 6, &DAYS),
];

impl Schedule {
    /// Reads a schedule; without a zone its times are those of UTC.
    pub(super) fn parse(schedule: &str, zone: Option<&str>) -> Result<Self, ScheduleError> {
        let zone = match zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|_| ScheduleError::Zone(name.to_owned()))?,
        };
        let words = |detail: &str| ScheduleError::Words {
            schedule: schedule.to_owned(),
            detail: detail.to_owned(),
        };
        if let Some(every) = schedule.strip_prefix("@every ") {
            let duration: SignedDuration = every.parse().map_err(|_| words("no duration"))?;
            let seconds = u64::try_from(duration.as_secs()).unwrap_or(0).max(1);
            let times = Times::Every(Duration::from_secs(seconds));
            return Ok(Self { times, zone });
        }
        let fields = match schedule {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other => other,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        if fields.len() != FIELDS.len() {
            return Err(words("it has not five fields"));
        }
        let plain: Option<Vec<String>> = fields
            .iter()
            .zip(FIELDS)
            .map(|(field, bounds)| plain(field, bounds))
            .collect();
        let plain = plain.ok_or_else(|| words("a field is malformed"))?.join(" ");
        let parser = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Disallowed)
            .build();
        let cron = parser.parse(&plain).map_err(|error| words(&error.to_string()))?;
        Ok(Self {
            times: Times::Fields(Box::new(cron)),
            zone,
        })
    }

    /// The first time after `after`; `None` if there is none, as on the 30th of February. `start` is the last time there
    /// was, or when the CronJob was made: `@every` counts from there.
    pub(super) fn next(&self, start: Timestamp, after: Timestamp) -> Option<Timestamp> {
        match &self.times {
            Times::Every(wait) => every(*wait, start, after, 1).filter(|next| *next > after),
            Times::Fields(cron) => {
                let from = after.to_zoned(self.zone.clone());
                let found = cron.find_next_occurrence(&from, false).ok()?;
                Some(whole_seconds(found.timestamp()))
            }
        }
    }

    /// The last time after `earliest` that is not after `now`. `start` as for [`Schedule::next`].
    pub(super) fn last(&self, start: Timestamp, earliest: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let last = match &self.times {
            Times::Every(wait) => every(*wait, start, now, 0)?,
            Times::Fields(cron) => {
                let to = whole_seconds(now).to_zoned(self.zone.clone());
                whole_seconds(cron.find_previous_occurrence(&to, true).ok()?.timestamp())
            }
        };
        (last > earliest && last <= now).then_some(last)
    }

    /// A time as its annotation shows it.
    pub(super) fn shown(&self, time: Timestamp) -> String {
        let zoned = time.to_zoned(self.zone.clone());
        if zoned.offset().is_zero() {
            zoned.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
        } else {
            zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        }
    }
}

/// The last time up to `time` of those that follow `start` at this distance, and so many more.
fn every(wait: Duration, start: Timestamp, time: Timestamp, more: i64) -> Option<Timestamp> {
    let wait = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let start = start.as_second();
    let times = time.as_second().checked_sub(start)?.max(0) / wait + more;
    Timestamp::from_second(start.checked_add(times.checked_mul(wait)?)?).ok()
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// A field as a star or a list of numbers.
fn plain(field: &str, (least, most, names): (u32, u32, &[&str])) -> Option<String> {
    let value = |text: &str| -> Option<u32> {
        let upper = text.to_uppercase();
        let named = names.iter().zip(least..).find(|(name, _)| **name == upper);
        named.map(|(_, number)| number).or_else(|| text.parse().ok())
    };
    let mut numbers = std::collections::BTreeSet::new();
    for range in field.split(',').filter(|range| !range.is_empty()) {
        let (range, step) = match range.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<u32>().ok().filter(|step| *step > 0)?)),
            None => (range, None),
        };
        let (first, last) = range
            .split_once('-')
            .map_or((range, None), |(first, last)| (first, Some(last)));
        let (start, end) = match (first, last) {
            ("*" | "?", _) if step.unwrap_or(1) == 1 => return Some("*".to_owned()),
            ("*" | "?", _) => (least, most),
            (first, Some(last)) => (value(first)?, value(last)?),
            (first, None) if step.is_some() => (value(first)?, most),
            (first, None) => (value(first)?, value(first)?),
        };
        if start < least || end > most || start > end {
            return None;
        }
        let step = usize::try_from(step.unwrap_or(1)).ok()?;
        numbers.extend((start..=end).step_by(step));
    }
    let numbers: Vec<String> = numbers.into_iter().map(|number| number.to_string()).collect();
    (!numbers.is_empty()).then(|| numbers.join(","))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn next(schedule: &str, zone: Option<&str>, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule, zone).unwrap();
        let mut time = at(after);
        (0..count)
            .map(|_| {
                time = schedule.next(time, time).unwrap();
                time.to_string()
            })
            .collect()
    }

    #[test]
    fn fields_mean_what_they_mean_on_a_cluster() {
        // KA-050
        for (schedule, expected) in [
            ("*/20 * * * *", "2026-01-01T00:20:00Z"),
            ("7/20 * * * *", "2026-01-01T00:07:00Z"),
            ("0 0 * feb-mar mon", "2026-02-02T00:00:00Z"),
            ("0 12 ? * ?", "2026-01-01T12:00:00Z"),
            // Days of the month and of the week: either, unless one is a star.
            ("0 0 13 * FRI", "2026-01-02T00:00:00Z"),
            ("0 0 */9 * 1", "2026-01-05T00:00:00Z"),
            ("@weekly", "2026-01-04T00:00:00Z"),
            ("@every 90m", "2026-01-01T01:30:00Z"),
        ] {
            assert_eq!(
                next(schedule, None, "2026-01-01T00:00:00Z", 1),
                [expected],
                "{schedule}"
            );
        }
        assert!(
            Schedule::parse("0 0 30 2 *", None)
                .unwrap()
                .next(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:00Z"))
                .is_none()
        );
        for wrong in [
            "x",
            "* * * *",
            "61 * * * *",
            ", * * * *",
            "5-1 * * * *",
            "@often",
            "@every x",
        ] {
            assert!(Schedule::parse(wrong, None).is_err(), "{wrong}");
        }
        let unknown = Schedule::parse("* * * * *", Some("Mars/X")).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "invalid timeZone: \"Mars/X\": unknown time zone"
        );
    }

    #[test]
    fn times_are_those_of_the_zone_and_survive_a_change_of_clocks() {
        // KA-050
        let zone = Some("Europe/Berlin");
        // Half past two is skipped on the 29th of March, and happens once on the 25th of October.
        assert_eq!(
            next("30 2 * * *", zone, "2026-03-28T00:00:00Z", 3),
            [
                "2026-03-28T01:30:00Z",
                "2026-03-29T01:00:00Z",
                "2026-03-30T00:30:00Z"
            ]
        );
        assert_eq!(
            next("30 2 * * *", zone, "2026-10-24T12:00:00Z", 2),
            ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]
        );
        let schedule = Schedule::parse("0 9 * * *", zone).unwrap();
        assert_eq!(
            schedule.shown(at("2026-07-01T07:00:00Z")),
            "2026-07-01T09:00:00+02:00"
        );
        assert_eq!(
            Schedule::parse("0 9 * * *", None)
                .unwrap()
                .shown(at("2026-07-01T07:00:00Z")),
            "2026-07-01T07:00:00Z"
        );
    }

    #[test]
    fn the_last_time_is_after_the_earliest_and_not_in_the_future() {
        // KA-050
        for (schedule, earliest, now, expected) in [
            ("0 * * * *", "2026-01-01T00:30:00Z", "2026-01-01T00:59:59Z", None),
            (
                "0 * * * *",
                "2026-01-01T00:30:00Z",
                "2026-01-01T01:00:00Z",
                Some("2026-01-01T01:00:00Z"),
            ),
            (
                "0 * * * *",
                "2026-01-01T00:30:00Z",
                "2026-01-01T05:20:00.5Z",
                Some("2026-01-01T05:00:00Z"),
            ),
            ("0 * * * *", "2026-01-01T05:00:00Z", "2026-01-01T05:20:00Z", None),
            (
                "@every 7m",
                "2026-01-01T00:00:00Z",
                "2026-01-01T00:20:00Z",
                Some("2026-01-01T00:14:00Z"),
            ),
            ("@every 7m", "2026-01-01T00:00:00Z", "2026-01-01T00:06:00Z", None),
        ] {
            let last = Schedule::parse(schedule, None)
                .unwrap()
                .last(at(earliest), at(earliest), at(now));
            assert_eq!(last, expected.map(at), "{schedule} {earliest} {now}");
        }
    }
}
