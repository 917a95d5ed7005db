//! Sends the scripts of a file to a server.

mod exchange;
mod stream;

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream as streams};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use crate::{
    answers::Answers,
    case::{CaseFile, Step, Until},
    normalise::Normaliser,
    placeholders::Placeholders,
    pointer,
};
use exchange::Exchange;
use stream::Events;

/// How long a state may take to come, or an event.
const DEADLINE: Duration = Duration::from_secs(30);
/// Time between two requests that look for a state.
const AGAIN: Duration = Duration::from_millis(40);

/// A server that scripts are sent to.
#[derive(Clone)]
pub struct Server {
    /// Speaks as the administrator.
    pub admin: Client,
    /// Speaks without credentials; none where only the administrator can be asked, and then such steps are an error.
    pub anonymous: Option<Client>,
    /// Makes the names of this run its own: a few lower-case letters.
    pub seed: String,
    /// The time, which tells fresh times in answers from those that scripts write.
    pub now: Timestamp,
    /// How many cases are sent at the same time.
    pub parallel: usize,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Server")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Sends the shared steps and then the wanted cases of a file.
///
/// # Errors
/// The server cannot be reached, or a script cannot go on: a capture is missing, an awaited state does not come.
pub async fn run_file(
    server: &Server,
    file: &CaseFile,
    position: usize,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<Answers> {
    let identifier = format!("v{}{position:02}", server.seed);
    let mut shared = Script::new(server, &identifier, "shared", &Placeholders::default());
    let answers = shared
        .steps(&file.shared)
        .await
        .with_context(|| format!("{}: shared", file.name))?;
    let mut all = Answers::new();
    if !file.shared.is_empty() {
        all.insert("shared".to_owned(), answers);
    }
    let cases: Vec<_> = file
        .cases
        .iter()
        .enumerate()
        .filter(|(_, case)| wanted(&case.name))
        .collect();
    let answered: Vec<(String, Vec<Value>)> = streams::iter(cases)
        .map(|(number, case)| {
            let mut script = Script::new(
                server,
                &identifier,
                &format!("c{number:03}"),
                &shared.placeholders,
            );
            async move {
                let answers = match script.namespace().await {
                    Ok(()) => script.steps(&case.steps).await,
                    Err(error) => Err(error),
                };
                // A script that cannot go on is a difference of its own, and no reason to leave out the others.
                let answers = answers.unwrap_or_else(|error| vec![json!({"stopped": format!("{error:#}")})]);
                anyhow::Ok((case.name.clone(), answers))
            }
        })
        .buffer_unordered(server.parallel.max(1))
        .try_collect()
        .await?;
    all.extend(answered);
    Ok(all)
}

/// One case in progress.
struct Script<'a> {
    server: &'a Server,
    namespace: String,
    placeholders: Placeholders,
    normaliser: Normaliser,
    watches: BTreeMap<String, Events>,
}

impl<'a> Script<'a> {
    fn new(server: &'a Server, file: &str, case: &str, shared: &Placeholders) -> Self {
        let namespace = format!("{file}-{case}");
        let group = format!("{file}.example.com");
        let mut placeholders = shared.clone();
        placeholders.set("namespace", &namespace);
        placeholders.set("id", &namespace);
        placeholders.set("core", format!("/api/v1/namespaces/{namespace}"));
        placeholders.set("apps", format!("/apis/apps/v1/namespaces/{namespace}"));
        placeholders.set("custom", format!("/apis/{group}/v1/namespaces/{namespace}"));
        placeholders.set("group", &group);
        let names = vec![
            (namespace.clone(), "{id}".to_owned()),
            (group, "{group}".to_owned()),
            // What is left of the group where a text is cut.
            (file.to_owned(), "{file}".to_owned()),
        ];
        Self {
            server,
            namespace,
            placeholders,
            normaliser: Normaliser::new(names, server.now),
            watches: BTreeMap::new(),
        }
    }

