//! What a Pod's task knows of each container.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use tokio::time::Instant;

use crate::logs::RunLog;
use crate::node::back_off::BackOff;
use crate::node::container::Run;
use crate::node::engine::run::EngineIdentity;
use crate::node::image;
use crate::node::status::{Ended, State};
use crate::pods::DeclaredPort;

/// A container of the Pod.
pub(super) struct ContainerRuntime {
    pub(super) name: String,
    pub(super) image: String,
    /// Runs to its end before the next one starts.
    pub(super) init: bool,
    pub(super) state: State,
    pub(super) last: Option<Ended>,
    pub(super) restarts: i32,
    pub(super) back_off: BackOff,
    pub(super) run: Option<Run>,
    pub(super) log: Option<Arc<RunLog>>,
    /// When it may start; `None` while it runs and after it ended for good.
    pub(super) start: Option<Start>,
    pub(super) begun: bool,
    /// Runs again when it ends, whatever the Pod's policy says of its end.
    pub(super) run_again: bool,
    /// What the container engine calls it and its image.
    pub(super) identity: Option<EngineIdentity>,
}

impl ContainerRuntime {
    /// Ended well, as an init container does before the next one starts.
    pub(super) fn is_complete(&self) -> bool {
        matches!(&self.state, State::Terminated(ended) if ended.exit_code == 0)
    }

    /// Ends the present run for another one. Gives whether there was one.
    pub(super) fn start_anew(&mut self) -> bool {
        let Some(run) = &self.run else { return false };
        run.cancel();
        self.run_again = true;
        true
    }
}

/// Whether the container at `index` may start: every init container before it has completed.
pub(super) fn may_start(containers: &[ContainerRuntime], index: usize) -> bool {
    containers
        .iter()
        .take(index)
        .filter(|container| container.init)
        .all(ContainerRuntime::is_complete)
}

/// Whether a container that ended with `exit_code` runs again under the Pod's restart policy.
pub(super) fn restarts(policy: Option<&str>, init: bool, exit_code: i32) -> bool {
    match policy {
        Some("Never") => false,
        Some("OnFailure") => exit_code != 0,
        _ => !init || exit_code != 0,
    }
}

/// When a container may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    At(Instant),
    /// When something changes that it was missing.
    OnChange,
}

/// The containers of a Pod that this process has not run yet. If a former process ran them, they are restarted in place.
pub(super) fn containers_of(pod: &Pod) -> Vec<ContainerRuntime> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let statuses = pod.status.iter().flat_map(|status| {
        [&status.init_container_statuses, &status.container_statuses]
            .into_iter()
            .flatten()
            .flatten()
    });
    let policy = spec.restart_policy.as_deref();
    let inits = spec.init_containers.as_ref().map_or(0, Vec::len);
    let waits = if inits > 0 {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    image::containers(spec)
        .enumerate()
        .map(|(index, container)| {
            let init = index < inits;
            let is_final = |ended: &Ended| !restarts(policy, init, ended.exit_code);
            let before = statuses.clone().find(|status| status.name == container.name);
            let state = before.and_then(|status| status.state.as_ref());
            let ran = state.and_then(|state| state.running.as_ref());
            let lost = ran.map(|running| Ended {
                exit_code: 255,
                reason: "Unknown".to_owned(),
                message: Some("the process that ran it ended".to_owned()),
                started_at: running.started_at.as_ref().map(|time| time.0),
                finished_at: None,
            });
            let ended = state.and_then(|state| state.terminated.as_ref()).map(ended_of);
            let last = before
                .and_then(|status| status.last_state.as_ref()?.terminated.as_ref())
                .map(ended_of);
            // A lost run of a Pod that never restarts counts as a failure.
            let final_state = ended.clone().or_else(|| lost.clone()).filter(is_final);
            ContainerRuntime {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                init,
                start: final_state.is_none().then(|| Start::At(Instant::now())),
                state: final_state.map_or_else(
                    || State::Waiting {
                        reason: waits.to_owned(),
                        message: None,
                    },
                    State::Terminated,
                ),
                begun: lost.is_some() || last.is_some() || ended.is_some(),
                last: lost.or(ended).or(last),
                restarts: before.map_or(0, |status| status.restart_count),
                back_off: BackOff::default(),
                run: None,
                log: None,
                run_again: false,
                identity: None,
            }
        })
        .collect()
}

fn ended_of(terminated: &ContainerStateTerminated) -> Ended {
    Ended {
        exit_code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone(),
        started_at: terminated.started_at.as_ref().map(|time| time.0),
        finished_at: terminated.finished_at.as_ref().map(|time| time.0),
    }
}

pub(super) fn declared_ports(pod: &Pod) -> Vec<DeclaredPort> {
    let ports = pod.spec.iter().flat_map(image::containers).flat_map(|container| {
        container
            .ports
            .iter()
            .flatten()
            .map(move |port| (container, port))
    });
    ports
        .filter_map(|(container, port)| {
            let number = u16::try_from(port.container_port).ok()?;
            let name = port.name.clone().unwrap_or_else(|| number.to_string());
            Some(DeclaredPort {
                container: container.name.clone(),
                name,
                number,
            })
        })
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn runtime(policy: &str, state: Value, last: Value) -> ContainerRuntime {
        let status = json!({
            "name": "c", "image": "mainstay", "imageID": "", "ready": false, "restartCount": 3,
            "state": state, "lastState": last,
        });
        let pod = serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "restartPolicy": policy, "containers": [{ "name": "c", "image": "mainstay" }] },
            "status": { "containerStatuses": [status] },
        }));
        containers_of(&pod.unwrap()).remove(0)
    }

    fn ended(exit_code: i32) -> Value {
        json!({ "terminated": { "exitCode": exit_code } })
    }

    #[tokio::test]
    async fn what_a_former_process_ran_starts_again_unless_its_end_counts() {
        let running = json!({ "running": {} });
        for (policy, state, starts) in [
            ("Always", running.clone(), true),
            ("Always", ended(0), true),
            ("OnFailure", running.clone(), true),
            ("OnFailure", ended(1), true),
            ("OnFailure", ended(0), false),
            ("Never", running.clone(), false),
            ("Never", ended(1), false),
            ("Never", json!({ "waiting": {} }), true),
        ] {
            let found = runtime(policy, state.clone(), json!({}));
            assert_eq!(found.start.is_some(), starts, "{policy} {state}");
            assert_eq!(found.restarts, 3);
        }
        // An init container that completed does not run again, whatever the Pod's policy.
        assert!(!restarts(Some("Always"), true, 0) && restarts(Some("Always"), true, 1));
        assert!(runtime("Always", running, json!({})).begun);
        assert!(!runtime("Always", json!({ "waiting": {} }), json!({})).begun);
        assert!(runtime("Always", json!({ "waiting": {} }), ended(1)).begun);
    }
}
