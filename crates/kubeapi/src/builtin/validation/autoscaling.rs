//! HorizontalPodAutoscalers.

use serde_json::{Value, json};

use super::{Errors, Field, NOT_NEGATIVE, formats, resources};
use crate::names;

const MOST_PERIOD: i64 = 1800;
const MOST_WINDOW: i64 = 3600;
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];
const SOURCE_TYPES: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
const TARGET_TYPES: [&str; 3] = ["Utilization", "Value", "AverageValue"];
const SELECTIONS: [&str; 3] = ["Disabled", "Max", "Min"];
const POLICIES: [&str; 2] = ["Percent", "Pods"];
const POSITIVE: &str = "must be greater than zero";

/// What is wrong with an autoscaler.
pub(crate) fn check(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let spec = Field::of(object, "spec");
    let (least, most) = (spec.child("minReplicas"), spec.child("maxReplicas"));
    let maximum = most.number().unwrap_or_default();
    if least.number().is_some_and(|least| maximum < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        most.invalid_as(errors, json!(maximum), detail);
    }
    let target = spec.child("scaleTargetRef");
    let known = old.map(|old| Field::of(old, "spec").child("scaleTargetRef"));
    let is_known = known.is_some_and(|known| {
        ["apiVersion", "kind"]
            .iter()
            .all(|name| known.text_of(name) == target.text_of(name))
    });
    let may_be_core = target.text_of("kind") == "ReplicationController";
    check_target(&target, !is_known, may_be_core, errors);
    let metrics = spec.child("metrics");
    for metric in metrics.items() {
        check_metric(&metric, old.is_some(), errors);
    }
    let scales_to_none = least.number() == Some(0)
        && !metrics
            .items()
            .any(|metric| matches!(metric.text_of("type"), "Object" | "External"));
    if scales_to_none {
        let detail =
            "must specify at least one Object or External metric to support scaling to zero replicas";
        metrics.forbidden(errors, detail);
    }
    for direction in ["scaleUp", "scaleDown"] {
        check_rules(&spec.child("behavior").child(direction), errors);
    }
    // These are declared, and told last.
    least.not_negative(errors);
    match maximum {
        0 => most.required(errors, ""),
        ..0 => most.invalid(errors, "must be greater than or equal to 1"),
        _ => {}
    }
}

/// What is wrong with the name of another object. Its version is not judged again if it was there before.
fn check_target(target: &Field<'_>, is_new: bool, may_be_core: bool, errors: &mut Errors) {
    for name in ["kind", "name"] {
        target.child(name).demand_as(errors, formats::path_segment);
    }
    let version = target.child("apiVersion");
    let parts = version.text().matches('/').count();
    if !is_new {
        return;
    }
    if parts > 1 {
        let detail = format!("unexpected GroupVersion string: {}", version.text());
        version.invalid(errors, detail);
    } else if parts == 0 && !may_be_core {
        version.invalid_text(errors, "apiVersion must specify API group");
    }
}

fn check_metric(metric: &Field<'_>, had_some: bool, errors: &mut Errors) {
    let kind = metric.child("type");
    if kind.text().is_empty() {
        kind.required(errors, "must specify a metric source type");
    }
    let is_known = SOURCE_TYPES.contains(&kind.text());
    if !is_known {
        kind.not_supported(errors, &SOURCE_TYPES);
    }
    let given: Vec<&str> = SOURCES
        .iter()
        .map(|(_, name)| *name)
        .filter(|name| metric.has(name))
        .collect();
    if let Some(first) = given.first() {
        check_source(&metric.child(first), first, had_some, errors);
    }
    let expected = SOURCES
        .iter()
        .find(|(own, _)| *own == kind.text())
        .map(|(_, name)| *name);
    match expected {
        Some(expected) if !given.contains(&expected) => {
            let detail = "must populate information for the given metric source";
            metric.child(expected).required(errors, detail);
        }
        Some(_) => {}
        None => kind.not_supported(errors, &SOURCE_TYPES),
    }
    if given.len() != 1 {
        for other in given.iter().filter(|name| Some(**name) != expected) {
            let detail = "must populate the given metric source only";
            metric.child(other).forbidden(errors, detail);
        }
    }
}

