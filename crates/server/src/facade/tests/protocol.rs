//! The frames of OM D.2, over a real socket.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

use super::support::*;
use crate::facade::FacadeLimits;

#[tokio::test]
async fn om_507_connected_comes_first_with_a_fresh_session_and_capabilities_on_request() {
    let served = Served::new(vec![]).await;
    let (_client, connected) = served.connect("").await;
    assert!(
        connected["session_id"]
            .as_str()
            .unwrap()
            .parse::<uuid::Uuid>()
            .is_ok()
    );
    assert!(
        connected["timestamp"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .is_ok()
    );
    assert_eq!(connected["connected"], json!({}));
    let (_other, other) = served.connect("?binary=true").await;
    assert_eq!(other["connected"]["capabilities"]["protocol_version"], 1);
    assert_eq!(other["connected"]["capabilities"]["max_payload_size"], 16 << 20);
    assert_ne!(other["session_id"], connected["session_id"]);
}

#[tokio::test]
async fn om_514_and_om_515_an_answer_is_streamed_in_chunks_and_done_carries_all_of_it() {
    let served = Served::new(vec![vec![text("Hel"), text("lo")], vec![text("again")]]).await;
    let (mut client, connected) = served.connect("").await;
    client.say("hi").await;
    let frames = client.until("done").await;
    assert_eq!(kinds(&frames), ["chunk", "chunk", "done"]);
    assert_eq!(frames[2]["content"], "Hello");
    for frame in &frames {
        assert_eq!(frame["session_id"], connected["session_id"]);
        assert!(frame["timestamp"].is_string());
    }
    client.say("more").await;
    assert_eq!(client.until("done").await.last().unwrap()["content"], "again");
}

#[tokio::test]
async fn om_508_parts_and_metadata_reach_the_prompt_and_the_model() {
    let prompt = json!({
        "system_template": "You talk to {{customer}}.",
        "variables": [{"name": "customer", "type": "string", "required": true}]
    });
    let served = Served::with(vec![vec![text("ok")]], prompt, FacadeLimits::default()).await;
    let (mut client, _) = served.connect("").await;
    client.say("hi").await;
    let error = client.next().await;
    assert_eq!(error["error"]["code"], "INVALID_MESSAGE");
    assert_eq!(error["error"]["details"]["reason"], "PromptVariableMissing");
    client
        .send(json!({
            "type": "message", "content": "ignored", "metadata": {"customer": "Ada"},
            "parts": [{"type": "text", "text": "part one"}, {"type": "text", "text": "part two"}]
        }))
        .await;
    client.until("done").await;
    let request = served.model.requests.lock().unwrap()[0].clone();
    assert_eq!(&*request.system, "You talk to Ada.");
    assert_eq!(request.messages.last().unwrap().content, "part one\npart two");
}

#[tokio::test]
async fn om_526_a_second_message_in_flight_is_refused_and_the_connection_stays() {
    let gate = Arc::new(Notify::new());
    let served = Served::new(vec![
        vec![Say::Wait(gate.clone()), text("one")],
        vec![text("two")],
    ])
    .await;
    let (mut client, _) = served.connect("").await;
    client.say("first").await;
    client.say("second").await;
    let error = client.next().await;
    assert_eq!(error["error"]["code"], "RATE_LIMITED");
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("too many in-flight requests")
    );
    gate.notify_one();
    assert_eq!(client.until("done").await.last().unwrap()["content"], "one");
    client.say("third").await;
    assert_eq!(client.until("done").await.last().unwrap()["content"], "two");
}

#[tokio::test]
async fn om_525_a_broken_frame_is_an_error_and_the_connection_stays() {
    let served = Served::new(vec![vec![text("ok")]]).await;
    let (mut client, _) = served.connect("").await;
    for broken in [
        "",
        "not json",
        "[]",
        "{}",
        "{\"type\":\"dance\"}",
        "{\"type\":\"message\"}",
        "{\"type\":\"message\",\"content\":7}",
        "{\"type\":\"message\",\"content\":\"x\",\"metadata\":[1]}",
        "{\"type\":\"tool_result\",\"tool_result\":{\"call_id\":\"c\"}}",
        &"[".repeat(100_000),
    ] {
        client.raw(Message::text(broken)).await;
        let error = client.next().await;
        assert_eq!(error["error"]["code"], "INVALID_MESSAGE", "{broken:.40}");
    }
    client.say("hi").await;
    client.until("done").await;
}

