//! Calls over HTTP: one invocation, its attempts, and its result (C.3…C.5). `http` handlers and the
//! operations of `openapi` handlers differ in how the request is shaped, and in nothing else.

pub(crate) mod credentials;
pub(crate) mod headers;
pub(crate) mod mapping;
pub(crate) mod response;
pub(crate) mod shaping;
mod text_form;

#[cfg(test)]
pub(crate) mod tests;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use mainstay_workload::{ConnectError, OutboundRequest, retry_after};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::time::Instant;

use self::{credentials::CredentialSources, shaping::Shaped};
pub(crate) use self::{
    response::{BODY_LIMIT, ERROR_BODY_BYTES, conceal, conceal_within, quoted},
    text_form::text_form,
};
use crate::{
    breaker::Verdict,
    config::{AuthConfig, HandlerConfig, HttpConfig, RetryPolicy},
    executor::{CallContext, Called, Executor, Failure},
    invocation::FailureReason,
    openapi::Call,
    preview::Preview,
    retry::{Again, Attempts, Failed, HttpFault, cancelled, over_http},
};

/// One tool that is called over HTTP.
#[derive(Debug)]
pub(crate) struct HttpTool {
    config: HttpConfig,
    // Shapes the request in place of `config` (OM-430).
    operation: Option<Call>,
    auth: Option<AuthConfig>,
    secret_headers: BTreeMap<String, String>,
    delegation: bool,
    timeout: Duration,
}

impl HttpTool {
    /// The tool of a handler whose `http` block is `config`.
    pub(crate) fn new(handler: &HandlerConfig, config: &HttpConfig) -> Self {
        Self {
            config: config.clone(),
            operation: None,
            auth: handler.auth.clone(),
            secret_headers: handler.secret_headers.clone(),
            delegation: handler.delegation,
            timeout: handler.timeout,
        }
    }

    /// One operation of a described service; `config` has its method, headers and retries.
    pub(crate) fn operation(handler: &HandlerConfig, config: HttpConfig, operation: Call) -> Self {
        Self {
            operation: Some(operation),
            ..Self::new(handler, &config)
        }
    }

    /// Whether the call may be sent again after a crash: the method changes nothing.
    pub(crate) fn is_repeat_safe(&self) -> bool {
        ["GET", "HEAD"]
            .iter()
            .any(|method| self.config.method.eq_ignore_ascii_case(method))
    }

    fn shape(&self, arguments: &Map<String, Value>) -> Result<Shaped, shaping::ShapeError> {
        match &self.operation {
            Some(operation) => operation.shape(arguments),
            None => shaping::shape(&self.config, arguments),
        }
    }
}

#[async_trait]
impl Executor for HttpTool {
    fn check(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        match &self.operation {
            Some(operation) => operation.check(arguments),
            None => Ok(()),
        }
    }

