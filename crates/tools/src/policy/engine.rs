//! The broker's handle and the decision itself.
//!
//! Order of judgement: no policy that selects the tool → denied. Else every selecting policy is judged, by name:
//! claims, then rules in order. The first refusal of an enforcing policy ends it; a refusal of an audit policy is
//! only noted. Then at least one policy must permit. Then the headers are computed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use mainstay_telemetry::text;

use super::compiled::{Policy, PolicyError};
use super::decision::{BROKER_UNREACHABLE, Decision, DecisionRequest, Mode, NO_MATCHING_PERMIT};
use super::evaluation::{Denial, Evaluation, Verdict, enforces, header_rule};
use super::explanation::{Explanation, Findings};
use super::spec::{OnFailure, PolicySpec};

/// Time after which a decision counts as not given (OM-488).
const DEADLINE: Duration = Duration::from_secs(2);
/// Characters of a name in a log line.
const LOGGED_NAME: usize = 128;

/// The compiled policies of one namespace.
#[derive(Debug, Default)]
pub struct PolicySet {
    /// Policies by the registry they select, ordered by name.
    by_registry: BTreeMap<String, Vec<Policy>>,
    errors: Vec<(String, PolicyError)>,
}

impl PolicySet {
    /// Compiles policies. One that cannot be compiled, or that its controller marked as broken, denies
    /// what it selects (OM-488); the others are not affected.
    pub fn compile(specs: Vec<PolicySpec>) -> Self {
        let mut set = Self::default();
        for spec in &specs {
            let policy = match (&spec.broken, Policy::compile(spec)) {
                (Some(reason), _) => Policy::broken(spec, reason),
                (None, Ok(policy)) => policy,
                (None, Err(error)) => {
                    let policy = Policy::broken(spec, &error.to_string());
                    set.errors.push((spec.name.clone(), error));
                    policy
                }
            };
            set.by_registry
                .entry(spec.registry.clone())
                .or_default()
                .push(policy);
        }
        for policies in set.by_registry.values_mut() {
            policies.sort_by(|left, right| left.name.cmp(&right.name));
        }
        set
    }

    /// Policies that could not be compiled, by name.
    pub fn errors(&self) -> &[(String, PolicyError)] {
        &self.errors
    }

    /// All policies with the registry they are about, by registry and name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &Policy)> {
        self.by_registry
            .iter()
            .flat_map(|(registry, policies)| policies.iter().map(move |policy| (registry.as_str(), policy)))
    }

    fn selecting<'a>(&'a self, registry: &str, tool: &'a str) -> impl Iterator<Item = &'a Policy> + Clone {
        self.by_registry
            .get(registry)
            .into_iter()
            .flatten()
            .filter(move |policy| policy.selects(tool))
    }
}

/// What a decision that is not given in time means (OM-488).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnreachable {
    /// The call is denied.
    #[default]
    Deny,
    /// The call is allowed. Only by explicit setting.
    Allow,
}

/// The policies in force for one namespace. Clones share them; [`PolicyEngine::set`] takes effect for the next decision
/// everywhere, and a decision that is being made keeps the set it began with.
#[derive(Debug, Clone, Default)]
pub struct PolicyEngine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// `None`: there is no policy engine (OM-483).
    set: ArcSwapOption<PolicySet>,
    on_unreachable: OnUnreachable,
    deadline: Duration,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            set: ArcSwapOption::from_pointee(PolicySet::default()),
            on_unreachable: OnUnreachable::default(),
            deadline: DEADLINE,
        }
    }
}

impl PolicyEngine {
    /// An engine with these policies. `PolicyEngine::default()` has none yet, and denies every call.
    pub fn new(set: PolicySet) -> Self {
        let engine = Self::default();
        engine.set(set);
        engine
    }

    /// No engine: calls are not evaluated (OM-483: the ToolPolicy CRD is absent).
    pub fn disabled() -> Self {
        let engine = Self::default();
        engine.disable();
        engine
    }

