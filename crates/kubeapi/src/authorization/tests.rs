#![allow(clippy::unwrap_used, clippy::expect_used)]
use proptest::prelude::*;
use serde_json::json;

use super::{
    rules::{describe, missing},
    *,
};

fn rule(value: serde_json::Value) -> Rule {
    serde_json::from_value(value).unwrap()
}

fn ask(verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> Attributes {
    Attributes::Resource(ResourceAttributes {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
    })
}

#[test]
fn a_rule_allows_what_it_names_and_nothing_else_ka_041() {
    let pods = rule(json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}));
    assert!(pods.allows(&ask("get", "", "pods", "", "a")));
    assert!(!pods.allows(&ask("delete", "", "pods", "", "a")));
    assert!(!pods.allows(&ask("get", "apps", "pods", "", "a")));
    assert!(!pods.allows(&ask("get", "", "pods", "log", "a")));
    assert!(!pods.allows(&Attributes::of_path(&http::Method::GET, "/api")));
    let every_status = rule(json!({"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["*"]}));
    assert!(every_status.allows(&ask("patch", "apps", "deployments", "status", "a")));
    assert!(!every_status.allows(&ask("patch", "apps", "deployments", "", "a")));
    assert!(!every_status.allows(&ask("patch", "apps", "deployments", "substatus", "a")));
    let one = rule(
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"], "verbs": ["get", "list", "create"]}),
    );
    assert!(one.allows(&ask("get", "", "secrets", "", "mine")));
    assert!(!one.allows(&ask("get", "", "secrets", "", "yours")));
    // A collection has no name, so a rule for names does not allow it.
    assert!(!one.allows(&ask("list", "", "secrets", "", "")));
    let paths = rule(json!({"nonResourceURLs": ["/api/*", "/version"], "verbs": ["get"]}));
    let path = |path: &str| Attributes::of_path(&http::Method::GET, path);
    assert!(paths.allows(&path("/api/v1")) && paths.allows(&path("/version")));
    assert!(!paths.allows(&path("/apis")) && !paths.allows(&path("/version/x")));
}

#[test]
fn what_is_missing_is_told_in_the_words_of_the_reference_ka_041() {
    let owned = [rule(
        json!({"apiGroups": [""], "resources": ["pods", "*/log"], "verbs": ["get"]}),
    )];
    let wanted = [
        rule(
            json!({"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]}),
        ),
        rule(json!({"nonResourceURLs": ["/metrics"], "verbs": ["get"]})),
        rule(json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]})),
    ];
    assert_eq!(
        describe(missing(&owned, &wanted)),
        "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"watch\"]}\n\
         {APIGroups:[\"\"], Resources:[\"pods/log\"], Verbs:[\"list\" \"watch\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"a\"], Verbs:[\"get\"]}\n\
         {NonResourceURLs:[\"/metrics\"], Verbs:[\"get\"]}"
    );
    // A right for one name is no right for all names.
    let named = [rule(
        json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["get"]}),
    )];
    let all = [rule(
        json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}),
    )];
    assert_eq!(missing(&named, &all).len(), 1);
    assert!(missing(&all, &named).is_empty());
}

fn some(of: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(proptest::sample::select(of).prop_map(str::to_owned), 0..3)
}

prop_compose! {
    fn any_rule()(
        api_groups in some(&["", "apps", "*"]), resources in some(&["pods", "pods/log", "*/log", "*"]),
        resource_names in some(&["a", "b"]), verbs in some(&["get", "list", "*"]),
    ) -> Rule {
        Rule { api_groups, resources, resource_names, verbs, ..Rule::default() }
    }
}

proptest! {
    /// KA-041: if nothing of a rule is missing, whatever it allows is allowed by what is owned.
    #[test]
    fn what_is_covered_is_allowed(owned in proptest::collection::vec(any_rule(), 0..4), wanted in any_rule(),
        verb in proptest::sample::select(vec!["get", "list", "delete"]), group in proptest::sample::select(vec!["", "apps", "batch"]),
        resource in proptest::sample::select(vec![("pods", ""), ("pods", "log"), ("nodes", "log"), ("nodes", "")]),
        name in proptest::sample::select(vec!["", "a", "c"])) {
        let asked = ask(verb, group, resource.0, resource.1, name);
        if missing(&owned, std::slice::from_ref(&wanted)).is_empty() && wanted.allows(&asked) {
            prop_assert!(owned.iter().any(|rule| rule.allows(&asked)), "{owned:?} do not allow {asked:?}");
        }
    }
}
