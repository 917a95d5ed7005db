//! The table of functions with the types they take.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::types::{OPTIONAL, StaticType};

const SOURCE: &str = include_str!("overloads.txt");

/// One way to call a function.
#[derive(Debug)]
pub(crate) struct Overload {
    /// The reference's name, which its cost model goes by.
    pub(crate) name: &'static str,
    pub(crate) member: bool,
    /// The target of a member call comes first.
    pub(crate) arguments: Vec<StaticType>,
    pub(crate) result: StaticType,
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in SOURCE.lines() {
        if let Some((function, overload)) = read(line) {
            table.entry(function).or_default().push(overload);
        }
    }
    table
});

/// The overloads of a function, in the order in which they are tried; `None` for a name that is no function's.
pub(crate) fn of(function: &str) -> Option<&'static [Overload]> {
    TABLE.get(function).map(Vec::as_slice)
}

/// A line of the table: `None` for a comment.
fn read(line: &'static str) -> Option<(&'static str, Overload)> {
    if line.starts_with('#') {
        return None;
    }
    let (head, signature) = line.split_once(": ")?;
    let (function, name) = head.split_once(' ')?;
    let (called, result) = signature.split_once(" -> ")?;
    let (target, arguments) = match called.strip_prefix('(') {
        Some(arguments) => (None, arguments),
        None => called
            .split_once(".(")
            .map(|(target, rest)| (Some(target), rest))?,
    };
    let arguments = arguments.strip_suffix(')')?;
    let types = target
        .into_iter()
        .chain(split(arguments))
        .map(parse)
        .collect::<Option<Vec<_>>>()?;
    Some((
        function,
        Overload {
            name,
            member: target.is_some(),
            arguments: types,
            result: parse(result)?,
        },
    ))
}

/// Splits at the commas that stand in no bracket.
fn split(list: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let mut parts = Vec::new();
    let mut start = 0;
    for (index, character) in list.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(list[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    if !list[start..].trim().is_empty() {
        parts.push(list[start..].trim());
    }
    parts
}

fn parse(text: &str) -> Option<StaticType> {
    let Some((name, inner)) = text.split_once('(') else {
        let mut characters = text.chars();
        if let (Some(letter @ 'A'..='Z'), None) = (characters.next(), characters.next()) {
            return Some(StaticType::Parameter(letter));
        }
        return Some(match text {
            "dyn" => StaticType::Dyn,
            "timestamp" => StaticType::Timestamp,
            "duration" => StaticType::Duration,
            name if name.starts_with("kubernetes.") => StaticType::Object(Arc::from(name)),
            name => StaticType::named(name)?,
        });
    };
    let parameters = split(inner.strip_suffix(')')?)
        .into_iter()
        .map(parse)
        .collect::<Option<Vec<_>>>()?;
    Some(match (name, parameters.as_slice()) {
        ("list", [item]) => StaticType::list(item.clone()),
        ("map", [key, value]) => StaticType::map(key.clone(), value.clone()),
        ("type", [inner]) => StaticType::type_of(inner.clone()),
        (OPTIONAL, [inner]) => StaticType::optional(inner.clone()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let lines = SOURCE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(TABLE.values().map(Vec::len).sum::<usize>(), lines);
    }

    #[test]
    fn the_evaluator_has_every_function_that_the_checker_knows() {
        for (function, overloads) in TABLE.iter() {
            // Operators and what macros are made of are nodes of their own.
            let is_node = function.contains(['_', '@']) || matches!(*function, "or" | "orValue");
            for overload in overloads {
                let found = crate::functions::find(function, overload.member, overload.arguments.len());
                assert!(
                    is_node || matches!(found, crate::functions::Lookup::Found(_)),
                    "{function} {}",
                    overload.name
                );
            }
        }
    }
}
