//! `mainstay tool`

use std::time::Duration;

use mainstay_agent::{
    event::CallOutcome,
    tool::{
        Preview,
        by_hand::{HandResult, Listed, Listing, Offer},
    },
};
use serde_json::{Value, json};

use super::decision;
use crate::{
    arguments::tool::{AgentArguments, ToolArguments, ToolCallArguments, ToolCommand, ToolListArguments},
    endpoints::Endpoints,
    front_door_client::{FrontDoorClient, Refused},
    terminal,
    terminal::Failure,
};

/// How long a call may take with all its attempts. The tool's own time-outs end it long before.
const CALLED_WITHIN: Duration = Duration::from_secs(15 * 60);

/// Lists the tools of an agent, or calls one.
pub(crate) async fn run(arguments: &ToolArguments) -> Result<(), Failure> {
    match &arguments.command {
        ToolCommand::List(arguments) => list(arguments).await,
        ToolCommand::Call(arguments) => call(arguments).await,
    }
}

async fn client(agent: &AgentArguments) -> Result<FrontDoorClient, Failure> {
    let endpoints = Endpoints::once_started(&agent.data.data).await?;
    FrontDoorClient::new(&endpoints)
}

async fn list(arguments: &ToolListArguments) -> Result<(), Failure> {
    let agent = &arguments.agent;
    let client = client(agent).await?;
    let listing: Value = client
        .get(&["agents", &agent.namespace, &agent.agent, "tools"], &[])
        .await?;
    if arguments.output.is_json() {
        terminal::data(pretty(&listing));
        return Ok(());
    }
    let listing: Listing = serde_json::from_value(listing)
        .map_err(|error| Failure::new(format!("the list of tools cannot be read: {error}")))?;
    if listing.tools.is_empty() {
        terminal::message(format!("agent {} has no tools", agent.agent));
    } else {
        let mut rows = vec![
            ["TOOL", "HANDLER", "TYPE", "OFFERED", "POLICIES"]
                .map(str::to_owned)
                .to_vec(),
        ];
        rows.extend(listing.tools.iter().map(row));
        terminal::data(terminal::table(&rows));
    }
    for handler in &listing.unavailable {
        // The message names the handler.
        terminal::warning(format!("{} ({})", handler.message, handler.reason));
    }
    Ok(())
}

fn row(tool: &Listed) -> Vec<String> {
    let offered = match tool.offered {
        Offer::Yes => "yes",
        Offer::NotListed => "no: not listed by the prompt",
        Offer::Blocked => "no: on the prompt's blocklist",
        Offer::NoTools => "no: the prompt or the model takes no tools",
    };
    let policies = match tool.policies.as_deref() {
        None => "calls are not judged".to_owned(),
        Some([]) => "none: every call is refused".to_owned(),
        Some(policies) => policies.join(", "),
    };
    vec![
        tool.tool.clone(),
        tool.handler.clone(),
        tool.handler_type.clone(),
        offered.to_owned(),
        policies,
    ]
}

async fn call(arguments: &ToolCallArguments) -> Result<(), Failure> {
    let agent = &arguments.agent;
    let given = decision::arguments(&arguments.arguments, &format!("arguments of {}", arguments.tool))?;
    let client = client(agent).await?;
    let body = json!({ "arguments": given, "dry_run": arguments.dry_run });
    let path = ["agents", &agent.namespace, &agent.agent, "tools", &arguments.tool];
    let raw: Value = client
        .post(&path, &body, CALLED_WITHIN)
        .await
        .map_err(|refused| named(refused, agent))?;
    let result: HandResult = serde_json::from_value(raw.clone())
        .map_err(|error| Failure::new(format!("the result of the call cannot be read: {error}")))?;
    if arguments.output.is_json() {
        terminal::data(pretty(&raw));
    } else if arguments.dry_run {
        print_dry_run(&result);
    } else if !result.is_error {
        terminal::data(terminal::printable(result.content.as_deref().unwrap_or_default()));
    }
    if result.is_error {
        return Err(ended(&result, arguments));
    }
    Ok(())
}

fn named(refused: Refused, agent: &AgentArguments) -> Failure {
    match refused.code.as_str() {
        "tool_not_found" => refused
            .failure
            .with_hint(format!("`mainstay tool list {}` shows the tools", agent.agent)),
        "tool_not_offered" => refused
            .failure
            .with_hint("the agent itself could not call it; edit the pack, or call another tool"),
        _ => refused.failure,
    }
}

/// Why the call came to nothing.
fn ended(result: &HandResult, arguments: &ToolCallArguments) -> Failure {
    let failure = Failure::new(format!(
        "{}: {}",
        result.tool,
        result.content.as_deref().unwrap_or_default()
    ));
    if result.outcome != Some(CallOutcome::Denied) || arguments.dry_run {
        return failure;
    }
    failure.with_hint(format!(
        "`mainstay tool call {} {} '{}' --dry-run` shows what decided",
        arguments.agent.agent, arguments.tool, arguments.arguments
    ))
}

fn print_dry_run(result: &HandResult) {
    match &result.request {
        Some(request) => print_request(request),
        None if result.is_error => terminal::data("nothing would be sent"),
        None => terminal::data("the tool runs in the client: no request is sent"),
    }
    terminal::data("");
    decision::print(&result.explanation);
}

fn print_request(request: &Preview) {
    terminal::data(terminal::printable(&format!(
        "{} {}",
        request.method, request.url
    )));
    for (name, value) in &request.headers {
        terminal::data(terminal::printable(&format!("{name}: {value}")));
    }
    if let Some(body) = &request.body {
        let text = match body {
            Value::String(text) => text.clone(),
            other => pretty(other),
        };
        terminal::data(format!("\n{}", terminal::printable(&text)));
    }
}

/// JSON for people and programs.
pub(super) fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
