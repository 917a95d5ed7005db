#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret, Service},
};
use mainstay_resources::omnia::PromptPack;
use mainstay_telemetry::{clock, random};
use mainstay_workload::{Connector, connector::NoServices};

use super::*;

fn options() -> ControllersOptions {
    ControllersOptions {
        image: "mainstay".into(),
        service_endpoint: None,
        policy_engine: true,
        connector: Connector::direct().unwrap(),
        resolver: Arc::new(NoServices),
        environment: BTreeMap::new(),
        clock: clock::system(),
        random: random::system(),
    }
}

fn agent(extra: Value) -> AgentRuntime {
    let mut spec = json!({ "promptPackRef": { "name": "p" }, "facades": [{ "drainTimeout": "20m" }] });
    spec.as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    let mut agent = AgentRuntime::new("helpdesk", serde_json::from_value(spec).unwrap());
    agent.metadata.namespace = Some("default".into());
    agent.metadata.uid = Some("uid".into());
    agent
}

fn gathered() -> Gathered {
    let pack = json!({ "packName": "p", "version": "1.2.3", "source": { "type": "configmap", "configMapRef": { "name": "c" } } });
    let mut models = super::super::models::Models::default();
    models.secrets.push(Mount {
        entry: "default".into(),
        object: "s".into(),
        key: "api-key".into(),
        digest: "d".into(),
    });
    Gathered {
        pack: PromptPack::new("p", serde_json::from_value(pack).unwrap()),
        pack_config_map: "c".into(),
        tools_file: "tools".into(),
        models,
        providers_file: "providers".into(),
        tool_secrets: [("orders".to_owned(), ByteString(b"hunter2".to_vec()))].into(),
        tool_tokens: BTreeMap::new(),
        config_hash: "0123456789abcdef".into(),
    }
}

#[test]
fn each_handlers_token_is_projected_for_its_audience_om_069_om_400() {
    let mut gathered = gathered();
    let without = build(&agent(json!({})), &gathered, &options()).deployment;
    assert!(!without.to_string().contains("serviceAccountToken"));
    gathered.tool_tokens = [("orders".to_owned(), "crm".to_owned())].into();
    let built = build(&agent(json!({})), &gathered, &options()).deployment;
    let deployment: Deployment = serde_json::from_value(built).unwrap();
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    let volumes = pod.volumes.unwrap();
    let volume = volumes
        .iter()
        .find(|volume| volume.name == "tool-tokens")
        .unwrap();
    let sources = volume.projected.as_ref().unwrap().sources.as_ref().unwrap();
    let token = sources[0].service_account_token.as_ref().unwrap();
    assert_eq!(
        (
            token.audience.as_deref(),
            token.expiration_seconds,
            token.path.as_str()
        ),
        (Some("crm"), Some(3600), "orders")
    );
    let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
    let mount = mounts.iter().find(|mount| mount.name == "tool-tokens").unwrap();
    assert_eq!(mount.mount_path, "/var/run/secrets/omnia/tool-tokens");
}

fn objects(extra: Value) -> Objects {
    build(&agent(extra), &gathered(), &options())
}

#[test]
fn objects_have_the_form_of_their_kinds_and_belong_to_the_agent_om_267() {
    let objects = objects(json!({}));
    let deployment: Deployment = serde_json::from_value(objects.deployment.clone()).unwrap();
    let _: Service = serde_json::from_value(objects.service.clone()).unwrap();
    let tools: ConfigMap = serde_json::from_value(objects.tools.clone()).unwrap();
    let secret: Secret = serde_json::from_value(objects.tool_secrets.clone()).unwrap();
    assert_eq!(tools.metadata.name.as_deref(), Some("helpdesk-tools"));
    assert_eq!(tools.data.unwrap()["tools.yaml"], "tools");
    let providers: ConfigMap = serde_json::from_value(objects.providers.clone()).unwrap();
    assert_eq!(providers.data.unwrap()["providers.yaml"], "providers");
    assert_eq!(secret.metadata.name.as_deref(), Some("helpdesk-tool-secrets"));
    assert_eq!(secret.data.unwrap()["orders"].0, b"hunter2");
    for object in [
        &objects.deployment,
        &objects.service,
        &objects.tools,
        &objects.providers,
        &objects.tool_secrets,
    ] {
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!(
            (owner["kind"].as_str(), owner["controller"].as_bool()),
            (Some("AgentRuntime"), Some(true))
        );
    }
    let template = deployment.spec.unwrap().template;
    let annotations = template.metadata.unwrap().annotations.unwrap();
    assert_eq!(
        annotations["omnia.altairalabs.ai/config-hash"], "0123456789abcdef",
        "OM-269"
    );
}

