//! What a turn offers to the model and what becomes of the calls it asks for (C.1, C.2, section 7.5).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mainstay_llm::ToolChoice;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::support::*;

#[tokio::test(start_paused = true)]
async fn v_77_and_om_358_the_model_is_offered_only_what_the_pack_lists() {
    let tools = || {
        ["a", "b", "catalog_get"]
            .into_iter()
            .map(|name| (name, tool(Does::Answers("x"))))
            .collect::<Vec<_>>()
    };
    let offered = |world: &World| -> Vec<String> {
        world
            .model
            .request(0)
            .tools
            .iter()
            .map(|tool| tool.name.clone())
            .collect()
    };
    let world = World::new(vec![vec![Say::Text("ok")]], tools(), json!({"tools": ["a"]}));
    run(&world, "hi").await;
    assert_eq!(offered(&world), ["a"]);

    let blocking = json!({"tools": ["catalog_*", "b", "a"], "tool_policy": {"blocklist": ["b"]}});
    let world = World::new(vec![vec![Say::Text("ok")]], tools(), blocking);
    run(&world, "hi").await;
    assert_eq!(
        offered(&world),
        ["a", "catalog_get"],
        "sorted, prefix matched, blocked removed (OM-361)"
    );

    let mut world = World::new(vec![vec![Say::Text("ok")]], tools(), json!({"tools": ["a"]}));
    world.options.surface_unlisted_tools = true;
    run(&world, "hi").await;
    assert_eq!(offered(&world), ["a", "b", "catalog_get"]);
}

#[tokio::test(start_paused = true)]
async fn om_359_description_and_schema_come_from_the_pack_where_it_defines_the_tool() {
    let mut world = World::new(
        vec![vec![Say::Text("ok")]],
        vec![("a", tool(Does::Echoes)), ("b", tool(Does::Echoes))],
        json!({}),
    );
    let mut document = pack_json(json!({}));
    let schema = json!({"type": "object", "properties": {"id": {"type": "string"}}});
    document["tools"] = json!({"a": {"name": "a", "description": "From the pack", "parameters": schema}});
    world.options.pack = Arc::new(crate::FixedPack(document.to_string().into_bytes()));
    run(&world, "hi").await;
    let tools = world.model.request(0).tools;
    assert_eq!(
        (tools[0].description.as_str(), &tools[0].parameters),
        ("From the pack", &schema)
    );
    assert_eq!(tools[1].description, "The tool b");
}

#[tokio::test(start_paused = true)]
async fn om_366_a_tool_call_is_decided_stored_as_an_intent_run_and_given_back() {
    let world = World::new(
        vec![
            vec![
                Say::Text("Let me look. "),
                Say::Call("c1", "get_order", json!({"id": 1017})),
            ],
            vec![Say::Text("It is on its way.")],
        ],
        vec![(
            "get_order",
            ScriptedTool {
                repeat_safe: true,
                ..tool(Does::Answers("{\"state\":\"shipped\"}"))
            },
        )],
        json!({}),
    );
    let seen = run(&world, "Where is order 1017?").await;
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.delta",
            "model.done",
            "policy.decided",
            "tool.started",
            "tool.finished",
            "model.started",
            "model.delta",
            "model.done",
            "message",
            "turn.done"
        ]
    );
    let intent = find(&seen, "tool.started");
    assert_eq!(
        intent,
        &json!({"call_id": "c1", "tool": "get_order", "handler": "get_order-handler", "arguments": {"id": 1017}, "repeat_safe": true})
    );
    let decided = find(&seen, "policy.decided");
    assert_eq!(decided["injected_headers"], json!(["X-Key"]), "OM-494");
    assert!(!decided.to_string().contains("header-value"), "{decided}");
    let finished = find(&seen, "tool.finished");
    assert_eq!(
        (
            &finished["outcome"],
            &finished["attempts"],
            &finished["duration_ms"]
        ),
        (&json!("succeeded"), &json!(1), &json!(0)),
        "OM-590"
    );
    assert_eq!(find(&seen, "turn.done")["rounds"], 1);
    assert_eq!(find(&seen, "turn.done")["tool_calls"], 1);
    assert_eq!(
        results(&world, 1),
        [("{\"state\":\"shipped\"}".to_owned(), false)]
    );
    let assistant = &world.model.request(1).messages[1];
    assert_eq!(
        (assistant.content.as_str(), assistant.tool_calls[0].name.as_str()),
        ("Let me look. ", "get_order")
    );
}

