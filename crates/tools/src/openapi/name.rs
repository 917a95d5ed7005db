//! Names that every provider takes (OM-427, D3).
//!
//! A name is decided by the document alone, so it is the same on every load, and by its own operation
//! as far as possible, so that another operation's arrival does not hand it to somebody else.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

/// Longest name of a tool and of an argument.
pub(super) const MAX_NAME: usize = 64;

const DIGEST_CHARACTERS: usize = 8;

/// Id of an operation without an `operationId`: `<method>_<path>`, with `/` as `_`, without braces, and
/// without the underscores that this leaves at the ends of the path.
pub(super) fn generated_id(method: &str, path: &str) -> String {
    let path: String = path
        .chars()
        .filter(|letter| !matches!(letter, '{' | '}'))
        .map(|letter| if letter == '/' { '_' } else { letter })
        .collect();
    format!("{method}_{}", path.trim_matches('_'))
}

/// One operation, as far as its name goes.
pub(crate) struct Named<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// The tools' names, in the order of `operations`.
///
/// An id that is a fit name is kept. Of ids that give the same name, only the one that needs no change
/// keeps it; all others end in a digest of what they name.
pub(crate) fn tool_names(operations: &[Named<'_>]) -> Vec<String> {
    let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
    for operation in operations {
        *wanted.entry(fit(operation.id)).or_default() += 1;
    }
    let mut used = BTreeSet::new();
    let mut names = vec![String::new(); operations.len()];
    // Exact names first: they must not depend on what others are turned into.
    for (operation, name) in operations.iter().zip(&mut names) {
        if fit(operation.id) == operation.id && used.insert(operation.id.to_owned()) {
            operation.id.clone_into(name);
        }
    }
    for (operation, name) in operations.iter().zip(&mut names) {
        if !name.is_empty() {
            continue;
        }
        let plain = fit(operation.id);
        let is_whole = operation.id.chars().count() <= MAX_NAME;
        if is_whole && wanted.get(&plain) == Some(&1) && used.insert(plain.clone()) {
            *name = plain;
            continue;
        }
        let mut round = 0_u32;
        *name = loop {
            let candidate = with_digest(operation, round);
            if used.insert(candidate.clone()) {
                break candidate;
            }
            round += 1;
        };
    }
    names
}

/// `text` with every character that a name may not have as `_`, cut to the limit.
fn fit(text: &str) -> String {
    text.chars()
        .take(MAX_NAME)
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-') {
                letter
            } else {
                '_'
            }
        })
        .collect()
}

fn with_digest(operation: &Named<'_>, round: u32) -> String {
    let mut digest = Sha256::new();
    for part in [operation.id, operation.method, operation.path, &round.to_string()] {
        digest.update(part);
        digest.update([0]);
    }
    let digest = format!("{:x}", digest.finalize());
    let mut name = fit(operation.id);
    // All of its characters are ASCII.
    name.truncate(MAX_NAME - DIGEST_CHARACTERS - 1);
    format!("{name}_{}", &digest[..DIGEST_CHARACTERS])
}

/// Names of arguments, which one object holds although the document spreads them over path, query,
/// headers and body.
#[derive(Debug, Default)]
pub(super) struct ArgumentNames {
    used: BTreeSet<String>,
    /// The last number behind a name, so that many equal ones are not counted through each time.
    numbers: BTreeMap<String, u32>,
}

impl ArgumentNames {
    /// A free name for `name` at `location`: itself where it is fit and free, else with the location in
    /// front, else with a number behind.
    pub(super) fn take(&mut self, name: &str, location: &str) -> String {
        let plain = argument(name);
        if !plain.is_empty() && self.used.insert(plain.clone()) {
            return plain;
        }
        let placed = argument(&format!("{location}_{name}"));
        if self.used.insert(placed.clone()) {
            return placed;
        }
        let number = self.numbers.entry(placed.clone()).or_insert(1);
        loop {
            *number += 1;
            let suffix = format!("_{number}");
            let mut candidate = placed.clone();
            candidate.truncate(MAX_NAME - suffix.len());
            candidate.push_str(&suffix);
            if self.used.insert(candidate.clone()) {
                return candidate;
            }
        }
    }
}

fn argument(text: &str) -> String {
    text.chars()
        .take(MAX_NAME)
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.') {
                letter
            } else {
                '_'
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    fn names(ids: &[&str]) -> Vec<String> {
        let operations: Vec<Named<'_>> = ids
            .iter()
            .map(|id| Named {
                id,
                method: "get",
                path: id,
            })
            .collect();
        tool_names(&operations)
    }

    #[test]
    fn an_operation_without_an_id_is_named_by_method_and_path_om_427() {
        for (method, path, expected) in [
            ("get", "/pets/{petId}", "get_pets_petId"),
            ("post", "/users/{id}/posts/", "post_users_id_posts"),
            ("get", "/", "get_"),
        ] {
            assert_eq!(generated_id(method, path), expected);
        }
    }

    #[test]
    fn names_of_at_most_64_allowed_characters_d3() {
        let long = "x".repeat(90);
        let names = names(&[
            &long, "get_", "foo/list", "foo.list", "bar.list", "bar_list", "only.one", "",
        ]);
        assert_eq!(names[0].len(), 64);
        assert!(names[0].starts_with(&"x".repeat(55)));
        assert_eq!(names[1], "get_");
        assert!(names[2].starts_with("foo_list_") && names[3].starts_with("foo_list_"));
        assert_ne!(names[2], names[3]);
        assert!(names[4].starts_with("bar_list_"));
        assert_eq!(names[5], "bar_list");
        assert_eq!(names[6], "only_one");
        assert!(!names[7].is_empty());
        // Pinned: a name that changes with a release breaks the prompts that list it.
        assert_eq!(names[2], "foo_list_e12113ff");
    }

    #[test]
    fn a_name_does_not_depend_on_the_order_d3() {
        let mut forward = names(&["a/b", "a.b", "a_b", "a b"]);
        let mut backward = names(&["a b", "a_b", "a.b", "a/b"]);
        forward.sort();
        backward.sort();
        assert_eq!(forward, backward);
    }

    #[test]
    fn arguments_of_one_name_are_told_apart_by_their_location() {
        let mut names = ArgumentNames::default();
        assert_eq!(names.take("id", "path"), "id");
        assert_eq!(names.take("id", "query"), "query_id");
        assert_eq!(names.take("body_id", "body"), "body_id");
        assert_eq!(names.take("id", "body"), "body_id_2");
        assert_eq!(names.take("filter[name]", "query"), "filter_name_");
        assert_eq!(names.take("filter(name)", "query"), "query_filter_name_");
        assert_eq!(names.take("", "query"), "query_");
        assert_eq!(names.take(&"é".repeat(100), "query").len(), 64);
    }

    proptest! {
        #[test]
        fn names_are_fit_unique_and_stable_d3(ids in prop::collection::vec(".{0,100}", 0..30)) {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            let once = names(&ids);
            prop_assert_eq!(&once, &names(&ids));
            let unique: BTreeSet<&String> = once.iter().collect();
            prop_assert_eq!(unique.len(), once.len());
            for name in &once {
                prop_assert!((1..=64).contains(&name.len()), "{}", name);
                prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')), "{}", name);
            }
        }
    }
}
