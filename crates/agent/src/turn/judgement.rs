//! What speaks against a tool call before anything is sent: the same for the calls of a turn and for those made by hand.

use mainstay_tools::policy::Decision;
use serde_json::{Value, json};

use super::surface::Surface;
use crate::event::CallOutcome;
use crate::tool::{RegistryTool, ToolAnswer, ToolRequest, ToolRunner};

/// A call that is not sent: how it ends, and what the model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Objection {
    pub(crate) outcome: CallOutcome,
    pub(crate) answer: ToolAnswer,
}

/// The offered tool of a call and its arguments as an object (OM-363, OM-364).
///
/// # Errors
///
/// What the model reads about a name that it was not offered, and about arguments that are no object.
pub(crate) fn admissible<'a>(
    surface: &'a Surface,
    name: &str,
    arguments: &str,
) -> Result<(&'a RegistryTool, Value), String> {
    let tool = surface.find(name)?;
    Ok((tool, parse_arguments(arguments)?))
}

/// What the decision and the tool itself have against the call (OM-364, OM-490).
pub(crate) fn objection(
    tools: &dyn ToolRunner,
    request: &ToolRequest,
    decision: &Decision,
) -> Option<Objection> {
    if let Some(content) = decision.denial_text() {
        let answer = ToolAnswer {
            content,
            is_error: true,
            ..ToolAnswer::default()
        };
        return Some(Objection {
            outcome: CallOutcome::Denied,
            answer,
        });
    }
    tools.refusal(request, decision).map(|answer| Objection {
        outcome: CallOutcome::Refused,
        answer,
    })
}

/// Arguments as an object; no text at all is an empty object, as some servers send it (OM-364, D11).
fn parse_arguments(text: &str) -> Result<Value, String> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(arguments) => as_object(arguments),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}

/// Arguments as an object; `null` is an empty one.
///
/// # Errors
///
/// What is read about arguments that are something else.
pub(crate) fn as_object(arguments: Value) -> Result<Value, String> {
    match arguments {
        Value::Null => Ok(json!({})),
        arguments @ Value::Object(_) => Ok(arguments),
        _ => Err("the arguments must be a JSON object".to_owned()),
    }
}
