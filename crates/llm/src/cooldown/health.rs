//! The rules with waiting, shared by all calls of a provider.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use mainstay_telemetry::{clock::SharedClock, task};
use tokio::{
    sync::{OnceCell, watch},
    time::Instant,
};

use super::{
    Cooldown, CooldownStore, ProviderKey, counts,
    state::{Entry, Pass, ProbeEntry, State},
};
use crate::error::{ModelError, ModelErrorKind};

// A store that does not answer must not hold up the first call of a provider.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// What is known of one provider.
#[derive(Debug)]
pub struct ProviderHealth {
    key: ProviderKey,
    clock: SharedClock,
    // A std mutex: held for one step of the state machine, never across an await.
    state: Mutex<State>,
    // Counts changes; those who wait look again after each.
    changed: watch::Sender<u64>,
    store: Option<Arc<Stored>>,
    loaded: OnceCell<()>,
}

#[derive(Debug)]
struct Stored {
    store: Arc<dyn CooldownStore>,
    // What the store has. Locked over a write, so that writes keep their order and the newest state
    // is what ends up stored.
    last: tokio::sync::Mutex<Option<Cooldown>>,
}

/// Why an attempt may not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The provider cools down for so long.
    Cooling { remaining: Duration },
    /// Other calls are finding out, for longer than this one waits.
    WaitedTooLong,
}

/// What to do after a failed attempt that could be made again.
pub(crate) enum Next {
    /// Make it again after the usual delay.
    Retry(Ticket),
    /// Others find out: ask for a new ticket.
    Join,
}

/// The right to make attempts at a provider. Dropping it gives the right to another call.
#[derive(Debug)]
pub(crate) struct Ticket {
    health: Arc<ProviderHealth>,
    pass: Option<Pass>,
}

impl ProviderHealth {
    pub(super) fn new(key: ProviderKey, clock: SharedClock, store: Option<Arc<dyn CooldownStore>>) -> Self {
        Self {
            key,
            clock,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            store: store.map(|store| {
                Arc::new(Stored {
                    store,
                    last: tokio::sync::Mutex::default(),
                })
            }),
            loaded: OnceCell::new(),
        }
    }

    /// The provider's identity.
    pub fn key(&self) -> &ProviderKey {
        &self.key
    }

    /// The cooldown the provider is in.
    pub fn cooling(&self) -> Option<Cooldown> {
        let state = self.state();
        state.remaining(Instant::now())?;
        state.record().cloned()
    }

