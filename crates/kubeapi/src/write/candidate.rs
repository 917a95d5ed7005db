//! From the client's intention to a candidate object.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Intention, Part, WriteRequest, shown};
use crate::{
    api::Api,
    apply::{self, ApplyOptions},
    builtin::{KindInfo, definitions},
    field::{FieldError, FieldPath},
    object, patch,
    present::{api_version, split_api_version},
    request::FieldValidation,
    schema::{self, Node, NodeKind},
    status::{ApiError, ApiResult, Reason},
};

/// How many unknown and duplicate fields are told.
const MAXIMUM_FINDINGS: usize = 100;
/// How much of a body is shown a second time in a refusal, in characters.
const SHOWN: usize = 30;
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// The whole object as the client wants it, nothing of it trusted yet.
pub(super) fn propose(
    api: &Api,
    request: &WriteRequest,
    name: &str,
    prior: Option<&Value>,
) -> ApiResult<Value> {
    let missing = || ApiError::not_found(&request.kind.group, &request.kind.plural, name);
    let patched = |patch: &dyn Fn(&mut Value) -> ApiResult<()>| {
        let mut object = prior.cloned().ok_or_else(missing)?;
        patch(&mut object)?;
        Ok(object)
    };
    match &request.intention {
        Intention::Create(object) | Intention::Replace(object) => Ok(object.clone()),
        Intention::JsonPatch(patch) => patched(&|object| patch::json_patch(object, patch)),
        Intention::MergePatch(patch) => patched(&|object| patch::merge_patch(object, patch)),
        Intention::StrategicPatch(patch) => {
            patched(&|object| patch::strategic_merge(&request.kind.node, object, patch))
        }
        Intention::Change(change) => patched(&|object| change(object)),
        Intention::Apply { configuration, force } => {
            let options = apply_options(api, request, *force);
            // A namespace that the configuration leaves out is not applied by it.
            check_identity(api, request, &mut configuration.clone(), name)?;
            let configuration = configuration.clone();
            let mut proposed = apply::apply(&request.kind.node, prior, &configuration, &options)?;
            // The configuration's version and uid are preconditions; what the merge took from the stored object is none.
            for field in ["resourceVersion", "uid"] {
                let stated = object::meta_text(&configuration, field);
                object::set_meta(&mut proposed, field, (!stated.is_empty()).then(|| json!(stated)));
            }
            Ok(proposed)
        }
    }
}

/// How a write is recorded in `managedFields`.
pub(super) fn apply_options(api: &Api, request: &WriteRequest, force: bool) -> ApplyOptions {
    ApplyOptions {
        manager: request.manager.clone(),
        force,
        api_version: api_version(&request.kind.group, &request.kind.version),
        subresource: request.part.subresource().to_owned(),
        now: api.clock().now(),
        reset_fields: apply::reset_fields(
            &request.kind.kind,
            request.kind.custom,
            request.kind.status,
            request.part.subresource(),
        ),
    }
}

/// The body must be the object that the URL names. A namespace that the body leaves out is taken from the URL.
pub(super) fn check_identity(
    api: &Api,
    request: &WriteRequest,
    proposed: &mut Value,
    name: &str,
) -> ApiResult<()> {
    let kind = &request.kind;
    let expected = api_version(&kind.group, &kind.version);
    let refuse = |text: String| Err(ApiError::new(Reason::BadRequest, text));
    if !proposed.is_object() {
        return refuse(format!("the body of the request is no {} object", kind.kind));
    }
    let text = |field: &str| {
        proposed
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned()
    };
    let (body_version, body_kind) = (text("apiVersion"), text("kind"));
    if body_kind.is_empty() && kind.custom {
        let sent = proposed.to_string();
        let beginning: String = sent.chars().take(SHOWN).collect();
        let shown = if beginning.len() < sent.len() {
            format!("{beginning} ...")
        } else {
            sent.clone()
        };
        return refuse(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{sent}' ({shown})",
            kind.kind
        ));
    }
    if let Intention::Apply { .. } = request.intention {
        if body_version != expected || body_kind != kind.kind {
            let (group, version) = split_api_version(&body_version);
            return refuse(format!(
                "invalid object type: {group}/{version}, Kind={body_kind}"
            ));
        }
    } else if kind.custom {
        if !body_version.is_empty() && body_version != expected {
            return refuse(format!(
                "the API version in the data ({body_version}) does not match the expected API version ({expected})"
            ));
        }
        if body_kind != kind.kind {
            let detail = format!("must be {}", kind.kind);
            let error = FieldError::invalid(&FieldPath::of("kind"), json!(body_kind), detail);
            return Err(ApiError::invalid(
                &kind.group,
                &body_kind,
                object::name(proposed),
                &[error],
            ));
        }
    } else {
        let version = if body_version.is_empty() {
            &expected
        } else {
            &body_version
        };
        let sent_kind = if body_kind.is_empty() {
            &kind.kind
        } else {
            &body_kind
        };
        if let Some(detail) = mistaken(api, kind, version, sent_kind) {
            let is_patch = matches!(
                request.intention,
                Intention::JsonPatch(_) | Intention::MergePatch(_) | Intention::StrategicPatch(_)
            );
            if is_patch {
                return Err(undecodable(
                    request,
                    Some(shown::patched(request, proposed)),
                    detail,
                ));
            }
            let (_, version) = split_api_version(version);
            return refuse(format!(
                "{sent_kind} in version {version:?} cannot be handled as a {}: {detail}",
                kind.kind
            ));
        }
    }
    let Some(fields) = proposed.as_object_mut() else {
        return Ok(());
    };
    fields.insert("apiVersion".to_owned(), json!(expected));
    fields.insert("kind".to_owned(), json!(kind.kind));
    let body_name = object::name(proposed);
    if !request.name.is_empty() && body_name != request.name {
        if body_name.is_empty()
            && !matches!(request.intention, Intention::Replace(_) | Intention::Apply { .. })
        {
            object::set_meta(proposed, "name", Some(json!(name)));
        } else if body_name.is_empty() {
            return refuse(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                request.name
            ));
        } else {
            return refuse(format!(
                "the name of the object ({body_name}) does not match the name on the URL ({})",
                request.name
            ));
        }
    }
    let body_namespace = object::namespace(proposed);
    if kind.namespaced {
        if body_namespace.is_empty() {
            object::set_meta(proposed, "namespace", Some(json!(request.namespace)));
        } else if body_namespace != request.namespace {
            return refuse(
                "the namespace of the provided object does not match the namespace sent on the request"
                    .to_owned(),
            );
        }
    } else {
        // A cluster-scoped object has none, whatever the body says.
        object::set_meta(proposed, "namespace", None);
    }
    Ok(())
}

