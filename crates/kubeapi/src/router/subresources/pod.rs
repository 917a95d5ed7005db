//! `pods/log`, `pods/binding` and `pods/eviction`. Requirements KA-010, KA-052.

use std::sync::Arc;

use axum::{body::Body, extract::Request};
use futures::StreamExt as _;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{dispatch::Call, success, writes};
use crate::{
    admission::Target,
    answer::Answer,
    api::Api,
    delete::DeleteOptions,
    logs::{LogError, LogRequest},
    negotiation::body_format,
    object,
    request::DryRun,
    status::{ApiError, ApiResult, Reason},
    write::{ChangeFn, Intention, Part, WriteRequest},
};

impl Api {
    pub(super) fn pod(&self, call: &Call) -> ApiResult<Value> {
        let stored = self
            .store()
            .get(&call.key())
            .ok_or_else(|| ApiError::not_found(&call.kind.group, &call.kind.plural, call.name()))?;
        call.view().value(&stored.value, stored.revision)
    }

    pub(super) async fn pod_log(&self, call: &Call) -> ApiResult<Answer> {
        let pod = self.pod(call)?;
        let wanted = self.log_request(call, &pod)?;
        let Some(source) = self.logs() else {
            return Err(ApiError::new(Reason::NotFound, "the server has no logs of pods"));
        };
        let Ok(permit) = Arc::clone(self.watches()).try_acquire_owned() else {
            let mut error = ApiError::new(
                Reason::TooManyRequests,
                "too many logs are open, please try again later",
            );
            error.retry_after_seconds = Some(1);
            return Err(error);
        };
        let limit = wanted.limit_bytes;
        let lines = source.open(wanted).await.map_err(|error| match error {
            LogError::NotStarted { .. } | LogError::NoPrevious { .. } => {
                ApiError::new(Reason::BadRequest, error.to_string())
            }
            LogError::Read { .. } => ApiError::new(Reason::InternalError, error.to_string()),
        })?;
        let mut left = limit.unwrap_or(u64::MAX);
        let lines = lines
            .map(move |chunk| {
                let _held_while_open = &permit;
                chunk.map(|mut bytes| {
                    bytes.truncate(usize::try_from(left).unwrap_or(usize::MAX));
                    left = left.saturating_sub(bytes.len() as u64);
                    bytes
                })
            })
            .take_until(self.closing().clone().cancelled_owned());
        Ok(Answer::stream(
            HeaderValue::from_static("text/plain"),
            Body::from_stream(lines),
        ))
    }

    fn log_request(&self, call: &Call, pod: &Value) -> ApiResult<LogRequest> {
        let options = &call.options;
        let bad = |name: &str, value: &str| {
            ApiError::new(
                Reason::BadRequest,
                format!("invalid value {value:?} of the query option {name:?}"),
            )
        };
        let flag = |name: &str| matches!(options.value(name), Some("" | "1" | "true" | "True" | "TRUE"));
        let number = |name: &str| -> ApiResult<Option<u64>> {
            options
                .value(name)
                .map(|text| text.parse().map_err(|_not_a_number| bad(name, text)))
                .transpose()
        };
        let since = match (number("sinceSeconds")?, options.value("sinceTime")) {
            (Some(seconds), _) => {
                let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
                self.clock()
                    .now()
                    .checked_sub(SignedDuration::from_secs(seconds))
                    .ok()
            }
            (None, Some(text)) => Some(
                text.parse::<Timestamp>()
                    .map_err(|_not_a_time| bad("sinceTime", text))?,
            ),
            (None, None) => None,
        };
        Ok(LogRequest {
            namespace: call.namespace().to_owned(),
            pod: call.name().to_owned(),
            uid: object::uid(pod).to_owned(),
            container: container(call, pod, options.value("container").unwrap_or(""))?,
            follow: flag("follow"),
            previous: flag("previous"),
            timestamps: flag("timestamps"),
            since,
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
        })
    }

