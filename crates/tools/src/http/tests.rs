// Time is paused in every test here: a sleep takes none, it only says when something happens.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use mainstay_telemetry::{
    clock::{ManualClock, SharedClock},
    random::{SeededRandom, SharedRandom},
};
use mainstay_workload::{FileRoot, address};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    config::{AuthType, HandlerType, RetryPolicy},
    delegation::{Delegation, DelegationError, DelegationRequest, DelegationSigner},
    http::credentials::CredentialSources,
    token::AzureIdentity,
    transport::{Exchange, Transport},
};

/// What the backend does with one request.
#[derive(Clone)]
pub(crate) enum Reply {
    Answer(u16, &'static str),
    AnswerWith(u16, &'static str, &'static str),
    /// The connection is refused.
    Refuse,
    /// No answer before the deadline.
    Silence,
    /// The status arrives, the body does not.
    BrokenBody(u16),
}

/// A backend that follows a script and repeats its last reply.
#[derive(Clone, Default)]
pub(crate) struct Backend {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<(Instant, OutboundRequest)>>>,
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Backend")
    }
}

impl Backend {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: Arc::new(Mutex::new(replies.into_iter().collect())),
            seen: Arc::default(),
        }
    }

    pub(crate) fn requests(&self) -> Vec<OutboundRequest> {
        self.seen
            .lock()
            .unwrap()
            .iter()
            .map(|(_, request)| request.clone())
            .collect()
    }

    pub(crate) fn waits(&self) -> Vec<Duration> {
        self.seen
            .lock()
            .unwrap()
            .windows(2)
            .map(|pair| pair[1].0 - pair[0].0)
            .collect()
    }
}

fn network(cause: &str) -> ConnectError {
    ConnectError::Network {
        host: "h".to_owned(),
        cause: cause.to_owned(),
    }
}

#[async_trait]
impl Transport for Backend {
    async fn exchange(&self, request: OutboundRequest, _body_limit: usize) -> Result<Exchange, ConnectError> {
        let deadline = request.deadline;
        self.seen.lock().unwrap().push((Instant::now(), request));
        let reply = {
            let mut replies = self.replies.lock().unwrap();
            if replies.len() > 1 {
                replies.pop_front().unwrap()
            } else {
                replies[0].clone()
            }
        };
        let answer = |status: u16, body: &'static str| Exchange {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::new(),
            body: Ok((Bytes::from_static(body.as_bytes()), false)),
        };
        match reply {
            Reply::Answer(status, body) => Ok(answer(status, body)),
            Reply::AnswerWith(status, retry_after, body) => {
                let mut answer = answer(status, body);
                answer
                    .headers
                    .insert(header::RETRY_AFTER, retry_after.parse().unwrap());
                Ok(answer)
            }
            Reply::Refuse => Err(network("connection refused")),
            Reply::Silence => {
                tokio::time::sleep(deadline).await;
                Err(ConnectError::TimedOut { after: deadline })
            }
            Reply::BrokenBody(status) => Ok(Exchange {
                body: Err(network("connection reset")),
                ..answer(status, "")
            }),
        }
    }
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        initial_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_millis(300),
        ..RetryPolicy::new(4)
    }
}

fn handler(policy: Option<RetryPolicy>) -> HandlerConfig {
    let mut http = HttpConfig::new("http://h/");
    http.retry_policy = policy;
    let mut handler = HandlerConfig::new("h", HandlerType::Http);
    handler.http = Some(http);
    handler
}

/// The credentials of a workload without a cloud identity.
pub(crate) fn sources(files: FileRoot) -> CredentialSources {
    let cloud = AzureIdentity::new(
        &BTreeMap::new(),
        files.clone(),
        Arc::new(Backend::default()),
        ManualClock::at(Timestamp::UNIX_EPOCH),
    );
    CredentialSources {
        files,
        cloud: Arc::new(cloud),
    }
}

/// Nobody signs.
pub(crate) fn undelegated() -> Delegation<'static> {
    Delegation {
        signer: None,
        request: DelegationRequest::default(),
    }
}

async fn call_with(handler: &HandlerConfig, backend: &Backend, cancel: &CancellationToken) -> Called {
    let tool = HttpTool::new(handler, handler.http.as_ref().unwrap());
    let clock: SharedClock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let random: SharedRandom = SeededRandom::new(7);
    let context = CallContext {
        transport: backend,
        credentials: &sources(FileRoot::at("/nowhere")),
        clock: &clock,
        random: &random,
        propagated: &BTreeMap::new(),
        injected: &BTreeMap::new(),
        delegation: &undelegated(),
        cancel,
    };
    tool.call(&context, json!({"id": 7}).as_object().unwrap()).await
}

