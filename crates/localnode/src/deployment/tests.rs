use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DeploymentStatus;
use serde_json::{Value, json};

use super::plan::{available, fence, size};
use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::new(1_000_000 + seconds, 0).unwrap()
}

/// A Deployment and its ReplicaSets, with the API and the Pods played by the test.
struct World {
    deployment: Deployment,
    replica_sets: Vec<ReplicaSet>,
    old_pods_run: bool,
    now: Timestamp,
    /// (all Pods, available Pods) after each step, and what was forgotten.
    most_pods: i32,
    fewest_available: i32,
    forgotten: Vec<String>,
}

fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "x" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

impl World {
    fn new(spec: Value) -> Self {
        let mut spec = spec;
        spec["selector"] = json!({ "matchLabels": { "app": "x" } });
        spec["template"] = template("mainstay:1");
        let deployment = json!({
            "metadata": {
                "name": "d", "namespace": "ns", "uid": "uid-d", "generation": 1,
                "annotations": { "note": "copied", "kubectl.kubernetes.io/last-applied-configuration": "{}" },
            },
            "spec": spec,
        });
        Self {
            deployment: serde_json::from_value(deployment).unwrap(),
            replica_sets: Vec::new(),
            old_pods_run: false,
            now: at(0),
            most_pods: 0,
            fewest_available: i32::MAX,
            forgotten: Vec::new(),
        }
    }

    fn plan(&self) -> Plan {
        let seen = Seen {
            deployment: &self.deployment,
            replica_sets: &self.replica_sets,
            old_pods_run: self.old_pods_run,
            now: self.now,
        };
        plan::plan(&seen).unwrap()
    }

    /// One round; false if there was nothing to do.
    fn round(&mut self) -> bool {
        let Plan { actions, status, .. } = self.plan();
        self.deployment.status = Some(status);
        let acted = !actions.is_empty();
        for action in actions {
            match action {
                Action::Create(mut new) => {
                    new.metadata.uid = Some(format!("uid-{}", self.replica_sets.len()));
                    new.metadata.generation = Some(1);
                    let created = at(100 + self.replica_sets.len() as i64);
                    new.metadata.creation_timestamp =
                        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(created));
                    self.replica_sets.push(*new);
                }
                Action::Update {
                    name,
                    replicas,
                    annotations,
                } => {
                    let found = self
                        .replica_sets
                        .iter_mut()
                        .find(|one| one.name_any() == name)
                        .unwrap();
                    found.spec.as_mut().unwrap().replicas = Some(replicas);
                    found
                        .metadata
                        .annotations
                        .get_or_insert_default()
                        .extend(annotations);
                }
                Action::SetRevision(revision) => {
                    let annotations = self.deployment.metadata.annotations.get_or_insert_default();
                    annotations.insert(template::REVISION.to_owned(), revision.to_string());
                }
                Action::Delete(name) => {
                    self.replica_sets.retain(|one| one.name_any() != name);
                    self.forgotten.push(name);
                }
            }
        }
        acted
    }

    /// The Pods follow the sizes; those of templates that `works` refuses never become available.
    fn follow(&mut self, works: impl Fn(&ReplicaSet) -> bool) {
        for replica_set in &mut self.replica_sets {
            let replicas = size(replica_set);
            let good = if works(replica_set) { replicas } else { 0 };
            let status = json!({
                "replicas": replicas, "readyReplicas": good, "availableReplicas": good, "observedGeneration": 1,
            });
            replica_set.status = Some(serde_json::from_value(status).unwrap());
        }
        self.most_pods = self.most_pods.max(self.replica_sets.iter().map(size).sum());
        let available = self.replica_sets.iter().map(available).sum();
        self.fewest_available = self.fewest_available.min(available);
    }

    fn settle(&mut self) {
        for _ in 0..100 {
            let acted = self.round();
            self.follow(|_| true);
            if !acted {
                self.round();
                return;
            }
        }
        panic!("the rollout never settles");
    }

    fn set_image(&mut self, image: &str) {
        let spec = self.deployment.spec.as_mut().unwrap();
        spec.template = serde_json::from_value(template(image)).unwrap();
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
        (self.most_pods, self.fewest_available) = (0, i32::MAX);
    }

    fn scale(&mut self, replicas: i32) {
        self.deployment.spec.as_mut().unwrap().replicas = Some(replicas);
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn sizes(&self) -> Vec<i32> {
        self.replica_sets.iter().map(size).collect()
    }

    fn status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap()
    }

    fn condition(&self, type_: &str) -> (String, String) {
        let conditions = self.status().conditions.unwrap();
        let found = conditions
            .into_iter()
            .find(|condition| condition.type_ == type_)
            .unwrap();
        (found.status, found.reason.unwrap())
    }
}