#[tokio::test(start_paused = true)]
async fn om_490_a_denied_call_reaches_no_backend_and_the_turn_goes_on() {
    let denied = ScriptedTool {
        denied: Some("Orders are never deleted"),
        ..tool(Does::Hangs)
    };
    let world = World::new(
        vec![
            vec![Say::Call("c1", "delete_order", json!({"id": 1}))],
            vec![Say::Text("I may not.")],
        ],
        vec![("delete_order", denied)],
        json!({}),
    );
    let seen = run(&world, "Delete it").await;
    assert_eq!(world.tools.count("delete_order"), 0);
    let decided = find(&seen, "policy.decided");
    assert_eq!(
        (&decided["allow"], &decided["denied_by"]),
        (&json!(false), &json!("no-deletes"))
    );
    // OM-494: which policy and rule, and the values it saw.
    assert_eq!(decided["policy"], "orders");
    assert_eq!(decided["trace"][0]["values"]["body.id"], 1);
    assert!(
        !kinds(&seen).contains(&"tool.started"),
        "there was no side effect to intend"
    );
    assert_eq!(find(&seen, "tool.finished")["outcome"], "denied");
    let expected = "tool call denied by policy: Orders are never deleted (rule: no-deletes)";
    assert_eq!(results(&world, 1), [(expected.to_owned(), true)]);
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_363_and_om_364_calls_that_cannot_be_made_are_error_results_and_the_turn_goes_on() {
    let world = World::new(
        vec![
            vec![
                Say::Call("c1", "unlisted", json!({})),
                Say::Call("c2", "blocked", json!({})),
                Say::RawCall("c3", "echo", "[1]"),
                Say::RawCall("c4", "echo", "{\"a\":"),
                Say::RawCall("c5", "echo", ""),
            ],
            vec![Say::Text("Well.")],
        ],
        vec![
            ("echo", tool(Does::Echoes)),
            ("unlisted", tool(Does::Hangs)),
            ("blocked", tool(Does::Hangs)),
        ],
        json!({"tools": ["echo", "blocked"], "tool_policy": {"blocklist": ["blocked"]}}),
    );
    let seen = run(&world, "hi").await;
    let results = results(&world, 1);
    assert_eq!(
        results[0],
        (
            "there is no tool `unlisted`; available tools: echo".to_owned(),
            true
        )
    );
    assert_eq!(
        results[1],
        ("tool `blocked` is blocked by policy".to_owned(), true)
    );
    assert_eq!(
        results[2],
        ("the arguments must be a JSON object".to_owned(), true)
    );
    assert!(
        results[3].0.starts_with("the arguments are not valid JSON") && results[3].1,
        "{results:?}"
    );
    assert_eq!(
        results[4],
        ("{}".to_owned(), false),
        "D11: no text is an empty object"
    );
    assert_eq!(world.tools.calls.lock().unwrap().len(), 1);
    assert_eq!(all(&seen, "tool.finished").len(), 5);
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_372_a_failed_tool_is_a_result_and_no_failure_of_the_turn() {
    let world = World::new(
        vec![
            vec![Say::Call("c1", "flaky", json!({}))],
            vec![Say::Text("Sorry.")],
        ],
        vec![("flaky", tool(Does::Fails("HTTP 500: boom")))],
        json!({}),
    );
    let seen = run(&world, "hi").await;
    assert_eq!(results(&world, 1), [("HTTP 500: boom".to_owned(), true)]);
    assert_eq!(find(&seen, "tool.finished")["outcome"], "failed");
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_367_calls_of_one_message_run_together_and_their_results_keep_the_order() {
    let (slow, quick) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let world = World::new(
        vec![
            vec![
                Say::Call("c1", "slow", json!({})),
                Say::Call("c2", "quick", json!({})),
            ],
            vec![Say::Text("Both.")],
        ],
        vec![
            ("slow", tool(Does::Waits(slow.clone(), "S"))),
            ("quick", tool(Does::Waits(quick.clone(), "Q"))),
        ],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let ticket = session.send(message("go")).unwrap();
    while world.tools.running.load(Ordering::SeqCst) < 2 {
        world.tools.called.notified().await;
    }
    quick.add_permits(1);
    while world.tools.running.load(Ordering::SeqCst) > 1 {
        tokio::task::yield_now().await;
    }
    slow.add_permits(1);
    let seen = until_end(events, &ticket).await;
    let finished: Vec<&Value> = all(&seen, "tool.finished")
        .iter()
        .map(|data| &data["call_id"])
        .collect();
    assert_eq!(finished, ["c2", "c1"], "shown as they come");
    assert_eq!(
        results(&world, 1),
        [("S".to_owned(), false), ("Q".to_owned(), false)]
    );
}

#[tokio::test(start_paused = true)]
async fn om_367_no_more_calls_run_together_than_allowed_and_none_is_intended_early() {
    let gate = Arc::new(Semaphore::new(0));
    let calls = ["c1", "c2", "c3", "c4", "c5"]
        .into_iter()
        .map(|id| Say::Call(id, "t", json!({})))
        .collect();
    let mut world = World::new(
        vec![calls, vec![Say::Text("Done.")]],
        vec![("t", tool(Does::Waits(gate.clone(), "ok")))],
        json!({}),
    );
    world.options.limits.parallel_tool_calls = 2;
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let ticket = session.send(message("go")).unwrap();
    while world.tools.running.load(Ordering::SeqCst) < 2 {
        world.tools.called.notified().await;
    }
    assert_eq!(all(&stored(&world, &session).await, "tool.started").len(), 2);
    gate.add_permits(5);
    until_end(events, &ticket).await;
    assert_eq!(world.tools.most_running.load(Ordering::SeqCst), 2);
    assert_eq!(world.tools.count("t"), 5);
}

#[tokio::test(start_paused = true)]
async fn om_370_too_many_rounds_end_the_turn_with_the_limit_in_the_message() {
    let ask = || vec![Say::Call("c", "t", json!({}))];
    let world = World::new(
        vec![ask(), ask(), ask()],
        vec![("t", tool(Does::Echoes))],
        json!({"tool_policy": {"max_rounds": 2}}),
    );
    let seen = run(&world, "loop").await;
    let failed = find(&seen, "turn.failed");
    assert_eq!(failed["reason"], "ToolRoundsExceeded");
    assert!(
        failed["message"].as_str().unwrap().contains("2 rounds"),
        "{failed}"
    );
    assert_eq!(world.tools.count("t"), 2);
}

#[tokio::test(start_paused = true)]
async fn om_370_calls_beyond_max_tool_calls_per_turn_are_error_results() {
    let world = World::new(
        vec![
            vec![Say::Call("a", "t", json!({})), Say::Call("b", "t", json!({}))],
            vec![Say::Text("One was enough.")],
        ],
        vec![("t", tool(Does::Echoes))],
        json!({"tool_policy": {"max_tool_calls_per_turn": 1}}),
    );
    let seen = run(&world, "hi").await;
    assert_eq!(world.tools.count("t"), 1);
    assert!(results(&world, 1)[1].0.contains("limit of 1 tool calls"));
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_564_required_forces_a_tool_in_the_first_round_only_and_none_offers_none() {
    let world = World::new(
        vec![vec![Say::Call("c", "t", json!({}))], vec![Say::Text("ok")]],
        vec![("t", tool(Does::Echoes))],
        json!({"tool_policy": {"tool_choice": "required"}}),
    );
    run(&world, "hi").await;
    assert_eq!(world.model.request(0).tool_choice, ToolChoice::Required);
    assert_eq!(world.model.request(1).tool_choice, ToolChoice::Auto);

    let none = json!({"tool_policy": {"tool_choice": "none"}});
    let world = World::new(vec![vec![Say::Text("ok")]], vec![("t", tool(Does::Echoes))], none);
    run(&world, "hi").await;
    assert!(world.model.request(0).tools.is_empty());

    let mut world = World::new(
        vec![vec![Say::Text("ok")]],
        vec![("t", tool(Does::Echoes))],
        json!({}),
    );
    world.options.models[0].offers_tools = false;
    run(&world, "hi").await;
    assert!(world.model.request(0).tools.is_empty(), "OM-495");
}

#[tokio::test(start_paused = true)]
async fn calls_without_an_id_or_with_a_used_one_get_their_own() {
    let world = World::new(
        vec![
            vec![
                Say::Call("", "t", json!({"n": 1})),
                Say::Call("x", "t", json!({"n": 2})),
            ],
            vec![Say::Call("x", "t", json!({"n": 3}))],
            vec![Say::Text("ok")],
        ],
        vec![("t", tool(Does::Echoes))],
        json!({}),
    );
    let seen = run(&world, "hi").await;
    let ids: std::collections::BTreeSet<&str> = all(&seen, "tool.started")
        .iter()
        .map(|data| data["call_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(!ids.contains(""));
    assert_eq!(results(&world, 2).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_tool_result_that_is_too_long_is_cut_visibly() {
    static LONG: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let long = LONG.get_or_init(|| "ä".repeat(1_000));
    let mut world = World::new(
        vec![vec![Say::Call("c", "t", json!({}))], vec![Say::Text("ok")]],
        vec![("t", tool(Does::Answers(long)))],
        json!({}),
    );
    world.options.limits.tool_result_bytes = 101;
    run(&world, "hi").await;
    let (content, _) = &results(&world, 1)[0];
    assert!(
        content.starts_with("ää") && content.ends_with("[cut: 100 of 2000 bytes]"),
        "{content}"
    );
}

/// The real tool layer behind the turn: a POST tool of a registry that a policy permits, over the connector.
#[tokio::test]
async fn a_registry_without_a_policy_refuses_every_call_v_70() {
    use mainstay_tools::config::{HandlerConfig, HandlerType, HttpConfig, ToolDefinition, ToolsConfig};
    use mainstay_tools::policy::{PolicyEngine, PolicySet};
    use mainstay_tools::{Toolset, ToolsetOptions};

    let http: HttpConfig =
        serde_json::from_value(json!({"endpoint": "http://127.0.0.1:9/orders", "method": "POST"})).unwrap();
    let mut handler = HandlerConfig::new("orders", HandlerType::Http);
    handler.http = Some(http);
    handler.tool = Some(ToolDefinition {
        name: "create".to_owned(),
        ..ToolDefinition::default()
    });
    let config = ToolsConfig {
        registry: "tools".to_owned(),
        namespace: "default".to_owned(),
        handlers: vec![handler],
    };
    let mut world = World::new(
        vec![vec![Say::Call("c", "create", json!({}))], vec![Say::Text("no")]],
        vec![],
        json!({}),
    );
    let toolset = Toolset::load(
        &config,
        ToolsetOptions {
            connector: mainstay_workload::Connector::direct().unwrap(),
            files: mainstay_workload::FileRoot::at("/nonexistent"),
            environment: std::collections::BTreeMap::new(),
            delegation: None,
            clock: world.clock.clone(),
            random: world.random.clone(),
            policy: PolicyEngine::new(PolicySet::compile(Vec::new())),
            agent: mainstay_tools::AgentIdentity::default(),
        },
    );
    world.options.tools = Arc::new(toolset);
    let seen = run(&world, "hi").await;
    assert_eq!(find(&seen, "policy.decided")["denied_by"], "no-matching-permit");
    assert!(results(&world, 1)[0].0.starts_with("tool call denied by policy"));
    assert!(!kinds(&seen).contains(&"tool.started"));
}

#[tokio::test(start_paused = true)]
async fn contract_7_calls_of_a_cancelled_turn_are_reported_in_the_order_of_the_calls() {
    let names = ["c1", "c2", "c3", "c4", "c5", "c6"];
    let calls = names.map(|id| Say::Call(id, "t", json!({})));
    let world = World::new(vec![calls.into()], vec![("t", tool(Does::Hangs))], json!({}));
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let ticket = session.send(message("go")).unwrap();
    while world.tools.running.load(Ordering::SeqCst) < names.len() {
        world.tools.called.notified().await;
    }
    assert!(session.cancel());
    let seen = until_end(events, &ticket).await;
    let reported: Vec<&str> = all(&seen, "tool.finished")
        .iter()
        .map(|finished| finished["call_id"].as_str().unwrap())
        .collect();
    assert_eq!(reported, names);
}
