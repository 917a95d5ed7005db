//! Leads the front door to the agents that run here.

use std::collections::BTreeMap;

use mainstay_localnode::{Handle, pods::Facade};
use mainstay_resources::names;
use mainstay_server::front_door::{AgentDirectory, Lookup};

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
    fn find(&self, namespace: &str, name: &str) -> Lookup {
        let labels: BTreeMap<String, String> = [
            (names::INSTANCE_LABEL.to_owned(), name.to_owned()),
            (names::COMPONENT_LABEL.to_owned(), "agent".to_owned()),
        ]
        .into();
        match self.node.pods.facade(namespace, &labels, FACADE_PORT) {
            Facade::Ready(router) => Lookup::Ready(router),
            Facade::NotReady { reason } => Lookup::NotReady { reason },
            Facade::Absent => Lookup::Absent,
        }
    }
}
