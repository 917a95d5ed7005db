//! What runs as a Pod of this binary's own image.

use std::sync::Arc;

use mainstay_telemetry::clock::SharedClock;
use mainstay_workload::{Role, Roles};

pub(crate) mod agent;
pub(crate) mod demo;
mod faults;
pub(crate) mod mock_model;
pub(crate) mod orders;
pub(crate) mod probe;

/// The roles that share nothing with the server, so that a process of their own is as good to them as a task in it.
pub(crate) fn without_shared_state(clock: &SharedClock) -> Roles {
    let mock_model = mock_model::MockModelRole {
        clock: Arc::clone(clock),
    };
    [
        ("demo".to_owned(), Arc::new(demo::Demo) as Arc<dyn Role>),
        ("mock-model".to_owned(), Arc::new(mock_model)),
        ("probe".to_owned(), Arc::new(probe::Probe)),
    ]
    .into()
}
