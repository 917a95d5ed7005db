#![allow(clippy::unwrap_used, clippy::expect_used)]

mod tls;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Instant,
};

use jiff::Timestamp;
use mainstay_telemetry::{
    clock::{ManualClock, SharedClock},
    random::{SeededRandom, SharedRandom},
    task,
};
use mainstay_workload::{ConnectorOptions, Resolution, ServiceResolver};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::{Response, Status};

use super::{
    protocol::{
        ListToolsRequest, ListToolsResponse,
        tool_service_server::{ToolService, ToolServiceServer},
    },
    *,
};
use crate::{
    config::{AuthType, HandlerType},
    http::tests::{sources, undelegated},
};

/// What the backend does with one call.
#[derive(Clone)]
enum Reply {
    Json(&'static str),
    ToolError(&'static str),
    Status(Code, &'static str),
    /// No answer.
    Silence,
    /// The caller's `authorization` as the result.
    Echo,
}

/// A backend that follows a script and repeats its last reply.
#[derive(Clone)]
struct Backend {
    replies: Arc<Mutex<VecDeque<Reply>>>,
    seen: Arc<Mutex<Vec<(MetadataMap, ToolRequest)>>>,
}

impl Backend {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self {
            replies: Arc::new(Mutex::new(replies.into_iter().collect())),
            seen: Arc::default(),
        }
    }

    fn calls(&self) -> Vec<(MetadataMap, ToolRequest)> {
        self.seen.lock().unwrap().clone()
    }

    fn router(&self) -> axum::Router {
        let service = ToolServiceServer::new(self.clone());
        axum::Router::new().route_service("/omnia.tools.v1.ToolService/{method}", service)
    }
}

#[async_trait]
impl ToolService for Backend {
    async fn execute(&self, request: Request<ToolRequest>) -> Result<Response<ToolResponse>, Status> {
        let (metadata, _, message) = request.into_parts();
        let echo = metadata
            .get("authorization")
            .map(|value| value.to_str().unwrap().to_owned());
        self.seen.lock().unwrap().push((metadata, message));
        let reply = {
            let mut replies = self.replies.lock().unwrap();
            if replies.len() > 1 {
                replies.pop_front().unwrap()
            } else {
                replies[0].clone()
            }
        };
        let json = |text: String| {
            Ok(Response::new(ToolResponse {
                result_json: text,
                ..ToolResponse::default()
            }))
        };
        match reply {
            Reply::Json(text) => json(text.to_owned()),
            Reply::Echo => json(Value::from(echo).to_string()),
            Reply::ToolError(text) => Ok(Response::new(ToolResponse {
                is_error: true,
                error_message: text.to_owned(),
                ..ToolResponse::default()
            })),
            Reply::Status(code, text) => Err(Status::new(code, text)),
            Reply::Silence => std::future::pending().await,
        }
    }

    async fn list_tools(&self, _: Request<ListToolsRequest>) -> Result<Response<ListToolsResponse>, Status> {
        Err(Status::unimplemented("never needed (OM-416)"))
    }
}

async fn serve(backend: &Backend) -> SocketAddr {
    serve_at("127.0.0.1:0", backend).await.0
}

async fn serve_at(address: &str, backend: &Backend) -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = backend.router();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    task::spawn("test backend", async move {
        stopped
            .run_until_cancelled(async { axum::serve(listener, router).await })
            .await
    });
    (address, stop)
}

fn quick(attempts: u32) -> GrpcRetryPolicy {
    GrpcRetryPolicy {
        initial_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(2),
        ..GrpcRetryPolicy::new(attempts)
    }
}

fn handler(endpoint: impl ToString) -> HandlerConfig {
    let mut handler = HandlerConfig::new("h", HandlerType::Grpc);
    handler.grpc = Some(GrpcConfig::new(endpoint.to_string()));
    handler.timeout = Duration::from_secs(20);
    handler
}

fn with_policy(endpoint: impl ToString, policy: Option<GrpcRetryPolicy>) -> HandlerConfig {
    let mut handler = handler(endpoint);
    handler.grpc.as_mut().unwrap().retry_policy = policy;
    handler
}

fn tool_at(handler: &HandlerConfig, connector: Connector, files: &FileRoot) -> GrpcTool {
    let config = handler.grpc.as_ref().unwrap();
    GrpcTool::new(handler, config, "get_user", connector, files.clone()).unwrap()
}

fn tool(handler: &HandlerConfig) -> GrpcTool {
    tool_at(handler, Connector::direct().unwrap(), &FileRoot::at("/nowhere"))
}

#[derive(Default)]
struct Surroundings {
    propagated: BTreeMap<String, String>,
    injected: BTreeMap<String, String>,
    cancel: CancellationToken,
    files: Option<FileRoot>,
}

impl Surroundings {
    async fn call(&self, tool: &GrpcTool) -> Called {
        let arguments = json!({"user_id": "7"});
        self.within(async |context: CallContext<'_>| {
            tool.call(&context, arguments.as_object().unwrap()).await
        })
        .await
    }

