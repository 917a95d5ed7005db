//! The server's side: answers the agents' processes, each about its own agent only.

use std::fmt::{self, Debug};
use std::sync::Arc;

use async_trait::async_trait;
use mainstay_tools::delegation::{DelegationRequest, DelegationSigner};
use mainstay_workload::process::Start;
use mainstay_workload::process::calls::{Answers, Conversation, Refusal};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde_json::Value;

use super::protocol::{
    Ask, ENDS_WITHIN, Granted, LEAVES_WITHIN, MessagePage, PAGE_BYTES, StoreFailure, Stored,
};
use super::register::{ClaimId, Register, Writing};
use crate::journal::{Journal, JournalError, SessionKey};

/// The environment variable by which a container's Pod says which agent it is.
const AGENT_VARIABLE: &str = "OMNIA_AGENT_NAME";

/// What the processes of agents share.
#[derive(Debug, Clone)]
pub struct AgentServerOptions {
    /// The name of the role that agents are. Others ask nothing here.
    pub role: String,
    /// Where conversations are kept.
    pub journal: Arc<dyn Journal>,
    /// Signs for whom an agent calls a tool.
    pub delegation: Arc<dyn DelegationSigner>,
}

/// Answers the processes of agents. Clones share who has which session.
#[derive(Clone)]
pub struct AgentServer {
    options: AgentServerOptions,
    register: Arc<Register>,
}

impl Debug for AgentServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AgentServer")
    }
}

impl AgentServer {
    /// A server of agents. No process has a session yet.
    pub fn new(options: AgentServerOptions) -> Self {
        Self {
            options,
            register: Arc::default(),
        }
    }
}

impl Answers for AgentServer {
    fn begin(&self, start: &Start) -> Option<Arc<dyn Conversation>> {
        if start.role != self.options.role {
            return None;
        }
        Some(Arc::new(AgentConversation {
            namespace: start.namespace.clone(),
            agent: start.environment.get(AGENT_VARIABLE)?.clone(),
            process: self.register.begin(),
            register: Arc::clone(&self.register),
            journal: Arc::clone(&self.options.journal),
            delegation: Arc::clone(&self.options.delegation),
        }))
    }
}

/// The calls of one process.
struct AgentConversation {
    /// Of its Pod, whatever it says.
    namespace: String,
    agent: String,
    process: u64,
    register: Arc<Register>,
    journal: Arc<dyn Journal>,
    delegation: Arc<dyn DelegationSigner>,
}

#[async_trait]
impl Conversation for AgentConversation {
    async fn answer(&self, ask: Value) -> Result<Value, Refusal> {
        let ask = serde_json::from_value(ask)
            .map_err(|error| Refusal::new("UnknownCall", format!("the call cannot be read: {error}")))?;
        let journal = &self.journal;
        match ask {
            Ask::Claim { key, claim } => self.claim(&key, claim).await,
            Ask::Release { claim } => {
                self.register.release(self.id(claim));
                written(&())
            }
            Ask::Ends { seen } => {
                let mut ends = self.register.ends(self.agent());
                let changed = ends.wait_for(|ends| *ends != seen);
                let changed = tokio::time::timeout(ENDS_WITHIN, changed).await;
                // The register, and with it the sender, is held here; else nothing has changed.
                written(&changed.map_or(seen, |changed| changed.map_or(seen, |ends| *ends)))
            }
            Ask::CreateSession { key, now } => {
                let _writing = self.writing(&key)?;
                stored(journal.create_session(&key, now).await)
            }
            Ask::FindSession { key } => {
                self.may_read(&key.namespace, &key.agent)?;
                stored(journal.find_session(&key).await)
            }
            Ask::Append {
                key,
                turn,
                now,
                entry,
            } => {
                let _writing = self.writing(&key)?;
                let entry = entry.read().map_err(|kind| {
                    Refusal::new(
                        "UnknownEvent",
                        format!("an event of the type {kind:?} cannot be read"),
                    )
                })?;
                let events = journal.append(&key, &turn, now, entry).await;
                let numbers = |events: Vec<crate::Event>| events.iter().map(|event| event.seq).collect();
                stored::<Vec<Option<u64>>>(events.map(numbers))
            }
            Ask::EventsAfter { key, after, limit } => {
                self.may_read(&key.namespace, &key.agent)?;
                let events = journal.events_after(&key, after, limit).await;
                stored(events.map(|mut events| {
                    let whole = fitting(events.iter());
                    events.truncate(whole);
                    events
                }))
            }
            Ask::Messages { key, limit, had } => {
                self.may_read(&key.namespace, &key.agent)?;
                let messages = journal.messages(&key, limit).await;
                stored(messages.map(|mut messages| {
                    messages.truncate(messages.len().saturating_sub(had));
                    let older = messages.len() - fitting(messages.iter().rev());
                    MessagePage {
                        messages: messages.split_off(older),
                        more: older > 0,
                    }
                }))
            }
            Ask::OpenTurns { namespace, agent } => {
                self.may_read(&namespace, &agent)?;
                stored(journal.open_turns(&namespace, &agent).await)
            }
            Ask::Sign {
                end_user,
                session,
                registry,
                handler,
            } => {
                let request = DelegationRequest {
                    end_user,
                    agent: self.agent.clone(),
                    namespace: self.namespace.clone(),
                    session,
                    registry,
                    handler,
                };
                let signed = self.delegation.sign(&request).await;
                let signed = signed.map_err(|error| Refusal::new("NotSigned", error.message))?;
                written(&signed.expose_secret())
            }
        }
    }