    /// Makes the namespace of the case.
    async fn namespace(&mut self) -> anyhow::Result<()> {
        let step = Step {
            request: "POST /api/v1/namespaces".to_owned(),
            body: Some(
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}),
            ),
            ..Step::default()
        };
        let answer = self.exchange(&step).await?;
        if answer.status != 201 {
            bail!("cannot create namespace {}: {}", self.namespace, answer.body);
        }
        Ok(())
    }

    async fn steps(&mut self, steps: &[Step]) -> anyhow::Result<Vec<Value>> {
        let mut answers = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            self.placeholders.set("step", number.to_string());
            let each: Vec<Option<&String>> = if step.each.is_empty() {
                vec![None]
            } else {
                step.each.iter().map(Some).collect()
            };
            for each in each {
                if let Some(each) = each {
                    let each = self.placeholders.fill(each);
                    self.placeholders.set("each", each);
                }
                let answer = Box::pin(self.step(step))
                    .await
                    .with_context(|| format!("step {number} {}{}", step.request, self.waiting_for(step)))?;
                answers.push(answer);
            }
        }
        Ok(answers)
    }

    fn waiting_for(&self, step: &Step) -> String {
        step.collect
            .as_ref()
            .map_or_else(String::new, |name| format!("collect {name}"))
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<Value> {
        let (answer, body) = if let Some(name) = &step.collect {
            let events = self
                .watches
                .get_mut(name)
                .with_context(|| format!("no step opened the watch {name:?}"))?;
            let body = Value::Array(events.read(step.events, DEADLINE).await?);
            (json!({}), body)
        } else if let Some(name) = &step.watch {
            let (answer, events) = Exchange::prepare(self.server, &self.placeholders, step)?
                .watch()
                .await?;
            let body = match events {
                Some(events) => {
                    self.watches.insert(name.clone(), events);
                    Value::Null
                }
                None => answer.body.clone(),
            };
            (answer.head(), body)
        } else {
            let answer = self.settled(step).await?;
            (answer.head(), answer.body.clone())
        };
        if step.silent
            && let Some(status) = answer.get("status").and_then(Value::as_u64)
            && status >= 400
            && step.until.is_none()
        {
            bail!("a step that prepares was refused: {status} {body}");
        }
        for (name, place) in &step.capture {
            let value = pointer::get(&body, place)
                .and_then(Value::as_str)
                .with_context(|| format!("nothing to capture as {name:?} at {place:?} of {body}"))?;
            self.placeholders.set(name, value);
            if !value.bytes().all(|byte| byte.is_ascii_digit()) {
                self.normaliser.learn(value, name);
            }
        }
        if step.silent {
            return Ok(json!({}));
        }
        Ok(self.normalised(step, answer, body))
    }

    /// The part of an answer that is compared.
    fn normalised(&mut self, step: &Step, mut answer: Value, body: Value) -> Value {
        let mut body: Value = if step.compare.is_empty() {
            body
        } else {
            step.compare
                .iter()
                .map(|place| {
                    let place = self.placeholders.fill(place);
                    let value = pointer::get(&body, &place).cloned();
                    (place, value.unwrap_or(Value::from("<absent>")))
                })
                .collect()
        };
        body = self.normaliser.value(body);
        for place in &step.ignore {
            pointer::remove(&mut body, place);
        }
        if step.unordered {
            sort_parts(&mut body);
        }
        if let Value::Object(members) = &mut answer {
            if !body.is_null() {
                members.insert("body".to_owned(), body);
            }
            if let Some(warnings) = members.remove("warnings") {
                members.insert("warnings".to_owned(), self.normaliser.value(warnings));
            }
        }
        answer
    }

    /// The answer, asked for again until it is what the step waits for.
    async fn settled(&self, step: &Step) -> anyhow::Result<exchange::Answer> {
        let Some(until) = &step.until else {
            return self.exchange(step).await;
        };
        let mut ticks = tokio::time::interval(AGAIN);
        let mut last = None;
        let waiting = async {
            loop {
                ticks.tick().await;
                let answer = self.exchange(step).await?;
                if until.is_met(&answer, &self.placeholders) {
                    return anyhow::Ok(answer);
                }
                last = Some(answer);
            }
        };
        match tokio::time::timeout(DEADLINE, waiting).await {
            Ok(answer) => answer,
            Err(_elapsed) => bail!(
                "the awaited state did not come; the last answer was {}",
                last.map_or_else(String::new, |answer| format!("{} {}", answer.status, answer.body))
            ),
        }
    }

    async fn exchange(&self, step: &Step) -> anyhow::Result<exchange::Answer> {
        Exchange::prepare(self.server, &self.placeholders, step)?
            .send(DEADLINE)
            .await
    }
}

impl Until {
    fn is_met(&self, answer: &exchange::Answer, placeholders: &Placeholders) -> bool {
        self.status.is_none_or(|status| status == answer.status)
            && self.body.iter().all(|(place, wanted)| {
                let wanted = placeholders.fill_value(wanted);
                match pointer::get(&answer.body, &placeholders.fill(place)) {
                    Some(found) => *found == wanted,
                    None => wanted.is_null(),
                }
            })
    }
}

/// Brings the causes and the parts of the message of a `Status` into an order.
fn sort_parts(body: &mut Value) {
    if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(ToString::to_string);
    }
    if let Some(message) = body.get_mut("message")
        && let Some(text) = message.as_str()
    {
        let mut parts: Vec<&str> = text
            .split([',', '\n', '[', ']'])
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .collect();
        parts.sort_unstable();
        *message = Value::from(parts.join(" | "));
    }
}
