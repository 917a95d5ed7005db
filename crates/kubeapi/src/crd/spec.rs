//! The rules for a definition as a whole (`ValidateCustomResourceDefinition` of the reference).
//!
//! The reference keeps what all versions have in common in one place, so the paths in its messages name
//! `spec.validation`, `spec.subresources` and `spec.additionalPrinterColumns` when every version says the same, which is
//! always so for a single version. [`Shared`] decides that.

mod version;

use serde_json::{Value, json};

use super::{conversion, is_established, schemas, shown::shown_versions, text, texts, versions};
use crate::{
    field::{FieldError, FieldPath},
    names::{self, NameRule},
};

/// Everything wrong with a definition, but for its own metadata beyond the name. On an update, `old` is the definition as
/// it was.
pub fn validate_crd(crd: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::of("spec");
    if old.is_none() {
        let wanted = format!("{}.{}", text(crd, "/spec/names/plural"), text(crd, "/spec/group"));
        let name = text(crd, "/metadata/name");
        if name != wanted {
            errors.push(FieldError::invalid(
                &FieldPath::of("metadata.name"),
                json!(name),
                "must be spec.names.plural+\".\"+spec.group",
            ));
        }
    }
    validate_group(crd, &path, &mut errors);
    let scope = text(crd, "/spec/scope");
    match scope {
        "" => errors.push(FieldError::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        _ => errors.push(FieldError::not_supported(
            &path.child("scope"),
            json!(scope),
            &["Cluster", "Namespaced"],
        )),
    }
    // Reading schemas and compiling rules takes long, and what was accepted as it stands is not judged again.
    let is_new = old.is_none_or(|old| old.get("spec") != crd.get("spec"));
    validate_versions(crd, old, is_new, &path, &mut errors);
    validate_names(crd, &path.child("names"), &mut errors);
    conversion::validate(crd, &path.child("conversion"), &mut errors);
    if crd.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true))
        && old.and_then(|old| old.pointer("/spec/preserveUnknownFields")) != Some(&Value::Bool(true))
    {
        errors.push(FieldError::invalid(
            &path.child("preserveUnknownFields"),
            Value::Bool(true),
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        ));
    }
    // The status is there once the server has prepared the definition.
    if crd.get("status").is_some() {
        validate_stored(crd, &mut errors);
    }
    if let Some(old) = old {
        validate_update(crd, old, &path, &mut errors);
    }
    validate_approval(crd, old, &mut errors);
    errors
}

fn validate_group(crd: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let group = text(crd, "/spec/group");
    let at = path.child("group");
    let messages = names::subdomain(group);
    if group.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else if !messages.is_empty() {
        errors.push(FieldError::invalid(&at, json!(group), messages.join(",")));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            &at,
            json!(group),
            "should be a domain with at least one dot",
        ));
    }
}

/// Which parts all versions have in common.
struct Shared {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable_fields: bool,
}

impl Shared {
    fn of(crd: &Value) -> Self {
        let same = |name: &str| {
            let mut values = versions(crd).map(|version| version.get(name).filter(|value| !value.is_null()));
            let first = values.next().flatten();
            first.is_some() && values.all(|value| value == first)
        };
        Self {
            schema: same("schema"),
            subresources: same("subresources"),
            columns: same("additionalPrinterColumns"),
            selectable_fields: same("selectableFields"),
        }
    }
}

fn validate_versions(
    crd: &Value,
    old: Option<&Value>,
    with_schemas: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let shared = Shared::of(crd);
    let list: Vec<&Value> = versions(crd).collect();
    let at = path.child("versions");
    for (index, version) in list.iter().enumerate() {
        let at = at.index(index);
        let name = text(version, "/name");
        let messages = NameRule::Label1035.check(name, false);
        if !messages.is_empty() {
            errors.push(FieldError::invalid(
                &at.child("name"),
                json!(name),
                messages.join(","),
            ));
        }
        version::deprecation(version, &at.child("deprecationWarning"), errors);
        if version
            .pointer("/schema/openAPIV3Schema")
            .is_none_or(|schema| !schema.is_object())
        {
            errors.push(FieldError::required(
                &at.child("schema").child("openAPIV3Schema"),
                "",
            ));
        }
        let first = index == 0;
        // What is shared is checked once, where the reference keeps it.
        let place = |is_shared: bool, common: &str, own: &str| match (is_shared, first) {
            (true, true) => Some(path.child(common)),
            (true, false) => None,
            (false, _) => Some(at.child(own)),
        };
        if let (true, Some(at), Some(schema)) = (
            with_schemas,
            place(shared.schema, "validation", "schema"),
            version.pointer("/schema/openAPIV3Schema"),
        ) {
            let has_status = version
                .pointer("/subresources/status")
                .is_some_and(Value::is_object);
            let name = text(version, "/name");
            let is_unchanged = old.is_some_and(|old| {
                versions(old)
                    .any(|other| text(other, "/name") == name && other.get("schema") == version.get("schema"))
            });
            let at = at.child("openAPIV3Schema");
            schemas::validate(schema, has_status, is_unchanged, &at, errors);
        }
        if let Some(at) = place(shared.subresources, "subresources", "subresources") {
            version::scale(version, &at, errors);
        }
        if let Some(at) = place(
            shared.columns,
            "additionalPrinterColumns",
            "additionalPrinterColumns",
        ) {
            for (index, column) in version
                .get("additionalPrinterColumns")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                version::column(column, &at.index(index), errors);
            }
        }
        if let Some(at) = place(shared.selectable_fields, "selectableFields", "selectableFields") {
            version::selectable_fields(version, &at, errors);
        }
    }
    let names: Vec<&str> = list.iter().map(|version| text(version, "/name")).collect();
    let refuse = |detail: &str| FieldError::shown(&at, &shown_versions(crd), detail);
    if names
        .iter()
        .enumerate()
        .any(|(index, name)| names[..index].contains(name))
    {
        errors.push(refuse("must contain unique version names"));
    }
    let stored = list
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if stored != 1 {
        errors.push(refuse("must have exactly one version marked as storage version"));
    }
    // The first version stands in a field of its own on the reference, where it is judged once more.
    if let Some(first) = names.first() {
        let messages = NameRule::Label1035.check(first, false);
        if !messages.is_empty() {
            errors.push(FieldError::invalid(
                &path.child("version"),
                json!(first),
                messages.join(","),
            ));
        }
    }
}

