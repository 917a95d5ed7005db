//! What a schedule may say: five fields, or a name such as `@hourly`. The texts are those of the reference's parser.

use crate::schema::formats::parse_go_duration;

struct Bounds {
    least: u32,
    most: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Minute, hour, day of the month, month, day of the week.
const FIELDS: [Bounds; 5] = [
    Bounds {
        least: 0,
        most: 59,
        names: &[],
    },
    Bounds {
        least: 0,
        most: 23,
        names: &[],
    },
    Bounds {
        least: 1,
        most: 31,
        names: &[],
    },
    Bounds {
        least: 1,
        most: 12,
        names: &MONTHS,
    },
    Bounds {
        least: 0,
        most: 6,
        names: &DAYS,
    },
];
const NAMES: [&str; 7] = [
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

/// Checks a schedule that is not empty.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let mut rest = schedule;
    if let Some(zoned) = rest.strip_prefix("CRON_TZ=").or_else(|| rest.strip_prefix("TZ=")) {
        let Some((zone, fields)) = zoned.split_once(' ') else {
            return Err("no schedule behind the time zone".to_owned());
        };
        if !zone.is_empty() && zone != "Local" && jiff::tz::TimeZone::get(zone).is_err() {
            return Err(format!("provided bad location {zone}: unknown time zone {zone}"));
        }
        rest = fields.trim();
    }
    if rest.starts_with('@') {
        return check_name(rest);
    }
    let fields: Vec<&str> = rest.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly {} fields, found {}: [{}]",
            FIELDS.len(),
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.into_iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            check_range(range, bounds)?;
        }
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    if NAMES.contains(&name) {
        return Ok(());
    }
    let Some(duration) = name.strip_prefix("@every ") else {
        return Err(format!("unrecognized descriptor: {name}"));
    };
    if parse_go_duration(duration).is_some() {
        return Ok(());
    }
    Err(format!(
        "failed to parse duration {name}: time: invalid duration {duration:?}"
    ))
}

fn check_range(text: &str, bounds: &Bounds) -> Result<(), String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [range] => (*range, None),
        [range, step] => (*range, Some(*step)),
        _ => return Err(format!("too many slashes: {text}")),
    };
    let ends: Vec<&str> = range.split('-').collect();
    let (start, mut end) = match ends.as_slice() {
        // What follows a star is not looked at.
        ["*" | "?", ..] => (bounds.least, bounds.most),
        [only] => (value(only, bounds)?, value(only, bounds)?),
        [first, last] => (value(first, bounds)?, value(last, bounds)?),
        _ => return Err(format!("too many hyphens: {text}")),
    };
    let step = step.map(number).transpose()?;
    if step.is_some() && ends.len() == 1 {
        end = bounds.most;
    }
    if start < bounds.least {
        return Err(format!(
            "beginning of range ({start}) below minimum ({}): {text}",
            bounds.least
        ));
    }
    if end > bounds.most {
        return Err(format!(
            "end of range ({end}) above maximum ({}): {text}",
            bounds.most
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {text}"
        ));
    }
    if step == Some(0) {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds
        .names
        .iter()
        .zip(bounds.least..)
        .find(|(name, _)| **name == lower)
    {
        Some((_, position)) => Ok(position),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        ));
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // Far above every bound, which is said of it.
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: value out of range"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_are_read_as_the_reference_reads_them() {
        // KA-010
        for right in [
            "* * * * *",
            "*/5 0-23/2 1,15 JAN-mar mon",
            "5/15 ? * * ?",
            "@hourly",
            "@every 1h30m",
            "@every 0",
            "@every 1.5h",
            "@every 100\u{b5}s",
            "@every 100\u{3bc}s",
            "0 0 1 1 0",
            "1,,2 * * * *",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, text) in [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@often", "unrecognized descriptor: @often"),
            (
                "@every x",
                "failed to parse duration @every x: time: invalid duration \"x\"",
            ),
        ] {
            assert_eq!(check(wrong), Err(text.to_owned()), "{wrong}");
        }
    }
}
