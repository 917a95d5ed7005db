//! Kinds that are asked and answered, and never stored: who somebody is, and what somebody may do.
//! Requirements KA-010, KA-040, KA-041.

use std::collections::BTreeMap;

use axum::extract::Request;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{dispatch::Call, read_body, writes};
use crate::{
    answer::Answer,
    api::Api,
    apply::{self, ApplyOptions},
    authorization::{Attributes, ResourceAttributes, Rule},
    field::{FieldError, FieldPath},
    identity::Identity,
    negotiation::{Form, body_format},
    object,
    request::FieldValidation,
    schema,
    status::{ApiError, ApiResult, Reason},
};

/// `spec` of the access reviews.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Access {
    resource_attributes: Option<AskedResource>,
    non_resource_attributes: Option<AskedPath>,
    user: String,
    uid: String,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Vec<String>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AskedResource {
    namespace: String,
    verb: String,
    group: String,
    resource: String,
    subresource: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AskedPath {
    path: String,
    verb: String,
}

impl Access {
    fn attributes(self) -> (Attributes, Identity) {
        let identity = Identity {
            username: self.user,
            uid: self.uid,
            groups: self.groups.unwrap_or_default(),
            extra: self.extra.unwrap_or_default(),
        };
        let attributes = match (self.resource_attributes, self.non_resource_attributes) {
            (Some(asked), _) => Attributes::Resource(ResourceAttributes {
                verb: asked.verb,
                group: asked.group,
                resource: asked.resource,
                subresource: asked.subresource,
                namespace: asked.namespace,
                name: asked.name,
            }),
            (None, asked) => {
                let asked = asked.unwrap_or_default();
                Attributes::Path {
                    verb: asked.verb,
                    path: asked.path,
                }
            }
        };
        (attributes, identity)
    }
}

/// Whether a kind is answered and not stored.
pub(super) fn is_review(storage_resource: &str) -> bool {
    ["authentication.k8s.io/", "authorization.k8s.io/"]
        .iter()
        .any(|group| storage_resource.starts_with(group))
}

impl Api {
    /// Answers a review with its status.
    pub(super) async fn review(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        call.form(request.headers(), &[Form::Plain])?;
        let manager = writes::manager(call, request.headers());
        let (mut review, warnings) = self.review_body(call, request).await?;
        let kind = &call.kind;
        let options = ApplyOptions {
            manager,
            force: false,
            api_version: kind.api_version(),
            subresource: String::new(),
            now: self.clock().now(),
            reset_fields: apply::reset_fields(&kind.kind, false, false, ""),
        };
        let status = match kind.kind.as_str() {
            "TokenReview" => self.review_token(&review)?,
            "SelfSubjectReview" => {
                // A fresh object: nothing of what was sent is in the answer.
                review = json!({"metadata": {"creationTimestamp": object::format_time(self.clock().now())}});
                json!({"userInfo": call.identity.to_user_info()})
            }
            "SelfSubjectRulesReview" => {
                let namespace = review
                    .pointer("/spec/namespace")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned();
                if namespace.is_empty() {
                    return Err(ApiError::new(Reason::BadRequest, "no namespace on request"));
                }
                review = json!({"metadata": {}, "spec": {}});
                self.rules_of(&call.identity, &namespace)
            }
            _ => self.review_access(call, &review)?,
        };
        if !matches!(kind.kind.as_str(), "SelfSubjectReview" | "SelfSubjectRulesReview") {
            // The status is the server's answer, whatever was sent or is a default.
            if let Some(fields) = review.as_object_mut() {
                fields.remove("status");
            }
            apply::track_update(&kind.node, None, &mut review, &options);
        }
        if let Some(fields) = review.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(kind.api_version()));
            fields.insert("kind".to_owned(), json!(kind.kind));
            fields.insert("status".to_owned(), status);
        }
        Ok(Answer::json(StatusCode::CREATED, &review).with_warnings(warnings))
    }

    /// The review that was sent, and what is to be warned of.
    async fn review_body(&self, call: &Call, request: Request) -> ApiResult<(Value, Vec<String>)> {
        let format = body_format(request.headers(), false)?;
        let body = read_body(self, request).await?;
        let decoded = writes::decode(&body, format)?;
        let repeated = match call.options.field_validation {
            FieldValidation::Strict => decoded.strict_errors(),
            _ => decoded.warnings(),
        };
        let mut review = decoded.value;
        let kind = &call.kind;
        let text = |field: &str| review.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api_version, sent_kind) = (text("apiVersion"), text("kind"));
        if !(api_version.is_empty() || api_version == kind.api_version())
            || !(sent_kind.is_empty() || sent_kind == kind.kind)
        {
            return Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "{sent_kind} in version {api_version:?} cannot be handled as a {}: the kind in the data does not match \
                     the resource of the request",
                    kind.kind
                ),
            ));
        }
        if !review.is_object() {
            return Err(ApiError::new(
                Reason::BadRequest,
                format!("the body of the request is no {} object", kind.kind),
            ));
        }
        if let Some(text) = kind.decode_error(&review) {
            return Err(ApiError::new(Reason::BadRequest, text));
        }
        let unknown = schema::prune(&kind.node, &mut review);
        let findings: Vec<String> = repeated
            .into_iter()
            .chain(
                unknown
                    .iter()
                    .map(|path| format!("unknown field {:?}", path.as_str())),
            )
            .collect();
        schema::default_object(&kind.node, &mut review);
        match call.options.field_validation {
            FieldValidation::Strict if !findings.is_empty() => Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "{0} in version {1:?} cannot be handled as a {0}: strict decoding error: {2}",
                    kind.kind,
                    kind.version,
                    findings.join(", ")
                ),
            )),
            FieldValidation::Warn => Ok((review, findings)),
            _ => Ok((review, Vec::new())),
        }
    }

    /// The status of the three access reviews.
    fn review_access(&self, call: &Call, review: &Value) -> ApiResult<Value> {
        let own = call.kind.kind == "SelfSubjectAccessReview";
        let local = call.kind.kind == "LocalSubjectAccessReview";
        let specification = review
            .get("spec")
            .filter(|spec| !spec.is_null())
            .cloned()
            .unwrap_or_else(|| json!({}));
        let access: Access = serde_json::from_value(specification.clone()).map_err(|error| {
            ApiError::new(Reason::BadRequest, format!("the spec cannot be read: {error}"))
        })?;
        let errors = faults(call, review, &specification, &access, own, local);
        if !errors.is_empty() {
            // The reference names no kind here.
            return Err(ApiError::invalid(&call.kind.group, "", "", &errors));
        }
        let (attributes, other) = access.attributes();
        let identity = if own { call.identity.clone() } else { other };
        let decision = self.authorize(&identity, &attributes);
        let mut status = json!({"allowed": decision.allowed});
        if let (false, Some(fields)) = (decision.reason.is_empty(), status.as_object_mut()) {
            fields.insert("reason".to_owned(), json!(decision.reason));
        }
        Ok(status)
    }

    /// The status of a SelfSubjectRulesReview.
    fn rules_of(&self, identity: &Identity, namespace: &str) -> Value {
        let (rules, problems) = self.policy().rules_for(identity, namespace);
        let shown = |rule: &Rule, fields: &[(&str, &Vec<String>)]| {
            let mut shown = json!({"verbs": rule.verbs});
            for (name, list) in fields.iter().filter(|(_, list)| !list.is_empty()) {
                shown[*name] = json!(list);
            }
            shown
        };
        let resources: Vec<Value> = rules
            .iter()
            .filter(|rule| !rule.resources.is_empty())
            .map(|rule| {
                let fields = [
                    ("apiGroups", &rule.api_groups),
                    ("resources", &rule.resources),
                    ("resourceNames", &rule.resource_names),
                ];
                shown(rule, &fields)
            })
            .collect();
        let paths: Vec<Value> = rules
            .iter()
            .filter(|rule| !rule.non_resource_urls.is_empty())
            .map(|rule| shown(rule, &[("nonResourceURLs", &rule.non_resource_urls)]))
            .collect();
        let mut status = json!({"incomplete": false, "resourceRules": resources, "nonResourceRules": paths});
        if let Some(problems) = problems {
            status["evaluationError"] = json!(problems);
        }
        status
    }
}

