//! `mainstay up`

mod watching;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use kube::{Api, Client, api::DynamicObject};
use mainstay_workload::{Connector, OutboundRequest};
use serde_json::Value;

use crate::{
    applying::{self, Applied, ApplyOptions},
    arguments::{DataArguments, UpArguments},
    cluster,
    endpoints::{Endpoints, Server},
    manifest_watch::ManifestWatch,
    manifests,
    serve::{self, Running},
    server_process, terminal,
    terminal::Failure,
    waiting::{self, Unmet, Watched},
};

/// The field manager of what `up` applies.
const MANAGER: &str = "mainstay-up";
/// How long `up` waits for the agents it applied before it says what they wait for.
const SETTLES_WITHIN: Duration = Duration::from_secs(15);

/// How long `up` waits for the word whether a policy selects a registry.
const JUDGED_WITHIN: Duration = Duration::from_secs(3);
/// How often the front door is asked whether it leads to an agent that is Running.
const ASKS_EVERY: Duration = Duration::from_millis(20);

/// Starts the server, or finds the one that runs, applies the manifests and says what came of it.
pub(crate) async fn run(arguments: &UpArguments, program: &str) -> Result<(), Failure> {
    let began = Instant::now();
    let data = &arguments.serve.data.data;
    let found = Endpoints::settled(data).await?;
    // It has been waited for long enough.
    let held = matches!(found, Server::Starting { .. });
    let mut running = match found {
        Server::Running(endpoints) => Some(endpoints),
        Server::Absent | Server::Starting { .. } => None,
    };
    if let Some(endpoints) = &running
        && arguments.restart
    {
        // What the new server would refuse is refused while the old one still serves.
        serve::permitted_addresses(&arguments.serve, Some(endpoints))?;
        terminal::message(format!("restarting the server with pid {}", endpoints.pid));
        server_process::stop(data)?;
        running = None;
    }
    if let Some(endpoints) = running {
        return hand_over(arguments, &endpoints, program, began).await;
    }
    if arguments.detach {
        let serve = arguments.serve.clone();
        let started = tokio::task::spawn_blocking(move || server_process::start(&serve))
            .await
            .map_err(|error| Failure::new(format!("starting the server failed: {error}")))?;
        return match started {
            Ok(endpoints) => settle(arguments, &endpoints, program, began).await,
            Err(failure) if held => Err(failure),
            Err(failure) => after_another(arguments, failure, program, began).await,
        };
    }
    let mut stop = std::pin::pin!(serve::stop_signal());
    let started = tokio::select! {
        started = serve::start(&arguments.serve) => started,
        stop = &mut stop => return Err(Failure::new(format!("{stop} before the server was started"))),
    };
    let server: Running = match started {
        Ok(server) => server,
        Err(failure) if held => return Err(failure),
        Err(failure) => return after_another(arguments, failure, program, began).await,
    };
    let endpoints = server.endpoints().clone();
    let stop = until_stopped(arguments, &endpoints, program, began, stop).await;
    terminal::message(format!("{stop}: finishing what runs"));
    server.stop().await;
    Ok(())
}

/// Hands the manifests to a server that runs already.
async fn hand_over(
    arguments: &UpArguments,
    endpoints: &Endpoints,
    program: &str,
    began: Instant,
) -> Result<(), Failure> {
    let own = env!("CARGO_PKG_VERSION");
    if endpoints.version != own {
        terminal::warning(format!(
            "the running server is version {}, this program {own}",
            endpoints.version
        ));
        terminal::message("hint: `--restart` drains it and starts this version");
    }
    if !arguments.watch {
        return settle(arguments, endpoints, program, began).await;
    }
    let stop = std::pin::pin!(serve::stop_signal());
    let stop = until_stopped(arguments, endpoints, program, began, stop).await;
    terminal::message(format!("{stop}; the server goes on"));
    Ok(())
}

/// No server was started, for `failure`. Where another `up` was quicker, its server takes the manifests.
async fn after_another(
    arguments: &UpArguments,
    failure: Failure,
    program: &str,
    began: Instant,
) -> Result<(), Failure> {
    match Endpoints::settled(&arguments.serve.data.data).await? {
        Server::Running(endpoints) => hand_over(arguments, &endpoints, program, began).await,
        Server::Absent | Server::Starting { .. } => Err(failure),
    }
}

