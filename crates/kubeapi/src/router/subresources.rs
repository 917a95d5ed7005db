//! Subresources: `status`, `scale`, `finalize`, the `token` of ServiceAccounts, and of Pods `log`, `binding`,
//! `eviction`, `portforward` and `proxy`.
//! Requirements KA-010, KA-012, KA-021.

mod connect;
mod forward;
mod pod;
mod proxy;
mod scale;

pub(crate) use scale::scale_of;

use axum::extract::Request;
use http::StatusCode;
use serde_json::Value;

use super::{
    dispatch::{Call, no_such_resource, not_allowed},
    read_body,
    writes::{decode, manager},
};
use crate::{
    admission::{Creation, Target},
    answer::Answer,
    api::Api,
    negotiation::{Form, body_format},
    request::{DryRun, Verb},
    status::{ApiError, ApiResult},
};

impl Call {
    /// The call as the creation of a subresource.
    fn creation<'a>(&'a self, manager: &'a str) -> Creation<'a> {
        Creation {
            kind: &self.kind,
            snapshot: &self.snapshot,
            subresource: &self.path.subresource,
            namespace: self.namespace(),
            name: self.name(),
            author: &self.identity,
            manager,
            dry_run: self.options.dry_run == DryRun::All,
        }
    }
}

impl Api {
    /// Answers a request for a token of a ServiceAccount. Requirement KA-040.
    async fn account_token(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let format = body_format(request.headers(), false)?;
        let manager = manager(call, request.headers());
        let body = read_body(self, request).await?;
        let asked = if body.is_empty() {
            Value::Null
        } else {
            decode(&body, format)?.value
        };
        let target = Target::new("authentication.k8s.io", "v1", "TokenRequest");
        let warnings = self.admit_subresource(call.creation(&manager), target, &asked)?;
        let answer = self.request_token(call.namespace(), call.name(), &manager, asked)?;
        Ok(Answer::json(StatusCode::CREATED, &answer).with_warnings(warnings))
    }

    pub(super) async fn subresource(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        match (
            call.kind.storage_resource.as_str(),
            call.path.subresource.as_str(),
        ) {
            (_, "status") if call.kind.status => match call.verb {
                Verb::Get => {
                    let form = call.form(request.headers(), &[Form::Plain, Form::Table, Form::Metadata])?;
                    self.get(&call.view(), &call.key(), form, &call.options)
                }
                Verb::Update | Verb::Patch => self.write_object(call, request).await,
                verb if call.kind.custom => Err(call.not_supported(verb)),
                _ => Err(not_allowed()),
            },
            (_, "scale") if call.kind.scale.is_some() => self.scale(call, request).await,
            ("/namespaces", "finalize") => match call.verb {
                Verb::Update => self.write_object(call, request).await,
                _ => Err(not_allowed()),
            },
            ("/pods", "log") if call.verb == Verb::Get => self.pod_log(call).await,
            ("/pods", "binding") if call.verb == Verb::Create => self.pod_binding(call, request).await,
            ("/pods", "eviction") if call.verb == Verb::Create => self.pod_eviction(call, request).await,
            ("/serviceaccounts", "token") if call.verb == Verb::Create => {
                self.account_token(call, request).await
            }
            ("/serviceaccounts", "token") => Err(not_allowed()),
            ("/pods", "portforward" | "exec" | "attach") if matches!(call.verb, Verb::Get | Verb::Create) => {
                self.connected(call, request).await
            }
            ("/pods" | "/services", _) if call.path.is_proxy() => self.connected(call, request).await,
            ("/pods", "log" | "binding" | "eviction" | "portforward" | "exec" | "attach") => {
                Err(not_allowed())
            }
            // The reference looks for the object first, and says of either that it is not there.
            _ if call.kind.custom => Err(ApiError::not_found(
                &call.kind.group,
                &call.kind.plural,
                call.name(),
            )),
            _ => Err(no_such_resource()),
        }
    }
}
