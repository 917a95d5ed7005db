//! Which requests a policy or binding is about.

use std::sync::Arc;

use serde_json::Value;

use super::{
    model::{MatchResources, NamedRule},
    subject::{Operation, Subject},
};
use crate::{
    api::Api,
    builtin::{KindInfo, strategy::labels},
    commit, object,
    status::{ApiError, Reason},
};

/// Where Events are stored, which are served in two groups.
const EVENTS: &str = "/events";

impl Api {
    /// The resource in whose version the request is meant: that of the request, or with `matchPolicy: Equivalent` another
    /// version of it. `None` when the request is not meant.
    ///
    /// # Errors
    /// Why that cannot be told.
    pub(super) fn matched(
        &self,
        resources: &MatchResources,
        subject: &Subject<'_>,
    ) -> Result<Option<Arc<KindInfo>>, String> {
        let namespace = self.matches_namespace(resources, subject);
        if namespace == Ok(false) || !matches_object(resources, subject) {
            return Ok(None);
        }
        if find(&resources.exclude_resource_rules, resources, subject).is_some() {
            return Ok(None);
        }
        let found = if resources.resource_rules.is_empty() {
            Some(Arc::clone(subject.kind))
        } else {
            find(&resources.resource_rules, resources, subject)
        };
        match found {
            Some(found) => namespace.map(|_matches| Some(found)),
            None => Ok(None),
        }
    }

    fn matches_namespace(&self, resources: &MatchResources, subject: &Subject<'_>) -> Result<bool, String> {
        let name = subject.namespace();
        if name.is_empty() && subject.kind.plural != "namespaces" {
            return Ok(true);
        }
        let Some(selector) = selecting(resources.namespace_selector.as_ref()) else {
            return Ok(true);
        };
        // A Namespace that is written is judged by its new labels.
        let is_written = subject.kind.plural == "namespaces"
            && subject.subresource.is_empty()
            && subject.operation != Operation::Delete;
        if is_written {
            return Ok(subject.object.is_some_and(|object| selects(selector, object)));
        }
        let namespace = self.namespace_object(name).map_err(|error| error.message)?;
        Ok(selects(selector, &namespace))
    }

    /// The stored Namespace.
    ///
    /// # Errors
    /// 404 without it; 500 when it cannot be read.
    pub(super) fn namespace_object(&self, name: &str) -> Result<Value, Box<ApiError>> {
        let stored = self
            .store()
            .get(&commit::key("/namespaces", "", name))
            .ok_or_else(|| ApiError::not_found("", "namespaces", name))?;
        let mut namespace: Value = serde_json::from_slice(&stored.value).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!("the stored namespace {name:?} cannot be read: {error}"),
            )
        })?;
        let version = stored.revision.to_string();
        object::set_meta(&mut namespace, "resourceVersion", Some(Value::from(version)));
        Ok(namespace)
    }
}

/// A selector that does not select everything.
fn selecting(selector: Option<&Value>) -> Option<&Value> {
    selector.filter(|selector| !labels::selects_everything(selector))
}

fn selects(selector: &Value, object: &Value) -> bool {
    let own = object::metadata(object)
        .and_then(|metadata| metadata.get("labels"))
        .and_then(Value::as_object);
    labels::matches(selector, own)
}

fn matches_object(resources: &MatchResources, subject: &Subject<'_>) -> bool {
    let Some(selector) = selecting(resources.object_selector.as_ref()) else {
        return true;
    };
    // What a connection asks for has no labels, so that no selector selects it, not even one for what is absent.
    if subject.operation == Operation::Connect {
        return false;
    }
    [subject.object, subject.old]
        .into_iter()
        .flatten()
        .any(|object| selects(selector, object))
}

/// The resource that one of the rules names.
fn find(rules: &[NamedRule], resources: &MatchResources, subject: &Subject<'_>) -> Option<Arc<KindInfo>> {
    let names = |rule: &NamedRule| {
        rule.resource_names.is_empty() || rule.resource_names.iter().any(|name| name == subject.name)
    };
    let is_meant = |rule: &NamedRule, kind: &KindInfo| matches_rule(rule, kind, subject) && names(rule);
    if rules.iter().any(|rule| is_meant(rule, subject.kind)) {
        return Some(Arc::clone(subject.kind));
    }
    if !resources.is_equivalent() {
        return None;
    }
    let others: Vec<&Arc<KindInfo>> = equivalents(subject).collect();
    rules.iter().find_map(|rule| {
        others
            .iter()
            .find(|kind| is_meant(rule, kind))
            .map(|kind| Arc::clone(kind))
    })
}

/// The same resource in other versions and groups.
fn equivalents<'a>(subject: &'a Subject<'_>) -> impl Iterator<Item = &'a Arc<KindInfo>> {
    let own = subject.kind;
    subject.snapshot.kinds.all().iter().filter(move |kind| {
        let is_same = (&kind.group, &kind.version) == (&own.group, &own.version);
        kind.storage_resource == own.storage_resource
            && !is_same
            && (own.custom || own.storage_resource == EVENTS)
    })
}

fn matches_rule(rule: &NamedRule, kind: &KindInfo, subject: &Subject<'_>) -> bool {
    let lists = |items: &[String], wanted: &str| items.iter().any(|item| item == "*" || item == wanted);
    matches_scope(rule, kind, subject)
        && lists(&rule.operations, subject.operation.as_str())
        && lists(&rule.api_groups, &kind.group)
        && lists(&rule.api_versions, &kind.version)
        && rule.resources.iter().any(|resource| {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            (resource == "*" || resource == kind.plural)
                && (subresource == "*" || subresource == subject.subresource)
        })
}

fn matches_scope(rule: &NamedRule, kind: &KindInfo, subject: &Subject<'_>) -> bool {
    let is_cluster = kind.storage_resource == "/namespaces" || subject.namespace().is_empty();
    match rule.scope.as_deref() {
        None | Some("*") => true,
        Some("Namespaced") => !is_cluster,
        Some("Cluster") => is_cluster,
        Some(_) => false,
    }
}
