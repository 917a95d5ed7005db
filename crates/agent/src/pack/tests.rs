#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// The smallest pack, with the prompt's properties replaced or added.
fn pack_with(prompt: Value) -> Value {
    let mut main = json!({"id": "main", "name": "Main", "version": "1.0.0", "system_template": "Help."});
    merge(&mut main, prompt);
    json!({
        "id": "helpdesk", "name": "Helpdesk", "version": "1.2.0",
        "template_engine": {"version": "v1", "syntax": "{{variable}}"},
        "prompts": {"main": main}
    })
}

fn merge(into: &mut Value, from: Value) {
    for (name, value) in from.as_object().unwrap() {
        into[name] = value.clone();
    }
}

fn load(document: &Value) -> Result<Pack, Vec<Finding>> {
    validate(document.to_string().as_bytes())
}

fn findings(document: &Value) -> Vec<String> {
    load(document)
        .unwrap_err()
        .iter()
        .map(Finding::to_string)
        .collect()
}

fn rendered(document: &Value, supplied: Value) -> Result<String, RenderError> {
    let pack = load(document).expect("the pack is valid");
    let (_, prompt) = select_prompt(&pack).unwrap();
    render(&pack, prompt, "model", supplied.as_object().unwrap())
}

fn variable(name: &str, kind: &str, required: bool) -> Value {
    json!({"name": name, "type": kind, "required": required})
}

#[test]
fn om_301_and_302_the_compiled_in_schema_accepts_a_pack_that_uses_every_part() {
    let document = json!({
        "$schema": "https://promptpack.org/schema/latest/promptpack.schema.json",
        "id": "complete", "name": "Complete", "version": "v1.0.0-rc.1+build.7", "description": "All of it",
        "template_engine": {"version": "v1", "syntax": "{{variable}}", "features": ["basic_substitution", "fragments"]},
        "metadata": {"domain": "support", "anything": [1]},
        "compilation": {"compiled_with": "x", "created_at": "2026-01-01T00:00:00Z", "schema": "v1"},
        "fragments": {"tone": "Be kind to {{customer}}."},
        "tools": {"get_order": {
            "name": "get_order", "description": "Reads an order", "categories": ["orders"],
            "parameters": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            "client": {"consent": {"required": true, "message": "May I?", "decline_strategy": "error"}}
        }},
        "prompts": {"support": {
            "id": "support", "name": "Support", "version": "1.0.0", "description": "Helps",
            "system_template": "{{tone}} Today is {{ day }}.",
            "variables": [
                {"name": "customer", "type": "string", "required": true, "description": "who", "example": "Ada",
                 "validation": {"pattern": "^[A-Z]", "min_length": 1, "max_length": 50},
                 "binding": {"kind": "session", "field": "name", "auto_populate": true, "filter": "trim"}},
                {"name": "day", "type": "string", "required": false, "default": "Monday", "validation": {"enum": ["Monday", "Friday"]}},
                {"name": "count", "type": "number", "required": false, "validation": {"minimum": 1, "maximum": 9}}
            ],
            "tools": ["get_order", "list_*"],
            "tool_policy": {"tool_choice": "auto", "max_rounds": 5, "max_tool_calls_per_turn": 9, "blocklist": ["list_secrets"]},
            "pipeline": {"stages": ["template"], "middleware": [{"type": "template", "config": {}}]},
            "parameters": {"temperature": 0.2, "max_tokens": 100, "top_p": 1, "top_k": null, "frequency_penalty": 0, "presence_penalty": -1},
            "validators": [{"type": "max_length", "enabled": true, "fail_on_violation": false, "message": "m", "params": {"max_characters": 100}}],
            "tested_models": [{"provider": "p", "model": "m", "date": "2026-01-01", "success_rate": 1, "avg_tokens": 1, "avg_cost": 0, "avg_latency_ms": 1, "notes": ""}],
            "model_overrides": {"m": {"system_template_prefix": "p", "system_template_suffix": "s", "parameters": {"temperature": 1}}},
            "media": {"enabled": true, "supported_types": ["image"], "image": {"max_size_mb": 1}},
            "evals": [{"id": "e", "type": "contains", "trigger": "every_turn", "sample_percentage": 5, "enabled": true, "params": {},
                       "metric": {"name": "m", "type": "gauge"}, "threshold": {"operator": "gte", "value": 1}, "groups": ["fast"]}]
        }},
        "evals": [], "skills": ["./skills", {"path": "x", "preload": true}, {"name": "n", "description": "d", "instructions": "i"}],
        "workflow": {"version": 1, "entry": "start", "states": {"start": {"prompt_task": "support", "on_event": {"done": "start"}}}},
        "agents": {"entry": "support", "members": {"support": {"tags": []}}},
        "compositions": {"c": {"version": 1, "steps": [{"id": "a", "kind": "tool", "tool": "get_order"}]}}
    });
    let pack = load(&document).unwrap();
    let prompt = &pack.prompts["support"];
    assert_eq!(prompt.tool_policy.max_rounds, Some(5));
    assert_eq!(prompt.parameters.temperature, Some(0.2));
    assert_eq!(
        pack.tools["get_order"]
            .client
            .as_ref()
            .unwrap()
            .consent
            .as_ref()
            .unwrap()
            .message
            .as_deref(),
        Some("May I?")
    );
}

