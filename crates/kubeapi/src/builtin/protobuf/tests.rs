#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

/// What `kubectl create deployment foo --image=nginx:1 --replicas=0 --port=80` sends.
const DEPLOYMENT: &str = "6b3873000a150a07617070732f7631120a4465706c6f796d656e7412ba010a1f0a03666f6f12001a0022002a00320038004200\
5a0a0a036170701203666f6f1288010800120c0a0a0a036170701203666f6f1a6e0a1c0a0012001a0022002a003200380042005a0a0a036170701203666f6f12\
4e12300a056e67696e7812076e67696e783a312a00320a0a001000185022002a0042006a007200800100880100900100a201001a00320042004a005200580060\
00680082010 08a01009a0100c2010022020a00280038001a0c08001000180020002800380 01a002200";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .map(|digit| u8::try_from(digit).expect("a digit"))
        .collect();
    digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()
}

#[test]
fn what_kubectl_sends_is_the_json_it_would_have_sent() {
    // KA-007
    assert_eq!(
        decode(&bytes(DEPLOYMENT)).expect("decodes"),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "foo", "labels": {"app": "foo"}},
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "foo"}},
                "strategy": {},
                "template": {
                    "metadata": {"labels": {"app": "foo"}},
                    "spec": {"containers": [{"name": "nginx", "image": "nginx:1", "ports": [{"containerPort": 80}],
                                             "resources": {}}]},
                },
            },
            "status": {},
        })
    );
}

#[test]
fn a_namespace_of_kubectl_decodes() {
    // KA-007
    let body = bytes(
        "6b3873000a0f0a02763112094e616d657370616365121e0a160a066167656e747312001a0022002a003200380042001200 1a020a001a002200",
    );
    let namespace = decode(&body).expect("decodes");
    assert_eq!(namespace["metadata"], json!({"name": "agents"}));
    assert_eq!(namespace["kind"], "Namespace");
}

#[test]
fn a_body_that_is_no_message_is_refused_and_never_panics() {
    // KA-007, KA-008
    assert_eq!(decode(b"{}"), Err(DecodeError::NotEnveloped));
    assert_eq!(decode(b"k8s\0"), Err(DecodeError::UnknownKind));
    let body = bytes(DEPLOYMENT);
    for end in 0..body.len() {
        // Any prefix gives an answer; most are refused.
        let _ = decode(&body[..end]);
    }
    let mut huge = b"k8s\0".to_vec();
    huge.extend([0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(decode(&huge), Err(DecodeError::Malformed));
}

proptest::proptest! {
    #[test]
    fn arbitrary_bytes_get_an_answer(tail in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
        // KA-008
        let mut body = bytes("6b3873000a090a0276311203506f6412");
        body.push(u8::try_from(tail.len().min(127)).expect("fits"));
        body.extend(tail);
        let _ = decode(&body);
    }
}

#[test]
fn special_messages_have_the_json_of_their_go_types() {
    assert_eq!(time(&[], 0), Ok(Value::Null));
    assert_eq!(time(&[0x08, 0x01], 0), Ok(json!("1970-01-01T00:00:01Z")));
    assert_eq!(time(&[0x08, 0x01], 6), Ok(json!("1970-01-01T00:00:01.000000Z")));
    assert_eq!(int_or_string(&[0x08, 0x00, 0x10, 0x50]), Ok(json!(80)));
    assert_eq!(
        int_or_string(&[0x08, 0x01, 0x1a, 0x02, b'a', b'b']),
        Ok(json!("ab"))
    );
    assert_eq!(
        decode_message(
            &[0x0a, 0x02, b'1', b'k'],
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            0
        ),
        Ok(json!("1k"))
    );
}
