//! What a Service's endpoints are: a pure function from its Pods and their live ports.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort as PlainPort, EndpointSubset, Endpoints, ObjectReference, Pod, Service,
    ServicePort,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use sha2::{Digest, Sha256};

use crate::pods::{LivePort, PodTable, PortReference};
use crate::{FIELD_MANAGER, owner, replica_set};

const SERVICE_NAME: &str = "kubernetes.io/service-name";
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// The most endpoints of one slice.
const SLICE: usize = 100;

/// What shall be there.
pub(super) struct Wanted {
    pub(super) slices: Vec<EndpointSlice>,
    pub(super) endpoints: Endpoints,
}

/// The labels of the slices that are written here for a Service.
pub(super) fn slice_selector(service: &str) -> String {
    format!("{SERVICE_NAME}={service},{MANAGED_BY}={FIELD_MANAGER}")
}

pub(super) fn is_ours(endpoints: &Endpoints) -> bool {
    endpoints
        .labels()
        .get(ENDPOINTS_MANAGED_BY)
        .is_some_and(|manager| manager == FIELD_MANAGER)
}

/// The selector of a Service that leads to Pods.
pub(super) fn selector(service: &Service) -> Option<&BTreeMap<String, String>> {
    let spec = service.spec.as_ref()?;
    let selector = spec.selector.as_ref().filter(|selector| !selector.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then_some(selector)
}

pub(super) fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(name, value)| labels.get(name) == Some(value))
}

/// Name, number and protocol of each port.
type Ports = Vec<(String, i32, String)>;

pub(super) fn plan(service: &Service, pods: &[Pod], table: &PodTable) -> Wanted {
    let spec = service.spec.clone().unwrap_or_default();
    let ports = spec.ports.unwrap_or_default();
    let even_unready = spec.publish_not_ready_addresses == Some(true);
    let mut groups: BTreeMap<Ports, Vec<Endpoint>> = BTreeMap::new();
    let mut pods: Vec<&Pod> = pods.iter().collect();
    pods.sort_by_key(|pod| pod.name_any());
    for pod in pods {
        if let Some(endpoint) = endpoint(pod, even_unready) {
            let live = ports.iter().filter_map(|port| live_port(pod, port, table));
            groups.entry(live.collect()).or_default().push(endpoint);
        }
    }
    let subsets: Vec<EndpointSubset> = groups
        .iter()
        .map(|(ports, endpoints)| subset(ports, endpoints))
        .collect();
    let endpoints = Endpoints {
        metadata: metadata(
            service,
            service.name_any(),
            &[(ENDPOINTS_MANAGED_BY, FIELD_MANAGER)],
        ),
        subsets: Some(subsets).filter(|subsets| !subsets.is_empty()),
    };
    let slices = groups.iter().flat_map(|(ports, endpoints)| {
        let parts = endpoints.chunks(SLICE).enumerate();
        parts.map(move |(part, endpoints)| slice(service, ports, part, endpoints))
    });
    Wanted {
        slices: slices.collect(),
        endpoints,
    }
}

fn endpoint(pod: &Pod, even_unready: bool) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.clone().filter(|address| !address.is_empty())?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let serving = replica_set::ready_since(pod).is_some();
    let terminating = pod.metadata.deletion_timestamp.is_some();
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(even_unready || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

/// Where a Pod answers for a port of the Service; `None` if it does not.
fn live_port(pod: &Pod, port: &ServicePort, table: &PodTable) -> Option<(String, i32, String)> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let name = port.name.clone().unwrap_or_default();
    let number = match &port.target_port {
        Some(IntOrString::String(name)) => container_port(pod, name)?,
        Some(IntOrString::Int(number)) if *number != 0 => *number,
        _ => port.port,
    };
    let reference = match &port.target_port {
        Some(IntOrString::String(name)) => PortReference::Name(name.clone()),
        _ => PortReference::Number(u16::try_from(number).ok()?),
    };
    let uid = pod.uid().unwrap_or_default();
    match table.live_port(&uid, &reference) {
        LivePort::Here(live) => Some((name, i32::from(live), protocol)),
        LivePort::Closed => None,
        LivePort::Elsewhere => Some((name, number, protocol)),
    }
}

fn container_port(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports
        .find(|port| port.name.as_deref() == Some(name))
        .map(|port| port.container_port)
}

