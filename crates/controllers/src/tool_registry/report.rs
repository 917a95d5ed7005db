//! What running agents miss of a registry's tools.
//!
//! Tools that a backend lists itself are known only to the agents, since no controller contacts a backend (OM-327,
//! OM-419, OM-426). An agent that misses some of them says so in a ConfigMap beside its Pod, which is the Pod's and goes
//! with it; the registry's controller watches these and repeats them in the registry's status (D6).

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{ConfigMap, Pod},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use mainstay_resources::{conditions::cut, names};
use mainstay_telemetry::text::escape;
use mainstay_tools::Unavailable;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{ReconcileError, is_not_found};

/// Owner of the fields of a report.
const FIELD_MANAGER: &str = "mainstay-agent";
/// Problems of one report, and the bytes of each message, so that a report is small whatever a backend lists.
const MAX_PROBLEMS: usize = 64;
const MESSAGE_LIMIT: usize = 1024;

/// What a handler lacks, in the runtime's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) handler: String,
    pub(super) reason: String,
    pub(super) message: String,
}

/// The content of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    agent: String,
    registry: String,
    problems: Vec<Problem>,
}

/// One agent's reports about its registry.
///
/// Made for the agent's role; the kinds of Kubernetes stop there.
pub struct Reporter {
    client: Client,
    namespace: String,
    pod: String,
    agent: String,
    registry: String,
    reported: Vec<Problem>,
}

impl std::fmt::Debug for Reporter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Reporter")
            .field("namespace", &self.namespace)
            .field("pod", &self.pod)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}