/// Applies the manifests, and with `--watch` those that change, until the signal to end; gives its name. A refused manifest ends
/// nothing here: the next edit may mend it.
async fn until_stopped(
    arguments: &UpArguments,
    endpoints: &Endpoints,
    program: &str,
    began: Instant,
    mut stop: std::pin::Pin<&mut impl Future<Output = &'static str>>,
) -> &'static str {
    let work = async {
        // Watched from before the first look on, so that no save is missed.
        let watch = arguments
            .watch
            .then(|| ManifestWatch::start(&arguments.paths))
            .transpose();
        if let Err(failure) = settle(arguments, endpoints, program, began).await {
            terminal::error(&failure.text, failure.hint.as_deref());
        }
        let followed = match watch {
            Ok(Some(watch)) => watching::follow(arguments, endpoints, watch).await,
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = followed {
            terminal::error(&failure.text, failure.hint.as_deref());
        }
    };
    tokio::select! {
        () = work => stop.await,
        stop = &mut stop => stop,
    }
}

/// Applies the manifests to the server at `endpoints` and reports.
async fn settle(
    arguments: &UpArguments,
    endpoints: &Endpoints,
    program: &str,
    began: Instant,
) -> Result<(), Failure> {
    let client = cluster::at(&endpoints.kubeconfig).await?;
    let read = manifests::read(&arguments.paths);
    for failure in &read.failures {
        terminal::error(&failure.text, failure.hint.as_deref());
    }
    let options = ApplyOptions {
        manager: MANAGER.to_owned(),
        force: arguments.force_conflicts,
    };
    let (applied, refused) = applying::apply(&client, &read.manifests, &options).await;
    if read.failures.is_empty() && refused == 0 {
        report_left_behind(&arguments.serve.data.data, &arguments.paths, &applied)?;
    }
    let agents: Vec<&Applied> = applied
        .iter()
        .filter(|object| object.kind.kind == "AgentRuntime")
        .collect();
    // Together: several agents that wait for something would else be waited for one after the other.
    for report in futures::future::join_all(
        agents
            .iter()
            .map(|agent| agent_report(&client, endpoints, agent, began, "the start")),
    )
    .await
    {
        terminal::message(report);
    }
    let registries = applied.iter().filter(|object| object.kind.kind == "ToolRegistry");
    futures::future::join_all(registries.map(|registry| warn_about_unselected(&client, registry))).await;
    conclude(endpoints, agents.first().copied(), program, &arguments.serve.data);
    match read.failures.len() + refused {
        0 => Ok(()),
        1 => Err(Failure::new("one manifest was not applied; the server goes on")),
        several => Err(Failure::new(format!(
            "{several} manifests were not applied; the server goes on"
        ))),
    }
}

fn objects(client: &Client, object: &Applied) -> Api<DynamicObject> {
    match &object.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &object.resource),
        None => Api::all_with(client.clone(), &object.resource),
    }
}

/// Waits until the agent runs, or says what it waits for.
/// `after` is what the time is counted from.
async fn agent_report(
    client: &Client,
    endpoints: &Endpoints,
    agent: &Applied,
    began: Instant,
    after: &str,
) -> String {
    let ends = tokio::time::Instant::now() + SETTLES_WITHIN;
    let watched = Watched {
        api: objects(client, agent),
        name: &agent.name,
        uid: None,
    };
    let running = waiting::until(watched, ends, |object| {
        let runs = |object: &&DynamicObject| {
            let phase = object.data.pointer("/status/phase").and_then(Value::as_str);
            phase == Some("Running") && says_of_its_spec(object)
        };
        Ok(object.filter(runs).cloned())
    });
    let (last, interruption) = match running.await {
        Ok(object) => {
            // The status may be that of a former run: what counts is that the agent can be talked to.
            if tokio::time::timeout_at(ends, answers(endpoints, agent))
                .await
                .is_ok()
            {
                return format!(
                    "agent {} is Running ({:.1} s after {after})",
                    agent.name,
                    began.elapsed().as_secs_f64()
                );
            }
            (Some(Box::new(object)), None)
        }
        Err(Unmet::TimeUp { last, interruption }) => (last, interruption),
        Err(Unmet::Failed(failure)) => (None, Some(failure.text)),
    };
    match (interruption, last) {
        (Some(why), _) => format!("agent {} cannot be looked at: {why}", agent.name),
        (None, None) => format!(
            "agent {} has not been looked at within {} s",
            agent.name,
            SETTLES_WITHIN.as_secs()
        ),
        (None, Some(object)) => format!("agent {} is {}", agent.name, blocked(&object.data)),
    }
}

