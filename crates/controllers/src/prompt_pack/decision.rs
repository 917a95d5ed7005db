//! What a pack's status says (OM-299 … OM-317). Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use mainstay_agent::pack::{self, Skills};
use mainstay_resources::{
    condition_types,
    conditions::{NewCondition, find_condition, remove_condition, set_condition},
    omnia::{
        PromptPack, PromptPackStatus,
        prompt_pack::{Phase, SourceType},
    },
    pack_version::{self, PackVersion, Standing},
    reasons, validation,
};

use crate::events::Notice;

/// What the source gave.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// There is nothing to read: a live source, or a spec without a reference.
    NotRead,
    /// ConfigMap or key is missing.
    Missing(String),
    /// The content.
    Bytes(Vec<u8>),
}

/// What the decision depends on, beside the pack itself.
pub(super) struct Inputs {
    pub(super) content: Content,
    pub(super) validated_siblings: Vec<PackVersion>,
    pub(super) agents: usize,
}

/// A pack as it competes for channels; `None` when its version does not parse.
pub(super) fn version(pack: &PromptPack) -> Option<PackVersion> {
    Some(PackVersion {
        name: pack.name_any(),
        version: pack_version::parse(&pack.spec.version).ok()?,
        created: pack
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    })
}

/// What the two validations found.
enum Verdict {
    SourceInvalid(String),
    SchemaInvalid(String),
    /// A live source: judged from the spec alone.
    Live,
    Valid {
        digest: String,
        skills: Skills,
    },
}

fn validate(prompt_pack: &PromptPack, content: &Content) -> Verdict {
    let findings = validation::prompt_pack::validate(&prompt_pack.spec);
    if !findings.is_empty() {
        return Verdict::SourceInvalid(validation::join(&findings));
    }
    if prompt_pack.spec.source.kind == SourceType::Live {
        return Verdict::Live;
    }
    match content {
        Content::Missing(message) => Verdict::SourceInvalid(message.clone()),
        Content::NotRead => Verdict::SourceInvalid("spec.source.configMapRef: is required".into()),
        Content::Bytes(bytes) => match pack::validate(bytes) {
            Ok(document) => Verdict::Valid {
                digest: pack::digest(bytes),
                skills: Skills::of(&document),
            },
            Err(findings) => Verdict::SchemaInvalid(pack::describe(&findings)),
        },
    }
}

/// The whole status, and the Events of what changed.
pub(super) fn status(pack: &PromptPack, inputs: &Inputs, now: Timestamp) -> (PromptPackStatus, Vec<Notice>) {
    let before = pack.status.clone().unwrap_or_default();
    let verdict = validate(pack, &inputs.content);
    let mut draft = Draft {
        conditions: before.conditions.clone(),
        generation: pack.metadata.generation,
        now: Time(now),
        notices: Vec::new(),
    };
    let mut skills = Skills::default();
    let (phase, digest) = match verdict {
        Verdict::SourceInvalid(message) => {
            draft.source_failed(message);
            (Phase::Failed, None)
        }
        Verdict::SchemaInvalid(message) => {
            draft.source_valid("the ConfigMap has the content");
            draft.schema_failed(message);
            (Phase::Failed, None)
        }
        Verdict::Live => {
            draft.source_valid("the source is live; its content is read when a session starts");
            for kind in [condition_types::SCHEMA_VALID, condition_types::SUPERSEDED] {
                remove_condition(&mut draft.conditions, kind);
            }
            (Phase::Active, None)
        }
        Verdict::Valid {
            digest,
            skills: of_content,
        } => {
            skills = of_content;
            draft.source_valid("the ConfigMap has the content");
            draft.set(NewCondition::met(
                condition_types::SCHEMA_VALID,
                reasons::SCHEMA_VALID,
                "pack.json conforms to the PromptPack schema",
            ));
            if before.content_digest.as_ref() != Some(&digest) {
                draft.notices.push(Notice::normal(
                    reasons::VALIDATION_SUCCEEDED,
                    format!("pack.json is valid: {digest}"),
                ));
            }
            (draft.standing(pack, &inputs.validated_siblings), Some(digest))
        }
    };
    draft.skills(pack, &skills);
    draft.agents(inputs.agents);

    let mut new = PromptPackStatus {
        phase: Some(phase),
        active_version: (phase == Phase::Active).then(|| pack.spec.version.clone()),
        content_digest: digest,
        last_updated: before.last_updated.clone(),
        observed_generation: draft.generation,
        conditions: draft.conditions,
    };
    // The time alone is no reason to write a status.
    if new != before {
        new.last_updated = Some(draft.now);
    }
    (new, draft.notices)
}

struct Draft {
    conditions: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    generation: Option<i64>,
    now: Time,
    notices: Vec<Notice>,
}

impl Draft {
    fn set(&mut self, condition: NewCondition) {
        set_condition(&mut self.conditions, condition, self.generation, &self.now);
    }

    fn source_valid(&mut self, message: &str) {
        self.set(NewCondition::met(
            condition_types::SOURCE_VALID,
            reasons::SOURCE_VALID,
            message,
        ));
    }

