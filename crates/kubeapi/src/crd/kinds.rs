//! The kinds that a definition makes.

use std::sync::Arc;

use serde_json::Value;

use super::{text, texts, versions};
use crate::{
    builtin::{Column, ColumnSource, KindInfo, ScalePaths, Strategy},
    discovery::compare_versions,
    field::FieldError,
    schema::{Node, compile_rules},
};

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];

/// One kind for each served version of a definition, named by its accepted names where it has them.
///
/// # Errors
/// What keeps a schema from being used; a definition that passed `validate_crd` has no such fault.
pub fn kinds_of(crd: &Value) -> Result<Vec<KindInfo>, Vec<FieldError>> {
    let storage_version = versions(crd)
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| text(version, "/name"))
        .unwrap_or_default();
    versions(crd)
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| kind_of(crd, version, storage_version))
        .collect()
}

fn kind_of(crd: &Value, version: &Value, storage_version: &str) -> Result<KindInfo, Vec<FieldError>> {
    let group = text(crd, "/spec/group");
    let names = match crd.pointer("/status/acceptedNames") {
        Some(accepted) if !text(accepted, "/plural").is_empty() => accepted,
        _ => crd.pointer("/spec/names").unwrap_or(&Value::Null),
    };
    let (plural, kind) = (text(names, "/plural"), text(names, "/kind"));
    let document = version.pointer("/schema/openAPIV3Schema");
    let mut node = match document {
        Some(document) => Node::from_crd_schema(document)?,
        None => Arc::new(Node::anything()),
    };
    if crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true)) {
        let mut open = Node::clone(&node);
        open.preserve_unknown_fields = true;
        node = Arc::new(open);
    }
    let rules = document.map(|document| compile_rules(document, &node));
    let name = text(version, "/name");
    Ok(KindInfo {
        group: group.to_owned(),
        version: name.to_owned(),
        kind: kind.to_owned(),
        list_kind: text(names, "/listKind").to_owned(),
        plural: plural.to_owned(),
        singular: text(names, "/singular").to_owned(),
        short_names: texts(names, "/shortNames"),
        categories: texts(names, "/categories"),
        namespaced: text(crd, "/spec/scope") == "Namespaced",
        verbs: VERBS.iter().map(|&verb| verb.to_owned()).collect(),
        status: version
            .pointer("/subresources/status")
            .is_some_and(Value::is_object),
        scale: scale_of(version),
        subresources: Vec::new(),
        storage_resource: format!("{group}/{plural}"),
        storage_version: storage_version.to_owned(),
        rules: rules.filter(|rules| !rules.is_empty()).map(Arc::new),
        node,
        columns: columns_of(version),
        selectable_fields: selectable_fields_of(version),
        custom: true,
        deprecation_warning: deprecation_of(crd, version, group, kind),
        definition: definition_name(group, name, kind),
        document: document.cloned().map(Arc::new),
        strategy: Strategy::none(),
    })
}

fn scale_of(version: &Value) -> Option<ScalePaths> {
    let scale = version.pointer("/subresources/scale")?;
    let selector = text(scale, "/labelSelectorPath");
    Some(ScalePaths {
        spec_replicas: text(scale, "/specReplicasPath").to_owned(),
        status_replicas: text(scale, "/statusReplicasPath").to_owned(),
        label_selector: (!selector.is_empty()).then(|| selector.to_owned()),
    })
}

/// The columns of the definition after the name; a definition without any shows the age.
fn columns_of(version: &Value) -> Vec<Column> {
    let mut columns = vec![Column {
        name: "Name".to_owned(),
        type_: "string".to_owned(),
        format: "name".to_owned(),
        description: crate::builtin::definitions::description(
            &crate::builtin::definitions::meta("ObjectMeta"),
            "name",
        ),
        priority: 0,
        source: ColumnSource::JsonPath(".metadata.name".to_owned()),
    }];
    let declared = version.get("additionalPrinterColumns").and_then(Value::as_array);
    match declared.filter(|declared| !declared.is_empty()) {
        Some(declared) => columns.extend(declared.iter().map(|column| {
            Column {
                name: text(column, "/name").to_owned(),
                type_: text(column, "/type").to_owned(),
                format: text(column, "/format").to_owned(),
                description: match text(column, "/description") {
                    "" => format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        text(column, "/jsonPath")
                    ),
                    described => described.to_owned(),
                },
                priority: column
                    .get("priority")
                    .and_then(Value::as_i64)
                    .and_then(|priority| i32::try_from(priority).ok())
                    .unwrap_or_default(),
                source: ColumnSource::JsonPath(text(column, "/jsonPath").to_owned()),
            }
        })),
        None => columns.push(Column {
            name: "Age".to_owned(),
            type_: "date".to_owned(),
            format: String::new(),
            description: crate::builtin::definitions::description(
                &crate::builtin::definitions::meta("ObjectMeta"),
                "creationTimestamp",
            ),
            priority: 0,
            source: ColumnSource::JsonPath(".metadata.creationTimestamp".to_owned()),
        }),
    }
    columns
}

/// The paths of `selectableFields`, without the leading dot, as field selectors name them.
fn selectable_fields_of(version: &Value) -> Vec<String> {
    version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|field| text(field, "/jsonPath").trim_start_matches('.').to_owned())
        .collect()
}

fn deprecation_of(crd: &Value, version: &Value, group: &str, kind: &str) -> Option<String> {
    let is_set = |version: &Value, name: &str| version.get(name) == Some(&Value::Bool(true));
    if !is_set(version, "deprecated") {
        return None;
    }
    let given = text(version, "/deprecationWarning");
    if !given.is_empty() {
        return Some(given.to_owned());
    }
    let name = text(version, "/name");
    let newer = versions(crd)
        .filter(|other| is_set(other, "served") && !is_set(other, "deprecated"))
        .map(|other| text(other, "/name"))
        .filter(|other| compare_versions(name, other).is_lt())
        .max_by(|left, right| compare_versions(left, right));
    let advice = newer.map_or_else(String::new, |newer| format!("; use {group}/{newer} {kind}"));
    Some(format!("{group}/{name} {kind} is deprecated{advice}"))
}

/// The name of a custom kind among OpenAPI definitions: the group's labels in reverse, the version, the kind.
fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.push(version);
    parts.push(kind);
    parts.join(".")
}
