use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Secret, Service},
};
use kube::ResourceExt;
use mainstay_llm::config::ProvidersConfig;
use mainstay_resources::omnia::{AgentRuntime, Provider, ToolRegistry, agent_runtime::Phase};
use mainstay_tools::config::ToolsConfig;
use serde_json::{Value, json};

use crate::world::{World, condition};

fn agent() -> Value {
    json!({
        "metadata": { "name": "helpdesk" },
        "spec": {
            "promptPackRef": { "name": "helpdesk" },
            "toolRegistryRef": { "name": "orders" },
            "providers": [{ "name": "default", "providerRef": { "name": "model" } }],
            "facades": [{ "type": "websocket" }],
        },
    })
}

fn registry(auth: Option<Value>) -> Value {
    let mut handler = json!({
        "name": "get-order", "type": "http", "httpConfig": { "endpoint": "http://orders/" },
        "tool": { "name": "get_order", "description": "Reads an order.", "inputSchema": { "type": "object" } },
    });
    if let Some(auth) = auth {
        handler["auth"] = auth;
    }
    json!({ "metadata": { "name": "orders" }, "spec": { "handlers": [handler] } })
}

fn mock() -> Value {
    json!({ "metadata": { "name": "model" }, "spec": { "type": "mock" } })
}

fn phase(agent: &AgentRuntime) -> Option<Phase> {
    agent.status.as_ref().and_then(|status| status.phase)
}

fn has(agent: &AgentRuntime, kind: &str, wanted: &str) -> bool {
    agent
        .status
        .as_ref()
        .is_some_and(|status| condition(&status.conditions, kind) == wanted)
}

/// Plays the node: the pods of a Deployment are ready.
async fn pods_are_ready(world: &World, ready: i32) -> Deployment {
    world
        .merge_status::<Deployment>(
            "helpdesk",
            json!({ "status": { "replicas": ready, "readyReplicas": ready, "availableReplicas": ready } }),
        )
        .await
}

