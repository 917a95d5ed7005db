//! The definitions of `agentkourier.dev`: what they refuse and accept, their limits, and the hash that they carry.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use mainstay_kubeapi::schema::{self, Node, Rules};
use mainstay_resources::{
    crd::schema_hash,
    kourier::{AgentBackendSpec, BindingSpec, ChatConnectionSpec, GROUP, SCHEMA_HASH_ANNOTATION},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The definitions of the group as they are checked in.
fn definitions() -> Vec<Value> {
    let found: Vec<Value> = mainstay_resources::crd_yaml()
        .iter()
        .map(|(name, yaml)| serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{name}: {error}")))
        .filter(|definition: &Value| definition["spec"]["group"] == GROUP)
        .collect();
    assert_eq!(found.len(), 3);
    found
}

fn definition(kind: &str) -> Value {
    definitions()
        .into_iter()
        .find(|definition| definition["spec"]["names"]["kind"] == kind)
        .unwrap()
}

fn schema_of(definition: &Value) -> &Value {
    &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
}

struct Kind {
    node: std::sync::Arc<Node>,
    rules: Rules,
}

fn kind(name: &str) -> Kind {
    let definition = definition(name);
    let document = schema_of(&definition);
    let node = Node::from_crd_schema(document).unwrap();
    let rules = schema::compile_rules(document, &node);
    Kind { node, rules }
}

/// What admission says of an object with this spec.
fn admit(kind: &Kind, spec: &Value) -> Vec<String> {
    let mut object = json!({ "metadata": { "name": "a" }, "spec": spec });
    let mut errors: Vec<String> = schema::prune(&kind.node, &mut object)
        .iter()
        .map(|path| format!("{}: unknown field", path.as_str()))
        .collect();
    schema::default_object(&kind.node, &mut object);
    errors.extend(
        schema::validate_update(&kind.node, &object, None)
            .iter()
            .chain(&schema::validate_lists(&kind.node, &object))
            .chain(&kind.rules.validate(&object, None))
            .map(ToString::to_string),
    );
    errors
}

/// `valid` with `changes` merged in; null removes.
fn with(valid: &Value, changes: &Value) -> Value {
    let mut changed = valid.clone();
    merge(&mut changed, changes);
    changed
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (name, change) in changes {
                if change.is_null() {
                    into.remove(name);
                } else {
                    merge(into.entry(name.clone()).or_insert(Value::Null), change);
                }
            }
        }
        (into, changes) => *into = changes.clone(),
    }
}

/// Checks that each change is refused at a field with some words.
fn refused(kind_name: &str, valid: &Value, cases: &[(Value, &str, &str)]) {
    let kind = kind(kind_name);
    assert_eq!(admit(&kind, valid), Vec::<String>::new(), "{kind_name}");
    for (change, field, words) in cases {
        let errors = admit(&kind, &with(valid, change));
        assert!(
            errors
                .iter()
                .any(|error| error.starts_with(&format!("{field}: ")) && error.contains(words)),
            "{kind_name} {change}: {errors:?}"
        );
    }
}

fn accepted(kind_name: &str, valid: &Value, changes: &[Value]) {
    let kind = kind(kind_name);
    for change in changes {
        assert_eq!(
            admit(&kind, &with(valid, change)),
            Vec::<String>::new(),
            "{kind_name} {change}"
        );
    }
}

fn binding() -> Value {
    json!({
        "connectionRef": { "name": "team" }, "backendRef": { "name": "helpdesk" },
        "chat": { "channel": "C0123ABCD" },
    })
}

