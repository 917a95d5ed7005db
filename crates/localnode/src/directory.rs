//! Who listens where: the live ports and routers of the Pods that run in this process.
//!
//! The node agent writes it; the service resolver and the front door read it. It is in memory only, because it says
//! nothing that outlives the process.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

/// The table. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    // A std lock: held for look-ups, never across an await.
    pods: Arc<RwLock<BTreeMap<String, Entry>>>,
    turn: Arc<AtomicUsize>,
    changes: watch::Sender<u64>,
}

/// What the node agent says of a Pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodDescription {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// Ready and not about to end.
    pub(crate) serves: bool,
    /// The declared ports of its containers.
    pub(crate) declared: Vec<DeclaredPort>,
}

/// What is known of one Pod, by its UID.
#[derive(Clone, Debug, Default)]
struct Entry {
    described: PodDescription,
    listening: BTreeMap<String, (String, SocketAddr)>,
    routers: BTreeMap<String, (String, Router)>,
}

/// A port that a container declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeclaredPort {
    pub(crate) container: String,
    pub(crate) name: String,
    pub(crate) number: u16,
}

#[derive(Clone)]
struct Router(axum::Router);

impl std::fmt::Debug for Router {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Router")
    }
}

/// A router that a Pod serves without a port of its own.
#[derive(Clone)]
pub struct Facade {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub pod: String,
    /// The Pod's labels.
    pub labels: BTreeMap<String, String>,
    /// The name of the container port it stands for.
    pub port: String,
    /// What answers.
    pub router: axum::Router,
}

impl std::fmt::Debug for Facade {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Facade")
            .field("namespace", &self.namespace)
            .field("pod", &self.pod)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

impl Directory {
    pub(crate) fn new() -> Self {
        Self {
            pods: Arc::default(),
            turn: Arc::default(),
            changes: watch::Sender::new(0),
        }
    }

    fn change<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Entry>) -> T) -> T {
        let result = work(&mut self.pods.write().unwrap_or_else(PoisonError::into_inner));
        self.changes.send_modify(|count| *count += 1);
        result
    }

    fn read<T>(&self, work: impl FnOnce(&BTreeMap<String, Entry>) -> T) -> T {
        work(&self.pods.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a Pod known, or brings what is known up to date; what it listens on stays.
    pub(crate) fn describe(&self, uid: &str, described: PodDescription) {
        let same = self.read(|pods| {
            pods.get(uid).is_some_and(|old| {
                old.described.serves == described.serves && old.described.labels == described.labels
            })
        });
        if same {
            return;
        }
        self.change(|pods| {
            pods.entry(uid.to_owned()).or_default().described = described;
        });
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.change(|pods| pods.remove(uid));
    }

    /// A container ended: nothing of it answers any more.
    pub(crate) fn forget_container(&self, uid: &str, container: &str) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry.listening.retain(|_, (owner, _)| owner != container);
                entry.routers.retain(|_, (owner, _)| owner != container);
            }
        });
    }

    pub(crate) fn listening(&self, uid: &str, container: &str, port: &str, address: SocketAddr) {
        self.change(|pods| {
            if let Some(entry) = pods.get_mut(uid) {
                entry
                    .listening
                    .insert(port.to_owned(), (container.to_owned(), address));
            }
        });
    }

    /// Returns false if the port's router is there already.
    pub(crate) fn serve(&self, uid: &str, container: &str, port: &str, router: axum::Router) -> bool {
        self.change(|pods| {
            let Some(entry) = pods.get_mut(uid) else {
                return true;
            };
            if entry.routers.contains_key(port) {
                return false;
            }
            entry
                .routers
                .insert(port.to_owned(), (container.to_owned(), Router(router)));
            true
        })
    }

    /// A live address of one of the serving Pods that match, each in turn.
    pub(crate) fn address(
        &self,
        namespace: &str,
        matches: impl Fn(&BTreeMap<String, String>) -> bool,
        port: &PortReference,
    ) -> Option<SocketAddr> {
        let found: Vec<SocketAddr> = self.read(|pods| {
            pods.values()
                .filter(|entry| {
                    let pod = &entry.described;
                    pod.serves && pod.namespace == namespace && matches(&pod.labels)
                })
                .filter_map(|entry| entry.address(port))
                .collect()
        });
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        (!found.is_empty()).then(|| found[turn % found.len()])
    }

    fn facades(&self, keep: impl Fn(&PodDescription, &str) -> bool) -> Vec<Facade> {
        self.read(|pods| {
            let mut found = Vec::new();
            for entry in pods.values().filter(|entry| entry.described.serves) {
                for (port, (_, router)) in &entry.routers {
                    if keep(&entry.described, port) {
                        found.push(Facade {
                            namespace: entry.described.namespace.clone(),
                            pod: entry.described.pod.clone(),
                            labels: entry.described.labels.clone(),
                            port: port.clone(),
                            router: router.0.clone(),
                        });
                    }
                }
            }
            found
        })
    }
}

