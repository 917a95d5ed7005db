//! The document as Rust types. The schema decides what is allowed; these types only carry what the
//! runtime uses, and keep the rest as JSON.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use super::variable;

/// A whole `pack.json` (OM-541…OM-550).
#[derive(Debug, Clone, Deserialize)]
pub struct Pack {
    /// Identifier of the pack (OM-541).
    pub id: String,
    /// Name for people (OM-542).
    pub name: String,
    /// Semantic version, `v` allowed in front (OM-542).
    pub version: String,
    /// What the pack is for (OM-547).
    #[serde(default)]
    pub description: String,
    /// How placeholders are written (OM-543).
    pub template_engine: TemplateEngine,
    /// Prompts by id; never empty (OM-544).
    pub prompts: BTreeMap<String, Prompt>,
    /// Texts usable as variables (OM-545).
    #[serde(default)]
    pub fragments: BTreeMap<String, String>,
    /// Descriptions and parameter schemas of tools (OM-546).
    #[serde(default)]
    pub tools: BTreeMap<String, PackTool>,
    /// Skills as written (OM-549).
    #[serde(default)]
    pub skills: Vec<Value>,
    /// Evaluations as written (OM-548).
    #[serde(default)]
    pub evals: Vec<Value>,
    /// State machine over the prompts; only its entry is used (OM-550, OM-561).
    pub workflow: Option<Workflow>,
    /// Prompts as agents; only the entry is used (OM-550, OM-561).
    pub agents: Option<Agents>,
}

/// How placeholders are written (OM-543).
#[derive(Debug, Clone, Deserialize)]
pub struct TemplateEngine {
    /// Version of the engine.
    pub version: String,
    /// Pattern of a placeholder, `{{variable}}`.
    pub syntax: String,
    /// What the templates use.
    #[serde(default)]
    pub features: Vec<String>,
}

/// One prompt (OM-553…OM-560).
#[derive(Debug, Clone, Deserialize)]
pub struct Prompt {
    /// Identifier.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// Semantic version of the prompt.
    pub version: String,
    /// Template of the system text (OM-553, OM-562).
    pub system_template: String,
    /// Declared variables (OM-554).
    #[serde(default)]
    pub variables: Vec<Variable>,
    /// Allowlist of tool names; an entry ending in `*` matches by prefix (OM-358, OM-361).
    #[serde(default)]
    pub tools: Vec<String>,
    /// Limits and choice of tools (OM-556).
    #[serde(default)]
    pub tool_policy: ToolPolicy,
    /// Sampling parameters (OM-557).
    #[serde(default)]
    pub parameters: Parameters,
    /// Guardrails (OM-558, OM-565).
    #[serde(default)]
    pub validators: Vec<Validator>,
    /// Changes for one model, by model name (OM-559).
    #[serde(default)]
    pub model_overrides: BTreeMap<String, ModelOverride>,
}

/// One declared variable (OM-554).
#[derive(Debug, Clone, Deserialize)]
pub struct Variable {
    /// Name as in `{{name}}`.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub kind: VariableType,
    /// Whether a turn fails without a value.
    pub required: bool,
    /// Value when the caller gives none; a string may hold placeholders.
    pub default: Option<Value>,
    /// Rules a value must fulfil.
    #[serde(default)]
    pub validation: VariableRules,
}

/// Type of a variable (OM-554).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the variants are the words of OM-554")]
pub enum VariableType {
    String,
    Number,
    Boolean,
    Object,
    Array,
}

/// A regular expression that is compiled when it is first needed, and then kept with the pack.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "String")]
pub struct Pattern {
    text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Self {
            text,
            compiled: OnceLock::new(),
        }
    }
}

impl Pattern {
    /// The expression as the pack has it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The compiled expression.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for people.
    pub fn compiled(&self) -> Result<&Regex, &str> {
        self.compiled
            .get_or_init(|| variable::compile(&self.text))
            .as_ref()
            .map_err(String::as_str)
    }
}

/// Rules of a variable (OM-554).
#[derive(Debug, Clone, Default, Deserialize)]
pub struct VariableRules {
    /// Regular expression that a string must match somewhere.
    pub pattern: Option<Pattern>,
    /// Least number of characters of a string.
    pub min_length: Option<u64>,
    /// Greatest number of characters of a string.
    pub max_length: Option<u64>,
    /// Least number.
    pub minimum: Option<f64>,
    /// Greatest number.
    pub maximum: Option<f64>,
    /// Allowed values.
    #[serde(rename = "enum")]
    pub allowed: Option<Vec<Value>>,
}

