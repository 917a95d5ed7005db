//! The objects generated for an agent (OM-267 … OM-275). Pure.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use kube::{Resource, ResourceExt};
use mainstay_resources::{
    duration::parse_go,
    names,
    omnia::{
        AgentRuntime,
        agent_runtime::{Facade, FacadeType},
    },
};
use serde_json::{Value, json};

use super::{
    gather::Gathered,
    models::{Mount, are_mocked},
};
use crate::options::ControllersOptions;

/// Largest time that a pod gets to finish its connections, in seconds (OM-125).
const LONGEST_DRAIN: u64 = 600;

/// How long a tool's ServiceAccount token lasts, in seconds. Whoever mounts it replaces it long before.
const TOKEN_SECONDS: u32 = 3600;

/// Everything that is applied for an agent. Not `Debug`: it holds credentials.
pub(super) struct Objects {
    pub(super) tools: Value,
    pub(super) providers: Value,
    pub(super) tool_secrets: Value,
    pub(super) deployment: Value,
    pub(super) service: Value,
}

/// Builds the objects.
pub(super) fn build(agent: &AgentRuntime, gathered: &Gathered, options: &ControllersOptions) -> Objects {
    let name = agent.name_any();
    Objects {
        tools: object(
            agent,
            "v1",
            "ConfigMap",
            &names::tools_config_map(&name),
            json!({
                "data": { names::TOOLS_KEY: gathered.tools_file },
            }),
        ),
        providers: object(
            agent,
            "v1",
            "ConfigMap",
            &names::providers_config_map(&name),
            json!({
                "data": { names::PROVIDERS_KEY: gathered.providers_file },
            }),
        ),
        tool_secrets: tool_secrets(agent, &gathered.tool_secrets),
        deployment: object(
            agent,
            "apps/v1",
            "Deployment",
            &name,
            json!({
                "spec": deployment(agent, gathered, options),
            }),
        ),
        service: object(
            agent,
            "v1",
            "Service",
            &name,
            json!({
                "spec": {
                    "type": "ClusterIP",
                    "selector": names::selector_labels(&name),
                    "ports": agent.spec.facades.iter().map(|facade| json!({
                        "name": port_name(facade),
                        "port": facade.port,
                        "targetPort": port_name(facade),
                        "protocol": "TCP",
                    })).collect::<Vec<_>>(),
                },
            }),
        ),
    }
}

/// The Secret with the credentials of an agent's tools (OM-275).
pub(super) fn tool_secrets(agent: &AgentRuntime, values: &BTreeMap<String, ByteString>) -> Value {
    object(
        agent,
        "v1",
        "Secret",
        &names::tool_secrets(&agent.name_any()),
        json!({ "type": "Opaque", "data": secret_data(values) }),
    )
}

fn secret_data(values: &BTreeMap<String, ByteString>) -> Value {
    // ByteString serializes as base64, as the field wants it.
    values
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// An object that belongs to the agent and goes with it.
fn object(agent: &AgentRuntime, api_version: &str, kind: &str, name: &str, content: Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": agent.namespace(),
            "labels": names::object_labels(&agent.name_any()),
            "ownerReferences": [agent.controller_owner_ref(&())],
        },
    });
    if let (Value::Object(object), Value::Object(content)) = (&mut object, content) {
        object.extend(content);
    }
    object
}

/// Container port of a facade. The agent's own facade has the name that does not depend on its protocol.
fn port_name(facade: &Facade) -> &'static str {
    match facade.kind {
        FacadeType::WebSocket => "facade",
        other => other.as_str(),
    }
}

fn deployment(agent: &AgentRuntime, gathered: &Gathered, options: &ControllersOptions) -> Value {
    let name = agent.name_any();
    let runtime = agent.spec.runtime.as_ref();
    let mut annotations = agent.spec.extra_pod_annotations.clone();
    annotations.insert(
        names::CONFIG_HASH_ANNOTATION.to_owned(),
        gathered.config_hash.clone(),
    );
    json!({
        "replicas": runtime.map_or(1, |runtime| runtime.replicas),
        "selector": { "matchLabels": names::selector_labels(&name) },
        "template": {
            "metadata": {
                "labels": names::pod_labels(&name, agent.spec.mode.as_str()),
                "annotations": annotations,
            },
            "spec": pod(agent, gathered, options),
        },
    })
}

