//! Two processes of one agent over one server, in one test: what each says goes through the same lines of JSON.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use jiff::Timestamp;
use mainstay_llm::{Message as ModelMessage, SignedThought, ToolCall};
use mainstay_store::payload::{PayloadOptions, PayloadStore};
use mainstay_telemetry::task;
use mainstay_tools::delegation::{DelegationError, DelegationRequest, DelegationSigner};
use mainstay_workload::process::calls::{Answering, Answers, CallError, Caller};
use mainstay_workload::process::{KubernetesAccess, Start, ToServer};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::protocol::{Ask, PAGE_BYTES, WrittenEntry};
use super::{AgentServer, AgentServerOptions, RemoteClaims, RemoteJournal, RemoteSigner, follow_ends};
use crate::claims::SessionClaims;
use crate::event::{Event, Message, Payload};
use crate::journal::{Entry, HistoryMessage, Journal, JournalError, SessionKey};
use crate::tests::support::*;
use crate::{Engine, Hubs, SessionError, SessionHandle};

const WITHIN: Duration = Duration::from_secs(5);

fn server(journal: &Arc<dyn Journal>) -> AgentServer {
    AgentServer::new(AgentServerOptions {
        role: "agent".to_owned(),
        journal: Arc::clone(journal),
        delegation: Arc::new(NamesRequest),
    })
}

/// "Signs" by naming what it was asked for; has no key for the handler `none`.
#[derive(Debug)]
struct NamesRequest;

#[async_trait]
impl DelegationSigner for NamesRequest {
    async fn sign(&self, request: &DelegationRequest) -> Result<SecretString, DelegationError> {
        if request.handler == "none" {
            let message = "the operator has no key".to_owned();
            return Err(DelegationError { message });
        }
        Ok(SecretString::from(format!("{request:?}")))
    }
}

/// A process's way to the server.
struct Line {
    caller: Caller,
    carrying: JoinHandle<()>,
}

impl Line {
    /// The process is gone, as SIGKILL leaves it: nothing it says is heard any more.
    fn cut(&self) {
        self.carrying.abort();
    }
}

fn start(agent: &str, role: &str) -> Start {
    Start {
        role: role.to_owned(),
        arguments: Vec::new(),
        environment: [("OMNIA_AGENT_NAME".to_owned(), agent.to_owned())].into(),
        root: "/".into(),
        namespace: "default".to_owned(),
        pod: "pod".to_owned(),
        container: "agent".to_owned(),
        service_account: "default".to_owned(),
        ports: Vec::new(),
        kubernetes: KubernetesAccess {
            server: "https://127.0.0.1:1".to_owned(),
            certificate_authority: "/ca.crt".into(),
            token: None,
        },
        services: Vec::new(),
        memory_limit: None,
    }
}

/// A process of the agent, as the local node starts one.
fn process(server: &AgentServer, agent: &str) -> Line {
    let (caller, mut lines) = Caller::new();
    let (answering, mut answers) = Answering::new(server.begin(&start(agent, "agent")));
    let heard = caller.clone();
    let carrying = task::spawn("carrying", async move {
        loop {
            tokio::select! {
                Some(line) = lines.recv() => match serde_json::from_slice(&line).unwrap() {
                    ToServer::Call(call) => answering.take(call),
                    other => panic!("{other:?}"),
                },
                Some(answer) = answers.recv() => heard.answered(answer),
                else => return,
            }
        }
    });
    Line { caller, carrying }
}

/// The world of a process: the model and the tools are its own, everything that is kept is the server's.
fn world_of(world: &World, line: &Line, answers: Vec<Vec<Say>>) -> World {
    let mut own = world.restarted(answers);
    own.options.journal = Arc::new(RemoteJournal::new(line.caller.clone()));
    own.options.claims = Arc::new(RemoteClaims::new(line.caller.clone()));
    own.options.hubs = Hubs::new();
    own
}

fn gated(gate: &Arc<Notify>) -> Vec<Say> {
    vec![Say::Text("Wait"), Say::Wait(gate.clone()), Say::Text(" for it.")]
}

/// The events of the session from the first one to the end of `turn`.
async fn read_to_the_end(session: &SessionHandle, turn: &str) -> Vec<Event> {
    let mut events = Box::pin(session.subscribe(Some(0)));
    let mut seen = Vec::new();
    loop {
        let event = events.next().await.unwrap().unwrap();
        let last = ends_turn(&event) && event.turn.as_deref() == Some(turn);
        seen.push(Arc::unwrap_or_clone(event));
        if last {
            return seen;
        }
    }
}

