//! The kinds that are served: the built-in ones, read from `data/kinds.json` and the published definitions, and those of
//! custom resource definitions beside them. Requirements KA-010, KA-012.

pub(crate) mod conversion;
pub(crate) mod definitions;
mod kind;
mod kinds;
pub mod services;
pub(crate) mod strategy;
pub(crate) mod validation;

pub use kind::{Column, ColumnSource, KindInfo, ScalePaths, Subresource};
pub use kinds::Kinds;
pub use strategy::Strategy;
