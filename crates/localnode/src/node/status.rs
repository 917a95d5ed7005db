//! A Pod's status from the state of its containers: a pure function.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_workload::ReadinessState;
use serde_json::{Value, json};

use super::engine::run::EngineIdentity;
use super::environment::ADDRESS;
use super::image::Unrunnable;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) reason: String,
    pub(super) message: Option<String>,
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Option<Timestamp>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Waiting {
        reason: String,
        message: Option<String>,
    },
    Running {
        started_at: Timestamp,
        readiness: ReadinessState,
    },
    Terminated(Ended),
}

/// A container as its status shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerView<'a> {
    pub(super) name: &'a str,
    pub(super) image: &'a str,
    pub(super) init: bool,
    pub(super) state: &'a State,
    pub(super) last: Option<&'a Ended>,
    pub(super) restarts: i32,
    pub(super) identity: Option<&'a EngineIdentity>,
}

impl ContainerView<'_> {
    /// Serves, or for an init container: has completed.
    fn is_ready(&self) -> bool {
        match self.state {
            State::Running { readiness, .. } => !self.init && *readiness == ReadinessState::Ready,
            State::Terminated(ended) => self.init && ended.exit_code == 0,
            State::Waiting { .. } => false,
        }
    }

    /// Runs, or ran and will run again.
    fn has_begun(&self) -> bool {
        matches!(self.state, State::Running { .. }) || self.last.is_some()
    }
}

/// The status as a strategic merge patch: conditions of others are left alone, and what no longer holds is null.
pub(super) fn status(
    pod: &Pod,
    containers: &[ContainerView<'_>],
    blocked: Option<&Unrunnable>,
    now: Timestamp,
) -> Value {
    let before = pod.status.clone().unwrap_or_default();
    let conditions = before.conditions.clone().unwrap_or_default();
    let (inits, own): (Vec<ContainerView<'_>>, Vec<ContainerView<'_>>) =
        containers.iter().cloned().partition(|container| container.init);
    let not_ready = unready(&own);
    let incomplete = unready(&inits);
    let containers_ready = not_ready.is_empty() && !own.is_empty();
    let (reason, message) = match blocked {
        Some(blocked) => (Some(blocked.reason().to_owned()), Some(blocked.to_string())),
        None if containers_ready => (None, None),
        None => (
            Some("ContainersNotReady".to_owned()),
            Some(explain(containers, &not_ready)),
        ),
    };
    let gates_open = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten())
        .all(|gate| {
            conditions
                .iter()
                .any(|condition| condition.type_ == gate.condition_type && condition.status == "True")
        });
    let ready = containers_ready && gates_open;
    let (ready_reason, ready_message) = if containers_ready && !gates_open {
        (
            Some("ReadinessGatesNotReady".to_owned()),
            Some("a readiness gate is not open".to_owned()),
        )
    } else {
        (reason.clone(), message.clone())
    };
    let condition = |type_: &str, status: bool, reason: Option<String>, message: Option<String>| {
        json!({
            "type": type_,
            "status": if status { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastProbeTime": null,
            "lastTransitionTime": transition(&conditions, type_, status, now),
        })
    };
    let phase = phase(pod, &inits, &own);
    let (init_reason, init_message) = if incomplete.is_empty() {
        (None, None)
    } else {
        (
            Some("ContainersNotInitialized".to_owned()),
            Some(format!(
                "containers with incomplete status: [{}]",
                incomplete.join(" ")
            )),
        )
    };
    let mut status = json!({
        "phase": phase,
        "hostIP": ADDRESS,
        "podIP": ADDRESS,
        "podIPs": [{ "ip": ADDRESS }],
        "startTime": before.start_time.unwrap_or(Time(now)),
        "reason": null,
        "message": blocked.map(ToString::to_string),
        "conditions": [
            condition("PodScheduled", true, None, None),
            condition("Initialized", incomplete.is_empty(), init_reason, init_message),
            condition("ContainersReady", containers_ready, reason, message),
            condition("Ready", ready, ready_reason, ready_message),
        ],
        "containerStatuses": own.iter().map(container_status).collect::<Vec<_>>(),
    });
    if !inits.is_empty() {
        status["initContainerStatuses"] = inits.iter().map(container_status).collect();
    }
    status
}

fn unready<'a>(containers: &[ContainerView<'a>]) -> Vec<&'a str> {
    let unready = containers.iter().filter(|container| !container.is_ready());
    unready.map(|container| container.name).collect()
}

