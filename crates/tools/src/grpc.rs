//! Calls by the Tool protocol (C.7, OM-415…OM-417): one unary `Execute` for each attempt, over a connection that is made
//! by the first call and kept.
//!
//! [`protocol`] is generated from `api/proto/tools/v1/tools.proto`.

mod channel;
// Neither formatted nor linted: `cargo run -p xtask -- generate` writes it.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod protocol;
mod status;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue};
use mainstay_workload::{ConnectError, Connector, FileRoot};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tonic::{Code, Request, metadata::MetadataMap};

use self::{
    channel::ToolChannel,
    protocol::{ToolRequest, ToolResponse, tool_service_client::ToolServiceClient},
    status::Fault,
};
use crate::{
    breaker::Verdict,
    config::{AuthConfig, GrpcConfig, GrpcRetryPolicy, HandlerConfig},
    executor::{CallContext, Called, Executor, Failure},
    http::{Identity, conceal, conceal_within, headers, identity, in_time, quoted, signed},
    invocation::FailureReason,
    preview::Preview,
    retry::{Again, Attempts, Failed, cancelled},
};

/// The procedure that every call is.
const PROCEDURE: &str = "/omnia.tools.v1.ToolService/Execute";

/// Most bytes of one message, in either direction.
const MESSAGE_LIMIT: usize = 10 * 1024 * 1024;

/// Most bytes of an error's text that the model is told.
const ERROR_BYTES: usize = 4 * 1024;

/// One tool of a backend that speaks the Tool protocol.
#[derive(Debug)]
pub(crate) struct GrpcTool {
    tool: String,
    auth: Option<AuthConfig>,
    delegation: bool,
    timeout: Duration,
    retry_policy: Option<GrpcRetryPolicy>,
    channel: ToolChannel,
}

impl GrpcTool {
    /// The tool `tool` of a handler whose `grpc` block is `config`. Nothing is dialled before the first call.
    ///
    /// # Errors
    /// What is wrong with the endpoint.
    pub(crate) fn new(
        handler: &HandlerConfig,
        config: &GrpcConfig,
        tool: &str,
        connector: Connector,
        files: FileRoot,
    ) -> Result<Self, String> {
        Ok(Self {
            tool: tool.to_owned(),
            auth: handler.auth.clone(),
            delegation: handler.delegation,
            timeout: handler.timeout,
            retry_policy: config.retry_policy.clone(),
            channel: ToolChannel::new(config, connector, files)?,
        })
    }
}

#[async_trait]
impl Executor for GrpcTool {
    async fn preview(
        &self,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<Preview, Failure> {
        let (metadata, secrets) = self.metadata(context).await.map_err(|failed| failed.failure)?;
        // Masked before they become the text that is sent: what is secret among them is known by its name.
        let message = json!({"tool_name": self.tool, "arguments_json": arguments});
        let mut preview = Preview::of_procedure(
            PROCEDURE,
            self.channel.url(),
            &metadata.into_headers(),
            &message,
            &secrets,
        );
        let shown = preview
            .body
            .as_mut()
            .and_then(|body| body.get_mut("arguments_json"));
        if let Some(shown) = shown {
            *shown = Value::from(shown.to_string());
        }
        Ok(preview)
    }

    async fn call(&self, context: &CallContext<'_>, arguments: &Map<String, Value>) -> Called {
        // Built once; every attempt sends the same message (OM-399).
        let request = self.request(arguments);
        // Written by the attempt that is under way, read after it ended or was cancelled.
        let sent = AtomicU32::new(0);
        let mut verdict = Verdict::Unknown;
        let backoff = self.retry_policy.as_ref().map(GrpcRetryPolicy::backoff);
        let mut attempts = Attempts::new(backoff, context);
        let result = loop {
            let attempt = self.attempt(context, &request, &sent, &mut verdict);
            let failed = match context.cancel.run_until_cancelled(attempt).await {
                None => {
                    verdict = Verdict::Unknown;
                    break Err(cancelled());
                }
                Some(Ok(value)) => break Ok(value),
                Some(Err(failed)) => failed,
            };
            if let Err(last) = attempts.another(failed).await {
                break Err(last);
            }
        };
        Called {
            result,
            attempts: sent.into_inner(),
            status: None,
            verdict,
        }
    }
}

impl GrpcTool {
    fn request(&self, arguments: &Map<String, Value>) -> ToolRequest {
        ToolRequest {
            tool_name: self.tool.clone(),
            arguments_json: Value::Object(arguments.clone()).to_string(),
            metadata: HashMap::new(),
        }
    }

    async fn attempt(
        &self,
        context: &CallContext<'_>,
        request: &ToolRequest,
        sent: &AtomicU32,
        verdict: &mut Verdict,
    ) -> Result<Value, Failed> {
        *verdict = Verdict::Unknown;
        // Read anew, so that a rotated credential is used by the next attempt (OM-397).
        let ends = Instant::now() + self.timeout;
        let (metadata, secrets) = in_time(self.timeout, ends, self.metadata(context)).await?;
        sent.fetch_add(1, Ordering::Relaxed);
        match self.exchange(metadata, request, ends).await {
            Ok(response) => {
                *verdict = Verdict::Works;
                result(response, &secrets)
            }
            Err(fault) => {
                *verdict = fault.verdict();
                Err(self.failed(fault, &secrets))
            }
        }
    }

