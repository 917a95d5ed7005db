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
    let format = checks.format.map(|format| format.name);
    check_range(format, types, number, path, outcome);
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
pub(super) fn check_range(
    format: Option<&str>,
    types: &[&str],
    number: &Number,
    path: &FieldPath,
    outcome: &mut Outcome,
) {
    let place = path.as_str();
    let fits = match (types, format) {
        (["integer"], Some("int32")) => number.as_f64().is_some_and(|value| {
            value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)
        }),
        (["integer"], _) => {
            // Two to the power of 63: what is not below it is no 64-bit integer.
            const BEYOND: f64 = 9_223_372_036_854_775_808.0;
            number.is_i64()
                || number.as_f64().is_some_and(|value| {
                    number.is_f64() && value.fract() == 0.0 && (-BEYOND..BEYOND).contains(&value)
                })
        }
        (["number"], Some("float")) => number
            .as_f64()
            .is_none_or(|value| value.abs() <= f64::from(f32::MAX)),
        _ => true,
    };
    if fits {
        return;
    }
    let declared = types.first().copied().unwrap_or_default();
    outcome.add_general(match format {
        Some(format) => {
            format!("Checked value must be of type {declared} with format {format} in {place}")
        }
        None => format!("Checked value must be of type {declared} (default format) in {place}"),
    });
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