fn explain(containers: &[ContainerView<'_>], not_ready: &[&str]) -> String {
    let reasons: Vec<String> = containers
        .iter()
        .filter_map(|container| match container.state {
            State::Running {
                readiness: ReadinessState::NotReady(reason),
                ..
            } => Some(format!("{}: {reason}", container.name)),
            State::Waiting {
                message: Some(message),
                ..
            } => Some(format!("{}: {message}", container.name)),
            _ => None,
        })
        .collect();
    let names = format!("containers with unready status: [{}]", not_ready.join(" "));
    if reasons.is_empty() {
        names
    } else {
        format!("{names}: {}", reasons.join("; "))
    }
}

fn transition(conditions: &[PodCondition], type_: &str, status: bool, now: Timestamp) -> Time {
    let status = if status { "True" } else { "False" };
    conditions
        .iter()
        .find(|condition| condition.type_ == type_ && condition.status == status)
        .and_then(|condition| condition.last_transition_time.clone())
        .unwrap_or(Time(now))
}

fn phase(pod: &Pod, inits: &[ContainerView<'_>], containers: &[ContainerView<'_>]) -> &'static str {
    let failed = |init: &ContainerView<'_>| matches!(init.state, State::Terminated(_)) && !init.is_ready();
    if inits.iter().any(failed) {
        return "Failed";
    }
    if !inits.iter().all(ContainerView::is_ready) {
        return "Pending";
    }
    let ended: Vec<&Ended> = containers
        .iter()
        .filter_map(|container| match container.state {
            State::Terminated(ended) => Some(ended),
            _ => None,
        })
        .collect();
    if !containers.is_empty() && ended.len() == containers.len() {
        return if ended.iter().all(|ended| ended.exit_code == 0) {
            "Succeeded"
        } else {
            "Failed"
        };
    }
    let was_running = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    let all_begun = containers
        .iter()
        .all(|container| container.has_begun() || matches!(container.state, State::Terminated(_)));
    if !containers.is_empty() && (all_begun || was_running) {
        "Running"
    } else {
        "Pending"
    }
}

fn container_status(container: &ContainerView<'_>) -> Value {
    let terminated = |ended: &Ended| {
        json!({ "terminated": {
            "exitCode": ended.exit_code,
            "reason": ended.reason,
            "message": ended.message,
            "startedAt": ended.started_at.map(Time),
            "finishedAt": ended.finished_at.map(Time),
        } })
    };
    let state = match container.state {
        State::Waiting { reason, message } => json!({ "waiting": { "reason": reason, "message": message } }),
        State::Running { started_at, .. } => json!({ "running": { "startedAt": Time(*started_at) } }),
        State::Terminated(ended) => terminated(ended),
    };
    let mut status = json!({
        "name": container.name,
        "image": container.image,
        "imageID": container.identity.map_or("", |identity| identity.image.as_str()),
        "containerID": container.identity.map(|identity| identity.container.as_str()),
        "ready": container.is_ready(),
        "started": matches!(container.state, State::Running { .. }),
        "restartCount": container.restarts,
        "state": state,
        "lastState": container.last.map_or_else(|| json!({}), terminated),
    });
    drop_nulls(&mut status);
    status
}