    /// An engine for which a decision that is not given in time means something else than the default.
    pub fn with_on_unreachable(on_unreachable: OnUnreachable) -> Self {
        Self {
            inner: Arc::new(Inner {
                on_unreachable,
                ..Inner::default()
            }),
        }
    }

    /// Puts a new set in force, and the engine on if it was off.
    pub fn set(&self, set: PolicySet) {
        self.inner.set.store(Some(Arc::new(set)));
    }

    /// Switches evaluation off, when the ToolPolicy CRD goes away (OM-483).
    pub fn disable(&self) {
        self.inner.set.store(None);
    }

    /// Whether calls are evaluated.
    pub fn is_enabled(&self) -> bool {
        self.inner.set.load().is_some()
    }

    /// Decides one call (OM-482…OM-491) and logs the decision (OM-494). Never fails and never waits for anything;
    /// computing takes microseconds per rule and ends after two seconds at the latest.
    pub fn decide(&self, request: &DecisionRequest) -> Decision {
        let Some(set) = self.inner.set.load_full() else {
            return Decision {
                allow: true,
                ..Decision::default()
            };
        };
        let decision = self.judge(&set, request, &mut Findings::none());
        log(request, &decision);
        decision
    }

    /// Says how a call would be decided, and what every policy of the namespace has to do with it. Nothing is logged:
    /// no call is made.
    pub fn explain(&self, request: &DecisionRequest) -> Explanation {
        let Some(set) = self.inner.set.load_full() else {
            return Explanation::not_judged();
        };
        let mut findings = Findings::kept();
        let decision = self.judge(&set, request, &mut findings);
        findings.explanation(decision, &set, request)
    }

    /// The names of the policies that select a tool; `None` where calls are not judged.
    pub fn selecting(&self, registry: &str, tool: &str) -> Option<Vec<String>> {
        let set = self.inner.set.load_full()?;
        Some(
            set.selecting(registry, tool)
                .map(|policy| policy.name.clone())
                .collect(),
        )
    }

    fn judge(&self, set: &PolicySet, request: &DecisionRequest, findings: &mut Findings) -> Decision {
        let deadline = Instant::now() + self.inner.deadline;
        let policies = set.selecting(&request.registry, &request.tool);
        if policies.clone().next().is_none() {
            return no_permit(request, Mode::Enforce);
        }
        let mut evaluation = Evaluation::new(request, policies.clone(), deadline);
        let mut permitted = false;
        let mut reported: Option<Denial> = None;
        let mut mode = Mode::Audit;
        for policy in policies.clone() {
            if enforces(policy) {
                mode = Mode::Enforce;
            }
            let verdict = evaluation.judge(policy, &request.identity);
            findings.judged(policy, &verdict);
            match verdict {
                Verdict::Permit => permitted = true,
                Verdict::NoPermit if enforces(policy) => {}
                Verdict::Deny(denial) if enforces(policy) => return refused(denial, evaluation),
                // An audit policy is a permit whatever it says (OM-489).
                Verdict::NoPermit => {
                    permitted = true;
                    reported.get_or_insert_with(|| no_permit_denial(request));
                }
                Verdict::Deny(denial) => {
                    permitted = true;
                    reported.get_or_insert(denial);
                }
                Verdict::OutOfTime => return self.out_of_time(evaluation),
            }
        }
        if !permitted {
            return refused(no_permit_denial(request), evaluation);
        }
        let mut headers = BTreeMap::new();
        for policy in policies {
            for injected in &policy.headers {
                match evaluation.header(policy, injected) {
                    Ok(value) => {
                        headers.insert(injected.name.clone(), value);
                    }
                    Err(_) if policy.on_failure == OnFailure::Allow => {}
                    Err(reason) => {
                        let denial = Denial {
                            denied_by: header_rule(&injected.name),
                            message: format!("header {} could not be computed: {reason}", injected.name),
                        };
                        findings.refused(policy, &denial);
                        if enforces(policy) {
                            return refused(denial, evaluation);
                        }
                        reported.get_or_insert(denial);
                    }
                }
            }
        }
        allowed(reported, mode, headers, evaluation)
    }

