//! The status of a Pod, as a pure function of its containers' states.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, Pod, PodCondition, PodIP, PodStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::container::Exit;

/// The address of every Pod here: they share this machine's loopback.
const ADDRESS: &str = "127.0.0.1";

/// How a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not running, and why.
    Waiting {
        /// For example `ContainerCreating` or `CrashLoopBackOff`.
        reason: &'static str,
        /// In words; may be empty.
        message: String,
    },
    /// Running.
    Running {
        /// Since when.
        since: Timestamp,
        /// `None` when it can serve, else why it cannot.
        waits: Option<String>,
    },
    /// Ended and not to be restarted.
    Ended(Ended),
}

/// A run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// How.
    pub(crate) exit: Exit,
    /// When it began.
    pub(crate) started: Timestamp,
    /// When it ended.
    pub(crate) finished: Timestamp,
}

/// What there is to say about a container.
#[derive(Clone, Debug)]
pub(crate) struct View<'a> {
    pub(crate) container: &'a Container,
    pub(crate) state: &'a State,
    pub(crate) last: Option<&'a Ended>,
    pub(crate) restarts: i32,
}

/// Whether the Pod can serve, and if not, what it waits for.
pub(crate) fn readiness(containers: &[View<'_>]) -> Result<(), String> {
    for view in containers {
        let name = &view.container.name;
        match view.state {
            State::Running { waits: None, .. } => {}
            State::Running { waits: Some(waits), .. } => return Err(format!("container {name} is not ready: {waits}")),
            State::Waiting { reason, message } if message.is_empty() => {
                return Err(format!("container {name} waits: {reason}"));
            }
            State::Waiting { reason, message } => return Err(format!("container {name} waits ({reason}): {message}")),
            State::Ended(_) => return Err(format!("container {name} has ended")),
        }
    }
    Ok(())
}

/// The status that `pod` should have at `now`.
pub(crate) fn status(pod: &Pod, init: &[View<'_>], containers: &[View<'_>], now: Timestamp) -> PodStatus {
    let former = pod.status.clone().unwrap_or_default();
    let initialized = init.iter().all(|view| matches!(view.state, State::Ended(ended) if ended.exit.code == 0));
    let phase = phase(init, containers);
    let ended = matches!(phase, "Succeeded" | "Failed");
    let ready = if initialized { readiness(containers) } else { Err("init containers have not completed".to_owned()) };
    let unready = match (&ready, ended) {
        (_, true) => Some(("PodCompleted", String::new())),
        (Err(waits), false) => Some((blocking_reason(containers), waits.clone())),
        (Ok(()), false) => None,
    };
    let condition = |type_: &str, problem: Option<(&str, String)>| {
        let status = if problem.is_none() { "True" } else { "False" };
        let known = former.conditions.iter().flatten().find(|known| known.type_ == type_ && known.status == status);
        let (reason, message) = problem.map_or((None, None), |(reason, message)| {
            (Some(reason.to_owned()), Some(message).filter(|message| !message.is_empty()))
        });
        PodCondition {
            last_transition_time: known.and_then(|known| known.last_transition_time.clone()).or(Some(Time(now))),
            message,
            reason,
            status: status.to_owned(),
            type_: type_.to_owned(),
            ..PodCondition::default()
        }
    };
    let not_initialized = (!initialized).then(|| ("ContainersNotInitialized", "init containers have not completed".to_owned()));
    PodStatus {
        conditions: Some(vec![
            condition("Initialized", not_initialized),
            condition("Ready", unready.clone()),
            condition("ContainersReady", unready),
            condition("PodScheduled", None),
        ]),
        container_statuses: Some(containers.iter().map(container_status).collect()),
        host_ip: Some(ADDRESS.to_owned()),
        init_container_statuses: Some(init.iter().map(container_status).collect::<Vec<_>>())
            .filter(|statuses| !statuses.is_empty()),
        phase: Some(phase.to_owned()),
        pod_ip: Some(ADDRESS.to_owned()),
        pod_ips: Some(vec![PodIP { ip: ADDRESS.to_owned() }]),
        start_time: former.start_time.clone().or(Some(Time(now))),
        qos_class: former.qos_class.clone(),
        ..PodStatus::default()
    }
}

/// The reason of a false `Ready`: the containers' own where one says more than that it is not ready.
fn blocking_reason(containers: &[View<'_>]) -> &'static str {
    containers
        .iter()
        .find_map(|view| match view.state {
            State::Waiting { reason: "NoContainerEngine", .. } => Some("NoContainerEngine"),
            _ => None,
        })
        .unwrap_or("ContainersNotReady")
}

fn phase(init: &[View<'_>], containers: &[View<'_>]) -> &'static str {
    let failed = |view: &View<'_>| matches!(view.state, State::Ended(ended) if ended.exit.code != 0);
    let ended = |view: &View<'_>| matches!(view.state, State::Ended(_));
    if init.iter().any(failed) {
        return "Failed";
    }
    if init.iter().any(|view| !ended(view)) {
        return "Pending";
    }
    if !containers.is_empty() && containers.iter().all(ended) {
        return if containers.iter().any(failed) { "Failed" } else { "Succeeded" };
    }
    // One that waits for its next run has run before: the Pod goes on.
    let began = |view: &View<'_>| matches!(view.state, State::Running { .. } | State::Ended(_)) || view.restarts > 0;
    if containers.iter().any(began) { "Running" } else { "Pending" }
}

fn container_status(view: &View<'_>) -> ContainerStatus {
    let state = match view.state {
        State::Waiting { reason, message } => ContainerState {
            waiting: Some(ContainerStateWaiting {
                reason: Some((*reason).to_owned()),
                message: Some(message.clone()).filter(|message| !message.is_empty()),
            }),
            ..ContainerState::default()
        },
        State::Running { since, .. } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ContainerState::default()
        },
        State::Ended(ended) => terminated(ended),
    };
    ContainerStatus {
        image: view.container.image.clone().unwrap_or_default(),
        image_id: String::new(),
        last_state: view.last.map(terminated),
        name: view.container.name.clone(),
        ready: matches!(view.state, State::Running { waits: None, .. })
            || matches!(view.state, State::Ended(ended) if ended.exit.code == 0),
        restart_count: view.restarts,
        started: Some(matches!(view.state, State::Running { .. })),
        state: Some(state),
        ..ContainerStatus::default()
    }
}

fn terminated(ended: &Ended) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: ended.exit.code,
            finished_at: Some(Time(ended.finished)),
            message: Some(ended.exit.message.clone()).filter(|message| !message.is_empty()),
            reason: Some(ended.exit.reason.to_owned()),
            started_at: Some(Time(ended.started)),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn container() -> Container {
        Container { name: "agent".to_owned(), image: Some("mainstay".to_owned()), ..Container::default() }
    }

    fn status_of(pod: &Pod, state: &State, restarts: i32, now: i64) -> PodStatus {
        let container = container();
        let view = View { container: &container, state, last: None, restarts };
        status(pod, &[], &[view], Timestamp::from_second(now).unwrap())
    }

    fn condition<'a>(status: &'a PodStatus, type_: &str) -> &'a PodCondition {
        status.conditions.as_ref().unwrap().iter().find(|condition| condition.type_ == type_).unwrap()
    }

    fn ended(code: i32) -> State {
        State::Ended(Ended {
            exit: Exit { code, reason: "Error", message: "no".to_owned() },
            started: Timestamp::UNIX_EPOCH,
            finished: Timestamp::UNIX_EPOCH,
        })
    }

    #[test]
    fn ka_050_a_pod_is_ready_when_its_role_says_so() {
        let pod = Pod::default();
        let waiting = State::Running { since: Timestamp::UNIX_EPOCH, waits: Some("starting".to_owned()) };
        let first = status_of(&pod, &waiting, 0, 1);
        assert_eq!(first.phase.as_deref(), Some("Running"));
        assert_eq!(condition(&first, "Ready").status, "False");
        assert_eq!(condition(&first, "Ready").message.as_deref(), Some("container agent is not ready: starting"));
        let pod = Pod { status: Some(first), ..Pod::default() };
        let ready = status_of(&pod, &State::Running { since: Timestamp::UNIX_EPOCH, waits: None }, 0, 2);
        assert_eq!(condition(&ready, "Ready").status, "True");
        assert_eq!(condition(&ready, "Ready").last_transition_time.as_ref().unwrap().0.as_second(), 2);
        assert_eq!(condition(&ready, "PodScheduled").last_transition_time.as_ref().unwrap().0.as_second(), 1);
    }

    #[test]
    fn ka_051_a_foreign_image_leaves_the_pod_pending_and_says_why() {
        let waiting = State::Waiting { reason: "NoContainerEngine", message: "no engine".to_owned() };
        let status = status_of(&Pod::default(), &waiting, 0, 1);
        assert_eq!(status.phase.as_deref(), Some("Pending"));
        assert_eq!(condition(&status, "ContainersReady").reason.as_deref(), Some("NoContainerEngine"));
    }

    #[test]
    fn ka_051_ends_and_restarts_are_told_apart() {
        assert_eq!(status_of(&Pod::default(), &ended(0), 0, 1).phase.as_deref(), Some("Succeeded"));
        assert_eq!(status_of(&Pod::default(), &ended(1), 0, 1).phase.as_deref(), Some("Failed"));
        let backing_off = State::Waiting { reason: "CrashLoopBackOff", message: String::new() };
        let status = status_of(&Pod::default(), &backing_off, 3, 1);
        assert_eq!(status.phase.as_deref(), Some("Running"));
        assert_eq!(status.container_statuses.unwrap()[0].restart_count, 3);
    }
}
