//! Maps: sorted by key, so that iteration is the same each time and a lookup needs no allocation.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Value, compare_numbers};

/// A map key.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // each variant is the CEL type of that name
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Key {
    /// The key a value stands for, or `None` when the type cannot be one. A double with a whole
    /// value finds the integer key, as in cel-go.
    pub fn from_value(value: &Value) -> Option<Key> {
        Some(match value {
            Value::Bool(key) => Key::Bool(*key),
            Value::Int(key) => Key::Int(*key),
            Value::Uint(key) => Key::Uint(*key),
            Value::String(key) => Key::String(key.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Key::Bool(key) => Value::Bool(*key),
            Key::Int(key) => Value::Int(*key),
            Key::Uint(key) => Value::Uint(*key),
            Key::String(key) => Value::String(key.clone()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Key::Bool(_) => 0,
            Key::Int(_) | Key::Uint(_) => 1,
            Key::String(_) => 2,
        }
    }

    fn order(&self, other: &Key) -> Ordering {
        match (self, other) {
            (Key::Bool(left), Key::Bool(right)) => left.cmp(right),
            (Key::String(left), Key::String(right)) => left.cmp(right),
            (Key::Int(left), Key::Int(right)) => left.cmp(right),
            (Key::Uint(left), Key::Uint(right)) => left.cmp(right),
            (Key::Int(_) | Key::Uint(_), Key::Int(_) | Key::Uint(_)) => {
                compare_numbers(&self.to_value(), &other.to_value()).unwrap_or(Ordering::Equal)
            }
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Bool(key) => write!(formatter, "{key}"),
            Key::Int(key) => write!(formatter, "{key}"),
            Key::Uint(key) => write!(formatter, "{key}"),
            Key::String(key) => formatter.write_str(key),
        }
    }
}

/// An immutable map. Keys of numbers are equal when their values are, whatever their type.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: Vec<(Key, Value)>,
}

impl Map {
    /// Entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.entries.iter().map(|(key, value)| (key, value))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value under a text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let index = self
            .entries
            .binary_search_by(|(candidate, _)| match candidate {
                Key::String(candidate) => (**candidate).cmp(key),
                _ => Ordering::Less,
            })
            .ok()?;
        self.entries.get(index).map(|(_, value)| value)
    }

    /// The value under any key.
    pub fn get_key(&self, key: &Key) -> Option<&Value> {
        let index = self
            .entries
            .binary_search_by(|(candidate, _)| candidate.order(key))
            .ok()?;
        self.entries.get(index).map(|(_, value)| value)
    }

    pub(crate) fn entry_at(&self, index: usize) -> Option<(&Key, &Value)> {
        self.entries.get(index).map(|(key, value)| (key, value))
    }

    /// Builds a map and says which key came twice, if one did.
    pub(crate) fn unique(mut entries: Vec<(Key, Value)>) -> Result<Map, Key> {
        entries.sort_by(|(left, _), (right, _)| left.order(right));
        let repeated = entries
            .windows(2)
            .find(|pair| pair[0].0.order(&pair[1].0) == Ordering::Equal)
            .map(|pair| pair[0].0.clone());
        match repeated {
            Some(key) => Err(key),
            None => Ok(Map { entries }),
        }
    }
}

impl FromIterator<(Key, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (Key, Value)>>(entries: I) -> Self {
        let mut entries: Vec<(Key, Value)> = entries.into_iter().collect();
        // Stable, so of two equal keys the later one is the later entry; it wins below.
        entries.sort_by(|(left, _), (right, _)| left.order(right));
        entries.dedup_by(|later, earlier| {
            let same = later.0.order(&earlier.0) == Ordering::Equal;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Map { entries }
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .entries
                .iter()
                .zip(&other.entries)
                .all(|(left, right)| left.0.order(&right.0) == Ordering::Equal && left.1 == right.1)
    }
}
