//! Services and what is behind and before them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::object::{at, list, number, text, text_or};
use super::workload::{labels_text, selector_text};
use super::{Row, some_of};

pub(super) fn service(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let ports: Vec<String> = list(object, "/spec/ports")
        .iter()
        .map(|port| {
            let (number, node_port) = (number(port, "/port"), number(port, "/nodePort"));
            let protocol = text(port, "/protocol");
            if node_port > 0 {
                format!("{number}:{node_port}/{protocol}")
            } else {
                format!("{number}/{protocol}")
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    vec![
        row.name(),
        json!(text(object, "/spec/type")),
        json!(text_or(object, "/spec/clusterIPs/0", "<none>")),
        json!(external_addresses(object)),
        json!(ports),
        row.age(),
        json!(labels_text(at(object, "/spec/selector"))),
    ]
}

fn external_addresses(object: &Value) -> String {
    let external: Vec<&str> = list(object, "/spec/externalIPs")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    match text(object, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external.join(","),
        "LoadBalancer" => {
            let balancer = load_balancer(object);
            let all: Vec<&str> = balancer.iter().map(String::as_str).chain(external).collect();
            if all.is_empty() {
                "<pending>".to_owned()
            } else {
                all.join(",")
            }
        }
        "ExternalName" => text(object, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The addresses of a load balancer, sorted.
fn load_balancer(object: &Value) -> Vec<String> {
    let addresses: BTreeSet<String> = list(object, "/status/loadBalancer/ingress")
        .iter()
        .map(|ingress| text_or(ingress, "/ip", text(ingress, "/hostname")).to_owned())
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect()
}

pub(super) fn endpoints(row: &Row<'_>) -> Vec<Value> {
    let subsets = list(row.object, "/subsets");
    let mut all = Vec::new();
    for subset in subsets {
        let addresses = || {
            list(subset, "/addresses")
                .iter()
                .map(|address| text(address, "/ip"))
        };
        let ports = list(subset, "/ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = number(port, "/port");
            all.extend(addresses().map(|address| join_host_port(address, port)));
        }
    }
    let shown = if subsets.is_empty() {
        "<none>".to_owned()
    } else {
        some_of(&all, 3, ",")
    };
    vec![row.name(), json!(shown), row.age()]
}

fn join_host_port(address: &str, port: i64) -> String {
    if address.contains(':') {
        format!("[{address}]:{port}")
    } else {
        format!("{address}:{port}")
    }
}

pub(super) fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
    let ports: Vec<String> = list(row.object, "/ports")
        .iter()
        .map(|port| match at(port, "/port").as_i64() {
            Some(number) => number.to_string(),
            None => at(port, "/name").as_str().unwrap_or("*").to_owned(),
        })
        .collect();
    let addresses: Vec<String> = list(row.object, "/endpoints")
        .iter()
        .flat_map(|endpoint| list(endpoint, "/addresses"))
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let shown = |list: &[String]| match some_of(list, 3, ",") {
        text if text.is_empty() => "<unset>".to_owned(),
        text => text,
    };
    vec![
        row.name(),
        json!(text(row.object, "/addressType")),
        json!(shown(&ports)),
        json!(shown(&addresses)),
        row.age(),
    ]
}

pub(super) fn ingress(row: &Row<'_>) -> Vec<Value> {
    let object = row.object;
    let rules = list(object, "/spec/rules");
    let hosts: Vec<&str> = rules
        .iter()
        .map(|rule| text(rule, "/host"))
        .filter(|host| !host.is_empty())
        .take(3)
        .collect();
    let hosts = match hosts.as_slice() {
        [] => "*".to_owned(),
        shown if shown.len() == 3 && rules.len() > 3 => {
            format!("{} + {} more...", shown.join(","), rules.len() - 3)
        }
        shown => shown.join(","),
    };
    let ports = if list(object, "/spec/tls").is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        row.name(),
        json!(text_or(object, "/spec/ingressClassName", "<none>")),
        json!(hosts),
        json!(load_balancer(object).join(",")),
        json!(ports),
        row.age(),
    ]
}

pub(super) fn network_policy(row: &Row<'_>) -> Vec<Value> {
    vec![
        row.name(),
        json!(selector_text(at(row.object, "/spec/podSelector"))),
        row.age(),
    ]
}
