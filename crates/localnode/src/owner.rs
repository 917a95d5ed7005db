//! Owner references and selectors, as both controllers use them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, OwnerReference};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use serde_json::json;

/// The reference that makes `owner` the controller of another object. Empty for an object without name or UID, which
/// the API never gives out.
pub(crate) fn controller_reference<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    owner.controller_owner_ref(&())
}

/// The controller of `object`, if it has one.
pub(crate) fn controller_of<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object
        .owner_references()
        .iter()
        .find(|reference| reference.controller == Some(true))
}

/// True if the object with this UID controls `object`.
pub(crate) fn is_controlled_by<K: Resource>(object: &K, uid: &str) -> bool {
    controller_of(object).is_some_and(|reference| reference.uid == uid)
}

/// True if the selector is not empty and matches the labels. An empty selector would take every object there is.
pub(crate) fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if empty {
        return false;
    }
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// A selector as a list parameter; `None` if it cannot be one.
pub(crate) fn list_parameters(selector: &LabelSelector) -> Option<kube::api::ListParams> {
    let selector = Selector::try_from(selector.clone()).ok()?;
    Some(kube::api::ListParams::default().labels_from(&selector))
}

/// The patch by which an owner takes an object that nobody controls. Names the object's UID, so that its successor of
/// the same name is not taken.
pub(crate) fn adoption<K: Resource>(object: &K, owner: &OwnerReference) -> serde_json::Value {
    let mut references = object.owner_references().to_vec();
    references.push(owner.clone());
    json!({ "metadata": { "uid": object.uid(), "ownerReferences": references } })
}
