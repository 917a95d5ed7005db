//! The `scale` subresource, `autoscaling/v1 Scale`, over the paths that a kind states. Requirements KA-010, KA-012.

use std::sync::Arc;

use axum::extract::Request;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::super::dispatch::{Call, not_allowed};
use crate::{
    answer::Answer,
    api::Api,
    builtin::ScalePaths,
    field::{FieldError, FieldPath},
    object, patch,
    request::{DryRun, Verb},
    status::{ApiError, ApiResult, Cause, Reason},
    write::{ChangeFn, Intention, MODIFIED, Part, WriteRequest},
};

impl Api {
    pub(super) async fn scale(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let Some(paths) = call.kind.scale.clone() else {
            return Err(not_allowed());
        };
        match call.verb {
            Verb::Get => {
                let stored = self
                    .store()
                    .get(&call.key())
                    .ok_or_else(|| ApiError::not_found(&call.kind.group, &call.kind.plural, call.name()))?;
                let object = call.view().value(&stored.value, stored.revision)?;
                if call.kind.custom && get_path(&object, &paths.spec_replicas).is_none_or(Value::is_null) {
                    return Err(no_replicas(&paths));
                }
                Ok(Answer::ok(&scale_of(&object, &paths)))
            }
            Verb::Update | Verb::Patch => self.write_scale(call, request, paths).await,
            _ => Err(not_allowed()),
        }
    }

    async fn write_scale(&self, call: &Call, request: Request, paths: ScalePaths) -> ApiResult<Answer> {
        let manager = super::super::writes::manager(call, request.headers());
        let (intention, _findings) = self.intention(call, request).await?;
        let group = call.kind.group.clone();
        let plural = call.kind.plural.clone();
        let name = call.name().to_owned();
        let custom_kind = call.kind.custom.then(|| call.kind.kind.clone());
        let scaled_paths = paths.clone();
        let change: ChangeFn = Arc::new(move |object: &mut Value| {
            let before = scale_of(object, &scaled_paths);
            let mut scale = before.clone();
            match &intention {
                Intention::Replace(body) => scale = body.clone(),
                Intention::JsonPatch(body) => patch::json_patch(&mut scale, body)?,
                Intention::MergePatch(body) | Intention::StrategicPatch(body) => {
                    patch::merge_patch(&mut scale, body)?
                }
                Intention::Apply { configuration, .. } => patch::merge_patch(&mut scale, configuration)?,
                Intention::Create(_) | Intention::Change(_) => return Err(not_allowed()),
            }
            let version = object::resource_version(&scale);
            if !matches!(version, "" | "0") && version != object::resource_version(object) {
                return Err(ApiError::conflict(&group, &plural, &name, MODIFIED));
            }
            let replicas = scale.pointer("/spec/replicas").cloned().unwrap_or(Value::from(0));
            match replicas.as_i64() {
                Some(count) if count >= 0 && i32::try_from(count).is_ok() => {
                    set_path(object, &scaled_paths.spec_replicas, json!(count))
                }
                _ => Err(match &custom_kind {
                    // The count is judged where it stands in the object.
                    Some(kind) => {
                        let path = FieldPath::of(scaled_paths.spec_replicas.clone());
                        let error = FieldError::invalid(&path, replicas, "should be a non-negative integer");
                        ApiError::invalid(&group, kind, &name, &[error])
                    }
                    None => {
                        let path = FieldPath::of("spec.replicas");
                        let error =
                            FieldError::invalid(&path, replicas, "must be greater than or equal to 0");
                        ApiError::invalid("autoscaling", "Scale", &name, &[error])
                    }
                }),
            }
        });
        let write = WriteRequest {
            kind: Arc::clone(&call.kind),
            snapshot: Arc::clone(&call.snapshot),
            namespace: call.namespace().to_owned(),
            name: call.name().to_owned(),
            part: Part::Scale,
            intention: Intention::Change(change),
            manager,
            author: Some(call.identity.clone()),
            dry_run: call.options.dry_run == DryRun::All,
            field_validation: call.options.field_validation,
            decoding_findings: crate::strict::Findings::default(),
        };
        let written = self.write(write).await?;
        Ok(Answer::json(StatusCode::OK, &scale_of(&written.object, &paths)))
    }
}