/// What is wrong with the type of a body for a built-in kind, in the words of the reference; `None` for the right one.
fn mistaken(api: &Api, kind: &KindInfo, version: &str, sent_kind: &str) -> Option<String> {
    if version == api_version(&kind.group, &kind.version) && sent_kind == kind.kind {
        return None;
    }
    let (group, bare) = split_api_version(version);
    let snapshot = api.registry().snapshot();
    let known = snapshot
        .kinds
        .by_kind(group, bare, sent_kind)
        .filter(|found| !found.custom);
    Some(match known {
        Some(found) => {
            let package = match kind.group.split('.').next() {
                None | Some("") => "core",
                Some(package) => package,
            };
            format!(
                "converting ({}.{}) to ({package}.{}): unknown conversion",
                found.version, found.kind, kind.kind
            )
        }
        None => {
            format!(
                "no kind {sent_kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )
        }
    })
}

/// Brings the proposed object to the form it is stored in: `null` means absent for metadata and for built-in kinds, and so
/// do empty lists and maps, which the types of the reference leave out. Quantities take their one form.
pub(super) fn normalise(kind: &KindInfo, proposed: &mut Value) {
    if kind.custom {
        if let Some(metadata) = proposed.get_mut("metadata").filter(|value| value.is_object()) {
            drop_nulls(metadata);
            drop_empty(&definitions::object_meta(), metadata);
        }
    } else {
        drop_nulls(proposed);
        drop_empty(&kind.node, proposed);
    }
    object::set_meta(proposed, "selfLink", None);
}

fn drop_nulls_of(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    fields.values_mut().for_each(drop_nulls);
}

/// Drops empty lists and maps that need not be there. A structure without fields says something (`emptyDir: {}`) and stays.
fn drop_empty(node: &Node, value: &mut Value) {
    if node.definition.as_deref() == Some(QUANTITY) {
        canonical_quantity(value);
        return;
    }
    match (&node.kind, value) {
        (NodeKind::Object { .. }, Value::Object(fields)) => {
            let required = node
                .checks
                .as_ref()
                .map(|checks| checks.required.as_slice())
                .unwrap_or_default();
            fields.retain(|name, value| {
                let Some(child) = node.child(name) else {
                    return true;
                };
                drop_empty(child, value);
                let is_empty = match (&child.kind, &*value) {
                    (NodeKind::Array { .. }, Value::Array(list)) => list.is_empty(),
                    (
                        NodeKind::Object {
                            properties,
                            additional,
                        },
                        Value::Object(fields),
                    ) => properties.is_empty() && additional.is_some() && fields.is_empty(),
                    _ => false,
                };
                !is_empty || required.contains(name) || name == "rules"
            });
        }
        (NodeKind::Array { items }, Value::Array(list)) => {
            list.iter_mut().for_each(|item| drop_empty(items, item));
        }
        _ => {}
    }
}

/// A quantity may be sent as a number, and in many forms; it is stored as a text, in one.
fn canonical_quantity(value: &mut Value) {
    let sent = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    *value = json!(mainstay_cel::canonical_quantity(&sent).unwrap_or(sent));
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => drop_nulls_of(fields),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Prunes, and reports or refuses what was pruned as `fieldValidation` says. Requirement KA-014.
pub(super) fn drop_unknown_fields(
    request: &WriteRequest,
    proposed: &mut Value,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let is_patch = matches!(
        request.intention,
        Intention::JsonPatch(_) | Intention::MergePatch(_) | Intention::StrategicPatch(_)
    );
    // The reference shows the patched object as it was before anything was dropped from it.
    let sent = (is_patch && request.field_validation == FieldValidation::Strict)
        .then(|| shown::patched(request, proposed));
    let unknown = schema::prune(&request.kind.node, proposed);
    let mut findings = request.decoding_findings.with_unknown(&unknown);
    findings.truncate(MAXIMUM_FINDINGS);
    if findings.is_empty() {
        return Ok(());
    }
    match request.field_validation {
        FieldValidation::Ignore => Ok(()),
        FieldValidation::Warn => {
            warnings.extend(findings);
            Ok(())
        }
        FieldValidation::Strict => {
            let detail = format!("strict decoding error: {}", findings.join(", "));
            Err(undecodable(request, sent, detail))
        }
    }
}

/// Refuses values of the wrong type before anything else looks at them. What a strategic patch has more than its type can
/// hold is cut off. Requirement KA-006.
pub(super) fn check_types(request: &WriteRequest, proposed: &mut Value) -> ApiResult<()> {
    if let (Intention::StrategicPatch(_), false) = (&request.intention, request.kind.custom) {
        return match schema::restore_error(&request.kind.node, proposed) {
            None => {
                schema::restore_integers(&request.kind.node, proposed);
                Ok(())
            }
            Some(detail) => Err(undecodable(
                request,
                Some(shown::patched(request, proposed)),
                detail,
            )),
        };
    }
    match request.kind.decode_error(proposed) {
        None => Ok(()),
        Some(text) => match request.intention {
            Intention::JsonPatch(_) | Intention::MergePatch(_) | Intention::StrategicPatch(_) => {
                // Of a patched object the reference tells the fault alone.
                let detail = text
                    .split_once(": ")
                    .map_or(text.as_str(), |(_, detail)| detail)
                    .to_owned();
                Err(undecodable(
                    request,
                    Some(shown::patched(request, proposed)),
                    detail,
                ))
            }
            _ => Err(ApiError::new(Reason::BadRequest, text)),
        },
    }
}

/// The reference decodes the patched object, and reports one that does not decode as a bad patch (`patched`); a body that
/// does not decode is a bad request.
fn undecodable(request: &WriteRequest, patched: Option<String>, detail: String) -> Box<ApiError> {
    let kind = &request.kind;
    match patched {
        Some(text) => {
            let error = FieldError::invalid(&FieldPath::of("patch"), json!(text), detail);
            ApiError::invalid("", "", "", &[error])
        }
        None => ApiError::new(
            Reason::BadRequest,
            format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {detail}",
                kind = kind.kind,
                version = kind.version
            ),
        ),
    }
}

/// A new object: a status comes only from the server, where the kind has a status subresource.
pub(super) fn new_object(kind: &Arc<KindInfo>, mut proposed: Value) -> Value {
    if kind.status
        && let Some(fields) = proposed.as_object_mut()
    {
        fields.remove("status");
    }
    proposed
}

/// The stored object with only the part replaced that this request may write. Requirement KA-021.
pub(super) fn confine(kind: &Arc<KindInfo>, part: Part, prior: &Value, mut proposed: Value) -> Value {
    let take = |from: &Value, into: &mut Value, field: &str| {
        let Some(fields) = into.as_object_mut() else {
            return;
        };
        match from.get(field) {
            Some(value) => {
                fields.insert(field.to_owned(), value.clone());
            }
            None => {
                fields.remove(field);
            }
        }
    };
    match part {
        Part::Whole => proposed,
        Part::Main | Part::Scale => {
            if kind.status {
                take(prior, &mut proposed, "status");
            }
            proposed
        }
        Part::Status => {
            let mut object = prior.clone();
            take(&proposed, &mut object, "status");
            let managed = object::metadata(&proposed)
                .and_then(|metadata| metadata.get("managedFields"))
                .cloned();
            object::set_meta(&mut object, "managedFields", managed);
            object
        }
        Part::Finalize => {
            let mut object = prior.clone();
            let finalizers = proposed
                .pointer("/spec/finalizers")
                .cloned()
                .unwrap_or_else(|| json!([]));
            if let Some(fields) = object.as_object_mut() {
                let spec = fields.entry("spec").or_insert_with(|| json!({}));
                if let Some(spec) = spec.as_object_mut() {
                    if finalizers.as_array().is_some_and(Vec::is_empty) {
                        spec.remove("finalizers");
                    } else {
                        spec.insert("finalizers".to_owned(), finalizers);
                    }
                }
            }
            object
        }
    }
}
