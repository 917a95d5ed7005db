//! Label and field selectors of lists, watches and deletions of collections. Requirement KA-024.

mod fields;
mod labels;

#[cfg(test)]
mod tests;

pub use fields::{FieldSelector, field_value};
pub use labels::{LabelSelector, format_label_selector};
