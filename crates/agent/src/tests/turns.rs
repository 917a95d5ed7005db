//! What one turn does (C.1, C.2, E.2, section 7.5).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use mainstay_llm::{FinishReason, ModelError, ModelErrorKind, Role, ToolChoice};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::support::*;
use crate::event::Event;
use crate::{ModelEntry, PackSource, Prices};

async fn run(world: &World, text: &str) -> Vec<Event> {
    let session = world.engine().await.open_session(None).await.unwrap();
    converse(&session, message(text)).await
}

/// The results that the model reads in its request number `index`.
fn results(world: &World, index: usize) -> Vec<(String, bool)> {
    world
        .model
        .request(index)
        .messages
        .into_iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| (message.content, message.is_error))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_plain_turn_is_stored_before_it_is_shown_and_its_deltas_are_not_stored() {
    let world = World::new(
        vec![vec![Say::Text("Hel"), Say::Text("lo"), Say::Usage(3, 2)]],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("hi")).await;
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.delta",
            "model.delta",
            "model.done",
            "usage",
            "message",
            "turn.done"
        ]
    );
    assert_eq!(text_of(&seen), "Hello");
    assert_eq!(seen[4].data, json!({"attempt": 1, "offset": 3, "text": "lo"}));
    assert_eq!(seen[7].data["content"], "Hello");
    let stored = stored(&world, &session).await;
    let numbers: Vec<u64> = stored.iter().map(|event| event.seq.unwrap()).collect();
    assert_eq!(numbers, (1..=7).collect::<Vec<_>>(), "seq rises by one");
    assert!(!kinds(&stored).contains(&"model.delta"));
    let request = world.model.request(0);
    assert_eq!(request.system, "Help.");
    assert_eq!(request.messages.len(), 1);
}

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
            .into_iter()
            .map(|tool| tool.name)
            .collect()
    };
    let world = World::new(vec![vec![]], tools(), json!({"tools": ["a"]}));
    run(&world, "hi").await;
    assert_eq!(offered(&world), ["a"]);

    let blocking = json!({"tools": ["catalog_*", "b", "a"], "tool_policy": {"blocklist": ["b"]}});
    let world = World::new(vec![vec![]], tools(), blocking);
    run(&world, "hi").await;
    assert_eq!(
        offered(&world),
        ["a", "catalog_get"],
        "sorted, prefix matched, blocked removed (OM-361)"
    );

    let mut world = World::new(vec![vec![]], tools(), json!({"tools": ["a"]}));
    world.options.surface_unlisted_tools = true;
    run(&world, "hi").await;
    assert_eq!(offered(&world), ["a", "b", "catalog_get"]);
}

