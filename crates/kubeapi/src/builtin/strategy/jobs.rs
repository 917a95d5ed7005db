//! Jobs, and the template of Jobs that a CronJob has. Requirements KA-010, KA-011.

mod generated;
mod policies;
mod status;
mod update;

use serde_json::{Map, Value, json};

use super::{labels, templates};
use crate::{
    builtin::validation::{Field, pods},
    field::{FieldError, FieldErrorKind, FieldPath},
    names,
};

const RESTART_POLICIES: &str = "valid values: \"OnFailure\", \"Never\"";
const MOST_PARALLEL_OF_INDEXED: i64 = 100_000;
const MOST_FAILED_INDEXES: i64 = 100_000;
/// Above so many completions, further limits hold for Jobs with a limit of failures of each index.
const MANY_COMPLETIONS: i64 = 100_000;
const MOST_OF_MANY: i64 = 10_000;
const MANAGED_BY_LENGTH: usize = 63;

pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    default_spec(spec);
    let is_set = |spec: &Map<String, Value>, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !is_set(spec, "parallelism") {
        // Without either, a Job has one Pod that must succeed.
        if !is_set(spec, "completions") {
            spec.insert("completions".to_owned(), json!(1));
        }
        spec.insert("parallelism".to_owned(), json!(1));
    }
    let failures = if is_set(spec, "backoffLimitPerIndex") {
        i32::MAX
    } else {
        6
    };
    let replacement = if is_set(spec, "podFailurePolicy") {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    for (name, value) in [
        ("backoffLimit", json!(failures)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
        ("manualSelector", json!(false)),
    ] {
        if !is_set(spec, name) {
            spec.insert(name.to_owned(), value);
        }
    }
    // A new Job gets its labels in `prepare`, with those of its template that are generated.
    if is_manual(spec) || generated::has_labels(spec) {
        take_labels(object);
    }
}

/// Defaults of what a Job and a CronJob's template of Jobs share.
pub(super) fn default_spec(spec: &mut Map<String, Value>) {
    if let Some(pod) = spec
        .get_mut("template")
        .and_then(|template| template.get_mut("spec"))
    {
        templates::default_spec(pod);
    }
    let rules = spec
        .get_mut("podFailurePolicy")
        .and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if pattern
                .get("status")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .is_empty()
            {
                pattern.insert("status".to_owned(), json!("True"));
            }
        }
    }
}

fn is_manual(spec: &Map<String, Value>) -> bool {
    spec.get("manualSelector") == Some(&Value::Bool(true))
}

/// A Job without labels has those of its template.
fn take_labels(object: &mut Value) {
    let own = object.pointer("/metadata/labels").and_then(Value::as_object);
    if own.is_some_and(|labels| !labels.is_empty()) {
        return;
    }
    let Some(labels) = object.pointer("/spec/template/metadata/labels").cloned() else {
        return;
    };
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        && labels.as_object().is_some_and(|labels| !labels.is_empty())
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// A new Job has no status, and unless it chooses its Pods itself, a selector and labels that no other Job has.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    drop_disabled(object.get_mut("spec"), old.and_then(|old| old.get("spec")));
    if old.is_some() {
        return;
    }
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
        && !is_manual(spec)
    {
        generated::add(spec, &name, &uid);
    }
    take_labels(object);
    if let Some(fields) = object.as_object_mut() {
        fields.insert("status".to_owned(), json!({}));
    }
}

/// The scheduling of groups of Pods is behind a feature that a server does not have on by default.
pub(super) fn drop_disabled(spec: Option<&mut Value>, old: Option<&Value>) {
    if old.and_then(|old| old.get("scheduling")).is_none()
        && let Some(spec) = spec.and_then(Value::as_object_mut)
    {
        spec.remove("scheduling");
    }
}

pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    let spec = object.get("spec").unwrap_or(&Value::Null);
    generated::validate(object, old, errors);
    validate_spec(spec, &path, errors);
    match spec.get("selector").filter(|selector| !selector.is_null()) {
        None => errors.push(FieldError::required(&path.child("selector"), "")),
        Some(selector) => {
            labels::validate_selector(selector, &path.child("selector"), errors);
            let template_labels = spec.pointer("/template/metadata/labels");
            if !labels::matches(selector, template_labels.and_then(Value::as_object)) {
                errors.push(FieldError::invalid(
                    &path.child("template").child("metadata").child("labels"),
                    template_labels.cloned().unwrap_or(Value::Null),
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    generated::validate_name(object, spec, errors);
    if let Some(old) = old {
        update::validate(spec, old, &path, errors);
        status::validate(object, old, errors);
    }
}

/// What is wrong with the part that a Job and a CronJob's template of Jobs share.
pub(super) fn validate_spec(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(spec, name, path, errors);
    }
    if is_set(spec, "maxFailedIndexes") && !is_set(spec, "backoffLimitPerIndex") {
        let detail = "when maxFailedIndexes is specified";
        errors.push(FieldError::required(&path.child("backoffLimitPerIndex"), detail));
    }
    validate_managed_by(spec, path, errors);
    match spec.get("completionMode").and_then(Value::as_str) {
        Some("Indexed") => validate_indexed(spec, path, errors),
        Some("NonIndexed") | None => {
            for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(value) = number(spec, name) {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(&path.child(name), json!(value), detail));
                }
            }
        }
        Some(other) => errors.push(FieldError::not_supported(
            &path.child("completionMode"),
            json!(other),
            &["NonIndexed", "Indexed"],
        )),
    }
    policies::validate(spec, path, errors);
    validate_template(spec, path, errors);
}

fn validate_managed_by(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let Some(manager) = spec.get("managedBy").and_then(Value::as_str) else {
        return;
    };
    let at = path.child("managedBy");
    if manager.is_empty() {
        errors.push(FieldError::required(&at, ""));
    } else {
        match manager.split_once('/') {
            Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
                for detail in names::subdomain(domain) {
                    errors.push(FieldError::invalid(&at, json!(domain), detail));
                }
            }
            _ => {
                let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
                errors.push(FieldError::invalid(&at, json!(manager), detail));
            }
        }
    }
    if manager.len() > MANAGED_BY_LENGTH {
        let detail = format!("may not be more than {MANAGED_BY_LENGTH} bytes");
        errors.push(FieldError::too_long(&at, detail));
    }
}

fn validate_indexed(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let invalid =
        |name: &str, value: i64, detail: String| FieldError::invalid(&path.child(name), json!(value), detail);
    let (completions, parallelism) = (number(spec, "completions"), number(spec, "parallelism"));
    let failed = number(spec, "maxFailedIndexes");
    if completions.is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(FieldError::required(&path.child("completions"), detail));
    }
    if let Some(parallelism) = parallelism.filter(|count| *count > MOST_PARALLEL_OF_INDEXED) {
        let detail = format!(
            "must be less than or equal to {MOST_PARALLEL_OF_INDEXED} when completion mode is Indexed"
        );
        errors.push(invalid("parallelism", parallelism, detail));
    }
    if let Some(failed) = failed {
        if completions.is_some_and(|completions| failed > completions) {
            let detail = "must be less than or equal to completions".to_owned();
            errors.push(invalid("maxFailedIndexes", failed, detail));
        }
        if failed > MOST_FAILED_INDEXES {
            let detail = format!("must be less than or equal to {MOST_FAILED_INDEXES}");
            errors.push(invalid("maxFailedIndexes", failed, detail));
        }
    }
    if completions.is_some_and(|count| count > MANY_COMPLETIONS) && is_set(spec, "backoffLimitPerIndex") {
        if failed.is_none() {
            let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.push(FieldError::required(&path.child("maxFailedIndexes"), detail));
        }
        let detail = format!(
            "must be less than or equal to {MOST_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with \
             backoff limit per index"
        );
        for (name, value) in [("parallelism", parallelism), ("maxFailedIndexes", failed)] {
            if let Some(value) = value.filter(|value| *value > MOST_OF_MANY) {
                errors.push(invalid(name, value, detail.clone()));
            }
        }
    }
}

fn validate_template(spec: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) {
    let template = Field::new(
        spec.get("template").unwrap_or(&Value::Null),
        path.child("template"),
    );
    pods::check_template(&template, errors);
    let pod = template.child("spec");
    if !pod.is_set() {
        return;
    }
    let at = pod.path;
    let pod = pod.value;
    let at = at.child("restartPolicy");
    match templates::text(pod, "restartPolicy") {
        "" | "Always" => errors.push(FieldError::required(&at, RESTART_POLICIES)),
        "OnFailure" if is_set(spec, "podFailurePolicy") => {
            let detail = "only \"Never\" is supported when podFailurePolicy is specified";
            errors.push(FieldError::invalid(&at, json!("OnFailure"), detail));
        }
        // Any other value is no policy at all, which was reported.
        _ => {}
    }
}

pub(super) fn not_negative(object: &Value, name: &str, path: &FieldPath, errors: &mut Vec<FieldError>) {
    if let Some(value) = number(object, name).filter(|value| *value < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&path.child(name), json!(value), detail));
    }
}

fn too_many(path: &FieldPath, count: usize, most: usize) -> FieldError {
    FieldError {
        kind: FieldErrorKind::TooMany,
        path: path.clone(),
        value: Some(json!(count)),
        detail: format!("must have at most {most} items"),
    }
}

fn is_set(object: &Value, name: &str) -> bool {
    object.get(name).is_some_and(|value| !value.is_null())
}

fn number(object: &Value, name: &str) -> Option<i64> {
    object.get(name).and_then(Value::as_i64)
}

fn text<'object>(object: &'object Value, name: &str) -> &'object str {
    templates::text(object, name)
}
