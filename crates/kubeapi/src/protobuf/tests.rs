use proptest::prelude::*;

use super::*;

/// Pairs of lines: a body in protobuf as hexadecimal digits, and what the reference's JSON encoder makes of it.
const GOLDEN: &str = include_str!("golden.txt");

fn bytes(hexadecimal: &str) -> Vec<u8> {
    (0..hexadecimal.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
        .collect()
}

fn pairs() -> Vec<(Vec<u8>, Value)> {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    lines
        .chunks(2)
        .map(|pair| (bytes(pair[0]), serde_json::from_str(pair[1]).unwrap()))
        .collect()
}

/// Go's JSON shows a struct that is empty, and a list that is none; both say as much as nothing.
fn without_nothing(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_nothing);
            fields.retain(|_, value| {
                !value.is_null() && value.as_object().is_none_or(|fields| !fields.is_empty())
            });
        }
        Value::Array(items) => items.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

#[test]
fn bodies_say_in_protobuf_what_they_say_in_json_ka_007() {
    let pairs = pairs();
    assert_eq!(pairs.len(), 5);
    for (body, mut expected) in pairs {
        let mut read = decode(&body).unwrap();
        without_nothing(&mut read);
        without_nothing(&mut expected);
        assert_eq!(read, expected);
    }
}

#[test]
fn an_empty_message_that_was_set_is_kept_and_a_zero_behind_a_pointer_too_ka_007() {
    let deployment = decode(&pairs()[2].0).unwrap();
    assert_eq!(
        deployment["spec"]["template"]["spec"]["volumes"],
        json!([{"name": "v", "emptyDir": {}}])
    );
    assert_eq!(deployment["spec"]["replicas"], 0);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["automountServiceAccountToken"],
        false
    );
    assert!(deployment.get("status").is_none());
}

#[test]
fn what_is_no_envelope_or_no_known_kind_is_a_bad_request_ka_007() {
    assert_eq!(decode(b"{}").unwrap_err().reason, Reason::BadRequest);
    assert!(
        decode(b"k8s\0\x0a")
            .unwrap_err()
            .message
            .contains("malformed: it is cut short")
    );
    let widget = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Widget";
    assert!(
        decode(widget)
            .unwrap_err()
            .message
            .starts_with("no kind \"Widget\" is registered")
    );
}

#[test]
fn endless_nesting_is_refused_ka_008() {
    // JSONSchemaProps.not is field 28 and holds a schema again.
    let mut schema: Vec<u8> = Vec::new();
    for _ in 0..200 {
        let mut outer = vec![0xe2, 0x01];
        let mut length = schema.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend(&schema);
        schema = outer;
    }
    let fields = fields::message("apiextensions.v1.JSONSchemaProps").unwrap();
    assert_eq!(
        read_message(&schema, fields, 0),
        Err(Malformed("it is nested too deep"))
    );
}

proptest! {
    #[test]
    fn damaged_bodies_never_bring_the_decoder_down(pair in 0_usize..5, at in 0_usize..2000, byte: u8, cut: bool) {
        let mut body = pairs().swap_remove(pair).0;
        let at = at % body.len();
        if cut {
            body.truncate(at);
        } else {
            body[at] = byte;
        }
        let _either_way = decode(&body);
    }
}

#[test]
fn what_is_written_reads_back_the_same_ka_007() {
    for (_, object) in pairs() {
        let mut read = decode(&encode(&object).unwrap().unwrap()).unwrap();
        let mut expected = object.clone();
        without_nothing(&mut read);
        without_nothing(&mut expected);
        assert_eq!(read, expected);
    }
}

#[test]
fn a_refusal_is_written_too_and_a_custom_resource_is_not_ka_007() {
    let refusal = crate::status::ApiError::not_found("", "configmaps", "zzz").to_status();
    let written = encode(&refusal).unwrap().unwrap();
    // What the reference answered.
    let expected: &[u8] = b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12S\x0a\x06\x0a\0\x12\0\x1a\0\x12\x07Failure\x1a\x1aconfigmaps \
        \"zzz\" not found\"\x08NotFound*\x17\x0a\x03zzz\x12\0\x1a\x0aconfigmaps(\x002\x000\x94\x03\x1a\0\"\0";
    assert_eq!(written, expected);
    assert!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})).is_none());
    // Another's group, though it begins like one of Kubernetes.
    for group in ["apps.example.com", "apps.k8s.io", "core", "meta.example.com"] {
        let api_version = format!("{group}/v1");
        assert!(encode(&json!({"apiVersion": api_version, "kind": "Deployment"})).is_none());
        assert!(encode(&json!({"apiVersion": api_version, "kind": "ConfigMap"})).is_none());
        assert!(encode(&json!({"apiVersion": api_version, "kind": "PartialObjectMetadata"})).is_none());
    }
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a"}}]});
    let written = encode(&list).unwrap().unwrap();
    assert!(written.windows(3).any(|window| window == b"\x12\x017"));
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}});
    assert!(encode(&wrong).unwrap().is_err());
}

#[test]
fn an_event_is_a_frame_with_the_object_in_its_envelope_ka_007() {
    let metadata =
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "a"}});
    let frame = event("ADDED", &metadata);
    let envelope = encode(&metadata).unwrap().unwrap();
    let mut expected = vec![0, 0, 0, u8::try_from(frame.len() - 4).unwrap()];
    // Field 1: the type; field 2: a RawExtension, whose field 1 is the envelope.
    expected.extend(b"\x0a\x05ADDED\x12");
    expected.push(u8::try_from(envelope.len() + 2).unwrap());
    expected.push(0x0a);
    expected.push(u8::try_from(envelope.len()).unwrap());
    expected.extend(&envelope);
    assert_eq!(frame, expected);
}

#[test]
fn an_object_that_does_not_fit_is_an_error_event_ka_007() {
    let wrong = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": 1}});
    for object in [wrong, json!({"apiVersion": "example.com/v1", "kind": "Widget"})] {
        let frame = event("ADDED", &object);
        assert_eq!(&frame[4..11], b"\x0a\x05ERROR");
        assert!(
            frame
                .windows(27)
                .any(|window| window == b"does not fit the protobuf e")
        );
    }
}

/// What the reference answered to `GET /api` and, of its core group, for one resource.
#[test]
fn discovery_is_written_as_the_reference_writes_it_ka_007() {
    let versions = json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:30161"}]});
    let expected: &[u8] = b"k8s\0\n\x0f\n\0\x12\x0bAPIVersions\x12\"\n\x02v1\x12\x1c\n\t0.0.0.0/0\x12\x0f127.0.0.1:30161\x1a\0\"\0";
    assert_eq!(encode(&versions).unwrap().unwrap(), expected);
    let resources = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": "bindings", "singularName": "binding", "namespaced": true, "kind": "Binding", "verbs": ["create"]}]});
    let written = encode(&resources).unwrap().unwrap();
    let verbs: &[u8] = b"\"\x08\n\x06create";
    assert!(written.windows(verbs.len()).any(|window| window == verbs));
}

#[test]
fn a_time_of_a_map_that_is_none_is_written_as_nothing_ka_007() {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "a"},
        "status": {"disruptedPods": {"pod": null, "other": "2026-01-02T03:04:05Z"}}});
    assert_eq!(decode(&encode(&budget).unwrap().unwrap()).unwrap(), budget);
}
