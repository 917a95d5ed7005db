//! What is wrong with policies and bindings when they are written, in the words and the order of the reference
//! (`pkg/apis/admissionregistration/validation`). Requirement KA-013.

mod binding;
mod matching;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::{binding::binding, matching::match_resources};
use super::{
    compile::{Compiled, Expected, Expressions, Fault},
    model::{self, BindingSpec, ParamKind, PolicySpec},
};
use crate::{
    field::{FieldError, FieldErrorKind, FieldPath},
    names::{self, NameRule},
    object,
    table::jsonpath::JsonPath,
};

const MAX_CONDITIONS: usize = 64;
const MAX_ANNOTATIONS: usize = 20;
/// Longest source of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
type Errors<'a> = &'a mut Vec<FieldError>;

/// A new policy has an empty status.
pub(crate) fn default_policy(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("status").or_insert_with(|| json!({}));
    }
}

/// Everything wrong with a policy. An update that leaves the spec alone is judged by its status only.
pub(crate) fn validate_policy(object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old
        && old.get("status") != object.get("status")
    {
        status(object, errors);
        return;
    }
    let path = FieldPath::of("spec");
    match model::spec::<PolicySpec>(object) {
        Ok(spec) => policy(object, &spec, &path, errors),
        Err(error) => errors.push(FieldError::invalid(&path, Value::Null, error.to_string())),
    }
}

/// Everything wrong with a binding.
pub(crate) fn validate_binding(object: &Value, _old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let path = FieldPath::of("spec");
    match model::spec::<BindingSpec>(object) {
        Ok(spec) => binding(object, &spec, &path, errors),
        Err(error) => errors.push(FieldError::invalid(&path, Value::Null, error.to_string())),
    }
}

fn must_be_one_of(path: &FieldPath, value: Option<&str>, allowed: &[&str], errors: Errors<'_>) {
    match value {
        None => errors.push(FieldError::required(path, "")),
        Some(value) if allowed.contains(&value) => {}
        Some(value) => errors.push(FieldError::not_supported(path, json!(value), allowed)),
    }
}

fn invalid_each(path: &FieldPath, value: &str, messages: Vec<String>, errors: Errors<'_>) {
    errors.extend(
        messages
            .into_iter()
            .map(|message| FieldError::invalid(path, json!(value), message)),
    );
}

fn policy(object: &Value, spec: &PolicySpec, path: &FieldPath, errors: Errors<'_>) {
    let failure = path.child("failurePolicy");
    must_be_one_of(
        &failure,
        spec.failure_policy.as_deref(),
        &["Fail", "Ignore"],
        errors,
    );
    if let Some(kind) = &spec.param_kind {
        param_kind(kind, &path.child("paramKind"), errors);
    }
    let constraints = path.child("matchConstraints");
    match &spec.match_constraints {
        None => errors.push(FieldError::required(&constraints, "")),
        Some(resources) => {
            match_resources(resources, &constraints, errors);
            // They tell what types the expressions are about.
            if resources.resource_rules.is_empty() {
                errors.push(FieldError::required(&constraints.child("resourceRules"), ""));
            }
        }
    }
    let parameters = spec.param_kind.is_some();
    conditions(spec, parameters, &path.child("matchConditions"), errors);
    let mut expressions = Expressions::new(parameters, !spec.variables.is_empty());
    for (index, variable) in spec.variables.iter().enumerate() {
        let at = path.child("variables").index(index);
        if variable.name.trim().is_empty() {
            errors.push(FieldError::required(&at.child("name"), "name is not specified"));
        } else if !is_identifier(&variable.name) {
            let detail = "must be a valid CEL identifier";
            errors.push(FieldError::invalid(
                &at.child("name"),
                json!(variable.name),
                detail,
            ));
        }
        let at = at.child("expression");
        if variable.expression.trim().is_empty() {
            errors.push(FieldError::required(&at, "expression is not specified"));
        } else {
            let compiled = expressions.add_variable(&variable.name, &variable.expression);
            errors.extend(fault(&at, &variable.expression, &compiled));
        }
    }
    if spec.validations.is_empty() && spec.audit_annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        for name in ["validations", "auditAnnotations"] {
            errors.push(FieldError::required(&path.child(name), detail));
        }
        return;
    }
    validations(spec, &expressions, &path.child("validations"), errors);
    annotations(
        object,
        spec,
        &expressions,
        &path.child("auditAnnotations"),
        errors,
    );
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first == b'_' || first.is_ascii_alphabetic())
        && bytes.all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
        && !mainstay_cel::RESERVED.contains(&name)
        && !name.is_empty()
}

