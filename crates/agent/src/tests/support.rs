//! A world for the engine: a scripted model, scripted tools, a journal in memory that can be made to fail.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use mainstay_llm::{
    FinishReason, Model, ModelError, ModelEvent, ModelStream, Request, Role, SignedThought, ToolCall, Usage,
    idle,
};
use mainstay_telemetry::clock::ManualClock;
use mainstay_telemetry::random::SeededRandom;
use mainstay_tools::policy::{Decision, StepResult, TraceStep};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, Semaphore};

use crate::event::Event;
use crate::journal::{Entry, HistoryMessage, Journal, JournalError, OpenTurn, SessionFacts, SessionKey};
use crate::tool::{RegistryTool, Runs, ToolAnswer, ToolRequest, ToolRunner};
use crate::{
    Engine, EngineMetrics, EngineOptions, FixedPack, Hubs, IncomingMessage, Limits, ModelEntry, PackSource,
    SessionHandle, SubscriptionError, Ticket,
};

/// One step of a scripted answer.
pub(crate) enum Say {
    Text(&'static str),
    Call(&'static str, &'static str, Value),
    /// A call with its provider's mark.
    Signed(&'static str, &'static str, &'static str),
    Thought(SignedThought),
    RawCall(&'static str, &'static str, &'static str),
    Usage(u64, u64),
    Finish(FinishReason),
    Fail(ModelError),
    /// Waits until the gate is opened.
    Wait(Arc<Notify>),
    /// Pieces of something that is no event yet, at this distance in seconds.
    Pieces(u64, usize),
    /// Never ends.
    Hang,
}

/// Answers from a list of scripts and remembers what it was asked.
#[derive(Default)]
pub(crate) struct ScriptedModel {
    name: &'static str,
    scripts: Mutex<VecDeque<Vec<Say>>>,
    pub(crate) requests: Mutex<Vec<Request>>,
    pub(crate) asked: Notify,
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScriptedModel")
    }
}

impl ScriptedModel {
    pub(crate) fn new(scripts: Vec<Vec<Say>>) -> Arc<Self> {
        Self::named("scripted", scripts)
    }

    pub(crate) fn named(name: &'static str, scripts: Vec<Vec<Say>>) -> Arc<Self> {
        Arc::new(Self {
            name,
            scripts: Mutex::new(scripts.into()),
            ..Self::default()
        })
    }

    pub(crate) fn request(&self, index: usize) -> Request {
        self.requests.lock().unwrap()[index].clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

#[async_trait]
impl Model for ScriptedModel {
    fn name(&self) -> &str {
        self.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        self.requests.lock().unwrap().push(request);
        self.asked.notify_one();
        let script = self
            .scripts
            .lock()
            .unwrap()
            .pop_front()
            .expect("the script has another answer");
        // Held to the limit on silence as every provider is.
        Ok(idle::limited(
            self.name,
            idle::DEFAULT_IDLE_TIMEOUT,
            async_stream::stream! {
                let mut calls = false;
                for step in script {
                    match step {
                        Say::Text(text) => yield Ok(Some(ModelEvent::Text(text.to_owned()))),
                        Say::Call(id, name, arguments) => {
                            calls = true;
                            yield Ok(Some(ModelEvent::ToolCall(ToolCall::new(id, name, arguments.to_string()))));
                        }
                        Say::Signed(id, name, signature) => {
                            calls = true;
                            yield Ok(Some(ModelEvent::ToolCall(ToolCall {
                                signature: Some(signature.to_owned()),
                                ..ToolCall::new(id, name, "{}")
                            })));
                        }
                        Say::Thought(thought) => yield Ok(Some(ModelEvent::Thought(thought))),
                        Say::RawCall(id, name, arguments) => {
                            calls = true;
                            yield Ok(Some(ModelEvent::ToolCall(ToolCall::new(id, name, arguments))));
                        }
                        Say::Usage(input_tokens, output_tokens) => {
                            yield Ok(Some(ModelEvent::Usage(Usage { input_tokens, output_tokens, cached_tokens: 0 })));
                        }
                        Say::Finish(reason) => {
                            yield Ok(Some(ModelEvent::Finished(reason)));
                            return;
                        }
                        Say::Fail(error) => {
                            yield Err(error);
                            return;
                        }
                        Say::Wait(gate) => gate.notified().await,
                        Say::Pieces(seconds, pieces) => {
                            // Only tests that pause the time have such pieces.
                            for _ in 0..pieces {
                                tokio::time::sleep(Duration::from_secs(seconds)).await;
                                yield Ok(None);
                            }
                        }
                        Say::Hang => std::future::pending::<()>().await,
                    }
                }
                let reason = if calls { FinishReason::ToolCalls } else { FinishReason::Completed };
                yield Ok(Some(ModelEvent::Finished(reason)));
            },
        ))
    }
}

/// What a scripted tool does with a call.
#[derive(Clone)]
pub(crate) enum Does {
    Answers(&'static str),
    Fails(&'static str),
    Echoes,
    /// Waits for a permit, then answers.
    Waits(Arc<Semaphore>, &'static str),
    Hangs,
}

#[derive(Clone)]
pub(crate) struct ScriptedTool {
    pub(crate) does: Does,
    pub(crate) denied: Option<&'static str>,
    pub(crate) repeat_safe: bool,
    pub(crate) runs: Runs,
}

pub(crate) fn tool(does: Does) -> ScriptedTool {
    ScriptedTool {
        does,
        denied: None,
        repeat_safe: false,
        runs: Runs::Here,
    }
}

/// Tools that count what reaches their backends.
#[derive(Default)]
pub(crate) struct ScriptedTools {
    tools: BTreeMap<&'static str, ScriptedTool>,
    pub(crate) calls: Mutex<Vec<ToolRequest>>,
    pub(crate) called: Notify,
    pub(crate) running: AtomicUsize,
    pub(crate) most_running: AtomicUsize,
    pub(crate) ceiling: Option<Duration>,
}

impl std::fmt::Debug for ScriptedTools {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ScriptedTools")
    }
}

impl ScriptedTools {
    pub(crate) fn new(tools: Vec<(&'static str, ScriptedTool)>) -> Arc<Self> {
        Arc::new(Self {
            tools: tools.into_iter().collect(),
            ..Self::default()
        })
    }

    /// How often a call reached the backend of `name`.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .filter(|call| call.tool == name)
            .count()
    }
}

#[async_trait]
impl ToolRunner for ScriptedTools {
    fn tools(&self) -> Vec<RegistryTool> {
        self.tools
            .iter()
            .map(|(name, tool)| RegistryTool {
                name: (*name).to_owned(),
                description: format!("The tool {name}"),
                parameters: json!({"type": "object"}),
                handler: format!("{name}-handler"),
                runs: tool.runs.clone(),
                repeat_safe: tool.repeat_safe,
            })
            .collect()
    }

    fn ceiling(&self) -> Duration {
        self.ceiling.unwrap_or(Duration::from_secs(150))
    }

    async fn decide(&self, request: &ToolRequest) -> Decision {
        match self.tools[request.tool.as_str()].denied {
            None => Decision {
                allow: true,
                injected_headers: [("X-Key".to_owned(), "header-value".to_owned())].into(),
                ..Decision::default()
            },
            Some(message) => Decision {
                allow: false,
                denied_by: Some("no-deletes".to_owned()),
                message: Some(message.to_owned()),
                trace: vec![TraceStep {
                    policy: "orders".to_owned(),
                    rule: "no-deletes".to_owned(),
                    expression: "body.id > 0".to_owned(),
                    result: StepResult::True,
                    values: [("body.id".to_owned(), request.arguments["id"].clone())].into(),
                }],
                ..Decision::default()
            },
        }
    }

    async fn execute(&self, request: &ToolRequest, decision: &Decision) -> ToolAnswer {
        assert!(decision.allow, "a denied call reached its backend");
        self.calls.lock().unwrap().push(request.clone());
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        self.called.notify_one();
        let (content, is_error) = match self.tools[request.tool.as_str()].does.clone() {
            Does::Answers(text) => (text.to_owned(), false),
            Does::Fails(text) => (text.to_owned(), true),
            Does::Echoes => (request.arguments.to_string(), false),
            Does::Waits(gate, text) => {
                gate.acquire().await.unwrap().forget();
                (text.to_owned(), false)
            }
            Does::Hangs => std::future::pending().await,
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        ToolAnswer {
            content,
            is_error,
            attempts: 1,
            ..ToolAnswer::default()
        }
    }
}

/// Sessions in memory. Answers at once, so that tests can pause the time.
#[derive(Debug, Default)]
pub(crate) struct MemoryJournal {
    sessions: Mutex<HashMap<SessionKey, MemorySession>>,
    pub(crate) broken: AtomicBool,
}

#[derive(Debug, Default)]
struct MemorySession {
    events: Vec<Event>,
    messages: Vec<HistoryMessage>,
    keys: HashMap<String, String>,
    last_activity: Timestamp,
}

impl MemoryJournal {
    fn check(&self) -> Result<(), JournalError> {
        match self.broken.load(Ordering::SeqCst) {
            true => Err(JournalError::Unavailable("the disk is gone".into())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError> {
        self.check()?;
        let session = MemorySession {
            last_activity: now,
            ..MemorySession::default()
        };
        self.sessions
            .lock()
            .unwrap()
            .entry(key.clone())
            .or_insert(session);
        Ok(())
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionFacts>, JournalError> {
        self.check()?;
        Ok(self
            .sessions
            .lock()
            .unwrap()
            .get(key)
            .map(|session| SessionFacts {
                last_activity: session.last_activity,
                last_seq: session.events.len() as u64,
            }))
    }

    async fn append(
        &self,
        key: &SessionKey,
        turn: &str,
        now: Timestamp,
        entry: Entry,
    ) -> Result<Vec<Event>, JournalError> {
        self.check()?;
        let mut sessions = self.sessions.lock().unwrap();
        let session = sessions.get_mut(key).ok_or_else(|| JournalError::NoSession {
            session: key.session.clone(),
        })?;
        if let Some(client_key) = entry.client_key {
            if let Some(turn) = session.keys.get(&client_key) {
                return Err(JournalError::Duplicate {
                    client_key,
                    turn: turn.clone(),
                });
            }
            session.keys.insert(client_key, turn.to_owned());
        }
        let mut events = Vec::new();
        for payload in &entry.payloads {
            let mut event = Event::new(&key.session, turn, now, payload);
            event.seq = Some(session.events.len() as u64 + 1);
            session.events.push(event.clone());
            events.push(event);
        }
        session.messages.extend(entry.messages);
        session.last_activity = now;
        Ok(events)
    }

    async fn events_after(
        &self,
        key: &SessionKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        self.check()?;
        let sessions = self.sessions.lock().unwrap();
        let events = sessions
            .get(key)
            .map_or(&[][..], |session| session.events.as_slice());
        Ok(events
            .iter()
            .skip(usize::try_from(after).unwrap())
            .take(limit)
            .cloned()
            .collect())
    }

    async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<HistoryMessage>, JournalError> {
        self.check()?;
        let sessions = self.sessions.lock().unwrap();
        let messages = sessions
            .get(key)
            .map_or(&[][..], |session| session.messages.as_slice());
        Ok(messages[messages.len().saturating_sub(limit)..].to_vec())
    }

    async fn open_turns(&self, namespace: &str, agent: &str) -> Result<Vec<OpenTurn>, JournalError> {
        self.check()?;
        let sessions = self.sessions.lock().unwrap();
        let mut open = Vec::new();
        for (key, session) in sessions
            .iter()
            .filter(|(key, _)| key.namespace == namespace && key.agent == agent)
        {
            let mut turns = Vec::new();
            let mut seen = HashSet::new();
            for event in &session.events {
                let turn = event.turn.clone().unwrap();
                if event.ends_turn() {
                    turns.retain(|open| *open != turn);
                } else if seen.insert(turn.clone()) {
                    turns.push(turn);
                }
            }
            open.extend(turns.into_iter().map(|turn| OpenTurn {
                key: key.clone(),
                turn,
            }));
        }
        Ok(open)
    }
}

/// A pack whose bytes can be edited.
#[derive(Debug)]
pub(crate) struct EditablePack(pub(crate) Mutex<Vec<u8>>);

impl PackSource for EditablePack {
    fn read(&self) -> std::io::Result<Vec<u8>> {
        Ok(self.0.lock().unwrap().clone())
    }
}

pub(crate) fn pack_json(prompt: Value) -> Value {
    let mut main =
        json!({"id": "main", "name": "Main", "version": "1.0.0", "system_template": "Help.", "tools": ["*"]});
    for (name, value) in prompt.as_object().unwrap() {
        main[name] = value.clone();
    }
    json!({
        "id": "helpdesk", "name": "Helpdesk", "version": "1.0.0",
        "template_engine": {"version": "v1", "syntax": "{{variable}}"}, "prompts": {"main": main}
    })
}

/// Builds engines over one world, so that a second one can take up what the first left.
pub(crate) struct World {
    pub(crate) model: Arc<ScriptedModel>,
    pub(crate) tools: Arc<ScriptedTools>,
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) random: Arc<SeededRandom>,
    pub(crate) options: EngineOptions,
}

impl World {
    pub(crate) fn new(
        scripts: Vec<Vec<Say>>,
        tools: Vec<(&'static str, ScriptedTool)>,
        prompt: Value,
    ) -> Self {
        Self::over(Arc::new(MemoryJournal::default()), scripts, tools, prompt)
    }

    pub(crate) fn over(
        journal: Arc<dyn Journal>,
        scripts: Vec<Vec<Say>>,
        tools: Vec<(&'static str, ScriptedTool)>,
        prompt: Value,
    ) -> Self {
        let (model, tools) = (ScriptedModel::new(scripts), ScriptedTools::new(tools));
        let clock = ManualClock::at("2026-01-01T00:00:00Z".parse().unwrap());
        let random = SeededRandom::new(7);
        let options = EngineOptions {
            namespace: "default".to_owned(),
            agent: "helpdesk".to_owned(),
            pack: Arc::new(FixedPack(pack_json(prompt).to_string().into_bytes())),
            models: vec![ModelEntry::plain("main", model.clone())],
            tools: tools.clone(),
            journal: journal.clone(),
            hubs: Hubs::new(),
            claims: Arc::new(crate::claims::OnlyProcess),
            clock: clock.clone(),
            random: random.clone(),
            limits: Limits::default(),
            metrics: EngineMetrics::default(),
            surface_unlisted_tools: false,
        };
        Self {
            model,
            tools,
            journal,
            clock,
            random,
            options,
        }
    }

    pub(crate) async fn engine(&self) -> Engine {
        Engine::start(self.options.clone()).await.unwrap()
    }

    /// A later process over the same store: nothing of the live state is left.
    pub(crate) fn restarted(&self, scripts: Vec<Vec<Say>>) -> Self {
        let model = ScriptedModel::new(scripts);
        let options = EngineOptions {
            models: vec![ModelEntry::plain("main", model.clone())],
            hubs: Hubs::new(),
            ..self.options.clone()
        };
        Self {
            model,
            tools: self.tools.clone(),
            journal: self.journal.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            options,
        }
    }
}

pub(crate) fn message(content: &str) -> IncomingMessage {
    IncomingMessage {
        content: content.to_owned(),
        ..IncomingMessage::default()
    }
}

pub(crate) fn metadata(values: Value) -> Map<String, Value> {
    values.as_object().unwrap().clone()
}

pub(crate) fn ends_turn(event: &Event) -> bool {
    event.ends_turn()
}

/// Sends a message and returns everything that happened until its turn ended.
pub(crate) async fn converse(session: &SessionHandle, incoming: IncomingMessage) -> Vec<Event> {
    let events = session.subscribe(None);
    let mut ticket = session.send(incoming).unwrap();
    ticket.started().await.unwrap();
    until_end(events, &ticket).await
}

pub(crate) async fn until_end(
    events: impl Stream<Item = Result<Arc<Event>, SubscriptionError>>,
    ticket: &Ticket,
) -> Vec<Event> {
    let mut seen = Vec::new();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event = event.unwrap();
        let last = ends_turn(&event) && event.turn.as_ref() == Some(&ticket.turn);
        seen.push(Arc::unwrap_or_clone(event));
        if last {
            break;
        }
    }
    seen
}

/// The stored events of a session, from the store itself.
pub(crate) fn key_of(session: &SessionHandle) -> SessionKey {
    SessionKey {
        namespace: "default".to_owned(),
        agent: "helpdesk".to_owned(),
        session: session.id().to_string(),
    }
}

pub(crate) async fn stored(world: &World, session: &SessionHandle) -> Vec<Event> {
    let key = key_of(session);
    world.journal.events_after(&key, 0, 10_000).await.unwrap()
}

pub(crate) fn kinds<E: Borrow<Event>>(events: &[E]) -> Vec<&str> {
    events.iter().map(|event| event.borrow().kind.as_str()).collect()
}

pub(crate) fn find<'a, E: Borrow<Event> + std::fmt::Debug>(events: &'a [E], kind: &str) -> &'a Value {
    &events
        .iter()
        .map(Borrow::borrow)
        .find(|event| event.kind == kind)
        .unwrap_or_else(|| panic!("no {kind} in {events:#?}"))
        .data
}

pub(crate) fn all<'a, E: Borrow<Event>>(events: &'a [E], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .map(Borrow::borrow)
        .filter(|event| event.kind == kind)
        .map(|event| &event.data)
        .collect()
}

/// The text that a reader has put together from pieces.
pub(crate) fn text_of<E: Borrow<Event>>(events: &[E]) -> String {
    all(events, "model.delta")
        .iter()
        .map(|data| data["text"].as_str().unwrap())
        .collect()
}

/// One message in a new session, and everything that happened until it was answered.
pub(crate) async fn run(world: &World, text: &str) -> Vec<Event> {
    let session = world.engine().await.open_session(None).await.unwrap();
    converse(&session, message(text)).await
}

/// The results that the model reads in its request number `index`.
pub(crate) fn results(world: &World, index: usize) -> Vec<(String, bool)> {
    world
        .model
        .request(index)
        .messages
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| (message.content.clone(), message.is_error))
        .collect()
}