fn metadata(service: &Service, name: String, labels: &[(&str, &str)]) -> ObjectMeta {
    let mut all = service.labels().clone();
    all.extend(
        labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    ObjectMeta {
        name: Some(name),
        namespace: service.namespace(),
        labels: Some(all),
        owner_references: owner::controller_reference(service).map(|reference| vec![reference]),
        ..ObjectMeta::default()
    }
}

fn slice(service: &Service, ports: &Ports, part: usize, endpoints: &[Endpoint]) -> EndpointSlice {
    let name = service.name_any();
    let own = format!("{}/{ports:?}/{part}", service.uid().unwrap_or_default());
    let suffix: String = Sha256::digest(own.as_bytes())
        .iter()
        .take(5)
        .map(|byte| char::from(b"bcdfghjklmnpqrstvwxz2456789"[usize::from(*byte) % 27]))
        .collect();
    // The name of a Service fits into a label, and that of a slice need not.
    let labels = [(SERVICE_NAME, name.as_str()), (MANAGED_BY, FIELD_MANAGER)];
    EndpointSlice {
        metadata: metadata(service, format!("{name}-{suffix}"), &labels),
        address_type: "IPv4".to_owned(),
        endpoints: endpoints.to_vec(),
        ports: Some(
            ports
                .iter()
                .map(|(name, number, protocol)| EndpointPort {
                    name: Some(name.clone()),
                    port: Some(*number),
                    protocol: Some(protocol.clone()),
                    ..EndpointPort::default()
                })
                .collect::<Vec<_>>(),
        )
        .filter(|ports| !ports.is_empty()),
    }
}

fn subset(ports: &Ports, endpoints: &[Endpoint]) -> EndpointSubset {
    let addresses = |ready: bool| {
        let chosen = endpoints.iter().filter(|endpoint| {
            endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                == Some(ready)
        });
        let addresses: Vec<EndpointAddress> = chosen
            .map(|endpoint| EndpointAddress {
                ip: endpoint.addresses.first().cloned().unwrap_or_default(),
                node_name: endpoint.node_name.clone(),
                target_ref: endpoint.target_ref.clone(),
                hostname: None,
            })
            .collect();
        Some(addresses).filter(|addresses| !addresses.is_empty())
    };
    let plain = ports.iter().map(|(name, number, protocol)| PlainPort {
        name: Some(name.clone()).filter(|name| !name.is_empty()),
        port: *number,
        protocol: Some(protocol.clone()),
        app_protocol: None,
    });
    EndpointSubset {
        addresses: addresses(true),
        not_ready_addresses: addresses(false),
        ports: Some(plain.collect::<Vec<_>>()).filter(|ports| !ports.is_empty()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::{DeclaredPort, PodDescription};

    #[test]
    fn pods_of_this_process_are_named_with_the_ports_they_listen_on() {
        // KA-050
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "s" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] },
        }))
        .unwrap();
        let pod = |name: &str, ready: &str, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": { "name": name, "namespace": "default", "uid": name },
                "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8080 }] }] },
                "status": { "phase": phase, "podIP": "127.0.0.1", "conditions": [{ "type": "Ready", "status": ready }] },
            }))
            .unwrap()
        };
        let table = PodTable::new();
        for name in ["here", "closed"] {
            let declared = vec![DeclaredPort {
                container: "c".to_owned(),
                name: "http".to_owned(),
                number: 8080,
            }];
            table.describe(
                name,
                PodDescription {
                    declared,
                    ..PodDescription::default()
                },
            );
        }
        table.listening("here", "c", "http", ([127, 0, 0, 1], 4000).into());
        let pods = [
            pod("here", "True", "Running"),
            pod("closed", "True", "Running"),
            pod("elsewhere", "False", "Running"),
            pod("over", "False", "Succeeded"),
        ];
        let wanted = plan(&service, &pods, &table);
        let found: Vec<(Option<i32>, bool)> = wanted
            .slices
            .iter()
            .map(|slice| {
                let port = slice.ports.as_ref().and_then(|ports| ports[0].port);
                (
                    port,
                    slice.endpoints[0].conditions.as_ref().unwrap().ready.unwrap(),
                )
            })
            .collect();
        assert_eq!(found, [(None, true), (Some(4000), true), (Some(8080), false)]);
        let subsets = wanted.endpoints.subsets.unwrap();
        assert_eq!(subsets.len(), 3);
        assert!(subsets[2].addresses.is_none() && subsets[2].not_ready_addresses.is_some());
        let names: std::collections::BTreeSet<String> =
            wanted.slices.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names.len(), 3, "slices have names of their own");
        assert_eq!(owner::controller_of(&wanted.slices[0]).unwrap().uid, "s");
    }

    #[test]
    fn services_without_a_selector_or_of_another_name_have_none() {
        let service = |spec: serde_json::Value| -> Service {
            serde_json::from_value(json!({ "metadata": { "name": "s" }, "spec": spec })).unwrap()
        };
        assert!(selector(&service(json!({}))).is_none());
        assert!(selector(&service(json!({ "selector": {} }))).is_none());
        assert!(
            selector(&service(
                json!({ "type": "ExternalName", "selector": { "a": "b" } })
            ))
            .is_none()
        );
        assert!(selector(&service(json!({ "selector": { "a": "b" } }))).is_some());
    }
}
