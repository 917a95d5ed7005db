//! Planning a write: from the stored object and the client's wish to what shall be stored. Nothing is written here.

use std::collections::HashSet;

use serde_json::Value;

use super::{Intention, MODIFIED, Part, WriteRequest, candidate, ownership};
use crate::{
    admission,
    api::Api,
    apply,
    authorization::{Attributes, ResourceAttributes},
    builtin::{KindInfo, services},
    commit, custom,
    field::FieldError,
    names::{self, NameRule},
    object, schema,
    status::{ApiError, ApiResult, Cause, Reason},
};

/// What is to be done with the planned object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It is what is stored already.
    Nothing,
    /// It is stored.
    Put,
    /// It was only waiting for its last finalizer, and is removed.
    Remove,
}

/// What a write comes to.
pub(crate) struct Plan {
    pub(crate) object: Value,
    pub(crate) effect: Effect,
    pub(crate) warnings: Vec<String>,
}

impl Api {
    /// Plans a write. What is to be warned of is told with a refusal too.
    pub(super) fn plan(&self, request: &WriteRequest, name: &str, prior: Option<&Value>) -> ApiResult<Plan> {
        let mut warnings = Vec::new();
        match self.planned(request, name, prior, &mut warnings) {
            Ok((object, effect)) => Ok(Plan {
                object,
                effect,
                warnings,
            }),
            Err(mut error) => {
                error.warnings = warnings;
                Err(error)
            }
        }
    }

