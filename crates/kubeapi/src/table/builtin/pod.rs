//! Pods. The status is the most telling of phase, container states and deletion, as `kubectl get pods` has it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::duration::{human_duration, seconds_between};
use super::super::object::{at, condition, has_condition, list, number, text, text_or};
use super::Row;

/// Restarts, and when the last of them was.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += number(container, "/restartCount");
        let finished = text(container, "/lastState/terminated/finishedAt")
            .parse::<Timestamp>()
            .ok();
        self.last = self.last.max(finished);
    }

    fn text(&self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!(
                    "{} ({} ago)",
                    self.count,
                    human_duration(seconds_between(last, now))
                )
            }
            _ => self.count.to_string(),
        }
    }
}

pub(super) fn pod(row: &Row<'_>) -> Vec<Value> {
    let pod = row.object;
    let status = Status::of(pod);
    vec![
        row.name(),
        json!(format!("{}/{}", status.ready, status.total)),
        json!(status.reason),
        json!(status.restarts.text(row.now)),
        row.age(),
        json!(text_or(pod, "/status/podIPs/0/ip", "<none>")),
        json!(text_or(pod, "/spec/nodeName", "<none>")),
        json!(text_or(pod, "/status/nominatedNodeName", "<none>")),
        json!(readiness_gates(pod)),
    ]
}

struct Status {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

impl Status {
    fn of(pod: &Value) -> Self {
        let mut status = Self {
            ready: 0,
            total: list(pod, "/spec/containers").len(),
            reason: text_or(pod, "/status/reason", text(pod, "/status/phase")).to_owned(),
            restarts: Restarts::default(),
        };
        if condition(pod, "PodScheduled")
            .is_some_and(|condition| text(condition, "/reason") == "SchedulingGated")
        {
            "SchedulingGated".clone_into(&mut status.reason);
        }
        let (initializing, sidecar_restarts) = status.init_containers(pod);
        if !initializing || has_condition(pod, "Initialized") {
            status.restarts = sidecar_restarts;
            status.containers(pod);
        }
        if !text(pod, "/metadata/deletionTimestamp").is_empty() {
            if text(pod, "/status/reason") == "NodeLost" {
                "Unknown".clone_into(&mut status.reason);
            } else if !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut status.reason);
            }
        }
        status
    }

    /// Looks at the init containers up to the first that is not done; answers whether there is one, and the
    /// restarts of those that keep running beside the containers.
    fn init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let declared = list(pod, "/spec/initContainers");
        let is_sidecar = |name: &str| {
            declared.iter().any(|container| {
                text(container, "/name") == name && text(container, "/restartPolicy") == "Always"
            })
        };
        self.total += declared
            .iter()
            .filter(|container| text(container, "/restartPolicy") == "Always")
            .count();
        let mut sidecar_restarts = Restarts::default();
        for (position, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(container);
            let sidecar = is_sidecar(text(container, "/name"));
            if sidecar {
                sidecar_restarts.add(container);
            }
            let terminated = at(container, "/state/terminated");
            if terminated.is_object() && number(terminated, "/exitCode") == 0 {
                continue;
            }
            if sidecar && at(container, "/started") == &Value::Bool(true) {
                if at(container, "/ready") == &Value::Bool(true) {
                    self.ready += 1;
                }
                continue;
            }
            let waiting = text(container, "/state/waiting/reason");
            self.reason = if terminated.is_object() {
                format!("Init:{}", termination(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{position}/{}", declared.len())
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    /// The first container that waits or ended gives the reason.
    fn containers(&mut self, pod: &Value) {
        let mut has_running = false;
        let mut error = None;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            let waiting = text(container, "/state/waiting/reason");
            let terminated = at(container, "/state/terminated");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.reason);
            } else if terminated.is_object() {
                self.reason = termination(terminated);
                if number(terminated, "/exitCode") != 0 {
                    error = Some(self.reason.clone());
                }
            } else if at(container, "/ready") == &Value::Bool(true)
                && at(container, "/state/running").is_object()
            {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if has_running && has_condition(pod, "Ready") {
                "Running".clone_into(&mut self.reason);
            } else if let Some(error) = error {
                self.reason = error;
            } else if has_running {
                "NotReady".clone_into(&mut self.reason);
            }
        }
    }
}

/// Why a container ended.
fn termination(terminated: &Value) -> String {
    match (text(terminated, "/reason"), number(terminated, "/signal")) {
        ("", 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let passed = gates
        .iter()
        .filter(|gate| has_condition(pod, text(gate, "/conditionType")))
        .count();
    format!("{passed}/{}", gates.len())
}
