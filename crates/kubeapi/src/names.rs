//! Names, labels and annotations by the rules of the reference, with its messages. Requirement KA-008.

use serde_json::{Value, json};

use crate::{
    field::{FieldError, FieldErrorKind, FieldPath},
    object, structure,
};

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;
/// The sum of all annotation keys and values.
const ANNOTATIONS_BYTES: usize = 256 * 1024;
/// `generateName` is cut so that the five generated characters fit into a label.
const GENERATED_BASE_LENGTH: usize = 58;
/// How many characters are added to `generateName`.
pub(crate) const GENERATED_SUFFIX_LENGTH: usize = 5;

const SUBDOMAIN_MESSAGE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_MESSAGE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_MESSAGE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_NAME_MESSAGE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The finalizers without a domain of their own that built-in kinds may have.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", object::ORPHAN, object::FOREGROUND];

/// Which names a kind allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// Lower case letters, digits, `-` and `.`; nearly every kind.
    Subdomain,
    /// As a subdomain without dots: Namespaces and Services.
    Label,
    /// As a label that begins with a letter: the names of a CustomResourceDefinition.
    Label1035,
    /// Anything that can stand in a path: RBAC.
    PathSegment,
}

impl NameRule {
    /// The rule of a kind, by its storage resource (`GROUP/PLURAL`).
    pub(crate) fn of(storage_resource: &str) -> Self {
        match storage_resource {
            "/namespaces" | "/services" => Self::Label,
            _ if storage_resource.starts_with("rbac.authorization.k8s.io/") => Self::PathSegment,
            _ => Self::Subdomain,
        }
    }

    /// What is wrong with `name`; empty when it is allowed. With `prefix` the name is the beginning of one, so a
    /// trailing dash is fine.
    pub(crate) fn check(self, name: &str, prefix: bool) -> Vec<String> {
        // The reference masks a trailing dash of a prefix with a letter before it checks.
        let masked = match (prefix, name.strip_suffix('-')) {
            (true, Some(stem)) if !stem.is_empty() => format!("{stem}a"),
            _ => name.to_owned(),
        };
        match self {
            Self::Subdomain => subdomain(&masked),
            Self::Label => label(&masked),
            Self::Label1035 => label_1035(&masked),
            Self::PathSegment => path_segment(&masked),
        }
    }
}

/// The beginning of a generated name.
pub(crate) fn generated_base(generate_name: &str) -> &str {
    match generate_name.char_indices().nth(GENERATED_BASE_LENGTH) {
        Some((at, _)) => generate_name.get(..at).unwrap_or(generate_name),
        None => generate_name,
    }
}

