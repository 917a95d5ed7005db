//! `mainstay chat`

mod connection;
mod view;

use std::{io::IsTerminal, time::Duration};

use kube::Api;
use mainstay_agent::event::Payload;
use mainstay_resources::omnia::AgentRuntime;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, BufReader};

use self::{
    connection::{Connection, Frame, NotOpened},
    view::View,
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
    let opened = Connection::open(
        &endpoints,
        &arguments.namespace,
        &arguments.name,
        arguments.session.as_deref(),
    )
    .await;
    let mut connection = match opened {
        Ok(connection) => connection,
        Err(NotOpened::Failed(failure)) => return Err(failure),
        Err(NotOpened::Absent(failure)) => {
            return Err(blocked(&endpoints, &arguments.namespace, &arguments.name)
                .await
                .unwrap_or(failure));
        }
    };
    if !arguments.json {
        warn_if_blocked(&endpoints, &arguments.namespace, &arguments.name).await;
    }
    let mut view = View::new(arguments.json);
    let session = connection.session().to_owned();
    let talked = tokio::select! {
        talked = talk(arguments, &mut connection, &mut view, variables) => talked,
        interrupted = tokio::signal::ctrl_c() => {
            view.break_line();
            match interrupted {
                Ok(()) => Err(Failure::new("interrupted; a turn that runs goes on and is kept")),
                Err(error) => Err(Failure::new(format!("signals cannot be watched: {error}"))),
            }
        }
    };
    if !arguments.json {
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

async fn talk(
    arguments: &ChatArguments,
    connection: &mut Connection,
    view: &mut View,
    variables: Map<String, Value>,
) -> Result<(), Failure> {
    if let Some(message) = &arguments.message {
        return turn(connection, view, message, &variables).await;
    }
    let interactive = std::io::stdin().is_terminal() && !arguments.json;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        if interactive {
            terminal::prompt("> ");
        }
        let line = lines
            .next_line()
            .await
            .map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
        let Some(line) = line else {
            return Ok(());
        };
        let message = line.trim();
        if message.is_empty() {
            continue;
        }
        match turn(connection, view, message, &variables).await {
            // One failed turn does not end a conversation with a person.
            Err(failure) if interactive && connection.is_open() => {
                terminal::error(&failure.text, failure.hint.as_deref());
            }
            ended => ended?,
        }
    }
}

/// Sends `message` and shows everything until its turn has ended.
async fn turn(
    connection: &mut Connection,
    view: &mut View,
    message: &str,
    variables: &Map<String, Value>,
) -> Result<(), Failure> {
    let key = connection.send(message, variables).await?;
    let mut own_turn = None;
    loop {
        match connection.next().await? {
            Frame::Error { code, message } => {
                view.break_line();
                return Err(Failure::new(format!("{message} ({code})")));
            }
            Frame::Event(event, raw) => {
                view.show(&event, &raw);
                let payload = event.payload();
                if let Some(Payload::TurnStarted(started)) = &payload
                    && started.client_key.as_deref() == Some(key.as_str())
                {
                    own_turn = event.turn.clone();
                }
                let ended = payload.filter(|payload| payload.ends_turn() && own_turn == event.turn);
                match ended {
                    None => {}
                    Some(Payload::TurnFailed(failed)) => {
                        let failure = Failure::new(format!("{} ({})", failed.message, failed.reason));
                        return Err(Failure {
                            hint: failed.hint,
                            ..failure
                        });
                    }
                    Some(Payload::TurnCancelled(cancelled)) => {
                        return Err(Failure::new(format!(
                            "the turn was cancelled: {}",
                            cancelled.reason
                        )));
                    }
                    Some(_) => return Ok(()),
                }
            }
        }
    }
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