fn check_source(source: &Field<'_>, kind: &str, had_some: bool, errors: &mut Errors) {
    let target = source.child("target");
    let has = |name: &str| target.has(name);
    match kind {
        "object" => {
            check_target(&source.child("describedObject"), !had_some, true, errors);
            check_identifier(source, errors);
            check_goal(&target, errors);
            if !has("value") && !has("averageValue") {
                let detail = "must set either a target value or averageValue";
                target.child("averageValue").required(errors, detail);
            }
        }
        "external" => {
            check_identifier(source, errors);
            check_goal(&target, errors);
            if !has("value") && !has("averageValue") {
                let detail = "must set either a target value for metric or a per-pod target";
                target.child("averageValue").required(errors, detail);
            }
            if has("value") && has("averageValue") {
                let detail = "may not set both a target value for metric and a per-pod target";
                target.child("value").forbidden(errors, detail);
            }
        }
        "pods" => {
            check_identifier(source, errors);
            check_goal(&target, errors);
            if !has("averageValue") {
                let detail = "must specify a positive target averageValue";
                target.child("averageValue").required(errors, detail);
            }
        }
        _ => check_resource(source, kind, &target, errors),
    }
}

fn check_resource(source: &Field<'_>, kind: &str, target: &Field<'_>, errors: &mut Errors) {
    let of_container = kind == "containerResource";
    let name = source.child("name");
    if name.text().is_empty() {
        name.required(errors, "must specify a resource name");
    } else if of_container {
        resources::check_container_name(name.text(), &name, errors);
    }
    if of_container {
        let container = source.child("container");
        if container.text().is_empty() {
            container.required(errors, "must specify a container");
        } else {
            container.texts(errors, names::label(container.text()));
        }
    }
    check_goal(target, errors);
    let (share, value) = (target.child("averageUtilization"), target.child("averageValue"));
    match (share.is_set(), value.is_set()) {
        (false, false) => share.required(
            errors,
            "must set either a target raw value or a target utilization",
        ),
        (true, true) => value.forbidden(
            errors,
            "may not set both a target raw value and a target utilization",
        ),
        _ => {}
    }
}

fn check_goal(target: &Field<'_>, errors: &mut Errors) {
    let kind = target.child("type");
    if kind.text().is_empty() {
        kind.required(errors, "must specify a metric target type");
    }
    if !TARGET_TYPES.contains(&kind.text()) {
        kind.invalid_text(errors, "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        let value = target.child(name);
        if resources::quantity(value.value).is_some_and(|value| value.sign() != 1) {
            value.invalid(errors, "must be positive");
        }
    }
    let share = target.child("averageUtilization");
    if share.number().is_some_and(|share| share < 1) {
        share.invalid(errors, "must be greater than 0");
    }
}

fn check_identifier(source: &Field<'_>, errors: &mut Errors) {
    let name = source.child("metric").child("name");
    if name.text().is_empty() {
        name.required(errors, "must specify a metric name");
    } else {
        name.texts(errors, formats::path_segment(name.text()));
    }
}

fn check_rules(rules: &Field<'_>, errors: &mut Errors) {
    if !rules.is_set() {
        return;
    }
    let window = rules.child("stabilizationWindowSeconds");
    match window.number() {
        Some(..0) => window.invalid(errors, "must be greater than or equal to zero"),
        Some(seconds) if seconds > MOST_WINDOW => {
            window.invalid(errors, format!("must be less than or equal to {MOST_WINDOW}"));
        }
        _ => {}
    }
    rules.child("selectPolicy").one_of_if_set(errors, &SELECTIONS);
    let policies = rules.child("policies");
    if policies.count() == 0 {
        policies.required(errors, "must specify at least one Policy");
    }
    for policy in policies.items() {
        let (kind, period) = (policy.child("type"), policy.child("periodSeconds"));
        if !POLICIES.contains(&kind.text()) {
            kind.not_supported(errors, &POLICIES);
        }
        for name in ["value", "periodSeconds"] {
            let number = policy.number_of(name);
            if number <= 0 {
                policy.child(name).invalid_as(errors, json!(number), POSITIVE);
            }
        }
        if period.number().is_some_and(|seconds| seconds > MOST_PERIOD) {
            period.invalid(errors, format!("must be less than or equal to {MOST_PERIOD}"));
        }
    }
    let tolerance = rules.child("tolerance");
    if resources::quantity(tolerance.value).is_some_and(|tolerance| tolerance.sign() < 0) {
        tolerance.invalid(errors, NOT_NEGATIVE);
    }
}
