//! What the failures of Pods mean for a Job: which rule they match, and how long it waits before it tries again.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{JobSpec, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyRule};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::pods;

/// How long a Job waits after failures of its Pods: doubling from `initial` up to `limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobBackOffOptions {
    /// The wait after the first failure.
    pub initial: Duration,
    /// The longest wait.
    pub limit: Duration,
}

impl Default for JobBackOffOptions {
    /// The waits of kube-controller-manager.
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            limit: Duration::from_secs(10 * 60),
        }
    }
}

impl JobBackOffOptions {
    /// When a Pod may be made after so many failures in a row, the last of which was at `last`.
    pub(super) fn after(self, failures: usize, last: Timestamp) -> Option<Timestamp> {
        let doublings = u32::try_from(failures.checked_sub(1)?).unwrap_or(u32::MAX);
        let factor = 2u32.checked_pow(doublings).unwrap_or(u32::MAX);
        let wait = self.initial.saturating_mul(factor).min(self.limit);
        Some(last.saturating_add(wait).unwrap_or(Timestamp::MAX))
    }
}

/// When the next Pod may be made: failures count since the last success among `pods`. `None` without any.
pub(super) fn not_before<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    only_replaces_failed: bool,
    options: JobBackOffOptions,
) -> Option<Timestamp> {
    let (mut failures, mut success) = (Vec::new(), None);
    for pod in pods {
        let ended = pods::ended_at(pod);
        if pods::phase(pod) == "Succeeded" {
            success = success.max(ended);
        } else if pods::has_failed(pod, only_replaces_failed) {
            failures.extend(ended);
        }
    }
    failures.retain(|ended| success.is_none_or(|success| *ended > success));
    options.after(failures.len(), failures.into_iter().max()?)
}

/// What a rule does with a failed Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Counts against the limit.
    Count,
    /// Does not count.
    Ignore,
    /// The Pod's index has failed.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

/// What the Job's rules say about a failed Pod.
pub(super) fn verdict(spec: &JobSpec, pod: &Pod) -> Verdict {
    let Some(policy) = &spec.pod_failure_policy else {
        return Verdict::Count;
    };
    for (position, rule) in policy.rules.iter().enumerate() {
        let Some(matched) = matches(rule, pod) else {
            continue;
        };
        return match rule.action.as_str() {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(format!("{matched} matching FailJob rule at index {position}")),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

/// What of the Pod matches the rule.
fn matches(rule: &PodFailurePolicyRule, pod: &Pod) -> Option<String> {
    let name = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    if let Some(codes) = &rule.on_exit_codes {
        return pods::ends(pod)
            .filter(|(container, _)| {
                codes
                    .container_name
                    .as_deref()
                    .is_none_or(|wanted| wanted == *container)
            })
            .find(|(_, ended)| ended.exit_code != 0 && has_code(codes, ended.exit_code))
            .map(|(container, ended)| {
                format!(
                    "Container {container} for pod {name} failed with exit code {}",
                    ended.exit_code
                )
            });
    }
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let patterns = rule.on_pod_conditions.as_ref()?;
    let matched = conditions.iter().find(|condition| {
        let wanted = |status: &str| condition.status == status;
        patterns
            .iter()
            .any(|pattern| pattern.type_ == condition.type_ && wanted(&pattern.status))
    })?;
    Some(format!("Pod {name} has condition {}", matched.type_))
}

fn has_code(codes: &PodFailurePolicyOnExitCodesRequirement, code: i32) -> bool {
    codes.values.contains(&code) == (codes.operator == "In")
}
