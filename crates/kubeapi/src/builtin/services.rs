//! Services, and the addresses they get. Requirement KA-010.
//!
//! Nothing routes to these addresses: the node resolves Services by name. They are there because clients and manifests
//! expect a Service to have one.

mod addresses;

use std::{collections::HashSet, ops::RangeInclusive};

use serde_json::{Map, Value, json};

pub use addresses::allocate;

use super::{
    strategy::templates::text,
    validation::{
        Field,
        services::{is_external, needs_health_check},
    },
};
use crate::field::{FieldError, FieldPath};

/// The address of the API server itself, the first of the range.
pub(crate) const API_SERVER: &str = "10.96.0.1";
/// The ports of the nodes that Services may have.
const NODE_PORTS: RangeInclusive<i64> = 30_000..=32_767;

pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = spec
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if spec.get("sessionAffinity").and_then(Value::as_str) == Some("None") {
        spec.remove("sessionAffinityConfig");
    } else if spec.get("sessionAffinity").and_then(Value::as_str) == Some("ClientIP") {
        let config = spec
            .entry("sessionAffinityConfig")
            .or_insert_with(|| json!({"clientIP": {"timeoutSeconds": 10800}}));
        if config.pointer("/clientIP/timeoutSeconds").is_none() {
            *config = json!({"clientIP": {"timeoutSeconds": 10800}});
        }
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(port) = port.as_object_mut() else {
            continue;
        };
        let is_unset = match port.get("targetPort") {
            None | Some(Value::Null) => true,
            Some(Value::String(name)) => name.is_empty(),
            Some(number) => number == 0,
        };
        if let (true, Some(number)) = (is_unset, port.get("port").cloned()) {
            port.insert("targetPort".to_owned(), number);
        }
    }
    let has_external = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|addresses| !addresses.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && has_external) {
        spec.entry("externalTrafficPolicy").or_insert(json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        spec.entry("allocateLoadBalancerNodePorts").or_insert(json!(true));
    }
    if kind != "ExternalName" {
        spec.entry("internalTrafficPolicy").or_insert(json!("Cluster"));
    }
}

/// Whether a Service has ports on the nodes.
fn has_node_ports(spec: &Map<String, Value>) -> bool {
    match spec.get("type").and_then(Value::as_str) {
        Some("NodePort") => true,
        Some("LoadBalancer") => spec.get("allocateLoadBalancerNodePorts") != Some(&Value::Bool(false)),
        _ => false,
    }
}

fn node_port(port: &Value) -> Option<i64> {
    port.get("nodePort")
        .and_then(Value::as_i64)
        .filter(|number| *number != 0)
}

/// The ports on the nodes that a Service has.
pub fn node_ports(service: &Value) -> Vec<i64> {
    service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(node_port)
        .collect()
}

/// Gives each port of a Service that is to be reached on the nodes one of them. `taken` are those of other Services.
///
/// # Errors
/// If a port asked for is outside the range or taken, or none is left.
pub fn allocate_node_ports(service: &mut Value, taken: &HashSet<i64>) -> Result<(), FieldError> {
    let mut taken = taken.clone();
    choose_node_ports(service, &mut taken)?;
    allocate_health_port(service, &taken)
}

fn choose_node_ports(service: &mut Value, taken: &mut HashSet<i64>) -> Result<(), FieldError> {
    let at = FieldPath::of("spec.ports");
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else {
        return Ok(());
    };
    if !has_node_ports(spec) {
        return Ok(());
    }
    let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else {
        return Ok(());
    };
    for (index, port) in ports.iter().enumerate() {
        let Some(number) = node_port(port) else { continue };
        let refuse = |detail: &str| {
            let path = at.index(index).child("nodePort");
            Err(FieldError::invalid(&path, json!(number), detail))
        };
        if !NODE_PORTS.contains(&number) {
            return refuse(
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        }
        // One number may serve two protocols of the same Service.
        if taken.contains(&number) {
            return refuse("provided port is already allocated");
        }
    }
    taken.extend(ports.iter().filter_map(node_port));
    for (index, port) in ports.iter_mut().enumerate() {
        if node_port(port).is_some() {
            continue;
        }
        let path = at.index(index).child("nodePort");
        let free = NODE_PORTS
            .clone()
            .find(|number| !taken.contains(number))
            .ok_or_else(|| {
                FieldError::invalid(&path, json!(0), "failed to allocate a nodePort: range is full")
            })?;
        taken.insert(free);
        if let Some(fields) = port.as_object_mut() {
            fields.insert("nodePort".to_owned(), json!(free));
        }
    }
    Ok(())
}

/// Gives a Service whose traffic stays on the nodes a port at which they say whether they take any.
fn allocate_health_port(service: &mut Value, taken: &HashSet<i64>) -> Result<(), FieldError> {
    let spec = Field::of(service, "spec");
    if !needs_health_check(&spec) || spec.number_of("healthCheckNodePort") != 0 {
        return Ok(());
    }
    let path = FieldPath::of("spec.healthCheckNodePort");
    let free = NODE_PORTS.clone().find(|number| !taken.contains(number));
    let free = free.ok_or_else(|| {
        FieldError::invalid(&path, json!(0), "failed to allocate a nodePort: range is full")
    })?;
    if let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("healthCheckNodePort".to_owned(), json!(free));
    }
    Ok(())
}

