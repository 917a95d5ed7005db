//! Every folder of `examples/` runs and does what its README says.

use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::support::{
    conversation::{Conversation, events},
    objects::{create, omnia},
    program::Program,
    server::Running,
    world::{World, example, examples},
};

/// The types of events (contract 2).
const TYPES: &[&str] = &[
    "turn.started",
    "message",
    "model.started",
    "model.delta",
    "model.restarted",
    "model.failed",
    "model.cooled",
    "model.waiting",
    "model.failed_over",
    "model.done",
    "policy.decided",
    "tool.started",
    "tool.finished",
    "client_tool.requested",
    "budget.exceeded",
    "budget.alerted",
    "usage",
    "checkpoint",
    "turn.done",
    "turn.failed",
    "turn.cancelled",
];

#[test]
fn every_folder_of_examples_is_tested_here() {
    let mut folders: Vec<String> = std::fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    assert_eq!(
        folders,
        [
            "guarded-writes",
            "helpdesk",
            "helpdesk-claude",
            "helpdesk-grpc",
            "helpdesk-mcp",
            "helpdesk-openai",
            "helpdesk-openapi"
        ]
    );
}

async fn answers_from_the_order_service(running: &Running, agent: &str) {
    running.offers(agent, "get_order").await;
    let found = running
        .chat(&[agent, "-m", "Where is order 1017?"])
        .await
        .succeeded();
    assert!(found.stdout.contains("Order 1017 is shipped"), "{found}");
    assert!(found.stdout.contains("Harbour Express"), "{found}");
    assert!(found.stderr.contains("→ get_order {\"id\":1017}"), "{found}");
    let refused = running
        .chat(&[agent, "-m", "Delete order 1017"])
        .await
        .succeeded();
    assert!(refused.stderr.contains("✗ delete_order"), "{refused}");
    assert!(
        refused
            .stderr
            .contains("orders are deleted by a person in the back office"),
        "{refused}"
    );
    assert!(refused.stdout.contains("I may not do that."), "{refused}");
    // Refused means that it is still there.
    let still = running
        .chat(&[agent, "-m", "Where is order 1017?"])
        .await
        .succeeded();
    assert!(still.stdout.contains("Harbour Express"), "{still}");
    let guessed = running
        .chat(&[agent, "-m", "Where is order 12?"])
        .await
        .succeeded();
    assert!(
        guessed.stdout.contains("order numbers have at least four digits"),
        "{guessed}"
    );
    let listed = running.chat(&[agent, "-m", "List all orders"]).await.succeeded();
    assert!(listed.stdout.contains("order in the list is 1015"), "{listed}");
}

#[tokio::test]
async fn the_help_desk_answers_from_the_order_service_and_is_held_back_by_policy() {
    answers_from_the_order_service(&Running::shared(), "helpdesk").await;
}

/// What the README of `examples/guarded-writes` says. KA-010.
#[tokio::test]
async fn writes_are_guarded_by_admission_policies() {
    let running = Running::on(&[&example("guarded-writes")]);
    let client = running.server.client().await;
    let (agents, policies) = (omnia(&client, "AgentRuntime"), omnia(&client, "ToolPolicy"));
    let agent = json!({
        "apiVersion": "omnia.altairalabs.ai/v1alpha1", "kind": "AgentRuntime", "metadata": {"name": "helpdesk"},
        "spec": {
            "promptPackRef": {"name": "helpdesk"}, "toolRegistryRef": {"name": "helpdesk"},
            "providers": [{"name": "default", "providerRef": {"name": "helpdesk-model"}}],
            "facades": [{"type": "websocket"}],
        },
    });
    let agent = serde_json::from_value(agent).unwrap();
    let refused = agents
        .create(&PostParams::default(), &agent)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("agentruntimes.omnia.altairalabs.ai \"helpdesk\" is forbidden: ValidatingAdmissionPolicy \
        'agents-have-tool-policies' with binding 'agents-have-tool-policies' denied request: failed to configure binding: no \
        params found for policy binding with `Deny` parameterNotFoundAction"), "{refused}");
    let policy = json!({
        "apiVersion": "omnia.altairalabs.ai/v1alpha1", "kind": "ToolPolicy",
        "metadata": {"name": "orders-read", "labels": {"keep": "true"}},
        "spec": {"selector": {"registry": "helpdesk", "tools": ["get_order"]}, "rules": [
            {"name": "never", "deny": {"cel": "true", "message": "never"}}]},
    });
    create(&policies, policy).await;
    agents.create(&PostParams::default(), &agent).await.unwrap();
    // The admin may delete the policies of the folder, and so this one too.
    policies
        .delete("orders-read", &DeleteParams::default())
        .await
        .unwrap();
}

/// A scripted model of the example's folder, served over HTTP, and where.
fn served_model(world: &World, folder: &str) -> (Program, String) {
    let scenario = examples()
        .join(folder)
        .join("mock/scenario.yaml")
        .display()
        .to_string();
    let mut model =
        Program::start(world.command(&["mock-model", "--scenario", &scenario, "--listen", "127.0.0.1:0"]));
    let line = model.line("model at http://");
    let base = line
        .split_whitespace()
        .find(|word| word.starts_with("http://"))
        .unwrap()
        .trim_end_matches(';')
        .to_owned();
    (model, base)
}

#[tokio::test]
async fn the_help_desk_runs_on_a_model_that_speaks_chat_completions() {
    let world = World::new();
    let (_model, base) = served_model(&world, "helpdesk-openai");
    let environment = [("OPENAI_BASE_URL", base.as_str()), ("OPENAI_API_KEY", "none")];
    let server = world.up_with(&[&example("helpdesk"), &example("helpdesk-openai")], &environment);
    let running = Running { server, world };
    answers_from_the_order_service(&running, "helpdesk-openai").await;
}

