#![allow(clippy::unwrap_used, clippy::expect_used)]

use memchr::memmem::Finder;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::fields::Selectable;
use super::*;
use crate::status::Reason;

fn labels(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn selects(selector: &str, value: &Value) -> bool {
    let parsed = LabelSelector::parse(selector).unwrap();
    let meant = parsed.matches(&labels(value));
    let text = value.to_string();
    let has = |trace: &Finder<'_>| trace.find(text.as_bytes()).is_some();
    let may_be_meant = parsed.traces().iter().all(|one_of| one_of.iter().any(has));
    assert!(may_be_meant || !meant, "{selector} leaves out {value}");
    meant
}

#[test]
fn ka_024_label_selectors_compare_sets_and_existence() {
    let web = json!({"app": "web", "tier": "front", "weight": "7", "empty": ""});
    for selector in [
        "",
        "app",
        "app=web",
        "app==web",
        " app = web , tier != back ",
        "tier in (front, back)",
        "tier notin (back)",
        "absent notin (x)",
        "absent!=x",
        "!absent",
        "weight>6,weight<8",
        "empty=",
        "empty in ()",
        "empty in (,a)",
        "empty in (a,)",
        "app in (web),!absent,tier",
    ] {
        assert!(selects(selector, &web), "{selector}");
    }
    for selector in [
        "app=api",
        "absent",
        "absent=x",
        "!app",
        "tier in (back)",
        "weight>7",
        "app>1",
        "app notin (web)",
        "app=web,tier=back",
    ] {
        assert!(!selects(selector, &web), "{selector}");
    }
    assert!(selects("key in (in,notin)", &json!({"key": "in"})));
    assert!(LabelSelector::parse("").unwrap().is_everything());
}

#[test]
fn ka_024_malformed_label_selectors_are_refused_with_the_texts_of_the_reference() {
    let refused = |text: &str| {
        let error = LabelSelector::parse(text).unwrap_err();
        assert_eq!(error.reason, Reason::BadRequest);
        error.message
    };
    assert_eq!(
        refused("a b"),
        "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"
    );
    assert_eq!(refused("a,"), "found '', expected: identifier after ','");
    assert_eq!(refused("a=b c"), "found 'c', expected: ',' or 'end of string'");
    assert_eq!(
        refused("=x"),
        "found '=', expected: !, identifier, or 'end of string'"
    );
    assert_eq!(
        refused("a in b"),
        "unable to parse requirement: found 'b' expected: '('"
    );
    assert_eq!(
        refused("a in (b"),
        "unable to parse requirement: found '', expected: ',' or ')'"
    );
    assert_eq!(
        refused("!"),
        "unable to parse requirement: found '', expected: identifier"
    );
    assert_eq!(
        refused("a>b"),
        "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be \
         an integer"
    );
    assert_eq!(
        refused("a>b/c"),
        "unable to parse requirement: [values[0]: Invalid value: \"b/c\": for 'Gt', 'Lt' operators, the value must be \
         an integer, values[0][a]: Invalid value: \"b/c\": a valid label must be an empty string or consist of \
         alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. \
         'MyValue',  or 'my_value',  or '12345', regex used for validation is \
         '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"
    );
    let message = refused("a=b:c");
    assert!(
        message.starts_with(
            "unable to parse requirement: values[0][a]: Invalid value: \"b:c\": a valid label must"
        ),
        "{message}"
    );
    let message = refused("-bad=c");
    assert!(
        message.starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-bad\": name part must consist"
        ),
        "{message}"
    );
}

#[test]
fn ka_024_label_selector_objects_have_a_text() {
    let selector = json!({
        "matchLabels": {"b": "2", "a": "1"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "DoesNotExist"},
            {"key": "aa", "operator": "NotIn", "values": ["z"]},
            {"key": "e", "operator": "Exists"},
        ],
    });
    assert_eq!(
        format_label_selector(&selector).unwrap(),
        "a=1,aa notin (z),b=2,c in (x,y),!d,e"
    );
    assert_eq!(format_label_selector(&json!({})).unwrap(), "");
    assert_eq!(
        format_label_selector(&json!({"matchExpressions": [{"key": "c", "operator": "Near"}]})),
        None
    );
}

