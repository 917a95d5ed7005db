//! What runs here: the facts about each Pod that the connector and the front door ask for.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use jiff::Timestamp;

use crate::selector;

/// The Pods that run here. Cloning shares the table.
#[derive(Clone, Default)]
pub struct PodTable {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    // A std lock: held for one look-up or one assignment, never across an await. Written by the Pods' own tasks, read by
    // every outbound call and every request of the front door.
    pods: RwLock<BTreeMap<String, Facts>>,
    turn: AtomicUsize,
}

/// One Pod.
#[derive(Clone, Default)]
struct Facts {
    namespace: String,
    name: String,
    labels: BTreeMap<String, String>,
    created: Option<Timestamp>,
    ready: bool,
    /// Why it is not ready.
    waits: String,
    /// Container port numbers by name.
    names: BTreeMap<String, u16>,
    /// Where a container port really is.
    addresses: BTreeMap<u16, SocketAddr>,
    /// Routers that the front door hands requests to.
    routers: BTreeMap<String, axum::Router>,
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

impl std::fmt::Debug for PodTable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pods = self.inner.pods.read().unwrap_or_else(PoisonError::into_inner);
        formatter.debug_set().entries(pods.values().map(|facts| &facts.name)).finish()
    }
}

impl PodTable {
    /// Notes a Pod's names and labels, and the ports it declares.
    pub(crate) fn describe(
        &self,
        uid: &str,
        (namespace, name): (&str, &str),
        labels: BTreeMap<String, String>,
        created: Option<Timestamp>,
        names: BTreeMap<String, u16>,
    ) {
        self.change(uid, |facts| {
            facts.namespace = namespace.to_owned();
            facts.name = name.to_owned();
            facts.labels = labels;
            facts.created = created;
            facts.names = names;
        });
    }

    /// Notes whether the Pod can serve, and if not, why.
    pub(crate) fn set_ready(&self, uid: &str, ready: bool, waits: &str) {
        self.change(uid, |facts| {
            facts.ready = ready;
            facts.waits = waits.to_owned();
        });
    }

    /// Notes where a container port really is.
    pub(crate) fn listens(&self, uid: &str, port: u16, address: SocketAddr) {
        self.change(uid, |facts| {
            facts.addresses.insert(port, address);
        });
    }

    /// Notes a router; gives whether the name was free.
    pub(crate) fn serves(&self, uid: &str, name: &str, router: axum::Router) -> bool {
        let mut free = true;
        self.change(uid, |facts| {
            free = !facts.routers.contains_key(name);
            if free {
                facts.routers.insert(name.to_owned(), router);
            }
        });
        free
    }

    /// The container has ended: its ports and routers are gone.
    pub(crate) fn stopped(&self, uid: &str) {
        self.change(uid, |facts| {
            facts.ready = false;
            facts.addresses.clear();
            facts.routers.clear();
        });
    }

    /// The Pod is gone.
    pub(crate) fn remove(&self, uid: &str) {
        self.inner.pods.write().unwrap_or_else(PoisonError::into_inner).remove(uid);
    }

    fn change(&self, uid: &str, change: impl FnOnce(&mut Facts)) {
        change(self.inner.pods.write().unwrap_or_else(PoisonError::into_inner).entry(uid.to_owned()).or_default());
    }

    /// The addresses of `port` of the ready Pods in `namespace` that `wanted` selects; `port` is the number or the name of
    /// a container port.
    pub(crate) fn endpoints(&self, namespace: &str, wanted: &BTreeMap<String, String>, port: &Port) -> Vec<SocketAddr> {
        let pods = self.inner.pods.read().unwrap_or_else(PoisonError::into_inner);
        pods.values()
            .filter(|facts| facts.ready && facts.namespace == namespace && selector::selects(wanted, &facts.labels))
            .filter_map(|facts| {
                let number = match port {
                    Port::Number(number) => *number,
                    Port::Name(name) => *facts.names.get(name)?,
                };
                facts.addresses.get(&number).copied()
            })
            .collect()
    }

    /// One of `endpoints`, each in its turn.
    pub(crate) fn choose(&self, endpoints: &[SocketAddr]) -> Option<SocketAddr> {
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        endpoints.get(turn % endpoints.len().max(1)).copied()
    }

    /// The router named `port` of the Pods in `namespace` with every one of `labels`. Of several ready Pods it is always
    /// the newest: a conversation's requests stay together, and a rollout moves new ones to the new Pod.
    pub fn facade(&self, namespace: &str, labels: &BTreeMap<String, String>, port: &str) -> Facade {
        let pods = self.inner.pods.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<&Facts> = pods
            .values()
            .filter(|facts| facts.namespace == namespace && selector::selects(labels, &facts.labels))
            .collect();
        found.sort_by_key(|facts| std::cmp::Reverse((facts.created, facts.name.clone())));
        let ready = found.iter().filter(|facts| facts.ready).find_map(|facts| facts.routers.get(port));
        match (ready, found.first()) {
            (Some(router), _) => Facade::Ready(router.clone()),
            (None, Some(newest)) => Facade::NotReady { reason: format!("Pod {}: {}", newest.name, newest.waits) },
            (None, None) => Facade::Absent,
        }
    }
}

/// A container port as a Service names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// By its number.
    Number(u16),
    /// By its name.
    Name(String),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn labels(app: &str) -> BTreeMap<String, String> {
        [("app".to_owned(), app.to_owned())].into()
    }

    fn table(pods: &[(&str, bool, i64)]) -> PodTable {
        let table = PodTable::default();
        for (uid, ready, created) in pods {
            let created = Timestamp::from_second(*created).unwrap();
            table.describe(uid, ("shop", uid), labels("orders"), Some(created), [("http".to_owned(), 8080)].into());
            table.listens(uid, 8080, SocketAddr::from(([127, 0, 0, 1], 1_000 + u16::try_from(created.as_second()).unwrap())));
            table.set_ready(uid, *ready, "starting");
        }
        table
    }

    #[test]
    fn ka_053_only_ready_pods_are_endpoints_and_each_has_its_turn() {
        let table = table(&[("a", true, 1), ("b", false, 2), ("c", true, 3)]);
        let by_name = table.endpoints("shop", &labels("orders"), &Port::Name("http".to_owned()));
        assert_eq!(by_name, table.endpoints("shop", &labels("orders"), &Port::Number(8080)));
        assert_eq!(by_name.len(), 2);
        assert_ne!(table.choose(&by_name), table.choose(&by_name));
        assert!(table.endpoints("other", &labels("orders"), &Port::Number(8080)).is_empty());
        table.stopped("a");
        assert_eq!(table.endpoints("shop", &labels("orders"), &Port::Number(8080)).len(), 1);
    }

    #[test]
    fn the_front_door_is_led_to_the_newest_ready_pod() {
        let table = table(&[("old", true, 1), ("new", false, 2)]);
        assert!(table.serves("old", "facade", axum::Router::new()));
        assert!(!table.serves("old", "facade", axum::Router::new()), "a name is served once");
        assert!(matches!(table.facade("shop", &labels("orders"), "facade"), Facade::Ready(_)));
        table.stopped("old");
        match table.facade("shop", &labels("orders"), "facade") {
            Facade::NotReady { reason } => assert_eq!(reason, "Pod new: starting"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(table.facade("shop", &labels("nobody"), "facade"), Facade::Absent));
    }
}
