//! What the reference does for single built-in kinds in code: defaults that depend on other fields, what a write resets,
//! and rules that no schema states (the larger ones are in `validation`). Defaults that are data are in `data/defaults.json`.
//! Requirements KA-010, KA-011, KA-013.

mod access;
mod configuration;
mod cron_jobs;
mod definitions;
mod events;
mod jobs;
pub(crate) mod labels;
mod namespaces;
mod nodes;
mod pods;
mod stored;
pub(crate) mod templates;
mod workloads;

use serde_json::Value;

use super::{
    services,
    validation::{autoscaling, claims, endpoints, networking, services as services_rules},
};
use crate::{admission, field::FieldError};

type Prepare = fn(&mut Value, Option<&Value>);
type Validate = fn(&Value, Option<&Value>, &mut Vec<FieldError>);

/// The code of one kind. Kinds without any, custom ones among them, have the empty strategy.
#[derive(Clone, Copy)]
pub struct Strategy {
    default: fn(&mut Value),
    prepare: Prepare,
    validate: Validate,
    /// The times that every condition has, if only as a null.
    condition_times: &'static [&'static str],
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Strategy")
    }
}

impl Strategy {
    /// The strategy of a kind about which the schema says everything.
    pub fn none() -> Self {
        Self {
            default: |_| {},
            prepare: |_, _| {},
            validate: |_, _, _| {},
            condition_times: &[],
        }
    }

    /// The strategy of the kind `GROUP/PLURAL`.
    pub fn of(resource: &str) -> Self {
        let empty = Self {
            condition_times: condition_times(resource),
            ..Self::none()
        };
        match resource {
            "/configmaps" => Self {
                validate: configuration::validate_config_map,
                ..empty
            },
            "/secrets" => Self {
                default: configuration::default_secret,
                validate: configuration::validate_secret,
                ..empty
            },
            "/namespaces" => Self {
                default: namespaces::default,
                prepare: namespaces::prepare,
                ..empty
            },
            "/nodes" => Self {
                default: nodes::default,
                validate: nodes::validate,
                ..empty
            },
            "/services" => Self {
                default: services::default,
                prepare: services::prepare,
                validate: services_rules::check,
                ..empty
            },
            "/events" => Self {
                default: events::default,
                validate: events::validate,
                ..empty
            },
            "events.k8s.io/events" => Self {
                default: events::default_view,
                validate: events::validate_view,
                ..empty
            },
            "/pods" => Self {
                default: pods::default,
                prepare: pods::prepare,
                validate: pods::validate,
                ..empty
            },
            "/podtemplates" => Self {
                default: workloads::default_pod_template,
                validate: workloads::validate_pod_template,
                ..empty
            },
            "apps/deployments" => Self {
                default: workloads::default_deployment,
                prepare: workloads::prepare,
                validate: workloads::validate_deployment,
                ..empty
            },
            "apps/replicasets" => Self {
                default: workloads::default_replica_set,
                prepare: workloads::prepare_replica_set,
                validate: workloads::validate_replica_set,
                ..empty
            },
            "batch/jobs" => Self {
                default: jobs::default,
                prepare: jobs::prepare,
                validate: jobs::validate,
                ..empty
            },
            "batch/cronjobs" => Self {
                default: cron_jobs::default,
                prepare: cron_jobs::prepare,
                validate: cron_jobs::validate,
                ..empty
            },
            "coordination.k8s.io/leases" => Self {
                validate: configuration::validate_lease,
                ..empty
            },
            "rbac.authorization.k8s.io/roles" => Self {
                default: access::default_role,
                validate: access::validate_role,
                ..empty
            },
            "rbac.authorization.k8s.io/clusterroles" => Self {
                default: access::default_role,
                validate: access::validate_cluster_role,
                ..empty
            },
            "rbac.authorization.k8s.io/rolebindings" => Self {
                default: access::default_binding,
                validate: access::validate_role_binding,
                ..empty
            },
            "rbac.authorization.k8s.io/clusterrolebindings" => Self {
                default: access::default_binding,
                validate: access::validate_cluster_role_binding,
                ..empty
            },
            "autoscaling/horizontalpodautoscalers" => Self {
                default: stored::default_autoscaler,
                validate: autoscaling::check,
                ..empty
            },
            "networking.k8s.io/networkpolicies" => Self {
                default: stored::default_network_policy,
                validate: networking::check_policy,
                ..empty
            },
            "networking.k8s.io/ingresses" => Self {
                default: stored::default_ingress,
                validate: networking::check_ingress,
                ..empty
            },
            "policy/poddisruptionbudgets" => Self {
                default: stored::default_disruption_budget,
                validate: stored::validate_disruption_budget,
                ..empty
            },
            "/persistentvolumeclaims" => Self {
                default: stored::default_claim,
                prepare: stored::prepare_claim,
                validate: claims::check,
                ..empty
            },
            "node.k8s.io/runtimeclasses" => Self {
                validate: stored::validate_runtime_class,
                ..empty
            },
            "/endpoints" => Self {
                validate: endpoints::check,
                ..empty
            },
            "discovery.k8s.io/endpointslices" => Self {
                validate: endpoints::check_slice,
                ..empty
            },
            admission::POLICIES => Self {
                default: admission::default_policy,
                validate: admission::validate_policy,
                ..empty
            },
            admission::BINDINGS => Self {
                validate: admission::validate_binding,
                ..empty
            },
            "apiextensions.k8s.io/customresourcedefinitions" => Self {
                default: definitions::default,
                prepare: definitions::prepare,
                validate: definitions::validate,
                ..empty
            },
            _ => empty,
        }
    }

