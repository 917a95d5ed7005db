//! The frames of OM D.2: JSON text, snake_case, each with its `type` (OM-506).

use std::sync::Arc;

use mainstay_agent::Event;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the protocol (OM-507).
const PROTOCOL_VERSION: u32 = 1;

/// What a client may send.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ClientFrame {
    /// OM-508.
    Message(IncomingMessage),
    /// OM-509.
    ToolResult { tool_result: ToolResult },
    /// OM-510.
    ToolCallAck { tool_call_ack: ToolCallAck },
    /// OM-511.
    ToolCallNack { tool_call_nack: ToolCallNack },
    /// OM-512.
    UploadRequest,
    /// OM-513.
    Hangup,
    /// Extension: ends the turn that runs.
    Cancel,
}

/// OM-508, with our extension `client_key`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct IncomingMessage {
    pub(super) content: Option<String>,
    pub(super) parts: Option<Vec<Part>>,
    pub(super) session_id: Option<String>,
    #[serde(default)]
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) client_key: Option<String>,
}

/// OM-524.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Part {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
}

/// OM-509. Presence decides between result and error: a `null` result is a result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ToolResult {
    pub(super) call_id: String,
    #[serde(default, deserialize_with = "present")]
    pub(super) result: Option<Value>,
    pub(super) error: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// OM-510.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ToolCallAck {
    pub(super) call_id: String,
}

/// OM-511.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct ToolCallNack {
    pub(super) call_id: String,
    #[serde(default)]
    pub(super) reason: String,
}

/// What the server sends, without the fields that every frame has.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ServerFrame {
    /// OM-507.
    Connected { connected: Connected },
    /// OM-514.
    Chunk { content: String },
    /// OM-515.
    Done { content: String },
    /// OM-516.
    ToolCall { tool_call: ToolCall },
    /// OM-518.
    Error { error: ErrorBody },
    /// Extension, with `?events=1`.
    Event {
        #[serde(serialize_with = "shared")]
        event: Arc<Event>,
    },
}

/// An event is shared by all connections of its session.
fn shared<S: serde::Serializer>(event: &Arc<Event>, serializer: S) -> Result<S::Ok, S::Error> {
    event.as_ref().serialize(serializer)
}

impl ServerFrame {
    pub(super) fn error(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::Error {
            error: ErrorBody {
                code,
                message: message.into(),
                details: None,
            },
        }
    }
}

/// OM-507.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Connected {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) capabilities: Option<Capabilities>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) resumed: bool,
}

/// OM-507.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Capabilities {
    binary_frames: bool,
    max_payload_size: usize,
    protocol_version: u32,
}

impl Capabilities {
    pub(super) fn new(max_payload_size: usize) -> Self {
        // Media frames are parsed by nobody here, so binary frames are not announced as usable.
        Self {
            binary_frames: false,
            max_payload_size,
            protocol_version: PROTOCOL_VERSION,
        }
    }
}

/// OM-516.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) consent_message: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) categories: Vec<String>,
}

/// OM-518.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ErrorBody {
    pub(super) code: ErrorCode,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Value>,
}

/// Those of OM-525 that this facade uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum ErrorCode {
    /// A frame that cannot be understood.
    InvalidMessage,
    /// The session is definitely gone (OM-528).
    SessionExpired,
    /// A failure on this side, of a provider for example.
    InternalError,
    /// The agent is about to end.
    AgentUnavailable,
    /// A reply to a tool call that does not wait for one.
    ToolFailed,
    /// Media are not built.
    MediaNotEnabled,
    /// Too many messages, or one too many at once (OM-526, OM-527).
    RateLimited,
}

/// A frame as it is written (OM-506).
#[derive(Debug, Serialize)]
struct Envelope<'a> {
    #[serde(flatten)]
    frame: &'a ServerFrame,
    session_id: &'a str,
    timestamp: String,
}

/// The text of a frame.
pub(super) fn write(frame: &ServerFrame, session_id: &str, now: jiff::Timestamp) -> Option<String> {
    let envelope = Envelope {
        frame,
        session_id,
        timestamp: now.to_string(),
    };
    serde_json::to_string(&envelope)
        .inspect_err(|error| tracing::error!(%error, "a frame cannot be written"))
        .ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn om_506_and_om_507_every_frame_has_type_session_and_time() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let connected = Connected {
            capabilities: Some(Capabilities::new(16 << 20)),
            resumed: true,
        };
        let text = write(&ServerFrame::Connected { connected }, "s", now).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            json!({
                "type": "connected", "session_id": "s", "timestamp": "2026-01-02T03:04:05Z",
                "connected": {
                    "resumed": true,
                    "capabilities": {"binary_frames": false, "max_payload_size": 16_777_216, "protocol_version": 1}
                }
            })
        );
        let text = write(&ServerFrame::error(ErrorCode::InvalidMessage, "no"), "s", now).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            value["error"],
            json!({"code": "INVALID_MESSAGE", "message": "no"})
        );
    }

    #[test]
    fn om_508_to_om_513_client_frames_are_read_and_unknown_fields_are_ignored() {
        let read = |value: Value| serde_json::from_value::<ClientFrame>(value);
        let message = json!({
            "type": "message", "content": "hi", "session_id": "s", "metadata": {"a": 1}, "client_key": "k",
            "consent_grants": ["x"], "session_consent_grants": [], "something": "new"
        });
        match read(message).unwrap() {
            ClientFrame::Message(message) => {
                assert_eq!(message.content.as_deref(), Some("hi"));
                assert_eq!(message.client_key.as_deref(), Some("k"));
            }
            other => panic!("{other:?}"),
        }
        match read(json!({"type": "tool_result", "tool_result": {"call_id": "c", "result": null}})).unwrap() {
            ClientFrame::ToolResult { tool_result } => assert_eq!(tool_result.result, Some(Value::Null)),
            other => panic!("{other:?}"),
        }
        assert!(read(json!({"type": "hangup"})).is_ok());
        assert!(read(json!({"type": "upload_request", "upload_request": {"filename": "a"}})).is_ok());
        for broken in [
            json!({"type": "dance"}),
            json!({"content": "x"}),
            json!([1]),
            json!({"type": "tool_result"}),
        ] {
            assert!(read(broken.clone()).is_err(), "{broken}");
        }
    }
}
