//! Field selectors: `metadata.name=x,status.phase!=Running`, over the few fields each kind declares.

use serde_json::Value;

use crate::builtin::KindInfo;
use crate::status::{ApiError, ApiResult, Reason};

/// One comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

/// A conjunction of comparisons of fields with texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    kind: String,
    terms: Vec<Term>,
}

impl FieldSelector {
    /// Reads a selector over the fields that a kind can be selected by.
    ///
    /// # Errors
    /// 400 with the text of the reference for a malformed selector or an unsupported field.
    pub fn parse(text: &str, kind: &KindInfo) -> ApiResult<Self> {
        let selectable = Selectable {
            kind: &kind.kind,
            custom: kind.custom,
            namespaced: kind.namespaced,
            fields: &kind.selectable_fields,
        };
        Self::parse_for(text, &selectable)
    }

    pub(super) fn parse_for(text: &str, kind: &Selectable<'_>) -> ApiResult<Self> {
        let mut parts = split_terms(text);
        // The reference sorts, which decides which of several faults is reported.
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let (field, equal, value) = split_term(part).ok_or_else(|| {
                ApiError::new(
                    Reason::BadRequest,
                    format!("invalid selector: '{text}'; can't understand '{part}'"),
                )
            })?;
            let value = unescape(value)?;
            let field = supported(field, kind)?;
            terms.push(Term { field, value, equal });
        }
        Ok(Self {
            kind: kind.kind.to_owned(),
            terms,
        })
    }

    /// The name that a selector asks for, whatever kind it is for; `None` also for one that does not parse.
    pub(crate) fn named(text: &str) -> Option<String> {
        split_terms(text)
            .into_iter()
            .filter_map(split_term)
            .find(|(field, equal, _)| *equal && *field == "metadata.name")
            .and_then(|(_, _, value)| unescape(value).ok())
    }

    /// Whether an object is meant.
    pub fn matches(&self, object: &Value) -> bool {
        self.terms
            .iter()
            .all(|term| (field_value(&self.kind, object, &term.field) == term.value) == term.equal)
    }

    /// The fields that are compared.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.terms.iter().map(|term| term.field.as_str())
    }

    /// The name an object must have, when the selector asks for one.
    pub fn required_name(&self) -> Option<&str> {
        self.terms
            .iter()
            .find(|term| term.equal && term.field == "metadata.name")
            .map(|term| term.value.as_str())
    }
}

/// What a kind can be selected by.
pub(super) struct Selectable<'a> {
    pub(super) kind: &'a str,
    pub(super) custom: bool,
    pub(super) namespaced: bool,
    /// The fields beside name and namespace.
    pub(super) fields: &'a [String],
}

/// The name of the field inside, if the kind can be selected by it.
fn supported(field: &str, kind: &Selectable<'_>) -> ApiResult<String> {
    if field == "spec.host" && kind.kind == "Pod" && !kind.custom {
        return Ok("spec.nodeName".to_owned());
    }
    let declares_fields = kind.custom || !kind.fields.is_empty();
    let is_known = match field {
        "metadata.name" => true,
        "metadata.namespace" => kind.namespaced || !declares_fields,
        _ => kind
            .fields
            .iter()
            .any(|known| known.trim_start_matches('.') == field),
    };
    if is_known {
        return Ok(field.to_owned());
    }
    let message = if declares_fields && kind.kind == "Job" && !kind.custom {
        format!("field label {field:?} not supported for Job")
    } else if declares_fields {
        format!("field label not supported: {field}")
    } else {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    };
    Err(ApiError::new(Reason::BadRequest, message))
}

/// The text of a field of an object as field selectors see it; empty when it is absent.
pub fn field_value(kind: &str, object: &Value, field: &str) -> String {
    let text = |path: &str| text_at(object, path);
    match (kind, field) {
        ("Pod", "spec.hostNetwork") | ("Node", "spec.unschedulable") => {
            let value = text(field);
            if value.is_empty() {
                "false".to_owned()
            } else {
                value
            }
        }
        ("Pod", "status.podIP") => object
            .pointer("/status/podIPs/0/ip")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        ("Event", "source") => [
            text("source.component"),
            text("deprecatedSource.component"),
            reporting_controller(object),
        ]
        .into_iter()
        .find(|value| !value.is_empty())
        .unwrap_or_default(),
        ("Event", "reportingComponent" | "reportingController") => reporting_controller(object),
        ("Job", "status.successful") => {
            let succeeded = text("status.succeeded");
            if succeeded.is_empty() {
                "0".to_owned()
            } else {
                succeeded
            }
        }
        ("ReplicaSet", "status.replicas") => {
            let replicas = text(field);
            if replicas.is_empty() {
                "0".to_owned()
            } else {
                replicas
            }
        }
        ("Event", _) => match field.strip_prefix("involvedObject.") {
            // The same Event is `regarding` in its own API group.
            Some(rest) if object.get("involvedObject").is_none() => text(&format!("regarding.{rest}")),
            _ => text(field),
        },
        _ => text(field),
    }
}

fn reporting_controller(object: &Value) -> String {
    let core = text_at(object, "reportingComponent");
    if core.is_empty() {
        text_at(object, "reportingController")
    } else {
        core
    }
}

fn text_at(object: &Value, path: &str) -> String {
    let found = path.split('.').try_fold(object, |value, name| value.get(name));
    match found {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
        _ => String::new(),
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (position, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    term.char_indices().find_map(|(position, _)| {
        let rest = &term[position..];
        [("!=", false), ("==", true), ("=", true)]
            .into_iter()
            .find_map(|(operator, equal)| {
                rest.strip_prefix(operator)
                    .map(|value| (&term[..position], equal, value))
            })
    })
}

fn unescape(text: &str) -> ApiResult<String> {
    let refuse = |what: String| ApiError::new(Reason::BadRequest, format!("invalid field selector: {what}"));
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => result.push(escaped),
                Some(other) => return Err(refuse(format!("invalid escape sequence: \\{other}"))),
                None => return Err(refuse("invalid escape sequence: \\".to_owned())),
            },
            // The reference prints the number of the character.
            ',' | '=' => {
                return Err(refuse(format!(
                    "unescaped character in value: {}",
                    u32::from(character)
                )));
            }
            other => result.push(other),
        }
    }
    Ok(result)
}
