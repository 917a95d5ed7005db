#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn json_of(text: &str) -> Decoded {
    decode(text.as_bytes(), Format::Json).unwrap()
}

fn yaml_of(text: &str) -> Decoded {
    decode(text.as_bytes(), Format::Yaml).unwrap()
}

fn refused(text: &str, format: Format) -> String {
    let error = decode(text.as_bytes(), format).unwrap_err();
    assert_eq!(error.reason, Reason::BadRequest);
    error.message
}

#[test]
fn ka_014_duplicate_keys_are_reported_with_their_paths_and_the_last_wins() {
    let decoded =
        json_of(r#"{"spec": {"a": 1, "a": 2, "l": [{"n": 1}, {"n": 1, "n": 2, "n": 3}]}, "spec": {"b": 1}}"#);
    assert_eq!(decoded.value, json!({"spec": {"b": 1}}));
    assert_eq!(decoded.duplicates, ["spec.a", "spec.l[1].n", "spec"]);
    assert_eq!(decoded.strict_errors()[1], "duplicate field \"spec.l[1].n\"");
    let decoded = yaml_of("spec:\n  a: 1\n  b: 2\n  a: 3\n");
    assert_eq!(decoded.value, json!({"spec": {"a": 3, "b": 2}}));
    assert_eq!(decoded.duplicates, ["spec.a"]);
    assert_eq!(decoded.warnings(), ["line 4: key \"a\" already set in map"]);
    assert_eq!(
        decoded.strict_errors(),
        ["yaml: unmarshal errors:\n  line 4: key \"a\" already set in map"]
    );
}

#[test]
fn ka_014_objects_under_one_key_of_a_built_in_kind_become_one() {
    let text = r#"{"data": {"k": "v", "n": {"a": 1}}, "data": {"l": "w", "n": {"b": 2}}, "x": 1, "x": 2}"#;
    let decoded = decode_typed(text.as_bytes(), Format::Json).unwrap();
    assert_eq!(
        decoded.value,
        json!({"data": {"k": "v", "l": "w", "n": {"a": 1, "b": 2}}, "x": 2})
    );
    assert_eq!(decoded.duplicates, ["data", "x"]);
}

#[test]
fn ka_006_faults_of_yaml_have_the_words_of_the_reference_where_it_has_such_words() {
    for (text, expected) in [
        ("a: b: c", "mapping values are not allowed in this context"),
        (
            "\na: b: c",
            "line 2: mapping values are not allowed in this context",
        ),
        ("{", "line 1: did not find expected node content"),
        ("{x", "line 1: did not find expected ',' or '}'"),
        ("{a: b\n\n", "line 1: did not find expected ',' or '}'"),
        ("[a, b", "line 1: did not find expected ',' or ']'"),
    ] {
        assert_eq!(
            refused(text, Format::Yaml),
            format!("error converting YAML to JSON: yaml: {expected}")
        );
    }
}

#[test]
fn ka_014_reported_duplicates_are_bounded() {
    let keys: Vec<String> = (0..300)
        .map(|number| format!("\"k{number}\":1,\"k{number}\":2"))
        .collect();
    assert_eq!(json_of(&format!("{{{}}}", keys.join(","))).duplicates.len(), 100);
}

/// A key as long as half of a body, with thousands of others below it: each path has it in full.
#[test]
fn ka_008_paths_of_repeated_keys_take_a_bounded_room() {
    let long = "x".repeat(1 << 20);
    let keys: Vec<String> = (0..50_000)
        .map(|number| format!("\"k{number}\":1,\"k{number}\":2"))
        .collect();
    let found = json_of(&format!("{{\"{long}\":{{{}}}}}", keys.join(","))).duplicates;
    let bytes: usize = found.iter().map(String::len).sum();
    assert!((1 << 20..6 << 20).contains(&bytes), "{bytes}");

    let document = format!(
        "{{\"{}\":{{{}}}}}",
        "y".repeat(30_000),
        vec!["\"a\":1"; 5_000].join(",")
    );
    let reader = super::value::Reader::new(super::MAXIMUM_DEPTH, super::Repeated::Merges).noting_keys();
    let _read = reader
        .seed()
        .deserialize(&mut serde_json::Deserializer::from_str(&document))
        .unwrap();
    let bytes: usize = reader.into_keys().iter().map(String::len).sum();
    assert!((30_000..6 << 20).contains(&bytes), "{bytes}");
}

#[test]
fn yaml_scalars_are_those_of_the_library_kubectl_uses() {
    let decoded = yaml_of(
        "yes: no\non: \"on\"\nmode: 0644\ndate: 2026-01-02\nbig: 1_000\nnone: ~\nempty:\nfloat: 1.50\nnorway: NO\nhex: 0x10\n1: one\nversion: \"1.10\"\nport: 8080\n",
    );
    assert_eq!(
        decoded.value,
        json!({
            "true": "on", "mode": 420, "date": "2026-01-02", "big": 1000, "none": null, "empty": null,
            "float": 1.5, "norway": false, "hex": 16, "1": "one", "version": "1.10", "port": 8080,
        })
    );
    assert_eq!(decoded.duplicates, ["true"]);
}

#[test]
fn yaml_anchors_and_merge_keys_are_expanded() {
    let decoded = yaml_of("base: &b {a: 1, b: 2}\nx:\n  <<: *b\n  b: 3\nz: *b\n");
    assert_eq!(
        decoded.value,
        json!({"base": {"a": 1, "b": 2}, "x": {"a": 1, "b": 3}, "z": {"a": 1, "b": 2}})
    );
}

#[test]
fn ka_008_alias_bombs_and_deep_nesting_are_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let previous = level - 1;
        let items = vec![format!("*a{previous}"); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{items}]\n"));
    }
    assert!(refused(&bomb, Format::Yaml).starts_with("error converting YAML to JSON: yaml: "));

    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    refused(&deep, Format::Json);
    refused(&deep, Format::Yaml);
    let allowed = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    json_of(&allowed);
    yaml_of(&allowed);
}