async fn running(world: &World, auth: Option<Value>) -> AgentRuntime {
    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    world.create::<Provider>(mock()).await;
    world.create::<ToolRegistry>(registry(auth)).await;
    world.create::<AgentRuntime>(agent()).await;
    world.until::<Deployment>("helpdesk", |_| true).await;
    let ready = pods_are_ready(world, 1).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            phase(agent) == Some(Phase::Running)
        })
        .await;
    let deployment: Deployment = world.get("helpdesk").await;
    assert_eq!(
        deployment.resource_version(),
        ready.resource_version(),
        "applying the same again changes nothing"
    );
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_applied_first_gets_there_as_its_references_appear_om_254_v_41() {
    let world = World::start().await;
    world.create::<AgentRuntime>(agent()).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "PromptPackReady", "False PromptPackNotFound")
        })
        .await;
    assert_eq!(phase(&agent), Some(Phase::Failed));
    assert!(has(&agent, "Ready", "False PromptPackNotFound"));
    assert_eq!(
        agent.status.as_ref().unwrap().observed_generation,
        Some(1),
        "OM-161"
    );

    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ProviderReady", "False ProviderNotFound")
        })
        .await;
    assert_eq!(phase(&agent), Some(Phase::Failed));
    assert!(has(&agent, "PromptPackReady", "True PromptPackFound"));
    assert!(has(&agent, "ToolRegistryReady", "False ToolRegistryNotFound"));
    assert!(
        world
            .api::<Deployment>()
            .get_opt("helpdesk")
            .await
            .unwrap()
            .is_none(),
        "nothing half-built (OM-260)"
    );

    world.create::<Provider>(mock()).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "DeploymentReady", "True DeploymentCreated")
        })
        .await;
    assert_eq!(phase(&agent), Some(Phase::Pending));
    assert!(has(&agent, "Ready", "False RuntimeNotReady"));
    pods_are_ready(&world, 1).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            phase(agent) == Some(Phase::Running)
        })
        .await;
    let status = agent.status.clone().unwrap();
    assert_eq!(status.replicas.unwrap().ready, 1);
    assert_eq!(status.active_version.as_deref(), Some("1.0.0"));
    assert_eq!(status.service_endpoint.as_deref(), Some("127.0.0.1:7480"));
    assert!(has(&agent, "Ready", "True RuntimeReady") && has(&agent, "ServiceReady", "True ServiceCreated"));

    let reasons: Vec<String> = world
        .events("AgentRuntime", "helpdesk", 2)
        .await
        .into_iter()
        .map(|(reason, _)| reason)
        .collect();
    assert_eq!(
        reasons,
        ["PromptPackNotFound", "ProviderNotFound"],
        "one Event per transition (OM-295)"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_told_its_tools_and_models_om_267() {
    let world = World::start().await;
    let agent = running(&world, None).await;
    assert!(has(&agent, "HandlersSupported", "True AllHandlersSupported"));
    assert!(has(&agent, "ToolsAllowlisted", "True AllToolsListed"));
    let tools: ConfigMap = world.get("helpdesk-tools").await;
    let tools = ToolsConfig::parse(&tools.data.unwrap()["tools.yaml"]).unwrap();
    assert_eq!((tools.registry.as_str(), tools.handlers.len()), ("orders", 1));
    let providers: ConfigMap = world.get("helpdesk-providers").await;
    let providers = ProvidersConfig::parse(&providers.data.unwrap()["providers.yaml"]).unwrap();
    assert_eq!(
        (
            providers.providers[0].namespace.as_str(),
            providers.providers[0].provider.as_str(),
            providers.providers[0].kind.as_str()
        ),
        ("default", "model", "mock")
    );
    let service: Service = world.get("helpdesk").await;
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 8080);

    // Everything generated goes with the agent (OM-250).
    world.delete::<AgentRuntime>("helpdesk").await;
    world.until_gone::<Deployment>("helpdesk").await;
    world.until_gone::<ConfigMap>("helpdesk-tools").await;
    world.until_gone::<Secret>("helpdesk-tool-secrets").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_provider_fails_the_agent_and_its_return_restores_it_om_259_om_260() {
    let world = World::start().await;
    running(&world, None).await;
    let before: Deployment = world.get("helpdesk").await;
    world.delete::<Provider>("model").await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            phase(agent) == Some(Phase::Failed)
        })
        .await;
    assert!(has(&agent, "ProviderReady", "False ProviderNotFound"));
    let after: Deployment = world.get("helpdesk").await;
    assert_eq!(
        after.resource_version(),
        before.resource_version(),
        "the workload is left exactly as it is (DD-6)"
    );
    world.create::<Provider>(mock()).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            phase(agent) == Some(Phase::Running)
        })
        .await;
    assert!(has(&agent, "ProviderReady", "True ProviderFound"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_not_ready_blocks_without_touching_the_workload_v_42() {
    let world = World::start().await;
    running(&world, None).await;
    let before: Deployment = world.get("helpdesk").await;
    let missing =
        json!({ "metadata": { "annotations": { "mainstay.dev/scenario": "nowhere/scenario.yaml" } } });
    world.merge::<Provider>("model", missing).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ProviderReady", "False ProviderNotReady")
        })
        .await;
    assert_eq!(phase(&agent), Some(Phase::Pending));
    let after: Deployment = world.get("helpdesk").await;
    assert_eq!(after.resource_version(), before.resource_version());
    let scenario = "turns:\n- default: true\n  steps:\n  - text: hello\n";
    world
        .create::<ConfigMap>(
            json!({ "metadata": { "name": "nowhere" }, "data": { "scenario.yaml": scenario } }),
        )
        .await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            phase(agent) == Some(Phase::Running)
        })
        .await;
    let deployment: Deployment = world.get("helpdesk").await;
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let mounted = pod.containers[0]
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.mount_path == "/etc/omnia/scenarios/default");
    assert!(mounted, "the scenario is mounted");
}

