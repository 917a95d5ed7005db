//! One agent's engine: opens sessions, continues what a crash left open, and ends in an orderly way.

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::random::SharedRandom;
use mainstay_telemetry::task;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::claims::{ClaimError, Claimed, SessionClaims};
use crate::hub::{Hub, Hubs};
use crate::journal::{Journal, JournalError, OpenTurn, SessionKey};
use crate::limits::Limits;
use crate::metrics::EngineMetrics;
use crate::model_entry::ModelEntry;
use crate::pack_source::{PackError, PackShelf, PackSource};
use crate::session::{SessionError, SessionHandle};
use crate::tool::ToolRunner;
use crate::turn;

/// Everything an engine works with. It reaches nothing else.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Namespace of the agent.
    pub namespace: String,
    /// Name of the agent.
    pub agent: String,
    /// Where the pack comes from.
    pub pack: Arc<dyn PackSource>,
    /// Provider entries; the one named `default`, else the first, serves prompts (OM-136).
    pub models: Vec<ModelEntry>,
    /// Tools of the agent's registry.
    pub tools: Arc<dyn ToolRunner>,
    /// Where sessions are stored.
    pub journal: Arc<dyn Journal>,
    /// Live sessions of this process. Engines that serve the same agent must share them.
    pub hubs: Hubs,
    /// Which process may go on with a session.
    pub claims: Arc<dyn SessionClaims>,
    /// Tells the time.
    pub clock: SharedClock,
    /// Gives ids.
    pub random: SharedRandom,
    /// Bounds.
    pub limits: Limits,
    /// Counts turns and calls.
    pub metrics: EngineMetrics,
    /// Offers registry tools that the prompt does not list: for migration only (DD-7).
    pub surface_unlisted_tools: bool,
}

/// Why an agent is not ready.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The pack cannot be used.
    #[error(transparent)]
    Pack(#[from] PackError),
    /// No provider entry can serve prompts (OM-136).
    #[error("the agent has no provider entry with the role `llm`")]
    NoModel,
}

impl StartError {
    /// Stable word for conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Pack(error) => error.reason(),
            Self::NoModel => "NoModel",
        }
    }
}

/// The conversations of one agent. Clones are the same engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What turns share. Turns hold it while they run, so the engine lives as long as they do.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: EngineOptions,
    pub(crate) model: ModelEntry,
    pub(crate) packs: PackShelf,
    /// Set once: no new sessions and messages from then on (OM-503).
    draining: AtomicBool,
    /// Ends every turn where it stands, like a crash would.
    stop: CancellationToken,
    tracker: TaskTracker,
    // A std mutex: held to insert or take out an entry. Turns that this engine runs or is about to.
    turns: Mutex<HashSet<String>>,
}

/// A turn that this engine runs or is about to, until this is dropped.
#[derive(Debug)]
pub(crate) struct TurnHere {
    pub(crate) turn: String,
    shared: Arc<Shared>,
}

impl Drop for TurnHere {
    fn drop(&mut self) {
        self.shared.turns().remove(&self.turn);
    }
}

