//! A client of one MCP server, made of what an agent's handler of type `mcp` is made of. `tests/peers/mcp` runs it against
//! servers by other people.
//!
//! ```text
//! mcp_client TRANSPORT URL list                    prints the names of the tools
//! mcp_client TRANSPORT URL call TOOL ARGUMENTS     prints the result, or fails with it
//! mcp_client TRANSPORT URL all                     calls each tool once, with numbers where it takes them
//! mcp_client TRANSPORT URL soak TOOL ARGUMENTS COUNT
//! ```
//!
//! `soak` calls again and again while somebody restarts the server. A call may fail while nobody listens; once somebody
//! does again, the next one must not.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use mainstay_telemetry::{clock, random::SeededRandom};
use mainstay_tools::{
    AgentIdentity, ToolInvocation, ToolOutcome, Toolset, ToolsetOptions, arguments,
    config::{HandlerConfig, HandlerType, McpConfig, McpTransport, ToolsConfig},
    policy::{Identity, PolicyEngine},
};
use mainstay_workload::{Connector, FileRoot};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use url::Url;

/// How long a server may take to be listed or to come back.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[&str]) -> Result<(), String> {
    // The conformance suite puts the URL last.
    let (transport, url, command) = match arguments {
        [transport, "all", url] => (transport, url, &["all"][..]),
        [transport, url, command @ ..] => (transport, url, command),
        _ => return Err("usage: mcp_client TRANSPORT URL list|call|all|soak …".to_owned()),
    };
    let transport = match *transport {
        "sse" => McpTransport::Sse,
        "streamable-http" => McpTransport::StreamableHttp,
        other => return Err(format!("there is no transport {other}")),
    };
    let set = connect(transport, url)?;
    let mut changes = set.changes();
    let listed = changes.wait_for(|_| set.unavailable().is_empty());
    // Where they are not listed in time, the reason says so.
    let _ = tokio::time::timeout(PATIENCE, listed).await;
    if let Some(problem) = set.unavailable().first() {
        return Err(format!("{}: {}", problem.reason, problem.message));
    }
    match command {
        ["list"] => {
            for tool in set.descriptors() {
                println!("{}", tool.name);
            }
            Ok(())
        }
        ["call", tool, text] => {
            println!("{}", succeeded(call(&set, tool, arguments::parse(text)).await)?);
            Ok(())
        }
        ["all"] => {
            for tool in set.descriptors() {
                let numbers = numbers(&tool.parameters);
                println!("{} {}", tool.name, call(&set, &tool.name, numbers).await.text());
            }
            Ok(())
        }
        ["soak", tool, text, count] => {
            let count = count.parse().map_err(|error| format!("{count}: {error}"))?;
            let url = Url::parse(url).map_err(|error| error.to_string())?;
            soak(&set, &url, tool, &arguments::parse(text), count).await
        }
        other => Err(format!("there is no command {other:?}")),
    }
}

fn connect(transport: McpTransport, url: &str) -> Result<Toolset, String> {
    let mut handler = HandlerConfig::new("server", HandlerType::Mcp);
    handler.mcp = Some(McpConfig::new(transport, url));
    handler.timeout = Duration::from_secs(10);
    let config = ToolsConfig {
        registry: "peers".to_owned(),
        namespace: "default".to_owned(),
        handlers: vec![handler],
    };
    let options = ToolsetOptions {
        connector: Connector::direct().map_err(|error| error.to_string())?,
        files: FileRoot::at("/"),
        environment: std::collections::BTreeMap::new(),
        delegation: None,
        clock: clock::system(),
        random: SeededRandom::new(1),
        policy: PolicyEngine::disabled(),
        agent: AgentIdentity::default(),
    };
    Ok(Toolset::load(&config, options))
}

async fn call(set: &Toolset, tool: &str, arguments: Value) -> ToolOutcome {
    let invocation = ToolInvocation {
        call_id: "call".to_owned(),
        tool: tool.to_owned(),
        arguments,
        session: "session".to_owned(),
        turn: "turn".to_owned(),
        identity: Identity::default(),
        headers: BTreeMap::new(),
        cancel: CancellationToken::new(),
    };
    let decision = set.decide(&invocation);
    set.execute(&invocation, &decision).await
}

fn succeeded(outcome: ToolOutcome) -> Result<String, String> {
    let text = outcome.text();
    if outcome.is_error { Err(text) } else { Ok(text) }
}

/// An argument for each number that `schema` names.
fn numbers(schema: &Value) -> Value {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let numbers: Map<String, Value> = properties
        .into_iter()
        .filter(|(_, property)| matches!(property["type"].as_str(), Some("number" | "integer")))
        .map(|(name, _)| (name, json!(3)))
        .collect();
    Value::Object(numbers)
}

async fn soak(set: &Toolset, url: &Url, tool: &str, arguments: &Value, count: u32) -> Result<(), String> {
    let offered = set.descriptors().len();
    let address = (
        url.host_str().unwrap_or_default().to_owned(),
        url.port_or_known_default().unwrap_or_default(),
    );
    let (mut failed, mut repeated) = (0_u32, 0_u32);
    for number in 0..count {
        let mut outcome = call(set, tool, arguments.clone()).await;
        if outcome.is_error {
            failed += 1;
            let cause = outcome.text();
            let listening = async {
                while tokio::net::TcpStream::connect((address.0.as_str(), address.1))
                    .await
                    .is_err()
                {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            let came_back = tokio::time::timeout(PATIENCE, listening).await;
            came_back.map_err(|_| format!("call {number}: the server did not come back: {cause}"))?;
            outcome = call(set, tool, arguments.clone()).await;
            if outcome.is_error {
                return Err(format!(
                    "call {number} failed although the server is there again: {} (before: {cause})",
                    outcome.text()
                ));
            }
        }
        repeated += u32::from(outcome.attempts > 1);
        if set.descriptors().len() != offered {
            return Err(format!(
                "call {number}: {} of {offered} tools are left",
                set.descriptors().len()
            ));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!(
        "{count} calls, {failed} failed while the server was away, {repeated} made once more, 0 failed after that"
    );
    Ok(())
}
