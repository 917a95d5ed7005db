//! What a process asks the server: calls with a number, each answered once.
//!
//! This knows nothing of what is asked. The process has a [`Caller`]; the server has one [`Conversation`] for each process,
//! which [`Answering`] hands the calls to. A call that nobody answers ends at its deadline; a call that is too long is not
//! sent.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use mainstay_telemetry::task;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::task::TaskTracker;

use super::message::{Start, ToServer};

/// The longest message either way, in bytes. A user's message and a model's answer have at most 4 MiB, a conversation keeps
/// them as an event and as a message in one call, and JSON writes a control character with six bytes: 48 MiB.
pub const LONGEST_MESSAGE: usize = 64 << 20;
/// Calls of one process that may be open at a time; others wait for their place, within their deadlines.
const OPEN_CALLS: usize = 256;
/// Calls that are written and not sent yet.
const UNSENT: usize = 64;
/// Calls of one process that the server works on at a time. More than the process opens, so that it reaches this only when it
/// does not keep to its own limit.
const ANSWERED_AT_ONCE: usize = 2 * OPEN_CALLS;

/// One call. Its `Debug` shows nothing of what is asked: conversations and secrets go this way.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// By which the answer finds it.
    pub number: u64,
    /// What is asked.
    pub ask: Value,
}

/// The answer to one call. Its `Debug` shows the number only.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Of the call.
    pub number: u64,
    /// What was asked for, or why it is not given.
    pub result: Result<Value, Refusal>,
}

impl fmt::Debug for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Call")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Answer")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Why the server does not do what a call asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct Refusal {
    /// A stable word.
    pub reason: String,
    /// For people; never a secret.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
        }
    }
}

/// Why a call has no answer that could be used.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server said no.
    #[error("the server refuses: {0}")]
    Refused(#[source] Refusal),
    /// Nothing came in time. The server may have done it all the same.
    #[error("the server did not answer within {} s", within.as_secs())]
    TimedOut {
        /// The call's deadline.
        within: Duration,
    },
    /// It was not sent.
    #[error("the call has {bytes} bytes, and {LONGEST_MESSAGE} are the most")]
    TooLong {
        /// How long it was.
        bytes: usize,
    },
    /// It was not sent: it cannot be written as JSON.
    #[error("the call cannot be written: {0}")]
    Unwritable(#[source] serde_json::Error),
    /// The server is gone; this process is about to be as well.
    #[error("the server is gone")]
    Gone,
}

/// The process's end. Clones share it.
#[derive(Clone)]
pub struct Caller {
    shared: Arc<Shared>,
}

struct Shared {
    numbers: AtomicU64,
    places: Semaphore,
    unsent: mpsc::Sender<Vec<u8>>,
    // A std mutex: held to insert or take out an entry, never across an await. Written by calls and by who hears the server.
    open: Mutex<HashMap<u64, oneshot::Sender<Result<Value, Refusal>>>>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Caller")
    }
}

impl Caller {
    /// A caller, and the lines that somebody has to write to the server, in order.
    pub fn new() -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (unsent, lines) = mpsc::channel(UNSENT);
        let shared = Shared {
            numbers: AtomicU64::default(),
            places: Semaphore::new(OPEN_CALLS),
            unsent,
            open: Mutex::default(),
        };
        (
            Self {
                shared: Arc::new(shared),
            },
            lines,
        )
    }

    /// Asks, and waits for the answer. Dropped half way, the call may have been made.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn call(&self, ask: Value, within: Duration) -> Result<Value, CallError> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let call = ToServer::Call(Call { number, ask });
        let mut line = serde_json::to_vec(&call).map_err(CallError::Unwritable)?;
        line.push(b'\n');
        if line.len() > LONGEST_MESSAGE {
            return Err(CallError::TooLong { bytes: line.len() });
        }
        let asked = async {
            let _place = self.shared.places.acquire().await.map_err(|_| CallError::Gone)?;
            let (sender, answer) = oneshot::channel();
            // Taken out again however this ends.
            let _open = OpenCall {
                shared: &self.shared,
                number,
            };
            self.open().insert(number, sender);
            self.shared.unsent.send(line).await.map_err(|_| CallError::Gone)?;
            answer
                .await
                .map_err(|_| CallError::Gone)?
                .map_err(CallError::Refused)
        };
        tokio::time::timeout(within, asked)
            .await
            .unwrap_or(Err(CallError::TimedOut { within }))
    }

    /// Hands an answer to the call that waits for it. One that came too late is nobody's.
    pub fn answered(&self, answer: Answer) {
        if let Some(waiting) = self.open().remove(&answer.number) {
            // The call may have been dropped this moment.
            let _ = waiting.send(answer.result);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Result<Value, Refusal>>>> {
        lock(&self.shared.open)
    }
}

struct OpenCall<'a> {
    shared: &'a Shared,
    number: u64,
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.number);
    }
}

