//! The definitions that Kubernetes publishes for its built-in kinds (`data/definitions.json`), as a tree of nodes, and
//! as documents for OpenAPI. Requirements KA-005, KA-010, KA-011.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock, OnceLock},
};

use serde_json::{Map, Value, value::RawValue};

use crate::schema::{Checks, ListType, MapType, Node, NodeKind};

const DEFINITIONS: &str = include_str!("../../data/definitions.json");
const DEFAULTS: &str = include_str!("../../data/defaults.json");
const REFERENCE: &str = "#/components/schemas/";
const PREFIX: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// The definitions, each left as text until somebody asks for it.
static INDEX: LazyLock<HashMap<&'static str, &'static RawValue>> =
    LazyLock::new(|| serde_json::from_str(DEFINITIONS).unwrap_or_default());

/// Defaults that the reference sets in code, by definition and property.
static CODE_DEFAULTS: LazyLock<HashMap<&'static str, Map<String, Value>>> =
    LazyLock::new(|| serde_json::from_str(DEFAULTS).unwrap_or_default());

/// The published definition of that name.
pub(crate) fn document(name: &str) -> Option<Value> {
    INDEX
        .get(name)
        .and_then(|raw| serde_json::from_str(raw.get()).ok())
}

/// The published definition as it stands in the file.
pub(crate) fn document_text(name: &str) -> Option<&'static str> {
    INDEX.get(name).map(|raw| raw.get())
}

/// The name of a definition of `meta/v1`.
pub(crate) fn meta(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The node of `meta/v1.ObjectMeta`, which every object has.
pub(crate) fn object_meta() -> Arc<Node> {
    static NODE: OnceLock<Arc<Node>> = OnceLock::new();
    Arc::clone(NODE.get_or_init(|| Reader::default().definition(&meta("ObjectMeta"))))
}

/// The description of one property of a definition; empty if there is none.
pub(crate) fn description(definition: &str, property: &str) -> String {
    document(definition)
        .and_then(|schema| {
            schema
                .get("properties")?
                .get(property)?
                .get("description")?
                .as_str()
                .map(str::to_owned)
        })
        .unwrap_or_default()
}

/// Reads definitions into nodes. Each definition is read once; what refers to it shares the node.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    read: HashMap<String, Arc<Node>>,
    open: Vec<String>,
}

impl Reader {
    /// The node of a definition. A definition inside itself becomes "anything": only the schema of schemas is so.
    pub(crate) fn definition(&mut self, name: &str) -> Arc<Node> {
        if let Some(node) = self.read.get(name) {
            return Arc::clone(node);
        }
        if name.starts_with("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON") {
            return Arc::new(Node::anything());
        }
        let Some(schema) = document(name).filter(|_| !self.open.iter().any(|open| open == name)) else {
            return Arc::new(Node::anything());
        };
        self.open.push(name.to_owned());
        let mut node = self.schema(&schema, Some(name));
        self.open.pop();
        node.definition = Some(Arc::from(name));
        let node = Arc::new(node);
        self.read.insert(name.to_owned(), Arc::clone(&node));
        node
    }

    fn schema(&mut self, schema: &Value, definition: Option<&str>) -> Node {
        if let Some(target) = referred(schema) {
            let mut node = Node::clone(&self.definition(target));
            apply_extensions(&mut node, schema);
            return node;
        }
        let kind = match schema.get("type").and_then(Value::as_str) {
            Some("object") => self.object(schema, definition),
            Some("array") => NodeKind::Array {
                items: Arc::new(
                    schema
                        .get("items")
                        .map_or_else(Node::anything, |items| self.schema(items, None)),
                ),
            },
            Some("string") => NodeKind::String,
            Some("integer") => NodeKind::Integer,
            Some("number") => NodeKind::Number,
            Some("boolean") => NodeKind::Boolean,
            _ => NodeKind::Any,
        };
        let mut node = Node::new(kind);
        node.int_or_string = schema.get("oneOf").is_some();
        let free_form = match &node.kind {
            NodeKind::Object {
                properties,
                additional,
            } => properties.is_empty() && additional.is_none(),
            NodeKind::Any => true,
            _ => false,
        };
        node.preserve_unknown_fields = free_form && !node.int_or_string;
        // Errors are about patterns, of which the published documents have none.
        let mut demands = schema.clone();
        if let Some(fields) = demands.as_object_mut() {
            fields.remove("oneOf");
        }
        node.checks = Checks::read(&demands, &crate::field::FieldPath::root(), &mut Vec::new());
        apply_extensions(&mut node, schema);
        node
    }