#[test]
fn om_552_all_findings_are_reported_together_with_path_and_reason() {
    let mut document = pack_with(json!({"validators": {"max_length": 5}, "unknown": 1}));
    document["id"] = json!("Not An Id");
    document["template_engine"] = json!({"version": "v1"});
    document["prompts"]["main"]["parameters"] = json!({"temperature": 3});
    let text = describe(&load(&document).unwrap_err());
    assert_eq!(
        text,
        "invalid pack.json: /id: \"Not An Id\" does not match ^[a-z][a-z0-9-]*$; \
         /prompts/main/parameters/temperature: value is greater than the maximum of 2; \
         /prompts/main/unknown: unknown property; \
         /prompts/main/validators: must be an array, is an object; \
         /template_engine/syntax: is required"
    );
}

#[test]
fn om_551_an_unknown_property_anywhere_is_a_failure() {
    for (pointer, property) in [
        ("", "extra"),
        ("/template_engine", "extra"),
        ("/prompts/main", "user_template"),
    ] {
        let mut document = pack_with(json!({}));
        document.pointer_mut(pointer).unwrap()[property] = json!(1);
        assert_eq!(
            findings(&document),
            [format!("{pointer}/{property}: unknown property")]
        );
    }
}

#[test]
fn om_301_text_that_is_not_json_and_a_document_that_is_too_large_are_findings() {
    let found = validate(b"{\"id\": ").unwrap_err();
    assert_eq!(found.len(), 1);
    assert!(
        found[0].to_string().starts_with("/: is not JSON: "),
        "{}",
        found[0]
    );
    let found = validate(&vec![b' '; MAX_BYTES + 1]).unwrap_err();
    assert!(found[0].reason.contains("the limit is"), "{}", found[0]);
    let deep = "[".repeat(100_000);
    assert!(validate(deep.as_bytes()).is_err());
}

#[test]
fn om_544_a_pack_without_prompts_is_refused() {
    let mut document = pack_with(json!({}));
    document["prompts"] = json!({});
    assert_eq!(findings(&document), ["/prompts: must have at least 1 entry"]);
}

#[test]
fn d16_braces_and_json_examples_stay_literal() {
    let template = r#"Answer {like this}: {"a": {"b": {}}} and ${x} and {{ "json": 1 }} and {{1}}."#;
    let document = pack_with(json!({"system_template": template}));
    assert_eq!(rendered(&document, json!({})).unwrap(), template);
}

