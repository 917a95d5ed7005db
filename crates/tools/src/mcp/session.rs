//! One session with a server, from its handshake to its loss.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use mainstay_telemetry::task;
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, Peer, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam,
        ClientCapabilities, ClientConfig, ClientRequest, ErrorCode, Implementation, ListToolsRequest,
        PaginatedRequestParams, ProtocolVersion, RequestId, ServerResult,
    },
    service::{ClientInitializeError, NotificationContext, PeerRequestOptions, RunningService, ServiceError},
    transport::{
        StreamableHttpClientTransport, common::client_side_sse::ExponentialBackoff,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    CallState, MESSAGE_LIMIT, McpFailure, REQUEST_DEADLINE, Server, SessionClient,
    event_stream::EventStream,
    listing::{Listing, walk},
    watch::{Watch, changed, watch_over},
};
use crate::{config::McpTransport, invocation::FailureReason};

/// How long the handshake may take, with both eras tried.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(20);

/// How long a list of tools may take, with all its pages.
const LISTING_DEADLINE: Duration = Duration::from_secs(30);

/// Calls that may wait for their answers at once. The library's own limit is for one person's client; here
/// all sessions of an agent share it.
const CONCURRENT_CALLS: usize = 256;

/// Tries to go on with a stream that broke, before what was expected of it is given up.
const STREAM_ATTEMPTS: usize = 4;
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Session {
    peer: Peer<RoleClient>,
    lost: CancellationToken,
    listing: ArcSwap<Listing>,
    changes: watch::Sender<u64>,
    // Ends the connection with the last user of the session: calls that are under way outlive its loss.
    _connection: DropGuard,
}

/// Hears what the server says unasked.
#[derive(Debug, Clone)]
struct Listener {
    changes: watch::Sender<u64>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        // No capability: a server must not ask an agent's owner for anything (OM-419).
        let name = Implementation::new("omnia-runtime", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        changed(&self.changes);
    }
}

impl Session {
    /// Connects, agrees on a revision of the protocol and lists the tools. `changes` counts how often the
    /// server said that its tools are others now.
    pub(super) async fn dial(server: &Arc<Server>, changes: &watch::Sender<u64>) -> Result<Self, McpFailure> {
        let lost = CancellationToken::new();
        let client = SessionClient::new(Arc::clone(server), lost.clone());
        let service = match tokio::time::timeout(HANDSHAKE_DEADLINE, handshake(&client, changes)).await {
            Ok(service) => service?,
            Err(_) => {
                // As for any handshake that failed.
                server.note_era(false);
                return Err(McpFailure::transient(
                    FailureReason::TimedOut,
                    format!("the server did not finish the handshake within {HANDSHAKE_DEADLINE:?}"),
                ));
            }
        };
        let peer = service.peer().clone();
        let info = peer.peer_info();
        let version = info
            .as_ref()
            .map(|info| info.protocol_version.clone())
            .unwrap_or_default();
        if !ProtocolVersion::KNOWN_VERSIONS.contains(&version) {
            return Err(McpFailure::transient(
                FailureReason::ProtocolError,
                format!(
                    "the server speaks revision {} of the protocol, which is not known here",
                    client.shown(version.as_str().to_owned())
                ),
            ));
        }
        let tells_changes = info
            .and_then(|info| {
                info.capabilities
                    .tools
                    .as_ref()
                    .and_then(|tools| tools.list_changed)
            })
            .unwrap_or_default();
        let connection = CancellationToken::new();
        let session = Self {
            peer: peer.clone(),
            lost: lost.clone(),
            listing: ArcSwap::default(),
            changes: changes.clone(),
            _connection: connection.clone().drop_guard(),
        };
        let is_modern = !version.has_initialize();
        server.note_era(!is_modern);
        let watching = connection.run_until_cancelled_owned(watch_over(
            service,
            Watch {
                peer,
                lost,
                changes: changes.clone(),
                is_modern,
                tells_changes,
            },
        ));
        task::spawn("mcp session", watching);
        session.list().await?;
        tracing::info!(
            registry = server.context.registry,
            handler = server.handler.name,
            revision = version.as_str(),
            "connected to an MCP server"
        );
        Ok(session)
    }

