//! What a reader sees, whenever it comes and however slow it is (contract 2).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;
use tokio::sync::Notify;

use super::support::*;
use crate::event::{Event, Message, ModelDone, ModelFailed, ModelStarted, Payload};
use crate::hub::{Hub, Hubs, subscribe};
use crate::journal::{Entry, HistoryMessage, Journal, JournalError, OpenTurn, SessionFacts, SessionKey};

fn key() -> SessionKey {
    SessionKey {
        namespace: "n".to_owned(),
        agent: "a".to_owned(),
        session: "s".to_owned(),
    }
}

/// Publishes as a turn does: stored first, then shown.
struct Publisher {
    hub: Arc<Hub>,
    journal: Arc<MemoryJournal>,
    attempt: u32,
    text: Option<String>,
}

impl Publisher {
    async fn new() -> Self {
        let journal = Arc::new(MemoryJournal::default());
        journal
            .create_session(&key(), Timestamp::UNIX_EPOCH)
            .await
            .unwrap();
        Self {
            hub: Hubs::new().get(&key(), 0),
            journal,
            attempt: 0,
            text: None,
        }
    }

    async fn store(&self, payload: Payload) -> Vec<Event> {
        let entry = Entry {
            payloads: vec![payload],
            ..Entry::default()
        };
        self.journal
            .append(&key(), "t", Timestamp::UNIX_EPOCH, entry)
            .await
            .unwrap()
    }

    async fn show(&self, payload: Payload) {
        let events = self.store(payload).await;
        self.hub.publish(events);
    }

    fn note() -> Payload {
        Payload::Message(Message {
            message_id: String::new(),
            role: "user".to_owned(),
            content: String::new(),
        })
    }

