//! The object that a new one is compared with.

use serde_json::{Map, Value};

use crate::schema::{Node, NodeKind};

/// Fields of built-in types that are structs and not pointers in the reference, so that an object always has them.
const EMBEDDED_STRUCTS: [&str; 22] = [
    "CronJobSpec/jobTemplate",
    "CustomResourceDefinitionSpec/names",
    "CustomResourceDefinitionStatus/acceptedNames",
    "DeploymentSpec/strategy",
    "DeploymentSpec/template",
    "Event/deprecatedSource",
    "Event/involvedObject",
    "Event/regarding",
    "Event/source",
    "HorizontalPodAutoscalerSpec/scaleTargetRef",
    "JobSpec/template",
    "JobTemplateSpec/metadata",
    "JobTemplateSpec/spec",
    "NetworkPolicySpec/podSelector",
    "NodeStatus/daemonEndpoints",
    "NodeStatus/nodeInfo",
    "PersistentVolumeClaimSpec/resources",
    "PodTemplate/template",
    "PodTemplateSpec/metadata",
    "PodTemplateSpec/spec",
    "ReplicaSetSpec/template",
    "ServiceStatus/loadBalancer",
];

/// Fields that every Event has, in either form, with nothing in them.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("eventTime", "null"),
    ("firstTimestamp", "null"),
    ("lastTimestamp", "null"),
    ("deprecatedFirstTimestamp", "null"),
    ("deprecatedLastTimestamp", "null"),
    ("reportingComponent", ""),
    ("reportingInstance", ""),
];

/// What an object is compared with when it is created: its type, and for a built-in kind the structs that are
/// there in every object, which nobody owns for having written something inside.
pub(super) fn empty_object(node: &Node, like: &Value) -> Value {
    let mut object = Map::new();
    for name in ["apiVersion", "kind"] {
        if let Some(value) = like.get(name) {
            object.insert(name.to_owned(), value.clone());
        }
    }
    if node.definition.is_some() {
        for name in ["metadata", "spec", "status"] {
            if let Some(below) = node.property(name) {
                object.insert(name.to_owned(), empty_struct(below));
            }
        }
        for name in EMBEDDED_STRUCTS {
            insert_empty_struct(node, name, &mut object);
        }
        if like.get("kind").and_then(Value::as_str) == Some("Event") {
            for (name, empty) in EVENT_FIELDS {
                if node.property(name).is_some() {
                    let value = if empty == "null" {
                        Value::Null
                    } else {
                        Value::from("")
                    };
                    object.insert(name.to_owned(), value);
                }
            }
        }
    }
    Value::Object(object)
}

fn empty_struct(node: &Node) -> Value {
    let mut object = Map::new();
    // A list that every such object has is there, and null.
    for name in node.checks.iter().flat_map(|checks| &checks.required) {
        if node
            .property(name)
            .is_some_and(|below| matches!(below.kind, NodeKind::Array { .. }))
        {
            object.insert(name.clone(), Value::Null);
        }
    }
    for name in EMBEDDED_STRUCTS {
        insert_empty_struct(node, name, &mut object);
    }
    Value::Object(object)
}

fn insert_empty_struct(node: &Node, path: &str, object: &mut Map<String, Value>) {
    let Some((definition, name)) = path.split_once('/') else {
        return;
    };
    let is_here = node.definition.as_deref().is_some_and(|full| {
        full.strip_suffix(definition)
            .is_some_and(|package| package.ends_with('.'))
    });
    if let (true, Some(below)) = (is_here, node.property(name)) {
        object.insert(name.to_owned(), empty_struct(below));
    }
}
