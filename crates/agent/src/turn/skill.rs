//! `skill__activate`: the built-in tool by which a model reads a skill's instructions (OM-362, OM-567).
//!
//! A skill is active once its instructions stand in the conversation. It has no effect outside of it, so no policy is
//! asked (OM-493), and a repeated call is harmless.

use std::collections::{BTreeMap, BTreeSet};

use mainstay_llm::{Message, Role};
use serde_json::{Value, json};

use crate::pack::Skills;
use crate::tool::{RegistryTool, Runs, ToolAnswer};

/// Name of the tool.
pub(super) const ACTIVATE: &str = "skill__activate";

/// What its calls are recorded under in place of a handler.
const HANDLER: &str = "skills";

/// The tool, for a pack that has skills.
pub(super) fn tool(skills: &Skills) -> Option<RegistryTool> {
    if skills.inline.is_empty() {
        return None;
    }
    let mut description =
        "Reads the instructions of a skill. Activate a skill before you do what it is for. Skills:"
            .to_owned();
    for (name, skill) in &skills.inline {
        description.push_str(&format!("\n- {name}: {}", skill.description));
    }
    let names: Vec<&String> = skills.inline.keys().collect();
    Some(RegistryTool {
        name: ACTIVATE.to_owned(),
        description,
        parameters: json!({
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Name of the skill.", "enum": names}},
            "required": ["name"],
        }),
        handler: HANDLER.to_owned(),
        runs: Runs::Builtin,
        repeat_safe: true,
    })
}

/// What a call comes to in a conversation that is `history` so far.
pub(super) fn activate(skills: &Skills, arguments: &Value, history: &[Message], most: usize) -> ToolAnswer {
    let error = |content: String| ToolAnswer {
        content,
        is_error: true,
        ..ToolAnswer::default()
    };
    let names = || {
        skills
            .inline
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some(name) = arguments.get("name").and_then(Value::as_str) else {
        return error(format!("`name` must be one of the skills {}", names()));
    };
    let Some(skill) = skills.inline.get(name) else {
        return error(format!("there is no skill of that name; skills: {}", names()));
    };
    let active = active(history);
    if !active.contains(name) && active.len() >= most {
        let active: Vec<&str> = active.iter().map(String::as_str).collect();
        return error(format!(
            "at most {most} skills are active in a conversation; active are {}",
            active.join(", ")
        ));
    }
    ToolAnswer {
        content: skill.instructions.clone(),
        ..ToolAnswer::default()
    }
}

/// The skills whose instructions stand in a conversation.
fn active(history: &[Message]) -> BTreeSet<String> {
    let mut asked: BTreeMap<&str, String> = BTreeMap::new();
    let mut active = BTreeSet::new();
    for message in history {
        for call in message.tool_calls.iter().filter(|call| call.name == ACTIVATE) {
            let arguments = serde_json::from_str::<Value>(&call.arguments).unwrap_or_default();
            if let Some(name) = arguments.get("name").and_then(Value::as_str) {
                asked.insert(&call.id, name.to_owned());
            }
        }
        if message.role == Role::Tool
            && !message.is_error
            && let Some(name) = message.tool_call_id.as_deref().and_then(|id| asked.remove(id))
        {
            active.insert(name);
        }
    }
    active
}