    async fn act(&mut self, action: Action) {
        match (action, self.text.take()) {
            (Action::Note, text) => {
                self.text = text;
                self.show(Self::note()).await;
            }
            // As when an engine is stopped between the commit and the showing.
            (Action::StoreSilently, text) => {
                self.text = text;
                self.store(Self::note()).await;
            }
            (Action::Text(piece), Some(mut text)) => {
                self.hub.delta(&piece, Timestamp::UNIX_EPOCH);
                text.push_str(&piece);
                self.text = Some(text);
            }
            (Action::Text(_) | Action::End { .. }, None) => {
                self.attempt += 1;
                self.show(Payload::ModelStarted(ModelStarted {
                    attempt: self.attempt,
                    round: 1,
                    provider: String::new(),
                    model: String::new(),
                }))
                .await;
                self.hub.begin_attempt("t", self.attempt, Timestamp::UNIX_EPOCH);
                self.text = Some(String::new());
            }
            (Action::End { failed }, Some(text)) => {
                let payload = if failed {
                    Payload::ModelFailed(ModelFailed {
                        attempt: self.attempt,
                        text,
                        reason: String::new(),
                        message: String::new(),
                        status: None,
                    })
                } else {
                    Payload::ModelDone(ModelDone {
                        attempt: self.attempt,
                        round: 1,
                        text,
                        tool_calls: Vec::new(),
                        finish: String::new(),
                        guardrails: Vec::new(),
                    })
                };
                self.show(payload).await;
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Action {
    Note,
    StoreSilently,
    Text(String),
    End { failed: bool },
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => Just(Action::Note),
        1 => Just(Action::StoreSilently),
        8 => "[a-zä]{1,5}".prop_map(Action::Text),
        2 => any::<bool>().prop_map(|failed| Action::End { failed }),
    ]
}

/// Checks everything that the contract promises about what one reader saw.
fn check(seen: &[Arc<Event>], after: u64, last: u64) -> Result<(), TestCaseError> {
    let numbers: Vec<u64> = seen.iter().filter_map(|event| event.seq).collect();
    prop_assert_eq!(
        numbers,
        (after + 1..=last).collect::<Vec<_>>(),
        "no stored event is lost or repeated"
    );
    let mut text: Option<(u32, String)> = None;
    for event in seen {
        match event.payload() {
            Some(Payload::ModelDelta(delta)) => {
                let (attempt, known) = text.get_or_insert_with(|| (delta.attempt, String::new()));
                prop_assert_eq!(*attempt, delta.attempt, "a piece of an attempt that is over");
                prop_assert_eq!(
                    delta.offset,
                    known.len() as u64,
                    "a gap or a repetition in the text"
                );
                known.push_str(&delta.text);
            }
            Some(Payload::ModelDone(ModelDone {
                attempt, text: whole, ..
            }))
            | Some(Payload::ModelFailed(ModelFailed {
                attempt, text: whole, ..
            })) => {
                if let Some((shown, known)) = text.take() {
                    prop_assert_eq!(shown, attempt);
                    prop_assert!(
                        whole.starts_with(&known),
                        "{whole:?} does not begin with {known:?}"
                    );
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// A reader that comes at any moment, asks from any number and reads at any pace sees every stored event
    /// once and the text of an attempt without gap or repetition.
    #[test]
    fn contract_2_a_reader_sees_every_event_once_and_unbroken_text(
        before in prop::collection::vec(action(), 0..40),
        later in prop::collection::vec((action(), any::<bool>()), 0..80),
        burst in 0_usize..700,
        from in any::<prop::sample::Index>(),
    ) {
        run(async move {
            let mut publisher = Publisher::new().await;
            for action in before {
                publisher.act(action).await;
            }
            // What was stored silently is known to whoever opens the session.
            let stored = publisher.journal.find_session(&key()).await.unwrap().unwrap().last_seq;
            let last = publisher.hub.last_seq();
            let after = from.index(usize::try_from(last).unwrap() + 1) as u64;
            prop_assert!(after <= stored);
            let journal: Arc<dyn Journal> = publisher.journal.clone();
            let mut events = Box::pin(subscribe(publisher.hub.clone(), journal, Some(after)));
            let mut seen = Vec::new();
            for (action, read) in later {
                publisher.act(action).await;
                if read && let Some(Some(event)) = futures::FutureExt::now_or_never(events.next()) {
                    seen.push(event.unwrap());
                }
            }
            // More than the ring holds: the reader falls behind.
            for _ in 0..burst {
                publisher.act(Action::Text("x".to_owned())).await;
            }
            publisher.act(Action::Note).await;
            let last = publisher.journal.find_session(&key()).await.unwrap().unwrap().last_seq;
            while seen.last().and_then(|event: &Arc<Event>| event.seq) != Some(last) {
                seen.push(events.next().await.unwrap().unwrap());
            }
            check(&seen, after, last)
        })?;
    }
}

#[tokio::test(start_paused = true)]
async fn contract_2_a_reader_that_returns_gets_the_text_so_far_and_then_follows() {
    let mut publisher = Publisher::new().await;
    publisher.act(Action::Note).await;
    publisher.act(Action::Text("begins".to_owned())).await;
    publisher.act(Action::Text("Hel".to_owned())).await;
    publisher.act(Action::Text("lo ".to_owned())).await;
    let mut events = Box::pin(subscribe(
        publisher.hub.clone(),
        publisher.journal.clone(),
        Some(1),
    ));
    publisher.act(Action::Text("world".to_owned())).await;
    publisher.act(Action::End { failed: false }).await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        seen.push(events.next().await.unwrap().unwrap());
    }
    assert_eq!(
        kinds(&seen),
        ["model.started", "model.delta", "model.delta", "model.done"]
    );
    assert_eq!(seen[1].data["text"], "Hello ");
    assert_eq!(text_of(&seen), "Hello world");
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_told_when_the_turn_cannot_be_stored() {
    let publisher = Publisher::new().await;
    let mut events = Box::pin(subscribe(publisher.hub.clone(), publisher.journal.clone(), None));
    publisher.hub.broken();
    let error = events.next().await.unwrap().unwrap_err();
    assert!(matches!(error, crate::SubscriptionError::TurnSuspended));
    assert!(events.next().await.is_none());
}

/// A journal that keeps the first answer about a session back until it is told to give it.
#[derive(Debug)]
struct LateFacts {
    journal: MemoryJournal,
    held: Mutex<Option<Arc<Notify>>>,
    asked: Notify,
}

#[async_trait]
impl Journal for LateFacts {
    async fn create_session(&self, key: &SessionKey, now: Timestamp) -> Result<(), JournalError> {
        self.journal.create_session(key, now).await
    }

    async fn find_session(&self, key: &SessionKey) -> Result<Option<SessionFacts>, JournalError> {
        let facts = self.journal.find_session(key).await;
        let held = self.held.lock().unwrap().take();
        if let Some(held) = held {
            self.asked.notify_one();
            held.notified().await;
        }
        facts
    }

    async fn append(
        &self,
        key: &SessionKey,
        turn: &str,
        now: Timestamp,
        entry: Entry,
    ) -> Result<Vec<Event>, JournalError> {
        self.journal.append(key, turn, now, entry).await
    }

    async fn events_after(
        &self,
        key: &SessionKey,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, JournalError> {
        self.journal.events_after(key, after, limit).await
    }

    async fn messages(&self, key: &SessionKey, limit: usize) -> Result<Vec<HistoryMessage>, JournalError> {
        self.journal.messages(key, limit).await
    }

    async fn open_turns(&self, namespace: &str, agent: &str) -> Result<Vec<OpenTurn>, JournalError> {
        self.journal.open_turns(namespace, agent).await
    }
}

#[tokio::test]
async fn who_opens_a_session_while_its_turn_ends_reads_that_end() {
    let journal = Arc::new(LateFacts {
        journal: MemoryJournal::default(),
        held: Mutex::default(),
        asked: Notify::new(),
    });
    let answers = vec![vec![Say::Text("One.")], vec![Say::Text("Two.")]];
    let world = World::over(journal.clone(), answers, vec![], json!({}));
    let engine = world.engine().await;
    let session = engine.open_session(None).await.unwrap();
    let id = session.id();
    converse(&session, message("first")).await;
    drop(session);
    let gate = Arc::new(Notify::new());
    *journal.held.lock().unwrap() = Some(gate.clone());
    let mut opening = Box::pin(engine.open_session(Some(id)));
    assert!(futures::poll!(&mut opening).is_pending());
    journal.asked.notified().await;
    // What the store said of it is old once this turn has ended, and nobody else listens to the session then.
    let other = engine.open_session(Some(id)).await.unwrap();
    let seen = converse(&other, message("second")).await;
    let turn = seen.last().unwrap().turn.clone();
    drop(other);
    engine.drain(Duration::from_secs(5)).await;
    gate.notify_one();
    let session = opening.await.unwrap();
    let mut events = Box::pin(session.subscribe(Some(0)));
    loop {
        let next = tokio::time::timeout(Duration::from_secs(5), events.next()).await;
        let event = next.expect("the end of the turn is read").unwrap().unwrap();
        if ends_turn(&event) && event.turn == turn {
            return;
        }
    }
}
