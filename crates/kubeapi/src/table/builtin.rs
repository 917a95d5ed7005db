//! Cells of the built-in kinds, in the order of the columns of the reference, `-o wide` included.

mod cluster;
mod network;
mod pod;
mod workload;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::age;
use super::object::text;

/// The cells of an object; `None` for a kind that shows nothing but what all kinds show.
pub(super) fn cells(group: &str, kind: &str, object: &Value, now: Timestamp) -> Option<Vec<Value>> {
    let row = Row { object, now };
    Some(match (group, kind) {
        ("", "Pod") => pod::pod(&row),
        ("apps", "Deployment") => workload::deployment(&row),
        ("apps", "ReplicaSet") => workload::replica_set(&row),
        ("", "PodTemplate") => workload::pod_template(&row),
        ("apps", "StatefulSet") => workload::stateful_set(&row),
        ("apps", "DaemonSet") => workload::daemon_set(&row),
        ("batch", "Job") => workload::job(&row),
        ("batch", "CronJob") => workload::cron_job(&row),
        ("autoscaling", "HorizontalPodAutoscaler") => workload::horizontal_pod_autoscaler(&row),
        ("policy", "PodDisruptionBudget") => workload::pod_disruption_budget(&row),
        ("", "Service") => network::service(&row),
        ("", "Endpoints") => network::endpoints(&row),
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(&row),
        ("networking.k8s.io", "Ingress") => network::ingress(&row),
        ("networking.k8s.io", "NetworkPolicy") => network::network_policy(&row),
        ("", "Namespace") => cluster::namespace(&row),
        ("", "Node") => cluster::node(&row),
        ("", "Secret") => cluster::secret(&row),
        ("", "ConfigMap") => cluster::config_map(&row),
        ("", "PersistentVolumeClaim") => cluster::persistent_volume_claim(&row),
        ("" | "events.k8s.io", "Event") => cluster::event(&row),
        ("coordination.k8s.io", "Lease") => cluster::lease(&row),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => cluster::admission_policy(&row),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => {
            cluster::admission_policy_binding(&row)
        }
        ("node.k8s.io", "RuntimeClass") => cluster::runtime_class(&row),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => cluster::role_binding(&row),
        _ => return None,
    })
}

/// The conditions of a row: `kubectl get` can leave out Pods that are done.
pub(super) fn conditions(group: &str, kind: &str, object: &Value) -> Option<Value> {
    if (group, kind) != ("", "Pod") {
        return None;
    }
    let message = match text(object, "/status/phase") {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    let reason = text(object, "/status/phase");
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// What the cells of a row are made from.
struct Row<'a> {
    object: &'a Value,
    now: Timestamp,
}

impl Row<'_> {
    fn name(&self) -> Value {
        json!(text(self.object, "/metadata/name"))
    }

    fn age(&self) -> Value {
        age(self.object, self.now)
    }

    fn is_being_deleted(&self) -> bool {
        !text(self.object, "/metadata/deletionTimestamp").is_empty()
    }
}

/// The first few of a list, and how many more there are.
fn some_of(list: &[String], limit: usize, separator: &str) -> String {
    let shown = list
        .iter()
        .take(limit)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(separator);
    if list.len() > limit {
        format!("{shown} + {} more...", list.len() - limit)
    } else {
        shown
    }
}
