//! What to do about a Job: a pure function from its Pods to what is missing, what is too much, and its status.
//!
//! A Pod is counted once, whatever happens in between: it carries a finalizer until its UID stands in
//! `status.uncountedTerminatedPods`, and its UID stands there until the finalizer is gone; then a counter rises.
//! Requirement KA-050.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::conditions::{self, Note, holds};
use super::failures::{self, JobBackOffOptions, Verdict};
use super::indexes::Indexes;
use super::pods::{self, NewPod};
use crate::replica_set;

/// More than this many Pods are not made, removed or counted in one round.
const BURST: usize = 500;
/// Who runs a Job unless it says otherwise.
const MANAGER: &str = "kubernetes.io/job-controller";

/// A Pod that a round does something to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) uid: String,
    /// The finalizers it shall keep; `None` if they stay as they are.
    pub(super) finalizers: Option<Vec<String>>,
}

/// What a round comes to, in the order in which it is done.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: JobStatus,
    /// Pods that the status counts now.
    pub(super) release: Vec<Target>,
    pub(super) delete: Vec<Target>,
    pub(super) create: Vec<NewPod>,
    pub(super) notes: Vec<Note>,
    /// The Job's time after its end is over.
    pub(super) expired: bool,
    /// Look again then: a deadline passes or a wait is over.
    pub(super) again_at: Option<Timestamp>,
}

impl Plan {
    fn look_at(&mut self, at: Timestamp) {
        self.again_at = Some(self.again_at.map_or(at, |sooner| sooner.min(at)));
    }
}

/// The Job and the Pods that it controls, and the time.
pub(super) struct Seen<'a> {
    pub(super) job: &'a Job,
    pub(super) pods: &'a [Pod],
    pub(super) now: Timestamp,
    pub(super) back_off: JobBackOffOptions,
}

/// Plans a round; `None` for a Job that somebody else runs.
pub(super) fn plan(seen: &Seen<'_>) -> Option<Plan> {
    let spec = seen.job.spec.as_ref()?;
    let before = seen.job.status.clone().unwrap_or_default();
    // Statuses have whole seconds.
    let now = Timestamp::from_second(seen.now.as_second()).unwrap_or(seen.now);
    let mut plan = Plan {
        status: before,
        ..Plan::default()
    };
    if holds(&plan.status, "Complete") || holds(&plan.status, "Failed") {
        finished(spec, seen, now, &mut plan);
        return Some(plan);
    }
    if spec
        .managed_by
        .as_deref()
        .is_some_and(|manager| manager != MANAGER)
    {
        return None;
    }
    if seen.job.metadata.deletion_timestamp.is_some() {
        let over = seen.pods.iter().filter(|pod| !pods::is_active(pod));
        plan.release = release(over);
        return Some(plan);
    }
    let mut round = Round::new(spec, seen, now, plan);
    round.count();
    round.judge();
    round.steer();
    Some(round.finish())
}

/// A Job that ended: its Pods are let go, and after a time it goes too.
fn finished(spec: &JobSpec, seen: &Seen<'_>, now: Timestamp, plan: &mut Plan) {
    plan.release = release(seen.pods.iter());
    let Some(seconds) = spec.ttl_seconds_after_finished else {
        return;
    };
    let Some(ended) = conditions::ended_at(&plan.status) else {
        return;
    };
    let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    let expires = ended.saturating_add(wait).unwrap_or(Timestamp::MAX);
    if expires > now {
        plan.look_at(expires);
    } else {
        plan.expired = seen.job.metadata.deletion_timestamp.is_none();
    }
}

fn release<'a>(pods: impl Iterator<Item = &'a Pod>) -> Vec<Target> {
    pods.filter(|pod| pods::is_tracked(pod))
        .take(BURST)
        .map(|pod| target(pod, true))
        .collect()
}

fn target(pod: &Pod, releases: bool) -> Target {
    Target {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        finalizers: (releases && pods::is_tracked(pod)).then(|| pods::released(pod)),
    }
}

/// One round over a Job that has not ended.
struct Round<'a> {
    spec: &'a JobSpec,
    seen: &'a Seen<'a>,
    now: Timestamp,
    plan: Plan,
    completed: Indexes,
    failed_indexes: Indexes,
    /// Pods that count in this round or will in the next, counted ones included.
    succeeded: i32,
    failed: i32,
    active: Vec<&'a Pod>,
    terminating: usize,
    failed_by_rule: Option<String>,
}

