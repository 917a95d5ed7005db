//! The kinds that a server serves, and the words by which they are named on the command line.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, core::discovery::v2::APIGroupDiscoveryList, discovery::ApiResource};

use crate::{applying::cause, terminal::Failure};

/// One kind as it is served in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// API group; empty for core.
    pub(crate) group: String,
    /// Version.
    pub(crate) version: String,
    /// Kind.
    pub(crate) kind: String,
    /// Plural name, which stands in paths.
    pub(crate) plural: String,
    singular: String,
    short_names: Vec<String>,
    categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub(crate) namespaced: bool,
    verbs: Vec<String>,
}

impl Served {
    /// A kind of the core group.
    #[cfg(test)]
    pub(crate) fn of_test(plural: &str, kind: &str) -> Self {
        Self {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        }
    }

    /// `plural.group`, which is never ambiguous.
    pub(crate) fn title(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The kind for a client.
    pub(crate) fn resource(&self) -> ApiResource {
        let api_version = if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        };
        ApiResource {
            group: self.group.clone(),
            version: self.version.clone(),
            api_version,
            kind: self.kind.clone(),
            plural: self.plural.clone(),
        }
    }

    /// The path of its objects: of a namespace, or of all of them.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) if self.namespaced => format!("{root}/namespaces/{namespace}/{}", self.plural),
            _ => format!("{root}/{}", self.plural),
        }
    }

    fn can(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    fn is_called(&self, word: &str) -> bool {
        self.plural == word
            || self.singular == word
            || self.kind.to_lowercase() == word
            || self.short_names.iter().any(|name| name == word)
    }

    /// Whether the group is one of Kubernetes' own. Where several of those have a word, one is the successor of the other.
    fn is_of_kubernetes(&self) -> bool {
        !self.group.contains('.') || self.group.ends_with(".k8s.io")
    }
}

/// Every kind that a server serves, the core group first, each group's preferred version first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds(Vec<Served>);

impl Kinds {
    /// Asks the server.
    pub(crate) async fn discover(client: &Client) -> Result<Kinds, Failure> {
        let failed = |error: kube::Error| {
            Failure::new(format!(
                "the server does not say what it serves: {}",
                cause(&error)
            ))
        };
        let (core, others) = futures::try_join!(
            client.list_core_api_versions_aggregated(),
            client.list_api_groups_aggregated()
        )
        .map_err(failed)?;
        Ok(Kinds(served(core).into_iter().chain(served(others)).collect()))
    }

    /// The kinds that `word` stands for and that have `verb`: one, or those of a category such as `all`.
    ///
    /// # Errors
    ///
    /// When no kind is called so, and when several are: a reader of several families must say which one is meant.
    pub(crate) fn named(&self, word: &str, verb: &str) -> Result<Vec<&Served>, Failure> {
        let lower = word.to_lowercase();
        let (name, group) = lower.split_once('.').unwrap_or((&lower, ""));
        let called: Vec<&Served> = self
            .0
            .iter()
            .filter(|kind| kind.is_called(name))
            .filter(|kind| {
                group.is_empty() || kind.group == group || format!("{}.{}", kind.version, kind.group) == group
            })
            .collect();
        let able: Vec<&Served> = called.iter().copied().filter(|kind| kind.can(verb)).collect();
        let mut found: Vec<&Served> = Vec::new();
        for kind in able {
            // Other versions of a group are the same objects.
            if !found
                .iter()
                .any(|other| other.group == kind.group && other.plural == kind.plural)
            {
                found.push(kind);
            }
        }
        match found.as_slice() {
            [] => {}
            [one] => return Ok(vec![one]),
            [first, ..] if found.iter().all(|kind| kind.is_of_kubernetes()) => return Ok(vec![first]),
            several => {
                let choices: Vec<String> = several.iter().map(|kind| kind.title()).collect();
                return Err(Failure::new(format!(
                    "`{word}` is the name of {} kinds: {}",
                    choices.len(),
                    choices.join(", ")
                ))
                .with_hint("name the one that is meant in full"));
            }
        }
        let mut of_category: Vec<&Served> = Vec::new();
        for kind in &self.0 {
            let inside = kind.categories.contains(&lower) && kind.can(verb);
            if inside && !of_category.iter().any(|other| other.title() == kind.title()) {
                of_category.push(kind);
            }
        }
        if !of_category.is_empty() {
            return Ok(of_category);
        }
        if let Some(kind) = called.first() {
            return Err(Failure::new(format!("{} has no verb `{verb}`", kind.title())));
        }
        Err(self.unknown(word, name))
    }

    /// The kind of a group, in the version that the server prefers.
    pub(crate) fn of(&self, group: &str, kind: &str) -> Option<&Served> {
        self.0
            .iter()
            .find(|served| served.group == group && served.kind == kind)
    }

    /// A kind by its name alone: one of `preferred` where it has it, else the first.
    pub(crate) fn of_kind(&self, kind: &str, preferred: &str) -> Option<&Served> {
        self.of(preferred, kind)
            .or_else(|| self.0.iter().find(|served| served.kind == kind))
    }