    async fn within<T>(&self, asks: impl AsyncFnOnce(CallContext<'_>) -> T) -> T {
        let clock: SharedClock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let random: SharedRandom = SeededRandom::new(7);
        let files = self.files.clone().unwrap_or_else(|| FileRoot::at("/nowhere"));
        let context = CallContext {
            transport: &crate::http::tests::Backend::default(),
            credentials: &sources(files),
            clock: &clock,
            random: &random,
            propagated: &self.propagated,
            injected: &self.injected,
            delegation: &undelegated(),
            cancel: &self.cancel,
        };
        asks(context).await
    }
}

async fn call(handler: &HandlerConfig) -> Called {
    Surroundings::default().call(&tool(handler)).await
}

fn text(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_call_is_one_execute_with_arguments_as_json_om_415_om_416() {
    let backend = Backend::new([
        Reply::Json(r#"{"name":"Ada"}"#),
        Reply::Json(""),
        Reply::Json("plain"),
    ]);
    let tool = tool(&handler(serve(&backend).await));
    let surroundings = Surroundings::default();
    for expected in [json!({"name": "Ada"}), Value::Null, json!({"result": "plain"})] {
        let called = surroundings.call(&tool).await;
        assert_eq!(
            (called.result, called.attempts, called.verdict),
            (Ok(expected), 1, Verdict::Works)
        );
    }
    let (metadata, request) = backend.calls().remove(0);
    assert_eq!(request.tool_name, "get_user");
    assert_eq!(request.arguments_json, r#"{"user_id":"7"}"#);
    assert!(request.metadata.is_empty());
    assert_eq!(metadata.get("grpc-timeout").unwrap(), "20000000u");
}

#[tokio::test]
async fn a_preview_shows_the_message_with_secrets_masked_and_dials_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "sesame-sesame").unwrap();
    let mut handler = handler("backend.default:9000");
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/token".to_owned()),
        ..AuthConfig::default()
    });
    let files = FileRoot::at(directory.path());
    let tool = tool_at(&handler, Connector::direct().unwrap(), &files);
    let surroundings = Surroundings {
        files: Some(files),
        ..Surroundings::default()
    };
    let arguments = json!({"user_id": "7", "password": "p1", "note": "sesame-sesame"});
    let preview = surroundings
        .within(async |context: CallContext<'_>| {
            tool.preview(&context, arguments.as_object().unwrap())
                .await
                .unwrap()
        })
        .await;
    assert_eq!(
        (preview.method.as_str(), preview.url.as_str()),
        (
            "/omnia.tools.v1.ToolService/Execute",
            "http://backend.default:9000/"
        )
    );
    assert_eq!(preview.headers["authorization"], "Bearer [redacted]");
    let body = preview.body.unwrap();
    assert_eq!(
        body,
        json!({
            "tool_name": "get_user",
            "arguments_json": r#"{"note":"[REDACTED]","password":"[redacted]","user_id":"7"}"#,
        })
    );
}

