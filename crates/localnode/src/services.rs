//! Services: from a host name to a live endpoint. What kube-proxy and the cluster's DNS do together.
//!
//! The table is in memory, and it is right at once, because the Pods are in this process; what `endpoints` writes is for
//! others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use mainstay_workload::{Resolution, ServiceResolver};
use tokio_util::sync::CancellationToken;

use crate::pods::{PodTable, PortReference};

/// On a Service: `HOST:PORT` of a program that the user runs, to which the Service leads instead of to Pods.
pub const LOCAL_ADDRESS: &str = "mainstay.dev/local-address";

/// Keeps the Services in memory.
pub(crate) struct ServiceWatch {
    writer: reflector::store::Writer<Service>,
}

/// Resolves names of Services. Knows them once [`ServiceWatch`] has listed them.
#[derive(Clone)]
pub struct Services {
    services: Store<Service>,
    pods: PodTable,
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
    (ServiceWatch { writer }, Services { services, pods })
}

impl ServiceWatch {
    pub(crate) async fn run(self, client: Client, cancellation: CancellationToken) {
        let services = Api::<Service>::all(client);
        let watch = watcher(services, watcher::Config::default())
            .default_backoff()
            .reflect(self.writer)
            .for_each(|event| {
                if let Err(error) = event {
                    tracing::warn!(%error, "the watch for Services was interrupted");
                }
                futures::future::ready(())
            });
        cancellation.run_until_cancelled(watch).await;
    }
}

/// A host name taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Name<'a> {
    service: &'a str,
    namespace: &'a str,
    /// Only a Service can have this name: it ends in `.svc` or `.svc.cluster.local`.
    certain: bool,
}

fn parse<'a>(host: &'a str, from_namespace: &'a str) -> Option<Name<'a>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    let (rest, certain) = match host
        .strip_suffix(".svc.cluster.local")
        .or_else(|| host.strip_suffix(".svc"))
    {
        Some(rest) => (rest, true),
        None => (host, false),
    };
    let mut labels = rest.split('.');
    let (service, namespace) = match (labels.next(), labels.next(), labels.next()) {
        (Some(service), Some(namespace), None) => (service, namespace),
        (Some(service), None, None) if !certain => (service, from_namespace),
        _ => return None,
    };
    (!service.is_empty() && !namespace.is_empty()).then_some(Name {
        service,
        namespace,
        certain,
    })
}

impl ServiceResolver for Services {
    fn resolve(&self, host: &str, port: u16, from_namespace: &str) -> Resolution {
        let host = host.to_ascii_lowercase();
        let Some(name) = parse(&host, from_namespace) else {
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

fn resolve(service: &Service, port: u16, pods: &PodTable) -> Resolution {
    let namespace = service.namespace().unwrap_or_default();
    let none = || Resolution::NoEndpoint {
        service: format!("{namespace}/{}", service.name_any()),
    };
    if let Some(address) = service.annotations().get(LOCAL_ADDRESS) {
        return match local_address(address) {
            Some(address) => Resolution::Endpoint(address),
            None => {
                tracing::warn!(
                    service = %service.name_any(), %namespace, annotation = LOCAL_ADDRESS, value = %address,
                    "the annotation is no HOST:PORT with an address or localhost"
                );
                none()
            }
        };
    }
    let Some(spec) = &service.spec else { return none() };
    if spec.type_.as_deref() == Some("ExternalName") {
        return match &spec.external_name {
            Some(host) => Resolution::External { host: host.clone() },
            None => none(),
        };
    }
    let Some(selector) = spec.selector.as_ref().filter(|selector| !selector.is_empty()) else {
        return none();
    };
    let headless = spec.cluster_ip.as_deref() == Some("None");
    let ports = spec.ports.as_deref().unwrap_or_default();
    let target = match ports.iter().find(|candidate| candidate.port == i32::from(port)) {
        // A headless Service's name stands for the Pods themselves, so the port is theirs.
        _ if headless => PortReference::Number(port),
        Some(found) => match &found.target_port {
            Some(IntOrString::String(name)) => PortReference::Name(name.clone()),
            Some(IntOrString::Int(number)) if *number != 0 => match u16::try_from(*number) {
                Ok(number) => PortReference::Number(number),
                Err(_) => return none(),
            },
            _ => PortReference::Number(port),
        },
        None => return none(),
    };
    let matches = |labels: &std::collections::BTreeMap<String, String>| {
        selector
            .iter()
            .all(|(name, value)| labels.get(name) == Some(value))
    };
    pods.address(&namespace, matches, &target)
        .map_or_else(none, Resolution::Endpoint)
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
