//! The protobuf form of the built-in kinds: field numbers and types from `generated.proto`, and from the `types.go` beside
//! it the JSON names and which empty values JSON leaves out.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// The messages that the decoder knows by name, since their JSON is no object of their fields.
const SPECIAL: &[&str] = &[
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
];

/// One field of a message in `generated.proto`.
struct Field {
    number: String,
    shape: &'static str,
    type_: String,
}

/// What a struct tag in `types.go` says about a field.
struct Tag {
    /// Empty for a field whose content JSON shows in place of it.
    name: String,
    keeps_zero: bool,
}

#[derive(Default)]
struct Sources {
    messages: BTreeMap<String, Vec<Field>>,
    tags: BTreeMap<(String, String), Tag>,
}

/// The table for the messages reachable from `roots`: message → field number → name, shape, type, whether JSON keeps an
/// empty value.
///
/// # Errors
/// If a file cannot be read, or a message or tag is missing.
pub(super) fn table(folders: &[PathBuf], roots: &[String]) -> anyhow::Result<BTreeMap<String, Value>> {
    let mut sources = Sources::default();
    for folder in folders {
        collect(folder, &mut sources)?;
    }
    let mut table = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut wanted = roots.to_vec();
    while let Some(name) = wanted.pop() {
        if SPECIAL.contains(&name.as_str()) || !seen.insert(name.clone()) {
            continue;
        }
        let Some(fields) = sources.messages.get(&name) else {
            bail!("no generated.proto defines {name}")
        };
        let mut entry = serde_json::Map::new();
        for field in fields {
            if field.type_.contains('.') {
                wanted.push(field.type_.clone());
            }
            let described = match (
                sources.tags.get(&(name.clone(), field.number.clone())),
                fields.as_slice(),
            ) {
                (Some(tag), _) => json!([tag.name, field.shape, field.type_, tag.keeps_zero]),
                // A Go list with a name of its own: the message stands for the list.
                (None, [only]) if only.shape == "many" => json!(["", field.shape, field.type_, true]),
                (None, _) => bail!("no struct tag for field {} of {name}", field.number),
            };
            entry.insert(field.number.clone(), described);
        }
        table.insert(name, Value::Object(entry));
    }
    Ok(table)
}

fn collect(folder: &Path, sources: &mut Sources) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.file_name().is_some_and(|name| name == "generated.proto") {
            let proto = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let package = read_messages(&proto, sources);
            for go in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
                let go = go?.path();
                let is_source = go.extension().is_some_and(|extension| extension == "go");
                if is_source {
                    read_tags(
                        &fs::read_to_string(&go).with_context(|| go.display().to_string())?,
                        &package,
                        sources,
                    );
                }
            }
        }
    }
    Ok(())
}

/// `k8s.io.api.core.v1` is published as `io.k8s.api.core.v1`.
fn published(package: &str) -> String {
    package.replacen("k8s.io.", "io.k8s.", 1)
}

fn read_messages(proto: &str, sources: &mut Sources) -> String {
    let mut package = String::new();
    let mut message: Option<String> = None;
    for line in proto.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("package ") {
            package = published(name.trim_end_matches(';'));
        } else if let Some(name) = line
            .strip_prefix("message ")
            .and_then(|rest| rest.strip_suffix(" {"))
        {
            let name = format!("{package}.{name}");
            sources.messages.entry(name.clone()).or_default();
            message = Some(name);
        } else if line == "}" {
            message = None;
        } else if let (Some(message), Some(field)) = (&message, read_field(line, &package)) {
            sources.messages.entry(message.clone()).or_default().push(field);
        }
    }
    package
}

/// `optional TYPE name = 3;`, `repeated TYPE name = 3;` or `map<string, TYPE> name = 3;`
fn read_field(line: &str, package: &str) -> Option<Field> {
    let (declaration, rest) = line.split_once('=')?;
    let number = rest.trim().split([';', ' ']).next()?.to_owned();
    let (shape, declared) = if let Some(rest) = declaration.strip_prefix("map<string,") {
        ("map", rest.split('>').next()?.trim())
    } else if let Some(rest) = declaration.strip_prefix("repeated ") {
        ("many", rest.split_whitespace().next()?)
    } else {
        (
            "one",
            declaration.strip_prefix("optional ")?.split_whitespace().next()?,
        )
    };
    let type_ = match declared {
        scalar if scalar.chars().next().is_some_and(char::is_lowercase) && !scalar.contains('.') => {
            scalar.to_owned()
        }
        local if !local.contains('.') => format!("{package}.{local}"),
        qualified => published(qualified.trim_start_matches('.')),
    };
    Some(Field { number, shape, type_ })
}

fn read_tags(go: &str, package: &str, sources: &mut Sources) {
    let mut structure: Option<String> = None;
    for line in go.lines() {
        if let Some(name) = line
            .strip_prefix("type ")
            .and_then(|rest| rest.strip_suffix(" struct {"))
        {
            structure = Some(format!("{package}.{name}"));
        } else if line == "}" {
            structure = None;
        } else if let Some(structure) = &structure {
            read_tag(line, structure, sources);
        }
    }
}

fn read_tag(line: &str, structure: &str, sources: &mut Sources) {
    let tag = |name: &str| {
        let start = line.find(&format!("{name}:\""))? + name.len() + 2;
        line.get(start..)?.split('"').next()
    };
    let (Some(json), Some(protobuf)) = (tag("json"), tag("protobuf")) else {
        return;
    };
    let Some(number) = protobuf.split(',').nth(1) else {
        return;
    };
    let mut options = json.split(',');
    let name = options.next().unwrap_or_default();
    let options: Vec<&str> = options.collect();
    let declared = line.split('`').next().unwrap_or_default().trim();
    let is_pointer = declared
        .split_whitespace()
        .last()
        .is_some_and(|go_type| go_type.starts_with('*'));
    let omits = options
        .iter()
        .any(|option| matches!(*option, "omitempty" | "omitzero"));
    let name = if options.contains(&"inline") { "" } else { name };
    sources
        .tags
        .entry((structure.to_owned(), number.to_owned()))
        .or_insert(Tag {
            name: name.to_owned(),
            keeps_zero: is_pointer || !omits,
        });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn a_message_and_its_struct_make_the_table() {
        let mut sources = Sources::default();
        let package = read_messages(
            "package k8s.io.api.core.v1;\nmessage Volume {\n  optional string name = 1;\n  optional VolumeSource volumeSource = 2;\n  \
             map<string, .k8s.io.apimachinery.pkg.api.resource.Quantity> limits = 3;\n}\n",
            &mut sources,
        );
        read_tags(
            "type Volume struct {\n\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`\n\t\
             VolumeSource `json:\",inline\" protobuf:\"bytes,2,opt,name=volumeSource\"`\n\t\
             Limits *int32 `json:\"limits,omitempty\" protobuf:\"bytes,3,rep,name=limits\"`\n}\n",
            &package,
            &mut sources,
        );
        let fields = &sources.messages["io.k8s.api.core.v1.Volume"];
        assert_eq!(fields[1].type_, "io.k8s.api.core.v1.VolumeSource");
        assert_eq!(
            (fields[2].shape, fields[2].type_.as_str()),
            ("map", "io.k8s.apimachinery.pkg.api.resource.Quantity")
        );
        let tag = |number: &str| &sources.tags[&("io.k8s.api.core.v1.Volume".to_owned(), number.to_owned())];
        assert_eq!(tag("2").name, "");
        assert!(tag("3").keeps_zero);
    }
}