/// Who answers the calls of processes.
pub trait Answers: fmt::Debug + Send + Sync {
    /// A process begins, of which the server has told it `start`: by that is known who calls, never by what the process says.
    /// `None` when it has nothing to ask.
    fn begin(&self, start: &Start) -> Option<Arc<dyn Conversation>>;
}

/// The server's side of one process's calls.
#[async_trait]
pub trait Conversation: Send + Sync {
    /// Answers one call. Several are answered at a time.
    ///
    /// # Errors
    ///
    /// [`Refusal`]: the call is not permitted or makes no sense.
    async fn answer(&self, ask: Value) -> Result<Value, Refusal>;

    /// The process is gone, however it went, and each of its calls was worked on to its end.
    fn ended(&self);
}

/// Works on the calls of one process. When it is dropped no call comes any more: once the last one is worked on the
/// conversation is told of its end.
pub struct Answering {
    conversation: Option<Arc<dyn Conversation>>,
    answers: mpsc::Sender<Answer>,
    working: TaskTracker,
}

impl Answering {
    /// Answers as `conversation` does, and the answers, which somebody has to send to the process. Without a conversation
    /// each call is refused.
    pub fn new(conversation: Option<Arc<dyn Conversation>>) -> (Self, mpsc::Receiver<Answer>) {
        let (answers, unsent) = mpsc::channel(UNSENT);
        let answering = Self {
            conversation,
            answers,
            working: TaskTracker::new(),
        };
        (answering, unsent)
    }

