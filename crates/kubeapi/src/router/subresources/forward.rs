//! `pods/portforward`, and why `pods/exec` and `pods/attach` are refused. Requirement KA-052.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts as _, Request, ws::WebSocketUpgrade},
    http::request::Parts,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use mainstay_telemetry::task;
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::super::dispatch::Call;
use crate::{
    answer::Answer,
    api::Api,
    authorization::{Attributes, ResourceAttributes},
    forward::{self, Coding, Forward},
    object,
    request::Verb,
    status::{ApiError, ApiResult, Cause, Reason},
};

/// The one protocol of port-forwards.
const PROTOCOL: &str = "portforward.k8s.io";
const SPDY: &str = "SPDY/3.1";
/// The sub-protocols of a WebSocket: SPDY inside, and channels, in the order of preference.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const CHANNELS: &str = "v4.channel.k8s.io";
const CHANNELS_BASE64: &str = "v4.base64.channel.k8s.io";
const PROTOCOL_HEADER: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// How many ports a client with channels may name.
const PORTS: usize = 64;
/// How long a client may take to take over the connection that it asked for.
const TAKING_OVER: Duration = Duration::from_secs(30);

impl Api {
    /// A Pod that is to be reached: its user may, it is there, and it runs.
    fn reached(&self, call: &Call) -> ApiResult<Value> {
        // A browser's WebSocket begins with a GET, and who may only read must not get in by that. The reference asks for
        // both verbs since 1.35.
        if call.verb != Verb::Create {
            self.demand(
                &call.identity,
                &Attributes::Resource(ResourceAttributes {
                    verb: Verb::Create.as_str().to_owned(),
                    group: call.kind.group.clone(),
                    resource: call.kind.plural.clone(),
                    subresource: call.path.subresource.clone(),
                    namespace: call.namespace().to_owned(),
                    name: call.name().to_owned(),
                }),
            )?;
        }
        let pod = self.pod(call)?;
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or("");
        if text("/spec/nodeName").is_empty() {
            let message = format!("pod {} does not have a host assigned", call.name());
            return Err(ApiError::new(Reason::BadRequest, message));
        }
        match text("/status/phase") {
            "Running" => Ok(pod),
            phase => Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "pod {} is not running: its phase is {}, and `kubectl describe pod {}` says why",
                    call.name(),
                    if phase.is_empty() { "Pending" } else { phase },
                    call.name()
                ),
            )),
        }
    }

    pub(super) async fn pod_port_forward(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let pod = self.reached(call)?;
        let Some(dialer) = self.dialer() else {
            return Err(ApiError::new(Reason::NotFound, "the server runs no pods"));
        };
        let Ok(permit) = Arc::clone(self.forwards()).try_acquire_owned() else {
            let mut error = ApiError::new(
                Reason::TooManyRequests,
                "too many port-forwards are open, please try again later",
            );
            error.retry_after_seconds = Some(1);
            return Err(error);
        };
        let forward = Forward {
            namespace: call.namespace().to_owned(),
            pod: call.name().to_owned(),
            uid: object::uid(&pod).to_owned(),
            dialer: Arc::clone(dialer),
            bounds: forward::Bounds::default(),
            closing: self.closing().clone(),
        };
        let (parts, _no_body) = request.into_parts();
        if names(&parts.headers, &header::UPGRADE, "websocket") {
            websocket(forward, permit, call, parts).await
        } else {
            spdy(forward, permit, parts)
        }
    }

    /// Refuses what needs a program inside a Pod: the Pods of the local node are roles of this program.
    pub(super) fn pod_process(&self, call: &Call) -> ApiResult<Answer> {
        self.reached(call)?;
        let (what, reason) = match call.path.subresource.as_str() {
            "attach" => ("nothing can be attached to", "AttachNotServed"),
            _ => ("no command can be run in", "ExecNotServed"),
        };
        let name = call.name();
        let message = format!(
            "{what} pod {name}: it is a part of the mainstay program, without a terminal, a shell or files of its own; \
             use `kubectl logs {name}` for what it writes, `kubectl port-forward pod/{name} :PORT` for its ports, or \
             `kubectl get pod {name} -o yaml` for what it was given"
        );
        let mut error = ApiError::new(Reason::MethodNotAllowed, message.clone());
        error.name = name.to_owned();
        error.kind = call.kind.plural.clone();
        error.causes.push(Cause {
            reason: reason.to_owned(),
            message,
            field: String::new(),
        });
        Err(error)
    }
}

/// Whether one of the values in a header that is a list is `wanted`.
fn names(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    values(headers, name).any(|value| value.eq_ignore_ascii_case(wanted))
}

