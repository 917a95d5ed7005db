//! Counts of Pods, or shares of them in percent.

use super::{Errors, Field, formats};

/// What is wrong with an amount.
pub(crate) fn check(field: &Field<'_>, errors: &mut Errors) {
    if field.value.is_string() {
        if let Err(detail) = formats::percent(field.text()) {
            field.invalid(errors, detail);
        }
    } else {
        field.not_negative(errors);
    }
}

/// An amount is not more than all.
pub(crate) fn check_share(field: &Field<'_>, errors: &mut Errors) {
    if formats::percent(field.text()).is_ok_and(|percent| percent > 100) {
        field.invalid(errors, "must not be greater than 100%");
    }
}

/// Whether an amount is none; so is, for the reference, one whose text is a wrong one.
pub(crate) fn is_none(field: &Field<'_>) -> bool {
    match field.number() {
        Some(number) => number == 0,
        None => match formats::percent(field.text()) {
            Ok(percent) => percent == 0,
            Err(_) => field.text().parse::<i64>().unwrap_or_default() == 0,
        },
    }
}