#[test]
fn bindings_are_refused_where_the_page_says_so_ak_009_ak_013_ak_020() {
    let trigger = |change: Value| json!({ "triggers": [with(&json!({ "match": "a" }), &change)] });
    let many: serde_json::Map<String, Value> =
        (0..33).map(|number| (format!("a{number}"), json!("x"))).collect();
    refused(
        "Binding",
        &binding(),
        &[
            (json!({ "chat": null }), "spec.chat", "Required value"),
            (
                json!({ "connectionRef": { "name": null } }),
                "spec.connectionRef.name",
                "Required value",
            ),
            (
                json!({ "backendRef": { "name": "A_b" } }),
                "spec.backendRef.name",
                "should match",
            ),
            (
                json!({ "backendRef": { "namespace": "a.b" } }),
                "spec.backendRef.namespace",
                "should match",
            ),
            (
                json!({ "chat": { "channel": "D0123" } }),
                "spec.chat.channel",
                "should match '^[CG][A-Z0-9]+$'",
            ),
            (
                json!({ "chat": { "channel": format!("C{}", "0".repeat(64)) } }),
                "spec.chat.channel",
                "Too long",
            ),
            (
                json!({ "chat": { "channel": 5 } }),
                "spec.chat.channel",
                "must be of type string",
            ),
            (
                json!({ "chat": { "bogusField": "x" } }),
                "spec.chat.bogusField",
                "unknown field",
            ),
            (
                json!({ "identity": {} }),
                "spec.identity",
                "\"object\": set userId, tokenSecretRef, or both",
            ),
            (
                json!({ "identity": { "userId": "" } }),
                "spec.identity.userId",
                "at least 1 chars long",
            ),
            (
                json!({ "identity": { "userId": "a\nb" } }),
                "spec.identity.userId",
                "should match",
            ),
            (
                json!({ "identity": { "tokenSecretRef": { "name": "a", "key": "a/b" } } }),
                "spec.identity.tokenSecretRef.key",
                "should match",
            ),
            (
                json!({ "triggers": vec![json!({ "match": "a" }); 51] }),
                "spec.triggers",
                "Too many",
            ),
            (
                trigger(json!({ "match": null })),
                "spec.triggers[0].match",
                "Required value",
            ),
            (
                trigger(json!({ "match": "" })),
                "spec.triggers[0].match",
                "at least 1 chars long",
            ),
            (
                trigger(json!({ "exclude": "x".repeat(513) })),
                "spec.triggers[0].exclude",
                "Too long",
            ),
            (
                trigger(json!({ "extract": many })),
                "spec.triggers[0].extract",
                "Too many",
            ),
            (
                trigger(json!({ "extract": { "1a": "x" } })),
                "spec.triggers[0].extract",
                "does not begin with a digit",
            ),
            (
                trigger(json!({ "extract": { "a".repeat(65): "x" } })),
                "spec.triggers[0].extract",
                "at most 64",
            ),
            (
                trigger(json!({ "promptTemplate": "x".repeat(16385) })),
                "spec.triggers[0].promptTemplate",
                "Too long",
            ),
        ],
    );
    accepted(
        "Binding",
        &binding(),
        &[
            // A private channel, and everything at its limit. Characters count, so more than 512 bytes pass here (AK-012).
            json!({ "chat": { "channel": "G1" }, "identity": { "userId": "a b" }, "suspend": true }),
            json!({ "triggers": vec![json!({ "match": "é".repeat(512) }); 50] }),
            trigger(json!({ "match": "(", "extract": { "_a1": "[" }, "promptTemplate": "{{" })),
        ],
    );
}

#[test]
fn the_two_faults_of_the_page_are_named_in_one_answer_ak_010() {
    let errors = admit(
        &kind("Binding"),
        &with(
            &binding(),
            &json!({ "chat": { "channel": "general" }, "identity": {} }),
        ),
    );
    assert_eq!(
        errors,
        [
            "spec.chat.channel: Invalid value: \"general\": spec.chat.channel in body should match '^[CG][A-Z0-9]+$'",
            "spec.identity: Invalid value: \"object\": set userId, tokenSecretRef, or both",
        ]
    );
}

#[test]
fn backends_are_refused_where_the_schema_can_tell_ak_013_ak_050_ak_052() {
    let valid = json!({ "dialect": "a2a", "url": "https://agents.example.com/a?b=c" });
    let many: serde_json::Map<String, Value> = (0..33)
        .map(|number| (format!("X-{number}"), json!("x")))
        .collect();
    refused(
        "AgentBackend",
        &valid,
        &[
            (json!({ "dialect": "A2A" }), "spec.dialect", "should match"),
            (json!({ "url": "ftp://a" }), "spec.url", "should match"),
            (json!({ "url": "https://" }), "spec.url", "should match"),
            (
                json!({ "url": "https://a:b@example.com" }),
                "spec.url",
                "no user and no password",
            ),
            (json!({ "url": "https://a/#b" }), "spec.url", "no fragment"),
            (
                json!({ "url": "wss://a/" }),
                "spec",
                "for dialect omnia-websocket only",
            ),
            (json!({ "dialect": "openai-chat" }), "spec", "model is required"),
            (
                json!({ "dialect": "omnia-websocket", "agent": { "namespace": "a" } }),
                "spec",
                "agent.name is required",
            ),
            (json!({ "headers": many }), "spec.headers", "Too many"),
            (
                json!({ "headers": { "a".repeat(257): "x" } }),
                "spec.headers",
                "at most 256 bytes",
            ),
            (
                json!({ "headers": { "a b": "x" } }),
                "spec.headers",
                "is made of letters",
            ),
            (
                json!({ "headers": { "X-A": "a\r\nb" } }),
                "spec.headers.X-A",
                "should match",
            ),
            (
                json!({ "allowedNamespaces": ["a", "a"] }),
                "spec.allowedNamespaces[1]",
                "Duplicate value",
            ),
            (
                json!({ "allowedNamespaces": ["a*"] }),
                "spec.allowedNamespaces[0]",
                "should match",
            ),
            (
                json!({ "maxOutputTokens": 0 }),
                "spec.maxOutputTokens",
                "greater than or equal to 1",
            ),
            (json!({ "timeout": "0s" }), "spec.timeout", "between 1s and 24h"),
            (json!({ "timeout": "25h" }), "spec.timeout", "between 1s and 24h"),
            (
                json!({ "idleTimeout": "5 minutes" }),
                "spec.idleTimeout",
                "should match",
            ),
        ],
    );
    accepted(
        "AgentBackend",
        &valid,
        &[
            // An adapter's name is the broker's to know, and so are the finer rules of a url (AK-012).
            json!({ "dialect": "not-yet-invented", "url": "http://a:99999/%zz" }),
            json!({ "dialect": "omnia-websocket", "url": "wss://a", "agent": { "name": "b" } }),
            json!({ "dialect": "openai-chat", "model": "m", "timeout": "24h", "idleTimeout": "1s" }),
            json!({ "headers": { "a".repeat(256): "x", "X-!#$%&'*+.^_`|~": "" }, "allowedNamespaces": ["*"] }),
        ],
    );
}

