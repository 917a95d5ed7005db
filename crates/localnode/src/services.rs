//! Services: from a host name to a live endpoint. What kube-proxy and the cluster's DNS do together.
//!
//! The table is in memory, and it is right at once, because the Pods are in this process; what `endpoints` writes is for
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_workload::process::{Route, ServiceRoute};
use mainstay_workload::service_name::ServiceName;
use mainstay_workload::{Resolution, ServiceResolver};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pods::{Endpoint, PodTable, PortReference};

/// On a Service: `HOST:PORT` of a program that the user runs, to which the Service leads instead of to Pods.
pub const LOCAL_ADDRESS: &str = "mainstay.dev/local-address";

/// Keeps the Services in memory.
pub(crate) struct ServiceWatch {
    writer: reflector::store::Writer<Service>,
    changes: watch::Sender<u64>,
}

/// Resolves names of Services. Knows them once [`ServiceWatch`] has listed them.
#[derive(Clone)]
pub struct Services {
    services: Store<Service>,
    pods: PodTable,
    changes: watch::Sender<u64>,
}

impl std::fmt::Debug for Services {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Services")
            .field("services", &self.services.len())
            .finish_non_exhaustive()
    }
}

pub(crate) fn new(pods: PodTable) -> (ServiceWatch, Services) {
    let (services, writer) = reflector::store();
    let changes = watch::Sender::new(0);
    let services = Services {
        services,
        pods,
        changes: changes.clone(),
    };
    (ServiceWatch { writer, changes }, services)
}

impl ServiceWatch {
    pub(crate) async fn run(self, client: Client, cancellation: CancellationToken) {
        let services = Api::<Service>::all(client);
        let watch = watcher(services, watcher::Config::default())
            .default_backoff()
            .reflect(self.writer)
            .for_each(|event| {
                match event {
                    Ok(_) => self.changes.send_modify(|count| *count += 1),
                    Err(error) => tracing::warn!(%error, "the watch for Services was interrupted"),
                }
                futures::future::ready(())
            });
        cancellation.run_until_cancelled(watch).await;
    }
}

impl Services {
    /// Where all Services lead now, in the order of their names: for a workload that looks names up in another process.
    pub(crate) fn routes(&self) -> Vec<ServiceRoute> {
        let mut routes: Vec<ServiceRoute> = self
            .services
            .state()
            .iter()
            .filter_map(|service| {
                Some(ServiceRoute {
                    namespace: service.namespace().unwrap_or_default(),
                    name: service.name_any(),
                    route: route(service, &self.pods)?,
                })
            })
            .collect();
        routes.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
        routes
    }

    /// Where a Service's port leads now; `None` where that is nowhere, or a host outside.
    pub(crate) fn endpoint(&self, namespace: &str, name: &str, port: u16) -> Option<Endpoint> {
        let reference = ObjectRef::<Service>::new(name).within(namespace);
        let service = self.services.get(&reference)?;
        match target(&service) {
            Target::Address(address) => Some(Endpoint::Address(address)),
            Target::Host(_) | Target::Nothing => None,
            Target::Pods(selector) => self.pods.serving_endpoint(
                namespace,
                |labels| selects(selector, labels),
                &port_of(&service, port)?,
            ),
        }
    }

    /// Changes whenever a Service may lead elsewhere.
    pub(crate) fn changes(&self) -> Changes {
        let mut changes = Changes {
            services: self.changes.subscribe(),
            pods: self.pods.changes(),
        };
        // Whoever asks looks at the routes first.
        changes.services.mark_changed();
        changes
    }
}

/// Says that a Service may lead elsewhere.
pub(crate) struct Changes {
    services: watch::Receiver<u64>,
    pods: watch::Receiver<u64>,
}

impl Changes {
    /// Returns once something has changed since the last time; an error means that nothing will any more.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        tokio::select! {
            changed = self.services.changed() => changed,
            changed = self.pods.changed() => changed,
        }
    }
}