#[test]
fn the_first_rollout_makes_one_replica_set_and_completes() {
    let mut world = World::new(json!({ "replicas": 3 }));
    world.round();
    assert_eq!(
        world.condition("Progressing"),
        ("True".into(), "NewReplicaSetCreated".into())
    );
    assert_eq!(
        world.condition("Available"),
        ("False".into(), "MinimumReplicasUnavailable".into())
    );
    let new = &world.replica_sets[0];
    let hash = new.labels()[template::HASH_LABEL].clone();
    assert_eq!(new.name_any(), format!("d-{hash}"));
    let spec = new.spec.as_ref().unwrap();
    assert_eq!(
        spec.selector.match_labels.as_ref().unwrap()[template::HASH_LABEL],
        hash
    );
    assert_eq!(new.annotations()["note"], "copied");
    assert!(
        !new.annotations()
            .contains_key("kubectl.kubernetes.io/last-applied-configuration")
    );
    assert!(owner::is_controlled_by(new, "uid-d"));
    world.follow(|_| false);
    world.round();
    assert_eq!(world.status().unavailable_replicas, Some(3));
    world.settle();
    assert_eq!(world.sizes(), [3]);
    let status = world.status();
    assert_eq!(
        (
            status.replicas,
            status.updated_replicas,
            status.available_replicas
        ),
        (Some(3), Some(3), Some(3))
    );
    assert_eq!(
        (status.unavailable_replicas, status.observed_generation),
        (None, Some(1))
    );
    assert_eq!(
        world.condition("Progressing"),
        ("True".into(), "NewReplicaSetAvailable".into())
    );
    assert_eq!(
        world.condition("Available"),
        ("True".into(), "MinimumReplicasAvailable".into())
    );
    assert_eq!(template::revision(&world.deployment), 1);
    assert!(!world.round(), "a complete rollout is left alone");
}

#[test]
fn a_rolling_update_keeps_to_its_surge_and_its_availability() {
    for (replicas, surge, unavailable) in [
        (4, json!(1), json!(0)),
        (4, json!(0), json!(1)),
        (10, json!("25%"), json!("25%")),
        (1, json!(1), json!(0)),
        (3, json!("100%"), json!(0)),
    ] {
        let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
        let mut world = World::new(json!({ "replicas": replicas, "strategy": strategy }));
        world.settle();
        world.set_image("mainstay:2");
        world.settle();
        let (surge, unavailable) = fence(world.deployment.spec.as_ref().unwrap());
        assert!(
            world.most_pods <= replicas + surge,
            "{rolling}: {} Pods",
            world.most_pods
        );
        assert!(
            world.fewest_available >= replicas - unavailable,
            "{rolling}: {} available",
            world.fewest_available
        );
        assert_eq!(world.sizes(), [0, replicas]);
        assert_eq!(template::revision(&world.deployment), 2);
        assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
    }
}

#[test]
fn a_rollout_that_was_complete_is_not_taken_for_the_next_one() {
    let mut world = World::new(json!({ "replicas": 1 }));
    world.settle();
    world.set_image("mainstay:2");
    world.round();
    // `kubectl rollout status` waits as long as these say so.
    assert_eq!(world.status().observed_generation, Some(2));
    assert_eq!(world.status().updated_replicas, None);
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetCreated");
}