    /// Binds a Pod to a Node, once.
    pub(super) async fn pod_binding(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let manager = writes::manager(call, request.headers());
        let format = body_format(request.headers(), call.kind.custom)?;
        let body = super::super::read_body(self, request).await?;
        let binding = writes::decode(&body, format)?.value;
        if object::name(&binding) != call.name() {
            return Err(ApiError::new(
                Reason::BadRequest,
                "name in URL does not match name in Binding object",
            ));
        }
        let node = binding
            .pointer("/target/name")
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned();
        if node.is_empty() {
            return Err(ApiError::new(
                Reason::BadRequest,
                "target.name: Required value: a binding names its node",
            ));
        }
        let target = Target::new("", "v1", "Binding");
        let warnings = self.admit_subresource(call.creation(&manager), target, &binding)?;
        let (group, plural) = (call.kind.group.clone(), format!("{}/binding", call.kind.plural));
        let now = object::format_time(self.clock().now());
        let change: ChangeFn = Arc::new(move |pod: &mut Value| {
            let name = object::name(pod).to_owned();
            let conflict = |detail: &str| Err(ApiError::conflict(&group, &plural, &name, detail));
            if object::is_being_deleted(pod) {
                return conflict("pod is being deleted, cannot be assigned to a host");
            }
            let assigned = pod
                .pointer("/spec/nodeName")
                .and_then(Value::as_str)
                .unwrap_or("");
            if !assigned.is_empty() {
                let text = format!("pod {name} is already assigned to node {assigned:?}");
                return conflict(&text);
            }
            let Some(fields) = pod.as_object_mut() else {
                return conflict("the pod is no object");
            };
            if let Some(spec) = fields.entry("spec").or_insert_with(|| json!({})).as_object_mut() {
                spec.insert("nodeName".to_owned(), json!(node));
            }
            let status = fields.entry("status").or_insert_with(|| json!({}));
            if let Some(status) = status.as_object_mut()
                && let Some(conditions) = status
                    .entry("conditions")
                    .or_insert_with(|| json!([]))
                    .as_array_mut()
            {
                conditions.retain(|condition| {
                    condition.get("type").and_then(Value::as_str) != Some("PodScheduled")
                });
                conditions.push(json!({
                    "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
                }));
            }
            Ok(())
        });
        let write = WriteRequest {
            kind: Arc::clone(&call.kind),
            snapshot: Arc::clone(&call.snapshot),
            namespace: call.namespace().to_owned(),
            name: call.name().to_owned(),
            part: Part::Whole,
            intention: Intention::Change(change),
            manager,
            author: Some(call.identity.clone()),
            dry_run: call.options.dry_run == DryRun::All,
            field_validation: call.options.field_validation,
            decoding_findings: crate::strict::Findings::default(),
        };
        self.write(write).await?;
        Ok(success().with_warnings(warnings))
    }

    /// Deletes a Pod. Disruption budgets are stored and not enforced.
    pub(super) async fn pod_eviction(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let format = body_format(request.headers(), call.kind.custom)?;
        let manager = writes::manager(call, request.headers());
        let body = super::super::read_body(self, request).await?;
        let eviction = if body.is_empty() {
            Value::Null
        } else {
            writes::decode(&body, format)?.value
        };
        let options = DeleteOptions::parse(&call.options, eviction.get("deleteOptions"))?;
        let target = Target::new("policy", "v1", "Eviction");
        // The eviction is judged; the deletion that it leads to is the server's own.
        let warnings = self.admit_subresource(call.creation(&manager), target, &eviction)?;
        self.delete(&call.view(), &call.key(), &options).await?;
        Ok(success().with_warnings(warnings))
    }
}

/// The container whose log is meant: the one named, or the only one.
fn container(call: &Call, pod: &Value, wanted: &str) -> ApiResult<String> {
    let names = |field: &str| -> Vec<String> {
        pod.pointer(&format!("/spec/{field}"))
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|container| container.get("name").and_then(Value::as_str).map(str::to_owned))
            .collect()
    };
    let containers = names("containers");
    let init = names("initContainers");
    if wanted.is_empty() {
        return match containers.as_slice() {
            [only] => Ok(only.clone()),
            _ => Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    call.name(),
                    containers
                        .iter()
                        .chain(&init)
                        .cloned()
                        .collect::<Vec<_>>()
                        .join(" ")
                ),
            )),
        };
    }
    if containers.iter().chain(&init).any(|name| name == wanted) {
        return Ok(wanted.to_owned());
    }
    Err(ApiError::new(
        Reason::BadRequest,
        format!("container {wanted} is not valid for pod {}", call.name()),
    ))
}
