//! One turn: from a message to its answer.
//!
//! [`machine`] says what comes next, [`driver`] does it and stores what happened, [`recovery`] finds where
//! a turn stood when its process ended. Nothing is shown before it is stored, except the text of the
//! running attempt; nothing is sent to a tool before its intent is stored.

mod calls;
mod client_tool;
mod driver;
mod end;
pub(crate) mod judgement;
mod machine;
mod model_call;
mod recovery;
mod skill;
pub(crate) mod surface;

use std::sync::Arc;

use mainstay_telemetry::text::with_causes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::claims::{ClaimError, Claimed};
use crate::engine::{Shared, TurnHere};
use crate::hub::{Hub, KeyReservation};
use crate::journal::{JournalError, collect_events};
use crate::pack_source::LoadedPack;
use crate::session::{IncomingMessage, SendError};
use driver::Driver;

/// What a new turn begins with.
pub(crate) struct Beginning {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) pack: Arc<LoadedPack>,
    pub(crate) turn: String,
    pub(crate) message: IncomingMessage,
    /// Told when the message is stored, or why it is not.
    pub(crate) started: oneshot::Sender<Result<(), SendError>>,
    /// Keeps the message's client key from being admitted again until the store knows it.
    pub(crate) reservation: Option<KeyReservation>,
    /// Held until the turn has ended: it is one of the two that a session admits.
    pub(crate) permit: OwnedSemaphorePermit,
}

/// Waits for the session's turn, runs it, and frees its place.
pub(crate) async fn begin(beginning: Beginning) {
    let Beginning {
        shared,
        hub,
        pack,
        turn,
        message,
        started,
        reservation,
        permit,
    } = beginning;
    let running = Arc::clone(&hub.turn).lock_owned().await;
    let here = shared.take_on(&turn);
    let begun = match ready(&shared, &hub, &pack).await {
        Ok(claimed) => Driver::begin(shared, Arc::clone(&hub), pack, turn.clone(), message)
            .await
            .map(|driver| (driver, claimed))
            .map_err(SendError::from),
        Err(error) => Err(error),
    };
    match begun {
        Ok((driver, claimed)) => {
            if let Some(reservation) = reservation {
                reservation.accepted(&turn);
            }
            // The sender may be gone; its turn runs all the same (contract 9).
            let _ = started.send(Ok(()));
            Box::pin(driver.run()).await;
            drop(claimed);
        }
        Err(error) => {
            let reason = with_causes(&error);
            match (&error, reservation) {
                (SendError::Duplicate { turn }, Some(reservation)) => reservation.accepted(turn),
                // Copies that wait are sent again: their senders learn what this one learns.
                (_, reservation) => drop(reservation),
            }
            if started.send(Err(error)).is_err() {
                // Its sender has left: this line is all that tells of it.
                tracing::warn!(
                    session = hub.key.session,
                    error = reason,
                    "a message was not accepted"
                );
            }
        }
    }
    drop(here);
    drop(running);
    drop(permit);
}

/// Claims the session and continues what is open in it: its part of the conversation is not complete. The caller holds the
/// session's turn.
async fn ready(shared: &Arc<Shared>, hub: &Arc<Hub>, pack: &Arc<LoadedPack>) -> Result<Claimed, SendError> {
    let claimed = shared.claim(hub).await?;
    // What the store refused to take further, and what another process left.
    let suspended = hub.take_suspended();
    for open in suspended.iter().chain(&claimed.open_turns) {
        go_on(shared, hub, pack, open).await?;
    }
    Ok(claimed)
}

/// Waits for the session's turn and continues a turn that was found open.
pub(crate) async fn resume(shared: Arc<Shared>, hub: Arc<Hub>, pack: Arc<LoadedPack>, here: TurnHere) {
    let turn = &here.turn;
    // It counts as the running turn, unless the session is full of messages already.
    let permit = Arc::clone(&hub.admission).try_acquire_owned().ok();
    let running = Arc::clone(&hub.turn).lock_owned().await;
    let claimed = loop {
        match shared.claim(&hub).await {
            // The one who has it runs the turn, or leaves it to this one.
            Err(ClaimError::Elsewhere { .. }) => {}
            other => break other,
        }
    };
    let continued = match claimed {
        Ok(claimed) => {
            let continued = go_on(&shared, &hub, &pack, turn).await;
            drop(claimed);
            continued.map_err(|error| with_causes(&error))
        }
        Err(error) => Err(with_causes(&error)),
    };
    if let Err(error) = continued {
        tracing::error!(
            turn,
            session = hub.key.session,
            error,
            "an open turn cannot be continued now"
        );
    }
    drop(running);
    drop(permit);
}

/// Continues an open turn to its end. The caller holds the session's turn.
async fn go_on(
    shared: &Arc<Shared>,
    hub: &Arc<Hub>,
    pack: &Arc<LoadedPack>,
    turn: &str,
) -> Result<(), JournalError> {
    // Read only now: an engine that is being replaced may have ended the turn while this one waited.
    let journal = shared.options.journal.as_ref();
    let stored = collect_events(journal, &hub.key, |event| event.turn.as_deref() == Some(turn)).await;
    let driver = match stored.map(|events| recovery::recover(&events)) {
        Ok(None) => return Ok(()),
        Ok(Some(recovered)) => {
            let (shared, hub, pack) = (Arc::clone(shared), Arc::clone(hub), Arc::clone(pack));
            Driver::resume(shared, hub, pack, turn.to_owned(), recovered).await
        }
        Err(error) => Err(error),
    };
    match driver {
        Ok(driver) => {
            Box::pin(driver.run()).await;
            Ok(())
        }
        Err(error) => {
            hub.suspend(turn);
            Err(error)
        }
    }
}
