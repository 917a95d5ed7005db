//! What the controllers are told.

use std::{collections::BTreeMap, fmt, sync::Arc};

use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_workload::{Connector, ServiceResolver};

/// What the controllers are told. Nothing in it changes while they run.
#[derive(Clone)]
pub struct ControllersOptions {
    /// Image of an agent's pods.
    pub image: String,
    /// `host:port` of the front door that serves agents, where agents run inside this process. Without it an agent is
    /// reached at its Service (OM-155).
    pub service_endpoint: Option<String>,
    /// Whether there is a policy engine. Without one the ToolPolicy kind is not looked at (OM-012, OM-483).
    pub policy_engine: bool,
    /// Reaches providers for their health check (OM-349).
    pub connector: Connector,
    /// Knows the Services whose endpoints are probed (OM-329).
    pub resolver: Arc<dyn ServiceResolver>,
    /// Variables that agents will see, as far as the base addresses of providers depend on them.
    pub environment: BTreeMap<String, String>,
    /// The time of conditions, statuses and Events.
    pub clock: SharedClock,
    /// Names of Events.
    pub random: SharedRandom,
}

impl ControllersOptions {
    /// Image of the product's own roles.
    pub const DEFAULT_IMAGE: &'static str = "mainstay";
}

impl fmt::Debug for ControllersOptions {
    // The environment may hold keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ControllersOptions")
            .field("image", &self.image)
            .field("service_endpoint", &self.service_endpoint)
            .field("policy_engine", &self.policy_engine)
            .finish_non_exhaustive()
    }
}