impl Engine {
    /// Loads the pack and chooses the provider.
    ///
    /// # Errors
    ///
    /// [`StartError`]: the agent is not ready, and why.
    pub async fn start(options: EngineOptions) -> Result<Self, StartError> {
        let model = options
            .models
            .iter()
            .find(|entry| entry.name == "default")
            .or_else(|| options.models.first())
            .cloned()
            .ok_or(StartError::NoModel)?;
        let packs = PackShelf::open(Arc::clone(&options.pack)).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                model,
                packs,
                draining: AtomicBool::new(false),
                stop: CancellationToken::new(),
                tracker: TaskTracker::new(),
                turns: Mutex::default(),
            }),
        })
    }

    /// Opens a session: a new one, or one that exists (OM-528, OM-587). The pack is read again, so the
    /// session gets the prompt as it is now. A new session is stored with its first message.
    ///
    /// # Errors
    ///
    /// [`SessionError::Expired`] when the session is definitely absent or too old, and
    /// [`SessionError::Unavailable`] when the store cannot tell.
    pub async fn open_session(&self, requested: Option<Uuid>) -> Result<SessionHandle, SessionError> {
        let shared = &self.shared;
        if shared.is_draining() {
            return Err(SessionError::Draining);
        }
        let id = requested.unwrap_or_else(|| shared.options.random.uuid());
        let key = shared.key(&id.to_string());
        // Had before the store is asked: what is stored after that is shown by this hub, and none is made that knows less.
        let hub = shared.options.hubs.get(&key, 0);
        if requested.is_some() {
            // Read behind whatever another process still does in it; given back at once, as nothing runs yet.
            let claim = shared
                .options
                .claims
                .claim(&key)
                .await
                .map_err(SessionError::from)?;
            let facts = shared
                .options
                .journal
                .find_session(&key)
                .await
                .map_err(SessionError::Unavailable)?;
            let oldest = shared
                .options
                .clock
                .now()
                .checked_sub(shared.options.limits.session_ttl)
                .ok();
            match facts {
                Some(facts) if oldest.is_none_or(|oldest| facts.last_activity >= oldest) => {
                    hub.raise(facts.last_seq);
                }
                _ => return Err(SessionError::Expired { session: id }),
            }
            drop(claim);
        }
        let pack = shared.packs.current().await;
        Ok(SessionHandle::new(
            Arc::clone(shared),
            hub,
            pack,
            id,
            requested.is_some(),
        ))
    }

    /// Continues the turns that were running when the process ended (contract 7). Returns how many.
    /// Turns that another engine of this process or another process still runs are left to it, and taken up when it gave
    /// them up. What this engine runs already, or waits to, is not counted.
    ///
    /// # Errors
    ///
    /// When the store cannot be read; nothing was continued then.
    pub async fn resume_open_turns(&self) -> Result<usize, JournalError> {
        let options = &self.shared.options;
        let open = options
            .journal
            .open_turns(&options.namespace, &options.agent)
            .await?;
        let pack = self.shared.packs.current().await;
        let mut count = 0;
        for OpenTurn { key, turn } in open {
            let hub = options.hubs.get(&key, 0);
            if let Some(facts) = options.journal.find_session(&key).await? {
                hub.raise(facts.last_seq);
            }
            let Some(turn) = self.shared.take_on(&turn) else {
                continue;
            };
            count += 1;
            let (shared, pack) = (Arc::clone(&self.shared), Arc::clone(&pack));
            self.shared
                .spawn("turn-resumed", turn::resume(shared, hub, pack, turn));
        }
        Ok(count)
    }

    /// Namespace of the agent.
    pub fn namespace(&self) -> &str {
        &self.shared.options.namespace
    }

    /// Name of the agent.
    pub fn agent(&self) -> &str {
        &self.shared.options.agent
    }

    /// Tells the time, for whoever serves this engine.
    pub fn clock(&self) -> SharedClock {
        self.shared.options.clock.clone()
    }

    /// Whether new sessions and messages are refused.
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Refuses new work and waits for running turns, at most `patience`; then stops them where they stand.
    /// They are continued when the agent starts again. Returns whether all had ended by themselves.
    pub async fn drain(&self, patience: Duration) -> bool {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.tracker.close();
        let ended = tokio::time::timeout(patience, self.shared.tracker.wait())
            .await
            .is_ok();
        self.stop().await;
        ended
    }

    /// Ends when the engine is stopped: whoever shows its sessions can close then.
    pub async fn stopped(&self) {
        self.shared.stop.cancelled().await;
    }

    /// Stops every turn where it stands and waits until none runs. What is stored stays, open turns stay
    /// open; [`Engine::resume_open_turns`] of a later engine goes on behind the last stored step.
    pub async fn stop(&self) {
        self.shared.draining.store(true, Ordering::SeqCst);
        self.shared.stop.cancel();
        self.shared.tracker.close();
        self.shared.tracker.wait().await;
    }
}

impl Shared {
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Takes a turn on; `None` when this engine runs it already or is about to.
    pub(crate) fn take_on(self: &Arc<Self>, turn: &str) -> Option<TurnHere> {
        self.turns().insert(turn.to_owned()).then(|| TurnHere {
            turn: turn.to_owned(),
            shared: Arc::clone(self),
        })
    }

    fn turns(&self) -> MutexGuard<'_, HashSet<String>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the session of `hub` for a turn, and brings the hub up to date with what other processes did.
    pub(crate) async fn claim(&self, hub: &Hub) -> Result<Claimed, ClaimError> {
        let claimed = self.options.claims.claim(&hub.key).await?;
        hub.raise(claimed.last_seq);
        Ok(claimed)
    }

    /// The provider entry called `name`. A model without entries of its own is the one that serves prompts.
    pub(crate) fn entry(&self, name: &str) -> &ModelEntry {
        let entries = &self.options.models;
        entries
            .iter()
            .find(|entry| entry.name == name)
            .unwrap_or(&self.model)
    }

    pub(crate) fn key(&self, session: &str) -> SessionKey {
        SessionKey {
            namespace: self.options.namespace.clone(),
            agent: self.options.agent.clone(),
            session: session.to_owned(),
        }
    }

    /// Runs a turn's future until it ends or the engine is stopped.
    pub(crate) fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        let future = Box::pin(future);
        let tracked = self.tracker.track_future(async move {
            tokio::select! {
                // The stop comes first: a turn that waits for another must not begin because that one was stopped.
                biased;
                () = stop.cancelled() => {}
                () = future => {}
            }
        });
        // The tracker is what waits for it; a panic is logged by the task itself.
        drop(task::spawn(name, tracked));
    }
}