    fn unknown(&self, word: &str, name: &str) -> Failure {
        let beginning: String = name.chars().take(4).collect();
        let mut alike: Vec<String> = self
            .0
            .iter()
            .filter(|kind| kind.can("list") && kind.plural.starts_with(&beginning))
            .map(Served::title)
            .collect();
        alike.dedup();
        let failure = Failure::new(format!("no kind is called `{word}`"));
        if alike.is_empty() {
            failure.with_hint("apply its CustomResourceDefinition first, or check the spelling")
        } else {
            failure.with_hint(format!("there is {}", alike.join(", ")))
        }
    }
}

fn served(groups: APIGroupDiscoveryList) -> Vec<Served> {
    let name = |metadata: Option<ObjectMeta>| metadata.and_then(|metadata| metadata.name).unwrap_or_default();
    let mut found = Vec::new();
    for group in groups.items {
        let group_name = name(group.metadata);
        for version in group.versions {
            let version_name = version.version.unwrap_or_default();
            for resource in version.resources {
                let plural = resource.resource.unwrap_or_default();
                found.push(Served {
                    group: group_name.clone(),
                    version: version_name.clone(),
                    kind: resource
                        .response_kind
                        .and_then(|kind| kind.kind)
                        .unwrap_or_default(),
                    singular: resource.singular_resource.unwrap_or_default(),
                    short_names: resource.short_names,
                    categories: resource.categories,
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                    verbs: resource.verbs,
                    plural,
                });
            }
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn kind(group: &str, version: &str, kind: &str, plural: &str, short: &[&str]) -> Served {
        Served {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(|name| (*name).to_owned()).collect(),
            categories: Vec::new(),
            namespaced: true,
            verbs: vec!["get".to_owned(), "list".to_owned()],
        }
    }

    pub(crate) fn some() -> Kinds {
        let mut pods = kind("", "v1", "Pod", "pods", &["po"]);
        pods.categories = vec!["all".to_owned()];
        let mut bindings = kind("", "v1", "Binding", "bindings", &[]);
        bindings.verbs = vec!["create".to_owned()];
        let mut deployments = kind("apps", "v1", "Deployment", "deployments", &["deploy"]);
        deployments.categories = vec!["all".to_owned()];
        Kinds(vec![
            pods,
            bindings,
            kind("", "v1", "Event", "events", &["ev"]),
            deployments,
            kind("events.k8s.io", "v1", "Event", "events", &["ev"]),
            kind(
                "omnia.altairalabs.ai",
                "v1alpha1",
                "Provider",
                "providers",
                &["prov"],
            ),
            kind("core.orka.ai", "v1", "Provider", "providers", &[]),
            kind("core.orka.ai", "v1beta1", "Provider", "providers", &[]),
            kind(
                "agentkourier.dev",
                "v1alpha1",
                "Binding",
                "bindings",
                &["akbinding"],
            ),
        ])
    }

    fn titles(word: &str) -> Vec<String> {
        some()
            .named(word, "list")
            .unwrap()
            .iter()
            .map(|kind| kind.title())
            .collect()
    }

    #[test]
    fn a_kind_is_named_by_any_of_its_words() {
        for word in [
            "deployments",
            "deployment",
            "Deployment",
            "deploy",
            "deployments.apps",
            "deployments.v1.apps",
        ] {
            assert_eq!(titles(word), ["deployments.apps"], "{word}");
        }
        assert_eq!(titles("all"), ["pods", "deployments.apps"]);
    }

    #[test]
    fn a_word_of_two_families_is_refused_with_the_choices() {
        let kinds = some();
        let failure = kinds.named("providers", "list").unwrap_err();
        assert_eq!(
            failure.text,
            "`providers` is the name of 2 kinds: providers.omnia.altairalabs.ai, providers.core.orka.ai"
        );
        assert_eq!(titles("providers.core.orka.ai"), ["providers.core.orka.ai"]);
        assert_eq!(titles("prov"), ["providers.omnia.altairalabs.ai"]);
    }

    #[test]
    fn what_kubernetes_itself_has_twice_is_no_ambiguity() {
        assert_eq!(titles("events"), ["events"]);
        assert_eq!(titles("events.events.k8s.io"), ["events.events.k8s.io"]);
    }

    #[test]
    fn a_kind_without_the_verb_does_not_take_the_word() {
        // core/v1 has a Binding too, which can only be created.
        assert_eq!(titles("bindings"), ["bindings.agentkourier.dev"]);
    }

    #[test]
    fn an_unknown_word_names_those_alike() {
        let failure = some().named("deploymint", "list").unwrap_err();
        assert_eq!(failure.text, "no kind is called `deploymint`");
        assert_eq!(failure.hint.as_deref(), Some("there is deployments.apps"));
    }

    #[test]
    fn paths_lead_to_a_namespace_or_to_all() {
        let kinds = some();
        let deployment = kinds.of("apps", "Deployment").unwrap();
        assert_eq!(
            deployment.path(Some("a")),
            "/apis/apps/v1/namespaces/a/deployments"
        );
        assert_eq!(deployment.path(None), "/apis/apps/v1/deployments");
        assert_eq!(kinds.of_kind("Pod", "apps").unwrap().path(None), "/api/v1/pods");
    }
}
