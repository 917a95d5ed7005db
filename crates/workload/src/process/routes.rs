//! Where Services lead, as the server tells a process: the process looks names up by itself, without asking each time.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use crate::{Resolution, ServiceResolver, service_name::ServiceName};

/// Where one Service leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceRoute {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Where it leads.
    pub route: Route,
}

/// Where a Service leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Route {
    /// To Pods: the live addresses behind each of its ports.
    Ports(BTreeMap<u16, Vec<SocketAddr>>),
    /// To one address, whatever the port.
    Address(SocketAddr),
    /// It is another name for this host.
    Host(String),
}

/// The Services as they were told last. Clones share them.
#[derive(Clone, Debug)]
pub struct RouteTable {
    // A std lock: held for look-ups, never across an await. Written by the one who listens to the server.
    routes: Arc<RwLock<HashMap<(String, String), Route>>>,
    turn: Arc<AtomicUsize>,
}

impl RouteTable {
    /// A table of `services`.
    pub fn new(services: Vec<ServiceRoute>) -> Self {
        let table = Self {
            routes: Arc::default(),
            turn: Arc::default(),
        };
        table.replace(services);
        table
    }

    /// From now on these are all Services.
    pub fn replace(&self, services: Vec<ServiceRoute>) {
        let routes = services
            .into_iter()
            .map(|service| ((service.namespace, service.name), service.route))
            .collect();
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = routes;
    }
}

impl ServiceResolver for RouteTable {
    fn resolve(&self, host: &str, port: u16, from_namespace: &str) -> Resolution {
        let host = host.to_ascii_lowercase();
        let Some(name) = ServiceName::parse(&host, from_namespace) else {
            return Resolution::NotAService;
        };
        let none = || Resolution::NoEndpoint {
            service: format!("{}/{}", name.namespace, name.service),
        };
        let routes = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        match routes.get(&(name.namespace.to_owned(), name.service.to_owned())) {
            None if name.certain => none(),
            None => Resolution::NotAService,
            Some(Route::Address(address)) => Resolution::Endpoint(*address),
            Some(Route::Host(host)) => Resolution::External { host: host.clone() },
            Some(Route::Ports(ports)) => {
                let found = ports.get(&port).map(Vec::as_slice).unwrap_or_default();
                // Each in turn.
                let turn = self.turn.fetch_add(1, Ordering::Relaxed);
                let chosen = turn.checked_rem(found.len()).and_then(|index| found.get(index));
                chosen.map_or_else(none, |address| Resolution::Endpoint(*address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, port).into()
    }

    #[test]
    fn names_lead_where_the_server_said_last() {
        let service = |name: &str, route| ServiceRoute {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            route,
        };
        let table = RouteTable::new(vec![
            service(
                "orders",
                Route::Ports([(80, vec![address(1), address(2)]), (81, vec![])].into()),
            ),
            service("local", Route::Address(address(3))),
            service("elsewhere", Route::Host("api.example".to_owned())),
        ]);
        let at = |host: &str, port| table.resolve(host, port, "shop");
        let mut seen = vec![at("orders", 80), at("Orders.shop.svc", 80)];
        seen.sort_by_key(|found| format!("{found:?}"));
        assert_eq!(
            seen,
            [Resolution::Endpoint(address(1)), Resolution::Endpoint(address(2))]
        );
        let none = Resolution::NoEndpoint {
            service: "shop/orders".to_owned(),
        };
        assert_eq!((at("orders", 81), at("orders", 82)), (none.clone(), none.clone()));
        assert_eq!(at("local", 9), Resolution::Endpoint(address(3)));
        let host = "api.example".to_owned();
        assert_eq!(at("elsewhere", 443), Resolution::External { host });
        assert_eq!(at("example.com", 80), Resolution::NotAService);
        table.replace(Vec::new());
        assert_eq!(
            (at("orders", 80), at("orders.shop.svc", 80)),
            (Resolution::NotAService, none)
        );
    }
}