    /// A failure, with an Event unless the same one was reported before.
    fn fail(&mut self, kind: &'static str, reason: &'static str, message: String) {
        let repeated = find_condition(&self.conditions, kind)
            .is_some_and(|old| old.status == "False" && old.reason == reason && old.message == message);
        if !repeated {
            self.notices.push(Notice::warning(reason, message.clone()));
        }
        self.set(NewCondition::unmet(kind, reason, message));
    }

    fn source_failed(&mut self, message: String) {
        self.fail(
            condition_types::SOURCE_VALID,
            reasons::SOURCE_VALIDATION_FAILED,
            message,
        );
        // There is nothing that the schema could be held against (OM-300).
        self.set(NewCondition::unknown(
            condition_types::SCHEMA_VALID,
            reasons::SOURCE_INVALID,
            "there is no content to validate",
        ));
        remove_condition(&mut self.conditions, condition_types::SUPERSEDED);
    }

    fn schema_failed(&mut self, message: String) {
        self.fail(
            condition_types::SCHEMA_VALID,
            reasons::SCHEMA_VALIDATION_FAILED,
            message,
        );
        remove_condition(&mut self.conditions, condition_types::SUPERSEDED);
    }

    /// Whether the version serves a channel (OM-306 … OM-309).
    fn standing(&mut self, pack: &PromptPack, validated_siblings: &[PackVersion]) -> Phase {
        let kind = condition_types::SUPERSEDED;
        // A version that does not parse never gets here; its validation failed.
        let standing = version(pack).map_or(Standing::Serves, |own| {
            pack_version::standing(&own, validated_siblings)
        });
        match standing {
            Standing::Serves => {
                let message = format!("version {} serves its channel", pack.spec.version);
                self.set(NewCondition::unmet(kind, reasons::IS_CHANNEL_MAX, message));
                Phase::Active
            }
            Standing::NewerVersion { by } => {
                let message = format!("PromptPack {by:?} has a newer version");
                self.set(NewCondition::met(kind, reasons::NEWER_VERSION_PUBLISHED, message));
                Phase::Superseded
            }
            Standing::Duplicate { by } => {
                let message = format!("PromptPack {by:?} has the same version and was created later");
                self.set(NewCondition::met(kind, reasons::DUPLICATE_VERSION, message));
                Phase::Superseded
            }
        }
    }

    /// OM-315 … OM-317. Skills that stand in the pack itself are served; SkillSources, and files beside the pack, which
    /// only they bring, are not.
    fn skills(&mut self, pack: &PromptPack, inline: &Skills) {
        let kind = condition_types::SKILLS_RESOLVED;
        let elsewhere: Vec<&str> = pack
            .spec
            .skills
            .iter()
            .map(|skill| skill.source.as_str())
            .chain(inline.paths.iter().map(String::as_str))
            .collect();
        let resolved = if !elsewhere.is_empty() {
            let message = format!(
                "SkillSources are not served by this version; the pack runs without the skills of {}",
                elsewhere.join(", ")
            );
            NewCondition::unmet(kind, reasons::SKILL_SOURCES_NOT_SERVED, message)
        } else if inline.is_empty() {
            NewCondition::met(kind, reasons::NO_SKILLS, "the pack names no skills")
        } else {
            let message = format!(
                "{} skill(s) stand in pack.json and are offered by skill__activate",
                inline.inline.len()
            );
            NewCondition::met(kind, reasons::ALL_SKILLS_RESOLVED, message)
        };
        self.set(resolved);
        if inline.inline.is_empty() {
            for kind in [
                condition_types::SKILLS_VALID,
                condition_types::SKILL_TOOLS_RESOLVED,
            ] {
                remove_condition(&mut self.conditions, kind);
            }
            return;
        }
        let repeated: Vec<&str> = inline.repeated.iter().map(String::as_str).collect();
        self.set(match repeated.is_empty() {
            true => NewCondition::met(
                condition_types::SKILLS_VALID,
                reasons::NO_COLLISIONS,
                "each skill has a name of its own",
            ),
            false => NewCondition::unmet(
                condition_types::SKILLS_VALID,
                reasons::NAME_COLLISION,
                format!(
                    "pack.json has several skills of these names, and the first of each is used: {}",
                    repeated.join(", ")
                ),
            ),
        });
        // The form of a skill in pack.json has no list of tools that it could name wrongly.
        self.set(NewCondition::met(
            condition_types::SKILL_TOOLS_RESOLVED,
            reasons::ALL_TOOLS_RESOLVED,
            "the skills in pack.json name no tools",
        ));
    }

    fn agents(&mut self, count: usize) {
        let reason = if count == 0 {
            reasons::NO_AGENTS_TO_NOTIFY
        } else {
            reasons::AGENTS_NOTIFIED
        };
        self.set(NewCondition::met(
            condition_types::AGENTS_NOTIFIED,
            reason,
            format!("Notified {count} AgentRuntime(s)"),
        ));
    }
}

#[cfg(test)]
mod tests;
