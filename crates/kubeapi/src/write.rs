//! The one write pipeline: create, update, every patch and apply, on objects and their subresources.
//! Requirements KA-020, KA-021, KA-022, KA-027, and the rules for writes of the embedded API.
//!
//! [`Api::write`] reads the stored object, plans what shall be stored (the planning is in [`plan`], and touches nothing
//! outside), and commits by one compare-and-swap. Whether it is a creation or an update is decided by what is stored,
//! not by the verb. A race that the client did not ask to lose is planned again.

mod candidate;
mod ownership;
mod plan;
mod shown;

use std::sync::Arc;

use mainstay_store::kube::{Expect, Key};
use mainstay_telemetry::task;
use serde_json::{Value, json};

use crate::{
    api::Api,
    builtin::KindInfo,
    commit::{self, Committed},
    custom::DEFINITIONS,
    identity::Identity,
    object,
    present::View,
    registry::Snapshot,
    request::FieldValidation,
    status::{ApiError, ApiResult, Reason},
    strict::Findings,
};

pub(crate) use plan::{Effect, Plan, forbidden};

/// Where Services are stored.
const SERVICES: &str = "/services";
/// How often a lost race is planned again.
const ATTEMPTS: usize = 8;
/// What a client is told whose version is stale.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// The part of an object that a write may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status, where the kind has a status subresource.
    Main,
    /// The status alone.
    Status,
    /// The replica count, through `scale`.
    Scale,
    /// The finalizers in a Namespace's spec.
    Finalize,
    /// Everything: only the server itself writes so.
    Whole,
}

impl Part {
    /// How `managedFields[].subresource` names it.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main | Self::Whole => "",
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Finalize => "finalize",
        }
    }
}

/// A change of an object made by the server itself.
pub(crate) type ChangeFn = Arc<dyn Fn(&mut Value) -> ApiResult<()> + Send + Sync>;

/// What the client wants.
pub(crate) enum Intention {
    Create(Value),
    Replace(Value),
    JsonPatch(Value),
    MergePatch(Value),
    StrategicPatch(Value),
    Apply { configuration: Value, force: bool },
    Change(ChangeFn),
}

/// One write.
pub(crate) struct WriteRequest {
    pub(crate) kind: Arc<KindInfo>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Empty for a cluster-scoped kind.
    pub(crate) namespace: String,
    /// Empty for a creation: the body has the name, or asks for one.
    pub(crate) name: String,
    pub(crate) part: Part,
    pub(crate) intention: Intention,
    pub(crate) manager: String,
    /// Whose rights bound what is written; `None` for the server itself.
    pub(crate) author: Option<Identity>,
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// Repeated fields that were found while the body was decoded.
    pub(crate) decoding_findings: Findings,
}

impl WriteRequest {
    /// A write by the server itself, bounded by nobody's rights.
    pub(crate) fn by_server(
        kind: Arc<KindInfo>,
        snapshot: Arc<Snapshot>,
        namespace: &str,
        name: &str,
        intention: Intention,
    ) -> Self {
        Self {
            kind,
            snapshot,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            part: Part::Main,
            intention,
            manager: "mainstay".to_owned(),
            author: None,
            dry_run: false,
            field_validation: FieldValidation::Strict,
            decoding_findings: Findings::default(),
        }
    }

    /// Whether the server chooses the object's name.
    fn generates_name(&self) -> bool {
        matches!(&self.intention, Intention::Create(body) if self.name.is_empty() && object::name(body).is_empty())
    }
}

