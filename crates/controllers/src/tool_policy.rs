//! ToolPolicy: compiles every expression and says whether the policy is in force (OM-351).

use kube::{Api, Client, ResourceExt};
use mainstay_resources::{
    condition_types,
    conditions::{NewCondition, set_condition},
    omnia::{
        ToolPolicy, ToolPolicyStatus,
        tool_policy::{Mode, OnFailure, Phase},
    },
    reasons, validation,
};
use mainstay_tools::policy::{self, Checked, PolicySpec};

use crate::{
    error::ReconcileError,
    events::{Notice, Publisher},
    options::ControllersOptions,
    presence::Presence,
    status,
    work::{Next, Reconciler, Revision, Seen, Work, reference},
};

/// A policy as the broker takes it: no metadata, no status, no Kubernetes types.
#[must_use]
pub fn policy_spec(policy: &ToolPolicy) -> PolicySpec {
    let spec = &policy.spec;
    PolicySpec {
        name: policy.name_any(),
        registry: spec.selector.registry.clone(),
        tools: spec.selector.tools.clone(),
        rules: spec
            .rules
            .iter()
            .map(|rule| policy::Rule {
                name: rule.name.clone(),
                deny: rule.deny.as_ref().map(|deny| policy::Deny {
                    cel: deny.cel.clone(),
                    message: deny.message.clone(),
                }),
                permit: rule.permit.as_ref().map(|permit| permit.cel.clone()),
            })
            .collect(),
        required_claims: spec
            .required_claims
            .iter()
            .map(|required| policy::RequiredClaim {
                claim: required.claim.clone(),
                message: required.message.clone(),
            })
            .collect(),
        mode: match spec.mode {
            Mode::Enforce => policy::Mode::Enforce,
            Mode::Audit => policy::Mode::Audit,
        },
        on_failure: match spec.on_failure {
            OnFailure::Deny => policy::OnFailure::Deny,
            OnFailure::Allow => policy::OnFailure::Allow,
        },
        header_injection: spec
            .header_injection
            .iter()
            .map(|injection| policy::HeaderInjection {
                header: injection.header.clone(),
                source: match (&injection.value, &injection.cel) {
                    (Some(value), _) => policy::HeaderSource::Value(value.clone()),
                    (None, cel) => policy::HeaderSource::Cel(cel.clone().unwrap_or_default()),
                },
            })
            .collect(),
        // The form is judged here, where it can be named; the broker then denies what the policy selects.
        broken: form_faults(policy),
    }
}

fn form_faults(policy: &ToolPolicy) -> Option<String> {
    let findings = validation::tool_policy::validate(&policy.spec);
    (!findings.is_empty()).then(|| validation::join(&findings))
}

/// The state a policy is in, from what its compilation gave.
fn judge(policy: &ToolPolicy, now: jiff::Timestamp) -> (ToolPolicyStatus, Vec<Notice>) {
    let mut status = policy.status.clone().unwrap_or_default();
    let generation = policy.metadata.generation;
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now);
    let spec = policy_spec(policy);
    let checked = match &spec.broken {
        Some(message) => Err(message.clone()),
        None => policy::check(&spec).map_err(|error| error.to_string()),
    };
    let mut notices = Vec::new();
    let mut set = |status: &mut ToolPolicyStatus, condition: NewCondition| {
        let warn = condition.status == mainstay_resources::conditions::ConditionStatus::False;
        let notice = Notice::warning(condition.reason, condition.message.clone());
        let (kind, message) = (condition.kind, condition.message.clone());
        let before = mainstay_resources::conditions::find_condition(&status.conditions, kind)
            .map(|old| old.message.clone());
        let changed = set_condition(&mut status.conditions, condition, generation, &now);
        // `Ready` says the same as `Compiled`; one Event is enough.
        if warn && kind != condition_types::READY && (changed || before != Some(message)) {
            notices.push(notice);
        }
    };
    match checked {
        Ok(Checked {
            rule_count,
            non_canonical_headers,
        }) => {
            status.phase = Some(Phase::Active);
            status.rule_count = i32::try_from(rule_count).ok();
            let message = format!("{rule_count} rule(s) compiled");
            for kind in [condition_types::COMPILED, condition_types::READY] {
                set(
                    &mut status,
                    NewCondition::met(kind, reasons::POLICY_COMPILED, message.clone()),
                );
            }
            let faults: Vec<String> = non_canonical_headers
                .iter()
                .map(|header| {
                    format!(
                        "{}: headers[{:?}] never matches; write {:?}",
                        header.place, header.written, header.canonical
                    )
                })
                .collect();
            let condition = if faults.is_empty() {
                NewCondition::met(
                    condition_types::HEADER_REFS_CANONICAL,
                    reasons::HEADER_REFS_CANONICAL,
                    "header names are spelled canonically",
                )
            } else {
                NewCondition::unmet(
                    condition_types::HEADER_REFS_CANONICAL,
                    reasons::NON_CANONICAL_HEADER_REF,
                    faults.join("; "),
                )
            };
            set(&mut status, condition);
        }
        Err(message) => {
            status.phase = Some(Phase::Error);
            status.rule_count = Some(0);
            for kind in [condition_types::COMPILED, condition_types::READY] {
                set(
                    &mut status,
                    NewCondition::unmet(kind, reasons::COMPILE_ERROR, message.clone()),
                );
            }
            mainstay_resources::conditions::remove_condition(
                &mut status.conditions,
                condition_types::HEADER_REFS_CANONICAL,
            );
        }
    }
    status.observed_generation = generation;
    (status, notices)
}

