//! `serviceaccounts/token`: a new token for an account. Requirement KA-040.

use std::sync::{Arc, OnceLock};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    ISSUER,
    claims::{Claims, Kubernetes, Reference},
    jwt,
};
use crate::{
    api::Api,
    apply::{self, ApplyOptions, FieldSet},
    builtin::definitions::Reader,
    field::{FieldError, FieldPath},
    object,
    present::split_api_version,
    schema::{self, Node},
    status::{ApiError, ApiResult, Reason},
};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// How long a token lasts that asks for nothing else, and how short and long one may, in seconds.
const USUAL: i64 = 60 * 60;
const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Specification {
    audiences: Option<Vec<String>>,
    expiration_seconds: Option<i64>,
    bound_object_ref: Option<Bound>,
    attestations: Option<Value>,
}

/// The object that the token ends with.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bound {
    kind: String,
    api_version: String,
    name: String,
    uid: String,
}

/// What a token is bound to, as its claims name it.
#[derive(Default)]
struct Binding {
    pod: Option<Reference>,
    secret: Option<Reference>,
    node: Option<Reference>,
}

fn node() -> &'static Arc<Node> {
    static NODE: OnceLock<Arc<Node>> = OnceLock::new();
    NODE.get_or_init(|| Reader::default().definition("io.k8s.api.authentication.v1.TokenRequest"))
}

/// The fields that were asked for, as `managedFields` names them: those sent, and the lifetime, which has a default.
fn owned_by(manager: &str, request: &Value, now: Timestamp) -> Value {
    let mut asked = json!({"spec": request.get("spec").cloned().unwrap_or_default()});
    if !asked["spec"].is_object() {
        asked["spec"] = json!({});
    }
    if asked
        .pointer("/spec/expirationSeconds")
        .is_none_or(Value::is_null)
    {
        asked["spec"]["expirationSeconds"] = json!(USUAL);
    }
    let options = ApplyOptions {
        manager: manager.to_owned(),
        force: false,
        api_version: format!("{GROUP}/v1"),
        subresource: "token".to_owned(),
        now,
        reset_fields: FieldSet::default(),
    };
    apply::track_update(node(), None, &mut asked, &options);
    asked
        .pointer("/metadata/managedFields")
        .cloned()
        .unwrap_or_default()
}