/// What the reference says of a custom resource that states no count: it has no default for it.
fn no_replicas(paths: &ScalePaths) -> Box<ApiError> {
    let detail = format!("the spec replicas field {:?} does not exist", paths.spec_replicas);
    let mut error = ApiError::new(
        Reason::InternalError,
        format!("Internal error occurred: {detail}"),
    );
    error.causes = vec![Cause {
        reason: String::new(),
        message: detail,
        field: String::new(),
    }];
    error
}

/// `.a.b` as the names it is made of.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.trim_start_matches('.')
        .split('.')
        .filter(|segment| !segment.is_empty())
}

fn get_path<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    segments(path).try_fold(object, |value, segment| value.get(segment))
}

fn set_path(object: &mut Value, path: &str, value: Value) -> ApiResult<()> {
    let mut place = object;
    for segment in segments(path) {
        if !place.is_object() {
            if !place.is_null() {
                return Err(ApiError::new(
                    Reason::InternalError,
                    format!("{path} does not lead to a field"),
                ));
            }
            *place = json!({});
        }
        let Some(fields) = place.as_object_mut() else {
            return Err(ApiError::new(
                Reason::InternalError,
                format!("{path} does not lead to a field"),
            ));
        };
        place = fields.entry(segment).or_insert(Value::Null);
    }
    *place = value;
    Ok(())
}

/// The Scale of an object.
pub(crate) fn scale_of(object: &Value, paths: &ScalePaths) -> Value {
    let count = |path: &str| get_path(object, path).and_then(Value::as_i64).unwrap_or(0);
    let selector = match &paths.label_selector {
        Some(path) => get_path(object, path)
            .and_then(Value::as_str)
            .unwrap_or("")
            .to_owned(),
        None => object
            .pointer("/spec/selector")
            .map(selector_text)
            .unwrap_or_default(),
    };
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object::metadata(object).and_then(|metadata| metadata.get(field)) {
            metadata.insert(field.to_owned(), value.clone());
        }
    }
    let mut status = json!({"replicas": count(&paths.status_replicas)});
    if let (false, Some(status)) = (selector.is_empty(), status.as_object_mut()) {
        status.insert("selector".to_owned(), json!(selector));
    }
    let replicas = count(&paths.spec_replicas);
    let spec = if replicas == 0 {
        json!({})
    } else {
        json!({"replicas": replicas})
    };
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    })
}

/// A label selector object as the text clients pass in queries.
fn selector_text(selector: &Value) -> String {
    let mut parts = Vec::new();
    if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
        parts.extend(
            labels
                .iter()
                .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))),
        );
    }
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key").and_then(Value::as_str).unwrap_or("");
        let values = object::text_list(expression.get("values")).join(",");
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => parts.push(format!("{key} in ({values})")),
            Some("NotIn") => parts.push(format!("{key} notin ({values})")),
            Some("Exists") => parts.push(key.to_owned()),
            Some("DoesNotExist") => parts.push(format!("!{key}")),
            _ => {}
        }
    }
    parts.join(",")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths {
            spec_replicas: ".spec.replicas".to_owned(),
            status_replicas: ".status.replicas".to_owned(),
            label_selector: None,
        }
    }

    #[test]
    fn the_scale_of_a_deployment_states_its_selector_ka_010() {
        let object = json!({
            "metadata": {"name": "orders", "labels": {"a": "b"}, "resourceVersion": "7"},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "orders"}, "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["x", "y"]}]}},
            "status": {"replicas": 2},
        });
        assert_eq!(
            scale_of(&object, &paths()),
            json!({
                "kind": "Scale", "apiVersion": "autoscaling/v1",
                "metadata": {"name": "orders", "resourceVersion": "7"}, "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "app=orders,tier in (x,y)"},
            })
        );
    }

    #[test]
    fn a_replica_path_that_is_not_there_yet_is_made() {
        let mut object = json!({"metadata": {}});
        set_path(&mut object, ".spec.size.count", json!(2)).unwrap();
        assert_eq!(object, json!({"metadata": {}, "spec": {"size": {"count": 2}}}));
        assert!(set_path(&mut json!({"spec": 1}), ".spec.size", json!(2)).is_err());
    }
}