    fn planned(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> ApiResult<(Value, Effect)> {
        let kind = &request.kind;
        if let Intention::Replace(body) = &request.intention {
            candidate::check_identity(self, request, &mut body.clone(), name)?;
        }
        self.check_prior(request, name, prior)?;
        // What the client proposes, in the shape of the whole object.
        let mut proposed = candidate::propose(self, request, name, prior)?;
        candidate::check_identity(self, request, &mut proposed, name)?;
        candidate::normalise(kind, &mut proposed);
        if request.part != Part::Whole {
            candidate::check_types(request, &mut proposed)?;
            candidate::drop_unknown_fields(request, &mut proposed, warnings)?;
        }
        check_preconditions(request, &proposed, name, prior)?;
        // Only the part that this request may write is taken from it.
        let mut object = match prior {
            Some(prior) => candidate::confine(kind, request.part, prior, proposed),
            None => candidate::new_object(kind, proposed),
        };
        if prior.is_none() {
            object::set_meta(
                &mut object,
                "name",
                (!name.is_empty()).then(|| Value::String(name.to_owned())),
            );
            self.check_namespace(request, name)?;
            ownership::begin(self, kind, &mut object);
        }
        if request.part == Part::Whole {
            kind.strategy.default_times(&mut object);
        } else {
            kind.default_object(&mut object);
            // What the stored version does not have is not kept, and so nobody's.
            let storage = request.snapshot.in_storage_version(kind);
            if storage.version != kind.version {
                schema::prune(&storage.node, &mut object);
            }
            self.check_author(request, name, prior, &object)?;
            // Before the server adds what it chooses, which nobody owns.
            if !matches!(request.intention, Intention::Apply { .. }) {
                let options = candidate::apply_options(self, request, false);
                let live = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
                apply::track_update(&kind.node, live, &mut object, &options);
            }
            self.prepare(request, name, prior, &mut object)?;
            validate(request, name, prior, &object, warnings)?;
            self.check_parameters(request, name, prior, &object)?;
        }
        // A creation of what is there is refused only now: the reference judges the object first.
        if let (Intention::Create(_), Some(_)) = (&request.intention, prior) {
            self.admit_write(request, name, prior, &object, warnings)?;
            return Err(ApiError::already_exists(&kind.group, &kind.plural, name));
        }
        if let Some(prior) = prior {
            ownership::carry_over(kind, prior, &mut object);
        }
        self.admit_write(request, name, prior, &object, warnings)?;
        let effect = match prior {
            Some(prior) if ownership::is_unchanged(prior, &object) => {
                object = prior.clone();
                Effect::Nothing
            }
            _ if ownership::is_finished(kind, prior, &object) => Effect::Remove,
            _ => Effect::Put,
        };
        Ok((object, effect))
    }

    /// Whether the author may write just this: a role that gives no more than the author has, and by an update or patch
    /// a new object only where the author may create one. Requirement KA-041.
    fn check_author(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        object: &Value,
    ) -> ApiResult<()> {
        let Some(author) = &request.author else {
            return Ok(());
        };
        let kind = &request.kind;
        let creates = matches!(request.intention, Intention::Create(_));
        if prior.is_none() && !creates {
            let creation = ResourceAttributes {
                verb: "create".to_owned(),
                group: kind.group.clone(),
                resource: kind.plural.clone(),
                namespace: request.namespace.clone(),
                name: name.to_owned(),
                ..ResourceAttributes::default()
            };
            self.demand(author, &Attributes::Resource(creation))?;
        }
        self.check_escalation(
            author,
            kind,
            &request.namespace,
            object,
            prior.filter(|_| !creates),
        )
    }

    /// Whether the author may read the parameters that an admission policy or binding names.
    fn check_parameters(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        object: &Value,
    ) -> ApiResult<()> {
        let (Some(author), Part::Main) = (&request.author, request.part) else {
            return Ok(());
        };
        let old = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
        let refusal = self.check_parameter_rights(author, &request.kind, &request.snapshot, object, old);
        refuse(&request.kind, name, &Vec::from_iter(refusal))
    }

    /// Whether the intention suits what is stored.
    fn check_prior(&self, request: &WriteRequest, name: &str, prior: Option<&Value>) -> ApiResult<()> {
        if prior.is_some() {
            return Ok(());
        }
        let kind = &request.kind;
        let may_create = match &request.intention {
            Intention::Create(_) => true,
            Intention::Replace(_) => request.part == Part::Main && creates_on_update(kind),
            Intention::Apply { .. } => request.part == Part::Main,
            _ => false,
        };
        if may_create {
            Ok(())
        } else {
            Err(ApiError::not_found(&kind.group, &kind.plural, name))
        }
    }

    /// Creating needs a namespace that is there and not on its way out.
    fn check_namespace(&self, request: &WriteRequest, name: &str) -> ApiResult<()> {
        let kind = &request.kind;
        if !kind.namespaced {
            return Ok(());
        }
        let namespace = &request.namespace;
        let Some(stored) = self.store().get(&commit::key("/namespaces", "", namespace)) else {
            return Err(ApiError::not_found("", "namespaces", namespace));
        };
        let stored: Value = serde_json::from_slice(&stored.value).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!("the stored namespace {namespace:?} cannot be read: {error}"),
            )
        })?;
        if !object::is_being_deleted(&stored) {
            return Ok(());
        }
        let mut error = forbidden(
            kind,
            name,
            &format!("unable to create new content in namespace {namespace} because it is being terminated"),
        );
        error.causes = vec![Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        }];
        Err(error)
    }

    /// What each kind adds: the built-in kinds' own resets and allocations, and a definition's conditions.
    fn prepare(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        object: &mut Value,
    ) -> ApiResult<()> {
        let kind = &request.kind;
        if request.part == Part::Status && custom::is_definition(kind) {
            custom::keep_storage_version(object);
        }
        if request.part != Part::Main {
            return Ok(());
        }
        let old = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
        kind.strategy.prepare(object, old);
        match kind.storage_resource.as_str() {
            custom::DEFINITIONS => custom::prepare(self, kind, object),
            super::SERVICES => {
                let others = self.other_services(&request.namespace, name)?;
                let addresses: HashSet<String> = others
                    .iter()
                    .flat_map(|service| object::text_list(service.pointer("/spec/clusterIPs")))
                    .collect();
                let ports: HashSet<i64> = others.iter().flat_map(services::node_ports).collect();
                services::allocate(object, old, |address| addresses.contains(address))
                    .and_then(|()| services::allocate_node_ports(object, &ports).map_err(|error| vec![error]))
                    .map_err(|errors| ApiError::invalid(&kind.group, &kind.kind, name, &errors))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Every Service but one, whose addresses and ports are taken.
    ///
    /// # Errors
    /// 500 for one that cannot be read: what it holds could be given away a second time.
    fn other_services(&self, namespace: &str, name: &str) -> ApiResult<Vec<Value>> {
        let services = self.store().list(super::SERVICES, None).items;
        services
            .iter()
            .filter(|stored| &*stored.key.namespace != namespace || &*stored.key.name != name)
            .map(|stored| {
                serde_json::from_slice(&stored.value).map_err(|error| {
                    ApiError::new(
                        Reason::InternalError,
                        format!(
                            "the stored Service {}/{} cannot be read, and its addresses are not known: {error}",
                            stored.key.namespace, stored.key.name
                        ),
                    )
                })
            })
            .collect()
    }
}

fn validate(
    request: &WriteRequest,
    name: &str,
    prior: Option<&Value>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> ApiResult<()> {
    let kind = &request.kind;
    let old = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
    // Definitions are checked by the rules of custom resources.
    let strict_finalizers = !kind.custom && !custom::is_definition(kind);
    let mut errors = names::check_metadata(object, NameRule::of(&kind.storage_resource), strict_finalizers);
    if let Some(old) = old {
        errors.extend(names::check_metadata_update(object, old));
    }
    errors.extend(kind.validate_with_warnings(object, old, warnings));
    refuse(kind, name, &errors)
}

fn refuse(kind: &KindInfo, name: &str, errors: &[FieldError]) -> ApiResult<()> {
    if errors.is_empty() {
        Ok(())
    } else {
        // The reference names the kind that it keeps: an Event of either group is one of the core group.
        let group = kind
            .storage_resource
            .split_once('/')
            .map_or(kind.group.as_str(), |(group, _)| group);
        Err(ApiError::invalid(group, &kind.kind, name, errors))
    }
}

/// 403 in the form `configmaps "a" is forbidden: DETAIL`.
pub(crate) fn forbidden(kind: &KindInfo, name: &str, detail: &str) -> Box<ApiError> {
    ApiError::forbidden(&kind.group, &kind.plural, name, detail)
}

/// The client's preconditions: the version and the uid it names. Requirement KA-022.
fn check_preconditions(
    request: &WriteRequest,
    proposed: &Value,
    name: &str,
    prior: Option<&Value>,
) -> ApiResult<()> {
    if matches!(request.intention, Intention::Create(_)) {
        return match object::resource_version(proposed) {
            "" | "0" => Ok(()),
            _ => Err(ApiError::new(
                Reason::Unknown,
                "resourceVersion should not be set on objects to be created",
            )),
        };
    }
    let kind = &request.kind;
    let conflict = |detail: &str| Err(ApiError::conflict(&kind.group, &kind.plural, name, detail));
    let uid = object::uid(proposed);
    let Some(prior) = prior else {
        return if uid.is_empty() {
            Ok(())
        } else {
            conflict(&format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            ))
        };
    };
    if !uid.is_empty() && uid != object::uid(prior) {
        if !matches!(request.intention, Intention::Replace(_) | Intention::Apply { .. }) {
            let path = crate::field::FieldPath::of("metadata.uid");
            let error = FieldError::invalid(&path, Value::from(uid), "field is immutable");
            return Err(ApiError::invalid(&kind.group, &kind.kind, name, &[error]));
        }
        return conflict(&format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID \
             in precondition: {uid}, UID in object meta: {}",
            reference_key(request, name),
            object::uid(prior)
        ));
    }
    match object::resource_version(proposed) {
        "" | "0" => {
            if matches!(request.intention, Intention::Replace(_)) && needs_version(kind) {
                let path = crate::field::FieldPath::of("metadata.resourceVersion");
                let error = FieldError::invalid(&path, Value::from(0), "must be specified for an update");
                return Err(ApiError::invalid(&kind.group, &kind.plural, name, &[error]));
            }
            Ok(())
        }
        version if version == object::resource_version(prior) => Ok(()),
        version if version.parse::<u64>().is_err() => Err(ApiError::new(
            Reason::Unknown,
            format!("strconv.ParseUint: parsing {version:?}: invalid syntax"),
        )),
        _ => conflict(MODIFIED),
    }
}

/// Where the reference would keep the object, as its message names it.
fn reference_key(request: &WriteRequest, name: &str) -> String {
    let kind = &request.kind;
    let group = if kind.custom {
        format!("{}/", kind.group)
    } else {
        String::new()
    };
    let namespace = if request.namespace.is_empty() {
        String::new()
    } else {
        format!("{}/", request.namespace)
    };
    format!("/registry/{group}{}/{namespace}{name}", kind.plural)
}

/// The kinds whose PUT creates what is not there, as their strategies in the reference say.
fn creates_on_update(kind: &KindInfo) -> bool {
    matches!(
        kind.storage_resource.as_str(),
        "/events"
            | "/endpoints"
            | "/limitranges"
            | "coordination.k8s.io/leases"
            | "discovery.k8s.io/endpointslices"
            | "node.k8s.io/runtimeclasses"
    ) || kind.storage_resource.starts_with("rbac.authorization.k8s.io/")
}

/// The kinds whose PUT must name the version it replaces.
fn needs_version(kind: &KindInfo) -> bool {
    kind.custom
        || matches!(
            kind.storage_resource.as_str(),
            "coordination.k8s.io/leases"
                | "apiextensions.k8s.io/customresourcedefinitions"
                | admission::POLICIES
                | admission::BINDINGS
        )
}
