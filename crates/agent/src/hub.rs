//! The live side of a session: who may run a turn, who listens, and what the running attempt has said.
//!
//! One [`Hub`] per session and process, shared by every engine that serves the agent. That matters while
//! an agent's Pod is replaced: for a moment two engines serve one agent, and they must not run two turns of
//! one session, nor hide the one's events from the other's listeners.

mod subscription;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use jiff::Timestamp;
use tokio::sync::{Semaphore, broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::event::{Event, ModelDelta, Payload};
use crate::journal::SessionKey;

pub use subscription::SubscriptionError;
pub(crate) use subscription::subscribe;

/// One running turn and one that waits (contract 9).
const ADMITTED: usize = 2;

/// Events a slow listener may lag behind before it has to read the store again. Each live session has the room for them,
/// also while nothing happens in it.
const RING: usize = 64;

/// Replies of clients that may wait for one call.
const REPLIES: usize = 4;

/// The live sessions of one process over one store. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Hubs {
    // A std mutex: held for a lookup or an insertion, never across an await. Dead entries are swept when
    // the map has doubled since the last sweep.
    hubs: Arc<Mutex<HubMap>>,
}

#[derive(Debug, Default)]
struct HubMap {
    by_key: HashMap<SessionKey, Weak<Hub>>,
    sweep_at: usize,
}

impl Hubs {
    /// No session is live yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The hub of a session whose newest stored event is `last_seq`.
    pub(crate) fn get(&self, key: &SessionKey, last_seq: u64) -> Arc<Hub> {
        let mut map = lock(&self.hubs);
        if let Some(hub) = map.by_key.get(key).and_then(Weak::upgrade) {
            hub.raise(last_seq);
            return hub;
        }
        if map.by_key.len() >= map.sweep_at {
            map.by_key.retain(|_, hub| hub.strong_count() > 0);
            map.sweep_at = (map.by_key.len() * 2).max(64);
        }
        let hub = Arc::new(Hub::new(key.clone(), last_seq));
        map.by_key.insert(key.clone(), Arc::downgrade(&hub));
        hub
    }
}

/// What listeners get.
#[derive(Debug, Clone)]
pub(crate) enum Notice {
    Event(Arc<Event>),
    /// The turn cannot be stored any further; listeners must not wait for its end.
    Broken,
}

/// What a client says about a client tool (OM-434).
#[derive(Debug, Clone, PartialEq)]
pub enum ClientReply {
    /// It has the call and works on it.
    Acknowledged,
    /// It will not run it.
    Rejected {
        /// Why.
        reason: String,
    },
    /// It ran it.
    Finished {
        /// The result, or what went wrong.
        result: Result<serde_json::Value, String>,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) key: SessionKey,
    /// Permits of turns that run or wait.
    pub(crate) admission: Arc<Semaphore>,
    /// Held by the turn that runs; waiters come in order.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    live: Mutex<Live>,
    sender: broadcast::Sender<Notice>,
    /// Connections that can run client tools.
    clients: AtomicUsize,
    /// Calls that wait for a client, by id. Written by the turn, read by connections.
    replies: Mutex<HashMap<String, mpsc::Sender<ClientReply>>>,
    /// Cancels the running turn; written by the turn that holds `turn`.
    running: Mutex<Option<Running>>,
    /// Client keys of turns that were admitted and are not stored yet, with what tells of their turns.
    waiting_keys: Mutex<Vec<(String, watch::Receiver<Option<String>>)>>,
    /// Turn that is open in the store and that nobody runs; written by the turn that holds `turn`.
    suspended: Mutex<Option<String>>,
}

#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) turn: String,
    pub(crate) cancel: CancellationToken,
}

/// Written by the one turn that runs, read by whoever subscribes.
#[derive(Debug, Default, Clone)]
struct Live {
    /// Newest event that was shown.
    last_seq: u64,
    attempt: Option<LiveAttempt>,
}

