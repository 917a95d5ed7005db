//! Server-side apply and field ownership. Requirement KA-027.
//!
//! Every field of an object may have owners, recorded in `metadata.managedFields`. [`apply`] merges a
//! configuration into an object, takes out what the same manager applied before and no longer does, and refuses
//! to change what another manager owns unless forced. [`track_update`] keeps the record for every other write:
//! who changes a field owns it. Both work on a schema [`Node`] that says which lists and maps are merged and
//! which are replaced; the schema is also where an applied configuration is checked.
//!
//! The behaviour is that of the reference server (structured merge, version 6). Objects are compared in the
//! version they are written in: no kind served here needs a conversion between its versions.

mod compare;
mod conflict;
mod element;
mod empty;
mod field_set;
mod fields_v1;
mod last_applied;
mod managers;
mod merge;
mod remove;
mod types;
mod walk;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::schema::Node;
use crate::status::{ApiError, ApiResult, Reason};
use compare::Comparison;
use conflict::{Conflict, conflict_error, conflicts_of};
pub use element::PathElement;
pub(crate) use element::same_value;
use empty::empty_object;
pub use field_set::FieldSet;
pub use fields_v1::{FieldsError, decode as decode_fields, encode as encode_fields};
use managers::{ManagerId, Managers};
use remove::Emptied;
use types::Type;

