//! Leads the front door to the agents that run here.

use std::collections::BTreeMap;

use mainstay_localnode::{Handle, pods::Facade};
use mainstay_resources::names;
use mainstay_server::front_door::{AgentDirectory, Found};

use crate::roles::agent::FACADE_PORT;

/// The agents of the local node.
#[derive(Debug)]
pub(super) struct Agents {
    node: Handle,
}

impl Agents {
    /// Those of `node`.
    pub(super) fn new(node: Handle) -> Self {
        Self { node }
    }
}

impl AgentDirectory for Agents {
    fn find(&self, namespace: &str, name: &str) -> Found {
        let labels: BTreeMap<String, String> = [
            (names::LABEL_INSTANCE.to_owned(), name.to_owned()),
            (names::LABEL_COMPONENT.to_owned(), names::COMPONENT_AGENT.to_owned()),
        ]
        .into();
        match self.node.pods.facade(namespace, &labels, FACADE_PORT) {
            Facade::Ready(router) => Found::Ready(router),
            Facade::NotReady { reason } => Found::NotReady { reason },
            Facade::Absent => Found::Absent,
        }
    }
}
