//! Who may talk to whom, and what comes in: NetworkPolicies and Ingresses.

use serde_json::{Value, json};

use super::{
    Errors, Field,
    addresses::{self, Range},
    formats,
};
use crate::{builtin::strategy::labels, field::FieldError, names, names::NameRule};

const DIRECTIONS: [&str; 2] = ["Ingress", "Egress"];
const PATH_TYPES: [&str; 3] = ["Exact", "ImplementationSpecific", "Prefix"];
const CLASS: &str = "kubernetes.io/ingress.class";

/// What is wrong with a NetworkPolicy.
pub(crate) fn check_policy(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    let selector = spec.child("podSelector");
    labels::validate_selector(selector.value, &selector.path, errors);
    let known: Vec<&str> = old.map(ranges).unwrap_or_default();
    // Ranges that have to be there are declared, and told last.
    let mut missing = Vec::new();
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.child(list).items() {
            for port in rule.child("ports").items() {
                check_policy_port(&port, errors);
            }
            for peer in rule.child(peers).items() {
                check_peer(&peer, &known, errors, &mut missing);
            }
        }
    }
    let types = spec.child("policyTypes");
    if types.count() > DIRECTIONS.len() {
        types.invalid(errors, "may not specify more than two policyTypes");
    } else {
        for kind in types.items() {
            if !DIRECTIONS.contains(&kind.text()) {
                kind.not_supported(errors, &DIRECTIONS);
            }
        }
    }
    errors.extend(missing);
}

/// The ranges that a policy has.
fn ranges(policy: &Value) -> Vec<&str> {
    let spec = Field::of(policy, "spec");
    let mut found = Vec::new();
    for (list, peers) in [("ingress", "from"), ("egress", "to")] {
        for block in spec
            .child(list)
            .items()
            .flat_map(|rule| rule.child(peers).items())
            .map(|peer| peer.child("ipBlock"))
        {
            found.push(block.text_of("cidr"));
            found.extend(block.child("except").items().map(|except| except.text()));
        }
    }
    found
}

fn check_policy_port(port: &Field<'_>, errors: &mut Errors) {
    port.child("protocol")
        .one_of_if_set(errors, &["TCP", "UDP", "SCTP"]);
    let (first, last) = (port.child("port"), port.child("endPort"));
    let refuse = |detail: &str, errors: &mut Errors| {
        if last.is_set() {
            last.invalid(errors, detail);
        }
    };
    if let Some(number) = first.number() {
        for message in formats::port_number(number) {
            first.invalid(errors, message);
        }
        if last.number().is_some_and(|last| last < number) {
            refuse("must be greater than or equal to `port`", errors);
        }
        for message in last.number().map(formats::port_number).unwrap_or_default() {
            last.invalid(errors, message);
        }
    } else if first.is_set() {
        refuse("may not be specified when `port` is non-numeric", errors);
        first.texts(errors, formats::port_name(first.text()));
    } else {
        refuse("may not be specified when `port` is not specified", errors);
    }
}

fn check_peer(peer: &Field<'_>, known: &[&str], errors: &mut Errors, missing: &mut Errors) {
    let mut count = 0;
    for name in ["podSelector", "namespaceSelector"] {
        let selector = peer.child(name);
        count += usize::from(selector.is_set());
        labels::validate_selector(selector.value, &selector.path, errors);
    }
    let block = peer.child("ipBlock");
    if block.is_set() {
        count += 1;
        check_block(&block, known, errors, missing);
    }
    if count == 0 {
        peer.required(errors, "must specify a peer");
    } else if count > 1 && block.is_set() {
        peer.forbidden(errors, "may not specify both ipBlock and another peer");
    }
}

fn check_block(block: &Field<'_>, known: &[&str], errors: &mut Errors, missing: &mut Errors) {
    let range = block.child("cidr");
    if !range.demand(missing) {
        return;
    }
    let check = |field: &Field<'_>, errors: &mut Errors| {
        if !known.contains(&field.text()) {
            addresses::check_range(field, field.text(), errors);
        }
        Range::parse(field.text())
    };
    let Some(range) = check(&range, errors) else {
        return;
    };
    for except in block.child("except").items() {
        if let Some(part) = check(&except, errors)
            && !range.strictly_contains(part)
        {
            except.invalid(errors, "must be a strict subset of `cidr`");
        }
    }
}

