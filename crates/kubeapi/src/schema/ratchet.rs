//! Finding the old value that a value of an update corresponds to. Checks that a value failed already before the update
//! and that the update did not touch do not refuse it ("validation ratcheting"). Requirements KA-013, KA-015.

use serde_json::Value;

use super::{ListType, MapType, Node, NodeKind};

/// The old value beside a new one, where the schema says which belongs to which: the same key of a granular map or
/// object, the item with the same keys of a list of type `map`. Everything below an atomic list or map is uncorrelated.
#[derive(Clone, Copy, Debug, Default)]
pub struct Correlation<'old> {
    /// The old value; `None` where there was none or none corresponds.
    pub old: Option<&'old Value>,
}

impl<'old> Correlation<'old> {
    /// The correlation of a whole object.
    pub fn of(old: Option<&'old Value>) -> Self {
        Self { old }
    }

    /// The correlation of the field `name` below this one, whose node is `node`.
    pub fn field(self, node: &Node, name: &str) -> Self {
        if node.map_type == MapType::Atomic {
            return Self::default();
        }
        Self {
            old: self.old.and_then(|old| old.get(name)),
        }
    }

    /// The correlation of `item` of the list whose node is `node`.
    pub fn item(self, node: &Node, item: &Value) -> Self {
        if node.list_type != ListType::Map || !matches!(node.kind, NodeKind::Array { .. }) {
            return Self::default();
        }
        let keys = |value: &Value| -> Vec<Value> {
            node.list_map_keys
                .iter()
                .map(|key| value.get(key).cloned().unwrap_or(Value::Null))
                .collect()
        };
        let wanted = keys(item);
        Self {
            old: self
                .old
                .and_then(Value::as_array)
                .and_then(|list| list.iter().find(|old| keys(old) == wanted)),
        }
    }

    /// Whether the new value is the old one.
    pub fn is_unchanged(self, new: &Value) -> bool {
        self.old == Some(new)
    }
}
