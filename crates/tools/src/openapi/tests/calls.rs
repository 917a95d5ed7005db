//! From arguments to requests.

use serde_json::json;
use url::Url;

use super::*;
use crate::http::shaping::{ShapeError, Shaped};

const BASE: &str = "https://h/base/";

fn shape(text: &str, id: &str, arguments: &Value) -> Result<Shaped, ShapeError> {
    let document = parse(text.as_bytes(), &ParseOptions::default()).unwrap();
    let call = Call::new(operation(&document, id), Url::parse(BASE).unwrap());
    call.shape(arguments.as_object().unwrap())
}

fn body(shaped: &Shaped) -> &str {
    std::str::from_utf8(shaped.body.as_deref().unwrap_or_default()).unwrap()
}

#[test]
fn arguments_go_where_the_document_says_om_430() {
    let shaped = shape(
        SHOP_30,
        "listOrders",
        &json!({
            "tenant": "a/b c", "state": ["open", "shipped"], "ids": [1, 2], "filter": {"by": {"name": "x y"}},
            "where": {"a": 1}, "limit": 5, "session": "s;1", "x-trace": "t 1",
        }),
    )
    .unwrap();
    assert_eq!(
        shaped.url.as_str(),
        "https://h/base/a%2Fb%20c/orders?state=open&state=shipped&ids=1,2&filter%5Bby%5D%5Bname%5D=x%20y&where=%7B%22a%22%3A1%7D&limit=5"
    );
    assert_eq!(
        shaped.headers,
        [
            ("x-trace".to_owned(), "t 1".to_owned()),
            ("Cookie".to_owned(), "session=s%3B1".to_owned())
        ]
    );
    assert_eq!((shaped.method.as_str(), &shaped.body), ("GET", &None));
}

#[test]
fn version_2_formats_of_lists_om_430() {
    let shaped = shape(
        SHOP_2,
        "listOrders",
        &json!({"tenant": "t", "state": ["open", "shipped"], "ids": [1, 2], "x-trace": "t"}),
    )
    .unwrap();
    assert_eq!(shaped.url.query(), Some("state=open&state=shipped&ids=1,2"));
}

#[test]
fn what_is_left_is_the_json_body_om_430() {
    for (text, id) in [
        (SHOP_2, "createOrder"),
        (SHOP_30, "createOrder"),
        (SHOP_31, "createOrder"),
    ] {
        let shaped = shape(
            text,
            id,
            &json!({"tenant": "t", "item": "book", "note": null, "extra": 1}),
        )
        .unwrap();
        let body: Value = serde_json::from_str(body(&shaped)).unwrap();
        assert_eq!(body["item"], "book");
        assert_eq!(
            (body["note"].clone(), body["extra"].clone()),
            (Value::Null, json!(1))
        );
        assert_eq!(shaped.content_type, "application/json");
        // In 3.1 the document has no parameter of this name.
        assert_eq!(body.get("tenant").is_some(), text == SHOP_31);
    }
}

