//! Parts of timestamps and durations. The zone is an IANA name or an offset (`+02:00`); UTC without.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::Value;

type Evaluated = Result<Value, EvaluationError>;

fn local(context: &mut Context<'_>, name: &str, arguments: &[Value]) -> Result<DateTime, EvaluationError> {
    let civil = match arguments {
        [Value::Timestamp(time)] => time.utc(),
        [Value::Timestamp(time), Value::String(zone)] => {
            context.budget.work_text(zone.len())?;
            time.in_zone(&time_zone(zone)?)
        }
        _ => return Err(EvaluationError::no_overload(name, arguments)),
    };
    civil.ok_or_else(|| EvaluationError::overflow("timestamp overflow"))
}

fn time_zone(name: &str) -> Result<TimeZone, EvaluationError> {
    let unknown = || EvaluationError::argument(format!("unknown time zone {}", name.escape_debug()));
    if name.is_empty() || name == "UTC" {
        return Ok(TimeZone::UTC);
    }
    let Some((hours, minutes)) = name.split_once(':') else {
        // The bundled database: the same answer on every machine.
        return jiff::tz::TimeZoneDatabase::bundled()
            .get(name)
            .map_err(|_| unknown());
    };
    let (sign, hours) = match hours.as_bytes().first() {
        Some(b'-') => (-1, &hours[1..]),
        Some(b'+') => (1, &hours[1..]),
        _ => (1, hours),
    };
    let number = |text: &str| match text.len() {
        1 | 2 if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse::<i32>().map_err(|_| unknown()),
        _ => Err(unknown()),
    };
    let seconds = sign * (number(hours)? * 3600 + number(minutes)? * 60);
    Offset::from_seconds(seconds)
        .map(TimeZone::fixed)
        .map_err(|_| unknown())
}

fn int(value: impl Into<i64>) -> Evaluated {
    Ok(Value::Int(value.into()))
}

pub(super) fn full_year(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getFullYear", arguments)?.year())
}

/// From 0.
pub(super) fn month(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getMonth", arguments)?.month() - 1)
}

/// Day of the month from 1.
pub(super) fn date(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getDate", arguments)?.day())
}

/// Day of the month from 0.
pub(super) fn day_of_month(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getDayOfMonth", arguments)?.day() - 1)
}

/// Sunday is 0.
pub(super) fn day_of_week(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getDayOfWeek", arguments)?
        .weekday()
        .to_sunday_zero_offset())
}

/// From 0.
pub(super) fn day_of_year(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    int(local(context, "getDayOfYear", arguments)?.day_of_year() - 1)
}

pub(super) fn hours(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Duration(duration)] => int(duration.as_secs() / 3600),
        _ => int(local(context, "getHours", arguments)?.hour()),
    }
}

pub(super) fn minutes(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Duration(duration)] => int(duration.as_secs() / 60),
        _ => int(local(context, "getMinutes", arguments)?.minute()),
    }
}

pub(super) fn seconds(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Duration(duration)] => int(duration.as_secs()),
        _ => int(local(context, "getSeconds", arguments)?.second()),
    }
}

/// Of a timestamp the part below a second, of a duration all of it.
pub(super) fn milliseconds(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::Duration(duration)] => i64::try_from(duration.as_millis())
            .map(Value::Int)
            .map_err(|_| crate::operators::int_overflow()),
        _ => int(local(context, "getMilliseconds", arguments)?.subsec_nanosecond() / 1_000_000),
    }
}