/// Keeps what the server chose and an update leaves out, and drops what its type no longer has if it was only sent back.
fn carry_traffic(spec: &mut Map<String, Value>, old: &Value) {
    let (now, before) = (Value::Object(spec.clone()), old);
    let (now, before) = (
        Field::new(&now, FieldPath::root()),
        Field::new(before, FieldPath::root()),
    );
    let is_sent_back = |name: &str| now.child(name).value == before.child(name).value;
    let port = "healthCheckNodePort";
    match (needs_health_check(&now), needs_health_check(&before)) {
        (true, true) if now.number_of(port) == 0 => {
            spec.insert(port.to_owned(), before.child(port).value.clone());
        }
        (false, true) if is_sent_back(port) => {
            spec.remove(port);
        }
        _ => {}
    }
    let was_balancer = before.text_of("type") == "LoadBalancer" && now.text_of("type") != "LoadBalancer";
    for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if was_balancer && is_sent_back(name) {
            spec.remove(name);
        }
    }
    if is_external(&before) && !is_external(&now) && is_sent_back("externalTrafficPolicy") {
        spec.remove("externalTrafficPolicy");
    }
}

/// Keeps the ports on the nodes that an update leaves out, and drops those of a Service that has none any more.
fn carry_node_ports(spec: &mut Map<String, Value>, old: &Value) {
    let keeps = has_node_ports(spec);
    let old_ports = old.get("ports").and_then(Value::as_array);
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let before = old_ports.into_iter().flatten().find(|before| {
            before.get("port") == port.get("port") && before.get("protocol") == port.get("protocol")
        });
        let inherited = before.and_then(node_port);
        let stated = node_port(port);
        let Some(fields) = port.as_object_mut() else {
            continue;
        };
        match (keeps, stated, inherited) {
            (true, None, Some(number)) => {
                fields.insert("nodePort".to_owned(), json!(number));
            }
            // It was only sent back as it was read.
            (false, Some(number), Some(before)) if number == before => {
                fields.remove("nodePort");
            }
            _ => {}
        }
    }
}

/// An update that leaves out what the server chose keeps it; a Service that needs no address any more loses it.
pub(super) fn prepare(object: &mut Value, old: Option<&Value>) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    if old.is_none() {
        fields.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
    let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let kind = spec
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let Some(old) = old.and_then(|old| old.get("spec")) else {
        return;
    };
    carry_node_ports(spec, old);
    carry_traffic(spec, old);
    if kind == "ExternalName" {
        let external_before = text(old, "type") == "ExternalName";
        let unchanged = spec.get("clusterIP") == old.get("clusterIP");
        if !external_before && unchanged {
            for name in [
                "clusterIP",
                "clusterIPs",
                "ipFamilies",
                "ipFamilyPolicy",
                "internalTrafficPolicy",
            ] {
                spec.remove(name);
            }
        }
        return;
    }
    let is_unset = spec
        .get("clusterIP")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .is_empty();
    if is_unset && text(old, "type") != "ExternalName" {
        for name in ["clusterIP", "clusterIPs"] {
            if let Some(value) = old.get(name) {
                spec.insert(name.to_owned(), value.clone());
            }
        }
    } else if let Some(address) = spec.get("clusterIP").cloned()
        && is_left_behind(spec, old)
    {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
}

/// Whether the list of addresses is not there, or was only sent back beside another address.
fn is_left_behind(spec: &Map<String, Value>, old: &Value) -> bool {
    let list = spec.get("clusterIPs");
    let is_empty = list.is_none_or(|list| list.as_array().is_none_or(Vec::is_empty));
    is_empty || (list == old.get("clusterIPs") && spec.get("clusterIP") != old.get("clusterIP"))
}
