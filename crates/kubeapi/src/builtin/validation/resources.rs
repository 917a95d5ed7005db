//! What containers, Pods and claims ask for: quantities and the names of resources.

use std::cmp::Ordering;

use mainstay_cel::{Notation, Quantity};
use serde_json::{Value, json};

use super::{Errors, Field, NOT_NEGATIVE};
use crate::{
    field::{FieldError, FieldPath},
    names,
};

const HUGE_PAGES: &str = "hugepages-";
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];
/// The names without a domain that the reference knows, beside those above.
const FURTHER: [&str; 8] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "storage",
    "requests.storage",
];

/// The quantity that a field holds; its text was read when the object was decoded.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| Quantity::parse(text).ok())
}

fn compare(left: &Value, right: &Value) -> Ordering {
    match (quantity(left), quantity(right)) {
        (Some(left), Some(right)) => left.compare(right),
        _ => Ordering::Equal,
    }
}

pub(super) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Whether more of a resource may be given to all than there is.
fn is_shared(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// What is wrong with the name of a resource.
fn check_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let messages = names::qualified_name(name);
    let is_standard = OF_CONTAINERS.contains(&name)
        || COUNTED.contains(&name)
        || FURTHER.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-");
    if messages.is_empty() && !name.contains('/') && !is_standard {
        let detail = "must be a standard resource type or fully qualified";
        field.invalid_as(errors, json!(name), detail);
    }
    for message in messages {
        field.invalid_as(errors, json!(name), message);
    }
}

/// What is wrong with the name of a resource that a container asks for.
pub(crate) fn check_container_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    check_name(name, field, errors);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !is_huge_pages(name) {
            field.invalid_as(errors, json!(name), "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        field.invalid_as(
            errors,
            json!(name),
            "doesn't follow extended resource name standard",
        );
    }
}

/// What is wrong with the name of a resource that a whole Pod asks for.
fn check_pod_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let before = errors.len();
    check_name(name, field, errors);
    if errors.len() == before && !matches!(name, "cpu" | "memory") && !is_huge_pages(name) {
        errors.push(FieldError::not_supported(
            &field.path,
            json!(name),
            &["cpu", HUGE_PAGES, "memory"],
        ));
    }
}

/// A quantity of a resource is not negative, and whole where things are counted.
pub(crate) fn check_quantity(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let Some(quantity) = quantity(field.value) else {
        return;
    };
    if quantity.sign() < 0 {
        field.invalid(errors, NOT_NEGATIVE);
    }
    let is_counted = COUNTED.contains(&name) || is_extended(name);
    if is_counted && !quantity.is_whole() {
        field.invalid(errors, "must be an integer");
    }
}

fn check_huge_pages(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else {
        return;
    };
    let size = Quantity::parse(size)
        .ok()
        .filter(|size| size.sign() > 0 && size.is_whole());
    let fits = match (quantity(field.value), size) {
        (Some(amount), Some(size)) => amount.is_multiple_of(size),
        _ => false,
    };
    if !fits {
        let detail = format!("{} is not positive integer multiple of {name}", field.text());
        field.invalid(errors, detail);
    }
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Container,
    Pod,
}

/// What is wrong with what a container (or, once for all containers, a Pod) asks for. `claims` are the names of the Pod's
/// claims of devices.
pub(crate) fn check(field: &Field<'_>, asker: Asker, claims: &[&str], errors: &mut Errors) {
    let (limits, requests) = (field.child("limits"), field.child("requests"));
    let check_name = |name: &str, field: &Field<'_>, errors: &mut Errors| match asker {
        Asker::Container => check_container_name(name, field, errors),
        Asker::Pod => check_pod_name(name, field, errors),
    };
    let (mut has_processor_or_memory, mut has_huge_pages) = (false, false);
    let mut note = |name: &str| {
        has_processor_or_memory |= matches!(name, "cpu" | "memory");
        has_huge_pages |= is_huge_pages(name);
    };
    for (name, entry) in limits.entries() {
        check_name(name, &entry, errors);
        check_quantity(name, &entry, errors);
        check_huge_pages(name, &entry, errors);
        note(name);
    }
    for (name, entry) in requests.entries() {
        check_name(name, &entry, errors);
        check_quantity(name, &entry, errors);
        if let Some(limit) = limits.value.get(name) {
            let shown = limit.as_str().unwrap_or_default();
            let order = compare(entry.value, limit);
            let refused = entry.at(requests.path.clone());
            if order.is_ne() && !is_shared(name) {
                refused.invalid(errors, format!("must be equal to {name} limit of {shown}"));
            } else if order.is_gt() {
                let detail = format!("must be less than or equal to {name} limit of {shown}");
                refused.invalid(errors, detail);
            }
        } else if !is_shared(name) {
            limits.required(errors, "Limit must be set for non overcommitable resources");
        }
        check_huge_pages(name, &entry, errors);
        note(name);
    }
    if has_huge_pages && !has_processor_or_memory {
        field.forbidden(errors, "HugePages require cpu or memory");
    }
    check_claims(&field.child("claims"), claims, errors);
}

