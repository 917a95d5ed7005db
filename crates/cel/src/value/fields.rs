//! Objects whose fields are found out when they are asked for, such as the `variables` of an admission policy.

use std::fmt::Debug;
use std::sync::Arc;

use super::Value;

/// Where the fields come from.
pub trait Fields: Debug + Send + Sync {
    /// The value of a field, or why it has none; `None` for a name that no field has.
    fn field(&self, name: &str) -> Option<Result<Value, String>>;
}

/// An object of such fields.
#[derive(Clone, Debug)]
pub struct LazyFields(pub Arc<dyn Fields>);

impl PartialEq for LazyFields {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