#[tokio::test]
async fn the_context_of_a_call_travels_as_metadata_and_only_what_grpc_carries_om_374() {
    let backend = Backend::new([Reply::Json("1")]);
    let tool = tool(&handler(serve(&backend).await));
    let mut surroundings = Surroundings {
        propagated: text(&[
            ("X-Omnia-Agent-Name", "helpdesk"),
            ("X-Omnia-User-Id", "Jürgen"),
            ("X-Omnia-Param-Photo-Bin", "x"),
        ]),
        injected: text(&[("X-Tenant", "t1")]),
        ..Surroundings::default()
    };
    assert_eq!(surroundings.call(&tool).await.result, Ok(json!(1)));
    let (metadata, _) = backend.calls().remove(0);
    assert_eq!(metadata.get("x-omnia-agent-name").unwrap(), "helpdesk");
    assert_eq!(metadata.get("x-tenant").unwrap(), "t1");
    assert!(metadata.get("x-omnia-user-id").is_none());
    assert!(metadata.get_bin("x-omnia-param-photo-bin").is_none());

    // What a policy adds is not left out in silence.
    for name in ["X-Photo-Bin", "Grpc-Timeout", "Content-Type"] {
        surroundings.injected = text(&[(name, "x")]);
        let called = surroundings.call(&tool).await;
        assert_eq!(
            called.result.unwrap_err().reason,
            FailureReason::RequestInvalid,
            "{name}"
        );
        assert_eq!(called.attempts, 0);
    }
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_tool_error_is_told_and_never_made_again_v_67_om_416() {
    let backend = Backend::new([Reply::ToolError("no such user")]);
    let handler = with_policy(serve(&backend).await, Some(quick(4)));
    let called = call(&handler).await;
    let failure = called.result.unwrap_err();
    assert_eq!(
        (failure.reason, failure.message.as_str()),
        (FailureReason::ToolError, "tool error: no such user")
    );
    assert_eq!((called.verdict, backend.calls().len()), (Verdict::Works, 1));
}

#[tokio::test]
async fn codes_are_tried_again_as_the_policy_lists_them_v_66_om_395() {
    let listed = |codes: &[&str]| GrpcRetryPolicy {
        retryable_status_codes: codes.iter().map(|code| (*code).to_owned()).collect(),
        ..quick(3)
    };
    for (policy, code, attempts) in [
        (Some(quick(3)), Code::DeadlineExceeded, 3),
        (Some(quick(3)), Code::Unavailable, 3),
        (Some(quick(3)), Code::ResourceExhausted, 3),
        (Some(quick(3)), Code::NotFound, 1),
        (Some(quick(3)), Code::Internal, 1),
        (Some(listed(&["NOT_FOUND"])), Code::NotFound, 3),
        (Some(listed(&["NOT_FOUND"])), Code::Unavailable, 1),
        (Some(listed(&[])), Code::Unavailable, 1),
        (None, Code::Unavailable, 1),
    ] {
        let backend = Backend::new([Reply::Status(code, "busy")]);
        let called = call(&with_policy(serve(&backend).await, policy)).await;
        assert_eq!(
            (called.attempts, backend.calls().len()),
            (attempts, attempts as usize),
            "{code:?}"
        );
        let failure = called.result.unwrap_err();
        assert_eq!(failure.reason, FailureReason::GrpcStatus);
        let expected = format!("gRPC {}: busy", status::name(code));
        assert!(failure.message.ends_with(&expected), "{}", failure.message);
    }
}

#[tokio::test]
async fn an_attempts_own_limit_counts_as_deadline_exceeded_om_368_om_395() {
    let backend = Backend::new([Reply::Silence, Reply::Json("1")]);
    let mut handler = with_policy(serve(&backend).await, Some(quick(2)));
    handler.timeout = Duration::from_millis(200);
    let called = call(&handler).await;
    assert_eq!((called.result, called.attempts), (Ok(json!(1)), 2));

    let backend = Backend::new([Reply::Silence]);
    let mut handler = with_policy(serve(&backend).await, None);
    handler.timeout = Duration::from_millis(100);
    let called = call(&handler).await;
    let failure = called.result.unwrap_err();
    assert_eq!(
        (failure.reason, failure.message.as_str()),
        (FailureReason::TimedOut, "no answer within 100ms")
    );
    assert_eq!(called.verdict, Verdict::Fails);
}

#[tokio::test]
async fn a_backend_that_is_down_or_restarts_is_dialled_again_om_417() {
    let backend = Backend::new([Reply::Json("1")]);
    let (address, stop) = serve_at("127.0.0.1:0", &backend).await;
    stop.cancel();
    // Until the listener is gone; the port stays ours, since nobody else asks for it by number.
    while TcpListener::bind(address).await.is_err() {
        tokio::task::yield_now().await;
    }
    let tool = tool(&with_policy(address, None));
    let surroundings = Surroundings::default();
    let failure = surroundings.call(&tool).await.result.unwrap_err();
    assert_eq!(failure.reason, FailureReason::NetworkError, "{}", failure.message);
    assert!(failure.message.contains("127.0.0.1"), "{}", failure.message);

    let (_, stop) = serve_at(&address.to_string(), &backend).await;
    assert_eq!(surroundings.call(&tool).await.result, Ok(json!(1)));
    stop.cancel();
}

#[tokio::test]
async fn a_credential_is_sent_as_metadata_and_never_comes_back_om_400_om_403() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("token"), "token-one\n").unwrap();
    let backend = Backend::new([Reply::Echo]);
    let mut handler = handler(serve(&backend).await);
    handler.auth = Some(AuthConfig {
        kind: AuthType::Bearer,
        credential_file: Some("/token".to_owned()),
        ..AuthConfig::default()
    });
    let tool = tool(&handler);
    let surroundings = Surroundings {
        files: Some(FileRoot::at(directory.path())),
        ..Surroundings::default()
    };
    assert_eq!(
        surroundings.call(&tool).await.result,
        Ok(json!("Bearer [REDACTED]"))
    );
    let (metadata, _) = backend.calls().remove(0);
    assert_eq!(metadata.get("authorization").unwrap(), "Bearer token-one");

    std::fs::remove_file(directory.path().join("token")).unwrap();
    let called = surroundings.call(&tool).await;
    assert_eq!(called.attempts, 0);
    assert_eq!(
        called.result.unwrap_err().reason,
        FailureReason::CredentialUnavailable
    );
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_refused_address_is_not_dialled_and_not_tried_again() {
    for endpoint in [
        "169.254.169.254:50051",
        "0xA9FEA9FE:50051",
        "metadata.google.internal:443",
    ] {
        let called = call(&with_policy(endpoint, Some(quick(4)))).await;
        assert_eq!(called.attempts, 1, "{endpoint}");
        assert_eq!(called.result.unwrap_err().reason, FailureReason::AddressRefused);
    }
}

