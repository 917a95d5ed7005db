//! The Node object: what `kubectl get nodes` and `kubectl describe node` show of this machine.
//!
//! It is applied when the agent starts, again when somebody deletes or spoils it, and every five minutes for its
//! heartbeat. Labels, taints and `unschedulable` of others stay. There is no Lease: nobody waits for this Node to fail,
//! because the API ends with the process.

use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::Patch;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_telemetry::clock::SharedClock;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::environment::ADDRESS;
use crate::{NODE, writing};

/// How often the heartbeat is written where nothing else changes; the kubelet's `nodeStatusReportFrequency`.
const HEARTBEAT: Duration = Duration::from_secs(5 * 60);
/// How long after the API refused it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Pods of a Node, as a kubelet allows without other configuration.
const PODS: u32 = 110;

/// What is known of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Machine {
    processors: usize,
    /// In KiB; `None` where the system does not tell.
    memory: Option<u64>,
    kernel: String,
    system: String,
}

impl Machine {
    /// Asks the system. What it does not tell stays empty.
    fn read() -> Self {
        let file = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory: memory_of(&file("/proc/meminfo")),
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: system_of(&file("/etc/os-release")).unwrap_or_else(|| std::env::consts::OS.to_owned()),
        }
    }

    fn capacity(&self) -> Value {
        let mut capacity = json!({ "cpu": self.processors.to_string(), "pods": PODS.to_string() });
        if let Some(memory) = self.memory {
            capacity["memory"] = json!(format!("{memory}Ki"));
        }
        capacity
    }
}

fn memory_of(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn system_of(os_release: &str) -> Option<String> {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned())
}

/// As Kubernetes, which is to say Go, names them.
fn operating_system() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn object() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": NODE,
            "labels": {
                "kubernetes.io/hostname": NODE,
                "kubernetes.io/os": operating_system(),
                "kubernetes.io/arch": architecture(),
            },
        },
    })
}