/// The attempt that is being streamed. Its text is stored when it ends, never before.
#[derive(Debug, Clone)]
struct LiveAttempt {
    turn: String,
    attempt: u32,
    text: String,
    /// When its last piece came.
    time: Timestamp,
}

impl Hub {
    fn new(key: SessionKey, last_seq: u64) -> Self {
        Self {
            key,
            admission: Arc::new(Semaphore::new(ADMITTED)),
            turn: Arc::default(),
            live: Mutex::new(Live {
                last_seq,
                attempt: None,
            }),
            sender: broadcast::Sender::new(RING),
            clients: AtomicUsize::new(0),
            replies: Mutex::default(),
            running: Mutex::default(),
            waiting_keys: Mutex::default(),
            suspended: Mutex::default(),
        }
    }

    /// Takes note of events that were stored elsewhere.
    pub(crate) fn raise(&self, last_seq: u64) {
        let mut live = lock(&self.live);
        live.last_seq = live.last_seq.max(last_seq);
    }

    /// Number of the newest event that was shown.
    pub(crate) fn last_seq(&self) -> u64 {
        lock(&self.live).last_seq
    }

    /// Shows events that are stored.
    pub(crate) fn publish(&self, events: Vec<Event>) {
        let mut live = lock(&self.live);
        for event in events {
            live.last_seq = live.last_seq.max(event.seq.unwrap_or(0));
            if ends_attempt(&event.kind) {
                live.attempt = None;
            }
            self.tell(Notice::Event(Arc::new(event)));
        }
    }

    /// Begins the text of an attempt.
    pub(crate) fn begin_attempt(&self, turn: &str, attempt: u32, now: Timestamp) {
        lock(&self.live).attempt = Some(LiveAttempt {
            turn: turn.to_owned(),
            attempt,
            text: String::new(),
            time: now,
        });
    }

    /// Shows a piece of text of the running attempt and returns how long its text is now.
    pub(crate) fn delta(&self, text: &str, now: Timestamp) -> usize {
        let mut live = lock(&self.live);
        let Some(attempt) = &mut live.attempt else {
            return 0;
        };
        let offset = attempt.text.len() as u64;
        attempt.text.push_str(text);
        attempt.time = now;
        let length = attempt.text.len();
        let payload = Payload::ModelDelta(ModelDelta {
            attempt: attempt.attempt,
            offset,
            text: text.to_owned(),
        });
        let event = Event::new(&self.key.session, &attempt.turn, now, &payload);
        self.tell(Notice::Event(Arc::new(event)));
        length
    }

    /// Tells listeners that the running turn cannot go on.
    pub(crate) fn broken(&self) {
        lock(&self.live).attempt = None;
        self.tell(Notice::Broken);
    }

    /// Tells those who listen now.
    fn tell(&self, notice: Notice) {
        // An error only says that nobody listens, and a turn needs no listener: what counts is stored (contract 9).
        let _ = self.sender.send(notice);
    }

    /// Marks the turn that runs now.
    pub(crate) fn set_running(&self, running: Option<Running>) {
        *lock(&self.running) = running;
    }

    /// Cancels the turn that runs; `false` when none does.
    pub(crate) fn cancel(&self) -> bool {
        match &*lock(&self.running) {
            Some(running) => {
                running.cancel.cancel();
                true
            }
            None => false,
        }
    }

    /// The turn that runs.
    pub(crate) fn running_turn(&self) -> Option<String> {
        lock(&self.running).as_ref().map(|running| running.turn.clone())
    }

    /// Keeps a client key from being admitted twice while its turn waits.
    ///
    /// # Errors
    ///
    /// The message that waits with this key already.
    pub(crate) fn reserve_key(self: &Arc<Self>, client_key: &str) -> Result<KeyReservation, FirstCopy> {
        let mut waiting = lock(&self.waiting_keys);
        if let Some((_, turn)) = waiting.iter().find(|(key, _)| key == client_key) {
            return Err(FirstCopy { turn: turn.clone() });
        }
        let (sender, receiver) = watch::channel(None);
        waiting.push((client_key.to_owned(), receiver));
        Ok(KeyReservation {
            hub: Arc::clone(self),
            client_key: client_key.to_owned(),
            turn: sender,
        })
    }