    fn out_of_time(&self, evaluation: Evaluation) -> Decision {
        let allow = self.inner.on_unreachable == OnUnreachable::Allow;
        Decision {
            allow,
            denied_by: Some(BROKER_UNREACHABLE.to_owned()),
            message: Some("the policy decision was not given in time".to_owned()),
            mode: Mode::Enforce,
            would_deny: allow,
            trace: evaluation.into_steps().into_steps(),
            ..Decision::default()
        }
    }
}

fn allowed(
    reported: Option<Denial>,
    mode: Mode,
    injected_headers: BTreeMap<String, String>,
    evaluation: Evaluation,
) -> Decision {
    let would_deny = reported.is_some();
    let (denied_by, message) = match reported {
        Some(denial) => (Some(denial.denied_by), Some(denial.message)),
        None => (None, None),
    };
    Decision {
        allow: true,
        denied_by,
        message,
        mode: if would_deny { Mode::Audit } else { mode },
        would_deny,
        injected_headers,
        trace: evaluation.into_steps().into_steps(),
    }
}

fn refused(denial: Denial, evaluation: Evaluation) -> Decision {
    Decision {
        denied_by: Some(denial.denied_by),
        message: Some(denial.message),
        trace: evaluation.into_steps().into_steps(),
        ..Decision::default()
    }
}

fn no_permit_denial(request: &DecisionRequest) -> Denial {
    let tool = text::escape(&request.tool, LOGGED_NAME);
    let registry = text::escape(&request.registry, LOGGED_NAME);
    Denial {
        denied_by: NO_MATCHING_PERMIT.to_owned(),
        message: format!("no ToolPolicy permits tool {tool} of registry {registry}"),
    }
}

fn no_permit(request: &DecisionRequest, mode: Mode) -> Decision {
    let denial = no_permit_denial(request);
    Decision {
        denied_by: Some(denial.denied_by),
        message: Some(denial.message),
        mode,
        ..Decision::default()
    }
}

fn log(request: &DecisionRequest, decision: &Decision) {
    let outcome = match (decision.allow, decision.would_deny) {
        (false, _) => "denied",
        (true, true) => "would-deny",
        (true, false) => "allowed",
    };
    tracing::info!(
        registry = %text::escape(&request.registry, LOGGED_NAME),
        tool = %text::escape(&request.tool, LOGGED_NAME),
        agent = %text::escape(&request.identity.agent, LOGGED_NAME),
        policy = decision.deciding_policy().unwrap_or(""),
        denied_by = decision.denied_by.as_deref().unwrap_or(""),
        outcome,
        "tool call decided"
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::spec::{Deny, Rule};

    #[test]
    fn om_488_a_decision_that_is_not_given_in_time_is_a_denial_unless_set_otherwise() {
        for (on_unreachable, allow) in [(OnUnreachable::Deny, false), (OnUnreachable::Allow, true)] {
            let engine = PolicyEngine {
                inner: Arc::new(Inner {
                    on_unreachable,
                    deadline: Duration::ZERO,
                    ..Inner::default()
                }),
            };
            engine.set(PolicySet::compile(vec![PolicySpec {
                name: "slow".to_owned(),
                registry: "tools".to_owned(),
                // A failure to evaluate would be let through; running out of time is not one.
                on_failure: OnFailure::Allow,
                rules: vec![Rule {
                    name: "walk".to_owned(),
                    deny: Some(Deny {
                        cel: "body.items.exists(i, i > 5)".to_owned(),
                        message: String::new(),
                    }),
                    permit: None,
                }],
                ..PolicySpec::default()
            }]));
            let decision = engine.decide(&DecisionRequest {
                registry: "tools".to_owned(),
                tool: "any".to_owned(),
                handler: String::new(),
                body: json!({"items": [1]}),
                headers: BTreeMap::new(),
                identity: Default::default(),
            });
            assert_eq!(decision.allow, allow);
            assert_eq!(decision.would_deny, allow);
            assert_eq!(decision.denied_by.as_deref(), Some(BROKER_UNREACHABLE));
        }
    }
}
