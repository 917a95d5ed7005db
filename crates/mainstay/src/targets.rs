//! Which objects a command line means: `TYPE`, `TYPE NAME…`, `TYPE,TYPE`, `TYPE/NAME…`.

use crate::{
    arguments::NamespaceArguments,
    kinds::{Kinds, Served},
    requests::Query,
    terminal::Failure,
};

/// Objects of one kind: one by its name, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The kind.
    pub(crate) kind: Served,
    /// The name; all objects without one.
    pub(crate) name: Option<String>,
}

impl Target {
    /// `plural.group/name`
    pub(crate) fn title(&self) -> String {
        match &self.name {
            Some(name) => format!("{}/{name}", self.kind.title()),
            None => self.kind.title(),
        }
    }
}

/// Reads the words of a command line.
///
/// # Errors
///
/// When a kind is unknown or ambiguous, and when both forms are mixed.
pub(crate) fn parse(kinds: &Kinds, words: &[String], verb: &str) -> Result<Vec<Target>, Failure> {
    let target = |kind: &Served, name: Option<&str>| Target {
        kind: kind.clone(),
        name: name.map(str::to_owned),
    };
    let Some((types, names)) = words.split_first() else {
        return Err(
            Failure::new("no kind is named").with_hint("for example `pods`, or `agentruntimes/helpdesk`")
        );
    };
    if words.iter().any(|word| word.contains('/')) {
        let mut targets = Vec::new();
        for word in words {
            let (kind, name) = word
                .split_once('/')
                .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
                .ok_or_else(|| {
                    Failure::new(format!(
                        "`{word}` is not of the form TYPE/NAME, as the other words are"
                    ))
                })?;
            targets.extend(
                kinds
                    .named(kind, verb)?
                    .into_iter()
                    .map(|kind| target(kind, Some(name))),
            );
        }
        return Ok(targets);
    }
    let mut targets = Vec::new();
    for word in types.split(',').filter(|word| !word.is_empty()) {
        for kind in kinds.named(word, verb)? {
            if names.is_empty() {
                targets.push(target(kind, None));
            }
            targets.extend(names.iter().map(|name| target(kind, Some(name))));
        }
    }
    Ok(targets)
}

/// Where the objects are, as the arguments and the kubeconfig say.
pub(crate) fn query(arguments: &NamespaceArguments, default: &str) -> Query {
    let namespace = arguments.namespace.as_deref().unwrap_or(default).to_owned();
    Query {
        namespace: (!arguments.all_namespaces).then_some(namespace),
        labels: arguments.selector.clone(),
        fields: None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::kinds::tests::some;

    fn titles(words: &[&str]) -> Result<Vec<String>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parse(&some(), &words, "get")
            .map(|targets| targets.iter().map(Target::title).collect())
            .map_err(|failure| failure.text)
    }

    #[test]
    fn each_form_names_its_objects() {
        assert_eq!(titles(&["po"]).unwrap(), ["pods"]);
        assert_eq!(titles(&["po", "a", "b"]).unwrap(), ["pods/a", "pods/b"]);
        assert_eq!(titles(&["po,deploy"]).unwrap(), ["pods", "deployments.apps"]);
        assert_eq!(
            titles(&["po/a", "deploy/b"]).unwrap(),
            ["pods/a", "deployments.apps/b"]
        );
    }

    #[test]
    fn mixed_forms_and_ambiguous_kinds_are_refused() {
        assert_eq!(
            titles(&["po/a", "b"]).unwrap_err(),
            "`b` is not of the form TYPE/NAME, as the other words are"
        );
        assert!(titles(&["providers/a"]).unwrap_err().contains("2 kinds"));
        assert!(titles(&["po/"]).is_err());
    }
}