#[test]
fn a_duration_that_is_none_is_named_once() {
    let errors = admit(
        &kind("AgentBackend"),
        &json!({ "dialect": "a2a", "url": "https://a", "timeout": "soon" }),
    );
    assert_eq!(errors.len(), 1, "{errors:?}");
}

#[test]
fn connections_are_refused_without_the_secret_of_their_mode() {
    let valid = json!({ "slack": { "botTokenSecretRef": { "name": "slack" }, "appTokenSecretRef": { "name": "slack" } } });
    refused(
        "ChatConnection",
        &valid,
        &[
            (
                json!({ "provider": "teams" }),
                "spec.provider",
                "supported values: \"slack\"",
            ),
            (json!({ "slack": null }), "spec.slack", "Required value"),
            (
                json!({ "slack": { "botTokenSecretRef": null } }),
                "spec.slack.botTokenSecretRef",
                "Required value",
            ),
            (
                json!({ "slack": { "appTokenSecretRef": null } }),
                "spec.slack",
                "appTokenSecretRef is required for mode socket",
            ),
            (
                json!({ "slack": { "mode": "events" } }),
                "spec.slack",
                "signingSecretRef is required for mode events",
            ),
            (
                json!({ "slack": { "apiUrl": "http://slack.com/api/" } }),
                "spec.slack.apiUrl",
                "loopback",
            ),
            (
                json!({ "slack": { "apiUrl": "http://localhost.example.com/" } }),
                "spec.slack.apiUrl",
                "loopback",
            ),
            (
                json!({ "slack": { "teamId": "C1" } }),
                "spec.slack.teamId",
                "should match",
            ),
        ],
    );
    accepted(
        "ChatConnection",
        &valid,
        &[
            json!({ "slack": { "apiUrl": "http://127.0.0.1:8080/api/", "teamId": "T0123" } }),
            json!({ "slack": { "apiUrl": "http://[::1]/" } }),
            json!({ "slack": { "mode": "events", "appTokenSecretRef": null, "signingSecretRef": { "name": "slack" } } }),
        ],
    );
}

#[test]
fn what_is_not_said_has_the_value_of_the_schema_and_of_the_type() {
    let mut stored = json!({ "spec": { "dialect": "a2a", "url": "https://a" } });
    schema::default_object(&kind("AgentBackend").node, &mut stored);
    let backend: AgentBackendSpec =
        serde_json::from_value(json!({ "dialect": "a2a", "url": "https://a" })).unwrap();
    assert_eq!(stored["spec"], serde_json::to_value(&backend).unwrap());
    assert_eq!(
        (backend.timeout.as_str(), backend.idle_timeout.as_str()),
        ("30m", "5m")
    );
    assert!(backend.streaming);

    let mut stored =
        json!({ "spec": with(&binding(), &json!({ "identity": { "tokenSecretRef": { "name": "a" } } })) });
    schema::default_object(&kind("Binding").node, &mut stored);
    assert_eq!(stored["spec"]["identity"]["tokenSecretRef"]["key"], "token");
    let read: BindingSpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(serde_json::to_value(&read).unwrap(), stored["spec"]);

    let mut stored = json!({ "spec": { "slack": { "botTokenSecretRef": { "name": "a" } } } });
    schema::default_object(&kind("ChatConnection").node, &mut stored);
    let read: ChatConnectionSpec = serde_json::from_value(stored["spec"].clone()).unwrap();
    assert_eq!(read.slack.bot_token_secret_ref.key, "botToken");
    assert_eq!(read.slack.api_url, "https://slack.com/api/");
    assert_eq!(stored["spec"]["slack"]["mode"], "socket");
}

