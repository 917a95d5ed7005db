//! The server's figures. Requirement KA-003.

use mainstay_telemetry::metrics::{Counter, Family, Gauge, Metrics};

/// The labels of a counted request: verb, resource and status code.
type Labels = [(&'static str, String); 3];

/// What is counted.
pub(crate) struct Measures {
    requests: Family<Labels, Counter>,
    in_flight: Gauge,
}

impl Measures {
    pub(crate) fn new(metrics: &Metrics) -> Self {
        let measures = Self {
            requests: Family::default(),
            in_flight: Gauge::default(),
        };
        // `prometheus-client` adds `_total` to a counter's name itself.
        metrics.register(
            "apiserver_request",
            "Requests answered, by verb, resource and code",
            &measures.requests,
        );
        metrics.register(
            "apiserver_current_inflight_requests",
            "Requests being worked on",
            &measures.in_flight,
        );
        measures
    }

    /// Counts an answer. `resource` must be the name of a served resource, or empty: a label made of what a client
    /// sends would let it grow the table without bound.
    pub(crate) fn answered(&self, verb: &str, resource: &str, code: u16) {
        let labels = [
            ("verb", verb.to_owned()),
            ("resource", resource.to_owned()),
            ("code", code.to_string()),
        ];
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request as being worked on until the guard goes.
    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }
}

/// One request that is being worked on.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
