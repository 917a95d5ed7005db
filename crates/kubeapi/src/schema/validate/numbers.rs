//! Bounds of numbers.

use serde_json::{Number, Value};

use super::{Outcome, values::located};
use crate::{
    field::{FieldError, FieldPath},
    schema::Checks,
};

pub(super) fn check(
    checks: &Checks,
    types: &[&str],
    number: &Number,
    path: &FieldPath,
    outcome: &mut Outcome,
) {
    check_range(checks, types, number, path, outcome);
    let Some(value) = number.as_f64() else { return };
    let integral = !number.is_f64();
    let mut refuse = |text: &str, bound: f64| {
        outcome.add(FieldError::invalid(
            path,
            Value::Number(number.clone()),
            format!("{} should be {text} {}", located(path), shown(bound, integral)),
        ));
    };
    if let Some(factor) = checks.multiple_of.filter(|&factor| factor > 0.0) {
        let quotient = value / factor;
        if (quotient - quotient.round()).abs() > f64::EPSILON * quotient.abs().max(1.0) {
            refuse("a multiple of", factor);
        }
    }
    if let Some(most) = checks.maximum {
        match checks.exclusive_maximum {
            true if value >= most => refuse("less than", most),
            false if value > most => refuse("less than or equal to", most),
            _ => {}
        }
    }
    if let Some(least) = checks.minimum {
        match checks.exclusive_minimum {
            true if value <= least => refuse("greater than", least),
            false if value < least => refuse("greater than or equal to", least),
            _ => {}
        }
    }
}

/// Whether the number fits the declared type and format.
fn check_range(checks: &Checks, types: &[&str], number: &Number, path: &FieldPath, outcome: &mut Outcome) {
    let format = checks.format.map(|format| format.name);
    let place = path.as_str();
    match (types, format) {
        (["integer"], Some("int32")) => {
            let fits = number.as_i64().is_some_and(|value| i32::try_from(value).is_ok())
                || number
                    .as_f64()
                    .is_some_and(|value| number.is_f64() && value.abs() <= f64::from(i32::MAX));
            if !fits {
                outcome.add_general(format!(
                    "Checked value must be of type integer with format int32 in {place}"
                ));
            }
        }
        (["integer"], format) if number.is_u64() && number.as_i64().is_none() => {
            outcome.add_general(match format {
                Some("int64") => {
                    format!("Checked value must be of type integer with format int64 in {place}")
                }
                _ => format!("Checked value must be of type integer (default format) in {place}"),
            });
        }
        (["number"], Some("float"))
            if number
                .as_f64()
                .is_some_and(|value| value.abs() > f64::from(f32::MAX)) =>
        {
            outcome.add_general(format!(
                "Checked value must be of type number with format float in {place}"
            ));
        }
        _ => {}
    }
}

/// A bound as Go prints it: a whole number beside an integer; otherwise the shortest form, with an exponent from a
/// million on and below 0.0001.
fn shown(bound: f64, integral: bool) -> String {
    if integral && bound.fract() == 0.0 {
        return format!("{bound:.0}");
    }
    if bound == 0.0 {
        return "0".to_owned();
    }
    let scientific = format!("{bound:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{bound}");
    }
    format!(
        "{mantissa}e{}{:02}",
        if exponent < 0 { '-' } else { '+' },
        exponent.abs()
    )
}