fn values<'headers>(headers: &'headers HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'headers str> {
    headers
        .get_all(name)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|value| !value.is_empty())
}

fn refused(message: impl Into<String>) -> Box<ApiError> {
    ApiError::new(Reason::BadRequest, message)
}

/// Takes a connection over for SPDY.
fn spdy(forward: Forward, permit: OwnedSemaphorePermit, mut parts: Parts) -> ApiResult<Answer> {
    let headers = &parts.headers;
    if !names(headers, &header::CONNECTION, "upgrade") || !names(headers, &header::UPGRADE, SPDY) {
        return Err(refused("Upgrade request required"));
    }
    let wanted: Vec<&str> = values(headers, &PROTOCOL_HEADER).collect();
    if wanted.is_empty() {
        return Err(refused(format!(
            "unable to upgrade: the request names no protocol in X-Stream-Protocol-Version; the server accepts {PROTOCOL}"
        )));
    }
    if !wanted.contains(&PROTOCOL) {
        let message = format!(
            "unable to upgrade: unable to negotiate protocol: client supports {wanted:?}, server accepts [{PROTOCOL:?}]"
        );
        return Err(ApiError::new(Reason::Forbidden, message));
    }
    let Some(upgrade) = parts.extensions.remove::<OnUpgrade>() else {
        return Err(refused(
            "unable to upgrade: this connection cannot be taken over; use HTTP/1.1",
        ));
    };
    task::spawn("port-forward", async move {
        let _held_while_open = permit;
        match tokio::time::timeout(TAKING_OVER, upgrade).await {
            Ok(Ok(upgraded)) => forward.over_spdy(TokioIo::new(upgraded)).await,
            Ok(Err(error)) => tracing::debug!(%error, "a client went before it was answered"),
            Err(_elapsed) => tracing::debug!("a client did not take its connection over"),
        }
    });
    let mut headers = HeaderMap::new();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(SPDY));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    Ok(Answer::bare(StatusCode::SWITCHING_PROTOCOLS, headers))
}

/// Takes a connection over as a WebSocket.
async fn websocket(
    forward: Forward,
    permit: OwnedSemaphorePermit,
    call: &Call,
    mut parts: Parts,
) -> ApiResult<Answer> {
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &())
        .await
        .map_err(|rejection| refused(format!("unable to upgrade: {}", rejection.body_text())))?
        .max_message_size(forward::MESSAGE)
        .max_frame_size(forward::MESSAGE);
    let asked = upgrade.requested_protocols().count();
    let upgrade = upgrade.protocols([TUNNEL, CHANNELS, CHANNELS_BASE64]);
    let chosen = upgrade
        .selected_protocol()
        .and_then(|protocol| protocol.to_str().ok())
        .map(str::to_owned);
    let coding = match chosen.as_deref() {
        Some(TUNNEL) => None,
        Some(CHANNELS_BASE64) => Some(Coding::Base64),
        // Who names none gets channels, as with the reference.
        None if asked > 0 => {
            return Err(refused(format!(
                "unable to upgrade: none of the client's sub-protocols is served; the server accepts {TUNNEL}, {CHANNELS} and \
                 {CHANNELS_BASE64}"
            )));
        }
        _ => Some(Coding::Binary),
    };
    let ports = match coding {
        Some(_) => ports(call)?,
        None => Vec::new(),
    };
    let response = upgrade.on_upgrade(move |socket| async move {
        let _held_while_open = permit;
        match coding {
            None => forward.over_tunnel(socket).await,
            Some(coding) => forward.over_channels(socket, &ports, coding).await,
        }
    });
    let (parts, _empty) = response.into_parts();
    Ok(Answer::bare(parts.status, parts.headers))
}

/// The ports that a client with channels asks for: `ports=80,81` and `ports=80&ports=81`.
fn ports(call: &Call) -> ApiResult<Vec<u16>> {
    let mut ports = Vec::new();
    let asked = call.options.pairs.iter().filter(|(name, _)| name == "ports");
    for text in asked.flat_map(|(_, value)| value.split(',')) {
        let port: u16 = text
            .trim()
            .parse()
            .map_err(|error| refused(format!("unable to parse {text:?} as a port: {error}")))?;
        if port == 0 {
            return Err(refused(format!("port {text:?} must be > 0")));
        }
        ports.push(port);
    }
    match ports.len() {
        0 => Err(refused("query parameter \"ports\" is required")),
        1..=PORTS => Ok(ports),
        many => Err(refused(format!(
            "query parameter \"ports\" has {many} ports: at most {PORTS} are forwarded at a time"
        ))),
    }
}
