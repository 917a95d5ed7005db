//! Waiting for the connected client to run a tool (OM-432…OM-435).

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use crate::hub::ClientReply;
use crate::limits::Limits;
use crate::tool::ToolAnswer;

/// Waits for the client: an acknowledgement within seconds, then a result. A result counts as its own
/// acknowledgement.
pub(super) async fn wait(mut replies: mpsc::Receiver<ClientReply>, limits: &Limits) -> ToolAnswer {
    let begun = Instant::now();
    let end = begun + limits.client_tool_timeout;
    let mut until = end.min(begun + limits.client_tool_acknowledgement);
    loop {
        let waited = until - begun;
        match timeout_at(until, replies.recv()).await {
            Ok(Some(ClientReply::Acknowledged)) => until = end,
            Ok(Some(ClientReply::Rejected { reason })) => {
                return failed(format!("the client rejected the call: {reason}"));
            }
            Ok(Some(ClientReply::Finished { result: Ok(value) })) => {
                let content = match value {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                return ToolAnswer {
                    content,
                    is_error: false,
                    attempts: 1,
                    ..ToolAnswer::default()
                };
            }
            Ok(Some(ClientReply::Finished { result: Err(reason) })) => {
                return failed(format!("the client reported an error: {reason}"));
            }
            Ok(None) => return failed("the client's connection was given up".to_owned()),
            Err(_) if until < end => {
                return failed(format!(
                    "the client did not acknowledge the call within {} s",
                    waited.as_secs()
                ));
            }
            Err(_) => return failed(format!("the client did not answer within {} s", waited.as_secs())),
        }
    }
}

fn failed(content: String) -> ToolAnswer {
    ToolAnswer {
        content,
        is_error: true,
        attempts: 1,
        ..ToolAnswer::default()
    }
}
