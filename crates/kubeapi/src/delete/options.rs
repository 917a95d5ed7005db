//! `DeleteOptions`, from the body or the query.

use serde_json::{Map, Value, json};

use crate::{
    builtin::KindInfo,
    field::{FieldError, FieldPath},
    identity::Identity,
    object::{self, FOREGROUND, ORPHAN},
    request::{DryRun, QueryOptions},
    status::{ApiError, ApiResult, Reason},
};

/// The kind whose dependents are orphaned when nobody says otherwise.
const JOBS: &str = "batch/jobs";
const PODS_STAY: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// What becomes of the dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
    /// They stay.
    Orphan,
}

/// How an object is to be deleted.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) orphan_dependents: Option<bool>,
    pub(crate) dry_run: bool,
    /// Whom admission policies are asked about; `None` for the server itself.
    pub(crate) author: Option<Identity>,
    /// Whether a whole collection is deleted, whose request names no object.
    pub(crate) of_collection: bool,
}

impl DeleteOptions {
    /// The plainest deletion, for the server's own purposes.
    pub(crate) fn background() -> Self {
        Self {
            propagation: Some(Propagation::Background),
            ..Self::default()
        }
    }

    /// Reads the options of the query and of `body`, which wins.
    ///
    /// # Errors
    /// 400 or 422 for values that are none.
    pub(crate) fn parse(query: &QueryOptions, body: Option<&Value>) -> ApiResult<Self> {
        let mut options = Self {
            grace_period_seconds: query.grace_period_seconds,
            propagation: query.propagation_policy.as_deref().map(propagation).transpose()?,
            orphan_dependents: query.orphan_dependents,
            dry_run: query.dry_run == DryRun::All,
            ..Self::default()
        };
        let Some(body) = body.filter(|body| !body.is_null()) else {
            return options.checked();
        };
        let fields = body.as_object().ok_or_else(|| {
            ApiError::new(
                Reason::BadRequest,
                "the body of a deletion must be a DeleteOptions object",
            )
        })?;
        if let Some(kind) = fields.get("kind").and_then(Value::as_str)
            && kind != "DeleteOptions"
        {
            let version = fields.get("apiVersion").and_then(Value::as_str).unwrap_or("");
            return Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
                ),
            ));
        }
        if let Some(seconds) = fields.get("gracePeriodSeconds").and_then(Value::as_i64) {
            options.grace_period_seconds = Some(seconds);
        }
        if let Some(policy) = fields.get("propagationPolicy").and_then(Value::as_str) {
            options.propagation = Some(propagation(policy)?);
        }
        if let Some(orphan) = fields.get("orphanDependents").and_then(Value::as_bool) {
            options.orphan_dependents = Some(orphan);
        }
        let dry_run = object::text_list(fields.get("dryRun"));
        if dry_run.iter().any(|value| value != "All") {
            let error = FieldError::not_supported(&FieldPath::of("dryRun"), json!(dry_run), &["All"]);
            return Err(ApiError::invalid_options("DeleteOptions", &[error]));
        }
        options.dry_run |= !dry_run.is_empty();
        let precondition = |field: &str| {
            body.pointer(&format!("/preconditions/{field}"))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        options.uid = precondition("uid");
        options.resource_version = precondition("resourceVersion");
        options.checked()
    }

    /// As a `DeleteOptions` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut fields = Map::new();
        fields.insert("kind".to_owned(), json!("DeleteOptions"));
        fields.insert("apiVersion".to_owned(), json!("meta.k8s.io/v1"));
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        set("gracePeriodSeconds", self.grace_period_seconds.map(Value::from));
        set("orphanDependents", self.orphan_dependents.map(Value::from));
        set(
            "propagationPolicy",
            self.propagation
                .map(|propagation| json!(format!("{propagation:?}"))),
        );
        set("dryRun", self.dry_run.then(|| json!(["All"])));
        let mut preconditions = Map::new();
        for (name, value) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(value) = value {
                preconditions.insert(name.to_owned(), json!(value));
            }
        }
        set(
            "preconditions",
            (!preconditions.is_empty()).then_some(Value::Object(preconditions)),
        );
        Value::Object(fields)
    }

    fn checked(self) -> ApiResult<Self> {
        if let (Some(propagation), Some(_)) = (self.propagation, self.orphan_dependents) {
            let error = FieldError::invalid(
                &FieldPath::of("propagationPolicy"),
                json!(format!("{propagation:?}")),
                "orphanDependents and deletionPropagation cannot be both set",
            );
            return Err(ApiError::invalid_options("DeleteOptions", &[error]));
        }
        Ok(self)
    }

    /// Refuses a deletion whose preconditions do not hold. Requirement KA-022.
    pub(super) fn check_preconditions(&self, kind: &KindInfo, name: &str, object: &Value) -> ApiResult<()> {
        // The reference names the kind here, and the resource everywhere else.
        let conflict = |detail: String| Err(ApiError::conflict(&kind.group, &kind.kind, name, &detail));
        match &self.uid {
            Some(uid) if uid != object::uid(object) => {
                return conflict(format!(
                    "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
                     deleted and then recreated",
                    object::uid(object)
                ));
            }
            _ => {}
        }
        match &self.resource_version {
            Some(version) if version != object::resource_version(object) => conflict(format!(
                "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
                 object might have been modified",
                object::resource_version(object)
            )),
            _ => Ok(()),
        }
    }

    /// What a client is told that deletes a Job and does not say what becomes of its Pods.
    pub(crate) fn warning(&self, kind: &KindInfo) -> Option<String> {
        let is_silent = self.propagation.is_none() && self.orphan_dependents.is_none();
        (is_silent && kind.storage_resource == JOBS).then(|| PODS_STAY.to_owned())
    }

    /// The finalizers that the object has while it waits: its own, less or more those of the garbage collector.
    pub(super) fn finalizers(&self, kind: &KindInfo, object: &Value) -> Vec<String> {
        let mut finalizers = object::finalizers(object);
        let chosen = self.propagation.or(match self.orphan_dependents {
            Some(true) => Some(Propagation::Orphan),
            Some(false) => Some(Propagation::Background),
            None => None,
        });
        let wanted = match chosen {
            Some(Propagation::Orphan) => Some(ORPHAN),
            Some(Propagation::Foreground) => Some(FOREGROUND),
            Some(Propagation::Background) => None,
            // Without a choice the finalizers that are there stay. Jobs orphan by default on the reference.
            None if kind.storage_resource == JOBS => Some(ORPHAN),
            None => return finalizers,
        };
        finalizers.retain(|finalizer| finalizer != ORPHAN && finalizer != FOREGROUND);
        finalizers.extend(wanted.map(str::to_owned));
        finalizers
    }
}

fn propagation(text: &str) -> ApiResult<Propagation> {
    match text {
        "Background" => Ok(Propagation::Background),
        "Foreground" => Ok(Propagation::Foreground),
        "Orphan" => Ok(Propagation::Orphan),
        _ => {
            let error = FieldError::not_supported(
                &FieldPath::of("propagationPolicy"),
                json!(text),
                &["Foreground", "Background", "Orphan", "nil"],
            );
            Err(ApiError::invalid_options("DeleteOptions", &[error]))
        }
    }
}