    fn object(&mut self, schema: &Value, definition: Option<&str>) -> NodeKind {
        let code_defaults = definition.and_then(|name| CODE_DEFAULTS.get(name));
        let mut properties = BTreeMap::new();
        if let Some(declared) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in declared {
                let mut node = match referred(property).filter(|_| is_plain(property)) {
                    Some(target) => self.definition(target),
                    None => Arc::new(self.schema(property, None)),
                };
                if let Some(default) = code_defaults.and_then(|defaults| defaults.get(name)) {
                    let mut own = Node::clone(&node);
                    own.default = Some(default.clone());
                    node = Arc::new(own);
                }
                properties.insert(name.clone(), node);
            }
        }
        let additional = schema
            .get("additionalProperties")
            .filter(|additional| additional.is_object())
            .map(|additional| Arc::new(self.schema(additional, None)));
        NodeKind::Object {
            properties,
            additional,
        }
    }
}

/// The definition that a schema refers to, directly or as its only `allOf`, which is how references with a description of
/// their own are published.
fn referred(schema: &Value) -> Option<&str> {
    let direct = schema
        .get("$ref")
        .or_else(|| match schema.get("allOf")?.as_array()?.as_slice() {
            [only] => only.get("$ref"),
            _ => None,
        });
    direct?.as_str()?.strip_prefix(REFERENCE)
}

/// Whether a reference adds nothing to its target but a description.
fn is_plain(schema: &Value) -> bool {
    schema.as_object().is_some_and(|fields| {
        fields
            .keys()
            .all(|name| matches!(name.as_str(), "$ref" | "allOf" | "description"))
    })
}

fn apply_extensions(node: &mut Node, schema: &Value) {
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    if let Some(default) = schema.get("default") {
        node.default = Some(default.clone());
    }
    match text("x-kubernetes-list-type") {
        Some("map") => node.list_type = ListType::Map,
        Some("set") => node.list_type = ListType::Set,
        Some(_) => node.list_type = ListType::Atomic,
        None => {}
    }
    if let Some(keys) = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array) {
        node.list_map_keys = keys.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }
    match text("x-kubernetes-map-type") {
        Some("atomic") => node.map_type = MapType::Atomic,
        Some(_) => node.map_type = MapType::Granular,
        None => {}
    }
    if let Some(strategy) = text("x-kubernetes-patch-strategy") {
        node.patch_strategy = strategy.split(',').map(str::to_owned).collect();
    }
    if let Some(key) = text("x-kubernetes-patch-merge-key") {
        node.patch_merge_key = Some(key.to_owned());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_data_files_can_be_read_and_name_what_is_published() {
        assert!(INDEX.len() > 100);
        assert!(CODE_DEFAULTS.len() > 10);
        let named = CODE_DEFAULTS.iter().flat_map(|(definition, defaults)| {
            defaults.keys().map(|property| (*definition, property.as_str()))
        });
        for (definition, property) in named {
            let schema = document(definition).unwrap_or_else(|| panic!("{definition} is not published"));
            assert!(
                schema["properties"].get(property).is_some(),
                "{definition} has no {property}"
            );
        }
    }

    #[test]
    fn list_types_and_merge_keys_of_the_published_schema_are_kept() {
        // KA-027
        let pod = Reader::default().definition("io.k8s.api.core.v1.Pod");
        let spec = pod.property("spec").expect("spec");
        let containers = spec.property("containers").expect("containers");
        assert_eq!(containers.list_type, ListType::Map);
        assert_eq!(containers.list_map_keys, ["name"]);
        assert_eq!(containers.patch_strategy, ["merge"]);
        assert_eq!(containers.patch_merge_key.as_deref(), Some("name"));
        let container = containers.items().expect("items");
        assert_eq!(
            container.definition.as_deref(),
            Some("io.k8s.api.core.v1.Container")
        );
        let ports = container.property("ports").expect("ports");
        assert_eq!(ports.list_map_keys, ["containerPort", "protocol"]);
        assert_eq!(
            ports
                .items()
                .and_then(|port| port.property("protocol"))
                .and_then(|protocol| protocol.default.clone()),
            Some(Value::from("TCP"))
        );
        let volumes = spec.property("volumes").expect("volumes");
        assert_eq!(volumes.patch_strategy, ["merge", "retainKeys"]);
        let target = Reader::default().definition("io.k8s.api.core.v1.ServicePort");
        assert!(target.property("targetPort").expect("targetPort").int_or_string);
    }

    #[test]
    fn the_schema_of_schemas_is_free_form() {
        let crd = Reader::default()
            .definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition");
        let validation = crd
            .property("spec")
            .and_then(|spec| spec.property("versions"))
            .and_then(|versions| versions.items())
            .and_then(|version| version.property("schema"))
            .and_then(|schema| schema.property("openAPIV3Schema"))
            .expect("schema");
        assert!(validation.preserve_unknown_fields);
    }
}