    /// Remembers a turn that could not be stored any further, so that the session's next message continues it first.
    pub(crate) fn suspend(&self, turn: &str) {
        *lock(&self.suspended) = Some(turn.to_owned());
        self.broken();
    }

    /// The turn of [`Hub::suspend`], once.
    pub(crate) fn take_suspended(&self) -> Option<String> {
        lock(&self.suspended).take()
    }

    /// Registers a connection that can run client tools until the guard is dropped.
    pub(crate) fn attach_client(self: &Arc<Self>) -> ClientAttachment {
        self.clients.fetch_add(1, Ordering::SeqCst);
        ClientAttachment {
            hub: Arc::clone(self),
        }
    }

    /// Whether a connection could run a client tool now.
    pub(crate) fn has_client(&self) -> bool {
        self.clients.load(Ordering::SeqCst) > 0
    }

    /// Opens a call for replies of clients. The call is closed when the receiver is dropped.
    pub(crate) fn await_replies(&self, call_id: &str) -> mpsc::Receiver<ClientReply> {
        let (sender, receiver) = mpsc::channel(REPLIES);
        let mut replies = lock(&self.replies);
        replies.retain(|_, sender| !sender.is_closed());
        replies.insert(call_id.to_owned(), sender);
        receiver
    }

    /// Hands a reply to the call that waits for it; `false` when none does or it has too many already.
    pub(crate) fn reply(&self, call_id: &str, reply: ClientReply) -> bool {
        lock(&self.replies)
            .get(call_id)
            .is_some_and(|sender| sender.try_send(reply).is_ok())
    }

    /// A receiver together with the state it continues, taken at one moment.
    fn snapshot(&self) -> (broadcast::Receiver<Notice>, Live) {
        let live = lock(&self.live);
        (self.sender.subscribe(), live.clone())
    }
}

/// Keeps a connection registered as one that can run client tools.
#[derive(Debug)]
pub struct ClientAttachment {
    hub: Arc<Hub>,
}

impl Drop for ClientAttachment {
    fn drop(&mut self) {
        self.hub.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A client key that is waiting to be stored. Gives it back when dropped: the store knows the key by then, or the
/// message was refused.
#[derive(Debug)]
pub(crate) struct KeyReservation {
    hub: Arc<Hub>,
    client_key: String,
    turn: watch::Sender<Option<String>>,
}

impl KeyReservation {
    /// The store knows the key now: the message began `turn`. Tells those who wait with copies of it.
    pub(crate) fn accepted(self, turn: &str) {
        self.turn.send_replace(Some(turn.to_owned()));
    }
}

impl Drop for KeyReservation {
    fn drop(&mut self) {
        lock(&self.hub.waiting_keys).retain(|(key, _)| *key != self.client_key);
    }
}

/// A message that waits to be stored, as whoever sent it again sees it.
#[derive(Debug, Clone)]
pub struct FirstCopy {
    turn: watch::Receiver<Option<String>>,
}

impl FirstCopy {
    /// Waits until the message is stored, at the latest when the turn before it has ended, and gives the turn that answers
    /// it; `None` when it was refused, and may be sent again.
    pub async fn settled(&mut self) -> Option<String> {
        match self.turn.wait_for(Option::is_some).await {
            Ok(turn) => turn.clone(),
            Err(_gone) => None,
        }
    }
}

/// Whether what an attempt said so far is void or stored with this event.
fn ends_attempt(kind: &str) -> bool {
    matches!(
        kind,
        "model.done" | "model.failed" | "model.restarted" | "turn.done" | "turn.failed" | "turn.cancelled"
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section is a few assignments; a panic inside one leaves the value usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
