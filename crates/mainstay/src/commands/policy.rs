//! `mainstay policy`

mod caller;
mod files;

use std::{collections::BTreeMap, process::ExitCode};

use mainstay_agent::tool::Explanation;
use mainstay_tools::{
    AgentIdentity, ToolInvocation, decision_request,
    policy::{PolicyEngine, PolicySet},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use self::caller::Asker;
use super::decision;
use crate::{
    arguments::policy::{PolicyArguments, PolicyCommand, PolicyTestArguments},
    endpoints::Endpoints,
    front_door_client::{FrontDoorClient, LOOKED_UP_WITHIN},
    terminal,
    terminal::Failure,
};

/// The exit code of a call that is denied.
const DENIED: u8 = 1;
/// The exit code where nothing was decided: it must not look like a denial to a script.
const UNDECIDED: u8 = 2;

/// Decides about a call. Gives the exit code, which says how.
pub(crate) async fn run(arguments: &PolicyArguments) -> ExitCode {
    let PolicyCommand::Test(arguments) = &arguments.command;
    match test(arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DENIED),
        Err(failure) => {
            terminal::error(&failure.text, failure.hint.as_deref());
            ExitCode::from(UNDECIDED)
        }
    }
}

async fn test(arguments: &PolicyTestArguments) -> Result<bool, Failure> {
    let given = decision::arguments(&arguments.arguments, "`--args`")?;
    let asker = Asker::read(&arguments.identity)?;
    let headers = headers(&arguments.headers)?;
    let (registry, explanation) = match &arguments.agent {
        Some(agent) => (None, by_server(arguments, agent, &given, &asker, headers).await?),
        None => {
            let (registry, explanation) = by_files(arguments, &given, asker, headers)?;
            (Some(registry), explanation)
        }
    };
    if arguments.output.is_json() {
        let mut shown = serde_json::to_value(&explanation)
            .map_err(|error| Failure::new(format!("the decision cannot be written: {error}")))?;
        shown["call"] = json!({ "tool": arguments.tool, "arguments": given });
        if let Some(registry) = registry {
            shown["call"]["registry"] = registry.into();
        }
        terminal::data(super::tool::pretty(&shown));
    } else {
        decision::print(&explanation);
    }
    Ok(explanation.decision.allow)
}

/// By the policies of the files, as an agent's broker would decide.
fn by_files(
    arguments: &PolicyTestArguments,
    given: &Map<String, Value>,
    asker: Asker,
    headers: BTreeMap<String, String>,
) -> Result<(String, Explanation), Failure> {
    let policies = files::read(&arguments.paths, &arguments.namespace)?;
    let registry = match &arguments.registry {
        Some(registry) => registry.clone(),
        None => policies.registry_of(&arguments.tool)?,
    };
    let set = PolicySet::compile(policies.specs);
    for (policy, error) in set.errors() {
        terminal::warning(format!(
            "ToolPolicy {policy} cannot be compiled and denies what it selects: {error}"
        ));
    }
    let identity = asker.into_identity();
    let agent = AgentIdentity {
        name: identity.agent.clone(),
        namespace: arguments.namespace.clone(),
        workspace: identity.workspace.clone(),
    };
    let invocation = ToolInvocation {
        call_id: "policy-test".to_owned(),
        tool: arguments.tool.clone(),
        arguments: Value::Object(given.clone()),
        session: String::new(),
        turn: String::new(),
        identity,
        headers,
        cancel: CancellationToken::new(),
    };
    let request = decision_request(&agent, &registry, "", &invocation);
    Ok((registry, PolicyEngine::new(set).explain(&request).masked()))
}

/// By the policies that are in force for an agent of the running server.
async fn by_server(
    arguments: &PolicyTestArguments,
    agent: &str,
    given: &Map<String, Value>,
    asker: &Asker,
    headers: BTreeMap<String, String>,
) -> Result<Explanation, Failure> {
    let endpoints = Endpoints::once_started(&arguments.data.data).await?;
    let client = FrontDoorClient::new(&endpoints)?;
    let body = json!({ "arguments": given, "headers": headers, "identity": asker.as_caller()? });
    let path = [
        "agents",
        &arguments.namespace,
        agent,
        "tools",
        &arguments.tool,
        "decision",
    ];
    Ok(client.post(&path, &body, LOOKED_UP_WITHIN).await?)
}

fn headers(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    given
        .iter()
        .map(|text| {
            let failure = |why: &str| Failure::new(format!("`--header {text}`: {why}"));
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| failure("not of the form NAME=VALUE"))?;
            http::HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| failure("the name is no header's name"))?;
            http::HeaderValue::from_str(value).map_err(|_| failure("the value is no header's value"))?;
            Ok((mainstay_tools::policy::canonical_name(name), value.to_owned()))
        })
        .collect()
}