#[test]
fn d16_an_undeclared_placeholder_is_a_finding_when_the_pack_is_loaded() {
    let document = pack_with(
        json!({"system_template": "Hello {{ customer }}, {{name}}", "variables": [variable("name", "string", true)]}),
    );
    assert_eq!(
        findings(&document),
        [
            "/prompts/main/system_template: `{{customer}}` is neither a variable of prompt `main` nor a fragment"
        ]
    );
}

#[test]
fn d16_undeclared_placeholders_are_found_in_fragments_defaults_and_overrides() {
    let mut document = pack_with(json!({
        "system_template": "{{tone}} {{name}}",
        "variables": [{"name": "name", "type": "string", "required": false, "default": "{{nickname}}"}],
        "model_overrides": {"m/1": {"system_template_suffix": "{{suffix}}"}}
    }));
    document["fragments"] = json!({"tone": "like {{idol}}", "unused": "{{whatever}}"});
    assert_eq!(
        findings(&document),
        [
            "/fragments/tone: `{{idol}}` is neither a variable of prompt `main` nor a fragment",
            "/prompts/main/model_overrides/m~11/system_template_suffix: `{{suffix}}` is neither a variable of prompt `main` nor a fragment",
            "/prompts/main/variables/0/default: `{{nickname}}` is neither a variable of prompt `main` nor a fragment",
        ]
    );
}

#[test]
fn om_543_template_features_that_are_not_built_are_findings_rather_than_half_rendered() {
    let document = pack_with(
        json!({"system_template": "{{#if a}}x{{/if}} {{a | upper}}", "variables": [variable("a", "string", false)]}),
    );
    let found = findings(&document);
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(
        found.iter().all(|finding| finding.contains("is not supported")),
        "{found:?}"
    );
    let mut document = pack_with(json!({}));
    document["template_engine"]["syntax"] = json!("${variable}");
    assert_eq!(
        findings(&document),
        ["/template_engine/syntax: `${variable}` is not supported; placeholders are written {{variable}}"]
    );
}

#[test]
fn om_562_circular_and_too_deep_fragments_are_findings() {
    let mut document = pack_with(json!({"system_template": "{{a}}"}));
    document["fragments"] = json!({"a": "{{b}}", "b": "{{a}}"});
    assert_eq!(
        findings(&document),
        ["/fragments/b: `{{a}}` refers to itself in a circle"]
    );

    let chain = |length: usize| {
        let mut fragments = Map::new();
        for level in 1..=length {
            let text = if level == length {
                "end".to_owned()
            } else {
                format!("{{{{f{}}}}}", level + 1)
            };
            fragments.insert(format!("f{level}"), json!(text));
        }
        let mut document = pack_with(json!({"system_template": "{{f1}}"}));
        document["fragments"] = Value::Object(fragments);
        document
    };
    assert_eq!(rendered(&chain(10), json!({})).unwrap(), "end");
    assert_eq!(
        findings(&chain(11)),
        ["/fragments/f9: `{{f10}}` is nested deeper than 10 levels"]
    );
}

#[test]
fn om_562_values_come_from_the_caller_then_the_default_then_a_fragment() {
    let mut document = pack_with(json!({
        "system_template": "{{a}} {{b}} {{ c }}",
        "variables": [
            {"name": "a", "type": "string", "required": false, "default": "default-a"},
            {"name": "b", "type": "string", "required": false, "default": "default-b"},
        ]
    }));
    document["fragments"] = json!({"a": "fragment-a", "b": "fragment-b", "c": "fragment-c"});
    assert_eq!(
        rendered(&document, json!({"a": "given-a", "c": "ignored"})).unwrap(),
        "given-a default-b fragment-c"
    );
}

