//! The ToolPolicies of manifest files, read as the API would read them, and the registry they are about.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use mainstay_controllers::tool_policy::policy_spec;
use mainstay_resources::omnia::ToolPolicy;
use mainstay_tools::policy::PolicySpec;
use serde_json::Value;

use crate::{
    manifests::{self, Manifest},
    terminal,
    terminal::Failure,
};

/// What the files hold of one namespace.
#[derive(Debug, Default)]
pub(super) struct Policies {
    /// The policies.
    pub(super) specs: Vec<PolicySpec>,
    /// The names of the tools that each ToolRegistry of the files defines.
    registries: BTreeMap<String, BTreeSet<String>>,
}

/// Reads the files below `paths`.
///
/// # Errors
///
/// The first thing that keeps them from being read as they are meant: a policy that was left out would change what is
/// decided.
pub(super) fn read(paths: &[PathBuf], namespace: &str) -> Result<Policies, Failure> {
    let read = manifests::read(paths);
    if let Some(failure) = read.failures.into_iter().next() {
        return Err(failure);
    }
    let ours = read
        .manifests
        .iter()
        .filter(|manifest| manifest.api_version().starts_with("omnia.altairalabs.ai/"));
    let mut found = Policies::default();
    let mut elsewhere = 0;
    for manifest in ours {
        if manifest.namespace().unwrap_or("default") != namespace {
            elsewhere += usize::from(manifest.kind() == "ToolPolicy");
            continue;
        }
        match manifest.kind() {
            "ToolPolicy" => {
                let spec = policy(manifest)?;
                if found.specs.iter().any(|known| known.name == spec.name) {
                    return Err(Failure::new(format!(
                        "{}: there is another ToolPolicy {}",
                        manifest.place("metadata.name"),
                        spec.name
                    )));
                }
                found.specs.push(spec);
            }
            "ToolRegistry" => {
                found
                    .registries
                    .insert(manifest.name().to_owned(), tools(&manifest.object));
            }
            _ => {}
        }
    }
    if elsewhere > 0 {
        terminal::warning(format!(
            "{elsewhere} ToolPolicies of other namespaces than {namespace} are not looked at"
        ));
    }
    if found.specs.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Failure::new(format!(
            "there is no ToolPolicy of namespace {namespace} in {}",
            paths.join(", ")
        ))
        .with_hint("`-n` names another namespace; `--agent NAME` asks the running server"));
    }
    Ok(found)
}

fn policy(manifest: &Manifest) -> Result<PolicySpec, Failure> {
    let title = format!("ToolPolicy {}", manifest.name());
    let policy: ToolPolicy = serde_json::from_value(manifest.object.clone())
        .map_err(|error| Failure::new(format!("{}: {title}: {error}", manifest.place("spec"))))?;
    let known = serde_json::to_value(&policy.spec)
        .map_err(|error| Failure::new(format!("{title} cannot be read: {error}")))?;
    let given = manifest.object.get("spec").unwrap_or(&Value::Null);
    if let Some(field) = unknown(given, &known, "spec") {
        return Err(Failure::new(format!(
            "{}: {title}: unknown field {field}",
            manifest.place(&field)
        ))
        .with_hint("`kubectl explain toolpolicy.spec --recursive` lists the fields"));
    }
    Ok(policy_spec(&policy))
}

/// The first field of `given` that reading it has lost.
fn unknown(given: &Value, known: &Value, path: &str) -> Option<String> {
    match (given, known) {
        (Value::Object(given), Value::Object(known)) => given.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match known.get(name) {
                Some(known) => unknown(value, known, &path),
                // What is empty is not written again; it says nothing either.
                None if is_empty(value) => None,
                None => Some(path),
            }
        }),
        (Value::Array(given), Value::Array(known)) => given
            .iter()
            .zip(known)
            .enumerate()
            .find_map(|(index, (given, known))| unknown(given, known, &format!("{path}[{index}]"))),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// The names of the tools that a ToolRegistry defines itself.
fn tools(registry: &Value) -> BTreeSet<String> {
    registry
        .pointer("/spec/handlers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|handler| handler.pointer("/tool/name").and_then(Value::as_str))
        .map(str::to_owned)
        .collect()
}

impl Policies {
    /// The registry that a call of `tool` is about: the one of the files that defines the tool, else the only one that is
    /// named at all.
    pub(super) fn registry_of(&self, tool: &str) -> Result<String, Failure> {
        let defining: BTreeSet<&str> = self
            .registries
            .iter()
            .filter(|(_, tools)| tools.contains(tool))
            .map(|(name, _)| name.as_str())
            .collect();
        let named = || self.specs.iter().map(|spec| spec.registry.as_str()).collect();
        let candidates: BTreeSet<&str> = if defining.is_empty() { named() } else { defining };
        let mut names = candidates.iter();
        match (names.next(), names.next()) {
            (Some(only), None) => Ok((*only).to_owned()),
            _ => Err(Failure::new(format!(
                "which registry has tool {tool}? The files name {}",
                candidates.into_iter().collect::<Vec<_>>().join(", ")
            ))
            .with_hint("name it with `--registry NAME`")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_not_read_is_found_wherever_it_stands() {
        let known = json!({"rules": [{"name": "a", "deny": {"cel": "true", "message": ""}}]});
        let mut given = known.clone();
        assert_eq!(unknown(&given, &known, "spec"), None);
        given["headerInjection"] = json!([]);
        assert_eq!(unknown(&given, &known, "spec"), None);
        given["rules"][0]["deny"]["sel"] = json!("x");
        assert_eq!(
            unknown(&given, &known, "spec").as_deref(),
            Some("spec.rules[0].deny.sel")
        );
    }

    #[test]
    fn om_486_the_registry_is_the_one_that_has_the_tool_or_the_only_one() {
        let spec = |registry: &str| PolicySpec {
            name: format!("of-{registry}"),
            registry: registry.to_owned(),
            ..PolicySpec::default()
        };
        let mut policies = Policies {
            specs: vec![spec("a")],
            ..Policies::default()
        };
        assert_eq!(policies.registry_of("t").unwrap(), "a");
        policies.specs.push(spec("b"));
        let failure = policies.registry_of("t").unwrap_err();
        assert!(failure.text.ends_with("The files name a, b"), "{failure}");
        policies.registries = [("b".to_owned(), BTreeSet::from(["t".to_owned()]))].into();
        assert_eq!(policies.registry_of("t").unwrap(), "b");
    }
}
