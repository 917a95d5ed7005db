//! The one envelope of everything that happens in a session.
//!
//! The same JSON stands in the store, in `event` frames of the WebSocket, in `--json` output and in the
//! dashboard. `seq` rises by one per session; `model.delta` has none, because it is never stored. A reader
//! ignores types it does not know: new ones may come.

mod payload;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use payload::{
    BudgetAlerted, BudgetExceeded, CallOutcome, Caller, ClientToolRequested, Message, ModelCooled,
    ModelDelta, ModelDone, ModelFailed, ModelFailedOver, ModelRestarted, ModelStarted, ModelWaiting,
    PackReference, Payload, PolicyDecided, RecordedCall, ToolFinished, ToolStarted, Totals, TurnCancelled,
    TurnDone, TurnFailed, TurnStarted, UsageRecord, UsedGuardrail,
};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Position in the session, from 1. Absent for `model.delta`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The session.
    pub session: String,
    /// The turn, where the event belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// When it happened.
    pub time: Timestamp,
    /// What happened, `tool.started` for example.
    #[serde(rename = "type")]
    pub kind: String,
    /// Facts that go with the type.
    pub data: Value,
}

impl Event {
    /// An event that is not stored (yet).
    pub fn new(session: &str, turn: &str, time: Timestamp, payload: &Payload) -> Self {
        let (kind, data) = payload.to_parts();
        Self {
            seq: None,
            session: session.to_owned(),
            turn: Some(turn.to_owned()),
            time,
            kind: kind.to_owned(),
            data,
        }
    }

    /// Whether the turn is over with this event.
    pub fn ends_turn(&self) -> bool {
        payload::ends_turn(&self.kind)
    }

    /// The facts as a type; `None` for a type this program does not know, and for data it cannot read.
    pub fn payload(&self) -> Option<Payload> {
        Payload::from_parts(&self.kind, &self.data)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_envelope_is_that_of_the_contract() {
        let time: Timestamp = "2026-05-04T03:02:01.5Z".parse().unwrap();
        let payload = Payload::ModelDelta(ModelDelta {
            attempt: 1,
            offset: 4,
            text: "hi".to_owned(),
        });
        let mut event = Event::new("s", "t", time, &payload);
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({
                "session": "s", "turn": "t", "time": "2026-05-04T03:02:01.5Z", "type": "model.delta",
                "data": {"attempt": 1, "offset": 4, "text": "hi"}
            })
        );
        event.seq = Some(12);
        let text = serde_json::to_string(&event).unwrap();
        assert!(
            text.starts_with("{\"seq\":12,\"session\":\"s\",\"turn\":\"t\",\"time\":"),
            "{text}"
        );
        let back: Event = serde_json::from_str(&text).unwrap();
        assert_eq!(back, event);
        assert_eq!(back.payload(), Some(payload));
    }

    #[test]
    fn an_unknown_type_is_read_and_ignored() {
        let event: Event = serde_json::from_value(json!({
            "seq": 1, "session": "s", "time": "2026-05-04T03:02:01Z", "type": "weather", "data": {"rain": true}
        }))
        .unwrap();
        assert_eq!(event.turn, None);
        assert_eq!(event.payload(), None);
    }
}
