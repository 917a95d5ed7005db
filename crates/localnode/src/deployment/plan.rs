//! What to do about a Deployment: a pure function from what is there to the next steps.
//!
//! Follows the reference's Deployment controller. One round does what is possible now; each change of a ReplicaSet
//! brings the next round, until nothing is left to do.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use super::{status, template};

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Make a ReplicaSet for the template.
    Create(Box<ReplicaSet>),
    /// Bring a ReplicaSet to a size and annotations.
    Update {
        name: String,
        replicas: i32,
        annotations: BTreeMap<String, String>,
    },
    /// Write the rollout's number on the Deployment.
    SetRevision(i64),
    /// Forget an old template.
    Delete(String),
}

/// What a round comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) actions: Vec<Action>,
    pub(crate) status: DeploymentStatus,
    /// Look again then, though nothing changes: a deadline passes.
    pub(crate) again_at: Option<Timestamp>,
}

/// What is there.
pub(crate) struct Seen<'a> {
    pub(crate) deployment: &'a Deployment,
    /// Those the Deployment controls.
    pub(crate) replica_sets: &'a [ReplicaSet],
    /// Some Pod of an old ReplicaSet has not ended yet; matters for `Recreate` only.
    pub(crate) old_pods_run: bool,
    pub(crate) now: Timestamp,
}

/// The size a ReplicaSet should have.
pub(crate) fn size(replica_set: &ReplicaSet) -> i32 {
    replica_set
        .spec
        .as_ref()
        .and_then(|spec| spec.replicas)
        .unwrap_or(1)
}

/// How many of its Pods are available.
pub(crate) fn available(replica_set: &ReplicaSet) -> i32 {
    replica_set
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

/// The size a Deployment should have.
pub(crate) fn desired(spec: &DeploymentSpec) -> i32 {
    spec.replicas.unwrap_or(1)
}

pub(crate) fn is_recreate(spec: &DeploymentSpec) -> bool {
    spec.strategy
        .as_ref()
        .and_then(|strategy| strategy.type_.as_deref())
        == Some("Recreate")
}

/// (maxSurge, maxUnavailable) in Pods. A surge is rounded up and unavailability down; both zero would never move.
pub(crate) fn fence(spec: &DeploymentSpec) -> (i32, i32) {
    if is_recreate(spec) {
        return (0, 0);
    }
    let rolling = spec
        .strategy
        .as_ref()
        .and_then(|strategy| strategy.rolling_update.as_ref());
    let resolve = |value: Option<&IntOrString>, round_up: bool| {
        let percent = match value {
            Some(IntOrString::Int(count)) => return (*count).max(0),
            Some(IntOrString::String(text)) => text
                .strip_suffix('%')
                .and_then(|number| number.parse().ok())
                .unwrap_or(0),
            None => 25,
        };
        let hundredths = desired(spec).saturating_mul(percent);
        if round_up {
            (hundredths + 99) / 100
        } else {
            hundredths / 100
        }
    };
    let surge = resolve(rolling.and_then(|rolling| rolling.max_surge.as_ref()), true);
    let unavailable = resolve(
        rolling.and_then(|rolling| rolling.max_unavailable.as_ref()),
        false,
    );
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable.min(desired(spec)))
    }
}

/// The working state of a round: sizes as they will be.
struct Round<'a> {
    seen: &'a Seen<'a>,
    spec: &'a DeploymentSpec,
    surge: i32,
    unavailable: i32,
    new: Option<usize>,
    /// Planned size of each ReplicaSet.
    sizes: Vec<i32>,
    actions: Vec<Action>,
    created: Option<String>,
}

/// Plans a round. `None` for a Deployment without a spec, which the API does not store.
pub(crate) fn plan(seen: &Seen<'_>) -> Option<Plan> {
    let spec = seen.deployment.spec.as_ref()?;
    let (surge, unavailable) = fence(spec);
    let mut round = Round {
        seen,
        spec,
        surge,
        unavailable,
        new: newest_for(seen.replica_sets, spec),
        sizes: seen.replica_sets.iter().map(size).collect(),
        actions: Vec::new(),
        created: None,
    };
    if seen.deployment.metadata.deletion_timestamp.is_none() {
        round.run();
    }
    Some(round.finish())
}

/// The oldest ReplicaSet made for the template; there can be several after a change of API defaults.
fn newest_for(replica_sets: &[ReplicaSet], spec: &DeploymentSpec) -> Option<usize> {
    (0..replica_sets.len())
        .filter(|index| template::is_for(&replica_sets[*index], &spec.template))
        .min_by_key(|index| created_at(&replica_sets[*index]))
}

fn created_at(replica_set: &ReplicaSet) -> (Option<Timestamp>, String) {
    (
        replica_set.creation_timestamp().map(|time| time.0),
        replica_set.name_any(),
    )
}