/// The manager of what an object had before anything was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that the server itself writes, so that owning them would mean nothing.
const NEVER_OWNED: [&[&str]; 12] = [
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Who writes, and how.
#[derive(Clone, Debug)]
pub struct ApplyOptions {
    /// The `fieldManager` of the request, or [`manager_of_user_agent`].
    pub manager: String,
    /// Take over fields that others own.
    pub force: bool,
    /// `group/version`, or `v1`, of the request.
    pub api_version: String,
    /// `""`, `"status"` or `"scale"`.
    pub subresource: String,
    /// The time of new entries.
    pub now: Timestamp,
    /// Fields that this endpoint puts back to what they were, so that writing them gives no ownership; see
    /// [`reset_fields`].
    pub reset_fields: FieldSet,
}

impl ApplyOptions {
    /// The time of a changed entry. The reference tells none of what came through `scale`.
    fn time(&self) -> Option<Timestamp> {
        (self.subresource != "scale").then_some(self.now)
    }
}

/// The fields that an endpoint ignores: the main resource `status` (when there is a status subresource), the
/// status subresource all but `status`. `kind` and `custom` select the few kinds whose status endpoint ignores
/// part of the metadata too.
pub fn reset_fields(kind: &str, custom: bool, has_status: bool, subresource: &str) -> FieldSet {
    let paths: &[&[&str]] = match (subresource, custom, kind) {
        ("" | "finalize", _, _) if has_status => &[&["status"]],
        ("status", true, _) => &[&["metadata"], &["spec"]],
        ("status", false, "Deployment") => &[&["spec"], &["metadata", "labels"]],
        ("status", false, "Pod") => &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
        ("status", false, _) => &[&["spec"]],
        _ => &[],
    };
    names(paths)
}

/// The manager of a request that names none: the program in its `User-Agent`, without version and platform.
pub fn manager_of_user_agent(user_agent: &str) -> String {
    let program = user_agent.split('/').next().unwrap_or_default();
    program
        .chars()
        .filter(|character| !character.is_control())
        .take(128)
        .collect()
}

/// Merges a configuration into an object (or into nothing, `live` being `None`).
///
/// The result has its `managedFields` brought up to date; a configuration that changes neither the object nor its
/// ownership gives back `live` as it was.
///
/// # Errors
/// 400 for a configuration of another version or one with `metadata.managedFields`, 409 with a cause for each
/// contested field, 500 with the text of the reference for a configuration that does not fit the schema.
pub fn apply(
    node: &Node,
    live: Option<&Value>,
    configuration: &Value,
    options: &ApplyOptions,
) -> ApiResult<Value> {
    check_version(configuration, options)?;
    if configuration
        .pointer("/metadata/managedFields")
        .is_some_and(|entries| !entries.is_null())
    {
        return Err(ApiError::new(
            Reason::BadRequest,
            "metadata.managedFields must be nil",
        ));
    }
    let ty = Type::root(node);
    let errors = walk::check(ty, configuration);
    if !errors.is_empty() {
        return Err(ApiError::new(
            Reason::Unknown,
            format!(
                "failed to create typed patch object ({}): {}",
                describe(configuration),
                walk::join_errors(&errors)
            ),
        ));
    }

    let empty = empty_object(node, configuration);
    let recorded = live
        .and_then(|object| object.pointer("/metadata/managedFields"))
        .unwrap_or(&Value::Null);
    let mut managers = Managers::decode(recorded).map_err(|error| {
        ApiError::new(
            Reason::InternalError,
            format!("failed to decode managed fields: {error}"),
        )
    })?;
    let mut object = live.map_or_else(|| empty.clone(), without_managed_fields);
    if managers.0.is_empty() {
        let id = ManagerId::new(
            BEFORE_FIRST_APPLY,
            false,
            &options.api_version,
            &options.subresource,
        );
        update_managers(ty, &empty, &object, &mut managers, &id, options);
        managers.cap_update_managers();
    }

    let id = ManagerId::new(&options.manager, true, &options.api_version, &options.subresource);
    let allowed = (options.manager == last_applied::MANAGER)
        .then(|| last_applied::unchanged_since(ty, &object, &options.api_version))
        .flatten();
    let (merged, mut managers) = apply_once(
        ty,
        &object,
        configuration,
        &managers,
        &id,
        options,
        allowed.as_ref(),
    )
    .map_err(|conflicts| conflict_error(&conflicts))?;
    if !same_value(&object, &merged) {
        object = merged;
        if let Some(owned) = managers.0.get_mut(&id) {
            owned.time = options.time();
        }
    }
    if options.manager == last_applied::MANAGER {
        last_applied::refresh(&mut object, configuration);
    }
    put_managed_fields(&mut object, &managers);
    Ok(object)
}

/// Brings the `managedFields` of a create, update or patch up to date: the manager owns what it changed, and
/// nobody owns what is gone.
///
/// The entries of `candidate` count when it has any (a client may edit them; `[]` or `[{}]` resets them), else
/// those of `live`. An object whose record was reset stays untracked until it is applied.
pub fn track_update(node: &Node, live: Option<&Value>, candidate: &mut Value, options: &ApplyOptions) {
    let ty = Type::root(node);
    let sent = candidate.pointer("/metadata/managedFields").cloned();
    let mut managers = recorded_managers(live, sent.as_ref(), !options.subresource.is_empty());
    strip_managed_fields(candidate);
    if managers.0.is_empty() && live.is_some() {
        return;
    }
    let before = live.map_or_else(|| empty_object(node, candidate), without_managed_fields);
    let id = ManagerId::new(
        &options.manager,
        false,
        &options.api_version,
        &options.subresource,
    );
    update_managers(ty, &before, candidate, &mut managers, &id, options);
    managers.cap_update_managers();
    put_managed_fields(candidate, &managers);
}

/// Merges, prunes and settles ownership, or answers the conflicts.
fn apply_once(
    ty: Type<'_>,
    live: &Value,
    configuration: &Value,
    managers: &Managers,
    id: &ManagerId,
    options: &ApplyOptions,
    allowed: Option<&FieldSet>,
) -> Result<(Value, Managers), Vec<Conflict>> {
    let mut managers = reconciled(ty, managers);
    let merged = merge::merge(ty, Some(live), Some(configuration)).unwrap_or(Value::Null);
    let set = walk::field_set(ty, configuration).recursive_difference(&options.reset_fields);
    let previous = managers.0.get(id).map(|owned| owned.set.clone());

    let mut claims = managers.clone();
    claims.set(id, set.clone(), &options.api_version);
    let gone = match previous {
        Some(previous) if !previous.is_empty() => no_longer_applied(ty, &merged, &claims, &previous),
        _ => FieldSet::default(),
    };
    let pruned =
        |emptied| remove::remove(ty, &merged, &gone, emptied).unwrap_or_else(|| Value::Object(Map::new()));

    // A container that was emptied is still there to the managers that own it.
    let comparison = Comparison::between(ty, live, &pruned(Emptied::Null)).without(&options.reset_fields);
    let changed = comparison.modified.union(&comparison.added);
    let contested: BTreeMap<ManagerId, FieldSet> = claims
        .0
        .iter()
        .filter(|(other, _)| *other != id)
        .map(|(other, owned)| (other.clone(), owned.set.intersection(&changed)))
        .filter(|(_, set)| !set.is_empty())
        .collect();
    if !options.force && !contested.is_empty() {
        let mut conflicts = conflicts_of(&contested);
        if let Some(allowed) = allowed {
            conflicts.retain(|conflict| !allowed.has(&conflict.path));
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    managers.set(id, set.difference(&names(&NEVER_OWNED)), &options.api_version);
    managers.release(&changed.union(&comparison.removed), Some(id));
    Ok((pruned(Emptied::Absent), managers))
}

/// What the manager applied last time and nobody claims now.
fn no_longer_applied(ty: Type<'_>, merged: &Value, claims: &Managers, previous: &FieldSet) -> FieldSet {
    let named = |set: &FieldSet| remove::with_named_parents(set, Some(ty));
    let set_of = |value: &Value| named(&walk::field_set(ty, value));
    let without = |gone: &FieldSet| remove::remove(ty, merged, gone, Emptied::Null).unwrap_or(Value::Null);

    let merged_set = set_of(merged);
    let previous = named(previous);
    let claimed = claims
        .0
        .values()
        .fold(FieldSet::default(), |all, owned| all.union(&owned.set));
    // First everything applied last time goes, then what anybody claims comes back, then what was never
    // applied comes back (it had gone together with a container).
    let pruned = without(&previous);
    let pruned = without(&merged_set.difference(&set_of(&pruned).union(&named(&claimed))));
    merged_set.difference(&set_of(&pruned)).intersection(&previous)
}

/// Gives `id` what changed between two versions, and takes it and what is gone from all others.
fn update_managers(
    ty: Type<'_>,
    before: &Value,
    after: &Value,
    managers: &mut Managers,
    id: &ManagerId,
    options: &ApplyOptions,
) {
    *managers = reconciled(ty, managers);
    let comparison = Comparison::between(ty, before, after).without(&options.reset_fields);
    let changed = comparison.modified.union(&comparison.added);
    managers.release(&changed.union(&comparison.removed), None);
    let gained = changed.difference(&names(&NEVER_OWNED));
    if gained.is_empty() {
        return;
    }
    let kept = managers
        .0
        .get(id)
        .map(|owned| owned.set.clone())
        .unwrap_or_default();
    managers.set(id, kept.union(&gained), &options.api_version);
    if let Some(owned) = managers.0.get_mut(id) {
        owned.time = options.time();
    }
}

fn reconciled(ty: Type<'_>, managers: &Managers) -> Managers {
    let mut managers = managers.clone();
    for owned in managers.0.values_mut() {
        owned.set = remove::reconcile(&owned.set, ty);
    }
    managers
}

/// The record to start from. A subresource's client cannot edit it, and a record that cannot be read is ignored
/// so that a broken one does not make an object unwritable.
fn recorded_managers(live: Option<&Value>, sent: Option<&Value>, is_subresource: bool) -> Managers {
    let stored = || {
        live.and_then(|object| object.pointer("/metadata/managedFields"))
            .and_then(|entries| Managers::decode(entries).ok())
            .unwrap_or_default()
    };
    let Some(sent) = sent.filter(|_| !is_subresource) else {
        return stored();
    };
    let resets = match sent.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    };
    if resets {
        return Managers::default();
    }
    match Managers::decode(sent) {
        Ok(managers) if !managers.0.is_empty() => managers,
        _ => stored(),
    }
}

fn check_version(configuration: &Value, options: &ApplyOptions) -> ApiResult<()> {
    let api_version = configuration
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if api_version == options.api_version {
        return Ok(());
    }
    Err(ApiError::new(
        Reason::BadRequest,
        format!("invalid object type: {}", describe_kind(configuration)),
    ))
}

/// `namespace/name; group/version, Kind=Kind`, as the reference names an object in its own errors.
fn describe(object: &Value) -> String {
    let metadata = |name: &str| {
        object
            .pointer("/metadata")
            .and_then(|metadata| metadata.get(name))
            .and_then(Value::as_str)
            .unwrap_or("")
    };
    format!(
        "{}/{}; {}",
        metadata("namespace"),
        metadata("name"),
        describe_kind(object)
    )
}

fn describe_kind(object: &Value) -> String {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={}", text("kind"))
}

fn names(paths: &[&[&str]]) -> FieldSet {
    FieldSet::of_names(paths.iter().map(|path| path.iter().copied()))
}

fn metadata_mut(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.get_mut("metadata").and_then(Value::as_object_mut)
}

fn strip_managed_fields(object: &mut Value) {
    if let Some(metadata) = metadata_mut(object) {
        metadata.remove("managedFields");
    }
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    strip_managed_fields(&mut object);
    object
}

fn put_managed_fields(object: &mut Value, managers: &Managers) {
    let Some(entries) = managers.encode() else { return };
    if let Some(object) = object.as_object_mut() {
        let metadata = object
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), entries);
        }
    }
}