/// What came of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl Api {
    /// Runs the pipeline, in a task of its own: what was begun is finished, and the locks are held for as long, even if
    /// the client goes away.
    pub(crate) async fn write(&self, request: WriteRequest) -> ApiResult<Written> {
        let api = self.clone();
        let task = task::spawn("kubeapi-write", async move { api.run_pipeline(&request).await });
        task.await.unwrap_or_else(|error| Err(commit::unfinished(&error)))
    }

    async fn run_pipeline(&self, request: &WriteRequest) -> ApiResult<Written> {
        // Two Services planned at the same time could be given the same address, two definitions the same names.
        let gate = match request.kind.storage_resource.as_str() {
            SERVICES => Some(self.address_gate()),
            DEFINITIONS => Some(self.definition_gate()),
            _ => None,
        };
        let _alone = match gate {
            Some(gate) => Some(gate.lock().await),
            None => None,
        };
        for _attempt in 0..ATTEMPTS {
            // While a namespace's last check for content and its removal run, nothing may be created in it.
            let _gate = if request.kind.namespaced {
                Some(self.namespace_gate().read().await)
            } else {
                None
            };
            match self.attempt(request).await {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {}
                // A generated name may be taken; the next attempt generates another.
                Err(error) if error.reason == Reason::AlreadyExists && request.generates_name() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::conflict(
            &request.kind.group,
            &request.kind.plural,
            &request.name,
            MODIFIED,
        ))
    }

    /// One attempt; `None` when it lost a race.
    async fn attempt(&self, request: &WriteRequest) -> ApiResult<Option<Written>> {
        let kind = &request.kind;
        let name = self.name_of(request);
        let key = commit::key(&kind.storage_resource, &request.namespace, &name);
        let (prior, revision) = self.prior(request, &key)?;
        let Plan {
            mut object,
            effect,
            warnings,
        } = self.plan(request, &name, prior.as_ref())?;
        let created = prior.is_none();
        if request.dry_run || effect == Effect::Nothing {
            return Ok(Some(Written {
                object,
                created,
                warnings,
            }));
        }
        let mut stored = in_storage_version(request, &object);
        let written = stored.as_mut().unwrap_or(&mut object);
        let committed = match (effect, revision) {
            // What was stored is what is gone: the write that let it go is in the answer alone.
            (Effect::Remove, Some(revision)) => {
                let mut last = prior.clone().unwrap_or_default();
                self.remove(key, &mut last, revision).await?
            }
            (_, Some(revision)) => self.put(key, written, Expect::Revision(revision)).await?,
            (_, None) => self.put(key, written, Expect::Absent).await?,
        };
        if let Some(stored) = stored {
            let version = object::resource_version(&stored).to_owned();
            object::set_meta(&mut object, "resourceVersion", Some(json!(version)));
        }
        Ok(match committed {
            Committed::At(_) => Some(Written {
                object,
                created,
                warnings,
            }),
            Committed::LostRace => None,
        })
    }

    /// The stored object in the request's version, and its revision.
    fn prior(&self, request: &WriteRequest, key: &Key) -> ApiResult<(Option<Value>, Option<u64>)> {
        if key.name.is_empty() {
            return Ok((None, None));
        }
        let Some(stored) = self.store().get(key) else {
            return Ok((None, None));
        };
        let view = View::new(&request.kind, &request.snapshot);
        let view = match request.part {
            Part::Whole => view.whole(),
            _ => view,
        };
        let mut object = view.value(&stored.value, stored.revision)?;
        object::set_meta(
            &mut object,
            "resourceVersion",
            Some(json!(stored.revision.to_string())),
        );
        Ok((Some(object), Some(stored.revision)))
    }

    /// The name of the object: the URL's, the body's, or for a creation with `generateName` a new one on each attempt.
    fn name_of(&self, request: &WriteRequest) -> String {
        if !request.name.is_empty() {
            return request.name.clone();
        }
        let Intention::Create(body) = &request.intention else {
            return String::new();
        };
        let name = object::name(body);
        if !name.is_empty() {
            return name.to_owned();
        }
        match object::meta_text(body, "generateName") {
            "" => String::new(),
            base => format!(
                "{}{}",
                crate::names::generated_base(base),
                self.random().suffix(crate::names::GENERATED_SUFFIX_LENGTH)
            ),
        }
    }

    /// A change made by the server itself, for example by garbage collection; `Ok(None)` when the object is gone or
    /// has another uid.
    pub(crate) async fn change(
        &self,
        kind: &Arc<KindInfo>,
        namespace: &str,
        name: &str,
        uid: &str,
        change: ChangeFn,
    ) -> ApiResult<Option<Value>> {
        let expected = uid.to_owned();
        let guarded: ChangeFn = Arc::new(move |object: &mut Value| {
            if !expected.is_empty() && object::uid(object) != expected {
                return Err(ApiError::not_found("", "", object::name(object)));
            }
            change(object)
        });
        let snapshot = self.registry().snapshot();
        let stored = snapshot.in_storage_version(kind);
        let request = WriteRequest {
            part: Part::Whole,
            field_validation: FieldValidation::Ignore,
            ..WriteRequest::by_server(stored, snapshot, namespace, name, Intention::Change(guarded))
        };
        match self.write(request).await {
            Ok(written) => Ok(Some(written.object)),
            Err(error) if error.reason == Reason::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The object as it is stored, if that is another version than the one it was written in. Requirement KA-012.
fn in_storage_version(request: &WriteRequest, object: &Value) -> Option<Value> {
    let storage = request.snapshot.in_storage_version(&request.kind);
    if storage.version == request.kind.version {
        return None;
    }
    let mut stored = object.clone();
    View::new(&storage, &request.snapshot).convert(&mut stored);
    Some(stored)
}
