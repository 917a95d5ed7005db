//! The table of field numbers.

use std::{collections::HashMap, sync::OnceLock};

const TABLE: &str = include_str!("../../data/protobuf/fields.txt");

/// How often a field may occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repetition {
    Single,
    List,
    /// Entries with a text as their key.
    Map,
}

/// One field of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    /// The name in JSON; empty for a message whose fields stand in its place.
    pub(super) name: &'static str,
    /// A scalar, a special type or the name of a message.
    pub(super) kind: &'static str,
    pub(super) repetition: Repetition,
    /// Whether JSON leaves the field out when it is zero.
    pub(super) omits_zero: bool,
}

/// The fields of a message, by its name such as `core.v1.Pod`.
pub(super) fn message(name: &str) -> Option<&'static [Field]> {
    messages().get(name).map(Vec::as_slice)
}

/// The name as the table has it; `None` for a message that is not in it.
pub(super) fn name(name: &str) -> Option<&'static str> {
    messages().get_key_value(name).map(|(name, _)| *name)
}

fn messages() -> &'static HashMap<&'static str, Vec<Field>> {
    static MESSAGES: OnceLock<HashMap<&'static str, Vec<Field>>> = OnceLock::new();
    MESSAGES.get_or_init(|| TABLE.lines().filter_map(parse).collect())
}

fn parse(line: &'static str) -> Option<(&'static str, Vec<Field>)> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let mut fields: Vec<Field> = words.filter_map(parse_field).collect();
    // The order in which they are written.
    fields.sort_by_key(|field| field.number);
    Some((name, fields))
}

fn parse_field(word: &'static str) -> Option<Field> {
    let mut parts = word.split(':');
    let (number, name, kind, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let repetition = match (flags.contains('r'), flags.contains('m')) {
        (true, _) => Repetition::List,
        (_, true) => Repetition::Map,
        _ => Repetition::Single,
    };
    Some(Field {
        number: number.parse().ok()?,
        name,
        kind,
        repetition,
        omits_zero: flags.contains('z'),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_the_table_names_can_be_read() {
        for line in TABLE.lines() {
            let (name, fields) = parse(line).unwrap();
            assert_eq!(fields.len(), line.split(' ').count() - 1, "{name}");
            for field in fields {
                let known = matches!(field.kind, "int" | "bool" | "double")
                    || super::super::special::KINDS.contains(&field.kind)
                    || message(field.kind).is_some();
                assert!(known, "{name}.{} is a {}", field.name, field.kind);
            }
        }
    }
}
