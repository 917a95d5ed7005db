//! Literals that can be judged before anything is evaluated: times, durations, patterns, templates, and lists and maps
//! whose parts have different types.

use std::collections::BTreeSet;

use super::expression::{Part, PieceKind};
use super::types::StaticType;
use super::{Checked, Mistake};
use crate::patterns;
use crate::text;
use crate::value::{Timestamp, Value};

pub(super) fn check(checked: &Checked, mistakes: &mut Vec<Mistake>) {
    let templates = template_parts(checked);
    for part in 0..checked.expression.pieces.len() {
        match checked.expression.kind(part) {
            Some(PieceKind::Call {
                target,
                function,
                arguments,
            }) => {
                if let Some(fault) = argument(checked, function, arguments.first().copied()) {
                    mistakes.push(fault);
                }
                if let ("format", Some(target), [values]) = (&**function, target, arguments.as_slice()) {
                    template(checked, part, *target, *values, mistakes);
                }
            }
            Some(PieceKind::List(items)) if !templates.contains(&part) => list(checked, items, mistakes),
            Some(PieceKind::Map(items)) if !templates.contains(&part) => map(checked, items, mistakes),
            _ => {}
        }
    }
}

/// The parts inside of calls of `format`, whose values may be of different types. The parts of a part stand right before
/// it.
fn template_parts(checked: &Checked) -> BTreeSet<Part> {
    let pieces = &checked.expression.pieces;
    let mut starts: Vec<Part> = Vec::with_capacity(pieces.len());
    let mut inside = BTreeSet::new();
    for (part, piece) in pieces.iter().enumerate() {
        let start = piece
            .kind
            .parts()
            .into_iter()
            .filter_map(|inner| starts.get(inner).copied())
            .min()
            .unwrap_or(part);
        starts.push(start);
        if matches!(&piece.kind, PieceKind::Call { function, .. } if **function == *"format") {
            inside.extend(start..part);
        }
    }
    inside
}

fn text_of(checked: &Checked, part: Part) -> Option<&str> {
    match checked.expression.kind(part)? {
        PieceKind::Literal(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// The first argument of a conversion to a time, and of a match.
fn argument(checked: &Checked, function: &str, argument: Option<Part>) -> Option<Mistake> {
    let argument = argument?;
    let literal = text_of(checked, argument)?;
    let is_good = match function {
        "duration" => text::parse_duration(literal).is_some(),
        "timestamp" => Timestamp::parse(literal).is_some(),
        "matches" => patterns::compile(literal).is_ok(),
        _ => return None,
    };
    (!is_good).then(|| Mistake {
        offset: checked.expression.offset(argument),
        message: format!("invalid {function} argument"),
    })
}

/// The items of a list have one type, not merely types that fit each other.
fn list(checked: &Checked, items: &[(Part, bool)], mistakes: &mut Vec<Mistake>) {
    let mut wanted: Option<&StaticType> = None;
    for &(item, optional) in items {
        let found = checked.type_of(item);
        let found = match found.unwrapped() {
            Some(inner) if optional => inner,
            _ => found,
        };
        match wanted {
            None => wanted = Some(found),
            Some(wanted) if wanted != found => {
                mistakes.push(mismatch(checked, item, wanted, found));
                return;
            }
            Some(_) => {}
        }
    }
}

fn map(checked: &Checked, items: &[(Part, Part, bool)], mistakes: &mut Vec<Mistake>) {
    let mut wanted: Option<(&StaticType, &StaticType)> = None;
    for &(key, value, optional) in items {
        let found = checked.type_of(value);
        let found = match found.unwrapped() {
            Some(inner) if optional => inner,
            _ => found,
        };
        let Some((keys, values)) = wanted else {
            wanted = Some((checked.type_of(key), found));
            continue;
        };
        if keys != checked.type_of(key) {
            mistakes.push(mismatch(checked, key, keys, checked.type_of(key)));
        }
        if values != found {
            mistakes.push(mismatch(checked, value, values, found));
        }
    }
}

fn mismatch(checked: &Checked, part: Part, wanted: &StaticType, found: &StaticType) -> Mistake {
    Mistake {
        offset: checked.expression.offset(part),
        message: format!("expected type '{wanted}' but found '{found}'"),
    }
}

/// A template and the literal list of its values: as many clauses as values, and values that clauses can show.
fn template(checked: &Checked, call: Part, target: Part, values: Part, mistakes: &mut Vec<Mistake>) {
    let (Some(template), Some(PieceKind::List(values))) =
        (text_of(checked, target), checked.expression.kind(values))
    else {
        return;
    };
    let mut next = 0;
    let mut rest = template;
    while let Some(start) = rest.find('%') {
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let clause =
            rest.trim_start_matches(|character: char| character == '.' || character.is_ascii_digit());
        let Some(kind) = clause.chars().next() else { return };
        rest = &clause[kind.len_utf8()..];
        let Some(&(value, _)) = values.get(next) else {
            mistakes.push(Mistake {
                offset: checked.expression.offset(call),
                message: format!("index {next} out of range"),
            });
            return;
        };
        next += 1;
        if let Some(rule) = refusal(kind, checked.type_of(value)) {
            mistakes.push(Mistake {
                offset: checked.expression.offset(value),
                message: format!(
                    "error during formatting: {rule}, was given {}",
                    checked.type_of(value).runtime_name()
                ),
            });
            return;
        }
    }
    if values.len() > next {
        mistakes.push(Mistake {
            offset: checked.expression.offset(call),
            message: format!(
                "too many arguments supplied to string.format (expected {next}, got {})",
                values.len()
            ),
        });
    }
}

fn refusal(clause: char, value: &StaticType) -> Option<&'static str> {
    use StaticType::{Bool, Bytes, Double, Dyn, Int, Object, Opaque, String, Uint};
    let (fits, rule) = match clause {
        'd' => (
            matches!(value, Int | Uint),
            "decimal clause can only be used on integers",
        ),
        // A text may be `NaN` or `Infinity`.
        'f' => (
            matches!(value, Double | String),
            "fixed-point clause can only be used on doubles",
        ),
        'e' => (
            matches!(value, Double | String),
            "scientific clause can only be used on doubles",
        ),
        'b' => (
            matches!(value, Int | Uint | Bool),
            "only integers and bools can be formatted as binary",
        ),
        'o' => (
            matches!(value, Int | Uint),
            "octal clause can only be used on integers",
        ),
        'x' | 'X' => (
            matches!(value, Int | Uint | String | Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        _ => (
            !matches!(value, Object(_) | Opaque(..)),
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps",
        ),
    };
    (!fits && *value != Dyn).then_some(rule)
}
