//! Services.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{
    Errors, Field, IMMUTABLE, PROTOCOLS,
    addresses::{self, Owner},
    formats, handlers,
};
use crate::{builtin::strategy::labels, field::FieldError, names};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const POLICIES: [&str; 2] = ["Cluster", "Local"];
const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];
const DISTRIBUTIONS: [&str; 3] = ["PreferClose", "PreferSameZone", "PreferSameNode"];
const MOST_AFFINITY: i64 = 86_400;
const FIXED: &str = "may not change once set";
const BALANCER_ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

/// What is wrong with a Service.
pub(crate) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    let before = old.map(|old| Field::of(old, "spec"));
    if let Some(before) = &before {
        check_update(&spec, before, errors);
    }
    let annotations = Field::of(object, "metadata").child("annotations");
    let modes = (annotations.value.get(MODE), annotations.value.get(HINTS));
    if let (Some(mode), Some(hints)) = modes
        && mode != hints
    {
        let detail = format!("must match annotations[{HINTS}] when both are specified");
        let path = annotations.path.key(MODE);
        errors.push(FieldError::invalid(&path, mode.clone(), detail));
    }
    let kind = spec.text_of("type");
    let headless = is_headless(&spec);
    let ports = spec.child("ports");
    if ports.count() == 0 && !headless && kind != "ExternalName" {
        ports.required(errors, "");
    }
    check_type(&spec, kind, headless, errors);
    check_ports(&ports, errors);
    let selector = spec.child("selector");
    labels::validate_labels(selector.value, &selector.path, errors);
    check_affinity(&spec, errors);
    check_addresses(&spec, before.as_ref(), errors);
    let known = texts(before.as_ref(), "externalIPs");
    for address in spec.child("externalIPs").items() {
        let found = errors.len();
        if !known.contains(&address.text()) {
            addresses::check(&address, errors);
        }
        if errors.len() == found {
            addresses::check_endpoint(&address, Owner::Anybody, errors);
        }
    }
    spec.child("type").one_of(errors, &TYPES);
    check_repetitions(&ports, kind, errors);
    check_sources(&spec, &annotations, old, errors);
    let allocates = spec.child("allocateLoadBalancerNodePorts");
    if kind != "LoadBalancer" && allocates.is_set() {
        allocates.forbidden(errors, BALANCER_ONLY);
    }
    check_class(&spec, errors);
    check_traffic(&spec, kind, errors);
}

/// Whether a Service has no address of its own.
pub(crate) fn is_headless(spec: &Field<'_>) -> bool {
    let addresses = spec.child("clusterIPs");
    addresses.count() == 1 && addresses.items().any(|address| address.text() == "None")
}

/// Whether a balancer asks the nodes whether they have Pods of a Service.
pub(crate) fn needs_health_check(spec: &Field<'_>) -> bool {
    spec.text_of("type") == "LoadBalancer" && spec.text_of("externalTrafficPolicy") == "Local"
}

/// Whether a Service is reached from outside.
pub(crate) fn is_external(spec: &Field<'_>) -> bool {
    match spec.text_of("type") {
        "LoadBalancer" | "NodePort" => true,
        "ClusterIP" => spec.child("externalIPs").count() > 0,
        _ => false,
    }
}

fn texts<'object>(spec: Option<&Field<'object>>, name: &str) -> Vec<&'object str> {
    let list = spec.map(|spec| spec.child(name));
    list.iter()
        .flat_map(Field::items)
        .map(|item| item.text())
        .collect()
}

fn check_type(spec: &Field<'_>, kind: &str, headless: bool, errors: &mut Errors) {
    if kind != "ExternalName" {
        if headless && matches!(kind, "LoadBalancer" | "NodePort") {
            for address in spec.child("clusterIPs").items() {
                address.invalid(errors, format!("may not be set to 'None' for {kind} services"));
            }
        }
        return;
    }
    for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if spec.has(name) {
            let detail = "may not be set for ExternalName services";
            spec.child(name).forbidden(errors, detail);
        }
    }
    let name = spec.child("externalName");
    let text = name.text().strip_suffix('.').unwrap_or(name.text());
    if text.is_empty() {
        name.required(errors, "");
    }
    for message in names::subdomain(text).into_iter().filter(|_| !text.is_empty()) {
        name.invalid_as(errors, json!(text), message);
    }
}

fn check_ports(ports: &Field<'_>, errors: &mut Errors) {
    let mut seen = Vec::new();
    for port in ports.items() {
        let name = port.child("name");
        if !name.text().is_empty() {
            name.texts(errors, names::label(name.text()));
            if seen.contains(&name.text()) {
                name.duplicate(errors);
            } else {
                seen.push(name.text());
            }
        } else if ports.count() > 1 {
            name.required(errors, "");
        }
        let number = port.number_of("port");
        for message in formats::port_number(number) {
            port.child("port").invalid_as(errors, json!(number), message);
        }
        port.child("protocol").one_of(errors, &PROTOCOLS);
        handlers::check_port(&port.child("targetPort"), errors);
        let application = port.child("appProtocol");
        if application.is_set() {
            application.texts(errors, names::qualified_name(application.text()));
        }
    }
}

