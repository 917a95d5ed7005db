//! EngineMetrics of all engines of a process.

use mainstay_telemetry::metrics::{Counter, Family, Metrics};

use crate::event::CallOutcome;

type ByOutcome = Family<Vec<(&'static str, &'static str)>, Counter>;

/// Counters that clones share. Label values are fixed words, never names of users or tools.
#[derive(Debug, Clone, Default)]
pub struct EngineMetrics {
    turns: ByOutcome,
    tool_calls: ByOutcome,
}

impl EngineMetrics {
    /// Counters that `/metrics` shows.
    pub fn register(metrics: &Metrics) -> Self {
        let counters = Self::default();
        metrics.register("turns", "Turns that ended, by how", &counters.turns);
        metrics.register(
            "tool_calls",
            "Tool calls that ended, by how",
            &counters.tool_calls,
        );
        counters
    }

    /// `kind` is the type of the event that ended the turn.
    pub(crate) fn turn_ended(&self, kind: &'static str) {
        let outcome = kind.strip_prefix("turn.").unwrap_or(kind);
        self.turns.get_or_create(&vec![("outcome", outcome)]).inc();
    }

    pub(crate) fn call_ended(&self, outcome: CallOutcome) {
        let outcome = match outcome {
            CallOutcome::Succeeded => "succeeded",
            CallOutcome::Failed => "failed",
            CallOutcome::Denied => "denied",
            CallOutcome::Refused => "refused",
            CallOutcome::Unknown => "unknown",
        };
        self.tool_calls.get_or_create(&vec![("outcome", outcome)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_counted_by_how() {
        let metrics = Metrics::new();
        let counters = EngineMetrics::register(&metrics);
        counters.turn_ended("turn.done");
        counters.call_ended(CallOutcome::Denied);
        let text = metrics.encode();
        assert!(
            text.contains("mainstay_turns_total{outcome=\"done\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("mainstay_tool_calls_total{outcome=\"denied\"} 1"),
            "{text}"
        );
    }
}
