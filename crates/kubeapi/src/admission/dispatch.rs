//! From the policies in force to a refusal or warnings.

use std::{collections::BTreeSet, sync::Arc};

use mainstay_cel::Value as Cel;
use mainstay_store::kube::Key;
use serde_json::{Value, json};

use super::{
    access,
    evaluate::{self, Annotation, Denial, Inputs, Outcome},
    parameters,
    policies::{Binding, InForce},
    subject::{self, Operation, Subject, Target, Versioned},
};
use crate::{
    api::Api,
    builtin::KindInfo,
    delete::DeleteOptions,
    identity::Identity,
    object,
    present::{View, api_version},
    registry::Snapshot,
    request::FieldValidation,
    router,
    status::{ApiError, ApiResult, Cause, Reason},
    write::{Intention, Part, WriteRequest},
};

/// What the policies made of a request.
#[derive(Default)]
struct Findings {
    /// With the policy and binding that they come from, the first one first.
    denials: Vec<(String, Denial)>,
    warnings: Vec<String>,
}

impl Api {
    /// Whether any policy is in force at all.
    pub(crate) fn has_policies(&self) -> bool {
        !self.policies_in_force().in_force.is_empty()
    }

    /// Asks every policy in force; with what is to be warned of.
    ///
    /// # Errors
    /// The refusal of the first policy that denies the request, with its reason; the warnings go with it.
    pub(crate) fn admit(&self, subject: &Subject<'_>) -> ApiResult<Vec<String>> {
        let set = self.policies_in_force();
        // Policies do not judge themselves: nobody could correct one that refuses everything.
        if set.in_force.is_empty() || subject.kind.group == super::GROUP {
            return Ok(Vec::new());
        }
        let mut findings = Findings::default();
        let mut requests: Vec<Versioned<'_>> = Vec::new();
        for in_force in &set.in_force {
            if let Err(mut error) = self.ask(in_force, subject, &mut requests, &mut findings) {
                error.warnings = findings.warnings;
                return Err(error);
            }
        }
        match findings.denials.into_iter().next() {
            None => Ok(findings.warnings),
            Some((source, denial)) => Err(refusal(subject, &source, &denial, findings.warnings)),
        }
    }

