//! What runs here: the live ports and routers of the Pods of this process.
//!
//! The node agent writes it; the service resolver and the front door read it. It is in memory only, because it says
//! nothing that outlives the process.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use tokio::sync::watch;

/// The Pods that run here. Clones share the table.
#[derive(Clone, Debug)]
pub struct PodTable {
    // A std lock: held for look-ups, never across an await. Written by the Pods' own tasks.
    pods: Arc<RwLock<BTreeMap<String, Entry>>>,
    turn: Arc<AtomicUsize>,
    changes: watch::Sender<u64>,
}

/// What the node agent says of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PodDescription {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) created: Option<Timestamp>,
    /// Ready and not about to end.
    pub(crate) serves: bool,
    /// Why it is not ready, in words.
    pub(crate) waits: String,
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

/// A Pod's router, or why there is none.
#[derive(Clone, Debug)]
pub enum Facade {
    /// Requests can be handed over.
    Ready(axum::Router),
    /// There are Pods and none can serve.
    NotReady {
        /// What the newest of them waits for.
        reason: String,
    },
    /// There is no such Pod.
    Absent,
}

impl PodTable {
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
        let same = self.read(|pods| pods.get(uid).is_some_and(|old| old.described == described));
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
        let found = self.addresses(namespace, matches, port);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        (!found.is_empty()).then(|| found[turn % found.len()])
    }

    /// The live addresses of the serving Pods that match.
    pub(crate) fn addresses(
        &self,
        namespace: &str,
        matches: impl Fn(&BTreeMap<String, String>) -> bool,
        port: &PortReference,
    ) -> Vec<SocketAddr> {
        self.read(|pods| {
            serving(pods, namespace, matches)
                .filter_map(|entry| entry.address(port))
                .collect()
        })
    }

    /// The numbers of the ports that the serving Pods that match declare.
    pub(crate) fn declared_numbers(
        &self,
        namespace: &str,
        matches: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> BTreeSet<u16> {
        self.read(|pods| {
            serving(pods, namespace, matches)
                .flat_map(|entry| &entry.described.declared)
                .map(|declared| declared.number)
                .collect()
        })
    }

    /// Where a Pod answers for a port, whether it serves yet or not.
    pub(crate) fn live_port(&self, uid: &str, port: &PortReference) -> LivePort {
        self.read(|pods| match pods.get(uid) {
            None => LivePort::Elsewhere,
            Some(entry) => match entry.address(port) {
                Some(address) => LivePort::Here(address.port()),
                None => LivePort::Closed,
            },
        })
    }

    /// Where a Pod answers for a port; in words where it listens if not on that one, and `None` if it does not run here.
    pub(crate) fn endpoint(&self, uid: &str, port: &PortReference) -> Option<Result<Endpoint, String>> {
        self.read(|pods| {
            let entry = pods.get(uid)?;
            Some(entry.endpoint(uid, port).ok_or_else(|| entry.listens_on()))
        })
    }

    /// Where one of the serving Pods that match answers for a port, each in turn.
    pub(crate) fn serving_endpoint(
        &self,
        namespace: &str,
        matches: impl Fn(&BTreeMap<String, String>) -> bool,
        port: &PortReference,
    ) -> Option<Endpoint> {
        let mut found: Vec<Endpoint> = self.read(|pods| {
            pods.iter()
                .filter(|(_, entry)| entry.serves(namespace, &matches))
                .filter_map(|(uid, entry)| entry.endpoint(uid, port))
                .collect()
        });
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        (!found.is_empty()).then(|| found.swap_remove(turn % found.len()))
    }

    /// Returns once the router is not served any more.
    pub(crate) async fn router_ends(&self, port: &RouterPort) {
        let mut changes = self.changes();
        let served = || {
            self.read(|pods| {
                pods.get(&port.uid)
                    .is_some_and(|entry| entry.routers.contains_key(&port.name))
            })
        };
        while served() {
            // The table is held here, so it goes on changing.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// The router that the Pods in `namespace` with all these labels serve under the port name `port`.
    ///
    /// Of several ready Pods it is always the newest: the requests of a conversation stay together, and a rollout moves
    /// new ones to the new Pod.
    pub fn facade(&self, namespace: &str, labels: &BTreeMap<String, String>, port: &str) -> Facade {
        self.read(|pods| {
            let mut found: Vec<&Entry> = pods
                .values()
                .filter(|entry| {
                    let pod = &entry.described;
                    pod.namespace == namespace
                        && labels
                            .iter()
                            .all(|(name, value)| pod.labels.get(name) == Some(value))
                })
                .collect();
            found.sort_by_key(|entry| {
                std::cmp::Reverse((entry.described.created, entry.described.pod.clone()))
            });
            let mut ready = found.iter().filter(|entry| entry.described.serves);
            match (ready.find_map(|entry| entry.routers.get(port)), found.first()) {
                (Some((_, router)), _) => Facade::Ready(router.0.clone()),
                (None, Some(newest)) => {
                    let waits = if newest.described.waits.is_empty() {
                        "starting"
                    } else {
                        &newest.described.waits
                    };
                    Facade::NotReady {
                        reason: format!("Pod {}: {waits}", newest.described.pod),
                    }
                }
                (None, None) => Facade::Absent,
            }
        })
    }

    /// Changes whenever a Pod may have come, become ready, or gone.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

fn serving<'a>(
    pods: &'a BTreeMap<String, Entry>,
    namespace: &str,
    matches: impl Fn(&BTreeMap<String, String>) -> bool,
) -> impl Iterator<Item = &'a Entry> {
    pods.values()
        .filter(move |entry| entry.serves(namespace, &matches))
}

/// Where a port is answered.
#[derive(Clone, Debug)]
pub(crate) enum Endpoint {
    /// On this loopback address.
    Address(SocketAddr),
    /// By a router, without a socket.
    Router(RouterPort),
}

/// A port that is a router.
#[derive(Clone, Debug)]
pub(crate) struct RouterPort {
    uid: String,
    name: String,
    pub(crate) router: axum::Router,
}

/// Where a Pod answers for a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LivePort {
    /// On this loopback port.
    Here(u16),
    /// The Pod runs here and does not listen on it: not yet, or requests are handed to it without a socket.
    Closed,
    /// The Pod does not run in this process: its ports are as declared.
    Elsewhere,
}