/// Each stored event once, in order.
fn assert_complete(events: &[Event], stored: &[Event]) {
    let numbers = |events: &[Event]| events.iter().filter_map(|event| event.seq).collect::<Vec<_>>();
    let last = stored.len() as u64;
    assert_eq!(numbers(stored), (1..=last).collect::<Vec<_>>());
    assert_eq!(numbers(events), numbers(stored));
}

fn empty_world() -> World {
    World::new(Vec::new(), vec![("pay", tool(Does::Hangs))], json!({}))
}

#[tokio::test]
async fn a_conversation_in_a_process_is_stored_as_in_the_server() {
    let world = empty_world();
    let server = server(&world.journal);
    let line = process(&server, "helpdesk");
    let own = world_of(
        &world,
        &line,
        vec![vec![Say::Text("One.")], vec![Say::Text("Two.")]],
    );
    let session = own.engine().await.open_session(None).await.unwrap();
    converse(&session, message("first")).await;
    let seen = converse(&session, message("second")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    let said: Vec<String> = own
        .model
        .request(1)
        .messages
        .iter()
        .map(|message| message.content.clone())
        .collect();
    assert_eq!(said, ["first", "One.", "second"]);
    let turn = seen.last().unwrap().turn.clone().unwrap();
    let read = read_to_the_end(&session, &turn).await;
    assert_complete(&read, &stored(&world, &session).await);
    // A key is accepted once, whichever process it comes to.
    let with_key = |content| crate::IncomingMessage {
        client_key: Some("k".to_owned()),
        ..message(content)
    };
    let other_line = process(&server, "helpdesk");
    let other = world_of(&world, &other_line, vec![vec![Say::Text("Three.")]]);
    let again = other
        .engine()
        .await
        .open_session(Some(session.id()))
        .await
        .unwrap();
    converse(&again, with_key("third")).await;
    let refused = session
        .send(with_key("third"))
        .unwrap()
        .started()
        .await
        .unwrap_err();
    assert!(matches!(refused, crate::SendError::Duplicate { .. }), "{refused}");
}

#[tokio::test]
async fn a_turn_of_the_old_process_ends_there_and_only_then_the_new_one_has_the_session() {
    let world = empty_world();
    let server = server(&world.journal);
    let gate = Arc::new(Notify::new());
    let old_line = process(&server, "helpdesk");
    let old = world_of(&world, &old_line, vec![gated(&gate)]);
    let old_engine = old.engine().await;
    let session = old_engine.open_session(None).await.unwrap();
    let mut ticket = session.send(message("go")).unwrap();
    ticket.started().await.unwrap();
    old.model.asked.notified().await;

    // The Pod is replaced: the new one finds the turn open, and somebody comes back to it.
    let new_line = process(&server, "helpdesk");
    let new = world_of(&world, &new_line, vec![vec![Say::Text("Next.")]]);
    let engine = new.engine().await;
    assert_eq!(engine.resume_open_turns().await.unwrap(), 1);
    assert_eq!(engine.resume_open_turns().await.unwrap(), 0, "it waits already");
    let mut opening = Box::pin(engine.open_session(Some(session.id())));
    assert!(futures::poll!(&mut opening).is_pending());

    // It drains: its turn ends by itself, once.
    let draining = task::spawn("draining", async move { old_engine.drain(WITHIN).await });
    gate.notify_one();
    assert!(draining.await.unwrap(), "the turn ended by itself");
    let reopened = opening.await.unwrap();
    let read = read_to_the_end(&reopened, &ticket.turn).await;
    assert_complete(&read, &stored(&world, &session).await);
    assert_eq!(
        kinds(&read)
            .iter()
            .filter(|kind| **kind == "model.started")
            .count(),
        1
    );
    assert_eq!(new.model.count(), 0, "the turn was not run again");

    // The session goes on in the new one, behind what the old one stored.
    let seen = converse(&reopened, message("and now?")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    let said = new.model.request(0).messages;
    assert_eq!(said[1].content, "Wait for it.", "{said:?}");
}

#[tokio::test]
async fn contract_7_a_turn_of_a_process_that_is_killed_is_continued_once() {
    let world = empty_world();
    let server = server(&world.journal);
    let old_line = process(&server, "helpdesk");
    let ask = vec![Say::Call("c1", "pay", json!({"id": 1}))];
    let old = world_of(&world, &old_line, vec![ask]);
    let new_line = process(&server, "helpdesk");
    let new = world_of(&world, &new_line, vec![vec![Say::Text("I am not sure.")]]);
    let engine = new.engine().await;
    let cancellation = CancellationToken::new();
    let following = follow_ends(engine.clone(), new_line.caller.clone(), cancellation.clone());
    let following = task::spawn("following", following);

    // The turn begins when the new process has looked for open ones already.
    let session = old.engine().await.open_session(None).await.unwrap();
    let ticket = session.send(message("pay it")).unwrap();
    old.tools.called.notified().await;
    old_line.cut();
    let reopened = engine.open_session(Some(session.id())).await.unwrap();
    let read = read_to_the_end(&reopened, &ticket.turn).await;
    assert_complete(&read, &stored(&world, &session).await);
    assert_eq!(read.last().unwrap().kind, "turn.done");
    assert_eq!(find(&read, "tool.finished")["outcome"], "unknown");
    assert_eq!(new.tools.count("pay"), 1, "the call was not sent again");
    assert_eq!(new.model.count(), 1);
    cancellation.cancel();
    following.await.unwrap();
}

#[tokio::test]
async fn a_process_that_nobody_hears_any_more_disturbs_nothing() {
    let world = empty_world();
    let server = server(&world.journal);
    let gate = Arc::new(Notify::new());
    let old_line = process(&server, "helpdesk");
    let old = world_of(&world, &old_line, vec![gated(&gate)]);
    let session = old.engine().await.open_session(None).await.unwrap();
    let ticket = session.send(message("go")).unwrap();
    old.model.asked.notified().await;
    old_line.cut();
    let new_line = process(&server, "helpdesk");
    let new = world_of(&world, &new_line, vec![vec![Say::Text("Here.")]]);
    let engine = new.engine().await;
    assert_eq!(engine.resume_open_turns().await.unwrap(), 1);
    let reopened = engine.open_session(Some(session.id())).await.unwrap();
    let read = read_to_the_end(&reopened, &ticket.turn).await;
    gate.notify_one();
    assert_complete(&read, &stored(&world, &session).await);
    assert_eq!(all(&read, "message").last().unwrap()["content"], "Here.");
}

#[tokio::test]
async fn a_turn_that_was_stopped_where_it_stood_is_continued_by_the_next_message() {
    let world = empty_world();
    let server = server(&world.journal);
    let gate = Arc::new(Notify::new());
    let old_line = process(&server, "helpdesk");
    let old = world_of(&world, &old_line, vec![gated(&gate)]);
    let old_engine = old.engine().await;
    let session = old_engine.open_session(None).await.unwrap();
    let ticket = session.send(message("go")).unwrap();
    old.model.asked.notified().await;
    let new_line = process(&server, "helpdesk");
    let answers = vec![vec![Say::Text("First.")], vec![Say::Text("Second.")]];
    let new = world_of(&world, &new_line, answers);
    let engine = new.engine().await;
    // Longer than it may drain. The process itself has not ended yet.
    old_engine.stop().await;
    let reopened = engine.open_session(Some(session.id())).await.unwrap();
    let next = converse(&reopened, message("and?")).await;
    assert_eq!(next.last().unwrap().kind, "turn.done");
    let read = read_to_the_end(&reopened, &next.last().unwrap().turn.clone().unwrap()).await;
    assert_complete(&read, &stored(&world, &session).await);
    let ends: Vec<_> = read.iter().filter(|event| ends_turn(event)).collect();
    assert_eq!(ends[0].turn.as_deref(), Some(ticket.turn.as_str()));
    assert_eq!(text_of(&read), "", "pieces are not stored");
    let said: Vec<&serde_json::Value> = all(&read, "message")
        .iter()
        .map(|data| &data["content"])
        .collect();
    assert_eq!(said, ["go", "First.", "and?", "Second."]);
}

#[tokio::test(start_paused = true)]
async fn who_waits_too_long_for_a_session_is_told_to_try_again() {
    let world = empty_world();
    let server = server(&world.journal);
    let old_line = process(&server, "helpdesk");
    let old = world_of(
        &world,
        &old_line,
        vec![vec![Say::Call("c1", "pay", json!({"id": 1}))]],
    );
    let session = old.engine().await.open_session(None).await.unwrap();
    let _ticket = session.send(message("pay it")).unwrap();
    old.tools.called.notified().await;
    let new_line = process(&server, "helpdesk");
    let new = world_of(&world, &new_line, Vec::new());
    let refused = new
        .engine()
        .await
        .open_session(Some(session.id()))
        .await
        .unwrap_err();
    assert!(matches!(refused, SessionError::Elsewhere { .. }), "{refused}");
}

#[tokio::test]
async fn one_agents_process_has_nothing_of_anothers_conversations() {
    let world = empty_world();
    let server = server(&world.journal);
    let owner = process(&server, "helpdesk");
    let own = world_of(&world, &owner, vec![vec![Say::Text("Secret.")]]);
    let session = own.engine().await.open_session(None).await.unwrap();
    converse(&session, message("tell me")).await;
    let before = stored(&world, &session).await;

    let key = key_of(&session);
    let entry = || {
        WrittenEntry::from(Entry {
            payloads: vec![Payload::Message(Message {
                message_id: "m".to_owned(),
                role: "user".to_owned(),
                content: "forged".to_owned(),
            })],
            ..Entry::default()
        })
    };
    let now = Timestamp::UNIX_EPOCH;
    let asks = |key: &SessionKey| {
        let key = || key.clone();
        let (namespace, agent) = (key().namespace, key().agent);
        vec![
            Ask::Claim { key: key(), claim: 1 },
            Ask::CreateSession { key: key(), now },
            Ask::FindSession { key: key() },
            Ask::Append {
                key: key(),
                turn: "t".to_owned(),
                now,
                entry: entry(),
            },
            Ask::EventsAfter {
                key: key(),
                after: 0,
                limit: 9,
            },
            Ask::Messages {
                key: key(),
                limit: 9,
                had: 0,
            },
            Ask::OpenTurns { namespace, agent },
        ]
    };
    let refused = async |line: &Line, ask: Ask, reason: &str| {
        let ask = serde_json::to_value(ask).unwrap();
        let error = line.caller.call(ask.clone(), WITHIN).await.unwrap_err();
        let CallError::Refused(refusal) = &error else {
            panic!("{ask}: {error}");
        };
        assert_eq!(refusal.reason, reason, "{ask}");
    };
    let other = process(&server, "orders");
    for ask in asks(&key) {
        refused(&other, ask, "AnotherAgent").await;
    }
    // Nor another namespace's agent of the same name.
    let elsewhere = SessionKey {
        namespace: "shop".to_owned(),
        ..key.clone()
    };
    for ask in asks(&elsewhere) {
        refused(&owner, ask, "AnotherAgent").await;
    }
    // Its own it writes only when it has claimed the session.
    let now_own = || Ask::Append {
        key: key.clone(),
        turn: "t".to_owned(),
        now,
        entry: entry(),
    };
    refused(&owner, now_own(), "NotClaimed").await;
    refused(
        &owner,
        Ask::CreateSession {
            key: key.clone(),
            now,
        },
        "NotClaimed",
    )
    .await;
    assert_eq!(stored(&world, &session).await, before);
    // Another process's claim is not given back by its number.
    let claims = RemoteClaims::new(owner.caller.clone());
    let _claimed = claims.claim(&key).await.unwrap();
    for claim in 0..4 {
        let release = serde_json::to_value(Ask::Release { claim }).unwrap();
        other.caller.call(release, WITHIN).await.unwrap();
    }
    let written = serde_json::to_value(now_own()).unwrap();
    owner.caller.call(written, WITHIN).await.unwrap();
    // What is no agent asks nothing here.
    assert!(server.begin(&start("helpdesk", "demo")).is_none());
}

#[tokio::test]
async fn a_journal_over_the_channel_gives_what_the_store_gives() {
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    let journal: Arc<dyn Journal> = Arc::new(store);
    let line = process(&server(&journal), "helpdesk");
    let remote = RemoteJournal::new(line.caller.clone());
    let key = SessionKey {
        namespace: "default".to_owned(),
        agent: "helpdesk".to_owned(),
        session: "s".to_owned(),
    };
    let now = Timestamp::UNIX_EPOCH;
    let _claimed = RemoteClaims::new(line.caller.clone()).claim(&key).await.unwrap();
    assert_eq!(remote.find_session(&key).await.unwrap(), None);
    let lost = remote.append(&key, "t", now, Entry::default()).await;
    assert!(matches!(lost, Err(JournalError::NoSession { .. })), "{lost:?}");
    remote.create_session(&key, now).await.unwrap();
    remote.create_session(&key, now).await.unwrap();
    // More than one answer holds, and one message that is longer than a page.
    let long = |index: usize| {
        "\u{1}x".repeat(if index == 2 {
            PAGE_BYTES / 6
        } else {
            PAGE_BYTES / 16
        })
    };
    for index in 0..5 {
        let call = ToolCall {
            signature: Some("sig".to_owned()),
            ..ToolCall::new("c", "t", "{}")
        };
        let entry = Entry {
            payloads: vec![Payload::Message(Message {
                message_id: index.to_string(),
                role: "user".to_owned(),
                content: long(index),
            })],
            messages: vec![HistoryMessage {
                message_id: index.to_string(),
                message: ModelMessage {
                    thoughts: vec![SignedThought::Redacted {
                        data: "sealed".to_owned(),
                    }],
                    ..ModelMessage::assistant(long(index), vec![call])
                },
            }],
            client_key: Some(format!("key-{index}")),
        };
        let client_key = entry.client_key.clone();
        let written = remote.append(&key, "t", now, entry).await.unwrap();
        assert_eq!(written[0].seq, Some(index as u64 + 1));
        let repeated = Entry {
            client_key,
            ..Entry::default()
        };
        let again = remote.append(&key, "u", now, repeated).await;
        assert!(
            matches!(&again, Err(JournalError::Duplicate { turn, .. }) if turn == "t"),
            "{again:?}"
        );
    }
    for limit in [1, 3, 100] {
        assert_eq!(
            remote.messages(&key, limit).await.unwrap(),
            journal.messages(&key, limit).await.unwrap()
        );
    }
    let all = crate::journal::collect_events(&remote, &key, |_| true)
        .await
        .unwrap();
    assert_eq!(all, journal.events_after(&key, 0, 100).await.unwrap());
    assert_eq!(
        remote.find_session(&key).await.unwrap(),
        journal.find_session(&key).await.unwrap()
    );
    assert_eq!(
        remote.open_turns("default", "helpdesk").await.unwrap(),
        journal.open_turns("default", "helpdesk").await.unwrap()
    );
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_any_more_is_given_back() {
    let world = empty_world();
    let server = server(&world.journal);
    let (first, second, third) = (
        process(&server, "helpdesk"),
        process(&server, "helpdesk"),
        process(&server, "helpdesk"),
    );
    let claims = |line: &Line| RemoteClaims::new(line.caller.clone());
    let key = SessionKey {
        namespace: "default".to_owned(),
        agent: "helpdesk".to_owned(),
        session: "s".to_owned(),
    };
    let held = claims(&first).claim(&key).await.unwrap();
    let second = claims(&second);
    let mut waiting = second.claim(&key);
    assert!(futures::poll!(&mut waiting).is_pending());
    drop(waiting);
    drop(held);
    tokio::time::timeout(WITHIN, claims(&third).claim(&key))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn many_sessions_are_handed_over_at_once() {
    let world = World::new(
        Vec::new(),
        vec![("hold", tool(Does::Waits(Arc::new(Semaphore::new(0)), "done")))],
        json!({}),
    );
    let server = server(&world.journal);
    let old_line = process(&server, "helpdesk");
    const SESSIONS: usize = 100;
    let scripts = (0..SESSIONS)
        .map(|_| vec![Say::Call("c", "hold", json!({}))])
        .collect();
    let old = world_of(&world, &old_line, scripts);
    let engine: Engine = old.engine().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let session = engine.open_session(None).await.unwrap();
        let mut ticket = session.send(message("go")).unwrap();
        ticket.started().await.unwrap();
        old.tools.called.notified().await;
        sessions.push((session, ticket));
    }
    let new_line = process(&server, "helpdesk");
    let new = world_of(
        &world,
        &new_line,
        (0..SESSIONS).map(|_| vec![Say::Text("Done.")]).collect(),
    );
    let new_engine = new.engine().await;
    assert_eq!(new_engine.resume_open_turns().await.unwrap(), SESSIONS);
    old_line.cut();
    for (session, ticket) in &sessions {
        let reopened = new_engine.open_session(Some(session.id())).await.unwrap();
        let read = read_to_the_end(&reopened, &ticket.turn).await;
        assert_complete(&read, &stored(&world, session).await);
    }
    assert_eq!(new.model.count(), SESSIONS);
}

#[tokio::test]
async fn om_414_the_server_signs_for_the_process_that_it_started_whatever_that_says_of_itself() {
    let world = empty_world();
    let server = server(&world.journal);
    let signer = RemoteSigner::new(process(&server, "helpdesk").caller);
    let honest = DelegationRequest {
        end_user: "ada".to_owned(),
        agent: "helpdesk".to_owned(),
        namespace: "default".to_owned(),
        session: "s".to_owned(),
        registry: "default/tools".to_owned(),
        handler: "orders".to_owned(),
    };
    let forged = DelegationRequest {
        agent: "admin".to_owned(),
        namespace: "kube-system".to_owned(),
        ..honest.clone()
    };
    for request in [&honest, &forged] {
        let token = signer.sign(request).await.unwrap();
        assert_eq!(token.expose_secret(), format!("{honest:?}"));
    }
    let without_key = DelegationRequest {
        handler: "none".to_owned(),
        ..honest
    };
    let refused = signer.sign(&without_key).await.unwrap_err();
    assert!(refused.message.contains("the operator has no key"), "{refused}");
}
