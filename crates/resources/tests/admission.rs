//! The admission vectors (V-01 … V-20 and further ones named by requirement): what the generated CRDs refuse, what
//! they accept, and that the validators refuse the same.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeMap, path::PathBuf};

use mainstay_kubeapi::schema::{self, Node, Rules};
use mainstay_resources::{
    omnia::{AgentRuntimeSpec, PromptPackSpec, ProviderSpec, ToolPolicySpec, ToolRegistrySpec},
    validation,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Vector {
    vector: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    expect: Expectation,
    at: Option<String>,
    old: Option<Value>,
    object: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expectation {
    Accepted,
    Refused,
}

struct Kind {
    node: std::sync::Arc<Node>,
    rules: Rules,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn vectors() -> Vec<Vector> {
    let mut files: Vec<_> = std::fs::read_dir(root().join("tests/cases/admission"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
        .iter()
        .map(|path| {
            serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap())
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

/// The kinds as the API server sees them: read from the checked-in files.
fn kinds() -> BTreeMap<String, Kind> {
    mainstay_resources::crd_yaml()
        .iter()
        .map(|(name, yaml)| {
            let crd: Value = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{name}: {error}"));
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let node = Node::from_crd_schema(schema).unwrap_or_else(|errors| panic!("{name}: {errors:?}"));
            let rules = schema::compile_rules(schema, &node);
            (
                crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(),
                Kind { node, rules },
            )
        })
        .collect()
}

fn line(error: &mainstay_kubeapi::field::FieldError) -> String {
    format!("{}: {}", error.path.as_str(), error.message())
}

/// What the write pipeline does with an object, without storing it. Each line is a path and a message.
fn admit(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut object = object.clone();
    let mut errors: Vec<String> = schema::prune(&kind.node, &mut object)
        .iter()
        .map(|path| format!("{}: unknown field", path.as_str()))
        .collect();
    schema::default_object(&kind.node, &mut object);
    let old = old.map(|old| {
        let mut old = old.clone();
        schema::default_object(&kind.node, &mut old);
        old
    });
    let schema_errors = schema::validate_update(&kind.node, &object, old.as_ref());
    let broken = !schema_errors.is_empty();
    errors.extend(schema_errors.iter().map(line));
    errors.extend(schema::validate_lists(&kind.node, &object).iter().map(line));
    if !broken {
        errors.extend(kind.rules.validate(&object, old.as_ref()).iter().map(line));
    }
    errors
}

/// What the validator says, where the object can be read at all.
fn validator_findings(object: &Value) -> Option<Vec<String>> {
    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
        serde_json::from_value(object["spec"].clone()).ok()
    }
    let text = |findings: Vec<validation::Finding>| findings.iter().map(ToString::to_string).collect();
    Some(match object["kind"].as_str()? {
        "ToolRegistry" => {
            let spec: ToolRegistrySpec = read(object)?;
            validation::tool_registry::validate(&spec, &validation::tool_registry::NoCallRules)
                .errors
                .iter()
                .map(ToString::to_string)
                .collect()
        }
        "PromptPack" => text(validation::prompt_pack::validate(&read::<PromptPackSpec>(
            object,
        )?)),
        "Provider" => {
            let spec: ProviderSpec = read(object)?;
            let mut findings: Vec<String> = text(validation::provider::validate(&spec));
            if let validation::provider::CredentialPlan::Invalid { message, .. } =
                validation::provider::credential(&spec)
                && spec.credential.is_some()
            {
                findings.push(message);
            }
            findings
        }
        "ToolPolicy" => text(validation::tool_policy::validate(&read::<ToolPolicySpec>(
            object,
        )?)),
        "AgentRuntime" => {
            let spec: AgentRuntimeSpec = read(object)?;
            let mut findings: Vec<String> = text(validation::agent_runtime::validate(&spec));
            if spec.prompt_pack_ref.version.is_some() && spec.prompt_pack_ref.track.is_some() {
                findings.push("spec.promptPackRef: version and track cannot be combined".into());
            }
            findings
        }
        other => panic!("no validator for {other}"),
    })
}

#[test]
fn admission_refuses_and_accepts_what_the_vectors_say() {
    let kinds = kinds();
    let vectors = vectors();
    assert!((1..=20).all(|number| {
        vectors
            .iter()
            .any(|vector| vector.vector == format!("V-{number:02}"))
    }));
    let mut wrong = Vec::new();
    for vector in &vectors {
        for case in &vector.cases {
            let kind = &kinds[case.object["kind"].as_str().unwrap()];
            let errors = admit(kind, &case.object, case.old.as_ref());
            let outcome = if errors.is_empty() {
                Expectation::Accepted
            } else {
                Expectation::Refused
            };
            let place = case
                .at
                .as_ref()
                .is_none_or(|at| errors.iter().any(|error| error.starts_with(at.as_str())));
            if outcome != case.expect || !place {
                wrong.push(format!("{} {}: {outcome:?} {errors:?}", vector.vector, case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn validators_agree_with_admission_on_objects_that_bypassed_it_dd_2() {
    let mut wrong = Vec::new();
    for vector in vectors() {
        for case in &vector.cases {
            // Unknown fields and updates are admission's alone: no validator ever sees what was pruned, or the past.
            if case.old.is_some() {
                continue;
            }
            let Some(findings) = validator_findings(&case.object) else {
                assert_eq!(
                    case.expect,
                    Expectation::Refused,
                    "{} {}: cannot be read",
                    vector.vector,
                    case.name
                );
                continue;
            };
            let unknown_field = matches!(
                (vector.vector.as_str(), case.name.as_str()),
                ("V-01", "a handler-level endpoint is unknown") | ("V-16", "a command") | ("V-18", "retryOn")
            );
            if !unknown_field && findings.is_empty() != (case.expect == Expectation::Accepted) {
                wrong.push(format!("{} {}: {findings:?}", vector.vector, case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_checked_in_crds_are_those_of_the_types() {
    let generated = mainstay_resources::crd::documents().unwrap();
    let checked_in = mainstay_resources::crd_yaml();
    assert_eq!(generated.len(), checked_in.len());
    for (document, (name, yaml)) in generated.iter().zip(checked_in) {
        let read: Value = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(&read, document, "{name}: run `cargo run -p xtask -- generate`");
        assert_eq!(document["metadata"]["labels"]["mainstay.dev/managed"], "true");
    }
    assert_eq!(mainstay_resources::crds().unwrap().len(), generated.len());
}

#[test]
fn declared_defaults_are_persisted_and_read_back_om_004() {
    let kinds = kinds();
    let mut object = serde_json::json!({
        "apiVersion": "omnia.altairalabs.ai/v1alpha1", "kind": "ToolRegistry", "metadata": { "name": "r" },
        "spec": { "handlers": [{
            "name": "a", "type": "http",
            "httpConfig": { "endpoint": "https://x", "retryPolicy": { "maxAttempts": 2 } },
            "auth": {}, "delegation": {},
        }] },
    });
    schema::default_object(&kinds["ToolRegistry"].node, &mut object);
    let handler = &object["spec"]["handlers"][0];
    assert_eq!(handler["timeout"], "30s");
    assert_eq!(handler["httpConfig"]["method"], "POST");
    assert_eq!(handler["httpConfig"]["contentType"], "application/json");
    assert_eq!(handler["auth"]["type"], "none");
    assert_eq!(handler["delegation"]["enabled"], false);
    assert_eq!(
        handler["httpConfig"]["retryPolicy"],
        serde_json::json!({
            "maxAttempts": 2, "initialBackoff": "100ms", "backoffMultiplier": "2.0", "maxBackoff": "30s",
            "retryOn": [408, 429, 500, 502, 503, 504], "retryOnNetworkError": true, "respectRetryAfter": true,
        })
    );
}

#[test]
fn an_empty_retry_list_stays_different_from_an_absent_one_om_061_om_064() {
    let kinds = kinds();
    for (block, list) in [("httpConfig", "retryOn"), ("grpcConfig", "retryableStatusCodes")] {
        let object = |policy: Value| {
            let mut handler = serde_json::json!({ "name": "a", "type": "http" });
            handler[block] = serde_json::json!({ "endpoint": "https://x", "retryPolicy": policy });
            serde_json::json!({ "spec": { "handlers": [handler] } })
        };
        let mut stored = object(serde_json::json!({ "maxAttempts": 2, list: [] }));
        schema::prune(&kinds["ToolRegistry"].node, &mut stored);
        schema::default_object(&kinds["ToolRegistry"].node, &mut stored);
        let path = format!("/handlers/0/{block}/retryPolicy/{list}");
        for (spec, expected) in [
            (stored["spec"].clone(), Some(serde_json::json!([]))),
            (
                object(serde_json::json!({ "maxAttempts": 2 }))["spec"].clone(),
                None,
            ),
        ] {
            let read: ToolRegistrySpec = serde_json::from_value(spec).unwrap();
            let written = serde_json::to_value(&read).unwrap();
            assert_eq!(written.pointer(&path).cloned(), expected, "{path}");
        }
    }
}

#[test]
fn the_complete_example_is_accepted_as_it_is() {
    let kinds = kinds();
    for file in ["00-policy.yaml", "10-registry.yaml"] {
        let text =
            std::fs::read_to_string(root().join("tests/cases/toolregistry-complete").join(file)).unwrap();
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
        for document in documents
            .iter()
            .filter(|document| document["kind"] != "Namespace")
        {
            let errors = admit(&kinds[document["kind"].as_str().unwrap()], document, None);
            assert!(errors.is_empty(), "{file}: {errors:?}");
        }
    }
}
