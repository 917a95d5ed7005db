//! Which prompt of a pack an agent uses (OM-561).

use super::{Pack, Prompt};

/// No prompt can be chosen; the agent is not ready and says so (OM-561).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "pack `{pack}` has several prompts and none is the entry; available: {}; name one `default` or set agents.entry or workflow.entry",
    available.join(", ")
)]
pub struct SelectError {
    /// Id of the pack.
    pub pack: String,
    /// Names of the prompts there are.
    pub available: Vec<String>,
}

/// The prompt of `workflow.entry`, else of `agents.entry`, else the only one, else `default` (OM-561).
/// Returns its key and the prompt.
///
/// # Errors
///
/// [`SelectError`] naming the prompts there are.
pub fn select_prompt(pack: &Pack) -> Result<(&str, &Prompt), SelectError> {
    let workflow = pack
        .workflow
        .as_ref()
        .and_then(|workflow| workflow.states.get(&workflow.entry))
        .and_then(|state| state.prompt_task.as_deref());
    let agents = pack.agents.as_ref().map(|agents| agents.entry.as_str());
    let only = match pack.prompts.len() {
        1 => pack.prompts.keys().next().map(String::as_str),
        _ => None,
    };
    [workflow, agents, only, Some("default")]
        .into_iter()
        .flatten()
        .find_map(|name| pack.prompts.get_key_value(name))
        .map(|(name, prompt)| (name.as_str(), prompt))
        .ok_or_else(|| SelectError {
            pack: pack.id.clone(),
            available: pack.prompts.keys().cloned().collect(),
        })
}
