//! EngineMetrics of all engines of a process.

use mainstay_telemetry::metrics::{Counter, Family, Metrics};

use crate::event::CallOutcome;

type ByOutcome = Family<Vec<(&'static str, &'static str)>, Counter>;

/// Counters that clones share. Label values are fixed words, never names of users or tools.
#[derive(Debug, Clone, Default)]
pub struct EngineMetrics {
    turns: ByOutcome,
    tool_calls: ByOutcome,
    model_calls: ByOutcome,
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
        metrics.register(
            "model_calls",
            "Model calls that ended, retries not counted, by whose service it is and how",
            &counters.model_calls,
        );
        counters
    }

    /// `service` is the model's own word for itself ([`mainstay_llm::Model::service`]).
    pub(crate) fn model_call_ended(&self, service: &'static str, outcome: &'static str) {
        let labels = vec![("service", service), ("outcome", outcome)];
        self.model_calls.get_or_create(&labels).inc();
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
        counters.model_call_ended("azure.ai.openai", "completed");
        let text = metrics.encode();
        assert!(
            text.contains("mainstay_turns_total{outcome=\"done\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("mainstay_tool_calls_total{outcome=\"denied\"} 1"),
            "{text}"
        );
        // OR-244: telemetry tells Azure's service from OpenAI's own.
        assert!(
            text.contains("mainstay_model_calls_total{service=\"azure.ai.openai\",outcome=\"completed\"} 1"),
            "{text}"
        );
    }
}