async fn call(policy: Option<RetryPolicy>, backend: &Backend) -> Called {
    call_with(&handler(policy), backend, &CancellationToken::new()).await
}

fn message(result: &Called) -> &str {
    &result.result.as_ref().unwrap_err().message
}

fn assert_waits(backend: &Backend, expected: &[(u64, u64)]) {
    let waits = backend.waits();
    assert_eq!(waits.len(), expected.len(), "{waits:?}");
    for (wait, (low, high)) in waits.iter().zip(expected) {
        // Timers end on whole milliseconds.
        let range = Duration::from_millis(*low)..=Duration::from_millis(high + 1);
        assert!(range.contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_backend_is_asked_four_times_with_growing_waits_v_60_om_392() {
    let backend = Backend::new([Reply::Answer(503, "busy")]);
    let result = call(Some(policy()), &backend).await;
    assert_waits(&backend, &[(90, 110), (180, 220), (270, 300)]);
    assert_eq!(result.attempts, 4);
    assert_eq!(message(&result), "failed after 4 attempts: HTTP 503: busy");
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_capped_v_61() {
    let backend = Backend::new([Reply::AnswerWith(503, "120", "busy")]);
    call(Some(policy()), &backend).await;
    assert_waits(&backend, &[(300, 300), (300, 300), (300, 300)]);
}

/// A turn ends a call by dropping its future, at two minutes and the longest timeout of its handlers.
#[tokio::test(start_paused = true)]
async fn waits_for_a_busy_backend_end_with_the_turn_om_369_om_394() {
    let patient = RetryPolicy::new(10);
    assert_eq!(patient.max_backoff, Duration::from_secs(30));
    let backend = Backend::new([Reply::AnswerWith(503, "3600", "busy")]);
    let ceiling = Duration::from_secs(120 + 5);
    let ended = tokio::time::timeout(ceiling, call(Some(patient), &backend)).await;
    assert!(ended.is_err());
    assert_eq!(backend.requests().len(), 5, "one at once, then one every 30 s");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_not_listed_ends_the_call_v_62() {
    let backend = Backend::new([Reply::Answer(404, "gone")]);
    let result = call(Some(policy()), &backend).await;
    assert_eq!((result.attempts, result.status), (1, Some(404)));
    assert_eq!(message(&result), "HTTP 404: gone");
}

#[tokio::test(start_paused = true)]
async fn an_empty_retry_on_leaves_network_errors_v_63() {
    let none = RetryPolicy {
        retry_on: vec![],
        ..policy()
    };
    let backend = Backend::new([Reply::Answer(503, "busy")]);
    assert_eq!(call(Some(none.clone()), &backend).await.attempts, 1);
    let backend = Backend::new([Reply::Refuse, Reply::Answer(200, "{}")]);
    assert_eq!(call(Some(none), &backend).await.result, Ok(json!({})));
    assert_eq!(backend.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn network_errors_can_be_left_alone_v_64() {
    let policy = RetryPolicy {
        retry_on_network_error: false,
        ..policy()
    };
    let backend = Backend::new([Reply::Refuse]);
    let result = call(Some(policy), &backend).await;
    assert_eq!(result.attempts, 1);
    assert_eq!(result.result.unwrap_err().reason, FailureReason::NetworkError);
}

#[tokio::test(start_paused = true)]
async fn a_zero_retry_after_leaves_the_normal_wait_v_65() {
    let backend = Backend::new([
        Reply::AnswerWith(408, "0", ""),
        Reply::Answer(200, "{\"ok\":true}"),
    ]);
    let result = call(Some(policy()), &backend).await;
    assert_eq!(result.result, Ok(json!({"ok": true})));
    assert_waits(&backend, &[(90, 110)]);
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_one_request_is_made_v_58_om_398() {
    for reply in [Reply::Answer(503, "busy"), Reply::Refuse, Reply::Silence] {
        let backend = Backend::new([reply]);
        assert_eq!(call(None, &backend).await.attempts, 1);
        assert_eq!(backend.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_timeout_is_for_each_attempt_and_may_be_retried_om_368() {
    let mut handler = handler(Some(policy()));
    handler.timeout = Duration::from_secs(5);
    let backend = Backend::new([Reply::Silence, Reply::Silence, Reply::Answer(200, "{}")]);
    let began = Instant::now();
    let result = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(result.result, Ok(json!({})));
    assert!(began.elapsed() > Duration::from_secs(10));
    assert!(
        backend
            .requests()
            .iter()
            .all(|request| request.deadline == Duration::from_secs(5))
    );

    let backend = Backend::new([Reply::Silence]);
    let result = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(result.result.unwrap_err().reason, FailureReason::TimedOut);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_sends_the_same_request_om_399() {
    let backend = Backend::new([Reply::Answer(500, ""), Reply::Answer(200, "{}")]);
    call(Some(policy()), &backend).await;
    let requests = backend.requests();
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(requests[0].body.as_deref(), Some(b"{\"id\":7}".as_slice()));
    assert_eq!(requests[0].headers["content-type"], "application/json");
}

#[tokio::test(start_paused = true)]
async fn a_broken_body_is_not_a_missing_status_om_393() {
    let backend = Backend::new([Reply::BrokenBody(200)]);
    let result = call(Some(policy()), &backend).await;
    assert_eq!((result.attempts, result.status), (1, Some(200)));
    let backend = Backend::new([Reply::BrokenBody(503), Reply::Answer(200, "{}")]);
    assert_eq!(call(Some(policy()), &backend).await.result, Ok(json!({})));
}

#[tokio::test(start_paused = true)]
async fn a_call_is_cancelled_during_a_wait_and_during_an_attempt_om_392() {
    let patient = RetryPolicy {
        initial_backoff: Duration::from_secs(20),
        ..RetryPolicy::new(4)
    };
    for (reply, policy) in [(Reply::Answer(503, ""), Some(patient)), (Reply::Silence, None)] {
        let backend = Backend::new([reply]);
        let cancel = CancellationToken::new();
        let handler = handler(policy);
        let call = call_with(&handler, &backend, &cancel);
        let stop = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            cancel.cancel();
        };
        let began = Instant::now();
        let (result, ()) = tokio::join!(call, stop);
        assert_eq!(result.result.unwrap_err().reason, FailureReason::Cancelled);
        assert_eq!(result.attempts, 1);
        assert!(began.elapsed() < Duration::from_secs(2));
    }
}

#[tokio::test(start_paused = true)]
async fn without_its_credential_nothing_is_sent_and_nothing_retried_om_403_om_404() {
    let backend = Backend::new([Reply::Answer(200, "{}")]);
    let mut handler = handler(Some(policy()));
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/etc/omnia/tool-secrets/h/token".to_owned()),
        ..AuthConfig::default()
    });
    let result = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(result.attempts, 0);
    assert_eq!(
        result.result.unwrap_err().reason,
        FailureReason::CredentialUnavailable
    );

    handler.auth = None;
    handler
        .secret_headers
        .insert("X-Key".to_owned(), "/absent".to_owned());
    let result = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(
        result.result.unwrap_err().reason,
        FailureReason::CredentialUnavailable
    );
    assert!(backend.requests().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_address_is_not_retried() {
    #[derive(Debug)]
    struct Refusing(AtomicU32);
    #[async_trait]
    impl Transport for Refusing {
        async fn exchange(
            &self,
            _request: OutboundRequest,
            _body_limit: usize,
        ) -> Result<Exchange, ConnectError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(ConnectError::AddressRefused(address::Refusal {
                host: "h".to_owned(),
                address: "169.254.169.254".to_owned(),
                rule: address::Rule::LinkLocal,
            }))
        }
    }
    let handler = handler(Some(policy()));
    let tool = HttpTool::new(&handler, handler.http.as_ref().unwrap());
    let transport = Refusing(AtomicU32::new(0));
    let clock: SharedClock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let random: SharedRandom = SeededRandom::new(7);
    let context = CallContext {
        transport: &transport,
        credentials: &sources(FileRoot::at("/nowhere")),
        clock: &clock,
        random: &random,
        propagated: &BTreeMap::new(),
        injected: &BTreeMap::new(),
        delegation: &undelegated(),
        cancel: &CancellationToken::new(),
    };
    let result = tool.call(&context, &Map::new()).await;
    assert_eq!(result.result.unwrap_err().reason, FailureReason::AddressRefused);
    assert_eq!(transport.0.into_inner(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_its_workload_identity_nothing_is_sent_om_402_om_403() {
    let backend = Backend::new([Reply::Answer(200, "{}")]);
    let mut handler = handler(Some(policy()));
    handler.auth = Some(AuthConfig {
        kind: AuthType::WorkloadIdentity,
        audience: Some("api://crm".to_owned()),
        ..AuthConfig::default()
    });
    let result = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(result.attempts, 0);
    let failure = result.result.unwrap_err();
    assert_eq!(failure.reason, FailureReason::CredentialUnavailable);
    assert!(failure.message.contains("AZURE_CLIENT_ID"), "{}", failure.message);
    assert!(backend.requests().is_empty());
}

/// Signs with a number that rises.
#[derive(Debug, Default)]
struct Counting(AtomicU32);

#[async_trait]
impl DelegationSigner for Counting {
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError> {
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        Ok(SecretString::from(format!(
            "signed-{count}-for-{}",
            request.handler
        )))
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_carries_a_delegation_of_its_own_or_is_not_made_om_410_om_414() {
    let backend = Backend::new([
        Reply::Answer(503, ""),
        Reply::Answer(200, r#"{"seen":"signed-1-for-h"}"#),
    ]);
    let mut handler = handler(Some(policy()));
    handler.delegation = true;
    let tool = HttpTool::new(&handler, handler.http.as_ref().unwrap());
    let clock: SharedClock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let random: SharedRandom = SeededRandom::new(7);
    let signer = Counting::default();
    let request = DelegationRequest {
        handler: "h".to_owned(),
        ..DelegationRequest::default()
    };
    let delegation = Delegation {
        signer: Some(&signer),
        request,
    };
    let context = CallContext {
        transport: &backend,
        credentials: &sources(FileRoot::at("/nowhere")),
        clock: &clock,
        random: &random,
        propagated: &BTreeMap::new(),
        injected: &BTreeMap::new(),
        delegation: &delegation,
        cancel: &CancellationToken::new(),
    };
    let called = tool.call(&context, &Map::new()).await;
    // A backend that sends it back does not give it away.
    assert_eq!(called.result, Ok(json!({"seen": "[REDACTED]"})));
    let sent: Vec<_> = backend
        .requests()
        .iter()
        .map(|request| request.headers["x-omnia-delegation"].to_str().unwrap().to_owned())
        .collect();
    assert_eq!(sent, ["signed-0-for-h", "signed-1-for-h"]);

    let called = call_with(&handler, &backend, &CancellationToken::new()).await;
    assert_eq!(called.attempts, 0);
    let failure = called.result.unwrap_err();
    assert_eq!(failure.reason, FailureReason::CredentialUnavailable);
    assert!(failure.message.contains("nobody signs"), "{}", failure.message);
    assert_eq!(backend.requests().len(), 2);
}

/// Changes the mounted credential while it answers the first request.
#[derive(Debug)]
struct Rotating {
    file: std::path::PathBuf,
    seen: Mutex<Vec<String>>,
}

#[async_trait]
impl Transport for Rotating {
    async fn exchange(&self, request: OutboundRequest, _body_limit: usize) -> Result<Exchange, ConnectError> {
        let sent = request.headers["authorization"].to_str().unwrap().to_owned();
        std::fs::write(&self.file, "second").unwrap();
        let mut seen = self.seen.lock().unwrap();
        seen.push(sent);
        Ok(Exchange {
            status: StatusCode::from_u16(if seen.len() == 1 { 503 } else { 200 }).unwrap(),
            headers: HeaderMap::new(),
            body: Ok((Bytes::from_static(b"{}"), false)),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_reads_the_credential_anew_om_397_om_401() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, "first").unwrap();
    let mut handler = handler(Some(policy()));
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/token".to_owned()),
        ..AuthConfig::default()
    });
    let tool = HttpTool::new(&handler, handler.http.as_ref().unwrap());
    let transport = Rotating {
        file,
        seen: Mutex::default(),
    };
    let clock: SharedClock = ManualClock::at(Timestamp::UNIX_EPOCH);
    let random: SharedRandom = SeededRandom::new(7);
    let context = CallContext {
        transport: &transport,
        credentials: &sources(FileRoot::at(directory.path())),
        clock: &clock,
        random: &random,
        propagated: &BTreeMap::new(),
        injected: &BTreeMap::new(),
        delegation: &undelegated(),
        cancel: &CancellationToken::new(),
    };
    let called = tool.call(&context, &Map::new()).await;
    assert_eq!(called.result, Ok(json!({})));
    assert_eq!(*transport.seen.lock().unwrap(), ["Bearer first", "Bearer second"]);
}
