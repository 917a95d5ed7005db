//! The status of policies: warnings of expressions that do not fit the kinds that the policy names, and the generation that
//! was looked at.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_cel::Declaration;
use serde_json::{Map, Value, json};

use super::{
    POLICIES,
    compile::{Known, check_types},
    model::{self, NamedRule, ParamKind, PolicySpec},
    subject::Target,
};
use crate::{
    api::Api,
    builtin::KindInfo,
    commit, object, openapi,
    present::split_api_version,
    registry::Snapshot,
    request::FieldValidation,
    schema::declare,
    status::{ApiError, ApiResult, Reason},
    write::{Intention, Part, WriteRequest},
};

/// Most types that the expressions of one policy are checked against.
const MAX_TYPES: usize = 10;
const MANAGER: &str = "validatingadmissionpolicy-status";
const REFERENCE: &str = "#/components/schemas/";

impl Api {
    /// Checks the policy of that name and notes in its status what was found, unless that is done.
    ///
    /// # Errors
    /// Why the status was not written; worth a retry.
    pub(crate) async fn attend_policy(&self, name: &str) -> ApiResult<()> {
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot
            .kinds
            .lookup(super::GROUP, "v1", "validatingadmissionpolicies")
        else {
            return Ok(());
        };
        let Some(stored) = self.store().get(&commit::key(POLICIES, "", name)) else {
            return Ok(());
        };
        let read = serde_json::from_slice::<Value>(&stored.value)
            .and_then(|policy| Ok((unobserved(&policy), model::spec::<PolicySpec>(&policy)?)));
        let (generation, spec) = match read {
            Ok((Some(generation), spec)) => (generation, spec),
            Ok((None, _)) => return Ok(()),
            Err(error) => {
                // To try again would find the same.
                tracing::error!(%name, %error, "a stored ValidatingAdmissionPolicy cannot be read, and its types are not checked");
                return Ok(());
            }
        };
        let checked_against = std::sync::Arc::clone(&snapshot);
        // Types of large schemas take long enough to hold up others.
        let warnings = tokio::task::spawn_blocking(move || warnings(&spec, &checked_against))
            .await
            .map_err(|error| {
                ApiError::new(
                    Reason::InternalError,
                    format!("the types of ValidatingAdmissionPolicy {name:?} were not checked: {error}"),
                )
            })?;
        let mut checking = Map::new();
        if !warnings.is_empty() {
            checking.insert("expressionWarnings".to_owned(), json!(warnings));
        }
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "status": {"observedGeneration": generation, "typeChecking": checking},
        });
        let intention = Intention::Apply {
            configuration,
            force: true,
        };
        let request = WriteRequest {
            part: Part::Status,
            manager: MANAGER.to_owned(),
            field_validation: FieldValidation::Ignore,
            ..WriteRequest::by_server(kind, snapshot, "", name, intention)
        };
        match self.write(request).await {
            Ok(_) => Ok(()),
            // It was deleted in the meantime.
            Err(error) if error.reason == Reason::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The generation of a policy that its status does not speak of yet.
pub(crate) fn unobserved(policy: &Value) -> Option<i64> {
    let generation = object::generation(policy);
    let observed = policy
        .pointer("/status/observedGeneration")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    (generation > observed).then_some(generation)
}

/// One warning an expression, about all types that it does not fit.
fn warnings(spec: &PolicySpec, snapshot: &Snapshot) -> Vec<Value> {
    let objects: Vec<(Target, (String, Declaration))> = types_to_check(spec, snapshot)
        .into_values()
        .filter_map(|kind| Some((Target::of(&kind), declared(&kind)?)))
        .collect();
    let parameters = spec
        .param_kind
        .as_ref()
        .and_then(|kind| parameter_kind(kind, snapshot))
        .and_then(|kind| declared(&kind));
    let mut warnings = Vec::new();
    let mut check = |field: String, expression: &str| {
        let found: Vec<String> = objects
            .iter()
            .filter_map(|(target, object)| {
                let known = Known {
                    object: Some(object.clone()),
                    parameters: parameters.clone(),
                };
                let fault = check_types(spec, expression, &known)?;
                Some(format!("{}: {fault}\n", target.shown()))
            })
            .collect();
        if !found.is_empty() {
            warnings.push(json!({"fieldRef": field, "warning": found.join("\n")}));
        }
    };
    for (index, validation) in spec.validations.iter().enumerate() {
        let field = format!("spec.validations[{index}]");
        check(format!("{field}.expression"), &validation.expression);
        if !validation.message_expression.is_empty() {
            check(
                format!("{field}.messageExpression"),
                &validation.message_expression,
            );
        }
    }
    warnings
}

fn parameter_kind(kind: &ParamKind, snapshot: &Snapshot) -> Option<std::sync::Arc<KindInfo>> {
    let (group, version) = split_api_version(&kind.api_version);
    snapshot.kinds.by_kind(group, version, &kind.kind)
}

/// The kinds that the rules name outright, in the order of group, version and kind.
fn types_to_check(
    spec: &PolicySpec,
    snapshot: &Snapshot,
) -> BTreeMap<(String, String, String), std::sync::Arc<KindInfo>> {
    let mut found = BTreeMap::new();
    let rules = spec
        .match_constraints
        .iter()
        .flat_map(|constraints| &constraints.resource_rules);
    for rule in rules {
        let mut count = 0;
        for (group, version, resource) in named_resources(rule) {
            let kinds = snapshot.kinds.all().iter().filter(|kind| {
                // As in the reference, the empty group stands for any.
                (group.is_empty() || kind.group == group)
                    && kind.version == version
                    && kind.plural == resource
            });
            for kind in kinds {
                let key = (kind.group.clone(), kind.version.clone(), kind.kind.clone());
                found.insert(key, std::sync::Arc::clone(kind));
                count += 1;
                if count == MAX_TYPES {
                    return found;
                }
            }
        }
    }
    found
}

/// The resources that a rule names without `*`, in their order.
fn named_resources(rule: &NamedRule) -> BTreeSet<(String, String, String)> {
    let plain = |items: &[String]| !items.iter().any(|item| item.contains('*'));
    if !plain(&rule.api_groups) || !plain(&rule.api_versions) {
        return BTreeSet::new();
    }
    let mut named = BTreeSet::new();
    for group in &rule.api_groups {
        for version in &rule.api_versions {
            for resource in rule
                .resources
                .iter()
                .filter(|resource| !resource.contains(['*', '/']))
            {
                named.insert((group.clone(), version.clone(), resource.clone()));
            }
        }
    }
    named
}

/// The type of the objects of a kind, by the schema that is published, with its name.
fn declared(kind: &KindInfo) -> Option<(String, Declaration)> {
    let schemas = openapi::schemas_of(kind);
    let mut open = vec![kind.definition.as_str()];
    let schema = resolved(schemas.get(&kind.definition)?, &schemas, &mut open);
    Some((kind.kind.clone(), declare(&schema, true)?))
}

/// A schema with what it refers to in its place. What refers to itself becomes an object of unknown fields.
fn resolved<'a>(schema: &'a Value, schemas: &'a BTreeMap<String, Value>, open: &mut Vec<&'a str>) -> Value {
    if let Some(name) = referred(schema) {
        let Some(target) = schemas.get(name).filter(|_| !open.contains(&name)) else {
            return json!({"type": "object"});
        };
        open.push(name);
        let found = resolved(target, schemas, open);
        open.pop();
        return found;
    }
    let Value::Object(fields) = schema else {
        return schema.clone();
    };
    let mut copy = Map::new();
    for (name, value) in fields {
        let value = match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => Value::Object(
                properties
                    .iter()
                    .map(|(name, property)| (name.clone(), resolved(property, schemas, open)))
                    .collect(),
            ),
            ("items" | "additionalProperties", below) => resolved(below, schemas, open),
            // Descriptions are long, and say nothing of types.
            ("description", _) => continue,
            (_, other) => other.clone(),
        };
        copy.insert(name.clone(), value);
    }
    if copy.get("format").and_then(Value::as_str) == Some("int-or-string") {
        copy.insert("x-kubernetes-int-or-string".to_owned(), json!(true));
    }
    Value::Object(copy)
}

fn referred(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").or_else(|| {
        schema
            .get("allOf")?
            .as_array()?
            .iter()
            .find_map(|part| part.get("$ref"))
    });
    direct?.as_str()?.strip_prefix(REFERENCE)
}
