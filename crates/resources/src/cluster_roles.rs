//! ClusterRoles that give those who may view or edit a namespace the same for the kinds of this product.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;

use crate::{
    crd::Family,
    kourier::{AgentBackend, Binding, ChatConnection},
    names,
    omnia::{AgentRuntime, PromptPack, Provider, ToolPolicy, ToolRegistry},
};

/// The label by which Kubernetes adds a ClusterRole to `view`, `edit` or `admin`.
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];

/// The roles of a family, labelled as ours. Each adds itself to the roles of Kubernetes that are wide enough for it, so that no
/// binding names it: reading to `view`, `edit` and `admin`, writing to `edit` and `admin`.
#[must_use]
pub fn cluster_roles(family: Family) -> Vec<ClusterRole> {
    match family {
        Family::Omnia => {
            let scale = vec![format!("{}/scale", AgentRuntime::plural(&()))];
            let kinds = [
                AgentRuntime::plural(&()),
                PromptPack::plural(&()),
                Provider::plural(&()),
                ToolPolicy::plural(&()),
                ToolRegistry::plural(&()),
            ];
            let kinds: Vec<String> = kinds.map(String::from).into();
            let statuses = kinds.iter().map(|kind| format!("{kind}/status"));
            let readable = kinds.iter().cloned().chain(statuses).chain(scale.clone());
            pair(
                family,
                "omnia",
                readable.collect(),
                vec![
                    rule(family, kinds.clone(), WRITE),
                    rule(family, scale, &["patch", "update"]),
                ],
            )
        }
        Family::Kourier => {
            let kinds = [
                AgentBackend::plural(&()),
                Binding::plural(&()),
                ChatConnection::plural(&()),
            ];
            let kinds: Vec<String> = kinds.map(String::from).into();
            // Only a Binding has a status (AK-003).
            let status = format!("{}/status", Binding::plural(&()));
            let readable = kinds.iter().cloned().chain([status]).collect();
            pair(family, "kourier", readable, vec![rule(family, kinds, WRITE)])
        }
    }
}

fn pair(family: Family, name: &str, readable: Vec<String>, writing: Vec<PolicyRule>) -> Vec<ClusterRole> {
    vec![
        role(
            &format!("mainstay:{name}:view"),
            &["view", "edit", "admin"],
            vec![rule(family, readable, READ)],
        ),
        role(&format!("mainstay:{name}:edit"), &["edit", "admin"], writing),
    ]
}

fn rule(family: Family, resources: Vec<String>, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![family.group().to_owned()]),
        resources: Some(resources),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

fn role(name: &str, part_of: &[&str], rules: Vec<PolicyRule>) -> ClusterRole {
    let mut labels: BTreeMap<String, String> = part_of
        .iter()
        .map(|role| (format!("{AGGREGATE_TO}{role}"), "true".to_owned()))
        .collect();
    labels.insert(names::MANAGED_LABEL.to_owned(), "true".to_owned());
    ClusterRole {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        ..ClusterRole::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Verbs on a resource of those who have one of the roles of Kubernetes.
    fn verbs(of: &str, group: &str, resource: &str) -> Vec<String> {
        let label = format!("rbac.authorization.k8s.io/aggregate-to-{of}");
        let roles: Vec<ClusterRole> = Family::ALL
            .iter()
            .flat_map(|family| cluster_roles(*family))
            .collect();
        let mut verbs: Vec<String> = roles
            .iter()
            .filter(|role| {
                role.metadata
                    .labels
                    .as_ref()
                    .unwrap()
                    .get(&label)
                    .map(String::as_str)
                    == Some("true")
            })
            .flat_map(|role| role.rules.clone().unwrap())
            .filter(|rule| rule.api_groups.as_deref() == Some(&[group.to_owned()]))
            .filter(|rule| rule.resources.iter().flatten().any(|named| named == resource))
            .flat_map(|rule| rule.verbs)
            .collect();
        verbs.sort();
        verbs
    }

    #[test]
    fn who_may_view_or_edit_a_namespace_may_do_so_with_every_kind_of_ours() {
        for definition in crate::crds().unwrap() {
            let (group, plural) = (definition.spec.group, definition.spec.names.plural);
            assert_eq!(
                verbs("view", &group, &plural),
                ["get", "list", "watch"],
                "{plural}"
            );
            for of in ["edit", "admin"] {
                assert_eq!(
                    verbs(of, &group, &plural),
                    [
                        "create",
                        "delete",
                        "deletecollection",
                        "get",
                        "list",
                        "patch",
                        "update",
                        "watch"
                    ],
                    "{of} {plural}"
                );
            }
            // A status is the controllers' to write.
            let readable: &[&str] = match definition.spec.versions[0].subresources {
                Some(_) => &["get", "list", "watch"],
                None => &[],
            };
            assert_eq!(
                verbs("admin", &group, &format!("{plural}/status")),
                readable,
                "{plural}"
            );
        }
        assert!(verbs("edit", "omnia.altairalabs.ai", "agentruntimes/scale").contains(&"patch".to_owned()));
    }
}
