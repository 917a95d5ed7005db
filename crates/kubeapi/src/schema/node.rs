//! One type tree for custom resources (from their CRD) and built-in kinds (from the published OpenAPI
//! documents). Validation, pruning, defaulting, server-side apply and strategic merge all walk it, so that
//! each rule about a field is read from one place.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::checks::Checks;

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
    /// The value checks (`enum`, `pattern`, bounds, `required`, `allOf` …), compiled when the schema was read;
    /// `None` when the schema has none.
    pub checks: Option<Arc<Checks>>,
    /// The name of the definition of the published API that the node comes from, such as
    /// `io.k8s.api.apps.v1.DeploymentSpec`; only in built-in kinds. Decoding errors name it.
    pub definition: Option<Arc<str>>,
}

impl Node {
    /// A node of that shape without anything further.
    pub fn new(kind: NodeKind) -> Self {
        Self {
            kind,
            nullable: false,
            int_or_string: false,
            preserve_unknown_fields: false,
            embedded_resource: false,
            default: None,
            list_type: ListType::Atomic,
            list_map_keys: Vec::new(),
            map_type: MapType::Granular,
            patch_strategy: Vec::new(),
            patch_merge_key: None,
            checks: None,
            definition: None,
        }
    }

    /// A node that accepts anything and keeps all of it.
    pub fn anything() -> Self {
        Self {
            nullable: true,
            preserve_unknown_fields: true,
            ..Self::new(NodeKind::Any)
        }
    }

    /// The declared property of that name, if this is an object that declares it.
    pub fn property(&self, name: &str) -> Option<&Arc<Node>> {
        match &self.kind {
            NodeKind::Object { properties, .. } => properties.get(name),
            _ => None,
        }
    }

    /// The node of the value under `name`: the declared property, or else that of undeclared keys.
    pub fn child(&self, name: &str) -> Option<&Arc<Node>> {
        match &self.kind {
            NodeKind::Object {
                properties,
                additional,
            } => properties.get(name).or(additional.as_ref()),
            _ => None,
        }
    }

    /// The node of the items, if this is a list.
    pub fn items(&self) -> Option<&Arc<Node>> {
        match &self.kind {
            NodeKind::Array { items } => Some(items),
            _ => None,
        }
    }

    /// The `type` of the schema document; empty where it has none.
    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            NodeKind::Any => "",
            NodeKind::Object { .. } => "object",
            NodeKind::Array { .. } => "array",
            NodeKind::String => "string",
            NodeKind::Integer => "integer",
            NodeKind::Number => "number",
            NodeKind::Boolean => "boolean",
        }
    }
}