    /// Resolves once the session is known to be gone.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.is_cancelled() || self.peer.is_transport_closed()
    }

    /// Notes that the server does not know the session any more.
    pub(super) fn lose(&self) {
        self.lost.cancel();
    }

    pub(super) fn listing(&self) -> Arc<Listing> {
        self.listing.load_full()
    }

    /// Whether the server's tools may be others than the ones that are listed.
    pub(super) fn is_outdated(&self) -> bool {
        self.listing.load().as_of != *self.changes.borrow()
    }

    /// Lists the tools anew.
    pub(super) async fn list(&self) -> Result<(), McpFailure> {
        let as_of = *self.changes.borrow();
        let walked = tokio::time::timeout(LISTING_DEADLINE, walk(|cursor| self.page(cursor))).await;
        let mut listing = walked.map_err(|_| {
            McpFailure::transient(
                FailureReason::TimedOut,
                format!("the server did not list its tools within {LISTING_DEADLINE:?}"),
            )
        })??;
        listing.as_of = as_of;
        self.listing.store(Arc::new(listing));
        Ok(())
    }

    async fn page(&self, cursor: Option<String>) -> Result<Value, McpFailure> {
        let mut request = ListToolsRequest {
            params: cursor.map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor))),
            ..ListToolsRequest::default()
        };
        let state = Arc::new(CallState::new(REQUEST_DEADLINE));
        request.extensions.insert(Arc::clone(&state));
        match self.ask(ClientRequest::ListToolsRequest(request), &state).await {
            Err(ServiceError::McpError(error)) if error.code == ErrorCode::METHOD_NOT_FOUND => {
                Ok(Value::Null)
            }
            answer => value(answer, &state),
        }
    }

    /// Calls the tool that the server knows as `tool`.
    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        state: &Arc<CallState>,
    ) -> Result<Value, McpFailure> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments.clone());
        let mut request = CallToolRequest::new(params);
        request.extensions.insert(Arc::clone(state));
        let answer = self.ask(ClientRequest::CallToolRequest(request), state);
        tokio::select! {
            answer = answer => value(answer, state),
            () = state.ended() => Err(state.take_failure().unwrap_or_else(|| {
                McpFailure::service(&ServiceError::UnexpectedResponse)
            })),
        }
    }

    async fn ask(&self, request: ClientRequest, state: &CallState) -> Result<ServerResult, ServiceError> {
        let options = PeerRequestOptions::with_timeout(state.deadline);
        let handle = self.peer.send_cancellable_request(request, options).await?;
        let mut abandoned = Abandoned {
            peer: self.peer.clone(),
            request: Some(handle.id.clone()),
        };
        let answer = handle.await_response().await;
        abandoned.request = None;
        answer
    }
}

/// The answer as the server gave it, with what the way there has noted in front of what the library makes
/// of a failure.
fn value(answer: Result<ServerResult, ServiceError>, state: &CallState) -> Result<Value, McpFailure> {
    match answer {
        Ok(result) => serde_json::to_value(&result)
            .map_err(|error| McpFailure::transient(FailureReason::ResponseInvalid, error.to_string())),
        Err(error) => {
            let noted = state.take_failure();
            let failure = noted.unwrap_or_else(|| McpFailure::service(&error));
            let secrets = state.secrets();
            Err(McpFailure {
                message: crate::http::conceal(failure.message, &secrets),
                ..failure
            })
        }
    }
}

/// Tells the server when nobody waits for its answer any more.
struct Abandoned {
    peer: Peer<RoleClient>,
    request: Option<RequestId>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else {
            return;
        };
        let peer = self.peer.clone();
        task::spawn("mcp cancellation", async move {
            let reason = Some("nobody waits for the answer".to_owned());
            let notice = CancelledNotification::new(CancelledNotificationParam::new(Some(request), reason));
            // The server may be gone; then there is nobody to tell.
            let _ = tokio::time::timeout(REQUEST_DEADLINE, peer.send_notification(notice.into())).await;
        });
    }
}

async fn handshake(
    client: &SessionClient,
    changes: &watch::Sender<u64>,
) -> Result<RunningService<RoleClient, Listener>, McpFailure> {
    let listener = Listener {
        changes: changes.clone(),
    };
    let began = match client.server().config.transport {
        McpTransport::Sse => {
            let transport = EventStream::open(client.clone()).await?;
            let lifecycle = ClientLifecycleMode::Initialize;
            listener.serve_with_lifecycle(transport, lifecycle).await
        }
        McpTransport::StreamableHttp => {
            // The address is the server's; the name here only ever stands in the library's own texts.
            let mut config = StreamableHttpClientTransportConfig::with_uri("mcp")
                .max_concurrent_requests(CONCURRENT_CALLS)
                .max_sse_event_size(MESSAGE_LIMIT)
                .max_json_response_size(MESSAGE_LIMIT)
                // A new session has new tools perhaps, and a call is repeated once and not twice (OM-422).
                .reinit_on_expired_session(false);
            let mut backoff = ExponentialBackoff::default();
            backoff.max_times = Some(STREAM_ATTEMPTS);
            backoff.base_duration = FIRST_WAIT;
            config.retry_config = Arc::new(backoff);
            let transport = StreamableHttpClientTransport::with_client(client.clone(), config);
            let lifecycle = if client.server().is_older() {
                ClientLifecycleMode::Initialize
            } else {
                ClientLifecycleMode::Auto {
                    preferred_versions: vec![ProtocolVersion::LATEST],
                    legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
                }
            };
            listener.serve_with_lifecycle(transport, lifecycle).await
        }
    };
    began.map_err(|error| {
        // It may have been replaced by one of the newer era.
        client.server().note_era(false);
        client.last_failure().unwrap_or_else(|| {
            // What the server says in the older era is the reason: that it does not speak the newer one is none.
            let error = match error {
                ClientInitializeError::LegacyFallbackFailed { fallback, .. } => *fallback,
                error => error,
            };
            McpFailure::transient(
                FailureReason::ProtocolError,
                format!("the handshake failed: {}", client.shown(error.to_string())),
            )
        })
    })
}