impl Reporter {
    /// Reports of `agent`, which runs as `pod`, about `registry`; all of them in `namespace`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, pod: &str, agent: &str, registry: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            pod: pod.to_owned(),
            agent: agent.to_owned(),
            registry: registry.to_owned(),
            reported: Vec::new(),
        }
    }

    /// Makes `problems` what is reported. Nothing is written when that is so already, and the report goes when there is
    /// none left.
    ///
    /// # Errors
    ///
    /// What the API says. The problems count as not reported, and the next call tries again.
    pub async fn report(&mut self, problems: &[Unavailable]) -> Result<(), ReconcileError> {
        let problems: Vec<Problem> = problems
            .iter()
            .take(MAX_PROBLEMS)
            .map(|problem| Problem {
                handler: problem.handler.clone(),
                reason: problem.reason.to_owned(),
                message: cut(escape(&problem.message, MESSAGE_LIMIT), MESSAGE_LIMIT),
            })
            .collect();
        if problems == self.reported {
            return Ok(());
        }
        if problems.is_empty() {
            self.withdraw().await?;
        } else {
            self.write(&problems).await?;
        }
        self.reported = problems;
        Ok(())
    }

    async fn write(&self, problems: &[Problem]) -> Result<(), ReconcileError> {
        let name = names::tool_report_config_map(&self.pod);
        let content = Content {
            agent: self.agent.clone(),
            registry: self.registry.clone(),
            problems: problems.to_vec(),
        };
        let content = serde_json::to_string(&content).map_err(|error| ReconcileError::Render {
            what: format!("ConfigMap {}/{name}", self.namespace),
            message: error.to_string(),
        })?;
        let mut labels = names::object_labels(&self.agent);
        labels.insert(
            names::COMPONENT_LABEL.to_owned(),
            names::TOOL_REPORT_COMPONENT.to_owned(),
        );
        let document = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": name, "labels": labels, "ownerReferences": [self.owner().await?] },
            "data": { names::TOOL_REPORT_KEY: content },
        });
        self.api()
            .patch(
                &name,
                &PatchParams::apply(FIELD_MANAGER).force(),
                &Patch::Apply(&document),
            )
            .await
            .map_err(ReconcileError::api(format!(
                "apply ConfigMap {}/{name}",
                self.namespace
            )))?;
        Ok(())
    }

    async fn withdraw(&self) -> Result<(), ReconcileError> {
        let name = names::tool_report_config_map(&self.pod);
        match self.api().delete(&name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => {
                let operation = format!("delete ConfigMap {}/{name}", self.namespace);
                Err(ReconcileError::api(operation)(error))
            }
        }
    }

    /// The Pod as owner: a Pod that is gone misses nothing.
    async fn owner(&self) -> Result<OwnerReference, ReconcileError> {
        let pod = Api::<Pod>::namespaced(self.client.clone(), &self.namespace)
            .get_metadata(&self.pod)
            .await
            .map_err(ReconcileError::api(format!(
                "read Pod {}/{}",
                self.namespace, self.pod
            )))?;
        Ok(OwnerReference {
            api_version: Pod::api_version(&()).into_owned(),
            kind: Pod::kind(&()).into_owned(),
            name: self.pod.clone(),
            uid: pod.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }

    fn api(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// The registry that a ConfigMap is a report about.
pub(super) fn registry_of(config_map: &ConfigMap) -> Option<String> {
    Some(read(config_map)?.registry)
}

fn read(config_map: &ConfigMap) -> Option<Content> {
    let component = config_map.labels().get(names::COMPONENT_LABEL)?;
    if component != names::TOOL_REPORT_COMPONENT {
        return None;
    }
    serde_json::from_str(config_map.data.as_ref()?.get(names::TOOL_REPORT_KEY)?).ok()
}

/// What the agents of a namespace miss of `registry`: each problem once, with the agents that have it, in the order of
/// the handlers' names.
pub(super) async fn missing(
    client: &Client,
    namespace: &str,
    registry: &str,
) -> Result<Vec<(Problem, Vec<String>)>, ReconcileError> {
    let selector = format!("{}={}", names::COMPONENT_LABEL, names::TOOL_REPORT_COMPONENT);
    let reports = Api::<ConfigMap>::namespaced(client.clone(), namespace)
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(ReconcileError::api(format!(
            "list the tool reports of {namespace}"
        )))?;
    Ok(gathered(&reports.items, registry))
}

fn gathered(reports: &[ConfigMap], registry: &str) -> Vec<(Problem, Vec<String>)> {
    let mut found: BTreeMap<(String, String, String), Vec<String>> = BTreeMap::new();
    let current = reports
        .iter()
        .filter(|report| report.metadata.deletion_timestamp.is_none())
        .filter_map(read)
        .filter(|content| content.registry == registry);
    for content in current {
        // Anybody who may write ConfigMaps here can write one: it is shown as data, and never at any length.
        for problem in content.problems.into_iter().take(MAX_PROBLEMS) {
            let shown = |text: &str| cut(escape(text, MESSAGE_LIMIT), MESSAGE_LIMIT);
            let key = (
                shown(&problem.handler),
                shown(&problem.reason),
                shown(&problem.message),
            );
            let agents = found.entry(key).or_default();
            let agent = shown(&content.agent);
            if !agents.contains(&agent) {
                agents.push(agent);
            }
        }
    }
    found
        .into_iter()
        .map(|((handler, reason, message), mut agents)| {
            agents.sort();
            (
                Problem {
                    handler,
                    reason,
                    message,
                },
                agents,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn report(component: &str, content: serde_json::Value) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": { "name": "r", "labels": { names::COMPONENT_LABEL: component } },
            "data": { names::TOOL_REPORT_KEY: content.to_string() },
        }))
        .unwrap()
    }

    fn content(agent: &str, registry: &str, message: &str) -> serde_json::Value {
        json!({ "agent": agent, "registry": registry,
            "problems": [{ "handler": "code", "reason": "ListingIncomplete", "message": message }] })
    }

    #[test]
    fn one_problem_of_several_agents_is_told_once_d6() {
        let component = names::TOOL_REPORT_COMPONENT;
        let reports = [
            report(component, content("b", "tools", "cut")),
            report(component, content("a", "tools", "cut")),
            report(component, content("a", "tools", "cut")),
            report(component, content("a", "others", "cut")),
            report("agent", content("c", "tools", "cut")),
            report(component, json!("nonsense")),
        ];
        let found = gathered(&reports, "tools");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0.handler, "code");
        assert_eq!(found[0].1, ["a", "b"]);
        assert_eq!(registry_of(&reports[3]).as_deref(), Some("others"));
        assert_eq!(registry_of(&reports[4]), None);
    }

    #[test]
    fn a_report_is_shown_as_data_and_in_bounds() {
        let long = format!("line\n{}", "x".repeat(10_000));
        let found = gathered(
            &[report(names::TOOL_REPORT_COMPONENT, content("a", "tools", &long))],
            "tools",
        );
        let message = &found[0].0.message;
        assert!(
            message.len() <= MESSAGE_LIMIT && message.starts_with("line\\n"),
            "{message}"
        );
    }
}