impl Round<'_> {
    fn run(&mut self) {
        let paused = self.spec.paused == Some(true);
        if paused || self.is_scaling() {
            self.scale();
            if paused {
                self.forget_old();
            }
        } else if is_recreate(self.spec) {
            self.recreate();
        } else {
            self.roll();
        }
        self.write_sizes();
    }

    /// Indices of the old ReplicaSets, oldest first.
    fn old(&self) -> Vec<usize> {
        let mut old: Vec<usize> = (0..self.sizes.len())
            .filter(|index| Some(*index) != self.new)
            .collect();
        old.sort_by_key(|index| created_at(&self.seen.replica_sets[*index]));
        old
    }

    fn total(&self) -> i32 {
        self.sizes.iter().sum()
    }

    /// The Deployment's size was changed since its ReplicaSets were last scaled.
    fn is_scaling(&self) -> bool {
        self.seen
            .replica_sets
            .iter()
            .filter(|replica_set| size(replica_set) > 0)
            .any(|replica_set| {
                template::number(replica_set, template::DESIRED_REPLICAS)
                    .is_some_and(|before| before != i64::from(desired(self.spec)))
            })
    }

    /// Follows a change of size, in the middle of a rollout in proportion.
    fn scale(&mut self) {
        let wanted = desired(self.spec);
        let active: Vec<usize> = (0..self.sizes.len())
            .filter(|index| self.sizes[*index] > 0)
            .collect();
        match (active.as_slice(), self.new) {
            ([only], _) => {
                self.sizes[*only] = wanted;
                return;
            }
            ([], Some(new)) => {
                self.sizes[new] = wanted;
                return;
            }
            ([], None) => return,
            _ => {}
        }
        if let Some(new) = self.new
            && self.sizes[new] == wanted
            && available(&self.seen.replica_sets[new]) == wanted
        {
            for index in self.old() {
                self.sizes[index] = 0;
            }
            return;
        }
        if is_recreate(self.spec) {
            return;
        }
        let allowed = if wanted > 0 { wanted + self.surge } else { 0 };
        let to_add = allowed - self.total();
        let mut order = active;
        // Larger ones first; of equal ones the newer when growing, the older when shrinking.
        order.sort_by(|left, right| {
            let age =
                created_at(&self.seen.replica_sets[*left]).cmp(&created_at(&self.seen.replica_sets[*right]));
            self.sizes[*right]
                .cmp(&self.sizes[*left])
                .then(if to_add > 0 { age.reverse() } else { age })
        });
        let mut added = 0;
        for index in &order {
            if to_add == 0 {
                break;
            }
            let replica_set = &self.seen.replica_sets[*index];
            let before = template::number(replica_set, template::MAX_REPLICAS)
                .filter(|max| *max > 0)
                .unwrap_or_else(|| i64::from(self.total().max(1)));
            let size = i64::from(self.sizes[*index]);
            // Rounded to the nearest, half up.
            let share =
                i32::try_from((size * i64::from(allowed) * 2 + before) / (before * 2) - size).unwrap_or(0);
            let left = to_add - added;
            let share = if to_add > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0)
            };
            added += share;
            self.sizes[*index] += share;
        }
        if let Some(first) = order.first() {
            self.sizes[*first] = (self.sizes[*first] + to_add - added).max(0);
        }
    }

    /// `Recreate`: the old ones go, all of them, before the new one comes.
    fn recreate(&mut self) {
        let old = self.old();
        if old.iter().any(|index| self.sizes[*index] > 0) {
            for index in old {
                self.sizes[index] = 0;
            }
            return;
        }
        if self.seen.old_pods_run {
            return;
        }
        match self.new {
            None => self.create(desired(self.spec)),
            Some(new) => self.sizes[new] = desired(self.spec),
        }
        self.forget_old_if_complete();
    }

    /// `RollingUpdate`: first up as far as the surge allows, else down as far as availability allows.
    fn roll(&mut self) {
        let wanted = desired(self.spec);
        let Some(new) = self.new else {
            self.create(self.grown(0));
            return;
        };
        let grown = if self.sizes[new] > wanted {
            wanted
        } else {
            self.grown(self.sizes[new])
        };
        if grown != self.sizes[new] {
            self.sizes[new] = grown;
            return;
        }
        self.shrink_old(new);
        self.forget_old_if_complete();
    }

    /// The size that the new ReplicaSet may have now.
    fn grown(&self, current: i32) -> i32 {
        let wanted = desired(self.spec);
        let room = wanted + self.surge - self.total();
        current + room.min(wanted - current).max(0)
    }

    fn shrink_old(&mut self, new: usize) {
        let old = self.old();
        if old.iter().all(|index| self.sizes[*index] == 0) {
            return;
        }
        let least = desired(self.spec) - self.unavailable;
        let new_unavailable = self.sizes[new] - available(&self.seen.replica_sets[new]);
        let mut budget = self.total() - least - new_unavailable;
        if budget <= 0 {
            return;
        }
        // Pods that serve nobody go first, else a broken rollout could never be replaced.
        for index in &old {
            let useless = (self.sizes[*index] - available(&self.seen.replica_sets[*index])).clamp(0, budget);
            self.sizes[*index] -= useless;
            budget -= useless;
        }
        let serving: i32 = self.seen.replica_sets.iter().map(available).sum();
        let mut budget = serving - least;
        for index in &old {
            let down = self.sizes[*index].clamp(0, budget.max(0));
            self.sizes[*index] -= down;
            budget -= down;
        }
    }

    fn create(&mut self, replicas: i32) {
        let collisions = self
            .seen
            .deployment
            .status
            .as_ref()
            .and_then(|status| status.collision_count)
            .unwrap_or(0);
        let revision = self.next_revision();
        let mut annotations = template::copied_annotations(self.seen.deployment);
        annotations.insert(template::REVISION.to_owned(), revision.to_string());
        self.add_sizes(&mut annotations);
        let new = template::new_replica_set(self.seen.deployment, replicas, annotations, collisions);
        if let Some(new) = new {
            self.created = Some(new.name_any());
            self.actions.push(Action::Create(Box::new(new)));
            self.set_revision(revision);
        }
    }

    fn add_sizes(&self, annotations: &mut BTreeMap<String, String>) {
        let wanted = desired(self.spec);
        annotations.insert(template::DESIRED_REPLICAS.to_owned(), wanted.to_string());
        annotations.insert(
            template::MAX_REPLICAS.to_owned(),
            (wanted + self.surge).to_string(),
        );
    }

    fn next_revision(&self) -> i64 {
        let others = (0..self.sizes.len()).filter(|index| Some(*index) != self.new);
        others
            .map(|index| template::revision(&self.seen.replica_sets[index]))
            .max()
            .unwrap_or(0)
            + 1
    }

    fn set_revision(&mut self, revision: i64) {
        if template::revision(self.seen.deployment) != revision {
            self.actions.push(Action::SetRevision(revision));
        }
    }

    /// Turns the planned sizes and the annotations that should be there into steps.
    fn write_sizes(&mut self) {
        for index in 0..self.sizes.len() {
            let replica_set = &self.seen.replica_sets[index];
            let mut annotations = BTreeMap::new();
            if self.sizes[index] > 0 || size(replica_set) > 0 || Some(index) == self.new {
                self.add_sizes(&mut annotations);
            }
            if Some(index) == self.new {
                annotations.extend(template::copied_annotations(self.seen.deployment));
                let revision = self.next_revision();
                let before = template::revision(replica_set);
                if before < revision {
                    annotations.insert(template::REVISION.to_owned(), revision.to_string());
                    if before > 0 {
                        let history = replica_set.annotations().get(template::REVISION_HISTORY);
                        let history =
                            history.map_or_else(|| before.to_string(), |old| format!("{old},{before}"));
                        annotations.insert(template::REVISION_HISTORY.to_owned(), history);
                    }
                }
                self.set_revision(revision.max(before));
            }
            annotations.retain(|name, value| replica_set.annotations().get(name) != Some(value));
            if self.sizes[index] != size(replica_set) || !annotations.is_empty() {
                let (name, replicas) = (replica_set.name_any(), self.sizes[index]);
                self.actions.push(Action::Update {
                    name,
                    replicas,
                    annotations,
                });
            }
        }
    }

    fn forget_old_if_complete(&mut self) {
        if status::is_complete(self.seen.deployment, &self.counts()) {
            self.forget_old();
        }
    }

    /// Deletes old ReplicaSets beyond the history limit, those of the oldest rollouts first.
    fn forget_old(&mut self) {
        let limit = usize::try_from(self.spec.revision_history_limit.unwrap_or(10)).unwrap_or(0);
        let mut empty: Vec<&ReplicaSet> = self
            .old()
            .into_iter()
            .map(|index| &self.seen.replica_sets[index])
            .filter(|old| {
                let status = old.status.as_ref();
                size(old) == 0
                    && status.map_or(0, |status| status.replicas) == 0
                    && status.and_then(|status| status.observed_generation) >= old.metadata.generation
                    && old.metadata.deletion_timestamp.is_none()
            })
            .collect();
        empty.sort_by_key(|old| template::revision(*old));
        let excess = empty.len().saturating_sub(limit);
        let names: Vec<String> = empty
            .into_iter()
            .take(excess)
            .map(ResourceExt::name_any)
            .collect();
        self.actions.extend(names.into_iter().map(Action::Delete));
    }

    fn counts(&self) -> status::Counts {
        let new = self.new.map(|index| &self.seen.replica_sets[index]);
        status::count(self.seen.deployment, self.seen.replica_sets, new)
    }

    fn finish(self) -> Plan {
        let new = self.new.map(|index| self.seen.replica_sets[index].name_any());
        let (status, again_at) = status::status(
            self.seen.deployment,
            &self.counts(),
            status::Rollout {
                new: new.or_else(|| self.created.clone()),
                created: self.created.is_some(),
                least_available: desired(self.spec) - self.unavailable,
                failure: self.seen.replica_sets.iter().find_map(status::failure),
            },
            self.seen.now,
        );
        Plan {
            actions: self.actions,
            status,
            again_at,
        }
    }
}
