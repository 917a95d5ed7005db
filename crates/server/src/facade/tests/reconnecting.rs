//! Clients that come back (OM-528, contract 9).

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::support::*;

fn id(connected: &Value) -> String {
    connected["session_id"].as_str().unwrap().to_owned()
}

fn codes(frames: &[Value]) -> Vec<&Value> {
    frames
        .iter()
        .filter(|frame| frame["type"] == "error")
        .map(|frame| &frame["error"]["code"])
        .collect()
}

#[tokio::test]
async fn om_507_a_session_is_resumed_by_the_query_and_continues_its_history() {
    let served = Served::new(vec![vec![text("one")], vec![text("two")]]).await;
    let (mut client, connected) = served.connect("").await;
    client.say("first").await;
    client.until("done").await;
    drop(client);
    let (mut client, again) = served.connect(&format!("?resume={}", id(&connected))).await;
    assert_eq!(again["session_id"], connected["session_id"]);
    assert_eq!(again["connected"]["resumed"], true);
    client.say("second").await;
    assert_eq!(
        kinds(&client.until("done").await),
        ["chunk", "done"],
        "nothing old is sent again"
    );
    assert_eq!(served.model.requests.lock().unwrap()[1].messages.len(), 3);
}

#[tokio::test]
async fn om_528_a_session_id_in_a_message_continues_that_session_on_this_connection() {
    let served = Served::new(vec![vec![text("one")], vec![text("two")]]).await;
    let (mut client, connected) = served.connect("").await;
    client.say("first").await;
    client.until("done").await;
    let (mut other, fresh) = served.connect("").await;
    other
        .send(json!({"type": "message", "content": "second", "session_id": id(&connected)}))
        .await;
    let frames = other.until("done").await;
    assert_ne!(fresh["session_id"], connected["session_id"]);
    assert!(
        frames
            .iter()
            .all(|frame| frame["session_id"] == connected["session_id"]),
        "{frames:?}"
    );
    assert_eq!(served.model.requests.lock().unwrap()[1].messages.len(), 3);
}

#[tokio::test]
async fn om_528_an_absent_session_has_expired_and_the_connection_has_a_fresh_one() {
    let served = Served::new(vec![vec![text("ok")]]).await;
    for absent in ["00000000-0000-4000-8000-000000000000", "not-a-uuid"] {
        let (mut client, connected) = served.connect(&format!("?resume={absent}")).await;
        assert!(connected["connected"].get("resumed").is_none());
        assert_ne!(connected["session_id"], absent);
        assert_eq!(client.next().await["error"]["code"], "SESSION_EXPIRED");
    }
    let (mut client, _) = served.connect("").await;
    let absent = "00000000-0000-4000-8000-000000000000";
    client
        .send(json!({"type": "message", "content": "hi", "session_id": absent}))
        .await;
    assert_eq!(client.next().await["error"]["code"], "SESSION_EXPIRED");
    client.say("hi").await;
    client.until("done").await;
}

#[tokio::test]
async fn om_528_a_store_that_cannot_be_reached_is_never_reported_as_expiry() {
    let served = Served::new(vec![vec![text("ok")]]).await;
    let (mut client, connected) = served.connect("").await;
    client.say("hi").await;
    client.until("done").await;
    served.store.close().await;
    let (mut other, _) = served.connect(&format!("?resume={}", id(&connected))).await;
    assert_eq!(other.next().await["error"]["code"], "INTERNAL_ERROR");
    other
        .send(json!({"type": "message", "content": "hi", "session_id": id(&connected)}))
        .await;
    assert_eq!(other.next().await["error"]["code"], "INTERNAL_ERROR");
    client.say("again").await;
    assert_eq!(
        codes(&client.until("error").await),
        ["INTERNAL_ERROR"],
        "what cannot be stored is not accepted"
    );
}