#[test]
fn names_columns_and_subresources_are_those_of_the_page_ak_001_ak_002_ak_003_ak_024() {
    let short: Vec<(String, Value, bool)> = definitions()
        .iter()
        .map(|definition| {
            let names = &definition["spec"]["names"];
            assert_eq!(names["categories"], json!(["agentkourier"]));
            assert_eq!(definition["spec"]["scope"], "Namespaced");
            assert_eq!(definition["spec"]["versions"][0]["name"], "v1alpha1");
            (
                names["plural"].as_str().unwrap().to_owned(),
                names["shortNames"].clone(),
                definition["spec"]["versions"][0]["subresources"]["status"].is_object(),
            )
        })
        .collect();
    assert_eq!(
        short,
        [
            (
                "agentbackends".to_owned(),
                json!(["akbackend", "akbackends"]),
                false
            ),
            ("bindings".to_owned(), json!(["akbinding", "akbindings"]), true),
            (
                "chatconnections".to_owned(),
                json!(["akconnection", "akconnections"]),
                false
            ),
        ]
    );
    let binding = definition("Binding");
    let columns: Vec<(String, bool)> = binding["spec"]["versions"][0]["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            (
                column["name"].as_str().unwrap().to_uppercase(),
                column["priority"] == 1,
            )
        })
        .collect();
    let expected = [
        ("CHANNEL", false),
        ("BACKEND", false),
        ("READY", false),
        ("REASON", false),
        ("AGE", false),
        ("SERVED", true),
        ("CONNECTION", true),
    ];
    assert_eq!(columns, expected.map(|(name, wide)| (name.to_owned(), wide)));
}

#[test]
fn every_text_list_and_map_has_a_limit_and_nothing_is_open_ak_008() {
    fn walk(path: &str, schema: &Value, missing: &mut Vec<String>) {
        assert!(
            schema.get("x-kubernetes-preserve-unknown-fields").is_none(),
            "{path} is open"
        );
        let lacks = |limit: &str| schema.get(limit).is_none();
        match schema["type"].as_str() {
            Some("string") if lacks("maxLength") && lacks("enum") && schema["format"] != "date-time" => {
                missing.push(format!("{path}: maxLength"));
            }
            Some("array") if lacks("maxItems") => missing.push(format!("{path}: maxItems")),
            Some("object") if schema.get("additionalProperties").is_some() && lacks("maxProperties") => {
                missing.push(format!("{path}: maxProperties"));
            }
            Some(_) => {}
            None => missing.push(format!("{path}: type")),
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(&format!("{path}.{name}"), property, missing);
        }
        for below in ["items", "additionalProperties"] {
            if let Some(below) = schema.get(below) {
                walk(&format!("{path}[]"), below, missing);
            }
        }
    }
    let mut missing = Vec::new();
    for definition in definitions() {
        for part in ["spec", "status"] {
            if let Some(schema) = schema_of(&definition)["properties"].get(part) {
                walk(part, schema, &mut missing);
            }
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn each_definition_carries_the_hash_of_its_schemas_ak_007() {
    /// Canonical JSON, written out by hand so that it does not share what is tested.
    fn canonical(value: &Value, text: &mut String) {
        match value {
            Value::Object(fields) => {
                let mut names: Vec<&String> = fields.keys().collect();
                names.sort();
                text.push('{');
                for (position, name) in names.into_iter().enumerate() {
                    if position > 0 {
                        text.push(',');
                    }
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push(':');
                    canonical(&fields[name], text);
                }
                text.push('}');
            }
            Value::Array(items) => {
                text.push('[');
                for (position, item) in items.iter().enumerate() {
                    if position > 0 {
                        text.push(',');
                    }
                    canonical(item, text);
                }
                text.push(']');
            }
            other => text.push_str(&other.to_string()),
        }
    }
    for definition in definitions() {
        let name = &definition["metadata"]["name"];
        let mut text = String::new();
        canonical(&json!({ "v1alpha1": schema_of(&definition) }), &mut text);
        let expected: String = Sha256::digest(text.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            definition["metadata"]["annotations"][SCHEMA_HASH_ANNOTATION], expected,
            "{name}"
        );
        // What a client computes from a definition that it read is the same.
        assert_eq!(schema_hash(&definition), expected, "{name}");
        let mut changed = definition.clone();
        changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("another");
        assert_ne!(schema_hash(&changed), expected, "{name}");
    }
}

#[test]
fn the_example_is_accepted_and_read() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/kourier/binding.yaml");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut kinds = Vec::new();
    for document in documents {
        let name = document["kind"].as_str().unwrap();
        assert_eq!(
            admit(&kind(name), &document["spec"]),
            Vec::<String>::new(),
            "{name}"
        );
        kinds.push(name.to_owned());
    }
    assert_eq!(kinds, ["ChatConnection", "AgentBackend", "Binding"]);
}
