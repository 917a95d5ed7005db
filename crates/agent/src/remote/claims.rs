//! The process's side of claims, and how it hears that another process of its agent has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_telemetry::task;
use mainstay_workload::process::calls::{CallError, Caller};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::protocol::{ANSWERED_WITHIN, Ask, AskError, ENDS_WITHIN, Granted, LEAVES_WITHIN, ask};
use crate::Engine;
use crate::claims::{ClaimError, Claimed, SessionClaims};
use crate::journal::SessionKey;

/// Claims that are waited for at a time. Fewer than the calls that a process may have open, so that the journal has room.
const WAITING: usize = 64;
/// How long until a call that failed is made again.
const AGAIN: Duration = Duration::from_secs(1);

/// Claims that the server keeps.
#[derive(Debug, Clone)]
pub struct RemoteClaims {
    caller: Caller,
    numbers: Arc<AtomicU64>,
    waiting: Arc<Semaphore>,
}

impl RemoteClaims {
    /// Claims that are asked for by `caller`. One for the process: the claims' numbers are its own.
    pub fn new(caller: Caller) -> Self {
        Self {
            caller,
            numbers: Arc::default(),
            waiting: Arc::new(Semaphore::new(WAITING)),
        }
    }
}

#[async_trait]
impl SessionClaims for RemoteClaims {
    async fn claim(&self, key: &SessionKey) -> Result<Claimed, ClaimError> {
        let unavailable = |error: AskError| ClaimError::Unavailable(Box::new(error));
        let place = Arc::clone(&self.waiting).acquire_owned();
        let place = place.await.map_err(|_| unavailable(CallError::Gone.into()))?;
        let held = Held {
            caller: self.caller.clone(),
            claim: self.numbers.fetch_add(1, Ordering::Relaxed),
        };
        let asked = Ask::Claim {
            key: key.clone(),
            claim: held.claim,
        };
        let (sender, answer) = oneshot::channel();
        let caller = self.caller.clone();
        // A task of its own: given back before it is granted, a claim would stay for good, so whoever waits may leave and
        // this does not.
        task::spawn("session claimed", async move {
            let answered = ask::<Option<Granted>>(&caller, &asked, LEAVES_WITHIN + ANSWERED_WITHIN).await;
            drop(place);
            // What nobody waits for any more is dropped with the claim.
            let _ = sender.send((answered, held));
        });
        let (answered, held) = answer.await.map_err(|_| unavailable(CallError::Gone.into()))?;
        match answered.map_err(unavailable)? {
            Some(Granted { last_seq, open_turns }) => Ok(Claimed::new(last_seq, open_turns, Box::new(held))),
            None => Err(ClaimError::Elsewhere {
                session: key.session.clone(),
            }),
        }
    }
}

/// A claim that is given back when this is dropped. One that was not granted is nothing to the server.
#[derive(Debug)]
struct Held {
    caller: Caller,
    claim: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let (caller, claim) = (self.caller.clone(), self.claim);
        let released = async move {
            loop {
                match ask::<()>(&caller, &Ask::Release { claim }, ANSWERED_WITHIN).await {
                    Err(AskError::Call(CallError::TimedOut { .. })) => {}
                    Ok(()) | Err(AskError::Call(CallError::Gone)) => return,
                    Err(error) => {
                        tracing::error!(%error, "a session cannot be given back before this process ends");
                        return;
                    }
                }
            }
        };
        // Without a runtime the process ends, and all of its claims with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            task::spawn("session given back", released);
        }
    }
}

/// Takes up the turns that other processes of the agent left open, whenever one of them has ended, until `cancellation`.
pub async fn follow_ends(engine: Engine, caller: Caller, cancellation: CancellationToken) {
    let following = async {
        let mut seen = 0;
        loop {
            let ended: Result<u64, AskError> =
                ask(&caller, &Ask::Ends { seen }, ENDS_WITHIN + ANSWERED_WITHIN).await;
            let resumed = match ended {
                Ok(ended) if ended == seen => continue,
                Ok(ended) => engine
                    .resume_open_turns()
                    .await
                    .map(|_| seen = ended)
                    .map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = resumed {
                tracing::warn!(error, "what another Pod of the agent left open is not known yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    };
    cancellation.run_until_cancelled(following).await;
}
