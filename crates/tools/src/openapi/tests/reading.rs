//! Versions, parameters, bodies, names and servers.

use serde_json::json;
use url::Url;

use super::*;
use crate::arguments::ArgumentCheck;

fn accepts(operation: &Operation, arguments: &Value) -> Result<(), String> {
    let check = ArgumentCheck::compile(&operation.input_schema).unwrap();
    check.check(arguments)?;
    Call::new(operation, Url::parse("http://h/").unwrap()).check(arguments.as_object().unwrap())
}

fn ids(document: &Document) -> Vec<&str> {
    document
        .operations
        .iter()
        .map(|operation| operation.id.as_str())
        .collect()
}

fn parsed(text: &str) -> Document {
    parse(text.as_bytes(), &ParseOptions::default()).unwrap()
}

#[test]
fn version_2_om_426_om_428() {
    let document = parsed(SHOP_2);
    assert_eq!(ids(&document), ["search", "listOrders", "createOrder", "attach"]);
    let list = operation(&document, "listOrders");
    assert_eq!(list.description, "List the orders");
    assert_eq!(
        list.input_schema,
        json!({
            "type": "object",
            "properties": {
                "tenant": {"type": "string"},
                "state": {"type": "array", "items": {"type": "string", "enum": ["open", "shipped"]}},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "limit": {"type": "integer", "exclusiveMinimum": 0, "default": 20},
                "x-trace": {"type": "string", "description": "Trace of this call"},
            },
            "required": ["tenant", "x-trace"],
            "additionalProperties": false,
        })
    );
    // What only answers have is no argument; the required sets are united.
    let create = operation(&document, "createOrder");
    assert_eq!(
        create.input_schema,
        json!({
            "type": "object",
            "properties": {
                "tenant": {"type": "string"},
                "X-Trace": {"type": "string"},
                "item": {"type": "string"},
                "note": {"type": ["string", "null"]},
            },
            "required": ["tenant", "item"],
        })
    );
    let attach = operation(&document, "attach");
    assert_eq!(attach.input_schema["required"], json!(["tenant", "id", "file"]));
    assert_eq!(
        attach.input_schema["properties"]["file"],
        json!({"type": "string"})
    );
}

#[test]
fn version_3_0_om_426_om_427_om_428() {
    let document = parsed(SHOP_30);
    assert_eq!(
        ids(&document),
        [
            "note",
            "search",
            "listOrders",
            "createOrder",
            "deleteOrder",
            "get_tenant_orders_id",
            "patchOrder",
            "replaceOrder"
        ]
    );
    let list = operation(&document, "listOrders");
    let properties = list.input_schema["properties"].as_object().unwrap();
    // The caller's credential is the handler's affair.
    assert_eq!(
        properties.keys().collect::<Vec<_>>(),
        [
            "filter", "ids", "limit", "session", "state", "tenant", "where", "x-trace"
        ]
    );
    assert_eq!(
        properties["limit"],
        json!({"type": "integer", "exclusiveMinimum": 0})
    );

    let create = operation(&document, "createOrder");
    assert_eq!(create.description.chars().count(), 200);
    assert!(create.description.ends_with("..."));
    assert_eq!(
        create.input_schema["required"],
        json!(["tenant", "customer", "item"])
    );
    assert!(
        accepts(
            create,
            &json!({"tenant": "t", "customer": "c", "item": "i", "note": null})
        )
        .is_ok()
    );
    assert!(accepts(create, &json!({"tenant": "t", "item": "i"})).is_err());

    // A placeholder that is declared nowhere is still needed.
    let get = operation(&document, "get_tenant_orders_id");
    assert_eq!(get.description, "GET /{tenant}/orders/{id}");
    assert_eq!(get.input_schema["required"], json!(["tenant", "id"]));

    // JSON of some kind before anything else; a body that is no object is one argument.
    let patch = operation(&document, "patchOrder");
    assert_eq!(patch.input_schema["properties"]["body"]["type"], "array");
    assert_eq!(patch.input_schema["required"], json!(["tenant", "id", "body"]));
}

#[test]
fn version_3_1_om_426() {
    let document = parsed(SHOP_31);
    assert_eq!(ids(&document), ["createOrder"]);
    let create = operation(&document, "createOrder");
    assert_eq!(
        create.input_schema["properties"],
        json!({
            "item": {"const": "book", "description": "What is ordered"},
            "count": {"type": ["integer", "null"], "exclusiveMinimum": 0},
            "price": {"allOf": [{"type": "number"}], "maximum": 10},
        })
    );
    // The arguments' schema cannot say `anyOf`; the body is checked against the document's own (D4).
    assert!(accepts(create, &json!({"item": "book", "count": null})).is_ok());
    let error = accepts(create, &json!({"item": "book"})).unwrap_err();
    assert!(error.contains("anyOf"), "{error}");
    assert!(accepts(create, &json!({"item": "book", "price": 11})).is_err());
}