    async fn preview(
        &self,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<Preview, Failure> {
        let shaped = self.shape(arguments).map_err(|error| Failure {
            reason: FailureReason::RequestInvalid,
            message: error.to_string(),
        })?;
        let (headers, secrets) = self
            .headers(context, &shaped)
            .await
            .map_err(|failed| failed.failure)?;
        let Shaped {
            method, url, body, ..
        } = shaped;
        Ok(Preview::of_http(
            &method,
            &url,
            &headers,
            body.as_deref(),
            &secrets,
        ))
    }

    async fn call(&self, context: &CallContext<'_>, arguments: &Map<String, Value>) -> Called {
        let shaped = match self.shape(arguments) {
            Ok(shaped) => shaped,
            Err(error) => {
                return Called {
                    result: Err(Failure {
                        reason: FailureReason::RequestInvalid,
                        message: error.to_string(),
                    }),
                    attempts: 0,
                    status: None,
                    verdict: Verdict::Unknown,
                };
            }
        };
        // Written by the attempt that is under way, read after it ended or was cancelled.
        let sent = AtomicU32::new(0);
        let mut status = None;
        let policy = self.config.retry_policy.as_ref();
        let mut attempts = Attempts::new(policy.map(RetryPolicy::backoff), context);
        let result = loop {
            let attempt = self.attempt(context, &shaped, &sent, &mut status);
            let failed = match context.cancel.run_until_cancelled(attempt).await {
                None => break Err(cancelled()),
                Some(Ok(value)) => break Ok(value),
                Some(Err(failed)) => failed,
            };
            if let Err(last) = attempts.another(failed).await {
                break Err(last);
            }
        };
        Called {
            verdict: verdict(&result, status),
            result,
            attempts: sent.into_inner(),
            status,
        }
    }
}

impl HttpTool {
    async fn attempt(
        &self,
        context: &CallContext<'_>,
        shaped: &Shaped,
        sent: &AtomicU32,
        status: &mut Option<u16>,
    ) -> Result<Value, Failed> {
        // Read anew, so that a rotated credential is used by the next attempt (OM-397).
        *status = None;
        let ends = Instant::now() + self.timeout;
        let (headers, secrets) = in_time(self.timeout, ends, self.headers(context, shaped)).await?;
        sent.fetch_add(1, Ordering::Relaxed);
        let answer = context
            .transport
            .exchange(
                OutboundRequest {
                    method: shaped.method.clone(),
                    url: shaped.url.clone(),
                    headers,
                    body: shaped.body.clone(),
                    deadline: ends.saturating_duration_since(Instant::now()),
                },
                BODY_LIMIT,
            )
            .await
            .map_err(|error| self.not_answered(&error))?;
        *status = Some(answer.status.as_u16());
        let fault = HttpFault::Status {
            code: answer.status.as_u16(),
            retry_after: answer
                .headers
                .get(header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok())
                .and_then(|value| retry_after::parse(value, context.clock.now())),
        };
        let (body, cut) = match answer.body {
            Ok(body) => body,
            // The status of an error decides also without its body; a success without it is none.
            Err(_) if !answer.status.is_success() => (bytes::Bytes::new(), true),
            Err(error) => {
                let failed = self.not_answered(&error);
                return Err(Failed {
                    again: Again::Never,
                    ..failed
                });
            }
        };
        response::shape(&self.config, answer.status, &body, cut, &secrets).map_err(|error| Failed {
            again: if error.reason == FailureReason::HttpStatus {
                over_http(self.config.retry_policy.as_ref(), fault)
            } else {
                Again::Never
            },
            failure: Failure {
                reason: error.reason,
                message: error.message,
            },
        })
    }

    async fn headers(
        &self,
        context: &CallContext<'_>,
        shaped: &Shaped,
    ) -> Result<(HeaderMap, Vec<SecretString>), Failed> {
        let signed = signed(self.delegation, context).await?;
        let mut hidden = Vec::new();
        let Identity {
            secret,
            credential,
            delegation,
        } = identity(
            &self.secret_headers,
            self.auth.as_ref(),
            signed,
            context.credentials,
            &mut hidden,
        )
        .await?;
        let headers = headers::assemble(headers::Sources {
            content_type: shaped.body.as_ref().map(|_| shaped.content_type.as_str()),
            fixed: Some(&self.config.headers),
            secret,
            credential,
            propagated: Some(context.propagated),
            delegation,
            injected: Some(context.injected),
            from_arguments: &shaped.headers,
        })
        .map_err(|error| Failed::never(FailureReason::RequestInvalid, error))?;
        Ok((headers, hidden))
    }