/// Whether the status is about the spec that is there, and not about a former one.
fn says_of_its_spec(object: &DynamicObject) -> bool {
    let observed = applying::condition(&object.data, "Ready")
        .and_then(|ready| ready.get("observedGeneration"))
        .and_then(Value::as_i64);
    observed.is_none() || observed >= object.metadata.generation
}

/// Returns once the front door leads to the agent.
async fn answers(endpoints: &Endpoints, agent: &Applied) {
    let namespace = agent.namespace.as_deref().unwrap_or_default();
    let url = format!("{}/agents/{namespace}/{}/readyz", endpoints.http, agent.name);
    let (Ok(url), Ok(connector)) = (url::Url::parse(&url), Connector::direct()) else {
        return;
    };
    let mut headers = http::HeaderMap::new();
    if let Ok(token) = http::HeaderValue::from_str(&format!("Bearer {}", endpoints.token)) {
        headers.insert(http::header::AUTHORIZATION, token);
    }
    loop {
        let request = OutboundRequest {
            method: http::Method::GET,
            url: url.clone(),
            headers: headers.clone(),
            body: None,
            deadline: SETTLES_WITHIN,
        };
        if connector
            .send(request)
            .await
            .is_ok_and(|answer| answer.status.is_success())
        {
            return;
        }
        tokio::time::sleep(ASKS_EVERY).await;
    }
}

/// `PHASE: CONDITION is False (REASON): MESSAGE` of an object that does not work, in one line.
pub(crate) fn blocked(object: &Value) -> String {
    let phase = object
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or("Pending");
    match blocking(object) {
        None => phase.to_owned(),
        Some(condition) => {
            let text = |field: &str| condition.get(field).and_then(Value::as_str).unwrap_or_default();
            let message = text("message").split_whitespace().collect::<Vec<_>>().join(" ");
            format!(
                "{phase}: {} is {} ({}): {message}",
                text("type"),
                text("status"),
                text("reason")
            )
        }
    }
}

/// The condition that says what blocks: the one whose reason `Ready` repeats; else a degradation, the first that does not
/// hold, or `Ready` itself. Others may be False as well and only advise.
fn blocking(object: &Value) -> Option<&Value> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let is = |condition: &Value, field: &str, text: &str| {
        condition.get(field).and_then(Value::as_str) == Some(text)
    };
    let ready = conditions.iter().find(|condition| is(condition, "type", "Ready"));
    if ready.is_some_and(|ready| is(ready, "status", "True")) {
        return conditions
            .iter()
            .find(|condition| is(condition, "type", "Degraded") && is(condition, "status", "True"));
    }
    let reason = ready
        .and_then(|ready| ready.get("reason"))
        .and_then(Value::as_str);
    let failing = || {
        conditions
            .iter()
            .filter(|condition| is(condition, "status", "False") && !is(condition, "type", "Ready"))
    };
    match reason {
        Some(reason) => failing()
            .find(|condition| is(condition, "reason", reason))
            .or(ready),
        None => failing().next(),
    }
}

/// Every call to a registry that no policy selects is refused; who finds that out in a conversation is puzzled.
async fn warn_about_unselected(client: &Client, registry: &Applied) {
    let watched = Watched {
        api: objects(client, registry),
        name: &registry.name,
        uid: None,
    };
    // The registry was applied a moment ago: its controller has yet to judge it. Without a policy engine it never does.
    let ends = tokio::time::Instant::now() + JUDGED_WITHIN;
    let judged = waiting::until(watched, ends, |object| {
        Ok(object.and_then(|object| applying::condition(&object.data, "PolicyBound").cloned()))
    });
    let Ok(bound) = judged.await else {
        return;
    };
    if bound.get("status").and_then(Value::as_str) == Some("False") {
        terminal::warning(format!(
            "no ToolPolicy selects ToolRegistry {}: every call of its tools will be refused",
            registry.name
        ));
    }
}