#[test]
fn parameters_are_merged_by_name_and_place_d2() {
    for text in [SHOP_2, SHOP_30] {
        let document = parsed(text);
        let list = operation(&document, "listOrders");
        let properties = list.input_schema["properties"].as_object().unwrap();
        assert!(properties.contains_key("x-trace") && !properties.contains_key("X-Trace"));
        let required = list.input_schema["required"].as_array().unwrap();
        assert_eq!(required, &[json!("tenant"), json!("x-trace")]);
        // The other operation has the path's own.
        let create = operation(&document, "createOrder");
        assert!(
            create.input_schema["properties"]["X-Trace"].is_object()
                && !create.input_schema["required"]
                    .as_array()
                    .unwrap()
                    .contains(&json!("X-Trace"))
        );
    }
}

#[test]
fn same_name_in_two_places_is_two_parameters_d2() {
    let document = read(&json!({"openapi": "3.0.0", "paths": {"/a/{id}": {
        "parameters": [{"name": "id", "in": "path", "schema": {"type": "integer"}}],
        "get": {"parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}, {"name": "filter[x]", "in": "query"}]},
    }}}));
    assert_eq!(
        document.operations[0].input_schema["properties"],
        json!({"id": {"type": "integer"}, "query_id": {"type": "string"}, "filter_x_": {"type": "string"}})
    );
}

#[test]
fn odd_schemas_are_rewritten_and_leave_the_others_alone_d4() {
    let document = read(
        &json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": ["object", "null"],
        "properties": {
            "any": true, "list": {"type": "array"}, "bare": {"type": "object"}, "odd": {"type": "objekt", "minLength": "3", "required": "x", "enum": []},
            "deep": {"multipleOf": 0, "pattern": "(", "properties": []}, "broken": 5, "example": {"type": "string", "example": "x", "xml": {}},
        },
    }}}}}}, "/b": {"get": {}}}}),
    );
    assert_eq!(document.operations.len(), 2);
    let operation = &document.operations[0];
    assert_eq!(
        operation.input_schema["properties"],
        json!({"any": true, "list": {"type": "array"}, "bare": {"type": "object"}, "odd": {}, "deep": {"pattern": "("}, "broken": {}, "example": {"type": "string"}})
    );
    let check = ArgumentCheck::deferred(operation.input_schema.clone());
    assert!(check.check(&json!({"list": [1], "deep": "x"})).is_ok());
    assert!(check.check(&json!({"list": 1})).is_err());
}

#[test]
fn what_is_cut_never_makes_a_schema_stricter_d4() {
    let document = read(
        &json!({"openapi": "3.1.0", "paths": {"/a": {"post": {"requestBody": {"content": {"application/json": {"schema": {
            "type": "object",
            "properties": {"a": {"not": {"$ref": "#/absent"}}, "b": {"oneOf": [{"$ref": "other.json"}, {"type": "string"}]}, "c": {"if": {"$ref": "#/absent"}, "then": false}},
        }}}}}}}}),
    );
    let operation = &document.operations[0];
    assert!(accepts(operation, &json!({"a": 1, "b": "x", "c": 1})).is_ok());
}

#[test]
fn names_are_fit_unique_and_the_same_on_every_load_d3() {
    let long = "listAllOfTheOrders".repeat(5);
    let document = json!({"openapi": "3.0.0", "paths": {
        "/": {"get": {}}, "/a": {"get": {"operationId": long}}, "/b": {"get": {"operationId": "foo/list"}, "post": {"operationId": "foo.list"}},
    }});
    let names: Vec<String> = read(&document)
        .operations
        .into_iter()
        .map(|operation| operation.tool)
        .collect();
    assert_eq!(long.len(), 90);
    assert_eq!(names[0], "get_");
    for name in &names {
        assert!(
            name.len() <= 64
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)),
            "{name}"
        );
    }
    let unique: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(unique.len(), 4);
    let again: Vec<String> = read(&document)
        .operations
        .into_iter()
        .map(|operation| operation.tool)
        .collect();
    assert_eq!(names, again);

    // The filter lists the document's ids and does not change a name.
    let options = ParseOptions {
        operation_filter: vec!["foo.list".to_owned(), "get_".to_owned(), "absent".to_owned()],
        ..ParseOptions::default()
    };
    let filtered = parse(document.to_string().as_bytes(), &options).unwrap();
    assert_eq!(ids(&filtered), ["get_", "foo.list"]);
    assert!(names.contains(&filtered.operations[1].tool));
    assert_eq!(filtered.unknown_ids, ["absent"]);
}

#[test]
fn one_odd_operation_leaves_the_others_d1() {
    let document = read(&json!({"openapi": "3.0.0", "paths": {
        "/a": {"get": {"operationId": "odd", "parameters": [{"$ref": "#/components/parameters/absent"}]}},
        "/b": {"post": {"operationId": "far", "requestBody": {"$ref": "bodies.json#/x"}}},
        "/c": {"get": {"operationId": "fine", "parameters": [5, {"in": "query"}, {"name": "x", "in": "somewhere"}]}},
        "/d": {"$ref": "#/nowhere"}, "/e": 5, "/f": {"get": []},
    }}));
    assert_eq!(ids(&document), ["fine"]);
    let reasons: Vec<&str> = document
        .skipped
        .iter()
        .map(|skipped| skipped.reason.as_str())
        .collect();
    assert_eq!(
        reasons,
        [
            "a parameter: `$ref: #/components/parameters/absent` leads nowhere",
            "`requestBody`: `$ref: bodies.json#/x` leads to another document, which is not read"
        ]
    );
}