/// A port as a Service refers to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PortReference {
    Name(String),
    Number(u16),
}

impl Entry {
    /// Whether it serves in `namespace`, with labels that match.
    fn serves(&self, namespace: &str, matches: impl Fn(&BTreeMap<String, String>) -> bool) -> bool {
        let pod = &self.described;
        pod.serves && pod.namespace == namespace && matches(&pod.labels)
    }

    fn endpoint(&self, uid: &str, port: &PortReference) -> Option<Endpoint> {
        if let Some(address) = self.address(port) {
            return Some(Endpoint::Address(address));
        }
        let router = |name: &String| {
            let (_, router) = self.routers.get(name)?;
            Some(Endpoint::Router(RouterPort {
                uid: uid.to_owned(),
                name: name.clone(),
                router: router.0.clone(),
            }))
        };
        match port {
            PortReference::Name(name) => router(name),
            PortReference::Number(number) => self
                .described
                .declared
                .iter()
                .filter(|declared| declared.number == *number)
                .find_map(|declared| router(&declared.name)),
        }
    }

    /// The ports that it answers on, in words.
    fn listens_on(&self) -> String {
        let open: Vec<String> = self
            .described
            .declared
            .iter()
            .filter(|port| self.listening.contains_key(&port.name) || self.routers.contains_key(&port.name))
            .map(|port| format!("{} ({})", port.number, port.name))
            .collect();
        if open.is_empty() {
            "it listens on no port".to_owned()
        } else {
            format!("it listens on {}", open.join(", "))
        }
    }

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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn entry(pod: &str, serves: bool) -> PodDescription {
        PodDescription {
            namespace: "default".to_owned(),
            pod: pod.to_owned(),
            labels: BTreeMap::from([("app".to_owned(), "agent".to_owned())]),
            created: Some(Timestamp::UNIX_EPOCH),
            serves,
            waits: "loading".to_owned(),
            declared: vec![DeclaredPort {
                container: "c".to_owned(),
                name: "facade".to_owned(),
                number: 8080,
            }],
        }
    }

    fn found(table: &PodTable) -> String {
        let labels = BTreeMap::from([("app".to_owned(), "agent".to_owned())]);
        assert!(matches!(table.facade("other", &labels, "facade"), Facade::Absent));
        match table.facade("default", &labels, "facade") {
            Facade::Ready(_) => "ready".to_owned(),
            Facade::NotReady { reason } => reason,
            Facade::Absent => "absent".to_owned(),
        }
    }

    #[test]
    fn a_facade_is_found_while_its_pod_is_ready_and_its_container_runs() {
        let table = PodTable::new();
        assert_eq!(found(&table), "absent");
        table.describe("1", entry("a", false));
        assert!(table.serve("1", "c", "facade", axum::Router::new()));
        assert!(
            !table.serve("1", "c", "facade", axum::Router::new()),
            "served twice"
        );
        assert_eq!(found(&table), "Pod a: loading");
        table.describe("1", entry("a", true));
        assert_eq!(found(&table), "ready");
        table.forget_container("1", "c");
        assert_eq!(found(&table), "Pod a: loading");
        assert!(table.serve("1", "c", "facade", axum::Router::new()));
        assert_eq!(found(&table), "ready");
        table.forget("1");
        assert_eq!(found(&table), "absent");
    }

    #[test]
    fn a_newer_pod_that_is_not_ready_does_not_hide_an_older_one_that_is() {
        let table = PodTable::new();
        table.describe("1", entry("old", true));
        assert!(table.serve("1", "c", "facade", axum::Router::new()));
        let newer = Timestamp::from_second(60).ok();
        table.describe(
            "2",
            PodDescription {
                created: newer,
                ..entry("new", false)
            },
        );
        assert_eq!(found(&table), "ready");
        table.describe("1", entry("old", false));
        assert_eq!(found(&table), "Pod new: loading");
    }

    #[test]
    fn pods_of_one_selector_take_turns() {
        let table = PodTable::new();
        for (uid, port) in [("1", 1001), ("2", 1002)] {
            table.describe(uid, entry(uid, true));
            table.listening(uid, "c", "facade", ([127, 0, 0, 1], port).into());
        }
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            seen.insert(
                table
                    .address("default", |_| true, &PortReference::Number(8080))
                    .unwrap()
                    .port(),
            );
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1001, 1002]);
        assert_eq!(
            table.address("default", |_| true, &PortReference::Number(9)),
            None
        );
    }
}
