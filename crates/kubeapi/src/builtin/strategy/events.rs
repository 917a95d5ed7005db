//! Events.

use serde_json::{Value, json};

use crate::{
    builtin::validation::{Errors, Field, IMMUTABLE},
    field::FieldPath,
    names, object,
};

/// The longest note, in bytes.
const NOTE_LENGTH: usize = 1024;
/// The longest names of who reports, what was done and why, in bytes.
const WORD_LENGTH: usize = 128;

/// Fields that the reference writes out even when they are empty.
pub(super) fn default(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for name in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        fields.entry(name).or_insert(Value::Null);
    }
    for name in ["source", "involvedObject"] {
        fields.entry(name).or_insert_with(|| json!({}));
    }
}

/// The same in the form of events.k8s.io.
pub(super) fn default_view(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for name in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        fields.entry(name).or_insert(Value::Null);
    }
    for name in ["deprecatedSource", "regarding"] {
        fields.entry(name).or_insert_with(|| json!({}));
    }
}

/// An Event in the older form.
pub(super) fn validate(object: &Value, _old: Option<&Value>, errors: &mut Errors) {
    validate_common(object, &OLDER, errors);
}

/// An Event in the newer form, of which more is demanded.
pub(super) fn validate_view(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    validate_common(object, &NEWER, errors);
    match old {
        Some(old) => validate_view_update(object, old, errors),
        None => validate_new_view(object, errors),
    }
}

/// The names of fields in one of the two forms.
struct Form {
    involved: &'static str,
    controller: &'static str,
    note: &'static str,
}

const OLDER: Form = Form {
    involved: "involvedObject",
    controller: "reportingComponent",
    note: "message",
};
const NEWER: Form = Form {
    involved: "regarding",
    controller: "reportingController",
    note: "note",
};

/// What is demanded in both forms. Paths are those of the form in which the reference has an Event.
fn validate_common(object: &Value, form: &Form, errors: &mut Errors) {
    let involved = Field::of(object, form.involved)
        .child("namespace")
        .at(FieldPath::of("involvedObject.namespace"));
    let namespace = object::namespace(object);
    let timed = Field::of(object, "eventTime").is_set();
    // An Event of the newer kind is about an object elsewhere if it says so.
    let fits = match (timed, involved.text()) {
        (false, "") => namespace == "default",
        (false, involved) => involved == namespace,
        (true, "") => namespace == "default" || namespace == "kube-system",
        (true, _) => true,
    };
    if !fits {
        involved.invalid_text(errors, "does not match event.namespace");
    }
    if !timed {
        return;
    }
    let controller = Field::of(object, form.controller);
    controller.demand(errors);
    controller.texts(errors, names::qualified_name(controller.text()));
    for name in ["reportingInstance", "action", "reason"] {
        let field = Field::of(object, name);
        field.demand(errors);
        limit(&field, WORD_LENGTH, errors);
    }
    limit(
        &Field::of(object, form.note).at(FieldPath::of("message")),
        NOTE_LENGTH,
        errors,
    );
}

fn limit(field: &Field<'_>, most: usize, errors: &mut Errors) {
    if field.text().len() > most {
        let detail = format!("can have at most {most} characters");
        field.invalid_as(errors, json!(""), detail);
    }
}

fn validate_new_view(object: &Value, errors: &mut Errors) {
    validate_series(object, errors);
    let time = Field::of(object, "eventTime");
    if !time.is_set() {
        time.required(errors, "");
    }
    let kind = Field::of(object, "type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        let detail = format!("has invalid value: {}", kind.text());
        kind.invalid_as(errors, json!(""), detail);
    }
    for (name, shown) in [
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("deprecatedSource", "source"),
    ] {
        let field = Field::of(object, name).at(FieldPath::of(shown));
        let is_empty = match field.value {
            Value::Null => true,
            Value::Object(fields) => fields.values().all(|value| value == ""),
            other => *other == 0,
        };
        if !is_empty {
            field.invalid_as(errors, json!(""), "needs to be unset");
        }
    }
}

fn validate_series(object: &Value, errors: &mut Errors) {
    let series = Field::of(object, "series");
    if !series.is_set() {
        return;
    }
    let (count, last) = (series.child("count"), series.child("lastObservedTime"));
    if count.number().unwrap_or_default() < 2 {
        count.invalid_as(errors, json!(""), "should be at least 2");
    }
    if !last.is_set() {
        last.required(errors, "");
    }
}

/// What happened does not change; it may happen again.
fn validate_view_update(object: &Value, old: &Value, errors: &mut Errors) {
    if object.get("series") != old.get("series") {
        validate_series(object, errors);
    }
    for (name, shown) in [
        ("regarding", "involvedObject"),
        ("reason", "reason"),
        ("note", "message"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let before = Field::of(old, name);
        let now = Field::of(object, name).at(FieldPath::of(shown));
        // An absent structure is one without fields.
        let is_nothing = |field: &Field<'_>| {
            field
                .value
                .as_object()
                .map_or(!field.is_set(), serde_json::Map::is_empty)
        };
        if now.value != before.value && !(is_nothing(&now) && is_nothing(&before)) {
            now.invalid(errors, IMMUTABLE);
        }
    }
}