/// The status, with the time since when `before` was ready.
fn status(machine: &Machine, before: Option<&Node>, now: Timestamp) -> Value {
    let since = before
        .and_then(ready)
        .filter(|condition| condition.status == "True")
        .and_then(|condition| condition.last_transition_time.clone())
        .unwrap_or(Time(now));
    let version = env!("CARGO_PKG_VERSION");
    json!({
        "capacity": machine.capacity(),
        "allocatable": machine.capacity(),
        "addresses": [
            { "type": "InternalIP", "address": ADDRESS },
            { "type": "Hostname", "address": NODE },
        ],
        "conditions": [{
            "type": "Ready",
            "status": "True",
            "reason": "MainstayReady",
            "message": "Pods of the image mainstay run as tasks of this process",
            "lastHeartbeatTime": Time(now),
            "lastTransitionTime": since,
        }],
        "nodeInfo": {
            "kubeletVersion": format!("v{version}"),
            "kubeProxyVersion": "",
            "containerRuntimeVersion": format!("mainstay://{version}"),
            "kernelVersion": machine.kernel,
            "osImage": machine.system,
            "operatingSystem": operating_system(),
            "architecture": architecture(),
            // Identities of the machine are nobody's business here; the fields are required.
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    })
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether the Node says what it should, its heartbeat apart.
fn is_described(node: &Node, machine: &Machine) -> bool {
    let Ok(found) = serde_json::to_value(node) else {
        return false;
    };
    let beat = ready(node).and_then(|condition| condition.last_heartbeat_time.as_ref());
    let Some(beat) = beat else { return false };
    let mut wanted = object();
    wanted["status"] = status(machine, Some(node), beat.0);
    contains(&found, &wanted)
}

/// Whether every field of `wanted` is in `found`; lists may have more items.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(name, wanted)| {
            found
                .get(name)
                .map_or(wanted == "", |found| contains(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) => wanted
            .iter()
            .all(|wanted| found.iter().any(|found| contains(found, wanted))),
        (found, wanted) => found == wanted,
    }
}

async fn write(
    nodes: &Api<Node>,
    machine: &Machine,
    before: Option<&Node>,
    now: Timestamp,
) -> kube::Result<()> {
    let mut object = object();
    nodes
        .patch(NODE, &writing::apply(), &Patch::Apply(&object))
        .await?;
    object["metadata"] = json!({ "name": NODE });
    object["status"] = status(machine, before, now);
    nodes
        .patch_status(NODE, &writing::apply(), &Patch::Apply(&object))
        .await?;
    Ok(())
}

/// Keeps the Node until it is cancelled.
pub(super) async fn run(client: Client, clock: SharedClock, cancellation: CancellationToken) {
    let nodes: Api<Node> = Api::all(client);
    let machine = Machine::read();
    let own = watcher::Config::default().fields(&format!("metadata.name={NODE}"));
    let mut stream = Box::pin(watcher(nodes.clone(), own).default_backoff());
    let mut known: Option<Node> = None;
    // Nothing is written before the first list says what there is.
    let mut due: Option<Instant> = None;
    loop {
        let timer = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancellation.cancelled() => return,
            event = stream.next() => match event {
                Some(Ok(watcher::Event::Init)) => known = None,
                Some(Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node))) => {
                    if node.name_any() == NODE {
                        if due.is_some() && !is_described(&node, &machine) {
                            due = Some(Instant::now());
                        }
                        known = Some(node);
                    }
                }
                Some(Ok(watcher::Event::InitDone)) => due = Some(Instant::now()),
                Some(Ok(watcher::Event::Delete(_))) => {
                    known = None;
                    due = Some(Instant::now());
                }
                Some(Err(error)) => tracing::warn!(%error, "the watch for the Node was interrupted"),
                None => return,
            },
            () = timer => {
                let writing = write(&nodes, &machine, known.as_ref(), clock.now());
                let Some(written) = cancellation.run_until_cancelled(writing).await else {
                    return;
                };
                let wait = match written {
                    Ok(()) => HEARTBEAT,
                    Err(error) => {
                        tracing::warn!(%error, "the Node could not be written");
                        RETRY
                    }
                };
                due = Some(Instant::now() + wait);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            processors: 8,
            memory: memory_of("MemFree: 1 kB\nMemTotal:       16384000 kB\n"),
            kernel: "6.1".to_owned(),
            system: system_of("ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\n").unwrap(),
        }
    }

    fn node(now: i64, before: Option<&Node>) -> Node {
        let mut node = object();
        node["status"] = status(&machine(), before, Timestamp::new(now, 0).unwrap());
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn the_node_is_ready_and_has_what_the_machine_has() {
        let node = serde_json::to_value(node(1, None)).unwrap();
        assert_eq!(
            node["status"]["capacity"],
            json!({ "cpu": "8", "memory": "16384000Ki", "pods": "110" })
        );
        assert_eq!(node["status"]["allocatable"], node["status"]["capacity"]);
        assert_eq!(node["status"]["conditions"][0]["status"], "True");
        assert_eq!(
            node["status"]["nodeInfo"]["osImage"],
            "Debian GNU/Linux 13 (trixie)"
        );
        assert_eq!(
            node["status"]["nodeInfo"]["kubeletVersion"],
            format!("v{}", env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn what_the_system_does_not_tell_is_left_out() {
        assert_eq!(memory_of(""), None);
        assert_eq!(memory_of("MemTotal: lots kB"), None);
        assert_eq!(system_of("ID=x"), None);
        let machine = Machine {
            memory: None,
            ..machine()
        };
        assert_eq!(machine.capacity(), json!({ "cpu": "8", "pods": "110" }));
    }

    #[test]
    fn a_heartbeat_keeps_the_time_since_when_the_node_is_ready() {
        let first = node(1, None);
        let second = node(300, Some(&first));
        let condition = ready(&second).unwrap();
        assert_eq!(condition.last_transition_time.as_ref().unwrap().0.as_second(), 1);
        assert_eq!(condition.last_heartbeat_time.as_ref().unwrap().0.as_second(), 300);
    }

    #[test]
    fn a_spoiled_node_is_noticed_and_additions_of_others_are_not() {
        let whole = node(1, None);
        assert!(is_described(&whole, &machine()));
        let mut labelled = whole.clone();
        labelled
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("mine".to_owned(), "x".to_owned());
        labelled.spec = Some(k8s_openapi::api::core::v1::NodeSpec {
            unschedulable: Some(true),
            ..Default::default()
        });
        assert!(is_described(&labelled, &machine()));
        let mut spoiled = whole.clone();
        spoiled.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = "False".to_owned();
        assert!(!is_described(&spoiled, &machine()));
        let mut bare = whole;
        bare.status = None;
        assert!(!is_described(&bare, &machine()));
    }
}
