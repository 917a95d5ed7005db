//! What is wrong with policies and bindings when they are written, in the words and the order of the reference
//! (`pkg/apis/admissionregistration/validation`). Requirement KA-013.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    compile::{Compiled, Expected, Expressions, Fault},
    model::{self, BindingSpec, MatchResources, NamedRule, ParamKind, ParamRef, PolicySpec},
};
use crate::{
    builtin::strategy::labels,
    field::{FieldError, FieldErrorKind, FieldPath},
    names::{self, NameRule},
    object,
    table::jsonpath::JsonPath,
};

const MAX_CONDITIONS: usize = 64;
const MAX_ANNOTATIONS: usize = 20;
/// Longest source of an audit annotation, in bytes.
const MAX_ANNOTATION_BYTES: usize = 5 * 1024;
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
/// Names that the language keeps for itself.
const RESERVED: [&str; 22] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "",
];

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
        && !RESERVED.contains(&name)
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

fn match_resources(resources: &MatchResources, path: &FieldPath, errors: Errors<'_>) {
    let policy = path.child("matchPolicy");
    must_be_one_of(
        &policy,
        resources.match_policy.as_deref(),
        &["Equivalent", "Exact"],
        errors,
    );
    for (name, selector) in [
        ("namespaceSelector", &resources.namespace_selector),
        ("objectSelector", &resources.object_selector),
    ] {
        match selector {
            None => errors.push(FieldError::required(&path.child(name), "")),
            Some(selector) => labels::validate_selector(selector, &path.child(name), errors),
        }
    }
    for (name, rules) in [
        ("resourceRules", &resources.resource_rules),
        ("excludeResourceRules", &resources.exclude_resource_rules),
    ] {
        for (index, rule) in rules.iter().enumerate() {
            named_rule(rule, &path.child(name).index(index), errors);
        }
    }
}

fn named_rule(rule: &NamedRule, path: &FieldPath, errors: Errors<'_>) {
    let mut seen = BTreeSet::new();
    for (index, name) in rule.resource_names.iter().enumerate() {
        let at = path.child("resourceNames").index(index);
        invalid_each(&at, name, NameRule::PathSegment.check(name, false), errors);
        if !seen.insert(name.as_str()) {
            errors.push(FieldError::duplicate(&at, json!(name)));
        }
    }
    alone(&rule.operations, &path.child("operations"), "operations", errors);
    for (index, operation) in rule.operations.iter().enumerate() {
        let at = path.child("operations").index(index);
        must_be_one_of(&at, Some(operation), &OPERATIONS, errors);
    }
    alone(&rule.api_groups, &path.child("apiGroups"), "API groups", errors);
    let versions = path.child("apiVersions");
    alone(&rule.api_versions, &versions, "API versions", errors);
    for (index, version) in rule.api_versions.iter().enumerate() {
        if version.is_empty() {
            errors.push(FieldError::required(&versions.index(index), ""));
        }
    }
    resources(&rule.resources, &path.child("resources"), errors);
    if let Some(scope) = &rule.scope {
        must_be_one_of(&path.child("scope"), Some(scope), &SCOPES, errors);
    }
}

/// A list that must not be empty, and in which `*` stands alone.
fn alone(items: &[String], path: &FieldPath, what: &str, errors: Errors<'_>) {
    if items.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(FieldError::invalid(path, json!(items), detail));
    }
}

fn resources(resources: &[String], path: &FieldPath, errors: Errors<'_>) {
    if resources.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
    let (mut whole, mut under_all) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_everything, mut has_all, mut has_plain) = (false, false, false);
    for (index, resource) in resources.iter().enumerate() {
        let at = path.index(index);
        if resource.is_empty() {
            errors.push(FieldError::required(&at, ""));
            continue;
        }
        has_everything |= resource == "*/*";
        has_all |= resource == "*";
        let Some((resource_name, subresource)) = resource.split_once('/') else {
            // As the reference: the last one decides.
            has_plain = resource != "*";
            continue;
        };
        let mut refuse = |pattern: String| {
            let detail = format!("if '{pattern}' is present, must not specify {resource}");
            errors.push(FieldError::invalid(&at, json!(resource), detail));
        };
        if whole.contains(resource_name) {
            refuse(format!("{resource_name}/*"));
        }
        if under_all.contains(subresource) {
            refuse(format!("*/{subresource}"));
        }
        if subresource == "*" {
            whole.insert(resource_name);
        }
        if resource_name == "*" {
            under_all.insert(subresource);
        }
    }
    if resources.len() > 1 && has_everything {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
    if has_all && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(FieldError::invalid(path, json!(resources), detail));
    }
}

fn binding(object: &Value, spec: &BindingSpec, path: &FieldPath, errors: Errors<'_>) {
    let name = path.child("policyName");
    if spec.policy_name.is_empty() {
        errors.push(FieldError::required(&name, ""));
    } else {
        invalid_each(
            &name,
            &spec.policy_name,
            names::subdomain(&spec.policy_name),
            errors,
        );
    }
    if let Some(reference) = &spec.param_ref {
        param_ref(reference, &path.child("paramRef"), errors);
    }
    if let Some(resources) = &spec.match_resources {
        match_resources(resources, &path.child("matchResources"), errors);
    }
    actions(
        object,
        &spec.validation_actions,
        &path.child("validationActions"),
        errors,
    );
}

fn actions(object: &Value, actions: &[String], path: &FieldPath, errors: Errors<'_>) {
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        must_be_one_of(&path.index(index), Some(action), &ACTIONS, errors);
        if !seen.insert(action.as_str()) {
            errors.push(FieldError::duplicate(&path.index(index), json!(action)));
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let shown = object
            .pointer("/spec/validationActions")
            .cloned()
            .unwrap_or_default();
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(FieldError::invalid(path, shown, detail));
    }
    if actions.is_empty() {
        errors.push(FieldError::required(path, ""));
    }
}

fn param_ref(reference: &ParamRef, path: &FieldPath, errors: Errors<'_>) {
    let both = !reference.name.is_empty() && reference.selector.is_some();
    let exclusive =
        |name: &str| FieldError::forbidden(&path.child(name), "name and selector are mutually exclusive");
    if !reference.name.is_empty() {
        let messages = NameRule::PathSegment.check(&reference.name, false);
        invalid_each(&path.child("name"), &reference.name, messages, errors);
        errors.extend(both.then(|| exclusive("name")));
    }
    if let Some(selector) = &reference.selector {
        labels::validate_selector(selector, &path.child("selector"), errors);
        errors.extend(both.then(|| exclusive("selector")));
    }
    if reference.name.is_empty() && reference.selector.is_none() {
        errors.push(FieldError::required(
            path,
            "one of name or selector must be specified",
        ));
    }
    let action = reference
        .parameter_not_found_action
        .as_deref()
        .filter(|action| !action.is_empty());
    must_be_one_of(
        &path.child("parameterNotFoundAction"),
        action,
        &["Deny", "Allow"],
        errors,
    );
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