fn pod(agent: &AgentRuntime, gathered: &Gathered, options: &ControllersOptions) -> Value {
    let mounts = Mounts::new(agent, gathered);
    let runtime = agent.spec.runtime.as_ref();
    let mut container = json!({
        "name": "agent",
        "image": options.image,
        "args": ["agent"],
        "env": environment(agent, gathered),
        "ports": agent.spec.facades.iter().map(|facade| json!({
            "name": port_name(facade),
            "containerPort": facade.port,
            "protocol": "TCP",
        })).collect::<Vec<_>>(),
        "volumeMounts": mounts.mounts,
    });
    let mut pod = json!({
        "volumes": mounts.volumes,
        "terminationGracePeriodSeconds": drain_seconds(&agent.spec.facades),
    });
    if let Some(runtime) = runtime {
        if let Some(resources) = &runtime.resources {
            container["resources"] = resources.clone();
        }
        if !runtime.node_selector.is_empty() {
            pod["nodeSelector"] = json!(runtime.node_selector);
        }
        if !runtime.tolerations.is_empty() {
            pod["tolerations"] = json!(runtime.tolerations);
        }
        if let Some(affinity) = &runtime.affinity {
            pod["affinity"] = affinity.clone();
        }
    }
    pod["containers"] = json!([container]);
    pod
}

fn drain_seconds(facades: &[Facade]) -> u64 {
    facades
        .iter()
        .filter_map(|facade| parse_go(&facade.drain_timeout).ok())
        .map(|timeout| timeout.as_secs().min(LONGEST_DRAIN))
        .max()
        .unwrap_or(30)
}

/// OM-272. The user's own variables come last and win.
fn environment(agent: &AgentRuntime, gathered: &Gathered) -> Vec<Value> {
    let facade = agent.spec.facades.first();
    let text = |value: Option<String>| value.unwrap_or_default();
    let mut variables = vec![
        ("OMNIA_AGENT_NAME", agent.name_any()),
        ("OMNIA_NAMESPACE", text(agent.namespace())),
        (
            "OMNIA_FACADE_PORT",
            text(facade.map(|facade| facade.port.to_string())),
        ),
        ("OMNIA_HEALTH_PORT", "8081".to_owned()),
        ("OMNIA_VARIANT", "stable".to_owned()),
        (
            "OMNIA_HANDLER_MODE",
            text(facade.map(|facade| facade.handler.to_string())),
        ),
        (
            "OMNIA_CLIENT_TOOL_TIMEOUT",
            text(facade.map(|facade| facade.client_tool_timeout.clone())),
        ),
        (
            "OMNIA_DRAIN_TIMEOUT",
            text(facade.map(|facade| facade.drain_timeout.clone())),
        ),
        (
            "OMNIA_PROMPTPACK_PATH",
            format!("{}/pack.json", names::PACK_DIRECTORY),
        ),
        ("OMNIA_PROMPTPACK_NAME", gathered.pack.spec.pack_name.clone()),
        ("OMNIA_PROMPTPACK_VERSION", gathered.pack.spec.version.clone()),
        ("OMNIA_PROMPT_NAME", "default".to_owned()),
        (
            "OMNIA_TOOLS_CONFIG_PATH",
            format!("{}/{}", names::TOOLS_DIRECTORY, names::TOOLS_KEY),
        ),
        (
            "OMNIA_PROVIDERS_CONFIG_PATH",
            format!("{}/{}", names::PROVIDERS_DIRECTORY, names::PROVIDERS_KEY),
        ),
        ("POLICY_BROKER_FAIL_MODE", "closed".to_owned()),
    ];
    if let Some(context) = &agent.spec.context {
        variables.push(("OMNIA_CONTEXT_TTL", context.ttl.clone()));
    }
    if let Some(skills) = &gathered.pack.spec.skills_config {
        variables.push((names::ACTIVE_SKILLS_VARIABLE, skills.max_active.to_string()));
    }
    if are_mocked(agent) {
        variables.push(("OMNIA_MOCK_PROVIDER", "true".to_owned()));
    }
    let own = agent.spec.runtime.iter().flat_map(|runtime| &runtime.extra_env);
    let own = own.chain(agent.spec.facades.iter().flat_map(|facade| &facade.extra_env));
    let mut environment: Vec<Value> = variables
        .into_iter()
        .map(|(name, value)| json!({ "name": name, "value": value }))
        .collect();
    for variable in own {
        // Names are keys of the list, so a variable of the user's replaces ours.
        environment.retain(|existing| existing["name"] != variable["name"]);
        environment.push(variable.clone());
    }
    environment
}