impl ServiceResolver for Services {
    fn resolve(&self, host: &str, port: u16, from_namespace: &str) -> Resolution {
        let host = host.to_ascii_lowercase();
        let Some(name) = ServiceName::parse(&host, from_namespace) else {
            return Resolution::NotAService;
        };
        let reference = ObjectRef::<Service>::new(name.service).within(name.namespace);
        match self.services.get(&reference) {
            Some(service) => resolve(&service, port, &self.pods),
            None if name.certain => Resolution::NoEndpoint {
                service: format!("{}/{}", name.namespace, name.service),
            },
            None => Resolution::NotAService,
        }
    }
}

/// Where a Service leads.
enum Target<'a> {
    /// To one address, whatever the port.
    Address(SocketAddr),
    /// It is another name for this host.
    Host(&'a str),
    /// To the Pods with these labels.
    Pods(&'a BTreeMap<String, String>),
    /// Nowhere.
    Nothing,
}

fn target(service: &Service) -> Target<'_> {
    if let Some(address) = service.annotations().get(LOCAL_ADDRESS) {
        return match local_address(address) {
            Some(address) => Target::Address(address),
            None => {
                tracing::warn!(
                    service = %service.name_any(), namespace = ?service.namespace(), annotation = LOCAL_ADDRESS, value = %address,
                    "the annotation is no HOST:PORT with an address or localhost"
                );
                Target::Nothing
            }
        };
    }
    let Some(spec) = &service.spec else {
        return Target::Nothing;
    };
    if spec.type_.as_deref() == Some("ExternalName") {
        return spec
            .external_name
            .as_deref()
            .map_or(Target::Nothing, Target::Host);
    }
    match spec.selector.as_ref().filter(|selector| !selector.is_empty()) {
        Some(selector) => Target::Pods(selector),
        None => Target::Nothing,
    }
}

/// The port of the Pods that a Service's port leads to.
fn port_of(service: &Service, port: u16) -> Option<PortReference> {
    let spec = service.spec.as_ref()?;
    let ports = spec.ports.as_deref().unwrap_or_default();
    if is_headless(service) {
        // A headless Service's name stands for the Pods themselves, so the port is theirs.
        return Some(PortReference::Number(port));
    }
    let found = ports.iter().find(|candidate| candidate.port == i32::from(port))?;
    match &found.target_port {
        Some(IntOrString::String(name)) => Some(PortReference::Name(name.clone())),
        Some(IntOrString::Int(number)) if *number != 0 => {
            u16::try_from(*number).ok().map(PortReference::Number)
        }
        _ => Some(PortReference::Number(port)),
    }
}