fn check_affinity(spec: &Field<'_>, errors: &mut Errors) {
    spec.child("sessionAffinity").one_of(errors, &AFFINITIES);
    let config = spec.child("sessionAffinityConfig");
    match spec.text_of("sessionAffinity") {
        "ClientIP" => {
            const DETAIL: &str = "when session affinity type is ClientIP";
            let client = config.child("clientIP");
            let timeout = client.child("timeoutSeconds");
            for part in [&config, &client, &timeout] {
                if !part.is_set() {
                    part.required(errors, DETAIL);
                    return;
                }
            }
            if timeout
                .number()
                .is_some_and(|seconds| !(1..=MOST_AFFINITY).contains(&seconds))
            {
                let detail = format!("must be greater than 0 and less than {MOST_AFFINITY}");
                timeout.invalid(errors, detail);
            }
        }
        "None" if config.is_set() => {
            config.forbidden(errors, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

/// What is wrong with the addresses of a Service and the versions they are of.
pub(crate) fn check_addresses(spec: &Field<'_>, before: Option<&Field<'_>>, errors: &mut Errors) {
    if spec.text_of("type") == "ExternalName" {
        return;
    }
    let (first, all) = (spec.text_of("clusterIP"), spec.child("clusterIPs"));
    let leading = all.items().next().map(|address| address.text());
    match (first, leading) {
        ("", Some(_)) => all.invalid(errors, "must be empty when `clusterIP` is not specified"),
        ("", None) => {}
        (_, None) => all.required(errors, ""),
        (first, Some(leading)) if first != leading => {
            all.invalid(errors, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let families = spec.child("ipFamilies");
    let mut seen = Vec::new();
    for family in families.items() {
        if !FAMILIES.contains(&family.text()) {
            family.not_supported(errors, &FAMILIES);
        }
        if seen.contains(&family.text()) {
            family.duplicate(errors);
        }
        seen.push(family.text());
    }
    spec.child("ipFamilyPolicy")
        .one_of_if_set(errors, &FAMILY_POLICIES);
    let known = texts(before, "clusterIPs");
    let found = errors.len();
    for (index, address) in all.items().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.count() > 1 {
                all.invalid(errors, "'None' must be the first and only value");
            }
        } else if !known.contains(&address.text()) {
            addresses::check(&address, errors);
        }
    }
    let has_wrong_ones = errors.len() > found;
    if all.count() > 2 {
        all.invalid(errors, "may only hold up to 2 values");
    }
    if has_wrong_ones {
        return;
    }
    if all.count() > 1 && !addresses::is_dual_stack(all.items().map(|address| address.text())) {
        all.invalid(errors, "may specify no more than one IP for each IP family");
    }
    if is_headless(spec) {
        return;
    }
    for (index, (address, family)) in all.items().zip(families.items()).enumerate() {
        let is_sixth = addresses::parse(address.text()).is_some_and(|address| address.is_ipv6());
        let is_expected = match family.text() {
            "IPv4" => !is_sixth,
            "IPv6" => is_sixth,
            _ => true,
        };
        if !is_expected {
            let detail = format!(
                "expected an {} value as indicated by `ipFamilies[{index}]`",
                family.text()
            );
            address.invalid(errors, detail);
        }
    }
}

/// No port is there twice, neither of the Service nor of the nodes.
fn check_repetitions(ports: &Field<'_>, kind: &str, errors: &mut Errors) {
    if kind == "ClusterIP" {
        for port in ports.items().filter(|port| port.number_of("nodePort") != 0) {
            let detail = "may not be used when `type` is 'ClusterIP'";
            port.child("nodePort").forbidden(errors, detail);
        }
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let number = port.number_of("nodePort");
        let key = (port.text_of("protocol"), number);
        if number != 0 && seen.contains(&key) {
            let path = port.path.child("nodePort");
            errors.push(FieldError::duplicate(&path, json!(number)));
        }
        seen.push(key);
    }
    let mut seen = Vec::new();
    for port in ports.items() {
        let key = (port.text_of("protocol"), port.number_of("port"));
        if seen.contains(&key) {
            errors.push(FieldError {
                kind: crate::field::FieldErrorKind::Duplicate,
                path: port.path.clone(),
                value: None,
                detail: format!(
                    "{{\"Name\":\"\",\"Protocol\":{},\"AppProtocol\":null,\"Port\":{},\"TargetPort\":0,\"NodePort\":0}}",
                    json!(key.0),
                    key.1
                ),
            });
        }
        seen.push(key);
    }
}

/// What is wrong with from where a balancer takes traffic.
fn check_sources(spec: &Field<'_>, annotations: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let is_balancer = spec.text_of("type") == "LoadBalancer";
    let list = spec.child("loadBalancerSourceRanges");
    let old_ranges = old.map(|old| Field::of(old, "spec").child("loadBalancerSourceRanges"));
    let known: Vec<&str> = old_ranges
        .iter()
        .flat_map(Field::items)
        .map(|range| range.text().trim())
        .collect();
    if list.count() > 0 {
        // The reference writes the name with a capital letter.
        let list = list.at(spec.path.child("LoadBalancerSourceRanges"));
        if !is_balancer {
            list.forbidden(errors, BALANCER_ONLY);
        }
        for range in list.items() {
            let text = range.text().trim();
            if !known.contains(&text) {
                addresses::check_range(&range, text, errors);
            }
        }
        return;
    }
    let Some(text) = annotations.value.get(RANGES) else {
        return;
    };
    let field = annotations.at(annotations.path.key(RANGES));
    if !is_balancer {
        field.forbidden(errors, BALANCER_ONLY);
    }
    let before = old
        .and_then(|old| old.pointer("/metadata/annotations"))
        .and_then(|annotations| annotations.get(RANGES));
    let text = text.as_str().unwrap_or_default().trim();
    if before == annotations.value.get(RANGES) || text.is_empty() {
        return;
    }
    for range in text.split(',') {
        addresses::check_range(&field, range.trim(), errors);
    }
}

fn check_class(spec: &Field<'_>, errors: &mut Errors) {
    let class = spec.child("loadBalancerClass");
    if !class.is_set() {
        return;
    }
    if spec.text_of("type") == "LoadBalancer" {
        class.texts(errors, names::qualified_name(class.text()));
    } else {
        class.forbidden(errors, BALANCER_ONLY);
    }
}

/// What is wrong with where traffic goes.
fn check_traffic(spec: &Field<'_>, kind: &str, errors: &mut Errors) {
    let (outside, inside) = (
        spec.child("externalTrafficPolicy"),
        spec.child("internalTrafficPolicy"),
    );
    if is_external(spec) {
        outside.one_of(errors, &POLICIES);
    } else if !outside.text().is_empty() {
        outside.invalid(errors, "may only be set for externally-accessible services");
    }
    let port = spec.child("healthCheckNodePort");
    let number = port.number().unwrap_or_default();
    if needs_health_check(spec) {
        if number == 0 {
            port.required(errors, "");
        }
        for message in formats::port_number(number).into_iter().filter(|_| number != 0) {
            port.invalid(errors, message);
        }
    } else if number != 0 {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        port.invalid(errors, detail);
    }
    if inside.is_set() {
        inside.one_of_if_set(errors, &POLICIES);
    } else if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") {
        inside.required(errors, "");
    }
    spec.child("trafficDistribution")
        .one_of_if_set(errors, &DISTRIBUTIONS);
}

/// What of a Service is fixed once it is there.
fn check_update(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let is_named = |spec: &Field<'_>| spec.text_of("type") == "ExternalName";
    if !is_named(spec) && !is_named(before) {
        if !(is_headless(spec) && is_headless(before)) {
            check_changed_list(spec, before, "clusterIPs", errors);
        }
        if !is_headless(spec) && !is_headless(before) {
            check_changed_list(spec, before, "ipFamilies", errors);
        }
    }
    let is_balancer = |spec: &Field<'_>| spec.text_of("type") == "LoadBalancer";
    let (class, old) = (spec.child("loadBalancerClass"), before.child("loadBalancerClass"));
    if is_balancer(spec) && is_balancer(before) && class.value != old.value {
        class.invalid(errors, FIXED);
    }
    check_class(spec, errors);
    let port = spec.child("healthCheckNodePort");
    if needs_health_check(spec)
        && needs_health_check(before)
        && port.value != before.child("healthCheckNodePort").value
    {
        port.forbidden(errors, IMMUTABLE);
    }
}

/// The first of these stays; a second one comes and goes.
fn check_changed_list(spec: &Field<'_>, before: &Field<'_>, name: &str, errors: &mut Errors) {
    let (now, old) = (spec.child(name), before.child(name));
    let of_addresses = name == "clusterIPs";
    let shown: Cow<'_, Value> = if now.is_set() {
        Cow::Borrowed(now.value)
    } else {
        Cow::Owned(json!([]))
    };
    let mut refuse = |index: usize, detail: &str| {
        errors.push(FieldError::invalid(
            &now.path.index(index),
            shown.clone().into_owned(),
            detail,
        ));
    };
    if now.count() == old.count() {
        for (index, (now, old)) in now.items().zip(old.items()).enumerate() {
            if now.text() != old.text() {
                refuse(if of_addresses { index } else { 0 }, FIXED);
            }
        }
        return;
    }
    let first = |list: &Field<'_>| list.items().next().map(|item| item.text().to_owned());
    if first(&now).is_none() {
        let what = if of_addresses { "clusterIP" } else { "ipFamily" };
        refuse(0, &format!("primary {what} can not be unset"));
    } else if first(&old).is_some() && first(&now) != first(&old) {
        refuse(0, FIXED);
    }
    let policy = spec.child("ipFamilyPolicy");
    if now.count() == 1 && old.count() > 1 && policy.text() != "SingleStack" {
        let what = if of_addresses { "clusterIP" } else { "ipFamily" };
        let detail = format!("must be set to 'SingleStack' when releasing the secondary {what}");
        policy.invalid(errors, detail);
    }
}
