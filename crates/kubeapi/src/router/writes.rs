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
    negotiation::{BodyFormat, Form, PatchFormat, body_format, patch_format},
    object, protobuf,
    read::Shape,
    request::{DryRun, FieldValidation, Verb},
    status::{ApiError, ApiResult, Reason},
    strict::{self, Decoded, Findings, Format},
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
            ..Decoded::default()
        }),
    }
}

/// Decodes the body of a creation or an update.
///
/// # Errors
/// 400 in the words of the reference, which names the kind that it expected and shows the beginning of the body.
fn decode_object(call: &Call, body: &Bytes, format: BodyFormat) -> ApiResult<Decoded> {
    let refuse = |detail: String| {
        ApiError::new(
            Reason::BadRequest,
            format!(
                "the object provided is unrecognized (must be of type {}): {detail} ({})",
                call.kind.kind,
                beginning(body)
            ),
        )
    };
    let decoded = match format {
        BodyFormat::Json if call.kind.custom => strict::decode(body, Format::Json),
        BodyFormat::Json => strict::decode_typed(body, Format::Json),
        BodyFormat::Yaml => strict::decode(body, Format::Yaml),
        BodyFormat::Protobuf => return decode(body, format),
    };
    let decoded = decoded.map_err(|error| match format {
        BodyFormat::Yaml => refuse(
            error
                .message
                .strip_prefix("error converting YAML to JSON: ")
                .unwrap_or(&error.message)
                .to_owned(),
        ),
        _ => refuse(format!("{NO_TYPE}{}", error.message)),
    })?;
    if let Some(detail) = untyped(&decoded.value) {
        return Err(refuse(format!("{NO_TYPE}{detail}")));
    }
    match &decoded.value {
        Value::Null if call.kind.custom => Err(refuse("Object 'Kind' is missing in 'null'".to_owned())),
        Value::Null => Ok(Decoded {
            value: Value::Object(serde_json::Map::new()),
            ..decoded
        }),
        Value::Object(fields) if call.kind.custom && !fields.get("kind").is_some_and(is_text) => {
            let sent = String::from_utf8_lossy(body);
            Err(refuse(format!(
                "Object 'Kind' is missing in '{}'",
                sent.trim_end()
            )))
        }
        _ => Ok(decoded),
    }
}

const NO_TYPE: &str = "couldn't get version/kind; json parse error: ";

fn is_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

/// Why neither version nor kind can be read from a body, if so.
fn untyped(value: &Value) -> Option<String> {
    const TYPE: &str = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    match value {
        Value::Null => None,
        Value::Object(fields) => ["apiVersion", "kind"].iter().find_map(|name| {
            let found = json_type(fields.get(*name)?)?;
            (found != "string").then(|| {
                format!("json: cannot unmarshal {found} into Go struct field .{name} of type string")
            })
        }),
        other => json_type(other)
            .map(|found| format!("json: cannot unmarshal {found} into Go value of type {TYPE}")),
    }
}

/// What the reference's decoder calls a value; `None` for null, which it takes for everything.
fn json_type(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => return None,
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
    })
}

/// How a body begins: as text where it may be JSON, else in hexadecimal digits.
pub(super) fn beginning(body: &[u8]) -> String {
    const SHOWN: usize = 30;
    let shown = &body[..body.len().min(SHOWN)];
    let rest = if body.len() > SHOWN { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{rest}", String::from_utf8_lossy(shown)),
        Some(_) => {
            let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{digits}{rest}")
        }
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
        let form = call.form(request.headers(), &[Form::Plain, Form::Table, Form::Metadata])?;
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
            Answer::json(status, &shape.object(&written.object)).in_form(form)
        };
        answer.with_warnings(written.warnings)
    }

    /// What the request wants, and what was found while its body was decoded.
    pub(super) async fn intention(&self, call: &Call, request: Request) -> ApiResult<(Intention, Findings)> {
        if call.verb != Verb::Patch {
            let format = body_format(request.headers(), call.kind.custom)?;
            let body = read_body(self, request).await?;
            let decoded = decode_object(call, &body, format)?;
            let findings = Findings {
                texts: findings(call, &decoded),
                document: match format {
                    BodyFormat::Json if !call.kind.custom => body,
                    _ => Bytes::new(),
                },
            };
            return Ok(match call.verb {
                Verb::Update => (Intention::Replace(decoded.value), findings),
                _ => (Intention::Create(decoded.value), findings),
            });
        }
        let format = patch_format(request.headers(), !call.kind.custom)?;
        let body = read_body(self, request).await?;
        let decoded = decode_patch(&body, format)?;
        let findings = match format {
            PatchFormat::Json => operation_findings(&decoded),
            _ => findings(call, &decoded),
        };
        let value = decoded.value;
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
        let findings = Findings {
            texts: findings,
            ..Findings::default()
        };
        Ok((intention, findings))
    }
}

/// Decodes a patch.
///
/// # Errors
/// 400 in the words of the reference: it says of an apply what is wrong with it, and of other patches that they are none.
fn decode_patch(body: &Bytes, format: PatchFormat) -> ApiResult<Decoded> {
    if format == PatchFormat::Apply {
        return decode(body, BodyFormat::Yaml).map_err(|error| {
            let detail = &error.message;
            let message = match detail.strip_prefix("error converting YAML to JSON: ") {
                // What begins like an object is taken for JSON, and told so.
                Some(detail) if !body.starts_with(b"{") => format!("error encoding patch: {detail}"),
                _ => format!("error decoding patch: {detail}"),
            };
            ApiError::new(Reason::BadRequest, message)
        });
    }
    decode(body, BodyFormat::Json)
        .map_err(|_malformed| ApiError::new(Reason::BadRequest, "invalid JSON patch"))
}

/// What was found in the operations of a JSON patch: members that none has, and those that are there twice.
fn operation_findings(decoded: &Decoded) -> Vec<String> {
    let unknown = decoded
        .value
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
        .flat_map(|(index, operation)| {
            operation
                .as_object()
                .into_iter()
                .flatten()
                .filter(|(name, _)| !matches!(name.as_str(), "op" | "path" | "from" | "value"))
                .map(move |(name, _)| format!("json patch unknown field \"[{index}].{name}\""))
        });
    // Below `value` a patch may say what it likes.
    let repeated = decoded
        .duplicates
        .iter()
        .filter(|path| path.matches('.').count() == 1)
        .map(|path| format!("json patch duplicate field {path:?}"));
    unknown.chain(repeated).collect()
}

/// What was found while a body was decoded, as it is told or refused.
fn findings(call: &Call, decoded: &Decoded) -> Vec<String> {
    if call.options.field_validation == FieldValidation::Strict {
        decoded.strict_errors()
    } else {
        decoded.warnings()
    }
}

fn object_patch(patch: Value) -> ApiResult<Value> {
    let found = match json_type(&patch) {
        Some("object") => return Ok(patch),
        None => return Ok(Value::Object(serde_json::Map::new())),
        Some(found) => found,
    };
    Err(ApiError::new(
        Reason::BadRequest,
        format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        ),
    ))
}
