//! Whole handlers against servers in this process: nothing is listened on and time is paused.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod fake;
mod modern;
mod older;
mod stream;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use axum::{Router, body::Body};
use futures::StreamExt;
use mainstay_telemetry::{clock, random::SeededRandom};
use mainstay_workload::{ConnectError, Connector, FileRoot, OutboundRequest};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::{
    AgentIdentity, ToolInvocation, ToolOutcome, Toolset, ToolsetOptions,
    config::{HandlerConfig, HandlerType, McpConfig, McpTransport, ToolsConfig},
    delegation::DelegationSigner,
    policy::{Decision, Identity, PolicyEngine},
    transport::{Exchange, Opened, Transport},
};

/// A router as the way to every host. It can be away, and comes back as another one.
#[derive(Debug, Clone)]
struct Routed {
    router: watch::Sender<Option<Router>>,
}

impl Routed {
    fn to(router: Router) -> Self {
        Self {
            router: watch::Sender::new(Some(router)),
        }
    }

    fn away() -> Self {
        Self {
            router: watch::Sender::new(None),
        }
    }

    fn set(&self, router: Option<Router>) {
        self.router.send_replace(router);
    }
}

fn refused() -> ConnectError {
    ConnectError::Network {
        host: "mcp".to_owned(),
        cause: "connection refused".to_owned(),
    }
}

#[async_trait]
impl Transport for Routed {
    async fn exchange(&self, request: OutboundRequest, _limit: usize) -> Result<Exchange, ConnectError> {
        unreachable!("an MCP handler reads its answers as they come: {request:?}")
    }

    async fn open(&self, request: OutboundRequest) -> Result<Opened, ConnectError> {
        let Some(router) = self.router.borrow().clone() else {
            return Err(refused());
        };
        let mut inner = axum::http::Request::builder()
            .method(request.method)
            .uri(request.url.as_str())
            .body(Body::from(request.body.unwrap_or_default()))
            .unwrap();
        *inner.headers_mut() = request.headers;
        let authority = request.url.authority().to_owned();
        inner.headers_mut().insert("host", authority.parse().unwrap());
        let answered = tokio::time::timeout(request.deadline, router.oneshot(inner)).await;
        let response = answered.map_err(|_| ConnectError::TimedOut {
            after: request.deadline,
        })?;
        let (parts, body) = response.unwrap().into_parts();
        Ok(Opened {
            status: parts.status,
            headers: parts.headers,
            body: body
                .into_data_stream()
                .map(|chunk| chunk.map_err(|_| refused()))
                .boxed(),
        })
    }
}

fn handler(transport: McpTransport, change: impl FnOnce(&mut HandlerConfig)) -> HandlerConfig {
    let mut handler = HandlerConfig::new("code", HandlerType::Mcp);
    let endpoint = match transport {
        McpTransport::Sse => "http://localhost/sse",
        McpTransport::StreamableHttp => "http://localhost/mcp",
    };
    handler.mcp = Some(McpConfig::new(transport, endpoint));
    handler.timeout = Duration::from_secs(30);
    change(&mut handler);
    handler
}

fn load(handler: HandlerConfig, files: FileRoot, way: &Routed) -> Toolset {
    load_signed(handler, files, way, None)
}

fn load_signed(
    handler: HandlerConfig,
    files: FileRoot,
    way: &Routed,
    signer: Option<Arc<dyn DelegationSigner>>,
) -> Toolset {
    let config = ToolsConfig {
        registry: "helpdesk".to_owned(),
        namespace: "default".to_owned(),
        handlers: vec![handler],
    };
    let options = ToolsetOptions {
        connector: Connector::direct().unwrap(),
        files,
        environment: std::collections::BTreeMap::new(),
        delegation: signer,
        clock: clock::system(),
        random: SeededRandom::new(1),
        policy: PolicyEngine::disabled(),
        agent: AgentIdentity {
            name: "helpdesk".to_owned(),
            namespace: "default".to_owned(),
            workspace: String::new(),
        },
    };
    Toolset::over(&config, options, Arc::new(way.clone()))
}

/// A toolset whose only handler was asked for its tools.
async fn ready(transport: McpTransport, way: &Routed, change: impl FnOnce(&mut HandlerConfig)) -> Toolset {
    let set = load(handler(transport, change), FileRoot::at("/nowhere"), way);
    set.settled(Duration::from_secs(60)).await;
    set
}

fn names(set: &Toolset) -> Vec<String> {
    set.descriptors().into_iter().map(|tool| tool.name).collect()
}

fn invocation(tool: &str, arguments: Value) -> ToolInvocation {
    ToolInvocation {
        call_id: "call_1".to_owned(),
        tool: tool.to_owned(),
        arguments,
        session: "s".to_owned(),
        turn: "t".to_owned(),
        identity: Identity::default(),
        headers: BTreeMap::new(),
        cancel: CancellationToken::new(),
    }
}

fn permit() -> Decision {
    Decision {
        allow: true,
        injected_headers: BTreeMap::from([("X-Injected".to_owned(), "by a policy".to_owned())]),
        ..Decision::default()
    }
}

async fn call(set: &Toolset, tool: &str, arguments: Value) -> ToolOutcome {
    set.execute(&invocation(tool, arguments), &permit()).await
}

/// Waits until `condition` holds of the tools that are offered.
async fn until(set: &Toolset, condition: impl Fn(&Toolset) -> bool) {
    let mut changes = set.changes();
    let wait = changes.wait_for(|_| condition(set));
    tokio::time::timeout(Duration::from_secs(300), wait)
        .await
        .expect("in time")
        .unwrap();
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}
