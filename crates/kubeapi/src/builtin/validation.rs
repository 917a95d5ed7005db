//! What the code of the reference demands of built-in kinds, in its order and with its words
//! (`k8s.io/kubernetes` 1.37, `pkg/apis/*/validation`; what it has by default, with its features in their default state).
//! Requirements KA-006, KA-010.
//!
//! An object that comes here is normalised: it has its defaults, its values have the types of their fields, and neither
//! nulls nor empty lists and maps are in it. What is absent is the zero value.

pub(crate) mod addresses;
pub(crate) mod amounts;
pub(crate) mod autoscaling;
pub(crate) mod claims;
mod containers;
mod devices;
pub(crate) mod endpoints;
mod environment;
mod ephemeral;
mod field;
pub(crate) mod formats;
pub(crate) mod handlers;
pub(crate) mod networking;
pub(crate) mod pod_updates;
pub(crate) mod pods;
mod profiles;
pub(crate) mod resources;
pub(crate) mod scheduling;
mod security;
pub(crate) mod services;
mod spreading;
mod systems;
mod volumes;

pub(crate) use field::{Field, internal};

use crate::field::FieldError;

/// What is wrong, in the order in which it was found.
pub(crate) type Errors = Vec<FieldError>;

/// What the reference says of a negative count.
pub(crate) const NOT_NEGATIVE: &str = "must be greater than or equal to 0";
/// What the reference says of a field that an update may not change.
pub(crate) const IMMUTABLE: &str = "field is immutable";
pub(crate) const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