    /// Fills in defaults that depend on other fields; those of the schema are there already.
    pub fn default(&self, object: &mut Value) {
        (self.default)(object);
        self.default_times(object);
    }

    /// Gives every condition the times that it has if only as a null. The server's own changes need no other default.
    pub(crate) fn default_times(&self, object: &mut Value) {
        if self.condition_times.is_empty() {
            return;
        }
        for condition in object
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            for time in self.condition_times {
                condition.entry(*time).or_insert(Value::Null);
            }
        }
    }

    /// Brings a written object into the form in which it is stored: resets what a client may not set, derives what follows
    /// from other fields, keeps what an update leaves out and the server had chosen. `old` is the object as it was.
    pub fn prepare(&self, object: &mut Value, old: Option<&Value>) {
        (self.prepare)(object, old);
    }

    /// Everything wrong with `object`, but for its own metadata. On an update, what was wrong with `old` already does not
    /// count: rules become stricter with releases, and an object that is stored must still be able to change, and to go.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        (self.validate)(object, old, &mut errors);
        // What two rules find is told once.
        let mut told = Vec::new();
        errors.retain(|error| {
            let is_new = !told.contains(error);
            if is_new {
                told.push(error.clone());
            }
            is_new
        });
        if let (Some(old), false) = (old, errors.is_empty()) {
            let mut before = Vec::new();
            (self.validate)(old, None, &mut before);
            errors.retain(|error| !before.contains(error));
        }
        errors
    }
}

/// Which times the conditions of a kind have on the reference whether they are known or not.
fn condition_times(resource: &str) -> &'static [&'static str] {
    match resource {
        "apps/deployments" => &["lastTransitionTime", "lastUpdateTime"],
        "apps/replicasets" | "/namespaces" | "autoscaling/horizontalpodautoscalers" => {
            &["lastTransitionTime"]
        }
        "/pods" | "/persistentvolumeclaims" | "batch/jobs" => &["lastProbeTime", "lastTransitionTime"],
        "/nodes" => &["lastHeartbeatTime", "lastTransitionTime"],
        _ => &[],
    }
}