/// As [`too_long`], in the words of the newer checks.
fn too_many_bytes(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

/// RFC 1123 subdomain.
pub(crate) fn subdomain(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > SUBDOMAIN_LENGTH {
        messages.push(too_long(SUBDOMAIN_LENGTH));
    }
    if name.is_empty() || !name.split('.').all(|part| is_label(part.as_bytes())) {
        messages.push(SUBDOMAIN_MESSAGE.to_owned());
    }
    messages
}

/// RFC 1123 label.
pub(crate) fn label(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > LABEL_LENGTH {
        messages.push(too_long(LABEL_LENGTH));
    }
    if !is_label(name.as_bytes()) {
        // Dots are the usual mistake, of those who expect a subdomain.
        messages.push(
            if name.contains('.') && name.split('.').all(|part| is_label(part.as_bytes())) {
                "must not contain dots".to_owned()
            } else {
                LABEL_MESSAGE.to_owned()
            },
        );
    }
    messages
}

fn label_1035(name: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if name.len() > LABEL_LENGTH {
        messages.push(too_long(LABEL_LENGTH));
    }
    if !is_label(name.as_bytes()) || !name.starts_with(|character: char| character.is_ascii_lowercase()) {
        messages.push(LABEL_1035_MESSAGE.to_owned());
    }
    messages
}

fn path_segment(name: &str) -> Vec<String> {
    if name == "." || name == ".." {
        return vec![format!("may not be '{name}'")];
    }
    ['/', '%']
        .iter()
        .filter(|forbidden| name.contains(**forbidden))
        .map(|forbidden| format!("may not contain '{forbidden}'"))
        .collect()
}

fn is_label(part: &[u8]) -> bool {
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let outer =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    outer(part.first()) && outer(part.last()) && part.iter().all(inner)
}

/// What is wrong with the key of a label or an annotation, `[PREFIX/]NAME`.
pub(crate) fn qualified_name(key: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let name = match key.split_once('/') {
        None => key,
        Some((prefix, name)) => {
            if name.contains('/') {
                return vec![
                    "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                     'example.com/MyName')"
                        .to_owned(),
                ];
            }
            if prefix.is_empty() {
                messages.push("prefix part must be non-empty".to_owned());
            } else {
                messages.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        messages.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LENGTH {
        messages.push(format!("name part {}", too_many_bytes(LABEL_LENGTH)));
    }
    if !is_name_part(name.as_bytes()) {
        messages.push(QUALIFIED_NAME_MESSAGE.to_owned());
    }
    messages
}

fn is_name_part(part: &[u8]) -> bool {
    let outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let inner = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    outer(part.first()) && outer(part.last()) && part.iter().all(inner)
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(value: &str) -> Vec<String> {
    let mut messages = Vec::new();
    if value.len() > LABEL_LENGTH {
        messages.push(too_many_bytes(LABEL_LENGTH));
    }
    if !value.is_empty() && !is_name_part(value.as_bytes()) {
        messages.push(LABEL_VALUE_MESSAGE.to_owned());
    }
    messages
}

/// Checks `metadata` as `ValidateObjectMeta` does.
///
/// `builtin` says that it is the metadata of a kind of Kubernetes itself, whose finalizers have stricter names.
pub(crate) fn check_metadata(object: &Value, rule: NameRule, builtin: bool) -> Vec<FieldError> {
    let path = FieldPath::of("metadata");
    let mut errors = Vec::new();
    let Some(metadata) = object::metadata(object) else {
        return vec![FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        )];
    };
    let generate_name = object::meta_text(object, "generateName");
    if !generate_name.is_empty() {
        for message in rule.check(generate_name, true) {
            errors.push(FieldError::invalid(
                &path.child("generateName"),
                json!(generate_name),
                message,
            ));
        }
    }
    let name = object::name(object);
    if name.is_empty() {
        errors.push(FieldError::required(
            &path.child("name"),
            "name or generateName is required",
        ));
    } else {
        for message in rule.check(name, false) {
            errors.push(FieldError::invalid(&path.child("name"), json!(name), message));
        }
    }
    check_string_map(metadata.get("labels"), &path.child("labels"), true, &mut errors);
    check_string_map(
        metadata.get("annotations"),
        &path.child("annotations"),
        false,
        &mut errors,
    );
    check_finalizers(
        metadata.get("finalizers"),
        builtin,
        &path.child("finalizers"),
        &mut errors,
    );
    check_owners(object, &path.child("ownerReferences"), &mut errors);
    errors
}

/// What is wrong with annotations that are not those of an object itself.
pub(crate) fn check_annotations(annotations: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    check_string_map(Some(annotations), path, false, errors);
}

fn check_string_map(map: Option<&Value>, path: &FieldPath, labels: bool, errors: &mut Vec<FieldError>) {
    let Some(map) = map.filter(|map| !map.is_null()) else {
        return;
    };
    let Some(map) = map.as_object() else {
        errors.push(FieldError::type_invalid(
            path,
            map.clone(),
            "must be a map of strings",
        ));
        return;
    };
    let mut bytes = 0;
    for (key, value) in map {
        // Annotation keys are compared without regard to case of their prefix.
        let checked = if labels { key.clone() } else { key.to_lowercase() };
        for message in qualified_name(&checked) {
            errors.push(FieldError::invalid(path, json!(key), message));
        }
        let Some(value) = value.as_str() else {
            errors.push(FieldError::type_invalid(
                &path.key(key),
                value.clone(),
                "must be a string",
            ));
            continue;
        };
        bytes += key.len() + value.len();
        if labels {
            for message in label_value(value) {
                errors.push(FieldError::invalid(path, json!(value), message));
            }
        }
    }
    if !labels && bytes > ANNOTATIONS_BYTES {
        errors.push(FieldError::too_long(
            path,
            format!("may not be more than {ANNOTATIONS_BYTES} bytes"),
        ));
    }
}

fn check_finalizers(
    finalizers: Option<&Value>,
    builtin: bool,
    path: &FieldPath,
    errors: &mut Vec<FieldError>,
) {
    let names = object::text_list(finalizers);
    for (index, name) in names.iter().enumerate() {
        for message in qualified_name(name) {
            errors.push(FieldError::invalid(path, json!(name), message));
        }
        if builtin && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name.as_str()) {
            errors.push(FieldError::invalid(
                &path.index(index),
                json!(name),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
    let has = |name: &str| names.iter().any(|finalizer| finalizer == name);
    if has(object::FOREGROUND) && has(object::ORPHAN) {
        errors.push(FieldError::invalid(
            path,
            json!(names),
            format!(
                "finalizer {} and {} cannot be both set",
                object::ORPHAN,
                object::FOREGROUND
            ),
        ));
    }
}

fn check_owners(object: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let entries = object::metadata(object)
        .and_then(|metadata| metadata.get("ownerReferences"))
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let mut controllers = Vec::new();
    for (index, (owner, entry)) in object::owner_references(object).iter().zip(&entries).enumerate() {
        let path = path.index(index);
        if owner.api_version.is_empty() {
            errors.push(FieldError::required(
                &path.child("apiVersion"),
                "must not be empty",
            ));
        }
        for (field, value) in [("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)] {
            if value.is_empty() {
                errors.push(FieldError::required(&path.child(field), "must not be empty"));
            }
        }
        if owner.api_version == "v1" && owner.kind == "Event" {
            errors.push(FieldError::invalid(
                &path,
                entry.clone(),
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if entry.get("controller").and_then(Value::as_bool) == Some(true) {
            controllers.push(format!("{}/{}", owner.kind, owner.name));
        }
    }
    if let [first, second, ..] = controllers.as_slice() {
        let detail = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {second}"
        );
        errors.push(FieldError::shown(
            path,
            &structure::owner_references_text(&entries),
            &detail,
        ));
    }
}

/// Checks what an update may not do to `metadata`, as `ValidateObjectMetaUpdate` does.
pub(crate) fn check_metadata_update(object: &Value, prior: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object::is_being_deleted(prior) {
        let before = object::finalizers(prior);
        let added: Vec<String> = object::finalizers(object)
            .into_iter()
            .filter(|finalizer| !before.contains(finalizer))
            .collect();
        if !added.is_empty() {
            let quoted: Vec<String> = added.iter().map(|finalizer| format!("{finalizer:?}")).collect();
            errors.push(FieldError {
                kind: FieldErrorKind::Forbidden,
                path: FieldPath::of("metadata.finalizers"),
                value: None,
                detail: format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    quoted.join(", ")
                ),
            });
        }
    }
    errors
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind_ka_008() {
        assert!(NameRule::of("/configmaps").check("a.b-c.1", false).is_empty());
        assert_eq!(
            NameRule::of("/configmaps").check("Upper", false),
            vec![SUBDOMAIN_MESSAGE]
        );
        assert_eq!(
            NameRule::of("/namespaces").check("a.b", false),
            vec!["must not contain dots"]
        );
        assert_eq!(NameRule::Label1035.check("1a", false), vec![LABEL_1035_MESSAGE]);
        assert!(
            NameRule::of("rbac.authorization.k8s.io/roles")
                .check("system:node", false)
                .is_empty()
        );
        assert!(NameRule::of("/pods").check("web-", true).is_empty());
        assert!(!NameRule::of("/pods").check("web-", false).is_empty());
    }

    #[test]
    fn label_keys_and_values_are_checked_ka_008() {
        let object = json!({"metadata": {"name": "a", "labels": {"example.com/": "x", "ok": "not ok!"}}});
        let errors = check_metadata(&object, NameRule::Subdomain, true);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert!(
            texts[0]
                .starts_with("metadata.labels: Invalid value: \"example.com/\": name part must be non-empty")
        );
        assert!(
            texts
                .iter()
                .any(|text| text.contains("\"not ok!\": a valid label must be an empty string"))
        );
    }

    #[test]
    fn annotations_have_a_total_size_ka_008() {
        let object = json!({"metadata": {"name": "a", "annotations": {"k": "v".repeat(ANNOTATIONS_BYTES)}}});
        let errors = check_metadata(&object, NameRule::Subdomain, true);
        assert_eq!(
            errors[0].to_string(),
            "metadata.annotations: Too long: may not be more than 262144 bytes"
        );
    }

    #[test]
    fn no_finalizer_is_added_to_a_dying_object() {
        let prior = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}});
        let object = json!({"metadata": {"finalizers": ["a/b", "c/d"]}});
        assert_eq!(check_metadata_update(&object, &prior).len(), 1);
        assert!(check_metadata_update(&prior, &object).is_empty());
    }

    #[test]
    fn a_generated_name_leaves_room_for_its_suffix() {
        assert_eq!(generated_base(&"é".repeat(70)).chars().count(), 58);
        assert_eq!(generated_base("web-"), "web-");
    }
}