/// A Service `users` that leads to an address.
#[derive(Debug)]
struct Users(SocketAddr);

impl ServiceResolver for Users {
    fn resolve(&self, host: &str, port: u16, _from_namespace: &str) -> Resolution {
        match (host, port) {
            ("users.shop.svc.cluster.local", 50051) => Resolution::Endpoint(self.0),
            _ => Resolution::NotAService,
        }
    }
}

fn services(address: SocketAddr) -> Connector {
    Connector::new(ConnectorOptions {
        resolver: Arc::new(Users(address)),
        namespace: "shop".to_owned(),
        allow_private: true,
    })
    .unwrap()
}

#[tokio::test]
async fn a_service_name_leads_to_its_live_endpoint() {
    let backend = Backend::new([Reply::Json("1")]);
    let connector = services(serve(&backend).await);
    let tool = tool_at(
        &handler("users.shop.svc.cluster.local:50051"),
        connector,
        &FileRoot::at("/nowhere"),
    );
    assert_eq!(Surroundings::default().call(&tool).await.result, Ok(json!(1)));
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_om_392() {
    let backend = Backend::new([Reply::Silence]);
    let tool = tool(&handler(serve(&backend).await));
    let surroundings = Surroundings::default();
    let began = Instant::now();
    let stop = async {
        while backend.calls().is_empty() {
            tokio::task::yield_now().await;
        }
        surroundings.cancel.cancel();
    };
    let (called, ()) = tokio::join!(surroundings.call(&tool), stop);
    assert_eq!(called.result.unwrap_err().reason, FailureReason::Cancelled);
    assert_eq!(called.verdict, Verdict::Unknown);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_endpoint_is_host_and_port() {
    for endpoint in ["users", "users:port", "http://users:1", "users:1/path", ""] {
        let handler = handler(endpoint);
        let config = handler.grpc.as_ref().unwrap();
        let connector = Connector::direct().unwrap();
        let error = GrpcTool::new(&handler, config, "t", connector, FileRoot::at("/")).unwrap_err();
        assert!(error.contains("`grpcConfig.endpoint`"), "{endpoint}: {error}");
    }
}

#[test]
fn a_refusal_shows_that_the_backend_works_om_373() {
    for (code, verdict) in [
        (Code::Unavailable, Verdict::Fails),
        (Code::Internal, Verdict::Fails),
        (Code::Unknown, Verdict::Fails),
        (Code::PermissionDenied, Verdict::Works),
        (Code::InvalidArgument, Verdict::Works),
        (Code::ResourceExhausted, Verdict::Works),
    ] {
        assert_eq!(Fault::of(&Status::new(code, "x")).verdict(), verdict, "{code:?}");
    }
}
