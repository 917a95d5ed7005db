use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
    runtime::wait::await_condition,
};
use mainstay_controllers::tool_registry::Reporter;
use mainstay_resources::{
    conditions::find_condition,
    omnia::{
        ToolPolicy, ToolRegistry,
        tool_registry::{Phase, ToolRegistryStatus},
    },
};
use mainstay_tools::Unavailable;
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, condition, install};

fn http(name: &str, endpoint: &str) -> Value {
    json!({
        "name": name, "type": "http", "httpConfig": { "endpoint": endpoint },
        "tool": { "name": "look_up", "description": "Looks something up.", "inputSchema": { "type": "object" } },
    })
}

fn registry(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": { "handlers": [http("a", "http://backend/")] } })
}

fn policy(name: &str, registry: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "selector": { "registry": registry },
            "rules": [{ "name": "never", "deny": { "cel": "false", "message": "no" } }],
        },
    })
}

fn status(registry: &ToolRegistry) -> ToolRegistryStatus {
    registry.status.clone().unwrap_or_default()
}

async fn until_count(world: &World, name: &str, wanted: Option<i32>) -> ToolRegistry {
    world
        .until(name, move |registry: &ToolRegistry| {
            let status = status(registry);
            status.phase.is_some() && status.policy_count == wanted
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_complete_example_gets_the_status_of_its_page_v_33() {
    let world = World::start().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/toolregistry-complete");
    let mut documents: Vec<Value> = Vec::new();
    for file in ["00-policy.yaml", "10-registry.yaml"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        documents.extend(serde_saphyr::from_multiple::<Value>(&text).unwrap());
    }
    let parameters = PostParams::default();
    let policies: Api<ToolPolicy> = Api::namespaced(world.client.clone(), "agents");
    let registries: Api<ToolRegistry> = Api::namespaced(world.client.clone(), "agents");
    for document in documents {
        match document["kind"].as_str().unwrap() {
            "Namespace" => {
                let namespace: Namespace = serde_json::from_value(document).unwrap();
                Api::all(world.client.clone())
                    .create(&parameters, &namespace)
                    .await
                    .unwrap();
            }
            "ToolPolicy" => {
                policies
                    .create(&parameters, &serde_json::from_value(document).unwrap())
                    .await
                    .unwrap();
            }
            "ToolRegistry" => {
                registries
                    .create(&parameters, &serde_json::from_value(document).unwrap())
                    .await
                    .unwrap();
            }
            other => panic!("{other}"),
        }
    }
    let done = |registry: Option<&ToolRegistry>| {
        registry.is_some_and(|registry| status(registry).policy_count == Some(1))
    };
    let registry = tokio::time::timeout(DEADLINE, await_condition(registries, "agent-tools", done))
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let status = status(&registry);
    assert_eq!(
        (status.phase, status.discovered_tools_count),
        (Some(Phase::Ready), Some(4))
    );
    let tools: Vec<_> = status
        .discovered_tools
        .iter()
        .map(|tool| {
            (
                tool.handler_name.as_str(),
                tool.name.as_str(),
                tool.status.as_str(),
            )
        })
        .collect();
    assert_eq!(
        tools,
        [
            ("calculator", "calculate", "Available"),
            ("user-service", "get_user", "Available"),
            ("code-tools", "code-tools", "Available"),
            ("external-api", "external-api", "Available"),
        ]
    );
    assert_eq!(
        condition(&status.conditions, "HandlersValid"),
        "True HandlersValid"
    );
    assert_eq!(
        condition(&status.conditions, "ToolsDiscovered"),
        "True ToolsDiscovered"
    );
    assert_eq!(
        condition(&status.conditions, "PolicyBound"),
        "True PolicySelectsRegistry"
    );
    let bound = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "PolicyBound")
        .unwrap();
    assert_eq!(bound.message, "selected by 1 ToolPolicy(s): [calculator-policy]");
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_wake_the_registries_they_select_and_selected_v_37_v_38() {
    let world = World::start().await;
    world.create::<ToolRegistry>(registry("a")).await;
    world.create::<ToolRegistry>(registry("b")).await;
    let unbound = until_count(&world, "a", Some(0)).await;
    assert_eq!(
        condition(&status(&unbound).conditions, "PolicyBound"),
        "False NoPolicySelectsRegistry"
    );
    until_count(&world, "b", Some(0)).await;

    world.create::<ToolPolicy>(policy("p", "a")).await;
    let bound = until_count(&world, "a", Some(1)).await;
    assert_eq!(bound.metadata.generation, Some(1), "no spec changed");
    world
        .merge::<ToolPolicy>("p", json!({ "spec": { "selector": { "registry": "b" } } }))
        .await;
    until_count(&world, "a", Some(0)).await;
    until_count(&world, "b", Some(1)).await;
    world.delete::<ToolPolicy>("p").await;
    until_count(&world, "b", Some(0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_kind_may_go_and_come_back_om_483_v_39() {
    let world = World::start().await;
    world.create::<ToolRegistry>(registry("a")).await;
    world.create::<ToolPolicy>(policy("p", "a")).await;
    until_count(&world, "a", Some(1)).await;
    let kinds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    kinds
        .delete("toolpolicies.omnia.altairalabs.ai", &DeleteParams::default())
        .await
        .unwrap();
    let without = until_count(&world, "a", None).await;
    assert_eq!(condition(&status(&without).conditions, "PolicyBound"), "");
    let definition = mainstay_resources::crd::documents()
        .unwrap()
        .into_iter()
        .find(|document| document["metadata"]["name"] == "toolpolicies.omnia.altairalabs.ai")
        .unwrap();
    install(&world.client, definition).await;
    until_count(&world, "a", Some(0)).await;
    world.create::<ToolPolicy>(policy("p", "a")).await;
    until_count(&world, "a", Some(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_policy_engine_nothing_is_said_about_policies_om_483() {
    let world = World::with(|_| {}, |options| options.policy_engine = false).await;
    world.create::<ToolPolicy>(policy("p", "a")).await;
    world.create::<ToolRegistry>(registry("a")).await;
    let registry = until_count(&world, "a", None).await;
    assert_eq!(condition(&status(&registry).conditions, "PolicyBound"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_controllers_own_write_wakes_nobody_v_40() {
    let world = World::start().await;
    world.create::<ToolRegistry>(registry("a")).await;
    let first = until_count(&world, "a", Some(0)).await;
    // A later change of another registry has passed through the same queue, so a self-made trigger would have too.
    world.create::<ToolRegistry>(registry("b")).await;
    until_count(&world, "b", Some(0)).await;
    let later: ToolRegistry = world.get("a").await;
    assert_eq!(later.resource_version(), first.resource_version());
}

#[tokio::test(flavor = "multi_thread")]
async fn probing_tells_reachable_endpoints_from_others_v_35() {
    let world = World::start().await;
    let backend = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = format!("http://{}/", backend.local_addr().unwrap());
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = format!("http://{}/", closed.local_addr().unwrap());
    drop(closed);
    world
        .create::<ToolRegistry>(json!({
            "metadata": { "name": "probed" },
            "spec": {
                "probe": { "enabled": true, "interval": "1s", "timeout": "2s" },
                "handlers": [http("up", &open), http("down", &refused)],
            },
        }))
        .await;
    let degraded = world
        .until("probed", |registry: &ToolRegistry| {
            status(registry).phase == Some(Phase::Degraded)
        })
        .await;
    assert_eq!(
        condition(&status(&degraded).conditions, "Degraded"),
        "True SomeToolsUnavailable"
    );
    assert_eq!(
        condition(&status(&degraded).conditions, "Ready"),
        "True ToolsDiscovered"
    );
    let digest = status(&degraded).content_digest;
    // The interval brings the change without any Kubernetes event (OM-242).
    drop(backend);
    let failed = world
        .until("probed", |registry: &ToolRegistry| {
            status(registry).phase == Some(Phase::Failed)
        })
        .await;
    assert_eq!(
        condition(&status(&failed).conditions, "Ready"),
        "False NoToolsAvailable"
    );
    assert_eq!(status(&failed).content_digest, digest);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_a_running_agent_misses_show_in_the_registry_d6() {
    let world = World::start().await;
    world.create::<ToolRegistry>(registry("tools")).await;
    world
        .create::<Pod>(json!({
            "metadata": { "name": "desk-1" }, "spec": { "containers": [{ "name": "agent", "image": "mainstay" }] },
        }))
        .await;
    let missing = |message: &str| Unavailable {
        handler: "code".to_owned(),
        reason: "ListingIncomplete",
        message: message.to_owned(),
    };
    let told = |registry: &ToolRegistry| {
        let status = status(registry);
        let condition = find_condition(&status.conditions, "ToolsListed")?;
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", "ToolsMissing")
        );
        Some(condition.message.clone())
    };
    let mut reporter = Reporter::new(world.client.clone(), "default", "desk-1", "desk", "tools");
    for cause in ["more pages than are read", "an earlier page again"] {
        reporter.report(&[missing(cause)]).await.unwrap();
        let registry = world
            .until("tools", |registry: &ToolRegistry| {
                told(registry).is_some_and(|message| message.contains(cause))
            })
            .await;
        assert_eq!(
            told(&registry).unwrap(),
            format!("ListingIncomplete: {cause} (agent desk)")
        );
        assert_eq!(status(&registry).phase, Some(Phase::Ready), "OM-327");
    }
    let report: ConfigMap = world.get("desk-1.tools").await;
    assert_eq!(report.owner_references()[0].kind, "Pod", "it goes with its Pod");
    reporter.report(&[]).await.unwrap();
    world
        .until("tools", |registry: &ToolRegistry| {
            status(registry).phase.is_some() && told(registry).is_none()
        })
        .await;
    assert!(
        world
            .api::<ConfigMap>()
            .get_opt("desk-1.tools")
            .await
            .unwrap()
            .is_none()
    );
}