#[test]
fn what_is_no_document_says_so_om_083() {
    let error = |text: &[u8]| parse(text, &ParseOptions::default()).unwrap_err();
    for yaml in ["openapi: 3.0.0\npaths: {}\n", "---\nswagger: '2.0'\n", "", "[]"] {
        assert_eq!(error(yaml.as_bytes()), DocumentError::NotJson, "{yaml}");
    }
    assert!(error(b"{\"openapi\": ").to_string().contains("line 1"));
    for (text, part) in [
        ("{}", "neither"),
        (r#"{"openapi": "4.0.0"}"#, "`4.0.0`"),
        (r#"{"swagger": "1.2"}"#, "`1.2`"),
    ] {
        let error = error(text.as_bytes()).to_string();
        assert!(error.contains(part), "{error}");
    }
    let deep = format!("{{\"openapi\":\"3.0.0\",\"x\":{}", "[".repeat(100_000));
    assert!(matches!(error(deep.as_bytes()), DocumentError::Invalid(_)));
    assert_eq!(
        error(&vec![b' '; MAX_DOCUMENT_BYTES + 1]),
        DocumentError::TooLarge
    );
    let bom = b"\xef\xbb\xbf{\"openapi\": \"3.1.0\"}";
    assert!(
        parse(bom, &ParseOptions::default())
            .unwrap()
            .operations
            .is_empty()
    );
}

#[test]
fn too_many_operations_are_refused_with_a_hint_and_the_filter_helps() {
    let paths: serde_json::Map<String, Value> = (0..=MAX_OPERATIONS)
        .map(|index| (format!("/p{index}"), json!({"get": {}})))
        .collect();
    let text = json!({"openapi": "3.0.0", "paths": paths}).to_string();
    let error = parse(text.as_bytes(), &ParseOptions::default()).unwrap_err();
    assert_eq!(error, DocumentError::TooManyOperations(MAX_OPERATIONS + 1));
    assert!(error.to_string().contains("operationFilter"));
    let options = ParseOptions {
        operation_filter: vec!["get_p7".to_owned()],
        ..ParseOptions::default()
    };
    assert_eq!(parse(text.as_bytes(), &options).unwrap().operations.len(), 1);
}

#[test]
fn base_urls_by_precedence_om_429() {
    let spec = Url::parse("https://docs.example.com/specs/openapi.json").unwrap();
    let base = |document: Value, configured: Option<&str>| {
        let mut document = document;
        document["paths"] = json!({"/a": {"get": {}}});
        let document = read(&document);
        document
            .base_url(&document.operations[0], configured, &spec)
            .map(String::from)
    };
    let v3 = |url: &str| json!({"openapi": "3.0.0", "servers": [{"url": url}]});
    for (document, configured, expected) in [
        (v3("https://a/x"), Some("http://b/y"), "http://b/y"),
        (v3("https://a/x"), None, "https://a/x"),
        (v3("/v2"), None, "https://docs.example.com/v2"),
        (v3("v2/"), None, "https://docs.example.com/specs/v2/"),
        (v3("//api.example.com/v2"), None, "https://api.example.com/v2"),
        (json!({"openapi": "3.0.0"}), None, "https://docs.example.com/"),
        (
            json!({"swagger": "2.0", "host": "a", "basePath": "/v1", "schemes": ["http", "https"]}),
            None,
            "http://a/v1",
        ),
        (
            json!({"swagger": "2.0", "host": "a:8080", "basePath": "v1"}),
            None,
            "https://a:8080/v1",
        ),
        (
            json!({"swagger": "2.0", "host": "a"}),
            Some("http://b"),
            "http://b/",
        ),
    ] {
        assert_eq!(
            base(document.clone(), configured).unwrap(),
            expected,
            "{document}"
        );
    }
    assert_eq!(
        base(json!({"swagger": "2.0", "basePath": "/v1"}), None),
        Err(BaseUrlError::Missing)
    );
    for (document, configured) in [
        (v3("ftp://a"), None),
        (v3("https://"), None),
        (v3("/x"), Some("b/y")),
        (json!({"swagger": "2.0", "host": "a", "schemes": ["ws"]}), None),
    ] {
        assert!(
            matches!(
                base(document.clone(), configured),
                Err(BaseUrlError::Unusable { .. })
            ),
            "{document}"
        );
    }
    let document = parsed(SHOP_30);
    let of = |id: &str| {
        let base = document.base_url(operation(&document, id), None, &spec);
        base.unwrap().to_string()
    };
    assert_eq!(of("listOrders"), "https://docs.example.com/v1");
    assert_eq!(of("deleteOrder"), "https://admin.example.com/api/");
}