/// What is wrong with an access review.
fn faults(
    call: &Call,
    review: &Value,
    specification: &Value,
    access: &Access,
    own: bool,
    local: bool,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if access.resource_attributes.is_some() == access.non_resource_attributes.is_some() {
        errors.push(FieldError::invalid(
            &FieldPath::of("spec"),
            specification
                .get("nonResourceAttributes")
                .cloned()
                .unwrap_or_default(),
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    if !own && access.user.is_empty() && access.groups.as_ref().is_none_or(Vec::is_empty) {
        errors.push(FieldError::invalid(
            &FieldPath::of("spec").child("user"),
            json!(""),
            "at least one of user or group must be specified",
        ));
    }
    let mut metadata = review.get("metadata").cloned().unwrap_or_default();
    if let Some(fields) = metadata.as_object_mut() {
        fields.remove("managedFields");
        fields.retain(|name, value| !(value.is_null() || local && name == "namespace"));
    }
    if metadata.as_object().is_some_and(|fields| !fields.is_empty()) {
        let detail = if local {
            "must be empty except for namespace"
        } else {
            "must be empty"
        };
        errors.push(FieldError::invalid(&FieldPath::of("metadata"), metadata, detail));
    }
    if local {
        let wrong = access
            .resource_attributes
            .as_ref()
            .is_some_and(|asked| asked.namespace != call.namespace());
        if wrong {
            let path = FieldPath::of("spec.resourceAttributes.namespace");
            let value = specification.pointer("/resourceAttributes/namespace").cloned();
            errors.push(FieldError::invalid(
                &path,
                value.unwrap_or_else(|| json!("")),
                "must match metadata.namespace",
            ));
        }
        if access.non_resource_attributes.is_some() {
            errors.push(FieldError::invalid(
                &FieldPath::of("spec.nonResourceAttributes"),
                specification
                    .get("nonResourceAttributes")
                    .cloned()
                    .unwrap_or_default(),
                "disallowed on this kind of request",
            ));
        }
    }
    errors
}
