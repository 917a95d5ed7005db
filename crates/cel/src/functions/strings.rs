//! Texts: the standard functions and cel-go's extension library. Positions count characters (code
//! points), not bytes.

use crate::budget::text_cost;
use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::operators;
use crate::value::Value;

type Evaluated = Result<Value, EvaluationError>;

fn int(value: usize) -> Evaluated {
    Ok(Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
}

pub(super) fn size(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work(text_cost(text.len()))?;
            int(text.chars().count())
        }
        [Value::Bytes(bytes)] => int(bytes.len()),
        [Value::List(items)] => int(items.len()),
        [Value::Map(map)] => int(map.len()),
        _ => Err(EvaluationError::no_overload("size", arguments)),
    }
}

pub(super) fn starts_with(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text), Value::String(prefix)] => {
            context.budget.work(text_cost(text.len()))?;
            Ok(Value::Bool(text.starts_with(&**prefix)))
        }
        _ => Err(EvaluationError::no_overload("startsWith", arguments)),
    }
}

pub(super) fn ends_with(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text), Value::String(suffix)] => {
            context.budget.work(text_cost(text.len()))?;
            Ok(Value::Bool(text.ends_with(&**suffix)))
        }
        _ => Err(EvaluationError::no_overload("endsWith", arguments)),
    }
}

/// The reference's cost of a search: both lengths multiplied.
fn charge_search(context: &mut Context<'_>, text: &str, wanted: &str) -> Result<(), EvaluationError> {
    context.budget.work(
        text_cost(text.len())
            .saturating_mul(text_cost(wanted.len()).max(1))
            .max(1),
    )
}

pub(super) fn contains(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text), Value::String(part)] => {
            charge_search(context, text, part)?;
            Ok(Value::Bool(text.contains(&**part)))
        }
        _ => Err(EvaluationError::no_overload("contains", arguments)),
    }
}

/// The byte offset of a character; the text's length for the position behind the last one.
fn byte_offset(text: &str, position: usize) -> Option<usize> {
    text.char_indices()
        .map(|(offset, _)| offset)
        .chain([text.len()])
        .nth(position)
}

fn out_of_range(index: i64) -> EvaluationError {
    EvaluationError::new(
        crate::error::EvaluationErrorKind::IndexOutOfBounds,
        format!("index out of range: {index}"),
    )
}

fn position(text: &str, index: i64) -> Result<usize, EvaluationError> {
    usize::try_from(index)
        .ok()
        .and_then(|index| byte_offset(text, index))
        .ok_or_else(|| out_of_range(index))
}

/// Where a search begins; `None` behind the end, where there is nothing to find.
fn offset_or_end(text: &str, index: i64) -> Result<Option<usize>, EvaluationError> {
    let index = usize::try_from(index).map_err(|_| out_of_range(index))?;
    Ok(byte_offset(text, index))
}

pub(super) fn char_at(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(text), Value::Int(index)] => {
            context.budget.work_text(text.len())?;
            let offset = position(text, *index)?;
            let character = text[offset..]
                .chars()
                .next()
                .map(String::from)
                .unwrap_or_default();
            Ok(Value::from(character))
        }
        _ => Err(EvaluationError::no_overload("charAt", arguments)),
    }
}

pub(super) fn index_of(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::List(items), wanted] => {
            for (index, item) in items.iter().enumerate() {
                context.budget.work(1)?;
                if operators::equal(context, item, wanted)? {
                    return int(index);
                }
            }
            Ok(Value::Int(-1))
        }
        [Value::String(text), Value::String(wanted)] => find_from(context, text, wanted, 0),
        [Value::String(text), Value::String(wanted), Value::Int(start)] => {
            find_from(context, text, wanted, *start)
        }
        _ => Err(EvaluationError::no_overload("indexOf", arguments)),
    }
}

fn find_from(context: &mut Context<'_>, text: &str, wanted: &str, start: i64) -> Evaluated {
    charge_search(context, text, wanted)?;
    if wanted.is_empty() {
        return Ok(Value::Int(start));
    }
    let Some(from) = offset_or_end(text, start)? else {
        return Ok(Value::Int(-1));
    };
    match text[from..].find(wanted) {
        Some(found) => int(text[..from + found].chars().count()),
        None => Ok(Value::Int(-1)),
    }
}

pub(super) fn last_index_of(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::List(items), wanted] => {
            for (index, item) in items.iter().enumerate().rev() {
                context.budget.work(1)?;
                if operators::equal(context, item, wanted)? {
                    return int(index);
                }
            }
            Ok(Value::Int(-1))
        }
        [Value::String(text), Value::String(wanted)] => {
            charge_search(context, text, wanted)?;
            match text.rfind(&**wanted) {
                Some(found) => int(text[..found].chars().count()),
                None => Ok(Value::Int(-1)),
            }
        }
        [Value::String(text), Value::String(wanted), Value::Int(last)] => {
            charge_search(context, text, wanted)?;
            if wanted.is_empty() {
                return Ok(Value::Int(*last));
            }
            let Some(from) = offset_or_end(text, *last)? else {
                return Ok(Value::Int(-1));
            };
            // The match may begin at `last` at the latest.
            let mut end = from.saturating_add(wanted.len()).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            match text[..end].rfind(&**wanted) {
                Some(found) => int(text[..found].chars().count()),
                None => Ok(Value::Int(-1)),
            }
        }
        _ => Err(EvaluationError::no_overload("lastIndexOf", arguments)),
    }
}

