//! What one turn does (C.1, C.2, E.2, section 7.5).

use std::sync::{Arc, Mutex};

use mainstay_llm::{
    FinishReason, ModelError, ModelErrorKind, ResponseFormat, Role, SignedThought, ToolChoice,
};
use serde_json::{Value, json};

use super::support::*;
use crate::{ModelEntry, PackSource, Prices};

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
    assert_eq!(&*request.system, "Help.");
    assert_eq!(request.messages.len(), 1);
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
async fn om_371_a_tool_call_that_comes_in_pieces_for_longer_than_the_limit_is_no_silence() {
    let call = Say::Call("c1", "save", json!({"text": "long"}));
    let script = vec![vec![Say::Pieces(100, 3), call], vec![Say::Text("Saved.")]];
    let mut world = World::new(script, vec![], json!({}));
    let mut tools = ScriptedTools::new(vec![("save", tool(Does::Answers("ok")))]);
    Arc::get_mut(&mut tools).unwrap().ceiling = Some(std::time::Duration::from_secs(1_000));
    (world.tools, world.options.tools) = (tools.clone(), tools);
    let begun = tokio::time::Instant::now();
    let seen = run(&world, "hi").await;
    assert_eq!(begun.elapsed().as_secs(), 300);
    assert_eq!(seen.last().unwrap().kind, "turn.done");
    assert_eq!(find(&seen, "model.done")["tool_calls"][0]["id"], "c1");
    assert_eq!(world.tools.count("save"), 1);
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
        (vec![vec![Say::Finish(FinishReason::Refused)]], "ModelRefused"),
        (
            vec![
                vec![Say::Finish(FinishReason::Unknown)],
                vec![Say::Finish(FinishReason::Incomplete)],
            ],
            "ModelEmptyAnswer",
        ),
        (
            vec![vec![Say::Text("x"), Say::Finish(FinishReason::Failed)]],
            "ModelFailed",
        ),
    ] {
        let world = World::new(script, vec![], json!({}));
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
    assert_eq!(&*request.system, "You help Ada {{x}}.");
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
async fn om_533_the_schema_that_an_answer_is_checked_against_is_what_the_model_is_asked_for() {
    let schema = json!({"type": "object", "required": ["id"]});
    let validator = |direction: &str, enabled: bool| {
        json!({"validators": [
            {"type": "max_length", "enabled": true, "params": {"max_characters": 100}},
            {"type": "json_schema", "enabled": enabled, "params": {"schema": schema, "direction": direction}},
        ]})
    };
    for (prompt, asked) in [
        (validator("output", true), true),
        (validator("both", true), true),
        (validator("input", true), false),
        (validator("output", false), false),
    ] {
        let world = World::new(vec![vec![Say::Text("{\"id\": 1}")]], vec![], prompt);
        let seen = run(&world, "{\"id\": 1}").await;
        assert_eq!(text_of(&seen), "{\"id\": 1}");
        let wanted = match &world.model.request(0).response_format {
            ResponseFormat::Schema { schema, .. } => Some((**schema).clone()),
            _ => None,
        };
        assert_eq!(wanted, asked.then(|| schema.clone()));
    }
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
async fn om_496_and_om_559_parameters_come_from_the_prompt_and_its_override_for_the_model() {
    let prompt = json!({
        "parameters": {"temperature": 0.1, "max_tokens": 7},
        "model_overrides": {"small": {"parameters": {"temperature": 0.9}, "system_template": "Short."}}
    });
    let mut world = World::new(vec![vec![Say::Text("ok")]], vec![], prompt);
    world.options.models[0].model_name = "small".to_owned();
    run(&world, "hi").await;
    let request = world.model.request(0);
    assert_eq!((&*request.system, request.model.as_str()), ("Short.", "small"));
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
        .iter()
        .map(|message| message.content.clone())
        .collect();
    assert!(contents[0].starts_with('a'), "the first message stays");
    assert!(contents[1].contains("earlier messages"), "{contents:?}");
    assert!(contents.last().unwrap().starts_with('c'));
    assert!(!contents.iter().any(|content| content.starts_with('b')));
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
        &*world.model.request(1).system,
        "Help.",
        "a session keeps its prompt"
    );
    let second = engine.open_session(None).await.unwrap();
    converse(&second, message("hi")).await;
    assert_eq!(&*world.model.request(2).system, "Help in verse.");
    *source.0.lock().unwrap() = b"{".to_vec();
    let third = engine.open_session(None).await.unwrap();
    converse(&third, message("hi")).await;
    assert_eq!(&*world.model.request(3).system, "Help in verse.");
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

#[tokio::test(start_paused = true)]
async fn what_a_provider_signed_goes_back_to_it_with_the_results() {
    let thought = SignedThought::Thought {
        text: "Look it up.".to_owned(),
        signature: "sig-thought".to_owned(),
    };
    let world = World::new(
        vec![
            vec![Say::Thought(thought.clone()), Say::Signed("c", "t", "sig-call")],
            vec![Say::Text("Done.")],
        ],
        vec![("t", tool(Does::Answers("ok")))],
        json!({}),
    );
    let seen = run(&world, "hi").await;
    let again = world.model.request(1);
    let answer = &again.messages[1];
    assert_eq!(answer.thoughts, [thought]);
    assert_eq!(answer.tool_calls[0].signature.as_deref(), Some("sig-call"));
    assert_eq!(answer.author.as_deref(), Some("main"));
    let shown = serde_json::to_string(&seen).unwrap();
    assert!(
        !shown.contains("sig-"),
        "marks are for the provider alone: {shown}"
    );
}

#[tokio::test(start_paused = true)]
async fn values_for_variables_that_the_prompt_does_not_have_are_named() {
    let world = World::new(
        vec![vec![Say::Text("Hi.")]],
        vec![],
        json!({"variables": [{"name": "customer", "type": "string", "required": false}]}),
    );
    let session = world.engine().await.open_session(None).await.unwrap();
    let mut incoming = message("hi");
    incoming.metadata = metadata(json!({"customer": "Ada", "costumer": "Ada", "b": 1}));
    let seen = converse(&session, incoming).await;
    assert_eq!(find(&seen, "turn.started")["unused"], json!(["b", "costumer"]));
}

#[tokio::test(start_paused = true)]
async fn or_453_a_blank_answer_or_one_of_thoughts_alone_is_asked_for_again_without_tools() {
    let thoughts = || Say::Thought(SignedThought::Redacted { data: "d".to_owned() });
    for blank in [
        vec![Say::Finish(FinishReason::Completed)],
        vec![thoughts(), Say::Finish(FinishReason::Completed)],
    ] {
        let world = World::new(
            vec![
                vec![Say::Call("c", "t", json!({}))],
                blank,
                vec![Say::Text("It is done.")],
            ],
            vec![("t", tool(Does::Answers("ok")))],
            json!({}),
        );
        let seen = run(&world, "hi").await;
        assert_eq!(find(&seen, "model.failed")["reason"], "ModelEmptyAnswer");
        assert_eq!(all(&seen, "message")[1]["content"], "It is done.");
        let offered: Vec<(usize, ToolChoice)> = (0..3)
            .map(|index| world.model.request(index))
            .map(|request| (request.tools.len(), request.tool_choice))
            .collect();
        // The calls and results of before stay in the conversation: providers want their tools described.
        assert_eq!(
            offered,
            [
                (1, ToolChoice::Auto),
                (1, ToolChoice::Auto),
                (1, ToolChoice::None)
            ]
        );
        assert_eq!(
            world.model.request(2).messages.len(),
            3,
            "the blank answer is no part of the conversation"
        );
    }
}