#[derive(Default)]
struct Mounts {
    volumes: Vec<Value>,
    mounts: Vec<Value>,
}

impl Mounts {
    fn new(agent: &AgentRuntime, gathered: &Gathered) -> Self {
        let name = agent.name_any();
        let mut mounts = Mounts::default();
        let pack = json!({
            "name": gathered.pack_config_map,
            "items": [{ "key": "pack.json", "path": "pack.json" }],
        });
        mounts.add("pack".into(), "configMap", pack, names::PACK_DIRECTORY.into());
        let tools = json!({ "name": names::tools_config_map(&name) });
        mounts.add("tools".into(), "configMap", tools, names::TOOLS_DIRECTORY.into());
        let providers = json!({ "name": names::providers_config_map(&name) });
        mounts.add(
            "providers".into(),
            "configMap",
            providers,
            names::PROVIDERS_DIRECTORY.into(),
        );
        let secrets = json!({ "secretName": names::tool_secrets(&name) });
        mounts.add(
            "tool-secrets".into(),
            "secret",
            secrets,
            names::TOOL_SECRETS_DIRECTORY.into(),
        );
        if !gathered.tool_tokens.is_empty() {
            let sources: Vec<Value> = gathered
                .tool_tokens
                .iter()
                .map(|(handler, audience)| {
                    json!({ "serviceAccountToken": {
                        "audience": audience, "expirationSeconds": TOKEN_SECONDS, "path": handler,
                    } })
                })
                .collect();
            let folder = names::TOOL_TOKENS_DIRECTORY.into();
            mounts.add(
                "tool-tokens".into(),
                "projected",
                json!({ "sources": sources }),
                folder,
            );
        }
        // Volume names are short, entry names may not be.
        for (index, mount) in gathered.models.secrets.iter().enumerate() {
            let source = json!({ "secretName": mount.object, "items": items(mount) });
            let folder = format!("{}/{}", names::PROVIDER_SECRETS_DIRECTORY, mount.entry);
            mounts.add(format!("provider-secret-{index}"), "secret", source, folder);
        }
        for (index, mount) in gathered.models.scenarios.iter().enumerate() {
            let source = json!({ "name": mount.object, "items": items(mount) });
            let folder = format!("{}/{}", names::SCENARIOS_DIRECTORY, mount.entry);
            mounts.add(format!("scenario-{index}"), "configMap", source, folder);
        }
        if let Some(runtime) = &agent.spec.runtime {
            mounts.volumes.extend(runtime.volumes.iter().cloned());
            mounts.mounts.extend(runtime.volume_mounts.iter().cloned());
        }
        mounts
    }

    fn add(&mut self, name: String, source: &str, value: Value, folder: String) {
        self.mounts
            .push(json!({ "name": name, "mountPath": folder, "readOnly": true }));
        self.volumes.push(json!({ "name": name, source: value }));
    }
}

fn items(mount: &Mount) -> Value {
    json!([{ "key": mount.key, "path": mount.key }])
}

#[cfg(test)]
mod tests;