#[tokio::test]
async fn om_512_om_513_and_om_524_what_needs_media_says_that_media_are_not_enabled() {
    let served = Served::new(vec![]).await;
    let (mut client, _) = served.connect("?binary=true").await;
    client.send(json!({"type": "upload_request", "upload_request": {"filename": "a", "mime_type": "b", "size_bytes": 1}})).await;
    client.send(json!({"type": "hangup"})).await;
    client
        .send(json!({"type": "message", "parts": [{"type": "image", "media": {"url": "https://x", "mime_type": "image/png"}}]}))
        .await;
    client.raw(Message::binary(b"OMNI".to_vec())).await;
    for _ in 0..4 {
        assert_eq!(client.next().await["error"]["code"], "MEDIA_NOT_ENABLED");
    }
}

#[tokio::test]
async fn om_525_a_provider_failure_is_an_internal_error_with_its_reason_and_the_connection_stays() {
    let served = Served::new(vec![vec![text("I th"), Say::Fail], vec![text("ok")]]).await;
    let (mut client, _) = served.connect("").await;
    client.say("hi").await;
    let error = client.until("error").await.pop().unwrap();
    assert_eq!(error["error"]["code"], "INTERNAL_ERROR");
    assert_eq!(error["error"]["details"]["reason"], "ModelServerError");
    client.say("again").await;
    client.until("done").await;
}

#[tokio::test]
async fn om_516_a_client_tool_is_called_acknowledged_and_answered() {
    let served = Served::new(vec![
        vec![Say::Call("c1", "locate", json!({"precision": 1}))],
        vec![text("In Ulm.")],
    ])
    .await;
    let (mut client, _) = served.connect("").await;
    client
        .send(json!({"type": "tool_call_ack", "tool_call_ack": {"call_id": "c1"}}))
        .await;
    assert_eq!(
        client.next().await["error"]["code"],
        "TOOL_FAILED",
        "nobody waits for it yet"
    );
    client.say("where am I?").await;
    let call = client.next().await;
    assert_eq!(
        call["tool_call"],
        json!({
            "id": "c1", "name": "locate", "arguments": {"precision": 1}, "consent_message": "May I?",
            "categories": ["location"]
        })
    );
    client
        .send(json!({"type": "tool_call_ack", "tool_call_ack": {"call_id": "c1"}}))
        .await;
    let result = json!({"call_id": "c1", "result": {"city": "Ulm"}});
    client
        .send(json!({"type": "tool_result", "tool_result": result}))
        .await;
    assert_eq!(client.until("done").await.last().unwrap()["content"], "In Ulm.");
    let request = served.model.requests.lock().unwrap()[1].clone();
    assert_eq!(request.messages.last().unwrap().content, "{\"city\":\"Ulm\"}");
}

