//! Tools that the connected client runs (C.10).

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::*;
use crate::event::Event;
use crate::tool::Runs;
use crate::{ClientReply, IncomingMessage, SessionHandle, Ticket};

fn world() -> World {
    let runs = Runs::AtClient {
        consent_message: Some("May I see where you are?".to_owned()),
        categories: Some(vec!["location".to_owned()]),
    };
    World::new(
        vec![
            vec![Say::Call("c1", "locate", json!({"precision": 1}))],
            vec![Say::Text("Here.")],
        ],
        vec![(
            "locate",
            ScriptedTool {
                runs,
                ..tool(Does::Hangs)
            },
        )],
        json!({}),
    )
}

fn incoming() -> IncomingMessage {
    IncomingMessage {
        client_tools: true,
        ..message("where am I?")
    }
}

/// Sends a message and waits until the client is asked.
async fn asked(
    session: &SessionHandle,
) -> (
    Ticket,
    impl futures::Stream<Item = Result<Arc<Event>, crate::SubscriptionError>> + use<>,
    Event,
) {
    let mut events = Box::pin(session.subscribe(None));
    let ticket = session.send(incoming()).unwrap();
    loop {
        let event = futures::StreamExt::next(&mut events).await.unwrap().unwrap();
        if event.kind == "client_tool.requested" {
            return (ticket, events, Arc::unwrap_or_clone(event));
        }
    }
}

fn result(seen: &[Event]) -> (&Value, &Value) {
    let data = find(seen, "tool.finished");
    (&data["is_error"], &data["content"])
}

#[tokio::test(start_paused = true)]
async fn om_432_and_om_433_the_client_is_asked_acknowledges_and_answers() {
    let world = world();
    let session = world.engine().await.open_session(None).await.unwrap();
    let _client = session.attach_client();
    let (ticket, events, request) = asked(&session).await;
    assert_eq!(
        request.data,
        json!({
            "call_id": "c1", "tool": "locate", "arguments": {"precision": 1},
            "consent_message": "May I see where you are?", "categories": ["location"]
        })
    );
    assert!(session.client_reply("c1", ClientReply::Acknowledged));
    tokio::time::advance(std::time::Duration::from_secs(30)).await;
    assert!(session.client_reply(
        "c1",
        ClientReply::Finished {
            result: Ok(json!({"city": "Ulm"}))
        }
    ));
    let seen = until_end(events, &ticket).await;
    assert_eq!(result(&seen), (&json!(false), &json!("{\"city\":\"Ulm\"}")));
    assert_eq!(world.tools.count("locate"), 0, "never run here");
    assert!(
        !session.client_reply("c1", ClientReply::Acknowledged),
        "the call is over"
    );
}

#[tokio::test(start_paused = true)]
async fn om_434_a_client_must_acknowledge_within_five_seconds_and_answer_within_sixty() {
    for (acknowledges, seconds, text) in [
        (false, 5, "did not acknowledge the call within 5 s"),
        (true, 60, "did not answer within 60 s"),
    ] {
        let world = world();
        let session = world.engine().await.open_session(None).await.unwrap();
        let _client = session.attach_client();
        let (ticket, events, _) = asked(&session).await;
        let begun = tokio::time::Instant::now();
        if acknowledges {
            assert!(session.client_reply("c1", ClientReply::Acknowledged));
        }
        let seen = until_end(events, &ticket).await;
        assert_eq!(begun.elapsed().as_secs(), seconds);
        let (is_error, content) = result(&seen);
        assert!(
            is_error == &json!(true) && content.as_str().unwrap().contains(text),
            "{content}"
        );
        assert_eq!(seen.last().unwrap().kind, "turn.done");
    }
}

#[tokio::test(start_paused = true)]
async fn om_434_a_rejection_and_an_error_are_error_results_with_their_reason() {
    for reply in [
        ClientReply::Rejected {
            reason: "the user said no".to_owned(),
        },
        ClientReply::Finished {
            result: Err("the user said no".to_owned()),
        },
    ] {
        let world = world();
        let session = world.engine().await.open_session(None).await.unwrap();
        let _client = session.attach_client();
        let (ticket, events, _) = asked(&session).await;
        assert!(session.client_reply("c1", reply));
        let seen = until_end(events, &ticket).await;
        let (is_error, content) = result(&seen);
        assert!(
            is_error == &json!(true) && content.as_str().unwrap().contains("the user said no"),
            "{content}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn om_435_without_a_client_that_can_run_it_the_call_is_an_error_result() {
    for (attached, capable) in [(false, true), (true, false)] {
        let world = world();
        let session = world.engine().await.open_session(None).await.unwrap();
        let _client = attached.then(|| session.attach_client());
        let seen = converse(
            &session,
            IncomingMessage {
                client_tools: capable,
                ..message("hi")
            },
        )
        .await;
        assert!(!kinds(&seen).contains(&"client_tool.requested"));
        assert_eq!(
            result(&seen),
            (
                &json!(true),
                &json!("no client that can run this tool is connected")
            )
        );
    }
}

#[tokio::test(start_paused = true)]
async fn om_493_client_tools_are_subject_to_the_policy() {
    let runs = Runs::AtClient {
        consent_message: None,
        categories: None,
    };
    let denied = ScriptedTool {
        runs,
        denied: Some("No locating"),
        ..tool(Does::Hangs)
    };
    let world = World::new(
        vec![vec![Say::Call("c1", "locate", json!({}))], vec![Say::Text("ok")]],
        vec![("locate", denied)],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let _client = session.attach_client();
    let seen = converse(&session, incoming()).await;
    assert!(!kinds(&seen).contains(&"client_tool.requested"));
    assert_eq!(find(&seen, "tool.finished")["outcome"], "denied");
}
