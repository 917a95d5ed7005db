//! Where the traffic of Services goes: Endpoints and EndpointSlices.

use serde_json::{Value, json};

use super::{
    Errors, Field, PROTOCOLS,
    addresses::{self, Owner},
    formats,
};
use crate::{builtin::strategy::labels, names, names::NameRule};

const ADDRESS_TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
const MOST_ENDPOINTS: usize = 1000;
const MOST_ADDRESSES: usize = 100;
const MOST_PORTS: usize = 20_000;
const MOST_LABELS: usize = 16;
const MOST_HINTS: usize = 8;

type Rule = fn(&str) -> Vec<String>;

/// What is wrong with Endpoints. An update that leaves the addresses alone is not held to their rules.
pub(crate) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    if old.is_some_and(|old| old.get("subsets") == object.get("subsets")) {
        return;
    }
    for subset in Field::of(object, "subsets").items() {
        let lists = [subset.child("addresses"), subset.child("notReadyAddresses")];
        if lists.iter().all(|list| list.count() == 0) {
            subset.required(errors, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in lists.iter().flat_map(Field::items) {
            let ip = address.child("ip");
            addresses::check(&ip, errors);
            for (name, rule) in [("hostname", NameRule::Label), ("nodeName", NameRule::Subdomain)] {
                let field = address.child(name);
                if field.is_set() && (name != "hostname" || !field.text().is_empty()) {
                    field.texts(errors, rule.check(field.text(), false));
                }
            }
            addresses::check_endpoint(&ip, owner(&address), errors);
        }
        let ports = subset.child("ports");
        for port in ports.items() {
            let name = port.child("name");
            if !name.text().is_empty() {
                name.texts(errors, names::label(name.text()));
            } else if ports.count() > 1 {
                name.required(errors, "");
            }
            let number = port.number_of("port");
            for message in formats::port_number(number) {
                port.child("port").invalid_as(errors, json!(number), message);
            }
            port.child("protocol").one_of(errors, &PROTOCOLS);
            check_application(&port.child("appProtocol"), errors);
        }
    }
}

/// Whose address an endpoint has.
fn owner(endpoint: &Field<'_>) -> Owner {
    if endpoint.child("targetRef").text_of("kind") == "Pod" {
        Owner::Pod
    } else {
        Owner::Anybody
    }
}

fn check_application(protocol: &Field<'_>, errors: &mut Errors) {
    if protocol.is_set() {
        protocol.texts(errors, names::qualified_name(protocol.text()));
    }
}

/// What is wrong with an EndpointSlice. An update that leaves the endpoints alone is not held to their rules.
pub(crate) fn check_slice(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    check_slice_ports(&Field::of(object, "ports"), errors);
    let kind = Field::of(object, "addressType");
    let endpoints = Field::of(object, "endpoints");
    let is_unchanged = old.is_some_and(|old| old.get("endpoints") == object.get("endpoints"));
    if !is_unchanged && !endpoints.too_many(errors, MOST_ENDPOINTS) {
        for endpoint in endpoints.items() {
            check_endpoint(&endpoint, kind.text(), errors);
        }
    }
    // These are declared, and told last.
    if let Some(old) = old.map(|old| Field::of(old, "addressType"))
        && old.text() != kind.text()
    {
        kind.declared_immutable(old.value, errors);
    } else {
        kind.one_of(errors, &ADDRESS_TYPES);
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.child("addresses");
        if addresses.count() == 0 {
            addresses.required(errors, "");
        }
        addresses.too_many(errors, MOST_ADDRESSES);
    }
}

fn check_endpoint(endpoint: &Field<'_>, kind: &str, errors: &mut Errors) {
    let list = endpoint.child("addresses");
    for address in list.items() {
        let before = errors.len();
        match kind {
            "IPv4" => addresses::check(&address, errors),
            "IPv6" => addresses::check_strictly(&address, errors),
            "FQDN" => {
                check_domain(&address, errors);
                continue;
            }
            _ => continue,
        }
        if errors.len() > before {
            continue;
        }
        let fits = addresses::parse(address.text()).is_some_and(|ip| ip.is_ipv4() == (kind == "IPv4"));
        if !fits {
            address
                .at(list.path.clone())
                .invalid(errors, format!("must be an {kind} address"));
        }
        addresses::check_endpoint(&address, owner(endpoint), errors);
    }
    let node = endpoint.child("nodeName");
    if node.is_set() {
        node.texts(errors, NameRule::Subdomain.check(node.text(), false));
    }
    let topology = endpoint.child("deprecatedTopology");
    topology.too_many(errors, MOST_LABELS);
    labels::validate_labels(topology.value, &topology.path, errors);
    let host = endpoint.child("hostname");
    if host.is_set() {
        host.texts(errors, names::label(host.text()));
    }
    let hints = endpoint.child("hints");
    let rules: [(&str, Rule); 2] = [("forZones", names::label_value), ("forNodes", names::subdomain)];
    for (list, rule) in rules {
        let list = hints.child(list);
        if list.too_many(errors, MOST_HINTS) {
            return;
        }
        let mut seen = Vec::new();
        for name in list.items().map(|item| item.child("name")) {
            if seen.contains(&name.text()) {
                name.duplicate(errors);
            } else {
                seen.push(name.text());
            }
            name.texts(errors, rule(name.text()));
        }
    }
}

fn check_domain(name: &Field<'_>, errors: &mut Errors) {
    if !name.demand(errors) {
        return;
    }
    let text = name.text().strip_suffix('.').unwrap_or(name.text());
    let mut refuse = |shown: &str, detail: String| name.invalid_as(errors, json!(shown), detail);
    let messages = names::subdomain(text);
    if !messages.is_empty() {
        refuse(text, messages.join(","));
    } else if !text.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        refuse(text, detail.to_owned());
    } else if let Some(label) = text.split('.').find(|label| !names::label(label).is_empty()) {
        refuse(label, names::label(label).join(","));
    }
}

fn check_slice_ports(ports: &Field<'_>, errors: &mut Errors) {
    if ports.too_many(errors, MOST_PORTS) {
        return;
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let name = port.child("name");
        if !name.text().is_empty() {
            name.texts(errors, names::label(name.text()));
        }
        if seen.contains(&name.text()) {
            name.duplicate(errors);
        } else {
            seen.push(name.text());
        }
        let protocol = port.child("protocol");
        if protocol.is_set() {
            protocol.one_of_if_set(errors, &PROTOCOLS);
        } else {
            protocol.required(errors, "");
        }
        check_application(&port.child("appProtocol"), errors);
    }
}