#[test]
fn om_562_a_required_variable_without_a_value_names_itself() {
    let document =
        pack_with(json!({"system_template": "{{name}}", "variables": [variable("name", "string", true)]}));
    for supplied in [json!({}), json!({"name": ""}), json!({"name": null})] {
        let error = rendered(&document, supplied).unwrap_err();
        assert_eq!(
            error,
            RenderError::MissingVariable {
                variable: "name".to_owned()
            }
        );
        assert!(error.to_string().contains("`name`"));
    }
}

#[test]
fn om_562_a_placeholder_left_at_the_end_is_an_error() {
    let document = pack_with(
        json!({"system_template": "Hi {{nick}}", "variables": [variable("nick", "string", false)]}),
    );
    assert_eq!(
        rendered(&document, json!({})).unwrap_err(),
        RenderError::PlaceholderLeft {
            name: "nick".to_owned()
        }
    );
}

#[test]
fn om_562_values_of_the_caller_are_never_expanded() {
    let mut document = pack_with(json!({
        "system_template": "[{{a}}{{b}}] {{outer}}",
        "variables": [variable("a", "string", true), variable("b", "string", true)]
    }));
    document["fragments"] = json!({"secret": "SECRET", "outer": "<{{a}}>"});
    let text = rendered(&document, json!({"a": "{{secret}} {{sec", "b": "ret}}"})).unwrap();
    assert_eq!(text, "[{{secret}} {{secret}}] <{{secret}} {{sec>");
}

#[test]
fn om_562_a_text_that_grows_without_bound_is_an_error() {
    let mut fragments = Map::new();
    for level in 0..9 {
        fragments.insert(
            format!("f{level}"),
            json!(format!("{{{{f{}}}}}", level + 1).repeat(10)),
        );
    }
    fragments.insert("f9".to_owned(), json!("0123456789"));
    let mut document = pack_with(json!({"system_template": "{{f0}}"}));
    document["fragments"] = Value::Object(fragments);
    assert!(matches!(
        rendered(&document, json!({})),
        Err(RenderError::TooLong { .. })
    ));
}

#[test]
fn om_554_types_and_rules_are_checked_before_rendering() {
    let check = |declaration: Value, value: Value| {
        let mut declared = variable("v", "string", true);
        merge(&mut declared, declaration);
        let document = pack_with(json!({"system_template": "{{v}}", "variables": [declared]}));
        rendered(&document, json!({"v": value}))
    };
    let number = || json!({"type": "number", "validation": {"minimum": 1, "maximum": 5}});
    assert_eq!(check(number(), json!("3")).unwrap(), "3");
    assert_eq!(check(number(), json!(2.5)).unwrap(), "2.5");
    for value in [json!("three"), json!(0), json!("6"), json!(true)] {
        assert!(matches!(
            check(number(), value),
            Err(RenderError::InvalidVariable(_))
        ));
    }
    assert_eq!(check(json!({"type": "boolean"}), json!("true")).unwrap(), "true");
    assert_eq!(
        check(json!({"type": "object"}), json!("{\"a\":1}")).unwrap(),
        "{\"a\":1}"
    );
    assert_eq!(
        check(json!({"type": "array"}), json!([1, "x"])).unwrap(),
        "[1,\"x\"]"
    );
    assert!(check(json!({"type": "array"}), json!("{}")).is_err());
    assert!(check(json!({}), json!({"a": 1})).is_err());
    let text = || json!({"validation": {"pattern": "^[0-9]+$", "min_length": 2, "max_length": 3}});
    assert_eq!(check(text(), json!("12")).unwrap(), "12");
    for value in ["1", "1234", "ab"] {
        let error = check(text(), json!(value)).unwrap_err().to_string();
        assert!(
            error.contains("`v`") && !error.contains(&format!("`{value}`")),
            "{error}"
        );
    }
    assert_eq!(
        check(
            json!({"type": "number", "validation": {"enum": [1, 2]}}),
            json!("2.0")
        )
        .unwrap(),
        "2.0"
    );
    assert!(check(json!({"validation": {"enum": ["a"]}}), json!("b")).is_err());
}

