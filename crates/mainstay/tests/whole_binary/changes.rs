//! Edits of objects while agents run.

use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    DEADLINE,
    backend::Backend,
    conversation::{Conversation, events},
    desk,
    objects::{becomes, blocked, edit, objects, omnia, reaches},
    server::Running,
    world::{World, example},
};

#[tokio::test]
async fn an_edited_prompt_reaches_the_next_session_without_a_restart() {
    // A model that repeats its system message shows what it is told.
    let backend = Backend::start(200);
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    let manifests = std::fs::read_to_string(world.path("desk/desk.yaml")).unwrap();
    let openai = format!(
        "spec: {{type: openai, model: m, baseURL: 'http://{}/v1', credential: {{envVar: OPENAI_API_KEY}}}}",
        backend.address
    );
    world.write(
        "desk/desk.yaml",
        &manifests.replace("spec: {type: mock}", &openai),
    );
    let server = world.up_with(&["desk"], &[("OPENAI_API_KEY", "none")]);
    let client = server.client().await;
    let mut old = Conversation::open(&server, "desk").await;
    assert_eq!(old.answer("what are you told?").await, "Answer.");

    let packs = objects(&client, "", "v1", "ConfigMap");
    let pack = packs.get("desk-pack").await.unwrap().data["data"]["pack.json"]
        .as_str()
        .unwrap()
        .to_owned();
    let edited = pack.replace("\"Answer.\"", "\"Answer in rhymes.\"");
    edit(&packs, "desk-pack", json!({ "data": { "pack.json": edited } })).await;
    // Each run of `chat` is a session of its own; the agent's Pod may be replaced meanwhile, by nobody's hand.
    let ends = Instant::now() + DEADLINE;
    loop {
        let new = world.run(&["chat", "desk", "-m", "what are you told?"]).await;
        if new.stdout == "Answer in rhymes.\n" {
            break;
        }
        assert!(new.stdout.is_empty() || new.stdout == "Answer.\n", "{new}");
        assert!(Instant::now() < ends, "the new prompt does not arrive: {new}");
    }
}

/// Name of the Pod of an agent, once its Deployment has settled on one.
async fn agent_pod(client: &kube::Client, agent: &str) -> String {
    becomes(
        &objects(client, "apps", "v1", "Deployment"),
        agent,
        "rolled out",
        |deployment| {
            let status = &deployment["status"];
            status["observedGeneration"] == deployment["metadata"]["generation"]
                && ["replicas", "updatedReplicas", "availableReplicas"]
                    .iter()
                    .all(|count| status[count] == 1)
        },
    )
    .await;
    let selector = format!("app.kubernetes.io/instance={agent}");
    let pods = objects(client, "", "v1", "Pod");
    let found = pods
        .list(&kube::api::ListParams::default().labels(&selector))
        .await
        .unwrap();
    // One that was replaced may still be about to end.
    let live = found
        .items
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let mut names: Vec<String> = live.filter_map(|pod| pod.metadata.name).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    names.remove(0)
}

#[tokio::test]
async fn edits_of_policies_providers_and_workloads_take_effect_while_the_agent_runs() {
    let running = Running::on(&[&example("helpdesk")]);
    let client = running.server.client().await;
    policy_edits(&running, &client).await;
    provider_edits(&running, &client).await;
    repair(&running, &client).await;
}

async fn decision(running: &Running, message: &str) -> bool {
    let mut conversation = Conversation::open(&running.server, "helpdesk").await;
    let frames = conversation.turn(message).await;
    let decided = events(&frames)
        .into_iter()
        .find(|event| event["type"] == "policy.decided")
        .cloned();
    decided.expect("every call is judged")["data"]["allow"]
        .as_bool()
        .unwrap()
}

/// An edited policy is in force with a call that follows.
async fn policy_edits(running: &Running, client: &kube::Client) {
    let policies = omnia(client, "ToolPolicy");
    assert!(decision(running, "Where is order 1017?").await);
    let all = json!([{ "name": "closed", "deny": { "cel": "true", "message": "the desk is closed" } }]);
    edit(&policies, "orders-read", json!({ "spec": { "rules": all } })).await;
    let ends = Instant::now() + DEADLINE;
    while decision(running, "Where is order 1017?").await {
        assert!(Instant::now() < ends, "the policy does not come into force");
    }
    // Without a policy that permits it, nothing is permitted.
    policies
        .delete("orders-read", &DeleteParams::default())
        .await
        .unwrap();
    becomes(&policies, "orders-read", "deleted", Value::is_null).await;
    assert!(!decision(running, "Where is order 1017?").await);
    running.world.run(&["up", &example("helpdesk")]).await.succeeded();
    let ends = Instant::now() + DEADLINE;
    while !decision(running, "Where is order 1017?").await {
        assert!(Instant::now() < ends, "the policy does not come into force");
    }
}

