//! Parts alone: tool calls and durable steps, each beside its reference.

use std::{
    io::Write,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use futures::future::try_join_all;
use mainstay_store::payload::{Durability, NewEvent, NewMessage, PayloadOptions, PayloadStore, SessionKey};
use mainstay_telemetry::{clock, random::SeededRandom};
use mainstay_tools::{
    AgentIdentity, ToolInvocation, Toolset, ToolsetOptions,
    config::{HandlerConfig, HandlerType, McpConfig, McpTransport, ToolDefinition, ToolsConfig},
    policy::{Identity, PolicyEngine, PolicySet, PolicySpec},
};
use mainstay_workload::{Connector, FileRoot};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    mcp,
    raw::Raw,
    table::{milliseconds, percentile},
};

/// Calls that are timed.
const CALLS: usize = 2_000;
/// How long a backend that lists its tools itself is waited for.
const DISCOVERED_WITHIN: Duration = Duration::from_secs(5);
/// How long steps are stored.
const STORING: Duration = Duration::from_secs(3);

/// Calls of tools, decision included, each beside the same request by hand over the same loopback.
pub(crate) async fn tool_calls(service: SocketAddr, rows: &mut Vec<String>) -> Result<()> {
    let mut handler = HandlerConfig::new("get", HandlerType::Http);
    handler.http = Some(serde_json::from_value(json!({
        "endpoint": format!("http://{service}"), "urlTemplate": format!("http://{service}/orders/{{id}}"), "method": "GET"
    }))?);
    handler.tool = Some(ToolDefinition {
        name: "get_order".to_owned(),
        ..ToolDefinition::default()
    });
    let by_hand = raw_requests(service, ("GET", "/orders/7", "")).await?;
    rows.push(beside(
        "HTTP, decision and shaping included",
        &by_hand,
        &calls(handler).await?,
    ));

    let server = mcp::server().await?;
    let mut handler = HandlerConfig::new("orders", HandlerType::Mcp);
    let endpoint = format!("http://{server}{}", mcp::PATH);
    handler.mcp = Some(McpConfig::new(McpTransport::StreamableHttp, endpoint.as_str()));
    let by_hand = raw_requests(server, ("POST", mcp::PATH, &mcp::call())).await?;
    rows.push(beside(
        "MCP over streamable HTTP, decision included",
        &by_hand,
        &calls(handler).await?,
    ));
    Ok(())
}

/// One request again and again over one kept connection.
async fn raw_requests(host: SocketAddr, (method, path, body): (&str, &str, &str)) -> Result<Vec<Duration>> {
    let mut raw = Raw::connect(host).await?;
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        raw.exchange(method, path, body).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// The tool `get_order` of a handler, called as a turn calls it.
async fn calls(handler: HandlerConfig) -> Result<Vec<Duration>> {
    let toolset = toolset(handler)?;
    toolset.settled(DISCOVERED_WITHIN).await;
    let invocation = ToolInvocation {
        call_id: "c".to_owned(),
        tool: "get_order".to_owned(),
        arguments: json!({"id": 7}),
        session: "s".to_owned(),
        turn: "t".to_owned(),
        identity: Identity::default(),
        headers: Default::default(),
        cancel: CancellationToken::new(),
    };
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        let decision = toolset.decide(&invocation);
        let outcome = toolset.execute(&invocation, &decision).await;
        times.push(began.elapsed());
        if outcome.is_error {
            bail!("{}", outcome.text());
        }
    }
    Ok(times)
}

fn beside(what: &str, by_hand: &[Duration], ours: &[Duration]) -> String {
    let added = |share| percentile(ours, share).saturating_sub(percentile(by_hand, share));
    format!(
        "| {what} | {} | {} | {} | {} | {} | {} |",
        milliseconds(percentile(by_hand, 0.5)),
        milliseconds(percentile(by_hand, 0.99)),
        milliseconds(percentile(ours, 0.5)),
        milliseconds(percentile(ours, 0.99)),
        milliseconds(added(0.5)),
        milliseconds(added(0.99)),
    )
}

fn toolset(handler: HandlerConfig) -> Result<Toolset> {
    let permit = PolicySpec {
        name: "load".to_owned(),
        registry: "load".to_owned(),
        ..PolicySpec::default()
    };
    Ok(Toolset::load(
        &ToolsConfig {
            registry: "load".to_owned(),
            namespace: "default".to_owned(),
            handlers: vec![handler],
        },
        ToolsetOptions {
            connector: Connector::direct()?,
            files: FileRoot::at("/nowhere"),
            environment: std::collections::BTreeMap::new(),
            delegation: None,
            clock: clock::system(),
            random: SeededRandom::new(1),
            policy: PolicyEngine::new(PolicySet::compile(vec![permit])),
            agent: AgentIdentity::default(),
        },
    ))
}

/// Steps that are on the disk when they return: an intent with its decision and a message, as a turn stores them.
pub(crate) async fn durable_steps(directory: &Path, rows: &mut Vec<String>) -> Result<()> {
    let syncs = syncs_per_second(directory)?;
    for together in [1, 16, 256] {
        let path = directory.join(format!("steps-{together}.db"));
        let store = PayloadStore::open(PayloadOptions::file(&path))?;
        let mut keys = Vec::new();
        for number in 0..together {
            let key = SessionKey::new("default", "load", format!("s{number}"));
            store.create_session(&key, clock::system().now()).await?;
            keys.push(key);
        }
        let before = store.statistics();
        let began = Instant::now();
        let writers = keys.into_iter().map(|key| {
            let store = store.clone();
            async move {
                let mut steps = 0_u64;
                while began.elapsed() < STORING {
                    store
                        .append(&key, events(), vec![message(steps)], Durability::Synced)
                        .await?;
                    steps += 1;
                }
                anyhow::Ok(steps)
            }
        });
        let steps: u64 = try_join_all(writers).await?.iter().sum();
        let wall = began.elapsed().as_secs_f64();
        let after = store.statistics();
        let transactions = after.transactions - before.transactions;
        store.close().await;
        rows.push(format!(
            "| {together} | {syncs:.0} | {:.0} | {:.0} | {:.1} | 3 |",
            steps as f64 / wall,
            transactions as f64 / wall,
            steps as f64 / transactions.max(1) as f64,
        ));
    }
    Ok(())
}

fn events() -> Vec<NewEvent> {
    ["policy.decided", "tool.started"]
        .into_iter()
        .map(|kind| NewEvent {
            kind: kind.to_owned(),
            turn: Some("t".to_owned()),
            time: clock::system().now(),
            data: json!({"call_id": "c", "tool": "get_order", "arguments": {"id": 1017}, "note": "x".repeat(200)}),
            ..NewEvent::default()
        })
        .collect()
}

fn message(step: u64) -> NewMessage {
    NewMessage {
        message_id: step.to_string(),
        role: "tool".to_owned(),
        content: "{\"id\":1017,\"status\":\"shipped\"}".to_owned(),
        created_at: clock::system().now(),
        ..NewMessage::default()
    }
}

/// The reference: how often a page that was appended to a file can be synced.
fn syncs_per_second(directory: &Path) -> Result<f64> {
    let mut file = std::fs::File::create(directory.join("syncs"))?;
    let began = Instant::now();
    let mut count = 0_u32;
    while began.elapsed() < STORING {
        file.write_all(&[0; 4096])?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}