impl<'a> Round<'a> {
    fn new(spec: &'a JobSpec, seen: &'a Seen<'a>, now: Timestamp, plan: Plan) -> Self {
        let completions = spec.completions.unwrap_or(0);
        let parse = |text: &Option<String>| Indexes::parse(text.as_deref().unwrap_or(""), completions);
        Self {
            completed: parse(&plan.status.completed_indexes),
            failed_indexes: parse(&plan.status.failed_indexes),
            succeeded: 0,
            failed: 0,
            active: seen.pods.iter().filter(|pod| pods::is_active(pod)).collect(),
            terminating: seen.pods.iter().filter(|pod| pods::is_terminating(pod)).count(),
            failed_by_rule: None,
            spec,
            seen,
            now,
            plan,
        }
    }

    fn is_indexed(&self) -> bool {
        self.spec.completion_mode.as_deref() == Some("Indexed")
    }

    fn only_replaces_failed(&self) -> bool {
        self.spec.pod_replacement_policy.as_deref() == Some("Failed")
    }

    /// The index of a Pod, if the Job has such an index.
    fn index_of(&self, pod: &Pod) -> Option<i32> {
        pods::index_of(pod).filter(|index| *index < self.spec.completions.unwrap_or(0))
    }

    /// Brings the counters and the list of uncounted Pods forward.
    fn count(&mut self) {
        let tracked: BTreeSet<String> = self
            .seen
            .pods
            .iter()
            .filter(|pod| pods::is_tracked(pod))
            .filter_map(ResourceExt::uid)
            .collect();
        let uncounted = self
            .plan
            .status
            .uncounted_terminated_pods
            .take()
            .unwrap_or_default();
        let still = |uids: Option<Vec<String>>| -> (Vec<String>, i32) {
            let uids = uids.unwrap_or_default();
            let (waiting, counted): (Vec<_>, Vec<_>) =
                uids.into_iter().partition(|uid| tracked.contains(uid));
            (waiting, i32::try_from(counted.len()).unwrap_or(i32::MAX))
        };
        let (mut succeeded, more_succeeded) = still(uncounted.succeeded);
        let (mut failed, more_failed) = still(uncounted.failed);
        let status = &self.plan.status;
        let counted_succeeded = status.succeeded.unwrap_or(0) + more_succeeded;
        let counted_failed = status.failed.unwrap_or(0) + more_failed;
        let seen = self.seen;
        for pod in seen.pods.iter().filter(|pod| pods::is_tracked(pod)) {
            let uid = pod.uid().unwrap_or_default();
            if succeeded.contains(&uid) || failed.contains(&uid) {
                // Whatever became of it since: it counts as what it was first. It is let go also if the lists are full,
                // since nothing else makes them shorter.
                self.plan.release.push(target(pod, true));
                continue;
            }
            if succeeded.len() + failed.len() >= BURST {
                continue;
            }
            if pods::phase(pod) == "Succeeded" {
                self.count_success(pod, uid, &mut succeeded);
            } else if pods::has_failed(pod, self.only_replaces_failed()) {
                self.count_failure(pod, uid, &mut failed);
            }
        }
        self.failed = counted_failed + count(failed.len());
        self.succeeded = if self.is_indexed() {
            count(self.completed.len())
        } else {
            counted_succeeded + count(succeeded.len())
        };
        let some = |uids: Vec<String>| Some(uids).filter(|uids| !uids.is_empty());
        let status = &mut self.plan.status;
        status.failed = some_count(counted_failed);
        if self.spec.completion_mode.as_deref() == Some("Indexed") {
            status.succeeded = some_count(self.succeeded);
            status.completed_indexes = Some(self.completed.text()).filter(|text| !text.is_empty());
            if self.spec.backoff_limit_per_index.is_some() {
                status.failed_indexes = Some(self.failed_indexes.text());
            }
        } else {
            status.succeeded = some_count(counted_succeeded);
        }
        status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            failed: some(failed),
            succeeded: some(succeeded),
        });
    }

    fn count_success(&mut self, pod: &Pod, uid: String, uncounted: &mut Vec<String>) {
        if self.is_indexed() {
            // What counts is the index; a second success of it does not.
            if let Some(index) = self.index_of(pod) {
                self.completed.insert(index);
            }
        } else {
            uncounted.push(uid);
        }
        self.plan.release.push(target(pod, true));
    }

    fn count_failure(&mut self, pod: &Pod, uid: String, uncounted: &mut Vec<String>) {
        let verdict = failures::verdict(self.spec, pod);
        if let Some(limit) = self.spec.backoff_limit_per_index
            && let Some(index) = self.index_of(pod)
            && !self.completed.contains(index)
            && verdict != Verdict::Ignore
            && (verdict == Verdict::FailIndex || pods::failures_before(pod) >= limit)
        {
            self.failed_indexes.insert(index);
        }
        if let Verdict::FailJob(message) = &verdict {
            self.failed_by_rule.get_or_insert_with(|| message.clone());
        }
        if verdict != Verdict::Ignore {
            uncounted.push(uid);
        }
        self.plan.release.push(target(pod, true));
    }

    /// Whether the Job is over, and how.
    fn judge(&mut self) {
        let failed = conditions::find(&self.plan.status, "FailureTarget");
        let met = conditions::find(&self.plan.status, "SuccessCriteriaMet");
        if failed.is_some() || met.is_some() {
            return;
        }
        if let Some((reason, message)) = self.failure() {
            conditions::set(&mut self.plan.status, "FailureTarget", reason, &message, self.now);
        } else if let Some((reason, message)) = self.success() {
            conditions::set(
                &mut self.plan.status,
                "SuccessCriteriaMet",
                reason,
                &message,
                self.now,
            );
        }
    }

    fn failure(&mut self) -> Option<(&'static str, String)> {
        if let Some(message) = self.failed_by_rule.take() {
            return Some(("PodFailurePolicy", message));
        }
        let limit = self.spec.backoff_limit.unwrap_or(6);
        if self.failed > limit || self.restarted_too_often(limit) {
            let message = "Job has reached the specified backoff limit";
            return Some(("BackoffLimitExceeded", message.to_owned()));
        }
        if let Some(deadline) = self.deadline() {
            if deadline <= self.now {
                let message = "Job was active longer than specified deadline";
                return Some(("DeadlineExceeded", message.to_owned()));
            }
            self.plan.look_at(deadline);
        }
        if self.is_indexed() && self.spec.backoff_limit_per_index.is_some() {
            let failed = count(self.failed_indexes.len());
            if self.spec.max_failed_indexes.is_some_and(|most| failed > most) {
                let message = "Job has exceeded the specified maximal number of failed indexes";
                return Some(("MaxFailedIndexesExceeded", message.to_owned()));
            }
            if failed > 0 && self.succeeded + failed >= self.spec.completions.unwrap_or(0) {
                return Some(("FailedIndexes", "Job has failed indexes".to_owned()));
            }
        }
        None
    }

    /// With `OnFailure` the Pods stay and their containers' restarts are the failures.
    fn restarted_too_often(&self, limit: i32) -> bool {
        let pod = self.spec.template.spec.as_ref();
        if pod.and_then(|pod| pod.restart_policy.as_deref()) != Some("OnFailure") {
            return false;
        }
        let restarts: i32 = self
            .seen
            .pods
            .iter()
            .filter(|pod| !pods::has_ended(pod))
            .map(pods::restarts)
            .sum();
        restarts > 0 && restarts >= limit
    }

    fn deadline(&self) -> Option<Timestamp> {
        if self.spec.suspend == Some(true) {
            return None;
        }
        let seconds = u64::try_from(self.spec.active_deadline_seconds?).unwrap_or(0);
        let start = self.plan.status.start_time.as_ref()?.0;
        start.saturating_add(Duration::from_secs(seconds)).ok()
    }

    fn success(&self) -> Option<(&'static str, String)> {
        let rules = self.spec.success_policy.iter().flat_map(|policy| &policy.rules);
        for (position, rule) in rules.enumerate() {
            let completions = self.spec.completions.unwrap_or(0);
            let within: Vec<i32> = match &rule.succeeded_indexes {
                Some(text) => Indexes::parse(text, completions).iter().collect(),
                None => self.completed.iter().collect(),
            };
            let met = within
                .iter()
                .filter(|index| self.completed.contains(**index))
                .count();
            let wanted = rule
                .succeeded_count
                .map_or(within.len(), |count| usize::try_from(count).unwrap_or(0));
            if met >= wanted && (rule.succeeded_count.is_some() || rule.succeeded_indexes.is_some()) {
                return Some(("SuccessPolicy", format!("Matched rules at index {position}")));
            }
        }
        let reached = match self.spec.completions {
            Some(wanted) => self.succeeded >= wanted,
            // Without a number, one success says that there is nothing more to do.
            None => self.succeeded > 0 && self.active.is_empty(),
        };
        reached.then(|| {
            (
                "CompletionsReached",
                "Reached expected number of succeeded pods".to_owned(),
            )
        })
    }

    /// Makes and removes Pods, and ends the Job when none is left.
    fn steer(&mut self) {
        let ends = ["FailureTarget", "SuccessCriteriaMet"]
            .iter()
            .find_map(|type_| conditions::find(&self.plan.status, type_).cloned());
        if let Some(condition) = ends {
            self.plan.delete = self.active.iter().map(|pod| target(pod, false)).collect();
            self.end(
                &condition.type_,
                condition.reason.as_deref(),
                condition.message.as_deref(),
            );
            return;
        }
        if self.spec.suspend == Some(true) {
            // These were not wanted any more, and do not count.
            self.plan.delete = self.active.iter().map(|pod| target(pod, true)).collect();
            if conditions::set(
                &mut self.plan.status,
                "Suspended",
                "JobSuspended",
                "Job suspended",
                self.now,
            ) {
                self.plan.notes.push(Note::normal("Suspended", "Job suspended"));
            }
            self.plan.status.start_time = None;
            return;
        }
        if conditions::clear(
            &mut self.plan.status,
            "Suspended",
            "JobResumed",
            "Job resumed",
            self.now,
        ) {
            self.plan.status.start_time = None;
            self.plan.notes.push(Note::normal("Resumed", "Job resumed"));
        }
        if self.plan.status.start_time.is_none() {
            self.plan.status.start_time = Some(Time(self.now));
            if let Some(deadline) = self.deadline() {
                self.plan.look_at(deadline);
            }
        }
        if self.is_indexed() {
            self.steer_indexed();
        } else {
            self.steer_plain();
        }
    }

    fn parallelism(&self) -> usize {
        usize::try_from(self.spec.parallelism.unwrap_or(1)).unwrap_or(0)
    }

    /// Pods that hold a place though they are about to end.
    fn held(&self) -> usize {
        if self.only_replaces_failed() {
            self.terminating
        } else {
            0
        }
    }

    fn steer_plain(&mut self) {
        let wanted = match self.spec.completions {
            Some(completions) => {
                let left = completions.saturating_sub(self.succeeded);
                usize::try_from(left).unwrap_or(0).min(self.parallelism())
            }
            None if self.succeeded > 0 => self.active.len(),
            None => self.parallelism(),
        };
        self.remove_down_to(wanted);
        let missing = wanted.saturating_sub(self.active.len() + self.held());
        if missing == 0 {
            return;
        }
        let wait = failures::not_before(
            self.seen.pods.iter(),
            self.only_replaces_failed(),
            self.seen.back_off,
        );
        if let Some(at) = wait.filter(|at| *at > self.seen.now) {
            self.plan.look_at(at);
            return;
        }
        let new = NewPod {
            index: None,
            failures: None,
        };
        self.plan.create = vec![new; missing.min(BURST)];
    }

    fn remove_down_to(&mut self, wanted: usize) {
        let surplus = self.active.len().saturating_sub(wanted).min(BURST);
        if surplus > 0 {
            let mut candidates = self.active.clone();
            candidates.sort_by(|left, right| replica_set::first_to_go(left, right));
            self.plan
                .delete
                .extend(candidates.into_iter().take(surplus).map(|pod| target(pod, true)));
        }
    }

    fn steer_indexed(&mut self) {
        // One Pod an index: a second one, and one whose index is done or gone, is not wanted.
        let mut running = BTreeSet::new();
        let mut kept = Vec::new();
        for pod in std::mem::take(&mut self.active) {
            let index = self
                .index_of(pod)
                .filter(|index| !self.completed.contains(*index));
            match index {
                Some(index) if running.insert(index) => kept.push(pod),
                _ => self.plan.delete.push(target(pod, true)),
            }
        }
        self.active = kept;
        if self.only_replaces_failed() {
            let terminating = self.seen.pods.iter().filter(|pod| pods::is_terminating(pod));
            running.extend(terminating.filter_map(pods::index_of));
        }
        self.remove_down_to(self.parallelism());
        let room = self
            .parallelism()
            .saturating_sub(self.active.len() + self.held())
            .min(BURST);
        if room == 0 {
            return;
        }
        let shared_wait = match self.spec.backoff_limit_per_index {
            Some(_) => None,
            None => failures::not_before(
                self.seen.pods.iter(),
                self.only_replaces_failed(),
                self.seen.back_off,
            ),
        };
        if let Some(at) = shared_wait.filter(|at| *at > self.seen.now) {
            self.plan.look_at(at);
            return;
        }
        for index in 0..self.spec.completions.unwrap_or(0) {
            if self.plan.create.len() >= room {
                break;
            }
            if self.completed.contains(index)
                || self.failed_indexes.contains(index)
                || running.contains(&index)
            {
                continue;
            }
            self.try_index(index);
        }
    }

    fn try_index(&mut self, index: i32) {
        if self.spec.backoff_limit_per_index.is_none() {
            self.plan.create.push(NewPod {
                index: Some(index),
                failures: None,
            });
            return;
        }
        let only_failed = self.only_replaces_failed();
        let failed = || {
            self.seen.pods.iter().filter(|pod| {
                pods::index_of(pod) == Some(index)
                    && pods::has_failed(pod, only_failed)
                    && failures::verdict(self.spec, pod) != Verdict::Ignore
            })
        };
        let times = failed()
            .map(|pod| pods::failures_before(pod) + 1)
            .max()
            .unwrap_or(0);
        let last = failed().filter_map(pods::ended_at).max();
        let wait = last.and_then(|last| {
            self.seen
                .back_off
                .after(usize::try_from(times).unwrap_or(0), last)
        });
        match wait.filter(|at| *at > self.seen.now) {
            Some(at) => self.plan.look_at(at),
            None => self.plan.create.push(NewPod {
                index: Some(index),
                failures: Some(times),
            }),
        }
    }

    /// Ends the Job once no Pod runs and all are counted.
    fn end(&mut self, decided: &str, reason: Option<&str>, message: Option<&str>) {
        let uncounted = self
            .plan
            .status
            .uncounted_terminated_pods
            .clone()
            .unwrap_or_default();
        let waits = uncounted.succeeded.is_some() || uncounted.failed.is_some();
        if waits || !self.active.is_empty() || self.terminating > 0 {
            return;
        }
        let (reason, message) = (reason.unwrap_or_default(), message.unwrap_or_default());
        self.plan.status.start_time.get_or_insert(Time(self.now));
        if decided == "FailureTarget" {
            conditions::set(&mut self.plan.status, "Failed", reason, message, self.now);
            self.plan.notes.push(Note::warning(reason, message));
        } else {
            conditions::set(&mut self.plan.status, "Complete", reason, message, self.now);
            self.plan.status.completion_time = Some(Time(self.now));
            self.plan.notes.push(Note::normal("Completed", "Job completed"));
            if let Some(seconds) = self.spec.ttl_seconds_after_finished {
                let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                self.plan
                    .look_at(self.now.saturating_add(wait).unwrap_or(Timestamp::MAX));
            }
        }
    }

    fn finish(mut self) -> Plan {
        let deleted: BTreeSet<&str> = self
            .plan
            .delete
            .iter()
            .map(|target| target.name.as_str())
            .collect();
        let stays = |pod: &&&Pod| !deleted.contains(pod.name_any().as_str());
        let left: Vec<&&Pod> = self.active.iter().filter(stays).collect();
        let ready = left
            .iter()
            .filter(|pod| replica_set::ready_since(pod).is_some())
            .count();
        let (active, going) = (left.len(), self.plan.delete.len());
        self.plan.status.active = some_count(count(active));
        self.plan.status.ready = Some(count(ready));
        self.plan.status.terminating = Some(count(self.terminating + going));
        self.plan
    }
}

fn count(length: usize) -> i32 {
    i32::try_from(length).unwrap_or(i32::MAX)
}

fn some_count(count: i32) -> Option<i32> {
    Some(count).filter(|count| *count != 0)
}
