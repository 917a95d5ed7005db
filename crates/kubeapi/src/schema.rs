//! Schemas of every kind served, built-in or custom, as one tree of [`Node`]s.

mod node;

pub use node::{ListType, MapType, Node, NodeKind};