    /// How long it cools down yet, once what an earlier process stored is known.
    pub(crate) async fn remaining(&self) -> Option<Duration> {
        self.load().await;
        self.state().remaining(Instant::now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        self.changed
            .send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    async fn load(&self) {
        let Some(stored) = &self.store else { return };
        self.loaded
            .get_or_init(async || {
                match tokio::time::timeout(LOAD_TIMEOUT, stored.store.load(&self.key)).await {
                    Ok(Ok(None)) => {}
                    Ok(Ok(Some(record))) => {
                        *stored.last.lock().await = Some(record.clone());
                        self.state()
                            .restore(record, Instant::now(), self.clock.now());
                    }
                    Ok(Err(error)) => {
                        tracing::warn!(provider = %self.key, %error, "the provider begins without its past cooldown");
                    }
                    Err(_) => {
                        tracing::warn!(provider = %self.key, "the store of cooldowns does not answer");
                    }
                }
            })
            .await;
    }

    /// A ticket for one call, waiting for calls that are finding out whether the provider answers.
    /// `waiting` is told once, before the first wait, what for.
    pub(crate) async fn ticket(
        self: &Arc<Self>,
        deadline: Instant,
        mut waiting: impl FnMut(String),
    ) -> Result<Ticket, Denied> {
        self.load().await;
        let mut changed = self.changed.subscribe();
        let mut told = false;
        loop {
            changed.mark_unchanged();
            let now = Instant::now();
            let (entry, suspect) = {
                let mut state = self.state();
                (state.enter(now), state.is_suspect())
            };
            let again = match entry {
                Entry::Go(pass) => return Ok(self.hand_out(pass)),
                Entry::Cooling { remaining } => return Err(Denied::Cooling { remaining }),
                Entry::Wait { again } => again,
            };
            if now >= deadline {
                return Err(Denied::WaitedTooLong);
            }
            // The short wait of a first burst is not worth a word.
            if suspect && !std::mem::replace(&mut told, true) {
                waiting(self.reason());
            }
            // Woken or timed out: both look again.
            let _ = tokio::time::timeout_at(again.min(deadline), changed.changed()).await;
        }
    }

    /// A ticket for one attempt at a provider that cools down, where there is no other (OR-227).
    /// `Err` says how long until the next probe.
    pub(crate) async fn probe(
        self: &Arc<Self>,
        deadline: Instant,
        mut waiting: impl FnMut(String),
    ) -> Result<Ticket, Denied> {
        let mut changed = self.changed.subscribe();
        let mut told = false;
        loop {
            changed.mark_unchanged();
            let now = Instant::now();
            let entry = self.state().probe(now);
            match entry {
                ProbeEntry::Go(pass) => return Ok(self.hand_out(pass)),
                ProbeEntry::Over => return self.ticket(deadline, waiting).await,
                ProbeEntry::NotYet { remaining } => return Err(Denied::Cooling { remaining }),
                ProbeEntry::Wait => {}
            }
            if now >= deadline {
                return Err(Denied::WaitedTooLong);
            }
            if !std::mem::replace(&mut told, true) {
                waiting(self.reason());
            }
            let _ = tokio::time::timeout_at(deadline, changed.changed()).await;
        }
    }

    fn hand_out(self: &Arc<Self>, pass: Pass) -> Ticket {
        Ticket {
            health: Arc::clone(self),
            pass: Some(pass),
        }
    }

    fn reason(&self) -> String {
        match self.state().cause() {
            Some(error) => format!(
                "another call is trying whether it answers again, after: {}",
                failure(error)
            ),
            None => "another call is trying whether it answers".to_owned(),
        }
    }

    /// The error of a call that may not be made, as the provider entry `provider` reports it.
    pub(crate) fn denial(&self, provider: &str, denied: &Denied) -> ModelError {
        let state = self.state();
        let last = match (state.cause(), state.record()) {
            (Some(error), _) => failure(error),
            (None, Some(record)) => match record.status {
                Some(status) => format!("HTTP {status}: {}", record.message),
                None => record.message.clone(),
            },
            (None, None) => "no answer yet".to_owned(),
        };
        let (message, retry_after) = match denied {
            Denied::Cooling { remaining } => {
                let seconds = remaining.as_secs_f64().ceil();
                (
                    format!(
                        "it failed and is left alone; the next attempt is in {seconds} s; the last failure: {last}"
                    ),
                    Some(*remaining),
                )
            }
            Denied::WaitedTooLong => (
                format!("other calls are still trying whether it answers; the last failure: {last}"),
                None,
            ),
        };
        let mut error = ModelError::new(provider, ModelErrorKind::CoolingDown, message);
        error.retry_after = retry_after;
        error.attempts = 0;
        error
    }

    /// Writes what changed. Its own task, since the call that caused it may be dropped any time.
    fn persist(self: &Arc<Self>) {
        let Some(stored) = self.store.clone() else { return };
        let health = Arc::clone(self);
        task::spawn("model cooldown store", async move {
            let mut last = stored.last.lock().await;
            let record = health.state().record().cloned();
            if *last == record {
                return;
            }
            match stored.store.save(&health.key, record.as_ref()).await {
                Ok(()) => *last = record,
                Err(error) => {
                    tracing::warn!(provider = %health.key, %error, "the cooldown holds in this process only");
                }
            }
        });
    }
}

fn failure(error: &ModelError) -> String {
    match error.status {
        Some(status) => format!("HTTP {status}: {}", error.message),
        None => error.message.clone(),
    }
}

impl Ticket {
    /// Whether it allows one attempt only.
    pub(crate) fn is_probe(&self) -> bool {
        self.pass == Some(Pass::Probe)
    }

    /// The provider answered.
    pub(crate) fn succeeded(mut self) {
        let Some(pass) = self.pass.take() else { return };
        let (had_record, news) = {
            let mut state = self.health.state();
            let had_record = state.record().is_some();
            (had_record, state.succeeded(pass, Instant::now()))
        };
        if news {
            self.health.announce();
        }
        if had_record {
            self.health.persist();
        }
    }

    /// An attempt failed and could be made again.
    pub(crate) fn failed(mut self, error: &ModelError) -> Next {
        let Some(pass) = self.pass.take() else {
            return Next::Join;
        };
        let kept = self.health.state().failed(pass, error, Instant::now());
        self.health.announce();
        match kept {
            Some(pass) => {
                self.pass = Some(pass);
                Next::Retry(self)
            }
            None => Next::Join,
        }
    }

    /// No further attempt is made. Returns the cooldown that this begins.
    pub(crate) fn gave_up(mut self, error: &ModelError) -> Option<Cooldown> {
        let pass = self.pass.take()?;
        let cooled = {
            let mut state = self.health.state();
            if counts(error) {
                state.exhausted(pass, error, Instant::now(), self.health.clock.now())
            } else if error.status.is_some() {
                state.refused(pass);
                None
            } else {
                state.release(pass);
                None
            }
        };
        self.health.announce();
        if cooled.is_some() {
            self.health.persist();
        }
        cooled
    }

    /// Whether the provider began to cool down in the meantime.
    pub(crate) fn is_cooling(&self) -> bool {
        !self.is_probe() && self.health.state().remaining(Instant::now()).is_some()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(pass) = self.pass.take() {
            self.health.state().release(pass);
            self.health.announce();
        }
    }
}