#[test]
fn a_broken_template_never_takes_the_last_good_pods_and_exceeds_its_deadline() {
    let mut world = World::new(json!({ "replicas": 2, "progressDeadlineSeconds": 60 }));
    world.settle();
    world.set_image("mainstay:broken");
    for _ in 0..20 {
        world.round();
        world.follow(|one| {
            size(one) == 0
                || !template::is_for(one, &serde_json::from_value(template("mainstay:broken")).unwrap())
        });
    }
    assert_eq!(world.sizes(), [2, 1]);
    let deadline = world.plan().again_at.unwrap();
    assert_eq!(deadline, at(60));
    world.now = deadline;
    world.round();
    assert_eq!(
        world.condition("Progressing"),
        ("False".into(), "ProgressDeadlineExceeded".into())
    );
    assert_eq!(world.condition("Available").0, "True");
    // Going back uses the old ReplicaSet again, under a new number.
    world.set_image("mainstay:1");
    world.settle();
    assert_eq!(world.sizes(), [2, 0]);
    assert_eq!(template::revision(&world.deployment), 3);
    assert_eq!(
        world.replica_sets[0].annotations()[template::REVISION_HISTORY],
        "1"
    );
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn recreate_ends_all_old_pods_before_the_first_new_one() {
    let mut world = World::new(json!({ "replicas": 2, "strategy": { "type": "Recreate" } }));
    world.settle();
    world.set_image("mainstay:2");
    world.round();
    assert_eq!(world.sizes(), [0]);
    world.follow(|_| true);
    world.old_pods_run = true;
    world.round();
    assert_eq!(world.sizes(), [0], "old Pods still run");
    world.old_pods_run = false;
    world.settle();
    assert_eq!(world.sizes(), [0, 2]);
}

#[test]
fn scaling_follows_at_once_and_in_proportion_during_a_rollout() {
    let mut world = World::new(json!({ "replicas": 1 }));
    world.settle();
    world.scale(3);
    world.round();
    assert_eq!(world.sizes(), [3]);
    world.settle();
    world.scale(0);
    world.settle();
    assert_eq!(world.sizes(), [0]);
    assert_eq!(world.condition("Progressing").1, "NewReplicaSetAvailable");

    let strategy = json!({ "rollingUpdate": { "maxSurge": 3, "maxUnavailable": 2 } });
    let mut world = World::new(json!({ "replicas": 10, "strategy": strategy }));
    world.settle();
    world.set_image("mainstay:2");
    world.round();
    world.follow(|_| true);
    world.round();
    let before = world.sizes();
    assert!(
        before.iter().all(|size| *size > 0),
        "not in the middle of a rollout: {before:?}"
    );
    world.scale(20);
    world.round();
    let after = world.sizes();
    assert_eq!(after.iter().sum::<i32>(), 23);
    assert!(
        after.iter().zip(&before).all(|(after, before)| after > before),
        "{before:?} {after:?}"
    );
    world.settle();
    assert_eq!(world.sizes(), [0, 20]);
}

#[test]
fn a_paused_deployment_scales_but_starts_no_rollout() {
    let mut world = World::new(json!({ "replicas": 1 }));
    world.settle();
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    world.set_image("mainstay:2");
    world.scale(2);
    world.settle();
    assert_eq!(world.sizes(), [2]);
    assert_eq!(
        world.condition("Progressing"),
        ("Unknown".into(), "DeploymentPaused".into())
    );
    world.deployment.spec.as_mut().unwrap().paused = Some(false);
    world.settle();
    assert_eq!(world.sizes(), [0, 2]);
}

#[test]
fn old_replica_sets_are_kept_up_to_the_history_limit() {
    let mut world = World::new(json!({ "replicas": 1, "revisionHistoryLimit": 2 }));
    world.settle();
    let first = world.replica_sets[0].name_any();
    for image in ["mainstay:2", "mainstay:3", "mainstay:4"] {
        world.set_image(image);
        world.settle();
    }
    assert_eq!(world.replica_sets.len(), 3);
    assert_eq!(world.forgotten, [first]);
}

#[test]
fn a_deployment_that_is_being_deleted_is_left_alone() {
    let mut world = World::new(json!({ "replicas": 1 }));
    world.settle();
    world.deployment.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(1)));
    world.scale(5);
    assert!(!world.round());
}

#[test]
fn the_hash_depends_on_the_template_and_the_collisions_only() {
    let one = serde_json::from_value(template("mainstay:1")).unwrap();
    let two = serde_json::from_value(template("mainstay:2")).unwrap();
    assert_eq!(template::hash(&one, 0), template::hash(&one, 0));
    assert_ne!(template::hash(&one, 0), template::hash(&two, 0));
    assert_ne!(template::hash(&one, 0), template::hash(&one, 1));
    // A restart of a later version must find the ReplicaSets of this one.
    assert_eq!(template::hash(&one, 0), "lgkrhgclj6");
}

#[test]
fn a_fence_that_would_never_move_allows_one_unavailable_pod() {
    let spec = |surge: Value, unavailable: Value| {
        let strategy = json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
        World::new(json!({ "replicas": 3, "strategy": strategy }))
            .deployment
            .spec
            .unwrap()
    };
    assert_eq!(fence(&spec(json!(0), json!(0))), (0, 1));
    assert_eq!(fence(&spec(json!("25%"), json!("25%"))), (1, 0));
    assert_eq!(fence(&spec(json!("50%"), json!("50%"))), (2, 1));
}
