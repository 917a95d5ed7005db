//! The stored roles and bindings, made ready for decisions.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_store::kube::KubeStore;
use serde::Deserialize;
use serde_json::Value;

use super::{Attributes, Decision, Rule, rules};
use crate::identity::{self, Identity};

const ROLES: &str = "rbac.authorization.k8s.io/roles";
const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";
const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";

/// `roleRef`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RoleReference {
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// The part of a binding that is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Binding {
    #[serde(skip)]
    name: String,
    /// Empty for a ClusterRoleBinding.
    #[serde(skip)]
    namespace: String,
    role_ref: RoleReference,
    subjects: Option<Vec<Subject>>,
}

/// Roles and bindings at one moment.
#[derive(Debug, Default)]
pub(crate) struct Policy {
    made_at: u64,
    /// By namespace and name; the namespace of a ClusterRole is empty.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    /// By namespace; that of ClusterRoleBindings is empty.
    bindings: BTreeMap<String, Vec<Binding>>,
}

/// What a look at the rules of a user comes upon.
enum Found<'a> {
    Rule {
        rule: &'a Rule,
        source: &'a dyn Fn() -> String,
    },
    /// A role that a binding names and that is not there.
    Missing(String),
}

impl Policy {
    /// Reads what is stored; `made_at` says how many writes were known before.
    pub(super) fn read(store: &KubeStore, made_at: u64) -> Self {
        let mut policy = Self {
            made_at,
            ..Self::default()
        };
        for resource in [ROLES, CLUSTER_ROLES] {
            for (key, role) in stored::<Value>(store, resource) {
                policy.roles.insert(key, rules::read_and_report(resource, &role));
            }
        }
        for resource in [ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS] {
            for ((namespace, name), mut binding) in stored::<Binding>(store, resource) {
                binding.name = name;
                binding.namespace.clone_from(&namespace);
                policy.bindings.entry(namespace).or_default().push(binding);
            }
        }
        policy
    }

    pub(super) fn made_at(&self) -> u64 {
        self.made_at
    }

    pub(super) fn decide(&self, identity: &Identity, attributes: &Attributes) -> Decision {
        let mut reason = None;
        let mut missing = BTreeSet::new();
        self.visit(identity, attributes.namespace(), &mut |found| match found {
            Found::Rule { rule, source } if rule.allows(attributes) => {
                reason = Some(format!("RBAC: allowed by {}", source()));
                false
            }
            Found::Rule { .. } => true,
            Found::Missing(text) => {
                missing.insert(text);
                true
            }
        });
        match reason {
            Some(reason) => Decision {
                allowed: true,
                reason,
            },
            None => Decision {
                allowed: false,
                reason: aggregate(missing).map_or_else(String::new, |text| format!("RBAC: {text}")),
            },
        }
    }

    /// The rules that hold for `identity` in `namespace`, and the roles that are bound and missing.
    pub(crate) fn rules_for(&self, identity: &Identity, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut rules = Vec::new();
        let mut missing = BTreeSet::new();
        self.visit(identity, namespace, &mut |found| {
            match found {
                Found::Rule { rule, .. } => rules.push(rule.clone()),
                Found::Missing(text) => {
                    missing.insert(text);
                }
            }
            true
        });
        (rules, aggregate(missing))
    }

    /// The rules of the role that a binding in `namespace` names.
    ///
    /// # Errors
    /// The resource and the name of a role that is not there.
    pub(super) fn referenced(
        &self,
        reference: &RoleReference,
        namespace: &str,
    ) -> Result<&[Rule], (&'static str, String)> {
        let (namespace, resource) = if reference.kind == "ClusterRole" {
            ("", "clusterrole")
        } else {
            (namespace, "role")
        };
        self.roles
            .get(&(namespace.to_owned(), reference.name.clone()))
            .map(Vec::as_slice)
            .ok_or_else(|| (resource, reference.name.clone()))
    }

    /// Shows `look` each rule for `identity`, until it has seen enough.
    fn visit(&self, identity: &Identity, namespace: &str, look: &mut dyn FnMut(Found<'_>) -> bool) {
        let scopes = if namespace.is_empty() {
            vec![""]
        } else {
            vec!["", namespace]
        };
        for scope in scopes {
            for binding in self.bindings.get(scope).into_iter().flatten() {
                let Some(subject) = binding.subject_of(identity) else {
                    continue;
                };
                match self.referenced(&binding.role_ref, scope) {
                    Ok(rules) => {
                        let source = || binding.describe(subject);
                        for rule in rules {
                            if !look(Found::Rule {
                                rule,
                                source: &source,
                            }) {
                                return;
                            }
                        }
                    }
                    Err((resource, name)) => {
                        let text = format!("{resource}.rbac.authorization.k8s.io {name:?} not found");
                        if !look(Found::Missing(text)) {
                            return;
                        }
                    }
                }
            }
        }
    }
}

impl Binding {
    /// The subject that is, or contains, `identity`.
    fn subject_of(&self, identity: &Identity) -> Option<&Subject> {
        self.subjects
            .iter()
            .flatten()
            .find(|subject| match subject.kind.as_str() {
                "User" => subject.name == identity.username,
                "Group" => identity.groups.contains(&subject.name),
                "ServiceAccount" => {
                    let namespace = self.namespace_of(subject);
                    !namespace.is_empty()
                        && identity::service_account_name(&identity.username)
                            == Some((namespace, subject.name.as_str()))
                }
                _ => false,
            })
    }

    fn namespace_of<'a>(&'a self, subject: &'a Subject) -> &'a str {
        if subject.namespace.is_empty() {
            &self.namespace
        } else {
            &subject.namespace
        }
    }

    /// As the reference names it, with name and namespace the wrong way round, since clients may compare the text.
    fn describe(&self, subject: &Subject) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let whom = if subject.kind == "ServiceAccount" {
            format!("{}/{}", subject.name, self.namespace_of(subject))
        } else {
            subject.name.clone()
        };
        format!(
            "{kind} {name:?} of {} {:?} to {} {whom:?}",
            self.role_ref.kind, self.role_ref.name, subject.kind
        )
    }
}

/// Several problems as one text; `None` for none.
fn aggregate(texts: BTreeSet<String>) -> Option<String> {
    let texts: Vec<String> = texts.into_iter().collect();
    match texts.as_slice() {
        [] => None,
        [only] => Some(only.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

/// The stored objects of a resource by namespace and name.
fn stored<T: for<'de> Deserialize<'de>>(store: &KubeStore, resource: &str) -> Vec<((String, String), T)> {
    let mut objects = Vec::new();
    for stored in store.list(resource, None).items {
        let key = (stored.key.namespace.to_string(), stored.key.name.to_string());
        match serde_json::from_slice(&stored.value) {
            Ok(object) => objects.push((key, object)),
            // It grants nothing then; what it was to grant is not known.
            Err(error) => {
                tracing::error!(resource, namespace = %key.0, name = %key.1, %error, "a stored role or binding cannot be read");
            }
        }
    }
    objects
}