fn pods() -> Vec<String> {
    [
        "spec.nodeName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn fields(text: &str, kind: &str, custom: bool, known: &[String]) -> Result<FieldSelector, String> {
    FieldSelector::parse_for(
        text,
        &Selectable {
            kind,
            custom,
            namespaced: true,
            fields: known,
        },
    )
    .map_err(|error| error.message)
}

#[test]
fn ka_024_field_selectors_compare_texts() {
    let pod = json!({
        "metadata": {"name": "a,b=c", "namespace": "default"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    for (selector, expected) in [
        ("metadata.name=a\\,b\\=c", true),
        ("metadata.name==x", false),
        ("status.phase!=Failed,metadata.namespace=default", true),
        ("status.podIP=10.0.0.1", true),
        ("spec.hostNetwork=false", true),
        ("spec.host=n1", true),
        ("spec.nodeName=", false),
        ("", true),
        (",", true),
    ] {
        let parsed = fields(selector, "Pod", false, &pods()).unwrap();
        assert_eq!(parsed.matches(&pod), expected, "{selector}");
    }
    assert_eq!(
        fields("metadata.name=x", "Pod", false, &pods())
            .unwrap()
            .required_name(),
        Some("x")
    );
    assert_eq!(
        fields("metadata.name!=x", "Pod", false, &pods())
            .unwrap()
            .required_name(),
        None
    );
}

#[test]
fn ka_024_events_and_jobs_are_selected_by_what_their_fields_mean() {
    let event = json!({
        "involvedObject": {"name": "web", "kind": "Pod"}, "reportingComponent": "kubelet", "source": {}, "reason": "Started",
    });
    for (field, value) in [
        ("involvedObject.name", "web"),
        ("source", "kubelet"),
        ("reportingComponent", "kubelet"),
        ("reason", "Started"),
        ("type", ""),
    ] {
        assert_eq!(field_value("Event", &event, field), value, "{field}");
    }
    let regarding = json!({"regarding": {"uid": "u"}, "reportingController": "c"});
    assert_eq!(field_value("Event", &regarding, "involvedObject.uid"), "u");
    assert_eq!(field_value("Event", &regarding, "reportingComponent"), "c");
    assert_eq!(
        field_value("Job", &json!({"status": {"succeeded": 3}}), "status.successful"),
        "3"
    );
    assert_eq!(field_value("Job", &json!({}), "status.successful"), "0");
    assert_eq!(field_value("Node", &json!({}), "spec.unschedulable"), "false");
    assert_eq!(
        field_value("Widget", &json!({"spec": {"on": true, "size": 3}}), "spec.on"),
        "true"
    );
}

#[test]
fn ka_024_unsupported_fields_and_bad_selectors_are_refused() {
    assert_eq!(
        fields("spec.color=x", "Pod", false, &pods()).unwrap_err(),
        "field label not supported: spec.color"
    );
    assert_eq!(
        fields("spec.color=x", "ConfigMap", false, &[]).unwrap_err(),
        "\"spec.color\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    assert_eq!(
        fields("spec.color=x", "Widget", true, &[]).unwrap_err(),
        "field label not supported: spec.color"
    );
    assert!(fields("spec.color=x", "Widget", true, &[".spec.color".to_owned()]).is_ok());
    assert_eq!(
        fields("x=1", "Job", false, &["status.successful".to_owned()]).unwrap_err(),
        "field label \"x\" not supported for Job"
    );
    assert_eq!(
        fields("metadata.name", "Pod", false, &pods()).unwrap_err(),
        "invalid selector: 'metadata.name'; can't understand 'metadata.name'"
    );
    assert_eq!(
        fields("metadata.name=a\\x", "Pod", false, &pods()).unwrap_err(),
        "invalid field selector: invalid escape sequence: \\x"
    );
    assert_eq!(
        fields("metadata.name=a=b", "Pod", false, &pods()).unwrap_err(),
        "invalid field selector: unescaped character in value: 61"
    );
}

proptest! {
    #[test]
    fn ka_024_parsing_never_panics(text in "[a-z!=<>(), \\\\\u{e9}]{0,24}") {
        let _ = LabelSelector::parse(&text);
        let _ = fields(&text, "Pod", false, &pods());
    }

    #[test]
    fn ka_024_in_and_notin_are_opposites(value in proptest::option::of("[ab]"), set in proptest::collection::vec("[ab]", 1..3)) {
        let mut own = Map::new();
        if let Some(value) = value {
            own.insert("k".to_owned(), Value::String(value));
        }
        let set = set.join(",");
        let inside = LabelSelector::parse(&format!("k in ({set})")).unwrap().matches(&own);
        let outside = LabelSelector::parse(&format!("k notin ({set})")).unwrap().matches(&own);
        prop_assert_ne!(inside, outside);
    }
}
