//! The one session that all calls of a handler share (OM-421, OM-422).

use std::sync::{Arc, Mutex, PoisonError};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use mainstay_telemetry::task;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{McpFailure, Server, Session};

type Dialled = Result<Arc<Session>, McpFailure>;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Connection {
    server: Arc<Server>,
    // A std mutex: held to look and to change, never across an await.
    state: Arc<Mutex<State>>,
    changes: watch::Sender<u64>,
    sessions: watch::Sender<u64>,
    cancel: CancellationToken,
    // Ends a dial that is under way.
    _tasks: DropGuard,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Session>>,
    /// A dial that is under way. Whoever needs a session meanwhile waits for it: one handshake serves all
    /// (D5), and one failure tells all.
    dial: Option<Shared<BoxFuture<'static, Dialled>>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("State")
            .field("current", &self.current)
            .field("is_dialling", &self.dial.is_some())
            .finish()
    }
}

impl Connection {
    /// A connection without a session: the first who needs one dials.
    pub(super) fn new(server: Arc<Server>) -> Self {
        let cancel = CancellationToken::new();
        Self {
            server,
            state: Arc::default(),
            changes: watch::Sender::new(0),
            sessions: watch::Sender::new(0),
            cancel: cancel.clone(),
            _tasks: cancel.drop_guard(),
        }
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// Counts how often the server said that its tools changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Counts the sessions.
    pub(super) fn sessions(&self) -> watch::Receiver<u64> {
        self.sessions.subscribe()
    }

    /// The session, dialled where there is none or it was lost.
    pub(super) async fn session(&self) -> Dialled {
        let dial = {
            let mut state = lock(&self.state);
            if let Some(session) = state.current.as_ref().filter(|session| !session.is_lost()) {
                return Ok(Arc::clone(session));
            }
            match &state.dial {
                Some(dial) => dial.clone(),
                None => {
                    let dial = self.dial();
                    state.dial = Some(dial.clone());
                    dial
                }
            }
        };
        dial.await
    }

    // In a task of its own: a caller that gives up must not take the dial of the others with it.
    fn dial(&self) -> Shared<BoxFuture<'static, Dialled>> {
        let (sender, receiver) = oneshot::channel();
        let server = Arc::clone(&self.server);
        let changes = self.changes.clone();
        let sessions = self.sessions.clone();
        let mut over = Over {
            state: Arc::clone(&self.state),
            session: None,
        };
        let dialling = async move {
            let dialled = Session::dial(&server, &changes).await.map(Arc::new);
            let is_new = dialled.is_ok();
            over.session = dialled.as_ref().ok().cloned();
            drop(over);
            if is_new {
                sessions.send_modify(|count| *count += 1);
            }
            // Whoever waited may have given up.
            let _ = sender.send(dialled);
        };
        task::spawn(
            "mcp dial",
            self.cancel.clone().run_until_cancelled_owned(dialling),
        );
        receiver
            .map(|dialled| {
                dialled.unwrap_or_else(|_| Err(McpFailure::session_lost("the connection was given up")))
            })
            .boxed()
            .shared()
    }
}

/// Makes room for the next dial however this one ends.
struct Over {
    state: Arc<Mutex<State>>,
    session: Option<Arc<Session>>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        state.dial = None;
        // A session that was lost stays until there is another one: its tools are still the last known.
        let replaced = self.session.take().map(|session| state.current.replace(session));
        drop(state);
        drop(replaced);
    }
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
