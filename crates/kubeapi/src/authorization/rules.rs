//! One rule of a role: what it allows, and whether it covers another.

use serde::{Deserialize, Serialize};

use super::attributes::{Attributes, ResourceAttributes};

/// `rbac.authorization.k8s.io/v1 PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub(crate) non_resource_urls: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    pub(crate) verbs: Vec<String>,
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == wanted)
}

fn has_or_all(list: &[String], wanted: &str) -> bool {
    list.iter().any(|entry| entry == "*" || entry == wanted)
}

/// Whether a path pattern, perhaps ending in `*`, matches a path.
fn path_matches(pattern: &str, path: &str) -> bool {
    pattern == path || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

impl Rule {
    /// A rule for everything in every group.
    pub(super) fn every_resource() -> Self {
        let all = || vec!["*".to_owned()];
        Self {
            api_groups: all(),
            resources: all(),
            verbs: all(),
            ..Self::default()
        }
    }

    /// A rule for every path.
    pub(super) fn every_path() -> Self {
        let all = || vec!["*".to_owned()];
        Self {
            non_resource_urls: all(),
            verbs: all(),
            ..Self::default()
        }
    }

    /// Whether it allows what is asked.
    pub(super) fn allows(&self, attributes: &Attributes) -> bool {
        match attributes {
            Attributes::Path { verb, path } => {
                has_or_all(&self.verbs, verb)
                    && self
                        .non_resource_urls
                        .iter()
                        .any(|pattern| path_matches(pattern, path))
            }
            Attributes::Resource(asked) => {
                has_or_all(&self.verbs, &asked.verb)
                    && has_or_all(&self.api_groups, &asked.group)
                    && self.names_resource(asked)
                    && (self.resource_names.is_empty() || has(&self.resource_names, &asked.name))
            }
        }
    }

    fn names_resource(&self, asked: &ResourceAttributes) -> bool {
        let combined = asked.combined();
        self.resources.iter().any(|resource| {
            resource == "*"
                || *resource == combined
                || (!asked.subresource.is_empty()
                    && resource
                        .strip_prefix("*/")
                        .is_some_and(|subresource| subresource == asked.subresource))
        })
    }

    /// The rules of one verb, one resource and one name each that this one is made of.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Self {
                        api_groups: one(group),
                        resources: one(resource),
                        verbs: one(verb),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part);
                    } else {
                        parts.extend(self.resource_names.iter().map(|name| Self {
                            resource_names: one(name),
                            ..part.clone()
                        }));
                    }
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Self {
                non_resource_urls: one(url),
                verbs: one(verb),
                ..Self::default()
            }));
        }
        parts
    }

    /// Whether it allows all that `part`, one of [`Rule::parts`], allows.
    fn covers(&self, part: &Self) -> bool {
        let all =
            |own: &[String], wanted: &[String]| has(own, "*") || wanted.iter().all(|entry| has(own, entry));
        let resources = has(&self.resources, "*")
            || part.resources.iter().all(|resource| {
                has(&self.resources, resource)
                    || resource
                        .split_once('/')
                        .is_some_and(|(_, subresource)| has(&self.resources, &format!("*/{subresource}")))
            });
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part
                    .resource_names
                    .iter()
                    .all(|name| has(&self.resource_names, name)));
        let paths = part.non_resource_urls.iter().all(|path| {
            self.non_resource_urls
                .iter()
                .any(|pattern| path_matches(pattern, path))
        });
        all(&self.verbs, &part.verbs)
            && all(&self.api_groups, &part.api_groups)
            && resources
            && names
            && paths
    }

    /// As messages show it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn describe(&self) -> String {
        let shown: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(name, list)| format!("{name}:{}", quoted(list)))
        .collect();
        format!("{{{}}}", shown.join(", "))
    }
}

/// `["a" "b"]`, as Go prints a list of quoted texts.
pub(super) fn quoted(list: &[String]) -> String {
    let entries: Vec<String> = list.iter().map(|entry| format!("{entry:?}")).collect();
    format!("[{}]", entries.join(" "))
}

/// What `wanted` allows and `owned` does not, in parts of one verb, resource and name each.
pub(super) fn missing(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    wanted
        .iter()
        .flat_map(Rule::parts)
        .filter(|part| !owned.iter().any(|rule| rule.covers(part)))
        .collect()
}

/// Missing parts as lines, those that differ by their verb only in one. Sorted.
pub(super) fn describe(parts: Vec<Rule>) -> String {
    let mut joined: Vec<Rule> = Vec::new();
    for part in parts {
        let same = joined.iter_mut().find(|present| {
            present.non_resource_urls.is_empty()
                && part.non_resource_urls.is_empty()
                && present.api_groups == part.api_groups
                && present.resources == part.resources
                && present.resource_names == part.resource_names
        });
        match same {
            Some(present) => present.verbs.extend(part.verbs),
            None => joined.push(part),
        }
    }
    let mut lines: Vec<String> = joined.iter().map(Rule::describe).collect();
    lines.sort();
    lines.dedup();
    lines.join("\n")
}
