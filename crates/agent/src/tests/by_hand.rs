//! Calls that a person makes without a model and without a session.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::support::*;
use crate::event::CallOutcome;
use crate::tool::Runs;
use crate::tool::by_hand::{HandCall, NotCallable, Offer};

fn world() -> World {
    let denied = ScriptedTool {
        denied: Some("never by an agent"),
        ..tool(Does::Echoes)
    };
    let client = ScriptedTool {
        runs: Runs::AtClient {
            consent_message: None,
            categories: None,
        },
        ..tool(Does::Hangs)
    };
    let tools = vec![
        ("delete_order", denied),
        ("get_order", tool(Does::Echoes)),
        ("locate", client),
        ("secret_order", tool(Does::Echoes)),
        ("taken_order", tool(Does::Echoes)),
    ];
    let prompt = json!({
        "tools": ["get_order", "delete_order", "locate", "taken_*"],
        "tool_policy": {"blocklist": ["taken_order"]}
    });
    World::new(vec![], tools, prompt)
}

fn call(tool: &str) -> HandCall {
    HandCall {
        tool: tool.to_owned(),
        arguments: json!({"id": 1017}),
        ..HandCall::default()
    }
}

#[tokio::test(start_paused = true)]
async fn om_358_tools_are_listed_with_whether_the_model_is_offered_them() {
    let listed = world().engine().await.list_tools().await;
    let offers: Vec<(&str, Offer)> = listed
        .tools
        .iter()
        .map(|tool| (tool.tool.as_str(), tool.offered))
        .collect();
    assert_eq!(
        offers,
        [
            ("delete_order", Offer::Yes),
            ("get_order", Offer::Yes),
            ("locate", Offer::Yes),
            ("secret_order", Offer::NotListed),
            ("taken_order", Offer::Blocked),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn om_366_a_call_by_hand_is_decided_and_sent_as_in_a_turn() {
    let world = world();
    let engine = world.engine().await;
    let done = engine.call_by_hand(call("get_order"), false).await.unwrap();
    assert_eq!(done.outcome, Some(CallOutcome::Succeeded));
    assert_eq!(done.content.as_deref(), Some("{\"id\":1017}"));
    assert_eq!((done.handler.as_str(), done.attempts), ("get_order-handler", 1));
    assert_eq!(world.tools.count("get_order"), 1);

    // OM-490: what the policy refuses is not sent.
    let refused = engine.call_by_hand(call("delete_order"), false).await.unwrap();
    assert_eq!(refused.outcome, Some(CallOutcome::Denied));
    assert_eq!(
        refused.content.as_deref(),
        Some("tool call denied by policy: never by an agent (rule: no-deletes)")
    );
    assert_eq!(world.tools.count("delete_order"), 0);

    for dry_run in [false, true] {
        let client = engine.call_by_hand(call("locate"), dry_run).await.unwrap();
        assert_eq!(client.outcome, Some(CallOutcome::Refused));
        assert_eq!(client.reason.as_deref(), Some("ClientRequired"));
        assert!(client.content.unwrap().contains("mainstay chat"));
    }

    // No arguments are an empty object, as in a turn.
    let none = || HandCall {
        arguments: Value::Null,
        ..call("get_order")
    };
    let done = engine.call_by_hand(none(), false).await.unwrap();
    assert_eq!(done.content.as_deref(), Some("{}"));
    assert!(engine.explain_call(none()).await.unwrap().decision.allow);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_sends_nothing() {
    let world = world();
    let engine = world.engine().await;
    let dry = engine.call_by_hand(call("get_order"), true).await.unwrap();
    assert!(dry.dry_run && dry.outcome.is_none() && dry.explanation.decision.allow);
    let refused = engine.call_by_hand(call("delete_order"), true).await.unwrap();
    assert_eq!(refused.outcome, Some(CallOutcome::Denied));
    assert_eq!(world.tools.running.load(Ordering::SeqCst), 0);
    assert!(world.tools.calls.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn om_363_what_the_agent_could_not_call_is_not_called_by_hand_either() {
    let world = world();
    let engine = world.engine().await;
    let text = |error: NotCallable| error.to_string();
    assert_eq!(
        text(engine.call_by_hand(call("get_ordr"), false).await.unwrap_err()),
        "there is no tool `get_ordr`; did you mean `get_order`?"
    );
    assert_eq!(
        text(engine.call_by_hand(call("weather"), true).await.unwrap_err()),
        "there is no tool `weather`"
    );
    assert_eq!(
        text(
            engine
                .call_by_hand(call("secret_order"), false)
                .await
                .unwrap_err()
        ),
        "the agent is not offered tool `secret_order`: the prompt's `tools` do not list it"
    );
    assert_eq!(
        text(engine.call_by_hand(call("taken_order"), false).await.unwrap_err()),
        "the agent is not offered tool `taken_order`: the prompt's `tool_policy.blocklist` takes it back"
    );
    let list = HandCall {
        arguments: json!([1]),
        ..call("get_order")
    };
    assert_eq!(
        text(engine.call_by_hand(list.clone(), false).await.unwrap_err()),
        "the arguments must be a JSON object"
    );
    assert!(matches!(
        engine.explain_call(list).await,
        Err(NotCallable::Arguments(_))
    ));
    // A question about a decision is answered for any tool of the registry.
    assert!(
        engine
            .explain_call(call("secret_order"))
            .await
            .unwrap()
            .decision
            .allow
    );
    assert!(world.tools.calls.lock().unwrap().is_empty());
}
