//! A template is refused, or rendered in bounded time: a prompt's, with what the pack and a caller put into it, and a
//! scenario's. What a caller says stands in the text as it was said.
//!
//! The input has three parts, separated by a line `---`: the template, the pack's own value, the caller's value.
#![no_main]
use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use mainstay_agent::pack;
use mainstay_llm::mock::{Scene, Template};
use serde_json::{Map, json};

fuzz_target!(|input: &str| {
    let mut parts = input.splitn(3, "\n---\n");
    let template = parts.next().unwrap_or_default();
    let own = parts.next().unwrap_or_default();
    let said = parts.next().unwrap_or_default();
    prompt(template, own, said);
    scenario(template, own, said);
});

fn prompt(template: &str, own: &str, said: &str) {
    let document = json!({
        "id": "p", "name": "P", "version": "1.0.0",
        "template_engine": {"version": "v1", "syntax": "{{variable}}"},
        "fragments": {"own": own},
        "prompts": {"main": {"id": "main", "name": "M", "version": "1.0.0", "system_template": template, "variables": [
            {"name": "said", "type": "string", "required": true},
            {"name": "default", "type": "string", "required": false, "default": own},
        ]}},
    });
    let Ok(pack) = pack::validate(document.to_string().as_bytes()) else {
        return;
    };
    let Ok((_, prompt)) = pack::select_prompt(&pack) else {
        return;
    };
    let supplied = Map::from_iter([("said".to_owned(), json!(said))]);
    if let Ok(text) = pack::render(&pack, prompt, "model", &supplied)
        && template == "{{said}}"
    {
        assert_eq!(text, said);
    }
}

fn scenario(template: &str, own: &str, said: &str) {
    let captures = ["id".to_owned()];
    let Ok(template) = Template::parse(template, &captures) else {
        return;
    };
    let scene = Scene {
        message: said.to_owned(),
        captures: BTreeMap::from([("id".to_owned(), own.to_owned())]),
        results: BTreeMap::from([(
            "look_up".to_owned(),
            serde_json::from_str(own).unwrap_or_else(|_| json!(own)),
        )]),
    };
    let _ = template.text(&scene);
    let _ = template.value(&scene);
}
