//! Which PromptPack an agent's `promptPackRef` means.

use std::cmp::Ordering;

use jiff::Timestamp;
use semver::Version;

use super::{parse, precedence};
use crate::{
    condition_types,
    conditions::find_condition,
    omnia::{
        PromptPack,
        agent_runtime::{PromptPackRef, Track},
        prompt_pack::{Phase, SourceType},
    },
};

/// A PromptPack of the agent's namespace, reduced to what the choice depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PackCandidate {
    /// Name of the object.
    pub name: String,
    /// `spec.packName`. The label of the same meaning may not be there yet (OM-173).
    pub pack_name: String,
    /// The version; `None` when it does not parse.
    pub version: Option<Version>,
    /// Whether the source is live.
    pub live: bool,
    /// `status.phase`; `None` before the pack's first reconcile.
    pub phase: Option<Phase>,
    /// Why the pack failed, in its controller's words.
    pub failure: String,
    /// When the object was created.
    pub created: Timestamp,
}

impl PackCandidate {
    /// Reads a PromptPack.
    #[must_use]
    pub fn from_resource(pack: &PromptPack) -> PackCandidate {
        let status = pack.status.clone().unwrap_or_default();
        let failure = [condition_types::SOURCE_VALID, condition_types::SCHEMA_VALID]
            .iter()
            .filter_map(|kind| find_condition(&status.conditions, kind))
            .find(|condition| condition.status == "False")
            .map(|condition| condition.message.clone())
            .unwrap_or_default();
        PackCandidate {
            name: pack.metadata.name.clone().unwrap_or_default(),
            pack_name: pack.spec.pack_name.clone(),
            version: parse(&pack.spec.version).ok(),
            live: pack.spec.source.kind == SourceType::Live,
            phase: status.phase,
            failure,
            created: pack
                .metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        }
    }

    fn validated(&self) -> bool {
        matches!(self.phase, Some(Phase::Active | Phase::Superseded))
    }

    fn on_channel(&self, track: Track) -> bool {
        match (&self.version, track) {
            (None, _) => false,
            (Some(_), Track::Prerelease) => true,
            (Some(version), Track::Stable) => version.pre.is_empty(),
        }
    }

    /// Precedence, then the one that its controller marked as serving, then as OM-308 orders.
    fn order(&self, other: &PackCandidate) -> Ordering {
        let by_version = match (&self.version, &other.version) {
            (Some(own), Some(other)) => precedence(own, other),
            (own, other) => own.is_some().cmp(&other.is_some()),
        };
        by_version
            .then_with(|| (self.phase == Some(Phase::Active)).cmp(&(other.phase == Some(Phase::Active))))
            .then_with(|| self.created.cmp(&other.created))
            .then_with(|| self.name.cmp(&other.name))
    }
}

/// The outcome of a choice, one variant for each row of OM-257 about packs.
#[derive(Clone, Debug)]
pub enum Selection<'a> {
    /// This pack, which can be used.
    Found(&'a PackCandidate),
    /// No pack matches.
    NotFound(String),
    /// The reference is wrong.
    RefInvalid(String),
    /// This pack, which failed its validation.
    Invalid(&'a PackCandidate),
    /// This pack, which has not been validated yet.
    NotReady(&'a PackCandidate),
}

/// Chooses the pack that a reference means. `rollout` says whether the agent has `spec.rollout`.
#[must_use]
pub fn select<'a>(reference: &PromptPackRef, rollout: bool, packs: &'a [PackCandidate]) -> Selection<'a> {
    if reference.version.is_some() && reference.track.is_some() {
        return Selection::RefInvalid("spec.promptPackRef: version and track cannot be combined".into());
    }
    let named: Vec<&PackCandidate> = packs
        .iter()
        .filter(|pack| pack.pack_name == reference.name)
        .collect();
    if named.is_empty() {
        return Selection::NotFound(format!("no PromptPack has packName {:?}", reference.name));
    }
    let (live, published): (Vec<_>, Vec<_>) = named.into_iter().partition(|pack| pack.live);
    if !live.is_empty() && !published.is_empty() {
        return Selection::RefInvalid(format!(
            "packName {:?} has both live and published PromptPacks",
            reference.name
        ));
    }
    if let Some(pack) = live.into_iter().max_by(|left, right| left.order(right)) {
        if rollout {
            return Selection::RefInvalid(format!(
                "packName {:?} is live, and a live pack takes no part in a rollout",
                reference.name
            ));
        }
        return judge(pack);
    }
    match &reference.version {
        Some(version) => pinned(reference, version, &published),
        None => newest(reference, reference.track.unwrap_or_default(), &published),
    }
}

fn pinned<'a>(reference: &PromptPackRef, version: &str, published: &[&'a PackCandidate]) -> Selection<'a> {
    let wanted = match parse(version) {
        Ok(wanted) => wanted,
        Err(error) => return Selection::RefInvalid(format!("spec.promptPackRef.version: {error}")),
    };
    let same = |pack: &&&PackCandidate| {
        pack.version
            .as_ref()
            .is_some_and(|own| precedence(own, &wanted) == Ordering::Equal)
    };
    // Among equal versions a validated one is the better answer than a failed duplicate of it.
    let found = published.iter().filter(same).max_by(|left, right| {
        left.validated()
            .cmp(&right.validated())
            .then_with(|| left.order(right))
    });
    match found {
        Some(pack) => judge(pack),
        None => Selection::NotFound(format!(
            "no PromptPack has packName {:?} and version {version}",
            reference.name
        )),
    }
}