    fn ask<'a>(
        &self,
        in_force: &InForce,
        subject: &'a Subject<'a>,
        requests: &mut Vec<Versioned<'a>>,
        findings: &mut Findings,
    ) -> ApiResult<()> {
        let policy = &in_force.policy;
        let fails_closed = policy.spec.fails_closed();
        let of_policy = format!("ValidatingAdmissionPolicy '{}'", policy.name);
        let misconfigured = |findings: &mut Findings, source: &str, message: String| {
            if fails_closed {
                let denial = Denial {
                    message,
                    reason: None,
                };
                findings.denials.push((source.to_owned(), denial));
            }
        };
        let constraints = policy.spec.match_constraints.clone().unwrap_or_default();
        let resource = match self.matched(&constraints, subject) {
            Ok(Some(resource)) => resource,
            Ok(None) => return Ok(()),
            Err(fault) => {
                let message = format!("failed to configure policy: {fault}");
                misconfigured(findings, &of_policy, message);
                return Ok(());
            }
        };
        let kind = policy
            .spec
            .param_kind
            .as_ref()
            .map(|kind| parameters::kind(subject.snapshot, kind))
            .transpose();
        let kind = match kind {
            Ok(kind) => kind,
            Err(fault) => {
                let message = format!("failed to configure policy: {fault}");
                misconfigured(findings, &of_policy, message);
                return Ok(());
            }
        };
        let mut annotations = BTreeSet::new();
        for binding in &in_force.bindings {
            let source = format!("{of_policy} with binding '{}'", binding.name);
            let parameters = match &binding.spec.match_resources {
                Some(resources) => self.matched(resources, subject),
                None => Ok(Some(Arc::clone(&resource))),
            }
            .and_then(|matched| match matched {
                Some(_) => self.parameters(kind.as_ref(), binding.spec.param_ref.as_ref(), subject),
                None => Ok(Vec::new()),
            });
            let parameters = match parameters {
                Ok(parameters) => parameters,
                Err(fault) => {
                    let message = format!("failed to configure binding: {fault}");
                    misconfigured(findings, &source, message);
                    continue;
                }
            };
            if parameters.is_empty() {
                continue;
            }
            let position = match requests.iter().position(|request| request.is_in(&resource)) {
                Some(position) => position,
                None => {
                    requests.push(Versioned::new(subject, &resource));
                    requests.len() - 1
                }
            };
            let Some(versioned) = requests.get(position) else {
                continue;
            };
            let namespace = self.namespace_value(subject)?;
            for parameters in parameters {
                let inputs = Inputs {
                    versioned,
                    parameters,
                    namespace: namespace.clone(),
                    authorizers: access::authorizers(self, subject),
                };
                let outcome = evaluate::evaluate(policy, &inputs);
                note(
                    &policy.name,
                    binding,
                    &source,
                    outcome,
                    findings,
                    &mut annotations,
                );
            }
        }
        if !annotations.is_empty() {
            // Their values are made of the request, in which there may be secrets.
            let keys: Vec<String> = annotations.into_iter().collect();
            tracing::info!(
                policy = policy.name,
                annotations = keys.join(","),
                resource = subject.kind.plural,
                namespace = subject.namespace,
                name = subject.name,
                "an admission policy annotates a request"
            );
        }
        Ok(())
    }

    /// `namespaceObject`: null for what is in no namespace, and for a Namespace itself.
    fn namespace_value(&self, subject: &Subject<'_>) -> ApiResult<Cel> {
        if subject.is_namespace() || subject.namespace.is_empty() {
            return Ok(Cel::Null);
        }
        let mut namespace = self.namespace_object(subject.namespace)?;
        for hidden in ["managedFields", "ownerReferences"] {
            object::set_meta(&mut namespace, hidden, None);
        }
        Ok(Cel::from(namespace))
    }

    /// Asks the policies about a planned write.
    ///
    /// # Errors
    /// As [`Api::admit`]; the warnings are in `warnings` either way.
    pub(crate) fn admit_write(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let Some(author) = &request.author else {
            return Ok(());
        };
        if request.part == Part::Whole || !self.has_policies() {
            return Ok(());
        }
        let kind = &request.kind;
        // A creation of what is there is judged as a creation too.
        let old = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
        let scale = |object: &Value| {
            kind.scale
                .as_ref()
                .map(|paths| router::scale_of(object, paths))
                .unwrap_or_default()
        };
        let is_scale = request.part == Part::Scale;
        let (scaled, scaled_before) = if is_scale {
            (Some(scale(object)), old.map(scale))
        } else {
            (None, None)
        };
        let target = if is_scale {
            Target::new("autoscaling", "v1", "Scale")
        } else {
            Target::of(kind)
        };
        let operation = if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        let options = match (&request.intention, operation) {
            (Intention::Create(_), _) | (_, Operation::Create) => "CreateOptions",
            (Intention::Replace(_), _) => "UpdateOptions",
            _ => "PatchOptions",
        };
        let subject = Subject {
            kind,
            snapshot: &request.snapshot,
            subresource: request.part.subresource(),
            target,
            operation,
            namespace: &request.namespace,
            name,
            object: Some(scaled.as_ref().unwrap_or(object)),
            old: scaled_before.as_ref().or(old),
            author,
            dry_run: request.dry_run,
            options: subject::write_options(
                options,
                &request.manager,
                request.dry_run,
                match request.field_validation {
                    FieldValidation::Ignore => "Ignore",
                    FieldValidation::Warn => "Warn",
                    FieldValidation::Strict => "Strict",
                },
            ),
        };
        match self.admit(&subject) {
            Ok(found) => {
                warnings.extend(found);
                Ok(())
            }
            Err(mut error) => {
                warnings.append(&mut error.warnings);
                Err(error)
            }
        }
    }
}