#[test]
fn a_parameter_and_a_body_property_of_one_name_are_told_apart_om_428() {
    let document = parse(SHOP_30.as_bytes(), &ParseOptions::default()).unwrap();
    let replace = operation(&document, "replaceOrder");
    assert_eq!(
        replace.input_schema["properties"],
        json!({"tenant": {"type": "string"}, "id": {"type": "integer"}, "body_id": {"type": "string"}, "item": {"type": "string"}})
    );
    assert_eq!(
        replace.input_schema["required"],
        json!(["tenant", "id", "body_id"])
    );
    let shaped = shape(
        SHOP_30,
        "replaceOrder",
        &json!({"tenant": "t", "id": 7, "body_id": "x"}),
    )
    .unwrap();
    assert_eq!(shaped.url.path(), "/base/t/orders/7");
    assert_eq!(body(&shaped), r#"{"id":"x"}"#);
}

#[test]
fn bodies_that_are_no_object_or_no_json_are_one_argument_om_428() {
    let shaped = shape(
        SHOP_30,
        "patchOrder",
        &json!({"tenant": "t", "id": 1, "body": [{"op": "remove"}]}),
    )
    .unwrap();
    assert_eq!(body(&shaped), r#"[{"op":"remove"}]"#);
    assert_eq!(shaped.content_type, "application/json-patch+json");
    let shaped = shape(SHOP_30, "note", &json!({"body": "plain \"text\""})).unwrap();
    assert_eq!(
        (body(&shaped), shaped.content_type.as_str()),
        ("plain \"text\"", "text/plain")
    );
}

#[test]
fn forms_are_encoded_om_428() {
    let arguments = json!({"text": "a&b c", "tags": ["x", "y"]});
    for text in [SHOP_2, SHOP_30] {
        let shaped = shape(text, "search", &arguments).unwrap();
        assert_eq!(body(&shaped), "tags=x&tags=y&text=a%26b%20c");
        assert_eq!(shaped.content_type, "application/x-www-form-urlencoded");
    }
    let shaped = shape(SHOP_30, "search", &json!({"text": "a", "page": {"size": 2}})).unwrap();
    assert_eq!(body(&shaped), "page%5Bsize%5D=2&text=a");

    let shaped = shape(
        SHOP_2,
        "attach",
        &json!({"tenant": "t", "id": 1, "file": "data", "note": "n"}),
    )
    .unwrap();
    assert!(shaped.content_type.starts_with("multipart/form-data; boundary="));
    assert!(body(&shaped).contains("name=\"file\"; filename=\"file\""));
    assert!(body(&shaped).contains("name=\"note\"\r\n\r\nn\r\n"));
}

#[test]
fn nothing_to_send_is_no_body_and_a_required_one_is_empty_om_385() {
    let document = |required: bool| {
        json!({"openapi": "3.0.0", "paths": {
            "/a": {"post": {"operationId": "a", "requestBody": {"required": required, "content": {"application/json": {"schema": {"type": "object"}}}}}, "put": {"operationId": "b"}},
        }})
        .to_string()
    };
    assert_eq!(shape(&document(false), "a", &json!({})).unwrap().body, None);
    assert_eq!(
        shape(&document(true), "a", &json!({})).unwrap().body.as_deref(),
        Some(b"{}".as_slice())
    );
    // An operation that describes no body still sends what is left.
    let shaped = shape(&document(true), "b", &json!({"x": 1})).unwrap();
    assert_eq!(body(&shaped), r#"{"x":1}"#);
}

#[test]
fn an_argument_cannot_leave_its_place_om_377_om_378() {
    for (tenant, refused) in [
        ("..", true),
        (".", true),
        ("", true),
        ("%2e%2e", false),
        ("a?b#c", false),
    ] {
        let result = shape(
            SHOP_30,
            "get_tenant_orders_id",
            &json!({"tenant": tenant, "id": 1}),
        );
        assert_eq!(result.is_err(), refused, "{tenant:?}");
        if let Ok(shaped) = result {
            assert_eq!(shaped.url.query(), None);
            assert!(shaped.url.path().ends_with("/orders/1"), "{}", shaped.url);
        }
    }
    assert_eq!(
        shape(SHOP_30, "deleteOrder", &json!({"tenant": "t"})),
        Err(ShapeError::PlaceholderMissing("id".to_owned()))
    );
    let error = shape(
        SHOP_30,
        "listOrders",
        &json!({"tenant": "t", "x-trace": "a\r\nX-Admin: 1"}),
    )
    .unwrap_err();
    assert!(matches!(error, ShapeError::Header { .. }), "{error}");
}

#[test]
fn a_query_of_the_base_url_and_of_the_path_stays() {
    let text = json!({"openapi": "3.0.0", "paths": {"/a?kind=x": {"get": {"operationId": "a", "parameters": [{"name": "q", "in": "query"}]}}}});
    let document = read(&text);
    let base = Url::parse("https://h/v1/?api-version=1").unwrap();
    let call = Call::new(&document.operations[0], base);
    let shaped = call.shape(json!({"q": "y"}).as_object().unwrap()).unwrap();
    assert_eq!(shaped.url.as_str(), "https://h/v1/a?api-version=1&kind=x&q=y");
    // It may hold a key, so it is not shown.
    assert!(!format!("{call:?}").contains("api-version"));
}

#[test]
fn what_the_runtime_or_the_handler_sets_is_no_argument_om_375_om_430() {
    let names = [
        "Accept",
        "authorization",
        "Content-Type",
        "X-Omnia-User-Id",
        "X-Omnia-Delegation",
        "Host",
        "X-Key",
        "X-Free",
    ];
    let parameters: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "in": "header", "required": true}))
        .collect();
    let text = json!({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": parameters}}}});
    let options = ParseOptions {
        fixed_headers: vec!["x-key".to_owned()],
        ..ParseOptions::default()
    };
    let document = parse(text.to_string().as_bytes(), &options).unwrap();
    assert_eq!(document.operations[0].input_schema["required"], json!(["X-Free"]));
}