/// What is wrong with an Ingress.
pub(crate) fn check_ingress(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    let (rules, backend) = (spec.child("rules"), spec.child("defaultBackend"));
    if rules.count() == 0 && !backend.is_set() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        spec.invalid_as(errors, Value::Null, detail);
    }
    if backend.is_set() {
        check_backend(&backend, errors);
    }
    for rule in rules.items() {
        check_rule(&rule, errors);
    }
    for entry in spec.child("tls").items() {
        for host in entry.child("hosts").items() {
            check_host(&host, errors);
        }
        let secret = entry.child("secretName");
        if !secret.text().is_empty() {
            secret.texts(errors, NameRule::Subdomain.check(secret.text(), false));
        }
    }
    let class = spec.child("ingressClassName");
    if class.is_set() {
        class.texts(errors, names::subdomain(class.text()));
    }
    let annotation = object
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(CLASS));
    if let Some(annotation) = annotation.filter(|_| old.is_none())
        && class.is_set()
        && class.value != annotation
    {
        let path = crate::field::FieldPath::of("annotations").child(CLASS);
        let detail = "must match `ingressClassName` when both are specified";
        errors.push(FieldError::invalid(&path, annotation.clone(), detail));
    }
}

fn check_host(host: &Field<'_>, errors: &mut Errors) {
    let messages = if host.text().contains('*') {
        formats::wildcard(host.text())
    } else {
        names::subdomain(host.text())
    };
    host.texts(errors, messages);
}

fn check_rule(rule: &Field<'_>, errors: &mut Errors) {
    let host = rule.child("host");
    if !host.text().is_empty() {
        if addresses::parse(host.text()).is_some() {
            host.invalid(errors, "must be a DNS name, not an IP address");
        }
        check_host(&host, errors);
    }
    let http = rule.child("http");
    if !http.is_set() {
        return;
    }
    let paths = http.child("paths");
    if paths.count() == 0 {
        paths.required(errors, "");
    }
    for path in paths.items() {
        let kind = path.child("pathType");
        if !kind.is_set() {
            kind.required(errors, "pathType must be specified");
            continue;
        }
        check_path(&path.child("path"), &kind, errors);
        check_backend(&path.child("backend"), errors);
    }
}

fn check_path(path: &Field<'_>, kind: &Field<'_>, errors: &mut Errors) {
    let text = path.text();
    let is_exact = matches!(kind.text(), "Exact" | "Prefix");
    if !is_exact && kind.text() != "ImplementationSpecific" {
        kind.not_supported(errors, &PATH_TYPES);
        return;
    }
    if !text.starts_with('/') && (is_exact || !text.is_empty()) {
        path.invalid_text(errors, "must be an absolute path");
    }
    if !is_exact {
        return;
    }
    for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
        if text.contains(sequence) {
            path.invalid(errors, format!("must not contain '{sequence}'"));
        }
    }
    for end in ["/..", "/."] {
        if text.ends_with(end) {
            path.invalid(errors, format!("cannot end with '{end}'"));
        }
    }
}

fn check_backend(backend: &Field<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.child("resource"), backend.child("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            let detail = "cannot set both resource and service backends";
            backend.invalid_as(errors, json!(""), detail);
        }
        (true, false) => check_resource(&resource, errors),
        (false, true) => check_service(backend, &service, errors),
        (false, false) => {
            let detail = "resource or service backend is required";
            backend.invalid_as(errors, json!(""), detail);
        }
    }
}

fn check_resource(resource: &Field<'_>, errors: &mut Errors) {
    let group = resource.child("apiGroup");
    if group.is_set() {
        group.texts(errors, names::subdomain(group.text()));
    }
    for name in ["kind", "name"] {
        resource.child(name).demand_as(errors, formats::path_segment);
    }
}

fn check_service(backend: &Field<'_>, service: &Field<'_>, errors: &mut Errors) {
    service
        .child("name")
        .demand_as(errors, |name| NameRule::Label.check(name, false));
    let port = service.child("port");
    let (name, number) = (port.child("name"), port.child("number"));
    match (name.text(), number.number().unwrap_or_default()) {
        ("", 0) => backend.required(errors, "port name or number is required"),
        ("", given) => {
            for message in formats::port_number(given) {
                number.invalid(errors, message);
            }
        }
        (given, 0) => name.texts(errors, formats::port_name(given)),
        _ => backend.invalid_as(errors, json!(""), "cannot set both port name & port number"),
    }
}