/// Container statuses are replaced as a whole, so a null in them would be stored, not removed.
fn drop_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, field| !field.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        serde_json::from_value(
            json!({ "metadata": { "name": "p" }, "spec": { "containers": [] }, "status": status }),
        )
        .unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).unwrap()
    }

    fn view<'a>(name: &'a str, state: &'a State, last: Option<&'a Ended>) -> ContainerView<'a> {
        ContainerView {
            name,
            image: "mainstay",
            init: false,
            state,
            last,
            restarts: 0,
            identity: None,
        }
    }

    fn running(readiness: ReadinessState) -> State {
        State::Running {
            started_at: at(1),
            readiness,
        }
    }

    fn ended(exit_code: i32) -> Ended {
        let reason = if exit_code == 0 { "Completed" } else { "Error" };
        Ended {
            exit_code,
            reason: reason.to_owned(),
            message: None,
            started_at: None,
            finished_at: None,
        }
    }

    fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
        status["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .find(|condition| condition["type"] == type_)
            .unwrap()
    }

    #[test]
    fn a_pod_is_ready_when_all_its_containers_are() {
        let (ready, starting) = (
            running(ReadinessState::Ready),
            running(ReadinessState::NotReady("loading".into())),
        );
        let both = status(
            &pod(json!({})),
            &[view("a", &ready, None), view("b", &starting, None)],
            None,
            at(5),
        );
        assert_eq!(both["phase"], "Running");
        assert_eq!(condition(&both, "Ready")["status"], "False");
        let message = condition(&both, "ContainersReady")["message"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(message, "containers with unready status: [b]: b: loading");
        let all = status(&pod(json!({})), &[view("a", &ready, None)], None, at(5));
        assert_eq!(condition(&all, "Ready")["status"], "True");
        assert_eq!(condition(&all, "Ready")["reason"], Value::Null);
        assert_eq!(all["containerStatuses"][0]["ready"], true);
    }

    #[test]
    fn transition_times_change_with_the_status_only() {
        let before = json!({ "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:02Z" },
            { "type": "ContainersReady", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z" },
        ] });
        let ready = running(ReadinessState::Ready);
        let status = status(&pod(before), &[view("a", &ready, None)], None, at(5));
        assert_eq!(
            condition(&status, "Ready")["lastTransitionTime"],
            "1970-01-01T00:00:02Z"
        );
        assert_eq!(
            condition(&status, "ContainersReady")["lastTransitionTime"],
            "1970-01-01T00:00:05Z"
        );
    }

    #[test]
    fn the_phase_follows_from_the_containers() {
        let waiting = State::Waiting {
            reason: "CreateContainerConfigError".into(),
            message: Some("why".into()),
        };
        let (good, bad) = (State::Terminated(ended(0)), State::Terminated(ended(3)));
        let crashed = ended(1);
        let ready = running(ReadinessState::Ready);
        let phase =
            |views: &[ContainerView<'_>]| status(&pod(json!({})), views, None, at(5))["phase"].clone();
        assert_eq!(phase(&[view("a", &waiting, None)]), "Pending");
        assert_eq!(phase(&[view("a", &waiting, Some(&crashed))]), "Running");
        assert_eq!(
            phase(&[view("a", &good, None), view("b", &ready, None)]),
            "Running"
        );
        assert_eq!(phase(&[view("a", &good, None)]), "Succeeded");
        assert_eq!(phase(&[view("a", &good, None), view("b", &bad, None)]), "Failed");
    }

    #[test]
    fn a_pod_that_cannot_run_here_says_why() {
        let blocked = Unrunnable::Foreign {
            container: "web".into(),
            image: "nginx".into(),
            why: "no container engine is configured".into(),
        };
        let waiting = State::Waiting {
            reason: blocked.reason().into(),
            message: Some(blocked.to_string()),
        };
        let status = status(
            &pod(json!({})),
            &[view("web", &waiting, None)],
            Some(&blocked),
            at(5),
        );
        assert_eq!(status["phase"], "Pending");
        assert_eq!(
            condition(&status, "ContainersReady")["reason"],
            "NoContainerEngine"
        );
        assert!(
            status["message"]
                .as_str()
                .unwrap()
                .contains("no container engine is configured")
        );
        assert_eq!(
            status["containerStatuses"][0]["state"]["waiting"]["reason"],
            "NoContainerEngine"
        );
    }

    #[test]
    fn init_containers_hold_the_pod_back_and_one_that_fails_for_good_fails_it() {
        let init = |name, state| ContainerView {
            init: true,
            ..view(name, state, None)
        };
        let waiting = State::Waiting {
            reason: "PodInitializing".into(),
            message: None,
        };
        let (good, bad) = (State::Terminated(ended(0)), State::Terminated(ended(3)));
        let ready = running(ReadinessState::Ready);
        let of = |views: &[ContainerView<'_>]| status(&pod(json!({})), views, None, at(5));
        let held = of(&[
            init("first", &good),
            init("second", &ready),
            view("main", &waiting, None),
        ]);
        assert_eq!(held["phase"], "Pending");
        assert_eq!(condition(&held, "Initialized")["status"], "False");
        assert_eq!(
            condition(&held, "Initialized")["message"],
            "containers with incomplete status: [second]"
        );
        assert_eq!(held["initContainerStatuses"][0]["ready"], true);
        assert_eq!(held["containerStatuses"].as_array().unwrap().len(), 1);
        let done = of(&[init("first", &good), view("main", &ready, None)]);
        assert_eq!(done["phase"], "Running");
        assert_eq!(condition(&done, "Initialized")["status"], "True");
        assert_eq!(condition(&done, "Ready")["status"], "True");
        let failed = of(&[init("first", &bad), view("main", &waiting, None)]);
        assert_eq!(failed["phase"], "Failed");
    }

    #[test]
    fn a_readiness_gate_holds_the_pod_back() {
        let mut gated = pod(json!({}));
        gated.spec = serde_json::from_value(
            json!({ "containers": [], "readinessGates": [{ "conditionType": "x/y" }] }),
        )
        .unwrap();
        let ready = running(ReadinessState::Ready);
        let closed = status(&gated, &[view("a", &ready, None)], None, at(5));
        assert_eq!(condition(&closed, "ContainersReady")["status"], "True");
        assert_eq!(condition(&closed, "Ready")["status"], "False");
    }
}