#[test]
fn malformed_documents_say_where() {
    assert_eq!(refused("{\"a\": ", Format::Json), "unexpected end of JSON input");
    assert_eq!(refused("", Format::Json), "unexpected end of JSON input");
    assert_eq!(
        refused("  xyz", Format::Json),
        "invalid character 'x' looking for beginning of value"
    );
    assert_eq!(
        refused("{} {}", Format::Json),
        "invalid character '{' after top-level value"
    );
    let message = refused("a: 1\nb: [1\nc: 2\n", Format::Yaml);
    assert!(
        message.starts_with("error converting YAML to JSON: yaml: line "),
        "{message}"
    );
    assert!(!message.contains('\n'));
    assert_eq!(yaml_of("# nothing\n").value, Value::Null);
    refused("a: 1\n---\nb: 2\n", Format::Yaml);
}

#[test]
fn numbers_are_read_as_the_reference_reads_them() {
    let decoded = json_of("[1, -1, 1.0, 1.5, 18446744073709551615, 1e3]");
    assert_eq!(
        decoded.value.to_string(),
        "[1,-1,1,1.5,1.8446744073709552e+19,1000]"
    );
}

#[test]
fn a_stream_is_split_into_documents_with_their_first_lines() {
    let text =
        "# comment\n---\na: 1\n--- # second\n\nb: |\n  ---\n  text\n---\n---\n# only a comment\n---\nc: 3";
    let split = documents(text);
    assert_eq!(
        split,
        [(3, "a: 1\n"), (5, "\nb: |\n  ---\n  text\n"), (13, "c: 3")]
    );
    assert_eq!(documents(""), []);
    assert_eq!(documents("----\n"), [(1, "----\n")]);
}

proptest! {
    #[test]
    fn json_and_its_reading_agree(entries in proptest::collection::btree_map("[a-z]{1,4}", any::<i64>(), 0..6)) {
        let value = json!({"m": entries, "l": [true, null, "x\n\"y"]});
        let decoded = json_of(&value.to_string());
        prop_assert_eq!(&decoded.value, &value);
        prop_assert!(decoded.duplicates.is_empty());
        // JSON is YAML.
        prop_assert_eq!(yaml_of(&value.to_string()).value, value);
    }

    #[test]
    fn reading_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes, Format::Json);
        let _ = decode(&bytes, Format::Yaml);
        let _ = documents(&String::from_utf8_lossy(&bytes)).len();
    }

    #[test]
    fn every_line_with_content_is_in_exactly_one_document(lines in proptest::collection::vec("(---|a: 1|#c|)", 0..12)) {
        let text = lines.join("\n");
        let content = lines.iter().filter(|line| *line == "a: 1").count();
        let found: usize = documents(&text).iter().map(|(_, text)| text.matches("a: 1").count()).sum();
        prop_assert_eq!(found, content);
    }
}
