//! Requests that write: decoding their bodies and handing them to the pipeline. Requirements KA-014, KA-020, KA-027.

use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::Value;

use super::{dispatch::Call, read_body};
use crate::{
    answer::Answer,
    api::Api,
    apply,
    field::{FieldError, FieldPath},
    negotiation::{BodyFormat, Form, PatchFormat, accepted_form, body_format, patch_format},
    object, protobuf,
    read::Shape,
    request::{DryRun, Verb},
    status::{ApiError, ApiResult, Reason},
    strict::{self, Decoded, Format},
    write::{Intention, Part, WriteRequest, Written},
};

/// Decodes a body.
///
/// # Errors
/// 400 with the decoder's text.
pub(super) fn decode(body: &Bytes, format: BodyFormat) -> ApiResult<Decoded> {
    match format {
        BodyFormat::Json => strict::decode(body, Format::Json),
        BodyFormat::Yaml => strict::decode(body, Format::Yaml),
        // A field that occurs twice is merged by the rules of the encoding, and is no fault.
        BodyFormat::Protobuf => Ok(Decoded {
            value: protobuf::decode(body)?,
            duplicates: Vec::new(),
        }),
    }
}

/// Who writes, as `managedFields` names it.
pub(super) fn manager(call: &Call, headers: &HeaderMap) -> String {
    if !call.options.field_manager.is_empty() {
        return call.options.field_manager.clone();
    }
    let agent = headers
        .get(header::USER_AGENT)
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or("");
    match apply::manager_of_user_agent(agent) {
        name if name.is_empty() => "unknown".to_owned(),
        name => name,
    }
}

impl Api {
    /// Creates, replaces or patches the object or, for a path that says so, its status.
    pub(super) async fn write_object(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let part = match call.path.subresource.as_str() {
            "status" => Part::Status,
            "finalize" => Part::Finalize,
            _ => Part::Main,
        };
        let form = accepted_form(request.headers(), &[Form::Plain, Form::Table, Form::Metadata])?;
        let manager = manager(call, request.headers());
        let (intention, decoding_findings) = self.intention(call, request).await?;
        if call.verb == Verb::Create && call.kind.custom {
            let name = match &intention {
                Intention::Create(body) => object::name(body),
                _ => "",
            };
            self.check_definition_stays(&call.kind, name)?;
        }
        let write = WriteRequest {
            kind: std::sync::Arc::clone(&call.kind),
            snapshot: std::sync::Arc::clone(&call.snapshot),
            namespace: call.namespace().to_owned(),
            name: call.name().to_owned(),
            part,
            intention,
            manager,
            author: Some(call.identity.clone()),
            dry_run: call.options.dry_run == DryRun::All,
            field_validation: call.options.field_validation,
            decoding_findings,
        };
        let written = self.write(write).await?;
        Ok(self.written(call, form, written))
    }

    fn written(&self, call: &Call, form: Form, written: Written) -> Answer {
        let status = if written.created {
            StatusCode::CREATED
        } else {
            StatusCode::OK
        };
        let answer = if form == Form::Plain {
            Answer::json(status, &written.object)
        } else {
            let view = call.view();
            let shape = Shape::new(self, &view, form, &call.options.include_object);
            Answer::json(status, &shape.object(&written.object))
        };
        answer.with_warnings(written.warnings)
    }

    /// What the request wants, and what was found while its body was decoded.
    pub(super) async fn intention(
        &self,
        call: &Call,
        request: Request,
    ) -> ApiResult<(Intention, Vec<String>)> {
        if call.verb != Verb::Patch {
            let format = body_format(request.headers(), call.kind.custom)?;
            let body = read_body(self, request).await?;
            let Decoded { value, duplicates } = decode(&body, format)?;
            let findings = duplicate_findings(&duplicates);
            return Ok(match call.verb {
                Verb::Update => (Intention::Replace(value), findings),
                _ => (Intention::Create(value), findings),
            });
        }
        let format = patch_format(request.headers(), !call.kind.custom)?;
        let body = read_body(self, request).await?;
        let body_format = if format == PatchFormat::Apply {
            BodyFormat::Yaml
        } else {
            BodyFormat::Json
        };
        let Decoded { value, duplicates } = decode(&body, body_format)?;
        let findings = duplicate_findings(&duplicates);
        if format != PatchFormat::Apply && call.options.force.is_some() {
            let error = FieldError::forbidden(
                &FieldPath::of("force"),
                "may not be specified for non-apply patch",
            );
            return Err(ApiError::invalid_options("PatchOptions", &[error]));
        }
        let intention = match format {
            PatchFormat::Json => Intention::JsonPatch(value),
            PatchFormat::Merge => Intention::MergePatch(object_patch(value)?),
            PatchFormat::Strategic => Intention::StrategicPatch(object_patch(value)?),
            PatchFormat::Apply => {
                if call.options.field_manager.is_empty() {
                    let error =
                        FieldError::required(&FieldPath::of("fieldManager"), "is required for apply patch");
                    return Err(ApiError::invalid_options("PatchOptions", &[error]));
                }
                Intention::Apply {
                    configuration: value,
                    force: call.options.force.unwrap_or(false),
                }
            }
        };
        Ok((intention, findings))
    }
}

fn duplicate_findings(duplicates: &[String]) -> Vec<String> {
    duplicates
        .iter()
        .map(|path| format!("duplicate field {path:?}"))
        .collect()
}

fn object_patch(patch: Value) -> ApiResult<Value> {
    let found = match &patch {
        Value::Object(_) => return Ok(patch),
        Value::Null => return Ok(Value::Object(serde_json::Map::new())),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    };
    Err(ApiError::new(
        Reason::BadRequest,
        format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ),
    ))
}