/// A port as a Service refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortReference {
    Name(String),
    Number(u16),
}

impl Entry {
    fn address(&self, port: &PortReference) -> Option<SocketAddr> {
        let listens = |name: &str| self.listening.get(name).map(|(_, address)| *address);
        match port {
            PortReference::Name(name) => listens(name),
            PortReference::Number(number) => self
                .described
                .declared
                .iter()
                .filter(|declared| declared.number == *number)
                .find_map(|declared| listens(&declared.name)),
        }
    }
}

/// The routers of ready Pods, for the front door. Clones share the table.
#[derive(Clone, Debug)]
pub struct Facades {
    directory: Directory,
}

impl Facades {
    pub(crate) fn new(directory: Directory) -> Self {
        Self { directory }
    }

    /// The router that a ready Pod with all these labels serves under this port name. With several Pods each has its
    /// turn.
    pub fn find(&self, namespace: &str, labels: &[(&str, &str)], port: &str) -> Option<Facade> {
        let mut found = self.directory.facades(|pod, name| {
            name == port
                && pod.namespace == namespace
                && labels
                    .iter()
                    .all(|(name, value)| pod.labels.get(*name).is_some_and(|found| found == value))
        });
        let turn = self.directory.turn.fetch_add(1, Ordering::Relaxed);
        (!found.is_empty()).then(|| found.swap_remove(turn % found.len()))
    }

    /// All of them.
    pub fn list(&self) -> Vec<Facade> {
        self.directory.facades(|_, _| true)
    }

    /// Changes whenever something may have come or gone.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.directory.changes.subscribe()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn entry(pod: &str, serves: bool) -> PodDescription {
        PodDescription {
            namespace: "default".to_owned(),
            pod: pod.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "agent".to_owned())]),
            serves,
            declared: vec![DeclaredPort {
                container: "c".to_owned(),
                name: "facade".to_owned(),
                number: 8080,
            }],
        }
    }

    #[test]
    fn a_facade_is_found_while_its_pod_is_ready_and_its_container_runs() {
        let directory = Directory::new();
        let facades = Facades::new(directory.clone());
        directory.describe("1", entry("a", false));
        assert!(directory.serve("1", "c", "facade", axum::Router::new()));
        assert!(
            !directory.serve("1", "c", "facade", axum::Router::new()),
            "served twice"
        );
        let find = || {
            facades
                .find("default", &[("app", "agent")], "facade")
                .map(|facade| facade.pod)
        };
        assert_eq!(find(), None);
        directory.describe("1", entry("a", true));
        assert_eq!(find().as_deref(), Some("a"));
        assert!(facades.find("other", &[("app", "agent")], "facade").is_none());
        assert!(facades.find("default", &[("app", "other")], "facade").is_none());
        directory.forget_container("1", "c");
        assert_eq!(find(), None);
        assert!(directory.serve("1", "c", "facade", axum::Router::new()));
        directory.forget("1");
        assert_eq!(find(), None);
    }

    #[test]
    fn pods_of_one_selector_take_turns() {
        let directory = Directory::new();
        for (uid, port) in [("1", 1001), ("2", 1002)] {
            directory.describe(uid, entry(uid, true));
            directory.listening(uid, "c", "facade", ([127, 0, 0, 1], port).into());
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            seen.insert(
                directory
                    .address("default", |_| true, &PortReference::Number(8080))
                    .unwrap()
                    .port(),
            );
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1001, 1002]);
        assert_eq!(
            directory.address("default", |_| true, &PortReference::Number(9)),
            None
        );
    }
}
