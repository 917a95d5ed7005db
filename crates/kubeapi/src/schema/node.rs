//! One type tree for custom resources (from their CRD) and built-in kinds (from the published OpenAPI
//! documents). Validation, pruning, defaulting, server-side apply and strategic merge all walk it, so that
//! each rule about a field is read from one place.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

/// How two lists are merged by server-side apply (`x-kubernetes-list-type`). Absent means atomic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole.
    #[default]
    Atomic,
    /// A set of scalars.
    Set,
    /// Items identified by [`Node::list_map_keys`].
    Map,
}

/// How a map or object is merged by server-side apply (`x-kubernetes-map-type`). Absent means granular.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Merged key by key.
    #[default]
    Granular,
    /// Replaced as a whole.
    Atomic,
}

/// The shape of a node.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// Anything: no type was declared.
    Any,
    /// An object with declared `properties`, or a map whose values are `additional`, or both (Kubernetes
    /// forbids both in one CRD node, the meta types of built-in kinds have at most one).
    Object {
        /// Declared properties.
        properties: BTreeMap<String, Arc<Node>>,
        /// Schema of the values of undeclared keys; `None` means undeclared keys are unknown fields.
        additional: Option<Arc<Node>>,
    },
    /// A list.
    Array {
        /// Schema of each item.
        items: Arc<Node>,
    },
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
}

/// One place in a schema.
#[derive(Clone, Debug)]
pub struct Node {
    /// The shape.
    pub kind: NodeKind,
    /// `nullable: true`.
    pub nullable: bool,
    /// `x-kubernetes-int-or-string: true`; then `kind` is `Any`.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields: true`: unknown fields below are kept. Declared properties are still
    /// pruned by their own schemas.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource: true`: `apiVersion`, `kind` and `metadata` are implied.
    pub embedded_resource: bool,
    /// `default`.
    pub default: Option<Value>,
    /// `x-kubernetes-list-type`.
    pub list_type: ListType,
    /// `x-kubernetes-list-map-keys`, in the declared order.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`.
    pub map_type: MapType,
    /// `x-kubernetes-patch-strategy` of a built-in field, split at commas: `merge`, `replace`, `retainKeys`.
    pub patch_strategy: Vec<String>,
    /// `x-kubernetes-patch-merge-key` of a built-in field.
    pub patch_merge_key: Option<String>,
    /// The schema document this node was read from, `$ref`s resolved one level at a time by the reader. Value
    /// validation (`enum`, `pattern`, bounds, `required`, `allOf` …) and OpenAPI publishing read it.
    pub source: Arc<Value>,
}
