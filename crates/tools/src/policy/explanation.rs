//! Why a decision comes out as it does, policy by policy (OM-482…OM-491): for people who ask, not for each call.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::compiled::Policy;
use super::decision::{Decision, DecisionRequest, Mode};
use super::engine::PolicySet;
use super::evaluation::{Denial, Verdict, enforces};
use super::header;

/// What stands for the value of a header that may be a credential.
const MASKED: &str = "[redacted]";

/// A decision and what every policy of the namespace has to do with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// How the call would be decided.
    pub decision: Decision,
    /// Whether calls are judged at all (OM-483). Where they are not, every call is allowed.
    pub judged: bool,
    /// Every policy of the namespace, by name.
    pub policies: Vec<Considered>,
}

/// One policy, looked at for one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Considered {
    /// Name of the ToolPolicy.
    pub policy: String,
    /// The registry it is about.
    pub registry: String,
    /// The tools it is about; none means all of the registry.
    pub tools: Vec<String>,
    /// Whether it refuses or only reports. A policy in error refuses in any mode (OM-488).
    pub mode: Mode,
    /// What it says about the call.
    #[serde(flatten)]
    pub finding: Finding,
}

/// What one policy says about one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "finding")]
pub enum Finding {
    /// It is about another registry.
    OtherRegistry,
    /// It is about other tools of the registry.
    OtherTools,
    /// It permits the call.
    Permits,
    /// It has rules that permit, and none of them is true (DD-4).
    NoPermitRuleHolds,
    /// It refuses the call.
    Denies {
        /// The rule, the required claim, or the header that cannot be computed.
        by: String,
    },
    /// It would refuse the call, and only reports that (OM-489).
    WouldDeny {
        /// As in `Denies`.
        by: String,
    },
    /// Another policy had refused the call already, or time was up.
    NotReached,
}

impl Explanation {
    /// Without a policy engine.
    pub(super) fn not_judged() -> Self {
        Self {
            decision: Decision {
                allow: true,
                ..Decision::default()
            },
            judged: false,
            policies: Vec::new(),
        }
    }

    /// The same without values of injected headers that may be credentials, to be shown to people.
    #[must_use]
    pub fn masked(mut self) -> Self {
        self.decision = self.decision.masked();
        self
    }
}

impl Decision {
    /// The same without values of injected headers that may be credentials, to be shown to people.
    #[must_use]
    pub fn masked(mut self) -> Self {
        for (name, value) in &mut self.injected_headers {
            if header::is_secret(name) {
                MASKED.clone_into(value);
            }
        }
        self
    }
}

/// What the policies said while a decision was made, where somebody wants to know.
#[derive(Debug)]
pub(super) struct Findings {
    by_policy: Option<BTreeMap<String, Finding>>,
}

impl Findings {
    /// For a call: nothing is kept, and nothing is paid for.
    pub(super) fn none() -> Self {
        Self { by_policy: None }
    }

    /// For an explanation.
    pub(super) fn kept() -> Self {
        Self {
            by_policy: Some(BTreeMap::new()),
        }
    }

    /// A policy was judged.
    pub(super) fn judged(&mut self, policy: &Policy, verdict: &Verdict) {
        let Some(by_policy) = &mut self.by_policy else {
            return;
        };
        let finding = match verdict {
            Verdict::Permit => Finding::Permits,
            Verdict::NoPermit => Finding::NoPermitRuleHolds,
            Verdict::Deny(denial) => denied(policy, denial),
            Verdict::OutOfTime => Finding::NotReached,
        };
        by_policy.insert(policy.name.clone(), finding);
    }

    /// A policy that permitted the call cannot compute a header of it.
    pub(super) fn refused(&mut self, policy: &Policy, denial: &Denial) {
        if let Some(by_policy) = &mut self.by_policy {
            by_policy.insert(policy.name.clone(), denied(policy, denial));
        }
    }

    /// The explanation of `decision`, which `set` gave.
    pub(super) fn explanation(
        self,
        decision: Decision,
        set: &PolicySet,
        request: &DecisionRequest,
    ) -> Explanation {
        let mut by_policy = self.by_policy.unwrap_or_default();
        let mut policies: Vec<Considered> = set
            .all()
            .map(|(registry, policy)| Considered {
                policy: policy.name.clone(),
                registry: registry.to_owned(),
                tools: policy.tools.iter().cloned().collect(),
                mode: policy.mode,
                finding: if registry != request.registry {
                    Finding::OtherRegistry
                } else if !policy.selects(&request.tool) {
                    Finding::OtherTools
                } else {
                    by_policy.remove(&policy.name).unwrap_or(Finding::NotReached)
                },
            })
            .collect();
        policies.sort_by(|left, right| left.policy.cmp(&right.policy));
        Explanation {
            decision,
            judged: true,
            policies,
        }
    }
}

fn denied(policy: &Policy, denial: &Denial) -> Finding {
    let by = denial.denied_by.clone();
    if enforces(policy) {
        Finding::Denies { by }
    } else {
        Finding::WouldDeny { by }
    }
}