fn check_claims(field: &Field<'_>, known: &[&str], errors: &mut Errors) {
    let mut seen: Vec<String> = Vec::new();
    for item in field.items() {
        let (name, request) = (item.text_of("name"), item.text_of("request"));
        if name.is_empty() {
            item.required(errors, "");
            continue;
        }
        let duplicate = |key: &str| FieldError::duplicate(&item.path, json!(key));
        if seen.iter().any(|seen| seen == name) {
            errors.push(duplicate(name));
        } else {
            let key = if request.is_empty() {
                name.to_owned()
            } else {
                let field = item.child("request");
                field.texts(errors, names::label(request));
                format!("{name}/{request}")
            };
            if seen.contains(&key) {
                errors.push(duplicate(&key));
            } else if request.is_empty() {
                let same = |seen: &&String| seen.split_once('/').is_some_and(|(claim, _)| claim == name);
                for _ in seen.iter().filter(same) {
                    errors.push(duplicate(name));
                }
            }
            seen.push(key);
        }
        if !known.contains(&name) {
            let mut detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if known.is_empty() {
                detail.push_str(" which is empty");
            } else {
                let mut names = known.to_vec();
                names.sort_unstable();
                detail = format!("{detail}: {}", names.join(", "));
            }
            item.child("name").at(item.path.clone()).not_found(errors, detail);
        }
    }
}

/// What is wrong with what a whole Pod asks for, which all its containers together stay within.
pub(crate) fn check_pod(spec: &Field<'_>, claims: &[&str], errors: &mut Errors) {
    let field = spec.child("resources");
    if !field.is_set() {
        return;
    }
    if spec.child("os").text_of("name") == "windows" {
        field.forbidden(errors, "may not be set for a windows pod");
        return;
    }
    if field.has("claims") {
        let detail = "claims may not be set for Resources at pod-level";
        field.child("claims").forbidden(errors, detail);
    }
    check(&field, Asker::Pod, claims, errors);
    for (kind, is_judged) in [
        ("requests", (|_| true) as fn(&str) -> bool),
        ("limits", is_huge_pages),
    ] {
        for (name, entry) in field.child(kind).entries() {
            let Some((sum, notation)) = sum(spec, kind, name) else {
                continue;
            };
            if is_judged(name) && quantity(entry.value).is_some_and(|own| sum.compare(own).is_gt()) {
                let sum = sum.written(notation).unwrap_or_default();
                let detail = format!("must be greater than or equal to aggregate container {kind} of {sum}");
                entry.invalid(errors, detail);
            }
        }
    }
    for container in spec.child("containers").items() {
        for (name, limit) in container.child("resources").child("limits").entries() {
            let Some(most) = field.value.pointer("/limits").and_then(|limits| limits.get(name)) else {
                continue;
            };
            if compare(limit.value, most).is_gt() {
                let index = container.path.as_str().rsplit('[').next().unwrap_or_default();
                let path = field.path.child("containers");
                let path = FieldPath::of(format!("{path}[{index}[{name}].limits"));
                let most = most.as_str().unwrap_or_default();
                let detail = format!("must be less than or equal to pod limits of {most}");
                limit.at(path).invalid(errors, detail);
            }
        }
    }
}

/// What a Pod as a whole asks for and does not say: what its containers ask for together, or else its limits.
pub(crate) fn default_pod(spec: &Value) -> Vec<(String, Value)> {
    let field = Field::new(spec, FieldPath::root());
    let resources = field.child("resources");
    let is_judged = |name: &str| matches!(name, "cpu" | "memory") || is_huge_pages(name);
    let lists = [resources.child("requests"), resources.child("limits")];
    if !lists
        .iter()
        .any(|list| list.entries().any(|(name, _)| is_judged(name)))
    {
        return Vec::new();
    }
    let [requests, limits] = lists;
    let mut found: Vec<(String, Value)> = Vec::new();
    for name in ["cpu", "memory"] {
        if !requests.has(name)
            && let Some(text) =
                sum(&field, "requests", name).and_then(|(sum, notation)| sum.written(notation))
        {
            found.push((name.to_owned(), json!(text)));
        }
    }
    for (name, limit) in limits.entries() {
        let is_there = requests.has(name) || found.iter().any(|(found, _)| found == name);
        if is_judged(name) && !is_there {
            found.push((name.to_owned(), limit.value.clone()));
        }
    }
    found
}

/// What the containers of a Pod ask for together: those that run at the same time are added up.
fn sum(spec: &Field<'_>, kind: &str, name: &str) -> Option<(Quantity, Notation)> {
    let asked = |container: &Field<'_>| {
        let value = container.value.pointer("/resources")?.get(kind)?.get(name)?;
        Some((quantity(value)?, Notation::of(value.as_str()?)))
    };
    let add = |left: Option<(Quantity, Notation)>, right: Option<(Quantity, Notation)>| match (left, right) {
        (Some((left, notation)), Some((right, _))) => Some((left.plus(right), notation)),
        (one, other) => one.or(other),
    };
    let larger = |left: Option<(Quantity, Notation)>, right: Option<(Quantity, Notation)>| match (left, right)
    {
        (Some(left), Some(right)) if right.0.compare(left.0).is_gt() => Some(right),
        (one, other) => one.or(other),
    };
    let mut all = spec
        .child("containers")
        .items()
        .fold(None, |sum, container| add(sum, asked(&container)));
    let (mut sidecars, mut most) = (None, None);
    for container in spec.child("initContainers").items() {
        let own = asked(&container);
        if container.text_of("restartPolicy") == "Always" {
            all = add(all, own);
            sidecars = add(sidecars, own);
            most = larger(most, sidecars);
        } else {
            most = larger(most, add(own, sidecars));
        }
    }
    larger(all, most)
}
