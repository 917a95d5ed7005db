#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn arguments() -> Map<String, Value> {
    object(json!({"id": 7, "q": "a b", "tags": ["x", "y"], "tenant": "t1"}))
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn config(change: impl FnOnce(&mut HttpConfig)) -> HttpConfig {
    let mut config = HttpConfig::new("https://h/base");
    change(&mut config);
    config
}

fn body(shaped: &Shaped) -> Option<Value> {
    shaped
        .body
        .as_ref()
        .map(|body| serde_json::from_slice(body).unwrap())
}

fn query(shaped: &Shaped) -> Vec<(String, String)> {
    shaped.url.query_pairs().into_owned().collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn a_post_sends_the_arguments_as_given_v_50() {
    let shaped = shape(&config(|_| {}), &arguments()).unwrap();
    assert_eq!(shaped.method, Method::POST);
    assert_eq!(shaped.url.as_str(), "https://h/base");
    assert_eq!(body(&shaped), Some(Value::Object(arguments())));
}

#[test]
fn a_get_sends_all_arguments_in_the_query_v_51() {
    let shaped = shape(&config(|config| config.method = "get".to_owned()), &arguments()).unwrap();
    assert_eq!(shaped.method, Method::GET);
    assert_eq!(
        query(&shaped),
        pairs(&[("id", "7"), ("q", "a b"), ("tags", "[x y]"), ("tenant", "t1")])
    );
    assert_eq!(
        shaped.url.query(),
        Some("id=7&q=a%20b&tags=%5Bx%20y%5D&tenant=t1")
    );
    assert_eq!(shaped.body, None);
}

#[test]
fn a_get_with_query_params_sends_only_those_v_52_om_379() {
    let shaped = shape(
        &config(|config| {
            config.method = "GET".to_owned();
            config.query_params = vec!["q".to_owned()];
        }),
        &arguments(),
    )
    .unwrap();
    assert_eq!(query(&shaped), pairs(&[("q", "a b")]));
}

fn v_53() -> HttpConfig {
    config(|config| {
        config.query_params = vec!["q".to_owned()];
        config.header_params.insert("tenant".to_owned(), "X-T".to_owned());
        config.url_template = Some("https://h/u/{id}".to_owned());
    })
}

#[test]
fn consumed_arguments_are_not_sent_again_v_53_om_379() {
    let shaped = shape(&v_53(), &arguments()).unwrap();
    assert_eq!(shaped.url.as_str(), "https://h/u/7?q=a%20b");
    assert_eq!(shaped.headers, pairs(&[("X-T", "t1")]));
    assert_eq!(body(&shaped), Some(json!({"tags": ["x", "y"]})));
}

#[test]
fn static_values_are_merged_under_the_arguments_v_54_om_382() {
    let mut config = v_53();
    config.static_body = Some(json!({"src": "m", "tags": []}));
    config.static_query.insert("v".to_owned(), "1".to_owned());
    let shaped = shape(&config, &arguments()).unwrap();
    assert_eq!(body(&shaped), Some(json!({"src": "m", "tags": ["x", "y"]})));
    assert!(query(&shaped).contains(&("v".to_owned(), "1".to_owned())));
}

#[test]
fn body_mapping_comes_last_and_replaces_the_body_v_55_om_382() {
    let config = config(|config| config.body_mapping = Some("{n: id}".to_owned()));
    assert_eq!(
        body(&shape(&config, &arguments()).unwrap()),
        Some(json!({"n": 7}))
    );
}

#[test]
fn a_body_mapping_that_fails_sends_nothing_om_383() {
    for expression in ["{n: ", "length(id)"] {
        let config = config(|config| config.body_mapping = Some(expression.to_owned()));
        assert!(
            matches!(shape(&config, &arguments()), Err(ShapeError::BodyMapping(_))),
            "{expression}"
        );
    }
}

#[test]
fn a_placeholder_without_argument_is_named_om_377() {
    let config = config(|config| config.url_template = Some("https://h/{id}/{missing}".to_owned()));
    for given in [json!({"id": 1}), json!({"id": 1, "missing": null})] {
        assert_eq!(
            shape(&config, &object(given)),
            Err(ShapeError::PlaceholderMissing("missing".to_owned()))
        );
    }
}

#[test]
fn values_are_encoded_by_position_om_376() {
    let config = config(|config| {
        config.method = "GET".to_owned();
        config.url_template = Some("https://h/a/{p}/b?x={q}&x2={p}".to_owned());
    });
    let shaped = shape(&config, &object(json!({"p": "../c?d#e", "q": "1&admin=true"}))).unwrap();
    assert_eq!(
        shaped.url.as_str(),
        "https://h/a/..%2Fc%3Fd%23e/b?x=1%26admin%3Dtrue&x2=..%2Fc%3Fd%23e"
    );
    assert_eq!(shaped.url.path(), "/a/..%2Fc%3Fd%23e/b");
}

#[test]
fn an_argument_cannot_leave_its_path_or_choose_the_host_om_376() {
    for (template, value) in [
        ("https://h/a/{p}/b", ".."),
        ("https://h/a/{p}", "."),
        ("https://h/a/.{p}/b", "."),
        ("https://h/a/%2e{p}", "."),
        ("https://{p}.example.com/", "evil.com/x"),
        ("https://{p}.example.com/", "user@evil.com"),
        ("https://{p}/", ""),
    ] {
        let config = config(|config| config.url_template = Some(template.to_owned()));
        assert_eq!(
            shape(&config, &object(json!({"p": value}))),
            Err(ShapeError::PlaceholderUnsafe("p".to_owned())),
            "{template} {value}"
        );
    }
    let config = config(|config| config.url_template = Some("https://{p}.example.com/x".to_owned()));
    let shaped = shape(&config, &object(json!({"p": "eu-1"}))).unwrap();
    assert_eq!(shaped.url.as_str(), "https://eu-1.example.com/x");
}

#[test]
fn a_header_value_with_a_line_break_is_refused_om_378() {
    let config = config(|config| {
        config.header_params.insert("tenant".to_owned(), "X-T".to_owned());
    });
    for value in ["a\r\nX-Admin: 1", "a\nb", "a\u{0}b"] {
        let error = shape(&config, &object(json!({"tenant": value}))).unwrap_err();
        assert!(matches!(error, ShapeError::Header { .. }), "{value:?}");
        assert!(error.to_string().contains("X-T"));
    }
    let shaped = shape(&config, &object(json!({"tenant": null}))).unwrap();
    assert!(shaped.headers.is_empty());
}

#[test]
fn a_static_parameter_replaces_the_urls_and_outlives_an_argument_om_380() {
    let config = config(|config| {
        config.endpoint = "https://h/?v=0&keep=1#top".to_owned();
        config.method = "DELETE".to_owned();
        config.static_query.insert("v".to_owned(), "1".to_owned());
    });
    let shaped = shape(&config, &object(json!({"v": "2", "n": null}))).unwrap();
    assert_eq!(query(&shaped), pairs(&[("keep", "1"), ("v", "1")]));
    assert_eq!(shaped.url.fragment(), None);
}

#[test]
fn nothing_to_send_is_no_body_om_385() {
    let none = Map::new();
    assert_eq!(shape(&config(|_| {}), &none).unwrap().body, None);
    let empty = config(|config| config.static_body = Some(json!({})));
    assert_eq!(shape(&empty, &none).unwrap().body, None);
    let fixed = config(|config| config.static_body = Some(json!({"a": 1})));
    assert_eq!(body(&shape(&fixed, &none).unwrap()), Some(json!({"a": 1})));
    let mapped = config(|config| config.body_mapping = Some("missing".to_owned()));
    assert_eq!(shape(&mapped, &none).unwrap().body, None);
}

#[test]
fn other_methods_never_have_a_body_om_381() {
    let config = config(|config| {
        config.method = "DELETE".to_owned();
        config.static_body = Some(json!({"a": 1}));
    });
    let shaped = shape(&config, &arguments()).unwrap();
    assert_eq!(shaped.body, None);
    assert_eq!(query(&shaped).len(), 4);
}

#[test]
fn a_url_or_method_that_cannot_be_used_is_an_error() {
    for endpoint in ["ftp://h/", "/path", "h:80", ""] {
        let config = config(|config| config.endpoint = endpoint.to_owned());
        assert!(
            matches!(shape(&config, &Map::new()), Err(ShapeError::Url(_))),
            "{endpoint}"
        );
    }
    let config = config(|config| config.method = "A B".to_owned());
    assert!(matches!(shape(&config, &Map::new()), Err(ShapeError::Method(_))));
}

proptest! {
    #[test]
    fn an_argument_never_changes_host_or_number_of_segments(value in "\\PC{1,20}", in_query in "\\PC{0,20}") {
        let config = config(|config| {
            config.method = "GET".to_owned();
            config.url_template = Some("https://host/a/{p}/z?k={q}".to_owned());
        });
        if let Ok(shaped) = shape(&config, &object(json!({"p": value, "q": in_query}))) {
            prop_assert_eq!(shaped.url.host_str(), Some("host"));
            prop_assert_eq!(shaped.url.path_segments().unwrap().count(), 3);
            prop_assert_eq!(query(&shaped), vec![("k".to_owned(), in_query)]);
        }
    }
}
