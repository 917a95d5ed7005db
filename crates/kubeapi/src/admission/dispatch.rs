//! From the policies in force to a refusal or warnings.

use std::{collections::BTreeSet, sync::Arc};

use mainstay_cel::Value as Cel;
use serde_json::json;

use super::{
    access,
    evaluate::{self, Annotation, Denial, Inputs, Outcome},
    parameters,
    policies::{Binding, InForce},
    subject::{Subject, Versioned},
};
use crate::{
    api::Api,
    object,
    status::{ApiError, ApiResult, Cause, Reason},
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