    /// Takes a call on; its answer comes when it is ready.
    pub fn take(&self, call: Call) {
        let Call { number, ask } = call;
        let refused = match &self.conversation {
            None => Refusal::new("NothingToAsk", "this process shares nothing with the server"),
            Some(_) if self.working.len() >= ANSWERED_AT_ONCE => Refusal::new(
                "TooManyCalls",
                format!("{ANSWERED_AT_ONCE} calls of this process are being worked on"),
            ),
            Some(conversation) => {
                let (conversation, answers) = (Arc::clone(conversation), self.answers.clone());
                let work = self.working.track_future(async move {
                    let result = conversation.answer(ask).await;
                    // A process that is gone hears nothing.
                    let _ = answers.send(Answer { number, result }).await;
                });
                task::spawn("call of a process", work);
                return;
            }
        };
        let answer = Answer {
            number,
            result: Err(refused),
        };
        // Where the process does not even take its answers, the call ends at its deadline.
        let _ = self.answers.try_send(answer);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(conversation) = self.conversation.take() else {
            return;
        };
        self.working.close();
        let working = self.working.clone();
        let end = async move {
            working.wait().await;
            conversation.ended();
        };
        // Without a runtime the server itself ends, and everything of the conversation with it.
        if tokio::runtime::Handle::try_current().is_ok() {
            task::spawn("end of a process", end);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section is one operation of a map; a panic inside leaves it usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;

    /// Doubles numbers, refuses everything else, and never answers nothing.
    #[derive(Default)]
    struct Doubling {
        held: Notify,
        ended: Notify,
    }

    #[async_trait]
    impl Conversation for Doubling {
        async fn answer(&self, ask: Value) -> Result<Value, Refusal> {
            if ask.is_null() {
                self.held.notified().await;
                return Ok(Value::Null);
            }
            let number = ask.as_i64();
            number
                .map(|number| json!(number * 2))
                .ok_or_else(|| Refusal::new("NoNumber", "only numbers are doubled"))
        }

        fn ended(&self) {
            self.ended.notify_one();
        }
    }

    /// Carries lines and answers to and fro.
    fn connected(conversation: Option<Arc<dyn Conversation>>) -> (Caller, tokio::task::JoinHandle<()>) {
        let (caller, mut lines) = Caller::new();
        let (answering, mut answers) = Answering::new(conversation);
        let heard = caller.clone();
        let carrying = task::spawn("carrying", async move {
            loop {
                tokio::select! {
                    line = lines.recv() => {
                        let Some(line) = line else { return };
                        let ToServer::Call(call) = serde_json::from_slice(&line).unwrap() else { return };
                        answering.take(call);
                    }
                    answer = answers.recv() => heard.answered(answer.unwrap()),
                }
            }
        });
        (caller, carrying)
    }

    const WITHIN: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn each_call_gets_its_own_answer_or_why_there_is_none() {
        let (caller, _carrying) = connected(Some(Arc::new(Doubling::default())));
        let calls = (0..1000).map(|number| caller.call(json!(number), WITHIN));
        let answers = futures::future::try_join_all(calls).await.unwrap();
        assert!((0..1000).map(|number| json!(number * 2)).eq(answers));
        let refused = caller.call(json!("x"), WITHIN).await.unwrap_err();
        assert!(
            matches!(&refused, CallError::Refused(refusal) if refusal.reason == "NoNumber"),
            "{refused}"
        );
        let (caller, _carrying) = connected(None);
        let refused = caller.call(json!(1), WITHIN).await.unwrap_err();
        assert!(refused.to_string().contains("NothingToAsk"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_ends_at_its_deadline_and_frees_its_place() {
        let (caller, _carrying) = connected(Some(Arc::new(Doubling::default())));
        for _ in 0..2 {
            let calls = (0..OPEN_CALLS).map(|_| caller.call(Value::Null, WITHIN));
            let failed = futures::future::join_all(calls).await;
            assert!(
                failed
                    .iter()
                    .all(|failed| matches!(failed, Err(CallError::TimedOut { .. })))
            );
            assert!(caller.open().is_empty());
        }
        // The server still works on those, and says so.
        let refused = caller.call(json!(1), WITHIN).await.unwrap_err();
        assert!(refused.to_string().contains("TooManyCalls"), "{refused}");
    }

    #[test]
    fn what_is_asked_and_answered_is_not_shown() {
        let call = Call {
            number: 1,
            ask: json!("s3cret"),
        };
        let answer = Answer {
            number: 1,
            result: Ok(json!("s3cret")),
        };
        let shown = format!("{:?} {:?}", ToServer::Call(call), answer);
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[tokio::test]
    async fn a_call_that_is_too_long_is_not_sent() {
        let (caller, mut lines) = Caller::new();
        let long = "x".repeat(LONGEST_MESSAGE);
        let failed = caller.call(json!(long), WITHIN).await.unwrap_err();
        assert!(matches!(failed, CallError::TooLong { .. }), "{failed}");
        assert!(lines.try_recv().is_err());
        drop(lines);
        let failed = caller.call(json!(1), WITHIN).await.unwrap_err();
        assert!(matches!(failed, CallError::Gone), "{failed}");
    }

    #[tokio::test]
    async fn a_conversation_ends_behind_the_last_call_that_is_worked_on() {
        let doubling = Arc::new(Doubling::default());
        let (caller, carrying) = connected(Some(doubling.clone()));
        let asking = caller.clone();
        let asked = task::spawn("asking", async move { asking.call(Value::Null, WITHIN).await });
        // The answer to a later call says that the earlier one has arrived.
        caller.call(json!(1), WITHIN).await.unwrap();
        carrying.abort();
        let mut ended = std::pin::pin!(doubling.ended.notified());
        assert!(futures::poll!(&mut ended).is_pending());
        doubling.held.notify_one();
        tokio::time::timeout(WITHIN, ended).await.unwrap();
        asked.abort();
    }
}