#[test]
fn om_554_a_default_that_breaks_its_own_rules_is_a_finding() {
    let document = pack_with(json!({"variables": [
        {"name": "a", "type": "number", "required": false, "default": "many"},
        {"name": "a", "type": "string", "required": false, "validation": {"pattern": "("}},
    ]}));
    let found = findings(&document);
    assert_eq!(found[0], "/prompts/main/variables/0/default: must be a number");
    assert_eq!(found[1], "/prompts/main/variables/1/name: `a` is declared twice");
    assert!(
        found[2].starts_with("/prompts/main/variables/1/validation/pattern: "),
        "{found:?}"
    );
}

#[test]
fn om_559_an_override_applies_to_its_model_only() {
    let document = pack_with(json!({
        "parameters": {"temperature": 0.1, "max_tokens": 5},
        "model_overrides": {"model": {"system_template_prefix": "<", "system_template_suffix": ">", "parameters": {"temperature": 1}}}
    }));
    assert_eq!(rendered(&document, json!({})).unwrap(), "<Help.>");
    let pack = load(&document).unwrap();
    let prompt = &pack.prompts["main"];
    assert_eq!(render(&pack, prompt, "other", &Map::new()).unwrap(), "Help.");
    let merged = prompt
        .parameters
        .overridden_by(&prompt.model_overrides["model"].parameters);
    assert_eq!((merged.temperature, merged.max_tokens), (Some(1.0), Some(5)));
}

#[test]
fn om_561_the_prompt_is_the_entry_of_the_workflow_then_of_the_agents_then_the_only_one_then_default() {
    let prompt = |id: &str| json!({"id": id, "name": id, "version": "1.0.0", "system_template": id});
    let mut document = pack_with(json!({}));
    assert_eq!(select_prompt(&load(&document).unwrap()).unwrap().0, "main");
    document["prompts"]["other"] = prompt("other");
    let error = select_prompt(&load(&document).unwrap()).unwrap_err();
    assert_eq!(error.available, ["main", "other"]);
    assert!(error.to_string().contains("main, other"));
    document["prompts"]["default"] = prompt("default");
    assert_eq!(select_prompt(&load(&document).unwrap()).unwrap().0, "default");
    document["agents"] = json!({"entry": "other", "members": {"other": {}}});
    assert_eq!(select_prompt(&load(&document).unwrap()).unwrap().0, "other");
    document["workflow"] = json!({"version": 1, "entry": "s", "states": {"s": {"prompt_task": "main"}}});
    assert_eq!(select_prompt(&load(&document).unwrap()).unwrap().0, "main");
}

#[test]
fn om_550_references_to_prompts_and_states_that_do_not_exist_are_findings() {
    let mut document = pack_with(json!({}));
    document["workflow"] = json!({"version": 1, "entry": "gone", "states": {"s": {"prompt_task": "nobody"}}});
    document["agents"] = json!({"entry": "nobody", "members": {"somebody": {}}});
    document["tools"] = json!({"a": {"name": "b", "description": "x"}});
    document["prompts"]["main"]["tools"] = json!(["a*b", "ok*", "has space"]);
    assert_eq!(
        findings(&document),
        [
            "/agents/entry: `nobody` is not a prompt of the pack",
            "/agents/members/somebody: `somebody` is not a prompt of the pack",
            "/prompts/main/tools/0: `a*b` is not a tool name; `*` may only stand at the end",
            "/prompts/main/tools/2: `has space` is not a tool name; `*` may only stand at the end",
            "/tools/a/name: `b` differs from its key `a`",
            "/workflow/entry: `gone` is not a state of the workflow",
            "/workflow/states/s/prompt_task: `nobody` is not a prompt of the pack",
        ]
    );
}