fn is_headless(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    spec.and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

fn resolve(service: &Service, port: u16, pods: &PodTable) -> Resolution {
    let namespace = service.namespace().unwrap_or_default();
    let none = || Resolution::NoEndpoint {
        service: format!("{namespace}/{}", service.name_any()),
    };
    match target(service) {
        Target::Address(address) => Resolution::Endpoint(address),
        Target::Host(host) => Resolution::External {
            host: host.to_owned(),
        },
        Target::Nothing => none(),
        Target::Pods(selector) => port_of(service, port)
            .and_then(|port| pods.address(&namespace, |labels| selects(selector, labels), &port))
            .map_or_else(none, Resolution::Endpoint),
    }
}

/// The same for all ports at once. A Service that leads nowhere has no ports.
fn route(service: &Service, pods: &PodTable) -> Option<Route> {
    let namespace = service.namespace().unwrap_or_default();
    Some(match target(service) {
        Target::Address(address) => Route::Address(address),
        Target::Host(host) => Route::Host(host.to_owned()),
        Target::Nothing => Route::Ports(BTreeMap::new()),
        Target::Pods(selector) => {
            let matches = |labels: &BTreeMap<String, String>| selects(selector, labels);
            let ports: BTreeSet<u16> = if is_headless(service) {
                pods.declared_numbers(&namespace, matches)
            } else {
                let ports = service.spec.as_ref()?.ports.as_deref().unwrap_or_default();
                ports
                    .iter()
                    .filter_map(|port| u16::try_from(port.port).ok())
                    .collect()
            };
            let addresses = |port: u16| {
                let reference = port_of(service, port)?;
                Some((port, pods.addresses(&namespace, matches, &reference)))
            };
            Route::Ports(ports.into_iter().filter_map(addresses).collect())
        }
    })
}

fn local_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let port = text.strip_prefix("localhost:")?.parse().ok()?;
    Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::{DeclaredPort, PodDescription};

    fn resolver(services: &[serde_json::Value]) -> Services {
        let pods = PodTable::new();
        let described = PodDescription {
            namespace: "shop".to_owned(),
            pod: "orders-1".to_owned(),
            labels: [("app".to_owned(), "orders".to_owned())].into(),
            created: None,
            serves: true,
            waits: String::new(),
            declared: vec![DeclaredPort {
                container: "c".to_owned(),
                name: "http".to_owned(),
                number: 8080,
            }],
        };
        pods.describe("uid", described);
        pods.listening("uid", "c", "http", address(4000));
        let (store, mut writer) = reflector::store();
        for service in services {
            let service: Service = serde_json::from_value(service.clone()).unwrap();
            writer.apply_watcher_event(&watcher::Event::Apply(service));
        }
        Services {
            services: store,
            pods,
            changes: watch::Sender::new(0),
        }
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
    }

    fn service(name: &str, spec: serde_json::Value) -> serde_json::Value {
        json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": spec })
    }

    #[test]
    fn all_forms_of_a_services_name_lead_to_a_live_endpoint() {
        let ports = json!([{ "port": 80, "targetPort": "http" }, { "port": 81, "targetPort": 8080 }, { "port": 8080 }]);
        let orders = service(
            "orders",
            json!({ "selector": { "app": "orders" }, "ports": ports }),
        );
        let resolver = resolver(&[orders]);
        let live = Resolution::Endpoint(address(4000));
        for (host, port, from) in [
            ("orders", 80, "shop"),
            ("ORDERS", 81, "shop"),
            ("orders.shop", 8080, "elsewhere"),
            ("orders.shop.svc", 80, "elsewhere"),
            ("orders.shop.svc.cluster.local", 80, "elsewhere"),
            ("orders.shop.svc.cluster.local.", 80, "elsewhere"),
        ] {
            assert_eq!(
                resolver.resolve(host, port, from),
                live,
                "{host}:{port} from {from}"
            );
        }
        let none = Resolution::NoEndpoint {
            service: "shop/orders".to_owned(),
        };
        assert_eq!(resolver.resolve("orders", 9999, "shop"), none);
        for (host, from) in [
            ("orders", "elsewhere"),
            ("example.com", "shop"),
            ("a.b.c.d", "shop"),
            ("localhost", "shop"),
        ] {
            assert_eq!(
                resolver.resolve(host, 80, from),
                Resolution::NotAService,
                "{host} from {from}"
            );
        }
        let missing = Resolution::NoEndpoint {
            service: "shop/missing".to_owned(),
        };
        assert_eq!(resolver.resolve("missing.shop.svc", 80, "shop"), missing);
    }

    #[test]
    fn a_process_finds_by_the_routes_what_is_found_here() {
        let ports = json!([{ "port": 80, "targetPort": "http" }, { "port": 82, "targetPort": "other" }, { "port": 8080 }]);
        let mut local = service("local", json!({ "ports": [{ "port": 80 }] }));
        local["metadata"]["annotations"] = json!({ LOCAL_ADDRESS: "localhost:9000" });
        let mut broken = local.clone();
        broken["metadata"]["name"] = json!("broken");
        broken["metadata"]["annotations"] = json!({ LOCAL_ADDRESS: "nowhere" });
        let here = resolver(&[
            service(
                "orders",
                json!({ "selector": { "app": "orders" }, "ports": ports }),
            ),
            service(
                "nobody",
                json!({ "selector": { "app": "nobody" }, "ports": ports }),
            ),
            service("bare", json!({ "ports": ports })),
            service(
                "headless",
                json!({ "clusterIP": "None", "selector": { "app": "orders" } }),
            ),
            service(
                "external",
                json!({ "type": "ExternalName", "externalName": "api.example.com" }),
            ),
            local,
            broken,
        ]);
        let there = mainstay_workload::process::RouteTable::new(here.routes());
        for name in [
            "orders",
            "nobody",
            "bare",
            "headless",
            "external",
            "local",
            "broken",
            "missing",
            "orders.shop.svc",
            "missing.shop.svc",
            "example.com",
        ] {
            for port in [80, 82, 443, 8080] {
                let found = (
                    here.resolve(name, port, "shop"),
                    there.resolve(name, port, "shop"),
                );
                assert_eq!(found.0, found.1, "{name}:{port}");
            }
        }
    }

    #[test]
    fn a_connection_through_a_service_ends_where_its_name_leads_ka_052() {
        let ports = json!([{ "port": 80, "targetPort": "http" }, { "port": 82, "targetPort": "facade" }]);
        let mut local = service("local", json!({ "ports": [{ "port": 80 }] }));
        local["metadata"]["annotations"] = json!({ LOCAL_ADDRESS: "localhost:9000" });
        let services = resolver(&[
            service(
                "orders",
                json!({ "selector": { "app": "orders" }, "ports": ports }),
            ),
            service(
                "outside",
                json!({ "type": "ExternalName", "externalName": "example.com" }),
            ),
            local,
        ]);
        assert!(services.pods.serve("uid", "c", "facade", axum::Router::new()));
        let found = |name: &str, port| match services.endpoint("shop", name, port) {
            Some(Endpoint::Address(address)) => format!("{address}"),
            Some(Endpoint::Router(_)) => "router".to_owned(),
            None => "nowhere".to_owned(),
        };
        assert_eq!(found("orders", 80), "127.0.0.1:4000");
        assert_eq!(found("orders", 82), "router");
        assert_eq!(found("orders", 83), "nowhere");
        assert_eq!(found("local", 80), "127.0.0.1:9000");
        assert_eq!(found("outside", 80), "nowhere");
        assert_eq!(found("missing", 80), "nowhere");
    }

    #[test]
    fn a_service_without_ready_pods_has_no_endpoint() {
        let ports = json!([{ "port": 80 }]);
        let resolver = resolver(&[
            service(
                "nobody",
                json!({ "selector": { "app": "nobody" }, "ports": ports }),
            ),
            service("bare", json!({ "ports": ports })),
        ]);
        for name in ["nobody", "bare"] {
            let none = Resolution::NoEndpoint {
                service: format!("shop/{name}"),
            };
            assert_eq!(resolver.resolve(name, 80, "shop"), none);
        }
    }

    #[test]
    fn headless_external_and_local_services_lead_where_they_say() {
        let mut local = service("local", json!({ "ports": [{ "port": 80 }] }));
        local["metadata"]["annotations"] = json!({ LOCAL_ADDRESS: "localhost:9000" });
        let mut broken = local.clone();
        broken["metadata"]["name"] = json!("broken");
        broken["metadata"]["annotations"] = json!({ LOCAL_ADDRESS: "nowhere" });
        let resolver = resolver(&[
            service(
                "headless",
                json!({ "clusterIP": "None", "selector": { "app": "orders" } }),
            ),
            service(
                "external",
                json!({ "type": "ExternalName", "externalName": "api.example.com" }),
            ),
            local,
            broken,
        ]);
        assert_eq!(
            resolver.resolve("headless", 8080, "shop"),
            Resolution::Endpoint(address(4000))
        );
        let external = Resolution::External {
            host: "api.example.com".to_owned(),
        };
        assert_eq!(resolver.resolve("external", 443, "shop"), external);
        assert_eq!(
            resolver.resolve("local", 80, "shop"),
            Resolution::Endpoint(address(9000))
        );
        let none = Resolution::NoEndpoint {
            service: "shop/broken".to_owned(),
        };
        assert_eq!(resolver.resolve("broken", 80, "shop"), none);
    }
}