/// What the pack says about a tool (OM-546, OM-359, OM-566).
#[derive(Debug, Clone, Deserialize)]
pub struct PackTool {
    /// Name; the same as its key.
    pub name: String,
    /// What the model reads about it.
    pub description: String,
    /// JSON Schema of the arguments.
    pub parameters: Option<Value>,
    /// Categories shown to the user of a client tool.
    #[serde(default)]
    pub categories: Vec<String>,
    /// Data for client tools.
    pub client: Option<ClientHints>,
}

/// Data of a tool that the connected client runs (OM-566).
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ClientHints {
    /// Question to ask before the call.
    pub consent: Option<Consent>,
    /// Categories, in the place where some packs write them.
    #[serde(default)]
    pub categories: Vec<String>,
}

/// Consent of a client tool (OM-566).
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Consent {
    /// Whether the user must agree.
    #[serde(default)]
    pub required: bool,
    /// What to ask.
    pub message: Option<String>,
    /// What to do when the user declines.
    pub decline_strategy: Option<String>,
}

/// Limits and choice of tools (OM-556, OM-370, OM-564).
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ToolPolicy {
    /// Whether the model may, must or must not call tools.
    #[serde(default)]
    pub tool_choice: ToolChoice,
    /// Model calls per turn that may ask for tools.
    pub max_rounds: Option<u32>,
    /// Tool calls per turn.
    pub max_tool_calls_per_turn: Option<u32>,
    /// Names that are never offered.
    #[serde(default)]
    pub blocklist: Vec<String>,
}

/// See OM-564.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The first round must call a tool.
    Required,
    /// No tool is offered.
    None,
}

/// Sampling parameters (OM-557); unset ones leave the provider's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
pub struct Parameters {
    /// 0 to 2.
    pub temperature: Option<f64>,
    /// Upper bound of the answer, in tokens.
    pub max_tokens: Option<u64>,
    /// 0 to 1.
    pub top_p: Option<f64>,
    /// Number of candidates.
    pub top_k: Option<u64>,
    /// -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// -2 to 2.
    pub presence_penalty: Option<f64>,
}

impl Parameters {
    /// These parameters with those of `over` in front where it has any (OM-496, OM-559).
    #[must_use]
    pub fn overridden_by(&self, over: &Parameters) -> Parameters {
        Parameters {
            temperature: over.temperature.or(self.temperature),
            max_tokens: over.max_tokens.or(self.max_tokens),
            top_p: over.top_p.or(self.top_p),
            top_k: over.top_k.or(self.top_k),
            frequency_penalty: over.frequency_penalty.or(self.frequency_penalty),
            presence_penalty: over.presence_penalty.or(self.presence_penalty),
        }
    }
}

/// One guardrail as written (OM-558).
#[derive(Debug, Clone, Deserialize)]
pub struct Validator {
    /// Which rule.
    #[serde(rename = "type")]
    pub kind: String,
    /// Off rules are skipped, whatever their type (OM-565).
    pub enabled: bool,
    /// Whether a violation ends the round and drops its tool calls (OM-565).
    #[serde(default)]
    pub fail_on_violation: bool,
    /// What the user reads in place of a withheld text.
    pub message: Option<String>,
    /// Parameters of the rule.
    #[serde(default)]
    pub params: serde_json::Map<String, Value>,
}

/// Changes for one model (OM-559).
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ModelOverride {
    /// Replaces the template.
    pub system_template: Option<String>,
    /// Stands before the template.
    pub system_template_prefix: Option<String>,
    /// Stands after the template.
    pub system_template_suffix: Option<String>,
    /// Replaces single parameters.
    #[serde(default)]
    pub parameters: Parameters,
}

/// State machine over the prompts (OM-550).
#[derive(Debug, Clone, Deserialize)]
pub struct Workflow {
    /// State a session begins in.
    pub entry: String,
    /// States by name.
    pub states: BTreeMap<String, WorkflowState>,
}

/// One state (OM-550).
#[derive(Debug, Clone, Deserialize)]
pub struct WorkflowState {
    /// The prompt that works in this state; absent for compositions.
    pub prompt_task: Option<String>,
}

/// Prompts as agents (OM-550).
#[derive(Debug, Clone, Deserialize)]
pub struct Agents {
    /// Prompt that receives incoming requests.
    pub entry: String,
    /// Members by prompt id.
    pub members: BTreeMap<String, Value>,
}
