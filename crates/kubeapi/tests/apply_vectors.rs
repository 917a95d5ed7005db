//! Server-side apply against what the reference answered to the same sequences of applies and updates
//! (`k8s.io/apimachinery` 0.37.2, `managedfieldstest`, with the schema of a Deployment and of a custom resource that has
//! every kind of list and map). Times are left out: they are tested beside the code. Requirement KA-027.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use mainstay_kubeapi::apply::{ApplyOptions, FieldSet, apply, track_update};
use mainstay_kubeapi::builtin::Kinds;
use mainstay_kubeapi::schema::Node;
use serde_json::{Value, json};

fn options(step: &Value, api_version: &str) -> ApplyOptions {
    ApplyOptions {
        manager: step["manager"].as_str().unwrap().to_owned(),
        force: step["force"] == true,
        api_version: api_version.to_owned(),
        subresource: String::new(),
        now: "2026-01-01T00:00:00Z".parse().unwrap(),
        reset_fields: FieldSet::default(),
    }
}

fn without_times(object: &Value) -> Value {
    let mut object = object.clone();
    for entry in object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        entry.as_object_mut().unwrap().remove("time");
    }
    // With equal times entries are in the order of operation, manager and version.
    if let Some(entries) = object
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut)
    {
        entries.sort_by_key(|entry| (entry["operation"].to_string(), entry["manager"].to_string()));
    }
    object
}

/// The lines of an error, sorted: the reference lists managers in the order of a hash map.
fn lines(message: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = message.lines().collect();
    lines.sort_unstable();
    lines
}

fn run(vectors: &str, node: &Node, api_version: &str) {
    for (number, vector) in vectors.lines().enumerate() {
        let steps: Vec<Value> = serde_json::from_str(vector).unwrap();
        let mut live: Option<Value> = None;
        for (position, step) in steps.iter().enumerate() {
            let place = format!("vector {number}, step {position}");
            let options = options(step, api_version);
            if step["operation"] == "update" {
                let mut candidate = step["object"].clone();
                track_update(node, live.as_ref(), &mut candidate, &options);
                live = Some(candidate);
            } else {
                match apply(node, live.as_ref(), &step["object"], &options) {
                    Ok(applied) => live = Some(applied),
                    Err(error) => {
                        let expected = step["error"].as_str().unwrap_or_default();
                        assert_eq!(lines(&error.message), lines(expected), "{place}");
                        continue;
                    }
                }
            }
            assert_eq!(step.get("error"), None, "{place} is refused by the reference");
            let live = without_times(live.as_ref().unwrap());
            assert_eq!(live, without_times(&step["result"]), "{place}");
        }
    }
}

#[test]
fn ka_027_a_deployment_is_applied_as_on_the_reference() {
    let kind = Kinds::builtin().by_kind("apps", "v1", "Deployment").unwrap();
    // The reference's harness handles every object as a custom resource, without the structs that a built-in object
    // always has.
    let mut node = (*kind.node).clone();
    node.definition = None;
    run(include_str!("vectors/apply-deployment.jsonl"), &node, "apps/v1");
}

#[test]
fn ka_027_a_custom_resource_is_applied_as_on_the_reference() {
    let definition: Value = serde_json::from_str(include_str!("vectors/widget-crd.json")).unwrap();
    let kind = Kinds::with_custom(&[definition])
        .by_kind("example.com", "v1", "Widget")
        .unwrap();
    run(
        include_str!("vectors/apply-custom.jsonl"),
        &kind.node,
        "example.com/v1",
    );
}

#[test]
fn ka_027_a_created_built_in_object_owns_what_was_written_only() {
    let kind = Kinds::builtin().by_kind("apps", "v1", "Deployment").unwrap();
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"a": "b"}},
        "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"nodeSelector": {"x": "y"}}}},
    });
    track_update(
        &kind.node,
        None,
        &mut object,
        &options(&json!({"manager": "m"}), "apps/v1"),
    );
    assert_eq!(
        object["metadata"]["managedFields"][0]["fieldsV1"],
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:nodeSelector": {}},
            }},
        })
    );
}