    async fn exchange(
        &self,
        metadata: MetadataMap,
        request: &ToolRequest,
        ends: Instant,
    ) -> Result<ToolResponse, Fault> {
        let mut client = ToolServiceClient::new(self.channel.get())
            .max_decoding_message_size(MESSAGE_LIMIT)
            .max_encoding_message_size(MESSAGE_LIMIT);
        let mut request = Request::new(request.clone());
        *request.metadata_mut() = metadata;
        // Told to the backend too, which need not go on with what nobody waits for.
        request.set_timeout(self.timeout);
        let answered = tokio::time::timeout_at(ends, client.execute(request)).await;
        match answered {
            Ok(Ok(response)) => Ok(response.into_inner()),
            // The client's own timer for `grpc-timeout` may be the first of two that end together.
            Ok(Err(status)) if status.code() == Code::Cancelled && Instant::now() >= ends => {
                Err(self.timed_out())
            }
            Ok(Err(status)) => Err(Fault::of(&status)),
            Err(_) => Err(self.timed_out()),
        }
    }

    /// The attempt's own limit counts as `DEADLINE_EXCEEDED` (OM-395).
    fn timed_out(&self) -> Fault {
        // A peer that went away without a word would take the next attempts with it.
        self.channel.discard();
        let after = self.timeout;
        Fault {
            code: Some(Code::DeadlineExceeded),
            reason: FailureReason::TimedOut,
            message: ConnectError::TimedOut { after }.to_string(),
        }
    }

    fn failed(&self, fault: Fault, secrets: &[SecretString]) -> Failed {
        let listed = |code: Code| {
            let policy = self.retry_policy.as_ref()?;
            policy
                .retryable_status_codes
                .iter()
                .any(|name| name == status::name(code))
                .then_some(Again::After(Duration::ZERO))
        };
        Failed {
            again: fault.code.and_then(listed).unwrap_or(Again::Never),
            ..Failed::never(
                fault.reason,
                quoted(&conceal(fault.message, secrets), ERROR_BYTES),
            )
        }
    }

    /// The request's metadata, and the texts that must not come back.
    async fn metadata(&self, context: &CallContext<'_>) -> Result<(MetadataMap, Vec<SecretString>), Failed> {
        let mut hidden = Vec::new();
        let signed = signed(self.delegation, context).await?;
        let mounted = BTreeMap::new();
        let Identity {
            credential,
            delegation,
            ..
        } = identity(
            &mounted,
            self.auth.as_ref(),
            signed,
            context.credentials,
            &mut hidden,
        )
        .await?;
        // What is sent as an extra is left out where gRPC cannot carry it; everything else is an error then.
        let propagated = context
            .propagated
            .iter()
            .filter(|(name, value)| is_metadata(name, value.as_bytes()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let headers = headers::assemble(headers::Sources {
            credential,
            propagated: Some(&propagated),
            delegation,
            injected: Some(context.injected),
            ..headers::Sources::default()
        })
        .and_then(as_metadata)
        .map_err(|error| Failed::never(FailureReason::RequestInvalid, error))?;
        Ok((MetadataMap::from_headers(headers), hidden))
    }
}

fn as_metadata(headers: HeaderMap) -> Result<HeaderMap, headers::HeaderError> {
    let refused = |(name, value): (&HeaderName, &HeaderValue)| {
        (!is_metadata(name.as_str(), value.as_bytes())).then(|| name.to_string())
    };
    match headers.iter().find_map(refused) {
        Some(name) => Err(headers::HeaderError::NotSendable(name)),
        None => Ok(headers),
    }
}

/// Whether gRPC carries this as a caller's metadata: printable ASCII under a name that is not its own. Names ending in
/// `-bin` have binary values.
fn is_metadata(name: &str, value: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let reserved = name.starts_with("grpc-") || matches!(name.as_str(), "content-type" | "user-agent");
    !reserved && !name.ends_with("-bin") && value.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

/// OM-416.
fn result(response: ToolResponse, secrets: &[SecretString]) -> Result<Value, Failed> {
    if response.is_error {
        let message = quoted(&conceal(response.error_message, secrets), ERROR_BYTES);
        // Never made again, whatever the policy says (OM-395, V-67).
        return Err(Failed::never(
            FailureReason::ToolError,
            format!("tool error: {message}"),
        ));
    }
    if response.result_json.is_empty() {
        return Ok(Value::Null);
    }
    Ok(match serde_json::from_str::<Value>(&response.result_json) {
        Ok(mut value) => {
            conceal_within(&mut value, secrets);
            value
        }
        // As an answer over HTTP that is not JSON (OM-388).
        Err(_) => json!({ "result": conceal(response.result_json, secrets) }),
    })
}