/// What is wrong with an expression.
fn fault(path: &FieldPath, source: &str, compiled: &Compiled) -> Option<FieldError> {
    match compiled {
        Ok(_) => None,
        Err(Fault::Invalid(detail)) => Some(FieldError::invalid(path, json!(source), detail.as_str())),
        Err(Fault::Internal(detail)) => Some(FieldError {
            kind: FieldErrorKind::Internal,
            path: path.clone(),
            value: None,
            detail: detail.clone(),
        }),
    }
}

fn conditions(spec: &PolicySpec, parameters: bool, path: &FieldPath, errors: Errors<'_>) {
    let count = spec.match_conditions.len();
    if count > MAX_CONDITIONS {
        errors.push(FieldError {
            kind: FieldErrorKind::TooMany,
            path: path.clone(),
            value: Some(json!(count)),
            detail: format!("must have at most {MAX_CONDITIONS} items"),
        });
    }
    // They see no variables.
    let expressions = Expressions::new(parameters, false);
    let mut seen = BTreeSet::new();
    for (index, condition) in spec.match_conditions.iter().enumerate() {
        let at = path.index(index);
        let source = condition.expression.trim();
        if source.is_empty() {
            errors.push(FieldError::required(&at.child("expression"), ""));
        } else {
            let compiled = expressions.compile(source, Expected::Bool);
            errors.extend(fault(&at.child("expression"), source, &compiled));
        }
        let at = at.child("name");
        if condition.name.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        invalid_each(
            &at,
            &condition.name,
            names::qualified_name(&condition.name),
            errors,
        );
        if !seen.insert(condition.name.as_str()) {
            errors.push(FieldError::duplicate(&at, json!(condition.name)));
        }
    }
}

fn validations(spec: &PolicySpec, expressions: &Expressions, path: &FieldPath, errors: Errors<'_>) {
    for (index, validation) in spec.validations.iter().enumerate() {
        let at = path.index(index);
        if validation.expression.trim().is_empty() {
            let detail = "expression is not specified";
            errors.push(FieldError::required(&at.child("expression"), detail));
        } else {
            let compiled = expressions.compile(&validation.expression, Expected::Bool);
            errors.extend(fault(&at.child("expression"), &validation.expression, &compiled));
        }
        let source = &validation.message_expression;
        let place = at.child("messageExpression");
        if !source.is_empty() && source.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(&place, json!(source), detail));
        } else if !source.is_empty() {
            errors.extend(fault(&place, source, &expressions.compile_message(source)));
        }
        let message = &validation.message;
        let place = at.child("message");
        if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(&place, json!(message), detail));
        } else if message.trim().contains(['\n', '\r']) {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(&place, json!(message), detail));
        }
        if let Some(reason) = &validation.reason {
            must_be_one_of(&at.child("reason"), Some(reason), &REASONS, errors);
        }
    }
}

