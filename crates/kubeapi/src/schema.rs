//! Schemas of every kind served, built-in or custom, as one tree of [`Node`]s, and what is done by walking it.
//! Requirements KA-013, KA-014, KA-015.

mod checks;
mod decode;
mod default;
pub(crate) mod formats;
mod lists;
mod metadata;
mod node;
mod pattern;
mod prune;
mod ratchet;
mod read;
mod restore;
mod rules;
mod validate;

pub use checks::{Checks, ValidationRule};
pub use decode::decode_error;
pub use default::default_object;
pub use lists::validate_lists;
pub use metadata::{embedded_decode_error, validate_embedded};
pub use node::{ListType, MapType, Node, NodeKind};
pub use pattern::compile_pattern;
pub use prune::prune;
pub use ratchet::Correlation;
pub use restore::{restore_error, restore_integers};
pub use rules::{Judgement, Rules, compile_rules};
pub(crate) use rules::{MAX_REQUEST, Rule, compile_rule, count, declare, shown_rule};
pub use validate::{validate, validate_update};
