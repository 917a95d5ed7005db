//! The conversation as every provider sees it (OR-201).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions inside the conversation; the prompt itself is [`crate::Request::system`].
    System,
    /// The person, or the program that stands for one.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// The text; may be empty when an assistant message only calls tools.
    #[serde(default)]
    pub content: String,
    /// The calls of an assistant message, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// For [`Role::Tool`]: the call this is the result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// For [`Role::Tool`]: the tool's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For [`Role::Tool`]: the call failed or was refused. Providers without such a flag get it as
    /// a prefix of the text (see [`crate::conversion::openai_chat`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Reasoning behind an assistant message that its provider wants back, in the model's order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thoughts: Vec<SignedThought>,
    /// The provider entry that wrote an assistant message. What it signed goes back to it alone: another
    /// provider refuses a signature that is not its own, and some refuse fields they do not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
}

/// Reasoning that a provider marked as its own and expects back unchanged with the calls it led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SignedThought {
    /// Readable reasoning.
    Thought {
        /// The reasoning.
        text: String,
        /// The provider's mark.
        signature: String,
    },
    /// Reasoning that only the provider can read.
    Redacted {
        /// What it sent.
        data: String,
    },
}

impl Message {
    fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
            is_error: false,
            thoughts: Vec::new(),
            author: None,
        }
    }

    /// Instructions inside the conversation.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new(Role::System, content)
    }

    /// What the person said.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new(Role::User, content)
    }

    /// What the model said, with the calls it made.
    pub fn assistant(content: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        Self {
            tool_calls,
            ..Self::new(Role::Assistant, content)
        }
    }

    /// Whether the message carries marks of its provider.
    pub fn is_signed(&self) -> bool {
        !self.thoughts.is_empty() || self.tool_calls.iter().any(|call| call.signature.is_some())
    }

    /// The message without its provider's marks, for another provider.
    #[must_use]
    pub fn unsigned(mut self) -> Self {
        self.thoughts.clear();
        for call in &mut self.tool_calls {
            call.signature = None;
        }
        self
    }

    /// The result of the call `tool_call_id` of the tool `name`.
    pub fn tool_result(
        tool_call_id: impl Into<String>,
        name: impl Into<String>,
        content: impl Into<String>,
        is_error: bool,
    ) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            name: Some(name.into()),
            is_error,
            ..Self::new(Role::Tool, content)
        }
    }
}

/// One complete tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within the conversation; results name it.
    pub id: String,
    /// The tool's name as the model wrote it.
    pub name: String,
    /// The raw JSON text of the arguments. Never empty: a call without arguments has `{}`. It may
    /// still be invalid JSON, since a model may write anything.
    pub arguments: String,
    /// The provider's mark on the call, which it expects back unchanged (Gemini's thought signature).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

impl ToolCall {
    /// A call without a mark of its provider.
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            arguments: arguments.into(),
            signature: None,
        }
    }
}

/// A tool the model is offered (OM-359).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDescriptor {
    /// Name the model calls it by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments, as its author wrote it; conversions make it acceptable to
    /// the provider.
    pub parameters: Value,
}