struct Controller {
    client: Client,
    options: ControllersOptions,
    publisher: Publisher,
}

impl Reconciler<ToolPolicy> for Controller {
    async fn reconcile(&self, policy: &ToolPolicy) -> Result<Next, ReconcileError> {
        if policy.metadata.deletion_timestamp.is_some() {
            return Ok(Next::AwaitChange);
        }
        let (new, notices) = judge(policy, self.options.clock.now());
        let api = Api::namespaced(self.client.clone(), &policy.namespace().unwrap_or_default());
        if status::write(&api, policy, &new).await? {
            for notice in notices {
                self.publisher.publish(policy, notice).await;
            }
        }
        Ok(Next::AwaitChange)
    }

    fn publisher(&self) -> &Publisher {
        &self.publisher
    }
}

/// Runs while the kind is there.
pub(crate) async fn run(
    client: Client,
    options: ControllersOptions,
    mut presence: Presence,
    cancellation: tokio_util::sync::CancellationToken,
) {
    loop {
        let present = tokio::select! {
            present = presence.wait_for(|present| *present == Some(true)) => present.is_ok(),
            () = cancellation.cancelled() => false,
        };
        if !present {
            return;
        }
        let round = cancellation.child_token();
        let mut work: Work<ToolPolicy> = Work::new("tool-policy-controller", client.clone(), round.clone());
        let mut revisions = Seen::new();
        work.own(move |policy, change| {
            if revisions.changed(policy, Revision::of(policy, change)) {
                vec![reference(policy)]
            } else {
                Vec::new()
            }
        });
        let controller = Controller {
            client: client.clone(),
            publisher: Publisher::new(
                client.clone(),
                options.clock.clone(),
                options.random.clone(),
                "toolpolicy-controller",
            ),
            options: options.clone(),
        };
        let mut running = std::pin::pin!(work.run(1, controller));
        let gone = async {
            // An error means that nobody tells any more, which happens at the end only.
            let _ = presence.wait_for(|present| *present == Some(false)).await;
        };
        tokio::select! {
            () = &mut running => return,
            () = gone => {
                round.cancel();
                running.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mainstay_resources::conditions::find_condition;
    use serde_json::json;

    use super::*;

    fn policy(spec: serde_json::Value) -> ToolPolicy {
        ToolPolicy::new("p", serde_json::from_value(spec).unwrap())
    }

    fn deny(cel: &str) -> serde_json::Value {
        json!({ "selector": { "registry": "r" }, "rules": [{ "name": "a", "deny": { "cel": cel, "message": "no" } }] })
    }

    #[test]
    fn a_policy_that_compiles_is_active_om_351() {
        let (status, notices) = judge(
            &policy(deny("size(body.expression) > 200")),
            jiff::Timestamp::UNIX_EPOCH,
        );
        assert_eq!((status.phase, status.rule_count), (Some(Phase::Active), Some(1)));
        assert_eq!(
            find_condition(&status.conditions, "Ready").unwrap().reason,
            "PolicyCompiled"
        );
        assert_eq!(
            find_condition(&status.conditions, "HeaderRefsCanonical")
                .unwrap()
                .status,
            "True"
        );
        assert!(notices.is_empty());
    }

    #[test]
    fn a_policy_that_does_not_compile_names_the_rule_and_the_cause_om_351() {
        let (status, notices) = judge(&policy(deny("body.id ==")), jiff::Timestamp::UNIX_EPOCH);
        assert_eq!((status.phase, status.rule_count), (Some(Phase::Error), Some(0)));
        let compiled = find_condition(&status.conditions, "Compiled").unwrap();
        assert_eq!(
            (compiled.status.as_str(), compiled.reason.as_str()),
            ("False", "CompileError")
        );
        assert!(compiled.message.contains("rule a"), "{}", compiled.message);
        assert_eq!(notices.len(), 1);

        let mut again = policy(deny("body.id =="));
        again.status = Some(status);
        let (_, repeated) = judge(&again, jiff::Timestamp::UNIX_EPOCH);
        assert!(repeated.is_empty(), "no Event for an unchanged state");
    }

    #[test]
    fn a_header_that_never_matches_is_reported_om_351() {
        let (status, notices) = judge(
            &policy(deny("headers['x-user'] == 'a'")),
            jiff::Timestamp::UNIX_EPOCH,
        );
        assert_eq!(status.phase, Some(Phase::Active));
        let condition = find_condition(&status.conditions, "HeaderRefsCanonical").unwrap();
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", "NonCanonicalHeaderRef")
        );
        assert!(condition.message.contains("X-User"), "{}", condition.message);
        assert_eq!(notices[0].reason, "NonCanonicalHeaderRef");
    }

    #[test]
    fn a_rule_that_bypassed_admission_breaks_the_policy_dd_2() {
        let broken = policy(json!({ "selector": { "registry": "r" }, "rules": [{ "name": "a" }] }));
        assert!(policy_spec(&broken).broken.is_some());
        let (status, _) = judge(&broken, jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(status.phase, Some(Phase::Error));
    }
}