    fn not_answered(&self, error: &ConnectError) -> Failed {
        Failed {
            failure: Failure {
                reason: unanswered(error),
                message: match error {
                    // What was left of the time is an accident; the limit is what the author knows.
                    ConnectError::TimedOut { .. } => {
                        ConnectError::TimedOut { after: self.timeout }.to_string()
                    }
                    error => error.to_string(),
                },
            },
            again: if error.is_network() {
                over_http(self.config.retry_policy.as_ref(), HttpFault::Network)
            } else {
                Again::Never
            },
        }
    }
}

/// Who a request says that it is from and for.
pub(crate) struct Identity<'a> {
    /// The headers whose values are mounted (OM-404).
    pub(crate) secret: Vec<(&'a str, HeaderValue)>,
    /// The header of the handler's `auth`.
    pub(crate) credential: Option<(HeaderName, HeaderValue)>,
    /// The signed statement of who is behind the call.
    pub(crate) delegation: Option<HeaderValue>,
}

/// The identity of one request, made anew so that a rotated credential is used (OM-397). `signed` is what [`signed`] made. What
/// must not come back is added to `hidden`.
pub(crate) async fn identity<'a>(
    secret_headers: &'a BTreeMap<String, String>,
    auth: Option<&AuthConfig>,
    signed: Option<(HeaderValue, SecretString)>,
    sources: &CredentialSources,
    hidden: &mut Vec<SecretString>,
) -> Result<Identity<'a>, Failed> {
    let unavailable = |error| Failed::never(FailureReason::CredentialUnavailable, error);
    let mut secret = Vec::new();
    for (name, file) in secret_headers {
        let (value, text) = credentials::secret_header(file, &sources.files)
            .await
            .map_err(unavailable)?;
        hidden.push(text);
        secret.push((name.as_str(), value));
    }
    let credential = credentials::authorization(auth, sources)
        .await
        .map_err(unavailable)?
        .map(|header| {
            hidden.extend(header.hidden);
            (header.name, header.value)
        });
    let delegation = signed.map(|(value, text)| {
        hidden.push(text);
        value
    });
    Ok(Identity {
        secret,
        credential,
        delegation,
    })
}

/// The statement of who is behind the call, where the handler sends one (OM-410): as a header and as the text that must not come
/// back.
pub(crate) async fn signed(
    delegates: bool,
    context: &CallContext<'_>,
) -> Result<Option<(HeaderValue, SecretString)>, Failed> {
    if !delegates {
        return Ok(None);
    }
    let signed = context.delegation.header().await;
    signed
        .map(Some)
        .map_err(|error| Failed::never(FailureReason::CredentialUnavailable, error))
}

/// What an attempt carries, within the attempt's own time: a token service that does not answer must not hold a call beyond its
/// limit. The backend is not to blame for it.
pub(crate) async fn in_time<T>(
    timeout: Duration,
    ends: Instant,
    made: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let made = tokio::time::timeout_at(ends, made).await;
    made.unwrap_or_else(|_| {
        Err(Failed::never(
            FailureReason::CredentialUnavailable,
            format!("the handler's credential was not there within {timeout:?}; the call is refused"),
        ))
    })
}

/// OM-373: a backend that answers works, whatever it answers, but with a fault of its own. One that has no session to give does
/// not.
pub(crate) fn verdict(result: &Result<Value, Failure>, status: Option<u16>) -> Verdict {
    match result {
        Ok(_) => Verdict::Works,
        Err(failure) => match failure.reason {
            FailureReason::NetworkError | FailureReason::TimedOut => Verdict::Fails,
            FailureReason::HttpStatus if status.is_some_and(|status| status >= 500) => Verdict::Fails,
            FailureReason::HttpStatus
            | FailureReason::ProtocolError
            | FailureReason::ToolError
            | FailureReason::ResponseInvalid => Verdict::Works,
            _ => Verdict::Unknown,
        },
    }
}

/// Why no answer arrived, in a record's word.
pub(crate) fn unanswered(error: &ConnectError) -> FailureReason {
    match error {
        ConnectError::TimedOut { .. } => FailureReason::TimedOut,
        ConnectError::AddressRefused { .. } => FailureReason::AddressRefused,
        error if error.is_network() => FailureReason::NetworkError,
        _ => FailureReason::RequestInvalid,
    }
}