/// What is stored is in a version that is there, and the storage version is among them.
fn validate_stored(crd: &Value, errors: &mut Vec<FieldError>) {
    let at = FieldPath::of("status.storedVersions");
    let stored = texts(crd, "/status/storedVersions");
    if stored.is_empty() {
        errors.push(FieldError::invalid(
            &at,
            Value::Null,
            "must have at least one stored version",
        ));
        return;
    }
    let mut left = stored.clone();
    for version in versions(crd) {
        let name = text(version, "/name");
        let is_stored = left.iter().position(|stored| stored == name);
        if let Some(position) = is_stored {
            left.remove(position);
        } else if version.get("storage") == Some(&Value::Bool(true)) {
            let detail = format!("must have the storage version {name}");
            errors.push(FieldError::invalid(&at, json!(stored), detail));
        }
    }
}

fn validate_names(crd: &Value, at: &FieldPath, errors: &mut Vec<FieldError>) {
    let names = crd.pointer("/spec/names").unwrap_or(&Value::Null);
    for field in ["plural", "singular", "kind", "listKind"] {
        let name = text(names, &format!("/{field}"));
        if name.is_empty() {
            errors.push(FieldError::required(&at.child(field), ""));
            continue;
        }
        let is_kind = field.ends_with("ind");
        let messages = NameRule::Label1035.check(
            &if is_kind {
                name.to_lowercase()
            } else {
                name.to_owned()
            },
            false,
        );
        if !messages.is_empty() {
            let prefix = if is_kind {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            errors.push(FieldError::invalid(
                &at.child(field),
                json!(name),
                format!("{prefix}{}", messages.join(",")),
            ));
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in texts(names, &format!("/{field}")).iter().enumerate() {
            let messages = NameRule::Label1035.check(name, false);
            if !messages.is_empty() {
                errors.push(FieldError::invalid(
                    &at.child(field).index(index),
                    json!(name),
                    messages.join(","),
                ));
            }
        }
    }
    let kind = text(names, "/kind");
    if !kind.is_empty() && kind == text(names, "/listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(&at.child("listKind"), json!(kind), detail));
    }
}

fn validate_update(crd: &Value, old: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let mut keep = |pointer: &str, at: FieldPath| {
        if crd.pointer(pointer) != old.pointer(pointer) {
            let value = crd.pointer(pointer).cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&at, value, "field is immutable"));
        }
    };
    if is_established(old) {
        keep("/spec/scope", path.child("scope"));
        keep("/spec/names/kind", path.child("names").child("kind"));
    }
    keep("/spec/group", path.child("group"));
    keep("/spec/names/plural", path.child("names").child("plural"));
    let known: Vec<&str> = versions(crd).map(|version| text(version, "/name")).collect();
    let stored = texts(old, "/status/storedVersions");
    for (index, version) in stored.iter().enumerate() {
        if !known.contains(&version.as_str()) {
            errors.push(FieldError::invalid(
                &FieldPath::of("status.storedVersions").index(index),
                json!(version),
                format!(
                    "missing from spec.versions; {version} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {version} and \
                     removes {version} from status.storedVersions"
                ),
            ));
        }
    }
}

/// Groups of the Kubernetes project need the mark of an approved API.
fn validate_approval(crd: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = text(crd, "/spec/group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|owned| group == *owned || group.ends_with(&format!(".{owned}")));
    if !is_protected || old.is_some() {
        return;
    }
    let at = FieldPath::of("metadata.annotations").key(ANNOTATION);
    let approval = crd
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(ANNOTATION));
    match approval.and_then(Value::as_str).unwrap_or_default() {
        "" => errors.push(FieldError::required(
            &at,
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see \
             https://github.com/kubernetes/enhancements/pull/1111",
        )),
        approval if approval.starts_with("unapproved") || approval.starts_with("https://") => {}
        approval => errors.push(FieldError::invalid(
            &at,
            json!(approval),
            "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a \
             reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111",
        )),
    }
}

#[cfg(test)]
mod tests;
