//! Why an agent's pods are not ready, in their own words. Pure, but for the reading of them.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::{Api, Client, ResourceExt, api::ListParams};
use mainstay_resources::{names, omnia::AgentRuntime};
use mainstay_telemetry::text;

use crate::error::ReconcileError;

/// Longest part of a pod's words that a condition repeats, in bytes.
const LIMIT: usize = 1024;
/// Reasons of a container that is on its way.
const STARTING: &[&str] = &["ContainerCreating", "PodInitializing"];

/// The agent whose pod this is.
pub(super) fn agent_of(pod: &Pod) -> Option<&str> {
    let labels = pod.labels();
    (labels.get(names::COMPONENT_LABEL).map(String::as_str) == Some("agent"))
        .then(|| labels.get(names::INSTANCE_LABEL).map(String::as_str))
        .flatten()
}

/// What the newest pod of an agent says about not being ready.
pub(super) async fn cause(client: &Client, agent: &AgentRuntime) -> Result<Option<String>, ReconcileError> {
    let namespace = agent.namespace().unwrap_or_default();
    let selector = names::selector_labels(&agent.name_any())
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect::<Vec<_>>()
        .join(",");
    let pods = Api::<Pod>::namespaced(client.clone(), &namespace)
        .list(&ListParams::default().labels(&selector))
        .await
        .map_err(ReconcileError::api(format!(
            "list the Pods of AgentRuntime {namespace}/{}",
            agent.name_any()
        )))?;
    let newest = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .max_by_key(|pod| (pod.metadata.creation_timestamp.clone(), pod.name_any()));
    Ok(newest.and_then(explain))
}

/// What keeps one pod from being ready, in one line.
pub(super) fn explain(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten();
    let unscheduled = || {
        let conditions = status.conditions.iter().flatten();
        conditions
            .filter(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
            .find_map(|condition| said(condition.reason.as_deref(), condition.message.as_deref()))
    };
    let words = containers
        .filter(|container| !container.ready)
        .find_map(container)
        .or_else(unscheduled)
        .or_else(|| said(status.reason.as_deref(), status.message.as_deref()))?;
    Some(format!(
        "Pod {:?}: {}",
        pod.name_any(),
        text::escape(&words, LIMIT)
    ))
}

/// How it ended counts more than that it waits for its next start, which every crash has in common.
fn container(status: &ContainerStatus) -> Option<String> {
    let state = status.state.as_ref();
    let ended = state.and_then(|state| state.terminated.as_ref()).or(status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref()));
    if let Some(ended) = ended {
        let message = ended
            .message
            .as_deref()
            .map(str::trim)
            .filter(|message| !message.is_empty());
        return Some(message.map_or_else(|| format!("ended with code {}", ended.exit_code), str::to_owned));
    }
    let waiting = state.and_then(|state| state.waiting.as_ref())?;
    if waiting
        .reason
        .as_deref()
        .is_some_and(|reason| STARTING.contains(&reason))
    {
        return None;
    }
    said(waiting.reason.as_deref(), waiting.message.as_deref())
}

fn said(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    match (reason, message) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
        (one, other) => one.or(other).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn explained(status: Value) -> Option<String> {
        explain(&serde_json::from_value(json!({ "metadata": { "name": "p" }, "status": status })).unwrap())
    }

    fn container(state: Value, last: Value) -> Value {
        json!({ "containerStatuses": [{
            "name": "agent", "image": "mainstay", "imageID": "", "ready": false, "restartCount": 3,
            "state": state, "lastState": last,
        }] })
    }

    #[test]
    fn a_pod_that_ended_is_quoted_and_its_back_off_is_not_om_284() {
        let ended = json!({ "terminated": { "exitCode": 1, "message": "PackUnreadable: pack.json\ncannot be read" } });
        let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 20s" } });
        assert_eq!(
            explained(container(waiting, ended)).unwrap(),
            "Pod \"p\": PackUnreadable: pack.json\\ncannot be read"
        );
        let killed = json!({ "terminated": { "exitCode": 137 } });
        assert_eq!(
            explained(container(killed, json!({}))).unwrap(),
            "Pod \"p\": ended with code 137"
        );
    }

    #[test]
    fn a_pod_that_cannot_start_says_so_and_one_that_starts_says_nothing() {
        let refused = json!({ "waiting": { "reason": "NoContainerEngine", "message": "image x" } });
        assert_eq!(
            explained(container(refused, json!({}))).unwrap(),
            "Pod \"p\": NoContainerEngine: image x"
        );
        let starting = json!({ "waiting": { "reason": "ContainerCreating" } });
        assert_eq!(explained(container(starting, json!({}))), None);
        assert_eq!(explained(json!({})), None);
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" });
        assert_eq!(
            explained(json!({ "conditions": [condition] })).unwrap(),
            "Pod \"p\": Unschedulable: no room"
        );
    }
}