impl Api {
    /// Asks the policies about a deletion; `object` gives the object in the client's version. With what is to be warned of.
    ///
    /// # Errors
    /// As [`Api::admit`].
    pub(crate) fn admit_deletion(
        &self,
        view: &View,
        key: &Key,
        options: &DeleteOptions,
        object: impl FnOnce() -> Value,
    ) -> ApiResult<Vec<String>> {
        let Some(author) = &options.author else {
            return Ok(Vec::new());
        };
        if !self.has_policies() {
            return Ok(Vec::new());
        }
        let old = object();
        let subject = Subject {
            kind: &view.kind,
            snapshot: &self.registry().snapshot(),
            subresource: "",
            target: Target::of(&view.kind),
            operation: Operation::Delete,
            namespace: &key.namespace,
            name: if options.of_collection { "" } else { &key.name },
            object: None,
            old: Some(&old),
            author,
            dry_run: options.dry_run,
            options: options.to_value(),
        };
        self.admit(&subject)
    }

    /// Asks the policies about the creation of a subresource that is not stored itself: a binding, an eviction, a token. With
    /// what is to be warned of.
    ///
    /// # Errors
    /// As [`Api::admit`].
    pub(crate) fn admit_subresource(
        &self,
        call: Creation<'_>,
        target: Target,
        object: &Value,
    ) -> ApiResult<Vec<String>> {
        if !self.has_policies() {
            return Ok(Vec::new());
        }
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            let api_version = api_version(&target.group, &target.version);
            fields.insert("apiVersion".to_owned(), json!(api_version));
            fields.insert("kind".to_owned(), json!(target.kind));
        }
        let subject = Subject {
            kind: call.kind,
            snapshot: call.snapshot,
            subresource: call.subresource,
            target,
            operation: Operation::Create,
            namespace: call.namespace,
            name: call.name,
            object: Some(&object),
            old: None,
            author: call.author,
            dry_run: call.dry_run,
            options: subject::write_options("CreateOptions", call.manager, call.dry_run, "Warn"),
        };
        self.admit(&subject)
    }
}

/// The creation of a subresource.
pub(crate) struct Creation<'a> {
    pub(crate) kind: &'a Arc<KindInfo>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) author: &'a Identity,
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
}

/// Does with an outcome what the binding asks for.
fn note(
    policy: &str,
    binding: &Binding,
    source: &str,
    outcome: Outcome,
    findings: &mut Findings,
    annotations: &mut BTreeSet<String>,
) {
    for (index, decision) in outcome.decisions.into_iter().enumerate() {
        let Some(denial) = decision.denial else { continue };
        for action in &binding.spec.validation_actions {
            match action.as_str() {
                "Deny" => findings.denials.push((source.to_owned(), denial.clone())),
                "Warn" => {
                    let warning = format!("Validation failed for {source}: {}", denial.message);
                    if !findings.warnings.contains(&warning) {
                        findings.warnings.push(warning);
                    }
                }
                // The message may be made of the request, in which there may be secrets.
                "Audit" => tracing::warn!(
                    policy,
                    binding = binding.name,
                    expression = index,
                    actions = json!(binding.spec.validation_actions).to_string(),
                    "a request fails an admission policy that audits"
                ),
                _ => {}
            }
        }
    }
    for annotation in outcome.annotations {
        match annotation {
            Annotation::Published(key) => {
                annotations.insert(key);
            }
            Annotation::Excluded => {}
            Annotation::Failed(message) => {
                let denial = Denial {
                    message,
                    reason: None,
                };
                findings.denials.push((source.to_owned(), denial));
            }
        }
    }
}

/// The refusal of a request, in the words of the reference.
fn refusal(subject: &Subject<'_>, source: &str, denial: &Denial, warnings: Vec<String>) -> Box<ApiError> {
    let message = format!("{source} denied request: {}", denial.message);
    let mut error = subject.forbidden(&message);
    error.reason = match denial.reason.as_deref() {
        Some("Forbidden") => Reason::Forbidden,
        Some("Unauthorized") => Reason::Unauthorized,
        Some("RequestEntityTooLarge") => Reason::RequestEntityTooLarge,
        _ => Reason::Invalid,
    };
    error.causes.push(Cause {
        reason: String::new(),
        message,
        field: String::new(),
    });
    error.warnings = warnings;
    error
}
