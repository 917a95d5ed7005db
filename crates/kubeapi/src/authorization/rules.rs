//! One rule of a role: what it allows, and whether it covers another.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::attributes::{Attributes, ResourceAttributes};

/// A rule of a stored role that cannot be read, and so grants nothing.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {source}")]
pub(super) struct DamagedRule {
    /// Such as `rules[2].verbs`.
    pub(super) field: String,
    source: serde_json::Error,
}

/// The rules of a stored role, and those that cannot be read.
pub(super) fn read(role: &Value) -> (Vec<Rule>, Vec<DamagedRule>) {
    let mut rules = Vec::new();
    let mut damaged = Vec::new();
    match role.get("rules") {
        None | Some(Value::Null) => {}
        Some(Value::Array(stored)) => {
            for (index, rule) in stored.iter().enumerate() {
                match Rule::deserialize(rule) {
                    Ok(rule) => rules.push(rule),
                    Err(source) => damaged.push(DamagedRule {
                        field: damaged_field(rule, index),
                        source,
                    }),
                }
            }
        }
        Some(other) => {
            if let Err(source) = Vec::<Value>::deserialize(other) {
                let field = "rules".to_owned();
                damaged.push(DamagedRule { field, source });
            }
        }
    }
    (rules, damaged)
}

/// The rules of a stored role; those that cannot be read are told to whoever reads the log.
pub(super) fn read_and_report(resource: &str, role: &Value) -> Vec<Rule> {
    let (rules, damaged) = read(role);
    for rule in damaged {
        tracing::error!(
            resource,
            namespace = crate::object::namespace(role),
            name = crate::object::name(role),
            field = rule.field,
            error = %rule.source,
            "a rule of a stored role cannot be read and grants nothing"
        );
    }
    rules
}

/// The list of the rule that is none, or the rule itself.
fn damaged_field(rule: &Value, index: usize) -> String {
    let list = rule.as_object().into_iter().flatten().find(|(name, value)| {
        let is_known = matches!(
            name.as_str(),
            "apiGroups" | "nonResourceURLs" | "resourceNames" | "resources" | "verbs"
        );
        is_known && Vec::<String>::deserialize(*value).is_err()
    });
    match list {
        Some((name, _)) => format!("rules[{index}].{name}"),
        None => format!("rules[{index}]"),
    }
}

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use serde_json::json;

    use super::read;

    #[test]
    fn a_damaged_rule_grants_nothing_is_named_and_leaves_the_others_ka_041() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": "pods", "verbs": ["get"]},
            5,
        ]});
        let (rules, damaged) = read(&role);
        assert_eq!(rules.len(), 1);
        let fields: Vec<&str> = damaged.iter().map(|rule| rule.field.as_str()).collect();
        assert_eq!(fields, ["rules[1].resources", "rules[2]"]);
        assert_eq!(read(&json!({"rules": "x"})).1[0].field, "rules");
        assert!(read(&json!({"rules": null})).1.is_empty());
    }
}
