//! Policies and bindings as they are stored, in the terms of `admissionregistration.k8s.io/v1`.

use serde::Deserialize;
use serde_json::Value;

/// What a policy says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PolicySpec {
    pub(super) param_kind: Option<ParamKind>,
    pub(super) match_constraints: Option<MatchResources>,
    pub(super) validations: Vec<Validation>,
    pub(super) failure_policy: Option<String>,
    pub(super) audit_annotations: Vec<AuditAnnotation>,
    pub(super) match_conditions: Vec<MatchCondition>,
    pub(super) variables: Vec<Variable>,
}

impl PolicySpec {
    /// Whether what cannot be evaluated refuses the request; otherwise it is passed over.
    pub(super) fn fails_closed(&self) -> bool {
        self.failure_policy.as_deref() != Some("Ignore")
    }
}

/// The kind of the parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ParamKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Validation {
    pub(super) expression: String,
    pub(super) message: String,
    pub(super) message_expression: String,
    pub(super) reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AuditAnnotation {
    pub(super) key: String,
    pub(super) value_expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MatchCondition {
    pub(super) name: String,
    pub(super) expression: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) expression: String,
}

/// Which requests are meant.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct MatchResources {
    pub(super) namespace_selector: Option<Value>,
    pub(super) object_selector: Option<Value>,
    pub(super) resource_rules: Vec<NamedRule>,
    pub(super) exclude_resource_rules: Vec<NamedRule>,
    pub(super) match_policy: Option<String>,
}

impl MatchResources {
    /// Whether a request in another version of a resource is meant too.
    pub(super) fn is_equivalent(&self) -> bool {
        self.match_policy.as_deref() == Some("Equivalent")
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NamedRule {
    pub(super) resource_names: Vec<String>,
    pub(super) operations: Vec<String>,
    pub(super) api_groups: Vec<String>,
    pub(super) api_versions: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) scope: Option<String>,
}

/// What a binding says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BindingSpec {
    pub(super) policy_name: String,
    pub(super) param_ref: Option<ParamRef>,
    pub(super) match_resources: Option<MatchResources>,
    pub(super) validation_actions: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ParamRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) selector: Option<Value>,
    pub(super) parameter_not_found_action: Option<String>,
}

/// The `spec` of an object; what is not there is empty.
pub(super) fn spec<T: serde::de::DeserializeOwned + Default>(object: &Value) -> Result<T, serde_json::Error> {
    match object.get("spec") {
        Some(spec) => T::deserialize(spec),
        None => Ok(T::default()),
    }
}