/// A deleted Provider fails the agent; its return and its edits reach the agent's Pod.
async fn provider_edits(running: &Running, client: &kube::Client) {
    let (agents, providers) = (omnia(client, "AgentRuntime"), omnia(client, "Provider"));
    let pods = objects(client, "", "v1", "Pod");
    providers
        .delete("helpdesk-model", &DeleteParams::default())
        .await
        .unwrap();
    let message = blocked(&agents, "helpdesk", "ProviderReady", "ProviderNotFound").await;
    assert!(message.contains("helpdesk-model"), "{message}");
    reaches(&agents, "helpdesk", "Failed").await;
    running.world.run(&["up", &example("helpdesk")]).await.succeeded();
    reaches(&agents, "helpdesk", "Running").await;
    running.chat(&["helpdesk", "-m", "hello"]).await.succeeded();

    let before = agent_pod(client, "helpdesk").await;
    edit(
        &providers,
        "helpdesk-model",
        json!({ "spec": { "model": "another" } }),
    )
    .await;
    becomes(&pods, &before, "replaced", Value::is_null).await;
    let after = agent_pod(client, "helpdesk").await;
    assert_ne!(before, after);
    becomes(&pods, &after, "ready", |pod| {
        crate::support::objects::condition_of(pod, "Ready").is_some_and(|ready| ready["status"] == "True")
    })
    .await;
    let mut conversation = Conversation::open(&running.server, "helpdesk").await;
    let frames = conversation.turn("hello").await;
    let started = events(&frames)
        .into_iter()
        .find(|event| event["type"] == "model.started")
        .unwrap()
        .clone();
    assert_eq!(started["data"]["model"], "another");
}

/// OM-253: what was generated and deleted by hand comes back.
async fn repair(running: &Running, client: &kube::Client) {
    let deployments = objects(client, "apps", "v1", "Deployment");
    let before = deployments.get("helpdesk").await.unwrap().metadata.uid;
    deployments
        .delete("helpdesk", &DeleteParams::default())
        .await
        .unwrap();
    becomes(
        &deployments,
        "helpdesk",
        "there again and available",
        |deployment| {
            !deployment.is_null()
                && deployment["metadata"]["uid"].as_str() != before.as_deref()
                && deployment["status"]["availableReplicas"] == 1
        },
    )
    .await;
    reaches(&omnia(client, "AgentRuntime"), "helpdesk", "Running").await;
    running.chat(&["helpdesk", "-m", "hello"]).await.succeeded();
}

/// What the README of `examples/helpdesk-mcp` says: its server goes and comes back, and nobody touches the agent.
#[tokio::test]
async fn an_mcp_server_that_was_away_is_called_again_and_its_tools_stay_om_422() {
    let running = Running::on(&[&example("helpdesk-mcp")]);
    let client = running.server.client().await;
    let servers = objects(&client, "apps", "v1", "Deployment");
    let scaled = async |replicas: u64| {
        let patch = json!({ "spec": { "replicas": replicas } });
        edit(&servers, "orders-mcp", patch).await;
        becomes(&servers, "orders-mcp", "as large as asked", |object| {
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
                && object["status"]["readyReplicas"].as_u64().unwrap_or_default() == replicas
        })
        .await;
    };
    running.offers("helpdesk-mcp", "get_order").await;
    let question = &["helpdesk-mcp", "-m", "Where is order 1017?"];
    let found = running.chat(question).await.succeeded();
    assert!(found.stdout.contains("Harbour Express"), "{found}");

    scaled(0).await;
    let away = running.chat(question).await.succeeded();
    assert!(
        away.stderr.contains("get_order {\"id\":1017}"),
        "the tool is still offered: {away}"
    );
    assert!(away.stdout.contains("I could not find order 1017"), "{away}");

    scaled(1).await;
    let found = running.chat(question).await.succeeded();
    assert!(found.stdout.contains("Harbour Express"), "{found}");
}
