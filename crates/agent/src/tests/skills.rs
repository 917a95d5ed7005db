//! The skills that stand in a pack (OM-362, OM-567).

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::*;

fn world(scripts: Vec<Vec<Say>>, prompt: Value, names: &[&str]) -> World {
    let mut world = World::new(
        scripts,
        vec![("look_up", tool(Does::Answers("x")))],
        prompt.clone(),
    );
    let mut document = pack_json(prompt);
    let skill = |name: &&str| json!({"name": name, "description": format!("What {name} is for."), "instructions": format!("How to {name}.")});
    document["skills"] = names.iter().map(skill).collect();
    world.options.pack = Arc::new(crate::FixedPack(document.to_string().into_bytes()));
    world
}

fn activate(id: &'static str, name: &str) -> Say {
    Say::Call(id, "skill__activate", json!({"name": name}))
}

/// The results of all calls, as the model reads them.
fn results(world: &World, request: usize) -> Vec<(String, bool)> {
    let messages = &world.model.request(request).messages;
    messages
        .iter()
        .filter(|message| message.tool_call_id.is_some())
        .map(|message| (message.content.clone(), message.is_error))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_skill_is_offered_by_name_and_description_and_read_when_it_is_activated_om_567() {
    let scripts = vec![vec![activate("c1", "refund")], vec![Say::Text("done")]];
    // The prompt lists no tool: a built-in namespace needs none (OM-362).
    let world = world(scripts, json!({"tools": []}), &["refund", "escalate"]);
    let seen = run(&world, "hi").await;
    let request = world.model.request(0);
    let offered: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(offered, ["skill__activate"]);
    let tool = &request.tools[0];
    assert!(
        tool.description.contains("- refund: What refund is for."),
        "{}",
        tool.description
    );
    assert_eq!(
        tool.parameters["properties"]["name"]["enum"],
        json!(["escalate", "refund"])
    );
    assert!(
        !tool.description.contains("How to"),
        "instructions are read when they are needed"
    );
    assert_eq!(results(&world, 1), [("How to refund.".to_owned(), false)]);
    // No policy is asked about it (OM-493), and it is an event like any other call.
    assert!(seen.iter().all(|event| event.kind != "policy.decided"));
    assert_eq!(find(&seen, "tool.started")["handler"], "skills");
    assert_eq!(find(&seen, "tool.finished")["outcome"], "succeeded");
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_skills_are_active_in_a_session_om_168_om_567() {
    let scripts = vec![
        vec![activate("c1", "a"), activate("c2", "b"), activate("c3", "c")],
        vec![Say::Text("done")],
        vec![
            activate("c4", "c"),
            activate("c5", "a"),
            activate("c6", "nonsense"),
        ],
        vec![Say::Text("done")],
    ];
    let mut world = world(scripts, json!({}), &["a", "b", "c"]);
    world.options.limits.active_skills = 2;
    let session = world.engine().await.open_session(None).await.unwrap();
    converse(&session, message("first")).await;
    let limit = "at most 2 skills are active in a conversation; active are a, b";
    assert_eq!(
        results(&world, 1),
        [
            ("How to a.".to_owned(), false),
            ("How to b.".to_owned(), false),
            (limit.to_owned(), true),
        ]
    );
    // What is active stays so over the turns of a session.
    converse(&session, message("second")).await;
    assert_eq!(
        results(&world, 3)[3..],
        [
            (limit.to_owned(), true),
            ("How to a.".to_owned(), false),
            ("there is no skill of that name; skills: a, b, c".to_owned(), true),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_pack_can_take_the_tool_back_and_one_without_skills_has_none_om_361() {
    for (prompt, names) in [
        (
            json!({"tool_policy": {"blocklist": ["skill__activate"]}}),
            vec!["refund"],
        ),
        (json!({"tool_policy": {"tool_choice": "none"}}), vec!["refund"]),
        (json!({}), vec![]),
    ] {
        let world = world(vec![vec![Say::Text("ok")]], prompt, &names);
        run(&world, "hi").await;
        let request = world.model.request(0);
        assert!(request.tools.iter().all(|tool| tool.name != "skill__activate"));
    }
}