impl Api {
    /// Answers a TokenRequest for the account `name`: the request with a token in its status.
    ///
    /// # Errors
    /// 404 without the account or what the token is to be bound to; 422 for a lifetime out of bounds; 400 and 409 as the
    /// reference.
    pub(crate) fn request_token(
        &self,
        namespace: &str,
        name: &str,
        manager: &str,
        mut request: Value,
    ) -> ApiResult<Value> {
        if request.is_null() {
            request = json!({});
        }
        let wrong = |field: &str| {
            request
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let (api_version, kind) = (wrong("apiVersion"), wrong("kind"));
        let fits = |given: &str, expected: &str| given.is_empty() || given == expected;
        if !fits(&api_version, "authentication.k8s.io/v1") || !fits(&kind, KIND) {
            return Err(ApiError::new(
                Reason::BadRequest,
                format!("{api_version}, Kind={kind} is no authentication.k8s.io/v1, Kind={KIND}"),
            ));
        }
        if let Some(text) = schema::decode_error(node(), &request) {
            return Err(ApiError::new(
                Reason::BadRequest,
                format!("{KIND} in version \"v1\" cannot be handled as a {KIND}: {text}"),
            ));
        }
        let invalid = |subject: &str, field: &str, value: Value, detail: &str| {
            let error = FieldError::invalid(&FieldPath::of(field), value, detail);
            ApiError::invalid(GROUP, KIND, subject, &[error])
        };
        for (field, expected) in [("name", name), ("namespace", namespace)] {
            let given = object::meta_text(&request, field);
            if !given.is_empty() && given != expected {
                let detail = format!("must match the service account {field} if specified");
                return Err(invalid(name, &format!("metadata.{field}"), json!(given), &detail));
            }
        }
        let account = self
            .read_object("/serviceaccounts", namespace, name)
            .ok_or_else(|| ApiError::not_found("", "serviceaccounts", name))?;
        let uid = object::uid(&account).to_owned();
        let asked_uid = object::uid(&request);
        if !asked_uid.is_empty() && asked_uid != uid {
            let detail = format!(
                "the UID in the token request ({asked_uid}) does not match the UID of the service account ({uid})"
            );
            return Err(ApiError::conflict(GROUP, KIND, name, &detail));
        }
        let specification: Specification = serde_json::from_value(
            request
                .get("spec")
                .filter(|spec| !spec.is_null())
                .cloned()
                .unwrap_or_else(|| json!({})),
        )
        .map_err(|error| ApiError::new(Reason::BadRequest, format!("the spec cannot be read: {error}")))?;
        let lifetime = specification.expiration_seconds.unwrap_or(USUAL);
        let bound = match lifetime {
            ..SHORTEST => Some("may not specify a duration less than 10 minutes"),
            _ if lifetime > LONGEST => Some("may not specify a duration larger than 2^32 seconds"),
            _ => None,
        };
        if let Some(detail) = bound {
            return Err(invalid("", "spec.expirationSeconds", json!(lifetime), detail));
        }
        if let Some(attestations) = specification
            .attestations
            .filter(|value| value.as_object().is_some_and(|map| !map.is_empty()))
        {
            let detail = "attestations may only be specified with a webhook bound object reference";
            return Err(invalid("", "spec.attestations", attestations, detail));
        }
        let audiences = match specification.audiences {
            Some(audiences) if !audiences.is_empty() => audiences,
            _ => vec![ISSUER.to_owned()],
        };
        let binding = match &specification.bound_object_ref {
            Some(bound) => self.bind(namespace, name, bound)?,
            None => Binding::default(),
        };
        let now = self.clock().now();
        let owned = owned_by(manager, &request, now);
        let claims = Claims {
            aud: audiences.clone(),
            exp: now.as_second().saturating_add(lifetime),
            iat: now.as_second(),
            iss: ISSUER.to_owned(),
            jti: self.random().uuid().to_string(),
            kubernetes: Kubernetes {
                namespace: namespace.to_owned(),
                node: binding.node,
                pod: binding.pod,
                secret: binding.secret,
                serviceaccount: Reference::to(&account),
            },
            nbf: now.as_second(),
            sub: format!("system:serviceaccount:{namespace}:{name}"),
        };
        let token = jwt::sign(self.signing_key(), &claims)
            .ok_or_else(|| ApiError::new(Reason::InternalError, "failed to generate token"))?;
        let ends = now
            .saturating_add(SignedDuration::from_secs(lifetime))
            .unwrap_or(now);
        let reference = request
            .pointer("/spec/boundObjectRef")
            .cloned()
            .unwrap_or_default();
        Ok(json!({
            "kind": KIND, "apiVersion": format!("{GROUP}/v1"),
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid, "creationTimestamp": object::format_time(now),
                "managedFields": owned,
            },
            "spec": {"audiences": audiences, "expirationSeconds": lifetime, "boundObjectRef": reference},
            "status": {"token": token, "expirationTimestamp": object::format_time(ends)},
        }))
    }

    /// Looks up what a token is to be bound to.
    fn bind(&self, namespace: &str, account: &str, bound: &Bound) -> ApiResult<Binding> {
        let (group, version) = split_api_version(&bound.api_version);
        let mut binding = Binding::default();
        let (resource, scope) = match (group, bound.kind.as_str()) {
            ("", "Pod") => ("pods", namespace),
            ("", "Secret") => ("secrets", namespace),
            ("", "Node") => ("nodes", ""),
            _ => {
                return Err(ApiError::new(
                    Reason::BadRequest,
                    format!(
                        "cannot bind token to object of type {group}/{version}, Kind={}",
                        bound.kind
                    ),
                ));
            }
        };
        let found = self
            .read_object(&format!("/{resource}"), scope, &bound.name)
            .ok_or_else(|| ApiError::not_found("", resource, &bound.name))?;
        let reference = Reference::to(&found);
        if !bound.uid.is_empty() && bound.uid != reference.uid {
            let detail = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
                 deleted and then recreated",
                bound.uid
            );
            return Err(ApiError::conflict("", &bound.kind, &bound.name, &detail));
        }
        match resource {
            "pods" => {
                let text = |pointer: &str| found.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                // A Pod that names no account runs as this one, whatever the reference's admission writes into it.
                let runs_as = match text("/spec/serviceAccountName") {
                    "" => "default",
                    named => named,
                };
                if runs_as != account {
                    return Err(ApiError::new(
                        Reason::BadRequest,
                        format!(
                            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount \
                             name."
                        ),
                    ));
                }
                let node = text("/spec/nodeName");
                if !node.is_empty() {
                    binding.node = Some(match self.read_object("/nodes", "", node) {
                        Some(node) => Reference::to(&node),
                        None => Reference {
                            name: node.to_owned(),
                            uid: String::new(),
                        },
                    });
                }
                binding.pod = Some(reference);
            }
            "secrets" => binding.secret = Some(reference),
            _ => binding.node = Some(reference),
        }
        Ok(binding)
    }
}
