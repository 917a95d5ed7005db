//! `mainstay chat`

mod client_tools;
mod connection;
mod talk;
mod view;

use std::time::Duration;

use kube::Api;
use mainstay_resources::omnia::AgentRuntime;
use serde_json::{Map, Value};

use self::{
    client_tools::ClientTools,
    connection::{Connection, NotOpened, Place},
    talk::Talk,
};
use crate::{
    arguments::ChatArguments, cluster, commands::up, endpoints::Endpoints, terminal, terminal::Failure,
};

/// How long the look at the agent's state may take.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(1);

/// Talks to an agent: one message with `-m`, else line by line until the input ends.
pub(crate) async fn run(arguments: &ChatArguments) -> Result<(), Failure> {
    let endpoints = Endpoints::once_started(&arguments.data.data).await?;
    let variables = variables(&arguments.variables)?;
    let tools = ClientTools::read(&arguments.client_tools, arguments.yes)?;
    let place = Place {
        endpoints: &endpoints,
        namespace: &arguments.namespace,
        name: &arguments.name,
    };
    let connection = match Connection::open(&place, arguments.session.as_deref(), None).await {
        Ok(connection) => connection,
        Err(NotOpened::Failed(failure) | NotOpened::Expired(failure)) => return Err(failure),
        Err(NotOpened::Absent(failure)) => {
            return Err(blocked(&endpoints, &arguments.namespace, &arguments.name)
                .await
                .unwrap_or(failure));
        }
    };
    if !arguments.json {
        warn_if_blocked(&endpoints, &arguments.namespace, &arguments.name).await;
    }
    let mut talk = Talk::new(arguments, connection, variables, tools)?;
    let talked = talk.run().await;
    if !arguments.json {
        let session = talk.session();
        terminal::message(format!(
            "session {session} (continue it with `--session {session}`)"
        ));
    }
    talked
}

/// What keeps an agent that nothing runs of, where there is such an AgentRuntime: the front door knows Pods only.
async fn blocked(endpoints: &Endpoints, namespace: &str, name: &str) -> Option<Failure> {
    let agent = state(endpoints, namespace, name).await?;
    Some(Failure::new(format!(
        "agent {name} does not run: it is {}",
        up::blocked(&agent)
    )))
}

/// An agent that is blocked goes on answering from the Pod of its last good state; who edits and sees no effect is puzzled.
async fn warn_if_blocked(endpoints: &Endpoints, namespace: &str, name: &str) {
    let agent = state(endpoints, namespace, name).await.unwrap_or_default();
    let phase = agent.pointer("/status/phase").and_then(Value::as_str);
    if phase.is_some_and(|phase| phase != "Running") {
        terminal::warning(format!(
            "agent {name} is {}; what answers is its last good state",
            up::blocked(&agent)
        ));
    }
}

/// The AgentRuntime as the API has it. What cannot be found out in time is not said: the conversation matters more.
async fn state(endpoints: &Endpoints, namespace: &str, name: &str) -> Option<Value> {
    let look = async {
        let client = cluster::at(&endpoints.kubeconfig).await.ok()?;
        let agents: Api<AgentRuntime> = Api::namespaced(client, namespace);
        serde_json::to_value(agents.get_opt(name).await.ok()??).ok()
    };
    tokio::time::timeout(LOOKED_AT_WITHIN, look).await.ok().flatten()
}

fn variables(given: &[String]) -> Result<Map<String, Value>, Failure> {
    given
        .iter()
        .map(|text| match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Value::from(value))),
            _ => Err(Failure::new(format!(
                "`--set {text}` is not of the form NAME=VALUE"
            ))),
        })
        .collect()
}