    fn ended(&self) {
        self.register.end(self.process, self.agent());
    }
}

impl AgentConversation {
    fn agent(&self) -> (String, String) {
        (self.namespace.clone(), self.agent.clone())
    }

    fn id(&self, claim: u64) -> ClaimId {
        ClaimId {
            process: self.process,
            claim,
        }
    }

    /// A process reads what is its agent's.
    fn may_read(&self, namespace: &str, agent: &str) -> Result<(), Refusal> {
        if namespace == self.namespace && agent == self.agent {
            return Ok(());
        }
        let Self {
            namespace: own_namespace,
            agent: own_agent,
            ..
        } = self;
        tracing::warn!(
            namespace,
            agent,
            own_namespace,
            own_agent,
            "a process asked for another agent's conversations"
        );
        Err(Refusal::new(
            "AnotherAgent",
            format!("this is the process of the agent {own_namespace}/{own_agent}"),
        ))
    }

    /// It writes to what it has claimed moreover.
    fn writing(&self, key: &SessionKey) -> Result<Writing, Refusal> {
        self.may_read(&key.namespace, &key.agent)?;
        self.register.write(self.process, key).ok_or_else(|| {
            Refusal::new(
                "NotClaimed",
                format!("this process has not claimed the session {}", key.session),
            )
        })
    }

    async fn claim(&self, key: &SessionKey, claim: u64) -> Result<Value, Refusal> {
        self.may_read(&key.namespace, &key.agent)?;
        let id = self.id(claim);
        if !self.register.claim(key, id, LEAVES_WITHIN).await {
            return written(&None::<Granted>);
        }
        match self.found(key).await {
            Ok(granted) => written(&Some(granted)),
            Err(error) => {
                self.register.release(id);
                let error = mainstay_telemetry::text::with_causes(&error);
                Err(Refusal::new("StoreUnavailable", error))
            }
        }
    }

    /// How the session stands.
    async fn found(&self, key: &SessionKey) -> Result<Granted, JournalError> {
        let facts = self.journal.find_session(key).await?;
        let open = self.journal.open_turns(&self.namespace, &self.agent).await?;
        let open = open.into_iter().filter(|open| open.key == *key);
        Ok(Granted {
            last_seq: facts.map_or(0, |facts| facts.last_seq),
            open_turns: open.map(|open| open.turn).collect(),
        })
    }
}

/// How many of these fit one answer, at least one.
fn fitting<'a, T: Serialize + 'a>(items: impl Iterator<Item = &'a T>) -> usize {
    let mut bytes = 0;
    items
        .take_while(|item| {
            let first = bytes == 0;
            // What cannot be written fails when the answer is.
            bytes += serde_json::to_vec(item).map_or(0, |text| text.len());
            first || bytes <= PAGE_BYTES
        })
        .count()
}

fn stored<T: Serialize>(result: Result<T, JournalError>) -> Result<Value, Refusal> {
    let stored: Stored<T> = result.map_err(StoreFailure::from);
    written(&stored)
}

fn written<T: Serialize>(answer: &T) -> Result<Value, Refusal> {
    serde_json::to_value(answer)
        .map_err(|error| Refusal::new("InternalError", format!("the answer cannot be written: {error}")))
}
