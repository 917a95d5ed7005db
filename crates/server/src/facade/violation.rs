//! What a client did against the WebSocket protocol: which code ends the connection (RFC 6455, 7.4.1), and why.

use axum::extract::ws::close_code;
use mainstay_telemetry::text::escape;
use tungstenite::error::{Error, ProtocolError};

/// Why a connection cannot be read any further, where the client can mend it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// For the error frame.
    pub(super) text: String,
    /// The close code and its reason.
    pub(super) goodbye: (u16, &'static str),
}

/// What the socket's error says about the client; `None` where the connection just broke off. `limit` is the largest
/// message in bytes.
pub(super) fn of(error: axum::Error, limit: usize) -> Option<Violation> {
    let error = error.into_inner().downcast::<Error>().ok()?;
    match *error {
        Error::Capacity(_) => Some(Violation {
            text: format!("the message is too large; messages may have up to {limit} bytes"),
            goodbye: (close_code::SIZE, "the message is too large"),
        }),
        Error::Utf8(_) => Some(Violation {
            text: "the text of the frame is not UTF-8".to_owned(),
            goodbye: (close_code::INVALID, "the text of the frame is not UTF-8"),
        }),
        Error::Protocol(
            ProtocolError::ResetWithoutClosingHandshake
            | ProtocolError::ReceivedAfterClosing
            | ProtocolError::SendAfterClosing,
        ) => None,
        Error::Protocol(cause) => Some(Violation {
            text: format!(
                "the frame breaks the WebSocket protocol: {}",
                escape(&cause.to_string(), 128)
            ),
            goodbye: (close_code::PROTOCOL, "the frame breaks the WebSocket protocol"),
        }),
        _ => None,
    }
}
