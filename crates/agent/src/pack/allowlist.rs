//! Which registry tools a prompt lets the model see (OM-358…OM-363).

use super::Prompt;

/// The prompt's `tools` list and blocklist, ready to be asked.
#[derive(Debug, Clone, Default)]
pub struct Allowlist {
    exact: Vec<String>,
    prefixes: Vec<String>,
    blocked: Vec<String>,
    everything: bool,
}

/// What the allowlist says about one tool name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Offered to the model.
    Offered,
    /// Listed, but taken back by `tool_policy.blocklist` (OM-361).
    Blocked,
    /// Not listed; no handler type is exempt (OM-358).
    NotListed,
}

impl Allowlist {
    /// The allowlist of a prompt.
    pub fn of(prompt: &Prompt) -> Self {
        let mut list = Self {
            blocked: prompt.tool_policy.blocklist.clone(),
            ..Self::default()
        };
        for entry in &prompt.tools {
            match entry.strip_suffix('*') {
                Some(prefix) => list.prefixes.push(prefix.to_owned()),
                None => list.exact.push(entry.clone()),
            }
        }
        list
    }

    /// The same list that also admits what the prompt does not name: the migration switch of DD-7.
    /// The blocklist stays.
    #[must_use]
    pub fn surfacing_unlisted(mut self) -> Self {
        self.everything = true;
        self
    }

    /// Whether the tool is offered, and if not why.
    pub fn admission(&self, tool: &str) -> Admission {
        if self.blocked.iter().any(|name| name == tool) {
            return Admission::Blocked;
        }
        let listed = self.everything
            || self.exact.iter().any(|name| name == tool)
            || self
                .prefixes
                .iter()
                .any(|prefix| tool.starts_with(prefix.as_str()));
        if listed {
            Admission::Offered
        } else {
            Admission::NotListed
        }
    }
}
