//! `mainstay status`

use kube::{Api, Client, ResourceExt, api::ListParams};
use mainstay_resources::omnia::{AgentRuntime, PromptPack, Provider, ToolPolicy, ToolRegistry};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    applying::{self, cause},
    arguments::StatusArguments,
    cluster,
    commands::up,
    endpoints::Endpoints,
    terminal,
    terminal::Failure,
};

/// One object and how it is.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    namespace: String,
    name: String,
    phase: String,
    /// What blocks it; empty where nothing does.
    blocked: String,
}

/// Prints the server's addresses and every object of ours with its phase and what blocks it.
pub(crate) async fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let local = arguments.cluster.kubeconfig.is_none() && arguments.cluster.context.is_none();
    let endpoints = if local {
        Some(Endpoints::once_started(&arguments.cluster.data.data).await?)
    } else {
        None
    };
    let client = cluster::client(&arguments.cluster).await?;
    let mut rows = Vec::new();
    rows.extend(list::<AgentRuntime>(&client, "AgentRuntime").await?);
    rows.extend(list::<Provider>(&client, "Provider").await?);
    rows.extend(list::<PromptPack>(&client, "PromptPack").await?);
    rows.extend(list::<ToolRegistry>(&client, "ToolRegistry").await?);
    rows.extend(list::<ToolPolicy>(&client, "ToolPolicy").await?);
    if arguments.json {
        let server = endpoints.map(|endpoints| {
            json!({ "http": endpoints.http, "kubernetes": endpoints.kubernetes, "pid": endpoints.pid,
                    "version": endpoints.version, "kubeconfig": endpoints.kubeconfig })
        });
        terminal::data(json!({ "server": server, "objects": rows }).to_string());
        return Ok(());
    }
    if let Some(endpoints) = endpoints {
        terminal::data(format!(
            "Mainstay {} runs at {} (pid {}), Kubernetes API at {}",
            endpoints.version, endpoints.http, endpoints.pid, endpoints.kubernetes
        ));
    }
    if rows.is_empty() {
        terminal::data("no agents, providers, packs, registries or policies");
        return Ok(());
    }
    let mut table = vec![
        ["KIND", "NAMESPACE", "NAME", "PHASE", "BLOCKED BY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    table.extend(rows.into_iter().map(|row| {
        vec![
            row.kind.to_owned(),
            row.namespace,
            row.name,
            row.phase,
            row.blocked,
        ]
    }));
    terminal::data(terminal::table(&table));
    Ok(())
}

async fn list<K>(client: &Client, kind: &'static str) -> Result<Vec<Row>, Failure>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + serde::de::DeserializeOwned,
{
    let found = match Api::<K>::all(client.clone()).list(&ListParams::default()).await {
        Ok(found) => found,
        // The kind is not served there: ToolPolicy may be left out.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
        Err(error) => {
            return Err(Failure::new(format!(
                "{kind} objects cannot be listed: {}",
                cause(&error)
            )));
        }
    };
    found.items.iter().map(|object| row(kind, object)).collect()
}

fn row<K: kube::Resource + Serialize>(kind: &'static str, object: &K) -> Result<Row, Failure> {
    let value = serde_json::to_value(object)
        .map_err(|error| Failure::new(format!("{kind} {}: {error}", object.name_any())))?;
    let phase = value
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or("Pending")
        .to_owned();
    let healthy = matches!(phase.as_str(), "Running" | "Ready" | "Active" | "Superseded");
    let unselected = applying::condition(&value, "PolicyBound")
        .is_some_and(|bound| bound.get("status").and_then(Value::as_str) == Some("False"));
    let blocked = if !healthy {
        let text = up::blocked(&value);
        text.strip_prefix(&format!("{phase}: "))
            .unwrap_or_default()
            .to_owned()
    } else if unselected {
        "no ToolPolicy selects it: every call is refused".to_owned()
    } else {
        String::new()
    };
    Ok(Row {
        kind,
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        phase,
        blocked,
    })
}