#[tokio::test]
async fn the_help_desk_runs_on_a_model_that_speaks_messages_and_is_busy_at_first() {
    let running = Running::on(&[&example("helpdesk"), &example("helpdesk-claude")]);
    let first = running
        .chat(&["helpdesk-claude", "--json", "-m", "Where is order 1017?"])
        .await
        .succeeded();
    let events: Vec<Value> = first
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| -> Vec<&Value> {
        events
            .iter()
            .filter(|event| event["type"] == kind)
            .map(|event| &event["data"])
            .collect()
    };
    // Each wait is told with its reason, and the answer comes all the same; what the provider signed went back to it, or
    // it would have refused the second call.
    let waits = of("model.waiting");
    assert_eq!(waits.len(), 2, "{first}");
    assert!(waits.iter().all(|wait| wait["status"] == 529), "{first}");
    assert!(
        of("message")[1]["content"]
            .as_str()
            .unwrap()
            .contains("Harbour Express"),
        "{first}"
    );
    assert_eq!(of("usage").len(), 2, "{first}");
    assert!(of("turn.done")[0]["cost_usd"].as_f64().unwrap() > 0.0, "{first}");
    answers_from_the_order_service(&running, "helpdesk-claude").await;
}

#[tokio::test]
async fn the_help_desk_finds_its_tools_in_the_openapi_document_of_its_service() {
    let running = Running::on(&[&example("helpdesk"), &example("helpdesk-openapi")]);
    answers_from_the_order_service(&running, "helpdesk-openapi").await;
}

#[tokio::test]
async fn the_help_desk_uses_the_tools_of_a_model_context_protocol_server_om_419() {
    let running = Running::on(&[&example("helpdesk-mcp")]);
    answers_from_the_order_service(&running, "helpdesk-mcp").await;
}

#[tokio::test]
async fn the_help_desk_calls_its_service_by_the_tool_protocol_om_415() {
    let running = Running::on(&[&example("helpdesk"), &example("helpdesk-grpc")]);
    answers_from_the_order_service(&running, "helpdesk-grpc").await;
}

#[test]
fn the_scenario_files_are_the_scenarios_of_the_config_maps() {
    is_the_same_scenario("helpdesk-openai/mock/scenario.yaml", "helpdesk/model.yaml");
    is_the_same_scenario("helpdesk-claude/mock/scenario.yaml", "helpdesk-claude/model.yaml");
}

fn is_the_same_scenario(file: &str, manifests: &str) {
    let file = std::fs::read_to_string(examples().join(file)).unwrap();
    let manifests = std::fs::read_to_string(examples().join(manifests)).unwrap();
    let of_map = manifests
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str::<Value>(document).unwrap())
        .find_map(|object| object["data"]["scenario.yaml"].as_str().map(str::to_owned))
        .unwrap();
    let parse = |text: &str| serde_saphyr::from_str::<Value>(text).unwrap();
    assert_eq!(parse(&file), parse(&of_map));
}

#[tokio::test]
async fn json_prints_one_event_a_line_in_the_one_envelope() {
    let running = Running::shared();
    let ran = running
        .chat(&["helpdesk", "--json", "-m", "Where is order 1017?"])
        .await
        .succeeded();
    assert_eq!(ran.stderr, "", "with --json there is nothing but events");
    let events: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut seq = 0;
    for event in &events {
        let kind = event["type"].as_str().unwrap();
        assert!(TYPES.contains(&kind), "{kind} is not a type of contract 2");
        event["time"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap();
        assert!(
            event["session"].is_string() && event["turn"].is_string() && event["data"].is_object(),
            "{event}"
        );
        if kind == "model.delta" {
            assert_eq!(event.get("seq"), None, "model.delta is never stored");
        } else {
            seq += 1;
            assert_eq!(event["seq"], seq, "seq rises by one");
        }
    }
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let stored: Vec<&str> = kinds
        .iter()
        .copied()
        .filter(|kind| *kind != "model.delta")
        .collect();
    assert_eq!(
        stored,
        [
            "turn.started",
            "message",
            "model.started",
            "model.done",
            "usage",
            "policy.decided",
            "tool.started",
            "tool.finished",
            "model.started",
            "model.done",
            "usage",
            "message",
            "turn.done"
        ]
    );
    assert!(
        kinds.iter().filter(|kind| **kind == "model.delta").count() > 5,
        "the answer comes in pieces"
    );
}

#[tokio::test]
async fn om_514_the_answer_is_streamed_in_chunks_and_closed_with_the_whole_text() {
    let running = Running::shared();
    let mut conversation = Conversation::with(&running.server, "helpdesk", "").await;
    let frames = conversation.turn("Where is order 1017?").await;
    assert!(
        events(&frames).is_empty(),
        "events come only to those who ask for them"
    );
    let chunks: Vec<&str> = frames
        .iter()
        .filter(|frame| frame["type"] == "chunk")
        .map(|frame| frame["content"].as_str().unwrap())
        .collect();
    assert!(chunks.len() > 5, "{chunks:?}");
    let whole = frames.last().unwrap()["content"].as_str().unwrap();
    assert!(whole.contains("Harbour Express"), "{whole}");
    assert!(chunks.concat().ends_with(whole), "{chunks:?} against {whole}");
    for frame in &frames {
        assert_eq!(frame["session_id"], conversation.session.as_str(), "OM-506");
        frame["timestamp"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap();
        assert_ne!(
            frame["type"], "tool_call",
            "OM-516: tools of the server are not shown to a plain client"
        );
    }
}
