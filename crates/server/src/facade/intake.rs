//! Reading what a client sends: rates, and messages as the engine takes them.

use tokio::time::Instant;

use super::FacadeLimits;
use super::frame::{ErrorCode, IncomingMessage};

/// A token bucket over the messages of one connection (OM-527).
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled: Instant,
}

impl Rate {
    pub(super) fn new(limits: &FacadeLimits) -> Self {
        let burst = f64::from(limits.message_burst);
        Self {
            per_second: f64::from(limits.messages_per_second),
            burst,
            tokens: burst,
            filled: Instant::now(),
        }
    }

    /// Whether one more message is allowed now.
    pub(super) fn admit(&mut self) -> bool {
        let now = Instant::now();
        let earned = now.duration_since(self.filled).as_secs_f64() * self.per_second;
        self.filled = now;
        self.tokens = (self.tokens + earned).min(self.burst);
        let admitted = self.tokens >= 1.0;
        if admitted {
            self.tokens -= 1.0;
        }
        admitted
    }
}

/// The text of a message: its text parts where it has parts, else its content (OM-508).
///
/// # Errors
///
/// Code and text of the error frame.
pub(super) fn text_of(message: &IncomingMessage) -> Result<String, (ErrorCode, String)> {
    let invalid = |text: &str| Err((ErrorCode::InvalidMessage, text.to_owned()));
    let text = match &message.parts {
        Some(parts) => {
            let mut texts = Vec::with_capacity(parts.len());
            for part in parts {
                match (part.kind.as_str(), &part.text) {
                    ("text", Some(text)) => texts.push(text.as_str()),
                    ("text", None) => return invalid("a part of type `text` needs `text`"),
                    ("image" | "audio" | "video" | "file", _) => {
                        return Err((
                            ErrorCode::MediaNotEnabled,
                            format!("parts of type `{}` are not enabled for this agent", part.kind),
                        ));
                    }
                    _ => return invalid("a part's `type` is text, image, audio, video or file"),
                }
            }
            texts.join("\n")
        }
        None => message.content.clone().unwrap_or_default(),
    };
    if text.is_empty() {
        invalid("the message has neither `content` nor text `parts`")
    } else {
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::frame::Part;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn om_527_a_connection_may_send_a_burst_and_then_fifty_messages_a_second() {
        let mut rate = Rate::new(&FacadeLimits::default());
        assert_eq!((0..200).filter(|_| rate.admit()).count(), 100);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!((0..200).filter(|_| rate.admit()).count(), 50);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!((0..200).filter(|_| rate.admit()).count(), 100);
    }

    #[test]
    fn om_508_parts_win_over_content_and_media_are_refused_by_name() {
        let part = |kind: &str, text: Option<&str>| Part {
            kind: kind.to_owned(),
            text: text.map(str::to_owned),
        };
        let message = |parts| IncomingMessage {
            content: Some("content".to_owned()),
            parts,
            ..IncomingMessage::default()
        };
        assert_eq!(text_of(&message(None)), Ok("content".to_owned()));
        let parts = vec![part("text", Some("a")), part("text", Some("b"))];
        assert_eq!(text_of(&message(Some(parts))), Ok("a\nb".to_owned()));
        let code = |parts| match text_of(&message(Some(parts))) {
            Err((code, _)) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(vec![part("image", None)]), ErrorCode::MediaNotEnabled);
        assert_eq!(code(vec![part("text", None)]), ErrorCode::InvalidMessage);
        assert_eq!(code(vec![part("hologram", None)]), ErrorCode::InvalidMessage);
        assert_eq!(code(vec![]), ErrorCode::InvalidMessage);
    }
}