#[test]
fn the_pack_says_how_many_skills_are_active_om_168() {
    let variable = |gathered: &Gathered| {
        let deployment = build(&agent(json!({})), gathered, &options()).deployment;
        let environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"].clone();
        let variables = environment.as_array().unwrap().iter();
        let mut values = variables.filter(|variable| variable["name"] == "MAINSTAY_ACTIVE_SKILLS");
        values.next().map(|variable| variable["value"].clone())
    };
    let mut gathered = gathered();
    assert_eq!(variable(&gathered), None);
    gathered.pack.spec.skills_config = Some(serde_json::from_value(json!({ "maxActive": 2 })).unwrap());
    assert_eq!(variable(&gathered), Some(json!("2")));
}

#[test]
fn the_container_is_the_agent_role_with_its_files_and_variables_om_271_om_272() {
    let objects = objects(json!({
        "runtime": { "replicas": 3, "extraEnv": [{ "name": "OMNIA_VARIANT", "value": "mine" }, { "name": "A", "value": "b" }] },
    }));
    let deployment: Deployment = serde_json::from_value(objects.deployment).unwrap();
    let spec = deployment.spec.unwrap();
    assert_eq!(spec.replicas, Some(3));
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.termination_grace_period_seconds, Some(600), "OM-125");
    let container = &pod.containers[0];
    assert_eq!(
        (container.image.as_deref(), container.args.as_deref().unwrap()),
        (Some("mainstay"), &["agent".to_owned()][..])
    );
    let environment: BTreeMap<_, _> = container
        .env
        .iter()
        .flatten()
        .map(|variable| (variable.name.as_str(), variable.value.as_deref().unwrap()))
        .collect();
    for (name, value) in [
        ("OMNIA_AGENT_NAME", "helpdesk"),
        ("OMNIA_NAMESPACE", "default"),
        ("OMNIA_FACADE_PORT", "8080"),
        ("OMNIA_HANDLER_MODE", "runtime"),
        ("OMNIA_PROMPTPACK_PATH", "/etc/omnia/pack/pack.json"),
        ("OMNIA_PROMPTPACK_VERSION", "1.2.3"),
        ("OMNIA_TOOLS_CONFIG_PATH", "/etc/omnia/tools/tools.yaml"),
        (
            "OMNIA_PROVIDERS_CONFIG_PATH",
            "/etc/omnia/providers/providers.yaml",
        ),
        ("OMNIA_VARIANT", "mine"),
        ("A", "b"),
    ] {
        assert_eq!(environment.get(name), Some(&value), "{name}");
    }
    let mounts: BTreeMap<_, _> = container
        .volume_mounts
        .iter()
        .flatten()
        .map(|mount| (mount.mount_path.as_str(), mount.read_only))
        .collect();
    for path in [
        "/etc/omnia/pack",
        "/etc/omnia/tools",
        "/etc/omnia/providers",
        "/etc/omnia/tool-secrets",
        "/var/run/secrets/omnia/providers/default",
    ] {
        assert_eq!(mounts.get(path), Some(&Some(true)), "{path}");
    }
    assert_eq!(pod.volumes.unwrap().len(), mounts.len());
}

#[test]
fn no_credential_is_in_a_config_map_or_the_pod_om_274() {
    let objects = objects(json!({}));
    for object in [
        &objects.tools,
        &objects.providers,
        &objects.deployment,
        &objects.service,
    ] {
        assert!(!object.to_string().contains("hunter2"));
    }
}
