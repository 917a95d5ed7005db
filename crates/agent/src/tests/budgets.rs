//! Budgets as a turn meets them (OM-204, contract 8).

use std::sync::Arc;

use mainstay_llm::{ModelError, ModelErrorKind, SignedThought};
use mainstay_store::payload::{PayloadOptions, PayloadStore};
use serde_json::json;

use super::support::*;
use crate::budget::{Amount, BudgetLimits, BudgetMetrics, Refused, WhenExceeded};
use crate::{Budget, Budgets, Prices, StoredBudgets};

/// A world whose model costs a cent for each token of an answer, with a limit in dollars a day.
fn world(scripts: Vec<Vec<Say>>, daily: f64, when_exceeded: WhenExceeded) -> (World, Budgets) {
    let mut world = World::new(scripts, vec![], json!({"parameters": {"max_tokens": 100}}));
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    let budgets = Budgets::new(
        world.clock.clone(),
        Arc::new(StoredBudgets::new(store)),
        BudgetMetrics::default(),
    );
    let entry = &mut world.options.models[0];
    entry.prices = Prices {
        input: None,
        output: Some(10.0),
        cached: None,
    };
    entry.budget = Some(Budget {
        ledger: budgets.ledger("default/main"),
        limits: BudgetLimits {
            daily: Some(Amount::from_dollars(daily)),
            when_exceeded,
            alert_at: vec![50],
            ..BudgetLimits::default()
        },
    });
    (world, budgets)
}

#[tokio::test]
async fn om_204_a_call_that_may_go_beyond_the_budget_is_refused_and_nothing_is_sent() {
    let answer = || vec![Say::Text("hi"), Say::Usage(5, 30)];
    let (world, _budgets) = world(vec![answer(), answer()], 1.5, WhenExceeded::Block);
    let session = world.engine().await.open_session(None).await.unwrap();
    // A dollar is put aside for a hundred tokens; thirty cents are spent.
    let first = converse(&session, message("one")).await;
    assert_eq!(first.last().unwrap().kind, "turn.done");
    let second = converse(&session, message("two")).await;
    assert_eq!(second.last().unwrap().kind, "turn.done");
    let third = converse(&session, message("three")).await;
    assert_eq!(
        kinds(&third),
        ["turn.started", "message", "budget.exceeded", "turn.failed"]
    );
    assert_eq!(world.model.count(), 2);
    assert_eq!(
        *find(&third, "budget.exceeded"),
        json!({
            "provider": "default/main", "period": "daily", "limit_usd": 1.5, "spent_usd": 0.6, "needed_usd": 1.0,
            "action": "block"
        })
    );
    let failed = find(&third, "turn.failed");
    assert_eq!(failed["reason"], "BudgetExceeded");
    let text = failed["message"].as_str().unwrap();
    assert!(
        text.contains("$1.00") && text.contains("$0.60") && text.contains("$1.50"),
        "{text}"
    );
}

#[tokio::test]
async fn om_204_with_warn_the_call_is_made_and_the_session_is_told_once_a_turn() {
    let scripts = vec![
        vec![Say::Call("c", "t", json!({})), Say::Usage(1, 60)],
        vec![Say::Text("done"), Say::Usage(1, 10)],
    ];
    let (mut world, _budgets) = world(scripts, 0.5, WhenExceeded::Warn);
    world.options.tools = ScriptedTools::new(vec![("t", tool(Does::Answers("ok")))]);
    let seen = run(&world, "go").await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    assert_eq!(all(&seen, "budget.exceeded").len(), 1);
    assert_eq!(all(&seen, "budget.alerted").len(), 1, "told once a day");
    assert_eq!(find(&seen, "budget.alerted")["percent"], 50);
}

#[tokio::test]
async fn contract_8_what_was_put_aside_is_replaced_by_what_the_stream_says_or_what_came_of_it() {
    let broken = || ModelError::new("main", ModelErrorKind::Network, "cut");
    // Sixteen bytes are four tokens; the other two calls were answered nothing.
    let scripts = vec![
        vec![Say::Text("sixteen letters!"), Say::Fail(broken())],
        vec![Say::Fail(broken())],
        vec![Say::Text("ok"), Say::Usage(0, 96)],
        vec![Say::Text("one"), Say::Usage(0, 1)],
    ];
    let (world, budgets) = world(scripts, 2.0, WhenExceeded::Block);
    let session = world.engine().await.open_session(None).await.unwrap();
    for text in ["cut", "down", "whole"] {
        converse(&session, message(text)).await;
    }
    // 0.04 + 0 + 0.96 are spent; a dollar more is just what is left.
    let seen = converse(&session, message("last")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    let refused = converse(&session, message("too much")).await;
    assert_eq!(find(&refused, "budget.exceeded")["spent_usd"], 1.01);
    budgets.close().await;
}

/// What the world's budget counts as spent.
async fn spent(world: &World) -> f64 {
    let budget = world.options.models[0].budget.clone().unwrap();
    match budget.reserve(Amount::from_dollars(1e6)).await {
        Err(Refused::Exceeded(exceeded)) => exceeded.spent.dollars(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn contract_8_an_answer_that_breaks_off_without_text_costs_what_came_of_it() {
    let broken = || Say::Fail(ModelError::new("main", ModelErrorKind::Network, "cut"));
    let redacted = || {
        Say::Thought(SignedThought::Redacted {
            data: "12345678".to_owned(),
        })
    };
    // Sixteen bytes of a call are four tokens, eight of reasoning two.
    for (script, expected) in [
        (vec![Say::RawCall("call", "tool", "{\"a\":12}"), broken()], 0.04),
        (vec![redacted(), broken()], 0.02),
    ] {
        let (world, _budgets) = world(vec![script], 2.0, WhenExceeded::Block);
        run(&world, "hi").await;
        assert_eq!(spent(&world).await, expected);
    }
    // Nothing came of it, but the request had been taken; and one that was not.
    let empty = SignedThought::Redacted { data: String::new() };
    for (script, taken) in [
        (vec![Say::Thought(empty), broken()], true),
        (vec![broken()], false),
    ] {
        let (mut world, _budgets) = world(vec![script], 2.0, WhenExceeded::Block);
        world.options.models[0].prices.input = Some(1.0);
        run(&world, "hi").await;
        assert_eq!(spent(&world).await > 0.0, taken);
    }
}

#[tokio::test(start_paused = true)]
async fn contract_8_an_answer_that_is_cancelled_before_its_text_is_not_free() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let call = Say::RawCall("call", "tool", "{\"a\":12}");
    let (world, _budgets) = world(
        vec![vec![call, Say::Wait(gate), Say::Hang]],
        2.0,
        WhenExceeded::Block,
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let ticket = session.send(message("hi")).unwrap();
    world.model.asked.notified().await;
    // Time stands still until everything waits: the call has been read then.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(session.cancel());
    until_end(events, &ticket).await;
    assert_eq!(spent(&world).await, 0.04);
}
