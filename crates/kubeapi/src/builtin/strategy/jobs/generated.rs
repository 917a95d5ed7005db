//! The selector and the labels that the server gives a Job, so that its Pods are its own.

use serde_json::{Map, Value, json};

use super::{number, text};
use crate::{
    builtin::strategy::labels,
    field::{FieldError, FieldPath},
    names,
};

const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";
/// The same labels as they were called before they had a prefix.
const PLAIN_JOB_NAME: &str = "job-name";
const PLAIN_CONTROLLER_UID: &str = "controller-uid";

pub(super) fn has_labels(spec: &Map<String, Value>) -> bool {
    spec.get("template")
        .and_then(|template| template.pointer("/metadata/labels"))
        .is_some_and(|labels| labels.get(CONTROLLER_UID).is_some())
}

/// The selector that no other Job has, and the labels that it and people look for. Labels that are there stay: wrong ones
/// are refused.
pub(super) fn add(spec: &mut Map<String, Value>, name: &str, uid: &str) -> Option<()> {
    let template_labels = entry(entry(entry(spec, "template")?, "metadata")?, "labels")?;
    for (key, value) in [
        (PLAIN_JOB_NAME, name),
        (JOB_NAME, name),
        (PLAIN_CONTROLLER_UID, uid),
        (CONTROLLER_UID, uid),
    ] {
        template_labels.entry(key).or_insert_with(|| json!(value));
    }
    entry(entry(spec, "selector")?, "matchLabels")?
        .entry(CONTROLLER_UID)
        .or_insert_with(|| json!(uid));
    Some(())
}

/// The object below `name`, made if there is none.
fn entry<'object>(
    fields: &'object mut Map<String, Value>,
    name: &str,
) -> Option<&'object mut Map<String, Value>> {
    let value = fields.entry(name).or_insert(Value::Null);
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// The labels and the selector that `prepare` gave: somebody may have written others.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let (Some(selector), false) = (
        spec.get("selector").filter(|selector| !selector.is_null()),
        spec.get("manualSelector") == Some(&Value::Bool(true)),
    ) else {
        return;
    };
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
    // Jobs made before the labels had prefixes need not have them.
    let needs_prefixed = old.is_none_or(|old| {
        let labels = old.pointer("/spec/template/metadata/labels");
        [JOB_NAME, CONTROLLER_UID]
            .iter()
            .all(|key| labels.is_some_and(|labels| labels.get(*key).is_some()))
    });
    let mut expected = vec![(PLAIN_CONTROLLER_UID, uid), (PLAIN_JOB_NAME, name)];
    if needs_prefixed {
        expected.extend([(CONTROLLER_UID, uid), (JOB_NAME, name)]);
    }
    let at = FieldPath::of("spec.template.metadata.labels");
    let labels = spec.pointer("/template/metadata/labels");
    for (key, value) in &expected {
        let detail = format!("must be '{value}'");
        match labels.and_then(|labels| labels.get(*key)) {
            None => errors.push(FieldError::required(&at.key(key), detail)),
            Some(found) if found != value => {
                let labels = labels.cloned().unwrap_or_default();
                errors.push(FieldError::invalid(&at.key(key), labels, detail));
            }
            Some(_) => {}
        }
    }
    let generated = expected
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)));
    if !labels::matches(selector, Some(&generated.collect())) {
        let at = FieldPath::of("spec.selector");
        errors.push(FieldError::invalid(
            &at,
            selector.clone(),
            "`selector` not auto-generated",
        ));
    }
}

/// The Pods of an indexed Job have host names that end in their index.
pub(super) fn validate_name(object: &Value, spec: &Value, errors: &mut Vec<FieldError>) {
    let completions = number(spec, "completions").unwrap_or_default();
    if text(spec, "completionMode") != "Indexed" || completions < 1 {
        return;
    }
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let longest = format!("{name}-{}", completions - 1);
    if !names::label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.push(FieldError::invalid(
            &FieldPath::of("metadata.name"),
            json!(name),
            detail,
        ));
    }
}
