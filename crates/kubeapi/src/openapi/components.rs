//! The schemas of a document.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{common, list_name};
use crate::builtin::{KindInfo, definitions};

const REFERENCE: &str = "#/components/schemas/";

/// The schemas of the kinds, of their lists, and of everything they refer to.
pub(super) fn of(kinds: &[&KindInfo]) -> BTreeMap<String, Value> {
    let mut schemas = BTreeMap::new();
    let mut wanted: Vec<String> = common().into_iter().collect();
    for info in kinds {
        if info.custom {
            schemas.insert(info.definition.clone(), custom(info));
            schemas.insert(list_name(&info.definition), custom_list(info));
        } else {
            wanted.push(info.definition.clone());
            wanted.push(list_name(&info.definition));
        }
    }
    let mut seen: BTreeSet<String> = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(schema) = definitions::document(&name) {
            references(&schema, &mut wanted);
            schemas.insert(name, schema);
        }
    }
    schemas
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
                    Some(target) if name == "$ref" => found.push(target.to_owned()),
                    _ => references(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// A reference to a definition, with a description of its own.
fn described(definition: &str, description: String) -> Value {
    json!({"allOf": [{"$ref": format!("{REFERENCE}{definition}")}], "description": description})
}

fn group_version_kind(info: &KindInfo, kind: &str) -> Value {
    json!([{"group": info.group, "kind": kind, "version": info.version}])
}

fn custom(info: &KindInfo) -> Value {
    let mut schema = match info.document.as_deref() {
        Some(Value::Object(fields)) => fields.clone(),
        _ => {
            let mut open = Map::new();
            open.insert("type".to_owned(), json!("object"));
            open.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            open
        }
    };
    add_resource_fields(&mut schema);
    schema.insert(
        "x-kubernetes-group-version-kind".to_owned(),
        group_version_kind(info, &info.kind),
    );
    let mut schema = Value::Object(schema);
    spell_out_choices(&mut schema);
    schema
}

/// Says in the words of JSON schema too that a value is an integer or a text.
fn spell_out_choices(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(spell_out_choices);
            if fields.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
                fields
                    .entry("anyOf")
                    .or_insert_with(|| json!([{"type": "integer"}, {"type": "string"}]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(spell_out_choices),
        _ => {}
    }
}

/// `apiVersion`, `kind` and `metadata`, described as everywhere.
fn add_resource_fields(schema: &mut Map<String, Value>) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    let Some(properties) = properties.as_object_mut() else {
        return;
    };
    let list = definitions::meta("APIResourceList");
    for name in ["apiVersion", "kind"] {
        properties.insert(
            name.to_owned(),
            json!({"type": "string", "description": definitions::description(&list, name)}),
        );
    }
    let description = "Standard object's metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
    properties.insert(
        "metadata".to_owned(),
        described(&definitions::meta("ObjectMeta"), description.to_owned()),
    );
}

fn custom_list(info: &KindInfo) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert(
        "description".to_owned(),
        json!(format!("{} is a list of {}", info.list_kind, info.kind)),
    );
    add_resource_fields(&mut schema);
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let description = "Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
        properties.insert(
            "metadata".to_owned(),
            described(&definitions::meta("ListMeta"), description.to_owned()),
        );
        properties.insert(
            "items".to_owned(),
            json!({
                "type": "array",
                "description": format!("List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", info.plural),
                "items": {"$ref": format!("{REFERENCE}{}", info.definition)},
            }),
        );
    }
    schema.insert("required".to_owned(), json!(["items"]));
    schema.insert(
        "x-kubernetes-group-version-kind".to_owned(),
        group_version_kind(info, &info.list_kind),
    );
    Value::Object(schema)
}