pub(super) fn join(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (items, separator) = match arguments {
        [Value::List(items)] => (items, ""),
        [Value::List(items), Value::String(separator)] => (items, &**separator),
        _ => return Err(EvaluationError::no_overload("join", arguments)),
    };
    context
        .budget
        .work(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
    let mut length = 0_usize;
    for item in items.iter() {
        let Value::String(text) = item else {
            return Err(EvaluationError::no_overload("join", std::slice::from_ref(item)));
        };
        length = length.saturating_add(text.len()).saturating_add(separator.len());
    }
    context.budget.work(text_cost(length))?;
    context.budget.allocate(length)?;
    let mut joined = String::with_capacity(length);
    for (index, text) in items.iter().filter_map(Value::as_str).enumerate() {
        if index > 0 {
            joined.push_str(separator);
        }
        joined.push_str(text);
    }
    Ok(Value::from(joined))
}

/// A negative limit splits everywhere, 0 gives nothing.
pub(super) fn split(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (text, separator, limit) = match arguments {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(EvaluationError::no_overload("split", arguments)),
    };
    context.budget.work_text(text.len())?;
    context.budget.allocate(text.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut add = |part: &str| {
        context.budget.allocate_entries(1)?;
        parts.push(Value::from(part));
        Ok::<(), EvaluationError>(())
    };
    if limit == 0 {
        return Ok(Value::list(parts));
    }
    if separator.is_empty() {
        let mut rest: &str = text;
        for count in 1.. {
            let Some(character) = rest.chars().next() else {
                break;
            };
            if count == limit {
                add(rest)?;
                break;
            }
            let (first, after) = rest.split_at(character.len_utf8());
            add(first)?;
            rest = after;
        }
    } else {
        for part in text.splitn(limit, &**separator) {
            add(part)?;
        }
    }
    Ok(Value::list(parts))
}

pub(super) fn substring(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (text, start, end) = match arguments {
        [Value::String(text), Value::Int(start)] => (text, *start, None),
        [Value::String(text), Value::Int(start), Value::Int(end)] => (text, *start, Some(*end)),
        _ => return Err(EvaluationError::no_overload("substring", arguments)),
    };
    context.budget.work_text(text.len())?;
    context.budget.allocate(text.len())?;
    if let Some(end) = end
        && start > end
    {
        return Err(EvaluationError::argument(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    let from = position(text, start)?;
    let to = match end {
        Some(end) => position(text, end)?,
        None => text.len(),
    };
    Ok(Value::from(&text[from..to]))
}

pub(super) fn replace(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let (text, old, new, limit) = match arguments {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [
            Value::String(text),
            Value::String(old),
            Value::String(new),
            Value::Int(limit),
        ] => (text, old, new, *limit),
        _ => return Err(EvaluationError::no_overload("replace", arguments)),
    };
    charge_search(context, text, old)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let count = text.matches(&**old).take(limit).count();
    let length = text.len().saturating_add(count.saturating_mul(new.len()));
    context.budget.work(text_cost(length))?;
    context.budget.allocate(length)?;
    Ok(Value::from(text.replacen(&**old, new, limit)))
}

fn mapped(
    context: &mut Context<'_>,
    name: &str,
    arguments: &[Value],
    change: impl FnOnce(&str) -> String,
) -> Evaluated {
    match arguments {
        [Value::String(text)] => {
            context.budget.work_text(text.len())?;
            context.budget.allocate(text.len())?;
            Ok(Value::from(change(text)))
        }
        _ => Err(EvaluationError::no_overload(name, arguments)),
    }
}

pub(super) fn lower_ascii(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    mapped(context, "lowerAscii", arguments, str::to_ascii_lowercase)
}

pub(super) fn upper_ascii(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    mapped(context, "upperAscii", arguments, str::to_ascii_uppercase)
}

pub(super) fn trim(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    mapped(context, "trim", arguments, |text| text.trim().to_owned())
}

/// Of texts, and of lists as in cel-go's newer list library.
pub(super) fn reverse(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    if let [Value::List(items)] = arguments {
        context
            .budget
            .work(u64::try_from(items.len()).unwrap_or(u64::MAX))?;
        context.budget.allocate_entries(items.len())?;
        return Ok(Value::list(items.iter().rev().cloned().collect()));
    }
    mapped(context, "reverse", arguments, |text| text.chars().rev().collect())
}

/// A text in double quotes with its special characters escaped.
pub(super) fn quote(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    let [Value::String(text)] = arguments else {
        return Err(EvaluationError::no_overload("strings.quote", arguments));
    };
    context.budget.work_text(text.len())?;
    context
        .budget
        .allocate(text.len().saturating_mul(2).saturating_add(2))?;
    Ok(Value::from(quoted(text)))
}

pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
