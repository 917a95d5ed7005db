//! Custom resource types and everything about them that needs no I/O.
//!
//! - [`omnia`]: the kinds of group `omnia.altairalabs.ai`, with all their fields.
//! - [`kourier`]: the kinds of group `agentkourier.dev`.
//! - [`crd`]: the CustomResourceDefinitions, generated from the types and checked in under `crds/`.
//! - [`cluster_roles`]: what gives the roles `view`, `edit` and `admin` of Kubernetes our kinds.
//! - [`validation`]: one validator per kind, for objects that bypassed admission and for rules that a schema cannot
//!   express.
//! - [`discovery`]: the tools a registry's handlers contribute, and their digest.
//! - [`pack_version`]: semantic versions, channels, and which PromptPack an agent uses.
//! - [`conditions`], [`condition_types`], [`reasons`], [`names`], [`duration`]: the words and small rules that
//!   controllers share.
//!
//! This crate never talks to anything: no files, no network, no clock. Functions that need the time take it.
//! Start reading at [`omnia::tool_registry`].

#![expect(
    clippy::duplicated_attributes,
    reason = "printer columns of the derive repeat their type"
)]

mod enumeration;
mod schemas;

pub mod cluster_roles;
pub mod condition_types;
pub mod conditions;
pub mod crd;
pub mod discovery;
pub mod duration;
pub mod kourier;
pub mod names;
pub mod omnia;
pub mod pack_version;
pub mod reasons;
pub mod validation;

pub use cluster_roles::cluster_roles;
pub use crd::{Family, crd_yaml, crds};