fn conclude(endpoints: &Endpoints, agent: Option<&Applied>, program: &str, data: &DataArguments) {
    // A directory that the other verbs would not look into by themselves has to be named to them.
    let place = if data.is_default() {
        String::new()
    } else {
        format!(" --data {}", data.data.display())
    };
    let log = endpoints
        .kubeconfig
        .parent()
        .map(|data| data.join("logs").join("mainstay.log"))
        .unwrap_or_default();
    let chat = agent.map_or_else(
        || "NAME".to_owned(),
        |agent| match agent.namespace.as_deref() {
            Some(namespace) if namespace != "default" => format!("{} -n {namespace}", agent.name),
            _ => agent.name.clone(),
        },
    );
    terminal::message(format!(
        "\nMainstay {} runs at {} (pid {})",
        endpoints.version, endpoints.http, endpoints.pid
    ));
    terminal::message(terminal::table(&[
        vec!["  chat".to_owned(), format!("{program} chat {chat}{place}")],
        vec![
            "  kubectl".to_owned(),
            format!("export KUBECONFIG={}", endpoints.kubeconfig.display()),
        ],
        vec!["  log".to_owned(), log.display().to_string()],
        vec!["  stop".to_owned(), format!("{program} down{place}")],
    ]));
}

/// Nothing is pruned. What an earlier `up` of the same path applied and its manifests no longer hold is named.
fn report_left_behind(data: &Path, paths: &[PathBuf], applied: &[Applied]) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    let file = data.join("applied.json");
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
    let mut record: BTreeMap<String, Vec<String>> = match std::fs::read_to_string(&file) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| failed(&error))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(failed(&error)),
    };
    let key = paths
        .iter()
        .map(|path| {
            std::path::absolute(path)
                .unwrap_or_else(|_| path.clone())
                .display()
                .to_string()
        })
        .collect::<Vec<_>>()
        .join("\n");
    let titles: Vec<String> = applied.iter().map(Applied::title).collect();
    for gone in record
        .get(&key)
        .into_iter()
        .flatten()
        .filter(|title| !titles.contains(title))
    {
        terminal::warning(format!(
            "{gone} is in no manifest any more and stays; delete it with `mainstay delete`"
        ));
    }
    record.insert(key, titles);
    let text = serde_json::to_string_pretty(&record).map_err(|error| failed(&error))?;
    mainstay_store::data_directory::write_private(&file, text.as_bytes()).map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_advice_is_not_taken_for_what_blocks() {
        let object = json!({"status": {"phase": "Failed", "conditions": [
            {"type": "Ready", "status": "False", "reason": "ValidationFailed", "message": "1 handler is not valid"},
            {"type": "PolicyBound", "status": "False", "reason": "NoPolicySelectsRegistry", "message": "every call is refused"},
            {"type": "HandlersValid", "status": "False", "reason": "ValidationFailed", "message": "a: httpConfig is\n   needed"},
        ]}});
        assert_eq!(
            blocked(&object),
            "Failed: HandlersValid is False (ValidationFailed): a: httpConfig is needed"
        );
        let degraded = json!({"status": {"phase": "Degraded", "conditions": [
            {"type": "Ready", "status": "True", "reason": "ToolsDiscovered", "message": ""},
            {"type": "PolicyBound", "status": "False", "reason": "NoPolicySelectsRegistry", "message": ""},
            {"type": "Degraded", "status": "True", "reason": "SomeToolsUnavailable", "message": "1 of 2"},
        ]}});
        assert_eq!(
            blocked(&degraded),
            "Degraded: Degraded is True (SomeToolsUnavailable): 1 of 2"
        );
    }

    #[test]
    fn an_agent_that_waits_says_for_what() {
        let object = json!({"status": {"phase": "Failed", "conditions": [
            {"type": "Ready", "status": "False", "reason": "ProviderNotFound", "message": "blocked"},
            {"type": "ProviderReady", "status": "False", "reason": "ProviderNotFound", "message": "Provider default/x not found"},
        ]}});
        assert_eq!(
            blocked(&object),
            "Failed: ProviderReady is False (ProviderNotFound): Provider default/x not found"
        );
    }
}
