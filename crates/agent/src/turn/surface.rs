//! What a turn offers to the model (OM-358…OM-363).

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_llm::{ToolChoice, ToolDescriptor};

use super::skill;
use crate::history;
use crate::model_entry::ModelEntry;
use crate::pack::{self, Admission, Allowlist};
use crate::pack_source::LoadedPack;
use crate::tool::{RegistryTool, Runs};

/// The offered tools of one turn.
#[derive(Debug, Default)]
pub(crate) struct Surface {
    offered: BTreeMap<String, RegistryTool>,
    descriptors: Arc<[ToolDescriptor]>,
    bytes: usize,
    allowlist: Allowlist,
    required_first: bool,
}

impl Surface {
    pub(crate) fn new(
        pack: &LoadedPack,
        entry: &ModelEntry,
        registry: Vec<RegistryTool>,
        unlisted: bool,
    ) -> Self {
        let allowlist = match unlisted {
            true => pack.allowlist.clone().surfacing_unlisted(),
            false => pack.allowlist.clone(),
        };
        let choice = pack.prompt.tool_policy.tool_choice;
        let none = choice == pack::ToolChoice::None || !entry.offers_tools;
        // Offered without being listed (OM-362), and never from elsewhere: what a skill says goes to the model as the
        // pack's own words.
        let builtin = skill::tool(&pack.skills)
            .into_iter()
            .filter(|tool| !none && allowlist.admission(&tool.name) != Admission::Blocked)
            .map(|tool| (tool.name.clone(), tool));
        let offered: BTreeMap<String, RegistryTool> = registry
            .into_iter()
            .filter(|tool| !none && allowlist.admission(&tool.name) == Admission::Offered)
            .map(|tool| (tool.name.clone(), described(pack, tool)))
            .chain(builtin)
            .collect();
        let descriptors: Arc<[ToolDescriptor]> = offered
            .values()
            .map(|tool| ToolDescriptor {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters: tool.parameters.clone(),
            })
            .collect();
        Self {
            bytes: history::bytes_of_tools(&descriptors),
            descriptors,
            offered,
            allowlist,
            required_first: choice == pack::ToolChoice::Required,
        }
    }

    /// Sorted and unique by name (OM-361). Made once for all rounds of the turn.
    pub(crate) fn descriptors(&self) -> Arc<[ToolDescriptor]> {
        Arc::clone(&self.descriptors)
    }

    /// Bytes of the descriptors as they are counted against the model's window (OR-260).
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// `required` forces a tool in the first round only: forced for ever, a turn could not end (OM-564).
    pub(crate) fn choice(&self, round: u32) -> ToolChoice {
        if self.offered.is_empty() {
            ToolChoice::None
        } else if self.required_first && round == 1 {
            ToolChoice::Required
        } else {
            ToolChoice::Auto
        }
    }

    /// What the model is told, or would be told, about a tool of the registry.
    pub(crate) fn described(&self, pack: &LoadedPack, tool: RegistryTool) -> RegistryTool {
        self.offered
            .get(&tool.name)
            .cloned()
            .unwrap_or_else(|| described(pack, tool))
    }

    /// The tool of a call.
    ///
    /// # Errors
    ///
    /// What the model reads about a name it was not offered (OM-361, OM-363).
    pub(crate) fn find(&self, name: &str) -> Result<&RegistryTool, String> {
        self.offered
            .get(name)
            .ok_or_else(|| match self.allowlist.admission(name) {
                Admission::Blocked => format!("tool `{name}` is blocked by policy"),
                Admission::Offered | Admission::NotListed => {
                    let names: Vec<&str> = self.offered.keys().map(String::as_str).collect();
                    match names.is_empty() {
                        true => format!("there is no tool `{name}`; no tools are available"),
                        false => format!("there is no tool `{name}`; available tools: {}", names.join(", ")),
                    }
                }
            })
    }
}

/// Description, schema and client data: the pack's where it defines the name, else the registry's; a client
/// handler's own consent message and categories win over both (OM-359, OM-433).
fn described(pack: &LoadedPack, mut tool: RegistryTool) -> RegistryTool {
    let Some(defined) = pack.pack.tools.get(&tool.name) else {
        return tool;
    };
    tool.description.clone_from(&defined.description);
    if let Some(parameters) = &defined.parameters {
        tool.parameters.clone_from(parameters);
    }
    if let Runs::AtClient {
        consent_message,
        categories,
    } = &mut tool.runs
    {
        let client = defined.client.as_ref();
        if consent_message.is_none() {
            *consent_message = client
                .and_then(|client| client.consent.as_ref())
                .and_then(|consent| consent.message.clone());
        }
        if categories.is_none() {
            let listed = client
                .map(|client| &client.categories)
                .filter(|listed| !listed.is_empty());
            *categories = Some(listed.unwrap_or(&defined.categories).clone());
        }
    }
    tool
}