#[tokio::test]
async fn contract_9_a_turn_goes_on_without_its_client_and_the_rest_is_read_later() {
    let gate = Arc::new(Notify::new());
    let served = Served::new(vec![vec![text("Hello "), Say::Wait(gate.clone()), text("world")]]).await;
    let (mut client, connected) = served.connect("?events=1").await;
    client.say("hi").await;
    let before = client.until("chunk").await;
    let last = before
        .iter()
        .filter_map(|frame| frame["event"]["seq"].as_u64())
        .max()
        .unwrap();
    drop(client);
    served.connections(0).await;
    let resume = format!("?resume={}&events=1&after={last}", id(&connected));
    let (mut client, _) = served.connect(&resume).await;
    let first = client.until("chunk").await;
    assert_eq!(
        first.last().unwrap()["content"],
        "Hello ",
        "the text so far comes first"
    );
    gate.notify_one();
    let rest = client.until("done").await;
    assert_eq!(rest.last().unwrap()["content"], "Hello world");
    let chunks: String = rest
        .iter()
        .filter(|frame| frame["type"] == "chunk")
        .map(|frame| frame["content"].as_str().unwrap())
        .collect();
    assert_eq!(chunks, "world");
    let numbers: Vec<u64> = first
        .iter()
        .chain(&rest)
        .filter_map(|frame| frame["event"]["seq"].as_u64())
        .collect();
    assert_eq!(
        numbers,
        (last + 1..=numbers.last().copied().unwrap()).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn contract_2_a_reader_gives_its_last_seq_and_gets_what_is_stored_after_it_as_events_only() {
    let served = Served::new(vec![vec![text("one")], vec![text("two")]]).await;
    let (mut client, connected) = served.connect("?events=1").await;
    client.say("first").await;
    client.until("done").await;
    drop(client);
    let (mut client, _) = served
        .connect(&format!("?resume={}&events=1&after=2", id(&connected)))
        .await;
    let mut replayed = Vec::new();
    while replayed.last() != Some(&json!(6)) {
        let frame = client.next().await;
        assert_eq!(frame["type"], "event", "an old turn is no answer: {frame}");
        replayed.push(frame["event"]["seq"].clone());
    }
    assert_eq!(replayed, [json!(3), json!(4), json!(5), json!(6)]);
    client.say("second").await;
    assert_eq!(client.until("done").await.last().unwrap()["content"], "two");
}

#[tokio::test]
async fn contract_9_two_connections_of_a_session_share_one_running_and_one_waiting_message() {
    let gate = Arc::new(Notify::new());
    let served = Served::new(vec![
        vec![Say::Wait(gate.clone()), text("one")],
        vec![text("two")],
    ])
    .await;
    let (mut first, connected) = served.connect("").await;
    let session = id(&connected);
    first.say("one").await;
    let probe = async {
        while served.model.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, probe).await.unwrap();
    let resume = format!("?resume={session}");
    let (mut second, _) = served.connect(&resume).await;
    second.say("two").await;
    second.send(json!({"type": "dance"})).await;
    second.until("error").await;
    let (mut third, _) = served.connect(&resume).await;
    third.say("three").await;
    let error = third.until("error").await.pop().unwrap();
    assert_eq!(error["error"]["code"], "RATE_LIMITED");
    assert_eq!(error["error"]["details"]["reason"], "SessionBusy");
    gate.notify_one();
    let answers: Vec<Value> = {
        let mut frames = second.until("done").await;
        frames.extend(second.until("done").await);
        frames
            .into_iter()
            .filter(|frame| frame["type"] == "done")
            .map(|frame| frame["content"].clone())
            .collect()
    };
    assert_eq!(answers, [json!("one"), json!("two")]);
}

#[tokio::test]
async fn om_432_a_call_that_waits_for_its_client_is_shown_to_the_one_that_comes_back() {
    let served = Served::new(vec![
        vec![Say::Call("c1", "locate", json!({"precision": 1}))],
        vec![text("In Ulm.")],
    ])
    .await;
    let (mut first, connected) = served.connect("").await;
    first.say("where am I?").await;
    let asked = first.until("tool_call").await.pop().unwrap();
    first
        .send(json!({"type": "tool_call_ack", "tool_call_ack": {"call_id": "c1"}}))
        .await;
    // What follows the acknowledgement is answered behind it.
    first.send(json!({"type": "dance"})).await;
    first.until("error").await;
    drop(first);
    let resume = format!("?resume={}", id(&connected));
    let (mut second, _) = served.connect(&resume).await;
    let again = second.next().await;
    assert_eq!(again["tool_call"], asked["tool_call"]);
    second
        .send(json!({"type": "tool_result", "tool_result": {"call_id": "c1", "result": "Ulm"}}))
        .await;
    assert_eq!(second.until("done").await.pop().unwrap()["content"], "In Ulm.");
    // An answered call is not shown again.
    let (mut third, _) = served.connect(&resume).await;
    third.send(json!({"type": "dance"})).await;
    assert_eq!(third.next().await["type"], "error");
}
