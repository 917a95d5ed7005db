#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn custom() -> Kinds {
    Kinds::with_custom(&[json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "description": "A thing.", "properties": {
                    "spec": {"type": "object", "properties": {"size": {"type": "integer", "description": "How big."}}}}}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    })])
}

#[test]
fn the_document_of_a_built_in_group_has_the_kinds_and_their_paths() {
    // KA-005
    let document = document(&Kinds::builtin(), "apis/apps/v1").expect("apps");
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(
        deployment["x-kubernetes-group-version-kind"],
        json!([{"group": "apps", "kind": "Deployment", "version": "v1"}])
    );
    assert!(schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]["description"].is_string());
    let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(patch["operationId"], "patchAppsV1NamespacedDeployment");
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    assert!(
        patch["parameters"]
            .as_array()
            .expect("parameters")
            .iter()
            .any(|it| it["name"] == "fieldValidation")
    );
    assert!(patch["requestBody"]["content"]["application/strategic-merge-patch+json"].is_object());
}

#[test]
fn every_reference_of_a_document_has_its_target() {
    // KA-005
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match value.as_str() {
                Some(text) if name == "$ref" => found.push(text.to_owned()),
                _ => references(value, found),
            }),
            Value::Array(list) => list.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let kinds = custom();
    let paths = index(&kinds)["paths"].as_object().expect("paths").clone();
    assert!(paths.len() >= 5);
    for path in paths.keys() {
        let document = document(&kinds, path).expect(path);
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let pointer = reference.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{path}: {reference}");
        }
    }
    let two = v2(&kinds);
    let mut found = Vec::new();
    references(&two, &mut found);
    for reference in found {
        assert!(
            two.pointer(reference.trim_start_matches('#')).is_some(),
            "v2: {reference}"
        );
    }
}

#[test]
fn a_custom_kind_is_published_with_the_metadata_of_every_object() {
    // KA-005
    let document = document(&custom(), "apis/example.com/v1").expect("the group");
    let thing = &document["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(thing["description"], "A thing.");
    assert_eq!(
        thing["properties"]["spec"]["properties"]["size"]["description"],
        "How big."
    );
    assert_eq!(
        thing["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    let item = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"];
    assert!(
        item["patch"]["requestBody"]["content"]
            .get("application/strategic-merge-patch+json")
            .is_none()
    );
    assert!(
        document["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}/status"].is_object()
    );
}

#[test]
fn the_address_of_a_document_changes_with_its_content() {
    // KA-005
    let before = index(&custom());
    let mut crd = json!({"metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}});
    let after = index(&Kinds::with_custom(std::slice::from_ref(&crd)));
    let url = |index: &Value, path: &str| index["paths"][path]["serverRelativeURL"].clone();
    assert_ne!(
        url(&before, "apis/example.com/v1"),
        url(&after, "apis/example.com/v1")
    );
    assert_eq!(url(&before, "apis/apps/v1"), url(&after, "apis/apps/v1"));
    crd["status"] = json!({});
    assert_eq!(
        url(&index(&Kinds::with_custom(&[crd])), "apis/example.com/v1"),
        Value::Null
    );
}

#[test]
fn a_document_is_encoded_once_for_the_kinds_it_describes() {
    // KA-005
    let kinds = custom();
    let path = "apis/example.com/v1";
    let parse = |bytes: &Bytes| -> Value { serde_json::from_slice(bytes).unwrap() };
    let first = (
        encoded_index(&kinds),
        encoded_v2(&kinds),
        encoded_document(&kinds, path).unwrap(),
    );
    assert_eq!(parse(&first.0), index(&kinds));
    assert_eq!(parse(&first.1), v2(&kinds));
    assert_eq!(Some(parse(&first.2)), document(&kinds, path));
    // A clone is the same set.
    let again = kinds.clone();
    assert_eq!(encoded_index(&again).as_ptr(), first.0.as_ptr());
    assert_eq!(encoded_v2(&again).as_ptr(), first.1.as_ptr());
    assert_eq!(encoded_document(&again, path).unwrap().as_ptr(), first.2.as_ptr());
    // Another set has documents of its own, and nothing is kept of paths that are not served.
    assert_eq!(encoded_document(&Kinds::builtin(), path), None);
    assert_ne!(encoded_index(&Kinds::builtin()), first.0);
}

#[test]
fn a_kind_that_keeps_unknown_fields_names_none_in_the_older_form() {
    // KA-005
    let kinds = Kinds::with_custom(&[json!({
        "metadata": {"name": "opens.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "opens", "singular": "open", "kind": "Open", "listKind": "OpenList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "description": "at root",
                    "x-kubernetes-preserve-unknown-fields": true, "properties": {"spec": {"type": "object"}}}}}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]},
    })]);
    assert_eq!(
        v2(&kinds)["definitions"]["com.example.v1.Open"],
        json!({"type": "object", "x-kubernetes-group-version-kind": [{"group": "example.com", "kind": "Open", "version": "v1"}]})
    );
    let three = document(&kinds, "apis/example.com/v1").unwrap();
    assert_eq!(
        three["components"]["schemas"]["com.example.v1.Open"]["x-kubernetes-preserve-unknown-fields"],
        true
    );
}

/// A client that reads the document and writes it again leaves empty lists out, and then has another document.
#[test]
fn no_operation_has_an_empty_list_of_parameters_ka_005() {
    fn look(value: &Value) {
        match value {
            Value::Object(fields) => {
                let parameters = fields.get("parameters").and_then(Value::as_array);
                assert!(parameters.is_none_or(|list| !list.is_empty()), "{value}");
                fields.values().for_each(look);
            }
            Value::Array(items) => items.iter().for_each(look),
            _ => {}
        }
    }
    let kinds = Kinds::builtin();
    let document = encoded_document(&kinds, "apis/apps/v1").expect("apps/v1 has a document");
    look(&serde_json::from_slice(&document).expect("it is JSON"));
}