#[test]
fn om_358_and_361_the_list_is_an_allowlist_with_prefixes_and_a_blocklist() {
    let document =
        pack_with(json!({"tools": ["a", "catalog_*"], "tool_policy": {"blocklist": ["catalog_drop"]}}));
    let pack = load(&document).unwrap();
    let list = Allowlist::of(&pack.prompts["main"]);
    assert_eq!(list.admission("a"), Admission::Offered);
    assert_eq!(list.admission("ab"), Admission::NotListed);
    assert_eq!(list.admission("catalog_get"), Admission::Offered);
    assert_eq!(list.admission("catalog_drop"), Admission::Blocked);
    let open = list.surfacing_unlisted();
    assert_eq!(open.admission("ab"), Admission::Offered);
    assert_eq!(open.admission("catalog_drop"), Admission::Blocked);
}

fn guardrails(validators: Value) -> Result<Guardrails, GuardrailError> {
    let validators: Vec<Validator> = serde_json::from_value(validators).unwrap();
    Guardrails::compile(&validators)
}

fn judged(kind: &str, params: Value, text: &str) -> Verdict {
    guardrails(json!([{"type": kind, "enabled": true, "params": params}]))
        .unwrap()
        .check(Direction::Output, text)
}

#[test]
fn om_565_an_unknown_type_cannot_run_but_a_disabled_one_is_skipped() {
    let unknown = json!([{"type": "sentiment", "enabled": true}]);
    let error = guardrails(unknown.clone()).unwrap_err();
    assert!(error.to_string().contains("`sentiment`"), "{error}");
    assert!(
        load(&pack_with(json!({"validators": unknown}))).is_ok(),
        "the document itself is valid"
    );
    assert!(guardrails(json!([{"type": "sentiment", "enabled": false}])).is_ok());
}

#[test]
fn om_565_broken_parameters_of_a_known_type_are_a_finding() {
    for (kind, params) in [
        ("banned_words", json!({})),
        ("banned_words", json!({"words": []})),
        ("max_length", json!({"max_characters": 0})),
        ("length", json!({})),
        ("regex", json!({"pattern": "("})),
        ("json_schema", json!({"schema": {"type": "no-such-type"}})),
        ("contains", json!({"patterns": ["a", 1]})),
        (
            "max_length",
            json!({"max_characters": 5, "direction": "sideways"}),
        ),
    ] {
        let document = pack_with(json!({"validators": [{"type": kind, "enabled": true, "params": params}]}));
        let found = findings(&document);
        assert_eq!(found.len(), 1, "{kind}: {found:?}");
        assert!(
            found[0].starts_with("/prompts/main/validators/0/params: "),
            "{found:?}"
        );
    }
}

#[test]
fn om_565_length_rules_truncate() {
    assert_eq!(
        judged("max_length", json!({"max_characters": 3}), "äöüß").text,
        "äöü"
    );
    assert_eq!(judged("length", json!({"max_tokens": 1}), "abcdefg").text, "abcd");
    assert_eq!(judged("length", json!({"max_tokens": 1}), "aääb").text, "aä");
    assert!(
        judged("max_length", json!({"max_characters": 4}), "äöüß")
            .violations
            .is_empty()
    );
    assert_eq!(
        judged(
            "max_sentences",
            json!({"max_sentences": 2}),
            "Pi is 3.14. Yes! No."
        )
        .text,
        "Pi is 3.14. Yes!"
    );
    assert!(
        judged("sentence_count", json!({"max": 2}), "One. Two.")
            .violations
            .is_empty()
    );
}