fn newest<'a>(reference: &PromptPackRef, track: Track, published: &[&'a PackCandidate]) -> Selection<'a> {
    let on_channel = || published.iter().copied().filter(|pack| pack.on_channel(track));
    let best = |eligible: fn(&PackCandidate) -> bool| {
        on_channel()
            .filter(|pack| eligible(pack))
            .max_by(|left, right| left.order(right))
    };
    // A version that waits for its validation is about to become eligible; one that failed is not.
    best(PackCandidate::validated)
        .or_else(|| best(|pack| pack.phase != Some(Phase::Failed)))
        .or_else(|| best(|_| true))
        .map_or_else(
            || {
                Selection::NotFound(format!(
                    "no PromptPack with packName {:?} is on channel {track}",
                    reference.name
                ))
            },
            judge,
        )
}

fn judge(pack: &PackCandidate) -> Selection<'_> {
    match pack.phase {
        Some(Phase::Active | Phase::Superseded) => Selection::Found(pack),
        Some(Phase::Failed) => Selection::Invalid(pack),
        Some(Phase::Pending) | None => Selection::NotReady(pack),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn pack(name: &str, version: &str, phase: Option<Phase>) -> PackCandidate {
        PackCandidate {
            name: name.into(),
            pack_name: "p".into(),
            version: parse(version).ok(),
            live: false,
            phase,
            failure: String::new(),
            created: Timestamp::UNIX_EPOCH,
        }
    }

    fn reference(version: Option<&str>, track: Option<Track>) -> PromptPackRef {
        PromptPackRef {
            name: "p".into(),
            version: version.map(str::to_owned),
            track,
        }
    }

    fn outcome(selection: &Selection<'_>) -> (&'static str, String) {
        match selection {
            Selection::Found(pack) => ("found", pack.name.clone()),
            Selection::NotFound(message) => ("not found", message.clone()),
            Selection::RefInvalid(message) => ("ref invalid", message.clone()),
            Selection::Invalid(pack) => ("invalid", pack.name.clone()),
            Selection::NotReady(pack) => ("not ready", pack.name.clone()),
        }
    }

    #[test]
    fn the_highest_validated_version_of_the_channel_is_used_om_265() {
        let packs = [
            pack("old", "1.0.0", Some(Phase::Superseded)),
            pack("new", "1.1.0", Some(Phase::Active)),
            pack("bad", "1.2.0", Some(Phase::Failed)),
            pack("unseen", "1.3.0", None),
            pack("next", "2.0.0-rc.1", Some(Phase::Active)),
        ];
        let choose = |reference: &PromptPackRef| outcome(&select(reference, false, &packs));
        assert_eq!(choose(&reference(None, None)), ("found", "new".into()));
        assert_eq!(
            choose(&reference(None, Some(Track::Prerelease))),
            ("found", "next".into())
        );
        assert_eq!(
            choose(&reference(Some("v1.0.0+any"), None)),
            ("found", "old".into()),
            "a superseded pin is legal"
        );
        assert_eq!(choose(&reference(Some("1.2.0"), None)), ("invalid", "bad".into()));
        assert_eq!(
            choose(&reference(Some("1.3.0"), None)),
            ("not ready", "unseen".into())
        );
        assert_eq!(choose(&reference(Some("9.0.0"), None)).0, "not found");
        assert_eq!(choose(&reference(Some("nine"), None)).0, "ref invalid");
        assert_eq!(
            choose(&reference(Some("1.0.0"), Some(Track::Stable))).0,
            "ref invalid"
        );
    }

    #[test]
    fn without_an_eligible_version_the_best_candidate_says_why_om_257() {
        let waiting = [
            pack("bad", "2.0.0", Some(Phase::Failed)),
            pack("unseen", "1.0.0", Some(Phase::Pending)),
        ];
        assert_eq!(
            outcome(&select(&reference(None, None), false, &waiting)),
            ("not ready", "unseen".into())
        );
        assert_eq!(
            outcome(&select(&reference(None, None), false, &waiting[..1])),
            ("invalid", "bad".into())
        );
        let only_pre = [pack("pre", "1.0.0-rc.1", Some(Phase::Active))];
        assert_eq!(
            outcome(&select(&reference(None, None), false, &only_pre)).0,
            "not found"
        );
        assert_eq!(
            outcome(&select(&reference(None, None), false, &[])).0,
            "not found"
        );
    }

    #[test]
    fn live_packs_stand_alone_om_257_om_266() {
        let mut live = pack("live", "1.0.0", Some(Phase::Active));
        live.live = true;
        let alone = [live.clone()];
        assert_eq!(
            outcome(&select(&reference(None, None), false, &alone)),
            ("found", "live".into())
        );
        assert_eq!(
            outcome(&select(&reference(None, None), true, &alone)).0,
            "ref invalid"
        );
        let mixed = [live, pack("published", "1.0.0", Some(Phase::Active))];
        assert_eq!(
            outcome(&select(&reference(None, None), false, &mixed)).0,
            "ref invalid"
        );
    }

    #[test]
    fn of_equal_versions_the_serving_one_is_used_om_265() {
        let packs = [
            pack("z", "1.0.0+a", Some(Phase::Superseded)),
            pack("a", "1.0.0+b", Some(Phase::Active)),
        ];
        assert_eq!(
            outcome(&select(&reference(None, None), false, &packs)),
            ("found", "a".into())
        );
        assert_eq!(
            outcome(&select(&reference(Some("1.0.0"), None), false, &packs)),
            ("found", "a".into())
        );
    }
}
