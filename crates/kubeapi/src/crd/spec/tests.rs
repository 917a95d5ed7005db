#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

fn definition(schema: Value) -> Value {
    json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            "conversion": {"strategy": "None"},
        },
    })
}

fn good() -> Value {
    definition(
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string"}, "n": {"type": "integer", "default": 3, "minimum": 1}}}}}),
    )
}

fn texts(crd: &Value) -> Vec<String> {
    validate_crd(crd, None).iter().map(ToString::to_string).collect()
}

/// The faults of a schema whose `spec` is the one given.
fn faults(spec: Value) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let prefix = "spec.validation.openAPIV3Schema.properties[spec]";
    texts(&definition(schema))
        .iter()
        .map(|text| text.replace(prefix, "~"))
        .collect()
}

#[test]
fn a_good_definition_passes() {
    // KA-012
    assert_eq!(texts(&good()), [] as [String; 0]);
}

#[test]
fn faults_of_names_versions_and_group_are_named() {
    // KA-012
    let mut crd = good();
    crd["metadata"]["name"] = json!("wrong");
    crd["spec"]["group"] = json!("nodot");
    crd["spec"]["scope"] = json!("Galaxy");
    crd["spec"]["names"]["listKind"] = json!("Thing");
    crd["spec"]["versions"][0]["storage"] = json!(false);
    crd["spec"]["conversion"]["strategy"] = json!("Webhook");
    let paths: Vec<String> = validate_crd(&crd, None)
        .iter()
        .map(|error| error.path.to_string())
        .collect();
    assert_eq!(
        paths,
        [
            "metadata.name",
            "spec.group",
            "spec.scope",
            "spec.versions",
            "spec.names.listKind",
            "spec.conversion.webhookClientConfig",
            "spec.conversion.conversionReviewVersions",
        ]
    );
}

#[test]
fn a_schema_must_be_structural() {
    // KA-013
    assert_eq!(
        faults(json!({})),
        ["~.type: Required value: must not be empty for specified object fields"]
    );
    assert_eq!(
        faults(json!({"type": "array"})),
        ["~.items: Required value: must be specified"]
    );
    assert_eq!(
        faults(json!({"type": "object", "anyOf": [{"properties": {"a": {"type": "string"}}}]})),
        ["~.anyOf[0].properties[a].type: Forbidden: must be empty to be structural",]
    );
    assert_eq!(
        faults(json!({"type": "string", "pattern": "["})).len(),
        1,
        "a pattern that is no regular expression"
    );
    assert_eq!(
        faults(json!({"type": "object", "properties": {"a": {"type": "string"}},
                      "additionalProperties": {"type": "string"}})),
        ["~.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"]
    );
    assert_eq!(
        faults(json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})),
        [
            "~.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        ]
    );
}

#[test]
fn keys_of_map_lists_are_required_scalars() {
    // KA-013
    let list = |items: Value| json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items});
    assert_eq!(
        faults(list(
            json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}})
        )),
        [] as [String; 0]
    );
    assert_eq!(
        faults(list(
            json!({"type": "object", "properties": {"name": {"type": "string"}}})
        )),
        [
            "~.items.properties[name].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
             have a default or be a required property"
        ]
    );
}

#[test]
fn a_default_must_satisfy_its_schema() {
    // KA-013
    assert_eq!(
        faults(json!({"type": "integer", "minimum": 5, "default": 3})),
        ["~.default: Invalid value: 3:  in body should be greater than or equal to 5"]
    );
    assert_eq!(
        faults(json!({"type": "object", "properties": {"a": {"type": "string"}}, "default": {"b": 1}})),
        ["~.default: Invalid value: {\"b\":1}: must not have unknown fields"]
    );
}

#[test]
fn a_rule_that_does_not_compile_is_named_where_it_stands() {
    // KA-015
    let found = faults(json!({"type": "object", "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.a.size( > 1", "message": "m"}]}));
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("~.x-kubernetes-validations[0].rule: Invalid value: "),
        "{found:?}"
    );
    assert!(found[0].contains("compilation failed"), "{found:?}");
}

#[test]
fn columns_scale_and_selectable_fields_are_checked() {
    // KA-012
    let mut crd = good();
    crd["spec"]["versions"][0]["additionalPrinterColumns"] =
        json!([{"name": "A", "type": "text", "jsonPath": "spec.a"}]);
    crd["spec"]["versions"][0]["subresources"] =
        json!({"scale": {"specReplicasPath": ".status.n", "statusReplicasPath": ".status.n"}});
    crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.missing"}]);
    assert_eq!(
        texts(&crd),
        [
            "spec.subresources.scale.specReplicasPath: Invalid value: \".status.n\": should be a json path under .spec",
            "spec.additionalPrinterColumns[0].type: Invalid value: \"text\": must be one of \
             boolean,date,integer,number,string",
            "spec.additionalPrinterColumns[0].JSONPath: Invalid value: \"spec.a\": must be a simple json path starting with .",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.missing\": is an invalid path: does not refer to a \
             valid field",
        ]
    );
}

#[test]
fn the_group_and_plural_never_change_and_the_kind_not_once_served() {
    // KA-012
    let mut old = good();
    old["status"] =
        json!({"storedVersions": ["v1", "v0"], "conditions": [{"type": "Established", "status": "True"}]});
    let mut new = good();
    new["spec"]["names"]["kind"] = json!("Other");
    new["spec"]["scope"] = json!("Cluster");
    let paths: Vec<String> = validate_crd(&new, Some(&old))
        .iter()
        .map(|error| error.path.to_string())
        .collect();
    assert_eq!(
        paths,
        ["spec.scope", "spec.names.kind", "status.storedVersions[1]"]
    );
}

#[test]
fn schemas_are_judged_when_the_spec_is_new() {
    // KA-012
    let crd = definition(json!({"type": "object", "properties": {"spec": {"type": "nothing"}}}));
    let faults = texts(&crd);
    assert!(!faults.is_empty());
    let mut labelled = crd.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(validate_crd(&labelled, Some(&crd)), []);
    let mut changed = crd.clone();
    changed["spec"]["names"]["shortNames"] = json!(["th"]);
    let again: Vec<String> = validate_crd(&changed, Some(&crd))
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(again, faults);
}