#[test]
fn om_565_content_rules_replace() {
    let replaced = |kind: &str, params: Value, text: &str| judged(kind, params, text).text != text;
    assert!(replaced("banned_words", json!({"words": ["foo"]}), "A FOO here"));
    assert!(!replaced("banned_words", json!({"words": ["foo"]}), "food"));
    assert!(replaced(
        "banned_words",
        json!({"words": ["foo"], "word_boundary": false}),
        "food"
    ));
    assert!(replaced(
        "content_excludes",
        json!({"patterns": ["a.c"]}),
        "xa.cx"
    ));
    assert!(!replaced("content_excludes", json!({"patterns": ["a.c"]}), "abc"));
    assert!(replaced("min_length", json!({"min_characters": 5}), "four"));
    assert!(replaced("regex", json!({"pattern": "^ok"}), "no"));
    assert!(replaced(
        "regex",
        json!({"pattern": "[0-9]{16}", "must_match": false}),
        "4111111111111111"
    ));
    assert!(replaced("contains", json!({"patterns": ["a", "b"]}), "a"));
    assert!(!replaced("contains", json!({"patterns": ["a", "B"]}), "Ab"));
    assert!(replaced("contains_any", json!({"patterns": ["a", "b"]}), "c"));
    assert!(replaced(
        "required_fields",
        json!({"fields": ["id"]}),
        "{\"x\":1}"
    ));
    assert!(!replaced(
        "field_presence",
        json!({"fields": ["id"]}),
        "{\"id\":1}"
    ));
    assert!(replaced(
        "json_schema",
        json!({"schema": {"type": "object", "required": ["a"]}}),
        "{}"
    ));
    assert!(!replaced(
        "json_schema",
        json!({"schema": {"type": "object"}}),
        "{}"
    ));
}

#[test]
fn om_565_rules_have_a_direction_a_message_and_may_stop_the_round() {
    let rails = guardrails(json!([
        {"type": "banned_words", "enabled": true, "fail_on_violation": true, "message": "Not here.",
         "params": {"words": ["foo"], "direction": "both"}},
        {"type": "max_length", "enabled": true, "params": {"max_characters": 4, "direction": "output"}},
        {"type": "contains", "enabled": true, "params": {"patterns": ["zzz"]}},
    ]))
    .unwrap();
    let input = rails.check(Direction::Input, "foo bar");
    assert_eq!((input.text.as_str(), input.stops()), ("Not here.", true));
    assert_eq!(rails.check(Direction::Input, "something longer").violations, []);
    let output = rails.check(Direction::Output, "foo");
    assert_eq!(
        output.text, "Not ",
        "a length rule applies to the replacement, a content rule does not"
    );
    assert_eq!(output.violations.len(), 2);
    assert!(!guardrails(json!([])).unwrap().covers(Direction::Output));
}

#[test]
fn om_171_the_digest_is_that_of_the_bytes() {
    assert_eq!(
        digest(b""),
        "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
}

proptest! {
    /// OM-562: whatever a caller sends, it stands in the text unchanged and nothing of the pack leaks into it.
    #[test]
    fn om_562_any_value_of_the_caller_is_copied_verbatim(value in "[a-z{} ]{1,40}") {
        let mut document = pack_with(json!({
            "system_template": "<{{v}}|{{v}}>", "variables": [variable("v", "string", true)]
        }));
        document["fragments"] = json!({"a": "LEAK", "b": "LEAK"});
        prop_assert_eq!(rendered(&document, json!({"v": value.clone()})).unwrap(), format!("<{value}|{value}>"));
    }

    /// No template makes validation or rendering panic, and what is accepted renders.
    #[test]
    fn om_562_accepted_templates_without_variables_render(template in "[a{}#/| \"é]{1,60}") {
        let mut document = pack_with(json!({"system_template": template}));
        document["fragments"] = json!({"a": "text"});
        if load(&document).is_ok() {
            let outcome = rendered(&document, json!({}));
            prop_assert!(outcome.is_ok(), "{outcome:?}");
        }
    }

    /// OM-565: a shortened text is a beginning of the original within the limit.
    #[test]
    fn om_565_truncation_keeps_a_beginning(text in "\\PC{0,80}", most in 1_usize..20) {
        let verdict = judged("max_length", json!({"max_characters": most}), &text);
        prop_assert!(text.starts_with(&verdict.text));
        prop_assert_eq!(verdict.text.chars().count(), text.chars().count().min(most));
    }
}
