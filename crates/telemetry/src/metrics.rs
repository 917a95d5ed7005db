//! The metrics registry behind `/metrics`.

use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::registry::{Metric, Registry};

pub use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram};

/// The prefix of every metric's name.
const PREFIX: &str = "mainstay";

/// A registry that parts add their metrics to. Cloning shares it.
#[derive(Clone, Debug)]
pub struct Metrics {
    // A std mutex: held while a metric is added or the text is written, never across an await.
    registry: Arc<Mutex<Registry>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self {
            registry: Arc::new(Mutex::new(Registry::with_prefix(PREFIX))),
        }
    }

    /// Adds `metric` as `mainstay_NAME`. Counters are registered without the `_total` suffix, which is added when
    /// the text is written.
    pub fn register<M: Metric + Clone>(&self, name: &'static str, help: &'static str, metric: &M) {
        self.registry
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .register(name, help, metric.clone());
    }

    /// The OpenMetrics text (`application/openmetrics-text; version=1.0.0; charset=utf-8`).
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = prometheus_client::encoding::text::encode(&mut text, &registry) {
            tracing::error!(%error, "the metrics could not be written");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_counter_is_written_with_prefix_and_suffix() {
        let metrics = Metrics::new();
        let turns: Counter = Counter::default();
        metrics.register("turns", "Turns that ended", &turns);
        turns.inc();
        assert!(
            metrics.encode().contains("mainstay_turns_total 1"),
            "{}",
            metrics.encode()
        );
    }
}
