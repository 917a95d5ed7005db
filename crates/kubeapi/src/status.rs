//! Failure answers, shaped as `meta/v1.Status`. Requirement KA-006.

use serde_json::{Map, Value, json};

use crate::field::FieldError;

/// The machine-readable reason of a failure; `as_str` is what clients compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// 400
    BadRequest,
    /// 401
    Unauthorized,
    /// 403
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 406
    NotAcceptable,
    /// 409 on create
    AlreadyExists,
    /// 409 on a stale version or an apply conflict
    Conflict,
    /// 410 of a list
    Gone,
    /// 410 of a watch or a continue token
    Expired,
    /// 413
    RequestEntityTooLarge,
    /// 415
    UnsupportedMediaType,
    /// 422
    Invalid,
    /// 429
    TooManyRequests,
    /// 500
    InternalError,
    /// 503
    ServiceUnavailable,
    /// 504
    Timeout,
    /// 504 of a write
    ServerTimeout,
    /// 500 of a fault that the reference gives no reason for
    Unknown,
}

impl Reason {
    /// The HTTP status code.
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout | Self::ServerTimeout => 504,
        }
    }

    /// The text in `Status.reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "BadRequest",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Expired => "Expired",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::Invalid => "Invalid",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
            Self::ServerTimeout => "ServerTimeout",
            Self::Unknown => "",
        }
    }
}

/// What a cause says: `reason`, `message`, and the `field` it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// For example `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    /// The text shown.
    pub message: String,
    /// The field path, `.spec.replicas` for apply conflicts; may be empty.
    pub field: String,
}

/// A refused request. Boxed where it travels in a `Result`, since it is large.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Why.
    pub reason: Reason,
    /// The text kubectl shows after `Error from server (REASON): `.
    pub message: String,
    /// `details.name`
    pub name: String,
    /// `details.group`
    pub group: String,
    /// `details.kind`: the resource for NotFound and Conflict, the kind for Invalid, as the reference does.
    pub kind: String,
    /// `details.causes`
    pub causes: Vec<Cause>,
    /// `details.retryAfterSeconds`, and the `Retry-After` header.
    pub retry_after_seconds: Option<u32>,
    /// Whether `details` is sent even when it holds nothing, as with failures that the reference makes of a bare code.
    pub bare: bool,
    /// `metadata.continue`: with an expired continue token, one that goes on inconsistently.
    pub continuation: Option<String>,
    /// Sent as `Warning` headers beside the refusal.
    pub warnings: Vec<String>,
}

/// The result of handling a request.
pub type ApiResult<T> = Result<T, Box<ApiError>>;

impl ApiError {
    /// A failure without details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            reason,
            message: message.into(),
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            causes: Vec::new(),
            retry_after_seconds: None,
            bare: false,
            continuation: None,
            warnings: Vec::new(),
        })
    }

    /// A failure that the reference makes of its code alone: `details` are there, and empty.
    pub fn bare(reason: Reason, message: impl Into<String>) -> Box<Self> {
        let mut error = Self::new(reason, message);
        error.bare = true;
        error
    }

    /// 422 for the options of a request, such as `ListOptions.meta.k8s.io "" is invalid: …`.
    pub(crate) fn invalid_options(kind: &str, errors: &[FieldError]) -> Box<Self> {
        Self::invalid("meta.k8s.io", kind, "", errors)
    }

    /// 404 for an object: `deployments.apps "x" not found`.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Box<Self> {
        let mut error = Self::new(
            Reason::NotFound,
            format!("{} {name:?} not found", qualified(group, resource)),
        );
        error.name = name.to_owned();
        error.group = group.to_owned();
        error.kind = resource.to_owned();
        error
    }

    /// 409 for a create of an object that is there: `deployments.apps "x" already exists`.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Box<Self> {
        let mut error = Self::new(
            Reason::AlreadyExists,
            format!("{} {name:?} already exists", qualified(group, resource)),
        );
        error.name = name.to_owned();
        error.group = group.to_owned();
        error.kind = resource.to_owned();
        error
    }

    /// 403: `deployments.apps "x" is forbidden: DETAIL`, without a name `deployments.apps is forbidden: DETAIL`.
    pub fn forbidden(group: &str, resource: &str, name: &str, detail: &str) -> Box<Self> {
        let subject = qualified(group, resource);
        let mut error = Self::new(
            Reason::Forbidden,
            if name.is_empty() {
                format!("{subject} is forbidden: {detail}")
            } else {
                format!("{subject} {name:?} is forbidden: {detail}")
            },
        );
        error.name = name.to_owned();
        error.group = group.to_owned();
        error.kind = resource.to_owned();
        error
    }

    /// 409 for a stale version: `Operation cannot be fulfilled on deployments.apps "x": DETAIL`.
    pub fn conflict(group: &str, resource: &str, name: &str, detail: &str) -> Box<Self> {
        let mut error = Self::new(
            Reason::Conflict,
            format!(
                "Operation cannot be fulfilled on {} {name:?}: {detail}",
                qualified(group, resource)
            ),
        );
        error.name = name.to_owned();
        error.group = group.to_owned();
        error.kind = resource.to_owned();
        error
    }

    /// 422 with one cause a field error, in the reference's joined form:
    /// `Kind.group "name" is invalid: E` for one and `… is invalid: [E1, E2]` for several.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Box<Self> {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let joined = match texts.as_slice() {
            [only] => only.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(
            Reason::Invalid,
            format!("{} {name:?} is invalid: {joined}", qualified(group, kind)),
        );
        error.name = name.to_owned();
        error.group = group.to_owned();
        error.kind = kind.to_owned();
        error.causes = errors
            .iter()
            .map(|item| Cause {
                reason: item.kind.cause().to_owned(),
                message: item.message(),
                field: item.path.to_string(),
            })
            .collect();
        error
    }

    /// The `Status` document that is sent.
    pub fn to_status(&self) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", &self.name), ("group", &self.group), ("kind", &self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self
                .causes
                .iter()
                .map(|cause| {
                    let mut entry = Map::new();
                    for (key, text) in [
                        ("reason", &cause.reason),
                        ("message", &cause.message),
                        ("field", &cause.field),
                    ] {
                        if !text.is_empty() {
                            entry.insert(key.to_owned(), json!(text));
                        }
                    }
                    Value::Object(entry)
                })
                .collect();
            details.insert("causes".to_owned(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after_seconds {
            details.insert("retryAfterSeconds".to_owned(), json!(seconds));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason.as_str(),
            "code": self.reason.code(),
        });
        if let (Some(token), Some(metadata)) = (&self.continuation, status.get_mut("metadata")) {
            *metadata = json!({"continue": token});
        }
        if let (Reason::Unknown, Some(object)) = (self.reason, status.as_object_mut()) {
            object.remove("reason");
        }
        if let (true, Some(object)) = (self.bare || !details.is_empty(), status.as_object_mut()) {
            object.insert("details".to_owned(), Value::Object(details));
        }
        status
    }
}

/// `resource.group`, or the bare name for the core group.
fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() {
        name.to_owned()
    } else {
        format!("{name}.{group}")
    }
}
