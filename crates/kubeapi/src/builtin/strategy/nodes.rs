//! Nodes.

use serde_json::Value;

/// What a node can allocate is all it has, unless it says otherwise.
pub(super) fn default(object: &mut Value) {
    let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    if let (None, Some(capacity)) = (status.get("allocatable"), status.get("capacity").cloned()) {
        status.insert("allocatable".to_owned(), capacity);
    }
}