#[tokio::test]
async fn om_511_a_client_that_declines_gives_the_model_its_reason() {
    let served = Served::new(vec![
        vec![Say::Call("c1", "locate", json!({}))],
        vec![text("Fine.")],
    ])
    .await;
    let (mut client, _) = served.connect("").await;
    client.say("where am I?").await;
    client.until("tool_call").await;
    client
        .send(json!({"type": "tool_call_nack", "tool_call_nack": {"call_id": "c1", "reason": "no"}}))
        .await;
    client.until("done").await;
    let told = served.model.requests.lock().unwrap()[1]
        .messages
        .last()
        .unwrap()
        .clone();
    assert!(
        told.is_error && told.content.contains("rejected the call: no"),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_client_can_cancel_the_running_turn() {
    let never = Arc::new(Notify::new());
    let served = Served::new(vec![vec![text("So"), Say::Wait(never)], vec![text("ok")]]).await;
    let (mut client, _) = served.connect("").await;
    client.say("hi").await;
    client.until("chunk").await;
    client.send(json!({"type": "cancel"})).await;
    let error = client.until("error").await.pop().unwrap();
    assert_eq!(error["error"]["details"]["reason"], "TurnCancelled");
    client.say("again").await;
    client.until("done").await;
}

#[tokio::test]
async fn contract_9_with_events_the_same_connection_carries_the_events() {
    let served = Served::new(vec![vec![text("Hello")]]).await;
    let (mut client, _) = served.connect("?events=1").await;
    client.say("hi").await;
    let frames = client.until("done").await;
    let events: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["type"] == "event")
        .map(|frame| &frame["event"])
        .collect();
    let types: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        types,
        [
            "turn.started",
            "message",
            "model.started",
            "model.delta",
            "model.done",
            "message",
            "turn.done"
        ]
    );
    assert_eq!(events[0]["seq"], 1);
    assert!(events[3].get("seq").is_none());
    assert!(
        kinds(&frames).contains(&"chunk"),
        "the frames of OM D.2 come as well"
    );
}

#[tokio::test]
async fn contract_9_a_repeated_client_key_gets_the_first_answer_and_asks_no_model_again() {
    let gate = Arc::new(Notify::new());
    let served = Served::new(vec![vec![Say::Wait(gate.clone()), text("paid")]]).await;
    let (mut client, connected) = served.connect("").await;
    let message = json!({"type": "message", "content": "pay", "client_key": "k1"});
    client.send(message.clone()).await;
    gate.notify_one();
    client.until("done").await;
    client.send(message.clone()).await;
    assert_eq!(client.until("done").await.last().unwrap()["content"], "paid");
    let resume = format!("?resume={}", connected["session_id"].as_str().unwrap());
    let (mut other, _) = served.connect(&resume).await;
    other.send(message).await;
    assert_eq!(other.until("done").await.last().unwrap()["content"], "paid");
    assert_eq!(served.model.requests.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn contract_9_a_message_that_is_sent_again_while_the_first_waits_gets_its_answer() {
    let gate = Arc::new(Notify::new());
    let served = Served::new(vec![
        vec![Say::Wait(gate.clone()), text("one")],
        vec![text("two")],
    ])
    .await;
    let (mut first, connected) = served.connect("").await;
    first.say("one").await;
    let asked = async {
        while served.model.requests.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.unwrap();
    let resume = format!("?resume={}", connected["session_id"].as_str().unwrap());
    let again = json!({"type": "message", "content": "two", "client_key": "k2"});
    let (mut second, _) = served.connect(&resume).await;
    second.send(again.clone()).await;
    // It waits: a frame behind it is answered.
    second.send(json!({"type": "dance"})).await;
    second.until("error").await;
    drop(second);
    // The client lost its connection and sends again. Until the first turn ends nothing can be said.
    let (mut third, _) = served.connect(&resume).await;
    third.send(again).await;
    third.send(json!({"type": "dance"})).await;
    let error = third.until("error").await.pop().unwrap();
    assert!(
        error["error"]["message"]
            .as_str()
            .unwrap()
            .contains("cannot be read"),
        "the repeated message is no error: {error}"
    );
    gate.notify_one();
    let mut answers = third.until("done").await;
    answers.extend(third.until("done").await);
    let answers: Vec<&Value> = answers
        .iter()
        .filter(|frame| frame["type"] == "done")
        .map(|frame| &frame["content"])
        .collect();
    assert_eq!(answers, [&json!("one"), &json!("two")]);
    // Nothing follows: the frame behind it is answered next.
    third.send(json!({"type": "dance"})).await;
    let next = third.next().await;
    assert_eq!(next["error"]["code"], "INVALID_MESSAGE", "{next}");
    assert_eq!(
        served.model.requests.lock().unwrap().len(),
        2,
        "the model was asked once for each"
    );
}