fn annotations(
    object: &Value,
    spec: &PolicySpec,
    expressions: &Expressions,
    path: &FieldPath,
    errors: Errors<'_>,
) {
    let annotations = &spec.audit_annotations;
    if annotations.len() > MAX_ANNOTATIONS {
        let shown = object
            .pointer("/spec/auditAnnotations")
            .cloned()
            .unwrap_or_default();
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(FieldError::invalid(path, shown, detail));
    }
    let name = object::name(object);
    let mut seen = BTreeSet::new();
    for (index, annotation) in annotations.iter().enumerate() {
        let at = path.index(index);
        let key = at.child("key");
        if name.is_empty() {
            let detail = "requires metadata.name be non-empty";
            errors.push(FieldError::invalid(&key, json!(annotation.key), detail));
        } else {
            let whole = format!("{name}/{}", annotation.key);
            invalid_each(&key, &whole, names::qualified_name(&whole), errors);
        }
        let place = at.child("valueExpression");
        let source = annotation.value_expression.trim();
        if source.is_empty() {
            errors.push(FieldError::required(&place, "valueExpression is not specified"));
        } else if source.len() > MAX_ANNOTATION_BYTES {
            let detail = format!("must not exceed {MAX_ANNOTATION_BYTES} bytes in length");
            errors.push(FieldError::required(&place, detail));
        } else {
            let compiled = expressions.compile(source, Expected::TextOrNull);
            errors.extend(fault(&place, &annotation.value_expression, &compiled));
        }
        if !seen.insert(annotation.key.as_str()) {
            errors.push(FieldError::duplicate(&key, json!(annotation.key)));
        }
    }
}

fn param_kind(kind: &ParamKind, path: &FieldPath, errors: Errors<'_>) {
    let at = path.child("apiVersion");
    let whole = kind.api_version.as_str();
    match whole.split('/').collect::<Vec<_>>().as_slice() {
        [""] => errors.push(FieldError::required(&at, "")),
        ["", ""] => errors.push(FieldError::invalid(
            &at,
            json!(whole),
            "version must be specified",
        )),
        [version] => group_version("", version, whole, &at, errors),
        [group, version] => group_version(group, version, whole, &at, errors),
        _ => {
            let detail = format!("unexpected GroupVersion string: {whole}");
            errors.push(FieldError::invalid(&at, json!(whole), detail));
        }
    }
    let at = path.child("kind");
    if kind.kind.is_empty() {
        errors.push(FieldError::required(&at, ""));
        return;
    }
    let messages = NameRule::Label1035.check(&kind.kind.to_lowercase(), false);
    if !messages.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            messages.join(",")
        );
        errors.push(FieldError::invalid(&at, json!(kind.kind), detail));
    }
}

fn group_version(group: &str, version: &str, whole: &str, path: &FieldPath, errors: Errors<'_>) {
    let mut refuse = |value: &str, messages: Vec<String>| {
        if !messages.is_empty() {
            errors.push(FieldError::invalid(path, json!(value), messages.join(",")));
        }
    };
    if !group.is_empty() {
        refuse(group, names::subdomain(group));
    }
    if version.is_empty() {
        refuse(whole, vec!["version must be specified".to_owned()]);
    } else {
        refuse(version, NameRule::Label1035.check(version, false));
    }
}

fn status(object: &Value, errors: Errors<'_>) {
    let path = FieldPath::of("status");
    let warnings = object
        .pointer("/status/typeChecking/expressionWarnings")
        .and_then(Value::as_array);
    for (index, warning) in warnings.into_iter().flatten().enumerate() {
        let at = path
            .child("typeChecking")
            .child("expressionWarnings")
            .index(index);
        let text = |name: &str| warning.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("warning").is_empty() {
            errors.push(FieldError::required(&at.child("warning"), ""));
        }
        let place = at.child("fieldRef");
        match text("fieldRef").trim() {
            "" => errors.push(FieldError::required(&place, "")),
            reference => {
                if let Err(error) = JsonPath::parse(&format!(".{reference}")) {
                    let detail = format!("invalid JSONPath: {error}");
                    errors.push(FieldError::invalid(&place, json!(reference), detail));
                }
            }
        }
    }
}