fn config_hash(deployment: &Deployment) -> String {
    let template = &deployment.spec.as_ref().unwrap().template;
    template.metadata.as_ref().unwrap().annotations.as_ref().unwrap()["omnia.altairalabs.ai/config-hash"]
        .clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_registry_restarts_the_agent_without_tools_v_43() {
    let world = World::start().await;
    running(&world, None).await;
    let before = config_hash(&world.get("helpdesk").await);
    world.delete::<ToolRegistry>("orders").await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ToolRegistryReady", "False ToolRegistryNotFound")
        })
        .await;
    assert_eq!(phase(&agent), Some(Phase::Running));
    let deployment = world
        .until("helpdesk", |deployment: &Deployment| {
            config_hash(deployment) != before
        })
        .await;
    assert_eq!(config_hash(&deployment).len(), 16, "OM-269");
    let tools: ConfigMap = world.get("helpdesk-tools").await;
    assert!(
        ToolsConfig::parse(&tools.data.unwrap()["tools.yaml"])
            .unwrap()
            .handlers
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_prompt_reaches_the_workload_om_269() {
    let world = World::start().await;
    running(&world, None).await;
    let before = config_hash(&world.get("helpdesk").await);
    let edited = crate::world::content(&["get_order"]).replace("You help.", "You help gladly.");
    world
        .merge::<ConfigMap>("helpdesk-pack", json!({ "data": { "pack.json": edited } }))
        .await;
    world
        .until("helpdesk", |deployment: &Deployment| {
            config_hash(deployment) != before
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_is_made_again_with_another_spec_replaces_the_pods_om_269() {
    let world = World::start().await;
    running(&world, None).await;
    let before: Deployment = world.get("helpdesk").await;
    // What is made again counts its generations from one again.
    world.delete::<Provider>("model").await;
    let mut other = mock();
    other["spec"]["model"] = json!("other");
    world.create::<Provider>(other).await;
    let deployment = world
        .until("helpdesk", |deployment: &Deployment| {
            config_hash(deployment) != config_hash(&before)
        })
        .await;

    let tools = world.get::<ConfigMap>("helpdesk-tools").await.resource_version();
    let with_other = config_hash(&deployment);
    world.delete::<ToolRegistry>("orders").await;
    let mut other = registry(None);
    other["spec"]["handlers"][0]["httpConfig"]["endpoint"] = json!("http://elsewhere/");
    world.create::<ToolRegistry>(other).await;
    world
        .until("helpdesk-tools", |map: &ConfigMap| {
            map.resource_version() != tools && map.data.as_ref().unwrap()["tools.yaml"].contains("elsewhere")
        })
        .await;
    world
        .until("helpdesk", |deployment: &Deployment| {
            let hash = config_hash(deployment);
            hash != with_other && hash != config_hash(&before)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_the_pods_do_not_read_replaces_none_om_269() {
    let world = World::start().await;
    running(&world, None).await;
    let before = config_hash(&world.get("helpdesk").await);
    world
        .merge::<ToolRegistry>(
            "orders",
            json!({ "spec": { "probe": { "enabled": false, "interval": "7m" } } }),
        )
        .await;
    // Whatever reconcile sees this sees the registry's new generation too.
    world
        .merge::<AgentRuntime>("helpdesk", json!({ "spec": { "runtime": { "replicas": 2 } } }))
        .await;
    let after = world
        .until("helpdesk", |deployment: &Deployment| {
            deployment.spec.as_ref().unwrap().replicas == Some(2)
        })
        .await;
    assert_eq!(config_hash(&after), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_tool_credential_stops_the_build_until_it_is_there_om_276_om_277() {
    let world = World::start().await;
    let auth = json!({ "type": "bearer", "secretRef": { "name": "api", "key": "token" } });
    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    world.create::<Provider>(mock()).await;
    world.create::<ToolRegistry>(registry(Some(auth))).await;
    world.create::<AgentRuntime>(agent()).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "DeploymentReady", "False ToolAuthUnsupported")
        })
        .await;
    assert!(
        world
            .api::<Deployment>()
            .get_opt("helpdesk")
            .await
            .unwrap()
            .is_none()
    );
    let message = serde_json::to_string(&agent.status).unwrap();
    assert!(
        message.contains("\\\"api\\\""),
        "the message names the Secret: {message}"
    );

    let secret = |value: &str| json!({ "metadata": { "name": "api" }, "stringData": { "token": value } });
    world.create::<Secret>(secret("first")).await;
    let value = |secret: &Secret| {
        secret
            .data
            .as_ref()
            .and_then(|data| data.get("get-order"))
            .map(|value| value.0.clone())
    };
    world
        .until("helpdesk-tool-secrets", |secret: &Secret| {
            value(secret) == Some(b"first".to_vec())
        })
        .await;
    let before = config_hash(&world.until::<Deployment>("helpdesk", |_| true).await);
    world.merge::<Secret>("api", secret("second")).await;
    world
        .until("helpdesk-tool-secrets", |secret: &Secret| {
            value(secret) == Some(b"second".to_vec())
        })
        .await;
    let after: Deployment = world.get("helpdesk").await;
    assert_eq!(
        config_hash(&after),
        before,
        "a rotated credential needs no restart"
    );
    let tools: ConfigMap = world.get("helpdesk-tools").await;
    assert!(
        !serde_json::to_string(&tools).unwrap().contains("second"),
        "OM-274"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_edits_or_deletes_of_the_workload_is_repaired_om_253() {
    let world = World::start().await;
    running(&world, None).await;
    world
        .merge::<Deployment>("helpdesk", json!({ "spec": { "replicas": 5 } }))
        .await;
    world
        .until("helpdesk", |deployment: &Deployment| {
            deployment.spec.as_ref().unwrap().replicas == Some(1)
        })
        .await;
    let uid = world.get::<Service>("helpdesk").await.uid();
    world
        .api::<Service>()
        .delete("helpdesk", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world
        .until("helpdesk", |service: &Service| service.uid() != uid)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_somebody_else_is_not_taken_over() {
    let world = World::start().await;
    world
        .create::<Service>(
            json!({ "metadata": { "name": "helpdesk" }, "spec": { "ports": [{ "port": 1 }] } }),
        )
        .await;
    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    world.create::<Provider>(mock()).await;
    world.create::<AgentRuntime>(agent()).await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ServiceReady", "False ServiceFailed")
        })
        .await;
    let service: Service = world.get("helpdesk").await;
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 1);
    world
        .api::<Service>()
        .delete("helpdesk", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ServiceReady", "True ServiceCreated")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_changes_a_key_of_a_list_is_repaired_and_blocks_nothing_om_253() {
    let world = World::start().await;
    running(&world, None).await;
    let edited = json!({ "spec": {
        "type": "NodePort",
        "ports": [{ "name": "facade", "port": 9999, "targetPort": 1 }],
    } });
    world.merge::<Service>("helpdesk", edited).await;
    world
        .until("helpdesk", |service: &Service| {
            let spec = service.spec.as_ref().unwrap();
            let ports: Vec<i32> = spec.ports.iter().flatten().map(|port| port.port).collect();
            ports == [8080] && spec.type_.as_deref() == Some("ClusterIP")
        })
        .await;
    // A container beside ours, a variable and a volume of somebody else's; our own container under another name.
    let before: Deployment = world.get("helpdesk").await;
    for added in [
        json!([
            { "op": "add", "path": "/spec/template/spec/containers/-", "value": { "name": "side", "image": "x" } },
            { "op": "add", "path": "/spec/template/spec/containers/0/env/-", "value": { "name": "X", "value": "y" } },
            { "op": "add", "path": "/spec/template/spec/volumes/-", "value": { "name": "x", "emptyDir": {} } },
        ]),
        json!([{ "op": "replace", "path": "/spec/template/spec/containers/0/name", "value": "other" }]),
    ] {
        let patch = kube::api::Patch::Json::<()>(serde_json::from_value(added).unwrap());
        world
            .api::<Deployment>()
            .patch("helpdesk", &kube::api::PatchParams::default(), &patch)
            .await
            .unwrap();
        world
            .until("helpdesk", |deployment: &Deployment| {
                let template =
                    |deployment: &Deployment| deployment.spec.as_ref().unwrap().template.spec.clone();
                template(deployment) == template(&before)
            })
            .await;
    }
    // A later change of the agent still gets through.
    world
        .merge::<AgentRuntime>(
            "helpdesk",
            json!({ "spec": { "facades": [{ "type": "websocket", "port": 8090 }] } }),
        )
        .await;
    world
        .until("helpdesk", |service: &Service| {
            let ports = service.spec.as_ref().unwrap().ports.iter().flatten();
            ports.map(|port| port.port).collect::<Vec<_>>() == [8090]
        })
        .await;
    let agent: AgentRuntime = world.get("helpdesk").await;
    assert!(has(&agent, "ServiceReady", "True ServiceCreated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_lost_its_owner_and_data_that_was_added_are_repaired_om_250_om_253() {
    let world = World::start().await;
    let agent = running(&world, None).await;
    world
        .merge::<Deployment>("helpdesk", json!({ "metadata": { "ownerReferences": null } }))
        .await;
    world
        .until("helpdesk", |deployment: &Deployment| {
            let owners = deployment.owner_references();
            owners
                .iter()
                .any(|owner| Some(&owner.uid) == agent.metadata.uid.as_ref())
        })
        .await;
    world
        .merge::<ConfigMap>("helpdesk-tools", json!({ "data": { "evil": "x" } }))
        .await;
    world
        .until("helpdesk-tools", |config_map: &ConfigMap| {
            config_map.data.as_ref().unwrap().keys().eq(["tools.yaml"])
        })
        .await;
    let command =
        json!([{ "op": "add", "path": "/spec/template/spec/containers/0/command", "value": ["sh"] }]);
    let patch = kube::api::Patch::Json::<()>(serde_json::from_value(command).unwrap());
    world
        .api::<Deployment>()
        .patch("helpdesk", &kube::api::PatchParams::default(), &patch)
        .await
        .unwrap();
    world
        .until("helpdesk", |deployment: &Deployment| {
            let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
            pod.containers[0].command.is_none()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_pack_with_broken_content_is_said_by_the_agent_om_166() {
    let world = World::start().await;
    world
        .create::<ConfigMap>(json!({ "metadata": { "name": "live" }, "data": { "pack.json": "not JSON" } }))
        .await;
    world
        .create::<mainstay_resources::omnia::PromptPack>(json!({
            "metadata": { "name": "live" },
            "spec": {
                "packName": "helpdesk", "version": "1.0.0",
                "source": { "type": "live", "live": { "configMapRef": { "name": "live" } } },
            },
        }))
        .await;
    world.create::<Provider>(mock()).await;
    world.create::<AgentRuntime>(agent()).await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "Ready", "False PromptPackInvalid") && phase(agent) == Some(Phase::Failed)
        })
        .await;
    world
        .merge::<ConfigMap>(
            "live",
            json!({ "data": { "pack.json": crate::world::content(&["get_order"]) } }),
        )
        .await;
    world.until::<Deployment>("helpdesk", |_| true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pack_that_cannot_be_run_is_said_by_the_agent_om_561_om_565() {
    let world = World::start().await;
    running(&world, None).await;
    let before: Deployment = world.get("helpdesk").await;
    let pack = |prompts: Value| {
        let mut pack: Value = serde_json::from_str(&crate::world::content(&["get_order"])).unwrap();
        pack["prompts"] = prompts;
        json!({ "data": { "pack.json": pack.to_string() } })
    };
    let prompt = |validators: Value| {
        json!({
            "id": "p", "name": "p", "version": "1.0.0", "system_template": "You help.", "validators": validators,
        })
    };
    let cases = [
        (
            json!({ "x": prompt(json!([])), "y": prompt(json!([])) }),
            "PromptAmbiguous",
            "x, y",
        ),
        (
            json!({ "x": prompt(json!([{ "type": "zzz", "enabled": true }])) }),
            "GuardrailNotSupported",
            "zzz",
        ),
    ];
    for (prompts, reason, named) in cases {
        world.merge::<ConfigMap>("helpdesk-pack", pack(prompts)).await;
        let wanted = format!("False {reason}");
        let agent = world
            .until("helpdesk", |agent: &AgentRuntime| {
                has(agent, "PromptPackReady", &wanted)
            })
            .await;
        assert!(has(&agent, "Ready", &wanted) && phase(&agent) == Some(Phase::Pending));
        let conditions = agent.status.unwrap().conditions;
        let ready = conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        assert!(ready.message.contains(named), "{}", ready.message);
        assert_eq!(condition(&conditions, "ProviderReady"), "", "not judged (OM-258)");
    }
    let after: Deployment = world.get("helpdesk").await;
    assert_eq!(
        after.resource_version(),
        before.resource_version(),
        "the workload is left exactly as it is (DD-6)"
    );
    world
        .merge::<ConfigMap>("helpdesk-pack", pack(json!({ "x": prompt(json!([])) })))
        .await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "PromptPackReady", "True PromptPackFound") && phase(agent) == Some(Phase::Running)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_was_withdrawn_is_not_used_any_longer_om_403() {
    let world = World::start().await;
    let auth = json!({ "type": "bearer", "secretRef": { "name": "api", "key": "token" } });
    world
        .create::<Secret>(json!({ "metadata": { "name": "api" }, "stringData": { "token": "old" } }))
        .await;
    running(&world, Some(auth)).await;
    let holds = |secret: &Secret| secret.data.iter().flatten().any(|(key, _)| key == "get-order");
    assert!(holds(&world.get("helpdesk-tool-secrets").await));
    world.delete::<Secret>("api").await;
    world
        .until("helpdesk-tool-secrets", |secret: &Secret| !holds(secret))
        .await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "DeploymentReady", "False ToolAuthUnsupported")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_says_why_its_pod_does_not_run_om_284() {
    let world = World::start().await;
    running(&world, None).await;
    pods_are_ready(&world, 0).await;
    let labels = world
        .get::<Deployment>("helpdesk")
        .await
        .spec
        .unwrap()
        .template
        .metadata
        .unwrap()
        .labels;
    world
        .create::<Pod>(json!({
            "metadata": { "name": "helpdesk-1", "labels": labels },
            "spec": { "containers": [{ "name": "agent", "image": "mainstay" }] },
        }))
        .await;
    let ended = json!({ "status": { "containerStatuses": [{
        "name": "agent", "image": "mainstay", "imageID": "", "ready": false, "restartCount": 1,
        "state": { "waiting": { "reason": "CrashLoopBackOff" } },
        "lastState": { "terminated": { "exitCode": 1, "message": "ScenarioInvalid: line 3" } },
    }] } });
    world.merge_status::<Pod>("helpdesk-1", ended).await;
    world
        .until("helpdesk", |agent: &AgentRuntime| {
            let conditions = &agent.status.as_ref().unwrap().conditions;
            conditions.iter().any(|condition| {
                condition.type_ == "Ready" && condition.message.contains("ScenarioInvalid: line 3")
            })
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_mock_answers_in_place_of_the_providers_when_asked_to_om_272() {
    let world = World::with(|_| {}, |options| options.service_endpoint = None).await;
    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    let (base, _server) = crate::providers::server().await;
    world
        .create::<Provider>(json!({
            "metadata": { "name": "model" },
            "spec": { "type": "openai", "model": "m", "baseURL": base, "credential": { "envVar": "KEY" } },
        }))
        .await;
    let mut mocked = agent();
    mocked["metadata"]["annotations"] = json!({ "omnia.altairalabs.ai/mock-provider": "true" });
    world.create::<AgentRuntime>(mocked).await;
    world.until::<Deployment>("helpdesk", |_| true).await;
    let kind = |config_map: &ConfigMap| {
        let text = &config_map.data.as_ref().unwrap()["providers.yaml"];
        ProvidersConfig::parse(text).unwrap().providers[0].kind.clone()
    };
    assert_eq!(kind(&world.get("helpdesk-providers").await), "mock");
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "ProviderReady", "True ProviderFound")
        })
        .await;
    assert!(
        serde_json::to_string(&agent.status)
            .unwrap()
            .contains("the mock answers")
    );
    world
        .merge::<AgentRuntime>(
            "helpdesk",
            json!({ "metadata": { "annotations": { "omnia.altairalabs.ai/mock-provider": null } } }),
        )
        .await;
    world
        .until("helpdesk-providers", |config_map: &ConfigMap| {
            kind(config_map) == "openai"
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_that_are_not_served_are_named_in_a_condition() {
    let world = World::start().await;
    world.publish("helpdesk-pack", "helpdesk", "1.0.0").await;
    world.create::<Provider>(mock()).await;
    let mut with_platform = registry(None);
    with_platform["spec"]["handlers"]
        .as_array_mut()
        .unwrap()
        .push(json!({
            "name": "users", "type": "platform", "platform": { "service": "discovery" },
        }));
    world.create::<ToolRegistry>(with_platform).await;
    world.create::<AgentRuntime>(agent()).await;
    let agent = world
        .until("helpdesk", |agent: &AgentRuntime| {
            has(agent, "HandlersSupported", "False HandlerTypeNotSupported")
        })
        .await;
    let conditions = serde_json::to_string(&agent.status.unwrap().conditions).unwrap();
    assert!(conditions.contains("users"), "{conditions}");
}
