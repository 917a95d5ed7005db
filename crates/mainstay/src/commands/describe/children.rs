//! The workloads and Pods that come of an object.

use kube::Client;
use serde_json::Value;

use crate::{
    kinds::{Kinds, Served},
    requests::{self, Form, Query},
};

/// The kinds that are looked through, owners before what they own.
const KINDS: &[(&str, &str)] = &[
    ("apps", "Deployment"),
    ("batch", "Job"),
    ("apps", "ReplicaSet"),
    ("", "Pod"),
];

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    /// `plural.group/name`
    pub(super) title: String,
    /// How it is.
    pub(super) state: String,
}

/// What an object owns, and what that owns. ReplicaSets without Pods, of former rollouts, are left out.
pub(super) async fn find(client: &Client, kinds: &Kinds, object: &Value) -> Vec<Child> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let (Some(namespace), Some(uid)) = (text("/metadata/namespace"), text("/metadata/uid")) else {
        return Vec::new();
    };
    let query = Query {
        namespace: Some(namespace.to_owned()),
        ..Query::default()
    };
    let mut families = vec![uid.to_owned()];
    let mut children = Vec::new();
    for (group, kind) in KINDS {
        let Some(kind) = kinds.of(group, kind) else {
            continue;
        };
        // What may not be read is not shown; the object itself was.
        let Ok(listed) = requests::list(client, kind, &query, Form::Object).await else {
            continue;
        };
        for child in listed.items() {
            if owned(&child, &families) {
                families.extend(
                    child
                        .pointer("/metadata/uid")
                        .and_then(Value::as_str)
                        .map(str::to_owned),
                );
                children.extend(shown(kind, &child));
            }
        }
    }
    children
}

fn owned(child: &Value, families: &[String]) -> bool {
    child
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|owner| owner.get("uid").and_then(Value::as_str))
        .any(|uid| families.iter().any(|known| known == uid))
}

fn shown(kind: &Served, child: &Value) -> Option<Child> {
    let name = child.pointer("/metadata/name").and_then(Value::as_str)?;
    let number = |pointer: &str| child.pointer(pointer).and_then(Value::as_i64);
    let state = if kind.kind == "Pod" {
        pod_state(child)
    } else {
        let wanted = number("/spec/replicas")
            .or_else(|| number("/spec/completions"))
            .unwrap_or(1);
        if kind.kind == "ReplicaSet" && wanted == 0 {
            return None;
        }
        let ready = number("/status/readyReplicas")
            .or_else(|| number("/status/succeeded"))
            .unwrap_or(0);
        let word = if kind.kind == "Job" { "done" } else { "ready" };
        format!("{ready} of {wanted} {word}")
    };
    Some(Child {
        title: format!("{}/{name}", kind.title()),
        state,
    })
}

/// The phase of a Pod, and why a container of it does not run.
pub(super) fn pod_state(pod: &Value) -> String {
    let phase = pod
        .pointer("/status/phase")
        .and_then(Value::as_str)
        .unwrap_or("Pending");
    let statuses = ["initContainerStatuses", "containerStatuses"]
        .iter()
        .filter_map(|part| pod.pointer(&format!("/status/{part}")).and_then(Value::as_array))
        .flatten();
    let reasons: Vec<String> = statuses
        .filter_map(|container| {
            let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
            let (state, of_failure) = match container.pointer("/state/waiting") {
                Some(waiting) => (waiting, true),
                None => {
                    let terminated = container.pointer("/state/terminated")?;
                    let failed = terminated.get("exitCode").and_then(Value::as_i64) != Some(0);
                    (terminated, failed)
                }
            };
            if !of_failure {
                return None;
            }
            let text = |field: &str| state.get(field).and_then(Value::as_str).unwrap_or_default();
            let message = text("message").split_whitespace().collect::<Vec<_>>().join(" ");
            let message = if message.is_empty() {
                String::new()
            } else {
                format!(": {message}")
            };
            Some(format!("container {name}: {}{message}", text("reason")))
        })
        .collect();
    if reasons.is_empty() {
        phase.to_owned()
    } else {
        format!("{phase}, {}", reasons.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_says_why_a_container_does_not_run() {
        assert_eq!(pod_state(&json!({"status": {"phase": "Running"}})), "Running");
        let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [
            {"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {"reason": "NoContainerEngine", "message": "no engine\nhere"}}},
        ]}});
        assert_eq!(
            pod_state(&waiting),
            "Pending, container b: NoContainerEngine: no engine here"
        );
        let ended = json!({"status": {"phase": "Failed", "containerStatuses": [
            {"name": "a", "state": {"terminated": {"reason": "Completed", "exitCode": 0}}},
            {"name": "b", "state": {"terminated": {"reason": "Error", "exitCode": 1}}},
        ]}});
        assert_eq!(pod_state(&ended), "Failed, container b: Error");
    }

    #[test]
    fn what_belongs_to_a_family_is_owned_at_any_distance() {
        let families = ["a".to_owned(), "b".to_owned()];
        assert!(owned(
            &json!({"metadata": {"ownerReferences": [{"uid": "b"}]}}),
            &families
        ));
        assert!(!owned(
            &json!({"metadata": {"ownerReferences": [{"uid": "c"}]}}),
            &families
        ));
        assert!(!owned(&json!({"metadata": {}}), &families));
    }
}
