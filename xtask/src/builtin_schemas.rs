//! `cargo xtask builtin-schemas --from DIR`: the schemas of the built-in kinds.
//!
//! Kubernetes publishes its OpenAPI v3 documents in the folder `api/openapi-spec/v3` of its repository, which is also in
//! the Go module `k8s.io/kubernetes`. Of those this task keeps the definitions that the kinds of
//! `crates/kubeapi/data/kinds.json` need, one on a line, so that a change of the list or of the release is a readable
//! difference. Nothing is rewritten: descriptions, list types, merge keys and defaults stay as published.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, bail};
use serde_json::Value;

const DATA: &str = "crates/kubeapi/data";
const REFERENCE: &str = "#/components/schemas/";

/// Definitions that answers and requests of every kind use.
const COMMON: &[&str] = &[
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroup",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIGroupList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.APIResourceList",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
];

/// Reads the documents in `from` and writes `definitions.json` below the workspace at `root`.
///
/// # Errors
/// If a document cannot be read, or a kind's definition is in none of them.
pub(crate) fn run(root: &Path, from: &Path) -> anyhow::Result<()> {
    let published = read_documents(from)?;
    let kinds_path = root.join(DATA).join("kinds.json");
    let kinds: Vec<Value> =
        serde_json::from_slice(&fs::read(&kinds_path).with_context(|| kinds_path.display().to_string())?)
            .with_context(|| kinds_path.display().to_string())?;
    let mut wanted: Vec<String> = COMMON.iter().map(|&name| name.to_owned()).collect();
    for kind in &kinds {
        let definition = kind
            .get("definition")
            .and_then(Value::as_str)
            .context("a kind names no definition")?;
        wanted.push(definition.to_owned());
        // Reviews are asked and answered, and never listed.
        let verbs = kind.get("verbs").and_then(Value::as_array);
        if verbs.is_some_and(|verbs| verbs.iter().any(|verb| verb == "list")) {
            wanted.push(format!("{definition}List"));
        }
    }
    let mut kept = BTreeSet::new();
    while let Some(name) = wanted.pop() {
        if !kept.insert(name.clone()) {
            continue;
        }
        let Some(definition) = published.get(&name) else {
            bail!("no document defines {name}")
        };
        references(definition, &mut wanted);
    }
    let definitions: BTreeMap<String, Value> = kept
        .into_iter()
        .filter_map(|name| published.get(&name).map(|schema| (name.clone(), schema.clone())))
        .collect();
    write_lines(&root.join(DATA).join("definitions.json"), &definitions)
}

/// Writes a map with one entry on a line.
fn write_lines(target: &Path, entries: &BTreeMap<String, Value>) -> anyhow::Result<()> {
    let lines = entries
        .iter()
        .map(|(name, entry)| Ok(format!("{}:{entry}", serde_json::to_string(name)?)))
        .collect::<anyhow::Result<Vec<String>>>()?;
    fs::write(target, format!("{{\n{}\n}}\n", lines.join(",\n")))
        .with_context(|| target.display().to_string())
}

fn read_documents(from: &Path) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut published = BTreeMap::new();
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let document: Value =
            serde_json::from_slice(&fs::read(&path).with_context(|| path.display().to_string())?)
                .with_context(|| path.display().to_string())?;
        if let Some(schemas) = document.pointer("/components/schemas").and_then(Value::as_object) {
            for (name, schema) in schemas {
                merge_versions(published.entry(name.clone()).or_insert(Value::Null), schema);
            }
        }
    }
    Ok(published)
}

/// The same definition stands in several documents; those of options list the group versions that take them, which
/// differs between documents. The lists are united.
fn merge_versions(kept: &mut Value, schema: &Value) {
    const GROUP_VERSIONS: &str = "x-kubernetes-group-version-kind";
    if kept.is_null() {
        *kept = schema.clone();
        return;
    }
    let (Some(kept), Some(more)) = (
        kept.get_mut(GROUP_VERSIONS).and_then(Value::as_array_mut),
        schema.get(GROUP_VERSIONS).and_then(Value::as_array),
    ) else {
        return;
    };
    for version in more {
        if !kept.contains(version) {
            kept.push(version.clone());
        }
    }
    kept.sort_by_key(Value::to_string);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_found_at_any_depth() {
        let mut found = Vec::new();
        references(
            &json!({"properties": {"a": {"allOf": [{"$ref": "#/components/schemas/x.A"}], "default": {}},
                                   "b": {"items": {"$ref": "#/components/schemas/x.B"}}}}),
            &mut found,
        );
        assert_eq!(found, ["x.A", "x.B"]);
    }
}