#[tokio::test(start_paused = true)]
async fn om_359_description_and_schema_come_from_the_pack_where_it_defines_the_tool() {
    let mut world = World::new(
        vec![vec![]],
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
    assert_eq!(find(&seen, "tool.finished")["outcome"], "succeeded");
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
async fn om_369_a_turn_ends_at_its_ceiling_and_says_that_the_call_has_no_known_outcome() {
    let world = World::new(
        vec![vec![Say::Call("c1", "slow", json!({}))]],
        vec![("slow", tool(Does::Hangs))],
        json!({}),
    );
    let begun = tokio::time::Instant::now();
    let seen = run(&world, "hi").await;
    assert_eq!(begun.elapsed().as_secs(), 150);
    assert_eq!(find(&seen, "turn.failed")["reason"], "TurnDeadlineExceeded");
    assert_eq!(find(&seen, "tool.finished")["outcome"], "unknown");
}

#[tokio::test(start_paused = true)]
async fn om_371_a_silent_model_stream_is_given_up_with_what_it_had_said() {
    let world = World::new(vec![vec![Say::Text("Well"), Say::Hang]], vec![], json!({}));
    let begun = tokio::time::Instant::now();
    let seen = run(&world, "hi").await;
    assert_eq!(begun.elapsed().as_secs(), 120);
    let failed = find(&seen, "model.failed");
    assert_eq!(
        (&failed["reason"], &failed["text"]),
        (&json!("ModelStreamIdle"), &json!("Well"))
    );
    assert_eq!(find(&seen, "turn.failed")["reason"], "ModelStreamIdle");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_answers_500_fails_the_turn_with_its_reason_and_the_next_turn_works() {
    let error = ModelError::with_status("main", 500, "boom");
    let world = World::new(
        vec![
            vec![Say::Text("I th"), Say::Usage(5, 1), Say::Fail(error)],
            vec![Say::Text("Better.")],
        ],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("one")).await;
    let failed = find(&seen, "turn.failed");
    assert_eq!(failed["reason"], "ModelServerError");
    assert!(
        failed["message"].as_str().unwrap().contains("HTTP 500: boom"),
        "{failed}"
    );
    assert_eq!(find(&seen, "model.failed")["status"], 500);
    assert_eq!(
        find(&seen, "usage")["input_tokens"],
        5,
        "a failed attempt is paid for too"
    );
    let seen = converse(&session, message("two")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_says_nothing_or_breaks_off_is_an_error() {
    for (script, reason) in [
        (vec![Say::Finish(FinishReason::Refused)], "ModelRefused"),
        (vec![Say::Finish(FinishReason::Unknown)], "ModelEmptyAnswer"),
        (
            vec![Say::Text("x"), Say::Finish(FinishReason::Failed)],
            "ModelFailed",
        ),
    ] {
        let world = World::new(vec![script], vec![], json!({}));
        let seen = run(&world, "hi").await;
        assert_eq!(find(&seen, "turn.failed")["reason"], reason);
    }
}

#[tokio::test(start_paused = true)]
async fn om_562_and_d16_a_prompt_that_cannot_be_rendered_reaches_no_model() {
    let prompt = json!({
        "system_template": "You help {{customer}}.",
        "variables": [{"name": "customer", "type": "string", "required": true}]
    });
    let world = World::new(vec![vec![Say::Text("Hi Ada")]], vec![], prompt);
    let session = world.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("hi")).await;
    let failed = find(&seen, "turn.failed");
    assert_eq!(failed["reason"], "PromptVariableMissing");
    assert!(
        failed["message"].as_str().unwrap().contains("`customer`"),
        "{failed}"
    );
    assert_eq!(world.model.count(), 0);
    let mut incoming = message("My name is {{customer}}");
    incoming.metadata = metadata(json!({"customer": "Ada {{x}}"}));
    converse(&session, incoming).await;
    let request = world.model.request(0);
    assert_eq!(request.system, "You help Ada {{x}}.");
    assert_eq!(
        request.messages[1].content, "My name is {{customer}}",
        "OM-563: never a template"
    );
}

#[tokio::test(start_paused = true)]
async fn om_565_text_that_a_guardrail_withholds_is_never_shown_or_stored() {
    let prompt = json!({"validators": [
        {"type": "banned_words", "enabled": true, "message": "I cannot say that.", "params": {"words": ["secret"]}}
    ]});
    let world = World::new(
        vec![vec![Say::Text("The sec"), Say::Text("ret is 42"), Say::Text("")]],
        vec![],
        prompt,
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("tell me")).await;
    assert_eq!(text_of(&seen), "I cannot say that.");
    assert!(!serde_json::to_string(&seen).unwrap().contains("is 42"));
    assert_eq!(
        find(&seen, "model.done")["guardrails"][0]["validator"],
        "banned_words"
    );
}

#[tokio::test(start_paused = true)]
async fn om_565_a_violation_that_stops_the_round_drops_its_tool_calls() {
    let prompt = json!({"validators": [
        {"type": "content_excludes", "enabled": true, "fail_on_violation": true, "params": {"patterns": ["bad"]}}
    ]});
    let world = World::new(
        vec![vec![Say::Text("bad"), Say::Call("c1", "t", json!({}))]],
        vec![("t", tool(Does::Hangs))],
        prompt,
    );
    let seen = run(&world, "hi").await;
    assert_eq!(world.tools.count("t"), 0);
    assert_eq!(seen.last().unwrap().kind, "turn.done");
}

#[tokio::test(start_paused = true)]
async fn om_565_an_input_that_is_not_accepted_reaches_no_model() {
    let prompt = json!({"validators": [
        {"type": "banned_words", "enabled": true, "message": "Not here.", "params": {"words": ["bomb"], "direction": "input"}}
    ]});
    let world = World::new(vec![], vec![], prompt);
    let seen = run(&world, "a bomb").await;
    assert_eq!(world.model.count(), 0);
    assert_eq!(all(&seen, "message")[1]["content"], "Not here.");
    assert!(!serde_json::to_string(&seen).unwrap().contains("bomb"));
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
async fn om_496_and_om_559_parameters_come_from_the_prompt_and_its_override_for_the_model() {
    let prompt = json!({
        "parameters": {"temperature": 0.1, "max_tokens": 7},
        "model_overrides": {"small": {"parameters": {"temperature": 0.9}, "system_template": "Short."}}
    });
    let mut world = World::new(vec![vec![]], vec![], prompt);
    world.options.models[0].model_name = "small".to_owned();
    run(&world, "hi").await;
    let request = world.model.request(0);
    assert_eq!(
        (request.system.as_str(), request.model.as_str()),
        ("Short.", "small")
    );
    assert_eq!(
        (request.parameters.temperature, request.parameters.max_tokens),
        (Some(0.9), Some(7))
    );
}

#[tokio::test(start_paused = true)]
async fn om_497_usage_and_cost_are_recorded_per_call_and_summed_over_the_turn() {
    let mut world = World::new(
        vec![
            vec![Say::Call("c", "t", json!({})), Say::Usage(1_000, 100)],
            vec![Say::Text("ok"), Say::Usage(2_000, 200)],
        ],
        vec![("t", tool(Does::Echoes))],
        json!({}),
    );
    world.options.models[0].prices = Prices {
        input: Some(1.0),
        output: Some(10.0),
        cached: None,
    };
    let seen = run(&world, "hi").await;
    let usage = all(&seen, "usage");
    assert_eq!(
        (&usage[0]["cost_usd"], &usage[1]["cost_usd"]),
        (&json!(2.0), &json!(4.0))
    );
    let done = find(&seen, "turn.done");
    assert_eq!(
        (&done["input_tokens"], &done["cost_usd"]),
        (&json!(3_000), &json!(6.0))
    );
}

#[tokio::test(start_paused = true)]
async fn or_260_a_context_that_is_too_long_is_cut_to_half_and_tried_once_more() {
    let too_long = || {
        vec![Say::Fail(ModelError::with_status(
            "main",
            400,
            "maximum context length exceeded",
        ))]
    };
    let world = World::new(
        vec![
            vec![Say::Text("1")],
            vec![Say::Text("2")],
            too_long(),
            vec![Say::Text("3")],
        ],
        vec![],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    for text in ["a".repeat(400), "b".repeat(400)] {
        converse(&session, message(&text)).await;
    }
    let seen = converse(&session, message("c")).await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    assert_eq!(find(&seen, "model.failed")["reason"], "ModelContextTooLong");
    let (before, after) = (world.model.request(2).messages, world.model.request(3).messages);
    assert!(after.len() < before.len(), "{after:?}");
    assert_eq!(after.last().unwrap().content, "c");
}

#[tokio::test(start_paused = true)]
async fn or_260_the_conversation_is_kept_within_the_context_window() {
    let mut world = World::new(
        vec![vec![Say::Text("1")], vec![Say::Text("2")], vec![Say::Text("3")]],
        vec![],
        json!({}),
    );
    world.options.models[0].context_window = Some(130);
    let session = world.engine().await.open_session(None).await.unwrap();
    for text in ["a", "b", "c"] {
        converse(&session, message(&text.repeat(200))).await;
    }
    let contents: Vec<String> = world
        .model
        .request(2)
        .messages
        .into_iter()
        .map(|message| message.content)
        .collect();
    assert!(contents[0].starts_with('a'), "the first message stays");
    assert!(contents[1].contains("earlier messages"), "{contents:?}");
    assert!(contents.last().unwrap().starts_with('c'));
    assert!(!contents.iter().any(|content| content.starts_with('b')));
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
async fn the_next_turn_knows_the_conversation_so_far() {
    let world = World::new(
        vec![
            vec![Say::Call("c", "t", json!({"a": 1}))],
            vec![Say::Text("First.")],
            vec![Say::Text("Second.")],
        ],
        vec![("t", tool(Does::Echoes))],
        json!({}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    converse(&session, message("one")).await;
    converse(&session, message("two")).await;
    let roles: Vec<Role> = world
        .model
        .request(2)
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [
            Role::User,
            Role::Assistant,
            Role::Tool,
            Role::Assistant,
            Role::User
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_edited_prompt_reaches_the_next_session_and_a_broken_edit_does_not() {
    let mut world = World::new((0..4).map(|_| vec![Say::Text("ok")]).collect(), vec![], json!({}));
    let source = Arc::new(EditablePack(Mutex::new(
        pack_json(json!({})).to_string().into_bytes(),
    )));
    world.options.pack = source.clone() as Arc<dyn PackSource>;
    let engine = world.engine().await;
    let first = engine.open_session(None).await.unwrap();
    converse(&first, message("hi")).await;
    *source.0.lock().unwrap() = pack_json(json!({"system_template": "Help in verse."}))
        .to_string()
        .into_bytes();
    converse(&first, message("again")).await;
    assert_eq!(
        world.model.request(1).system,
        "Help.",
        "a session keeps its prompt"
    );
    let second = engine.open_session(None).await.unwrap();
    converse(&second, message("hi")).await;
    assert_eq!(world.model.request(2).system, "Help in verse.");
    *source.0.lock().unwrap() = b"{".to_vec();
    let third = engine.open_session(None).await.unwrap();
    converse(&third, message("hi")).await;
    assert_eq!(world.model.request(3).system, "Help in verse.");
}

#[tokio::test(start_paused = true)]
async fn om_561_and_om_565_an_agent_that_cannot_run_its_pack_does_not_start_and_says_why() {
    let broken = |document: Value| async move {
        let mut world = World::new(vec![], vec![], json!({}));
        world.options.pack = Arc::new(crate::FixedPack(document.to_string().into_bytes()));
        crate::Engine::start(world.options.clone()).await.unwrap_err()
    };
    let unknown = pack_json(json!({"validators": [{"type": "sentiment", "enabled": true}]}));
    let error = broken(unknown).await;
    assert_eq!(error.reason(), "GuardrailNotSupported");
    assert!(error.to_string().contains("sentiment"), "{error}");
    let mut two = pack_json(json!({}));
    two["prompts"]["other"] = two["prompts"]["main"].clone();
    let error = broken(two).await;
    assert_eq!(error.reason(), "PromptAmbiguous");
    assert!(error.to_string().contains("main, other"), "{error}");
    assert_eq!(broken(json!({})).await.reason(), "PackInvalid");
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.models.clear();
    assert_eq!(
        crate::Engine::start(world.options.clone())
            .await
            .unwrap_err()
            .reason(),
        "NoModel"
    );
}

#[tokio::test(start_paused = true)]
async fn om_136_the_entry_named_default_serves_prompts_else_the_first() {
    let (first, default) = (
        ScriptedModel::new(vec![vec![Say::Text("first")]]),
        ScriptedModel::new(vec![vec![Say::Text("default")]]),
    );
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.models = vec![
        ModelEntry::plain("a", first.clone()),
        ModelEntry::plain("default", default.clone()),
    ];
    run(&world, "hi").await;
    assert_eq!((first.count(), default.count()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn om_504_echo_and_demo_need_no_pack_and_no_provider() {
    use crate::builtin::{DemoModel, EchoModel, pack};
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.pack = Arc::new(pack());
    world.options.models = vec![ModelEntry::plain("echo", Arc::new(EchoModel))];
    let seen = run(&world, "say this {{twice}}").await;
    assert_eq!(text_of(&seen), "say this {{twice}}");
    world.options.models = vec![ModelEntry::plain("demo", Arc::new(DemoModel))];
    let seen = run(&world, "hi").await;
    assert!(all(&seen, "model.delta").len() > 10, "streamed in pieces");
    assert_eq!(text_of(&seen), all(&seen, "message")[1]["content"]);
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

#[tokio::test(start_paused = true)]
async fn an_answer_without_bound_is_given_up() {
    let script = (0..200).map(|_| Say::Text("0123456789")).collect();
    let mut world = World::new(vec![script], vec![], json!({}));
    world.options.limits.answer_bytes = 1_000;
    let seen = run(&world, "hi").await;
    assert_eq!(
        find(&seen, "turn.failed")["reason"],
        ModelErrorKind::Protocol.reason()
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
