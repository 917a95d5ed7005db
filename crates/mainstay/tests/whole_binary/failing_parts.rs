//! Tools, models and clients that fail: the turn ends with a word about it, and the conversation goes on.

use futures::{SinkExt, StreamExt};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::support::{
    DEADLINE,
    backend::Backend,
    conversation::{Conversation, connect, events},
    desk,
    objects::{create, objects, omnia, reaches},
    server::Running,
    world::World,
};

fn running_on(backend: &Backend) -> Running {
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    Running {
        server: world.up(&["desk"]),
        world,
    }
}

#[tokio::test]
async fn a_tool_that_times_out_is_an_error_result_and_the_turn_goes_on() {
    let backend = Backend::start(200);
    let running = running_on(&backend);
    let mut conversation = Conversation::open(&running.server, "desk").await;
    let frames = conversation.turn("wait for 3").await;
    let last = frames.last().unwrap();
    assert_eq!(last["content"], "Order 3: no answer within 300ms");
    let events = events(&frames);
    let finished = events
        .iter()
        .find(|event| event["type"] == "tool.finished")
        .unwrap();
    assert_eq!(finished["data"]["outcome"], "failed");
    assert_eq!(finished["data"]["is_error"], true);

    // A tool whose service is not there at all.
    drop(backend);
    let answer = conversation.answer("ship 4").await;
    assert!(
        answer.contains("[no tool.get_order.status]") || answer.contains("Order 4"),
        "{answer}"
    );
    assert_eq!(conversation.answer("hello").await, "Hello.");
}

#[tokio::test]
async fn a_model_that_answers_500_ends_the_turn_with_an_error_and_not_the_conversation() {
    let backend = Backend::start(200);
    let running = running_on(&backend);
    let mut conversation = Conversation::open(&running.server, "desk").await;
    let frames = conversation.turn("overload").await;
    let error = &frames.last().unwrap()["error"];
    assert_eq!(error["code"], "INTERNAL_ERROR", "OM-525: {error}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("the engine is on fire"),
        "{error}"
    );
    let failed = *events(&frames).last().unwrap();
    assert_eq!(failed["type"], "turn.failed");
    assert_eq!(failed["data"]["reason"], "ModelServerError");
    assert_eq!(conversation.answer("hello").await, "Hello.");

    // The same over HTTP, from an endpoint that is out of order.
    let broken = Backend::start(500);
    let client = running.server.client().await;
    let (group, base) = (
        "omnia.altairalabs.ai/v1alpha1",
        format!("http://{}/v1", broken.address),
    );
    create(
        &objects(&client, "", "v1", "Secret"),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" }, "stringData": { "api-key": "k-1234567" } }),
    )
    .await;
    create(
        &omnia(&client, "Provider"),
        json!({ "apiVersion": group, "kind": "Provider", "metadata": { "name": "broken" }, "spec": {
            "type": "openai", "model": "m", "baseURL": base,
            "credential": { "secretRef": { "name": "key", "key": "api-key" } } } }),
    )
    .await;
    create(
        &omnia(&client, "AgentRuntime"),
        json!({ "apiVersion": group, "kind": "AgentRuntime", "metadata": { "name": "broken" }, "spec": {
            "promptPackRef": { "name": "desk" }, "facades": [{ "type": "websocket" }],
            "providers": [{ "name": "default", "providerRef": { "name": "broken" } }] } }),
    )
    .await;
    reaches(&omnia(&client, "AgentRuntime"), "broken", "Running").await;
    let ran = running.chat(&["broken", "-m", "hello"]).await.failed();
    assert!(ran.stderr.contains("HTTP 500"), "{ran}");
    assert!(!ran.stderr.contains("k-1234567"), "{ran}");
    assert_eq!(
        running.chat(&["desk", "-m", "hello"]).await.succeeded().stdout,
        "Hello.\n",
        "the others go on"
    );
}

#[tokio::test]
async fn a_broken_frame_is_answered_and_the_conversation_goes_on() {
    let running = Running::shared();
    let mut conversation = Conversation::with(&running.server, "helpdesk", "").await;
    for broken in [
        "{",
        "[]",
        "{\"type\":\"dance\"}",
        "{\"content\":\"no type\"}",
        "{\"type\":\"message\"}",
    ] {
        conversation.send(broken.to_owned()).await;
        let frame = conversation.frame().await;
        assert_eq!(frame["type"], "error", "{broken}: {frame}");
        assert_eq!(frame["error"]["code"], "INVALID_MESSAGE", "{broken}: {frame}");
    }
    assert!(conversation.answer("hello").await.starts_with("Hello!"));
}

#[tokio::test]
async fn a_connection_that_breaks_the_protocol_ends_alone() {
    let running = Running::shared();
    let mut other = Conversation::with(&running.server, "helpdesk", "").await;
    let mut socket = connect(&running.server, "helpdesk", "", &[]).await.unwrap();
    // A frame with reserved bits, without a mask: nothing that a WebSocket client may send.
    let tokio_tungstenite::MaybeTlsStream::Plain(stream) = socket.get_mut() else {
        panic!("plain")
    };
    tokio::io::AsyncWriteExt::write_all(stream, &[0xff, 0x05, 1, 2, 3, 4, 5])
        .await
        .unwrap();
    let ended = async { while let Some(Ok(_)) = socket.next().await {} };
    tokio::time::timeout(DEADLINE, ended)
        .await
        .expect("the connection ends");

    let mut binary = connect(&running.server, "helpdesk", "", &[]).await.unwrap();
    binary
        .send(Message::binary(vec![0, 159, 146, 150]))
        .await
        .unwrap();
    let answered = async {
        loop {
            if let Message::Text(text) = binary.next().await.unwrap().unwrap()
                && text.contains("\"error\"")
            {
                return text.to_string();
            }
        }
    };
    let answer = tokio::time::timeout(DEADLINE, answered).await.expect("an answer");
    assert!(answer.contains("MEDIA_NOT_ENABLED"), "{answer}");
    assert!(other.answer("hello").await.starts_with("Hello!"));
}
