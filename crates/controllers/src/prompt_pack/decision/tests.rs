#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn prompt_pack(name: &str, version: &str, created: i64) -> PromptPack {
    let spec = json!({
        "packName": "p", "version": version,
        "source": { "type": "configmap", "configMapRef": { "name": "content" } },
    });
    let mut pack = PromptPack::new(name, serde_json::from_value(spec).unwrap());
    pack.metadata.creation_timestamp = Some(Time(Timestamp::from_second(created).unwrap()));
    pack.metadata.generation = Some(1);
    pack
}

fn valid_content() -> Content {
    let document = json!({
        "id": "p", "name": "P", "version": "1.0.0",
        "template_engine": { "version": "v1", "syntax": "{{variable}}" },
        "prompts": { "default": { "id": "default", "name": "D", "version": "1.0.0", "system_template": "Hello." } },
    });
    Content::Bytes(document.to_string().into_bytes())
}

fn inputs(content: Content) -> Inputs {
    Inputs {
        content,
        validated_siblings: Vec::new(),
        agents: 0,
    }
}

fn judged(pack: &PromptPack, inputs: &Inputs) -> (PromptPackStatus, Vec<Notice>) {
    status(pack, inputs, Timestamp::from_second(100).unwrap())
}

fn condition(status: &PromptPackStatus, kind: &str) -> Option<(String, String)> {
    find_condition(&status.conditions, kind)
        .map(|condition| (condition.status.clone(), condition.reason.clone()))
}

fn pair(status: &str, reason: &str) -> Option<(String, String)> {
    Some((status.to_owned(), reason.to_owned()))
}

#[test]
fn a_valid_pack_serves_its_channel_om_299() {
    let pack = prompt_pack("a", "1.0.0", 1);
    let (status, notices) = judged(
        &pack,
        &Inputs {
            agents: 2,
            ..inputs(valid_content())
        },
    );
    assert_eq!(
        (status.phase, status.active_version.as_deref()),
        (Some(Phase::Active), Some("1.0.0"))
    );
    assert!(status.content_digest.as_deref().unwrap().starts_with("sha256:"));
    assert_eq!(condition(&status, "SourceValid"), pair("True", "SourceValid"));
    assert_eq!(condition(&status, "SchemaValid"), pair("True", "SchemaValid"));
    assert_eq!(condition(&status, "Superseded"), pair("False", "IsChannelMax"));
    assert_eq!(condition(&status, "SkillsResolved"), pair("True", "NoSkills"));
    assert_eq!(
        condition(&status, "AgentsNotified"),
        pair("True", "AgentsNotified")
    );
    assert_eq!(
        find_condition(&status.conditions, "AgentsNotified")
            .unwrap()
            .message,
        "Notified 2 AgentRuntime(s)"
    );
    assert_eq!(
        notices.iter().map(|notice| notice.reason).collect::<Vec<_>>(),
        ["ValidationSucceeded"]
    );
}

#[test]
fn an_unchanged_state_gives_the_same_status_and_no_event_om_249_om_318() {
    let mut pack = prompt_pack("a", "1.0.0", 1);
    let (first, _) = judged(&pack, &inputs(valid_content()));
    pack.status = Some(first.clone());
    let (second, notices) = status(
        &pack,
        &inputs(valid_content()),
        Timestamp::from_second(999).unwrap(),
    );
    assert_eq!(second, first);
    assert!(notices.is_empty());
}

#[test]
fn a_missing_source_and_a_malformed_pack_are_different_conditions_and_events_om_303_v_44_v_47() {
    let mut pack = prompt_pack("a", "1.1.0", 1);
    let (missing, notices) = judged(
        &pack,
        &inputs(Content::Missing("ConfigMap \"content\" does not exist".into())),
    );
    assert_eq!(missing.phase, Some(Phase::Failed));
    assert_eq!(
        condition(&missing, "SourceValid"),
        pair("False", "SourceValidationFailed")
    );
    assert_eq!(
        condition(&missing, "SchemaValid"),
        pair("Unknown", "SourceInvalid")
    );
    assert_eq!(notices[0].reason, "SourceValidationFailed");
    assert!(missing.active_version.is_none() && missing.content_digest.is_none());

    let (malformed, notices) = judged(&pack, &inputs(Content::Bytes(b"{\"id\": 7}".to_vec())));
    assert_eq!(malformed.phase, Some(Phase::Failed));
    assert_eq!(condition(&malformed, "SourceValid"), pair("True", "SourceValid"));
    assert_eq!(
        condition(&malformed, "SchemaValid"),
        pair("False", "SchemaValidationFailed")
    );
    assert_eq!(notices[0].reason, "SchemaValidationFailed");
    assert!(
        notices[0].message.starts_with("invalid pack.json: ") && notices[0].message.contains("/id"),
        "{notices:?}"
    );

    pack.status = Some(malformed);
    let (_, repeated) = judged(&pack, &inputs(Content::Bytes(b"{\"id\": 7}".to_vec())));
    assert!(repeated.is_empty(), "no Event for an unchanged failure");
}

#[test]
fn a_failed_version_keeps_the_working_one_in_place_v_44() {
    // The newer version failed, so it is not among the validated siblings.
    let (working, _) = judged(&prompt_pack("a", "1.0.0", 1), &inputs(valid_content()));
    assert_eq!(working.phase, Some(Phase::Active));
}

#[test]
fn a_newer_validated_version_supersedes_om_309() {
    let newer = version(&prompt_pack("b", "1.1.0", 2)).unwrap();
    let superseded = Inputs {
        validated_siblings: vec![newer],
        ..inputs(valid_content())
    };
    let (status, _) = judged(&prompt_pack("a", "1.0.0", 1), &superseded);
    assert_eq!(
        (status.phase, status.active_version),
        (Some(Phase::Superseded), None)
    );
    assert_eq!(
        condition_of(&status.conditions),
        ("True".into(), "NewerVersionPublished".into())
    );
    let duplicate = Inputs {
        validated_siblings: vec![version(&prompt_pack("b", "1.0.0+b", 2)).unwrap()],
        ..inputs(valid_content())
    };
    let (status, _) = judged(&prompt_pack("a", "1.0.0+a", 1), &duplicate);
    assert_eq!(
        condition_of(&status.conditions),
        ("True".into(), "DuplicateVersion".into()),
        "V-46"
    );
}

fn condition_of(
    conditions: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition],
) -> (String, String) {
    let found = find_condition(conditions, "Superseded").unwrap();
    (found.status.clone(), found.reason.clone())
}

#[test]
fn a_live_source_is_judged_from_the_spec_alone_om_299() {
    let live = |source: Value| {
        let spec = json!({ "packName": "p", "version": "1.0.0", "source": source });
        let pack = PromptPack::new("live", serde_json::from_value(spec).unwrap());
        judged(&pack, &inputs(Content::NotRead)).0
    };
    let status = live(json!({ "type": "live", "live": { "configMapRef": { "name": "c" } } }));
    assert_eq!(status.phase, Some(Phase::Active));
    assert_eq!(condition(&status, "SchemaValid"), None);
    assert_eq!(condition(&status, "Superseded"), None);
    let empty = live(json!({ "type": "live" }));
    assert_eq!(
        (empty.phase, condition(&empty, "SourceValid")),
        (Some(Phase::Failed), pair("False", "SourceValidationFailed"))
    );
}

#[test]
fn skills_are_reported_as_not_served() {
    let mut pack = prompt_pack("a", "1.0.0", 1);
    pack.spec.skills = serde_json::from_value(json!([{ "source": "wiki" }])).unwrap();
    let (status, _) = judged(&pack, &inputs(valid_content()));
    assert_eq!(status.phase, Some(Phase::Active));
    assert_eq!(
        condition(&status, "SkillsResolved"),
        pair("False", "SkillSourcesNotServed")
    );
}

#[test]
fn skills_in_the_pack_are_resolved_and_files_beside_it_are_not_om_315_om_316_om_317() {
    let pack = prompt_pack("a", "1.0.0", 1);
    let with = |skills: Value| {
        let Content::Bytes(bytes) = valid_content() else {
            unreachable!("the content is bytes");
        };
        let mut document: Value = serde_json::from_slice(&bytes).unwrap();
        document["skills"] = skills;
        judged(&pack, &inputs(Content::Bytes(document.to_string().into_bytes()))).0
    };
    let skill = |name: &str| json!({ "name": name, "description": "d", "instructions": "i" });
    let status = with(json!([skill("refund"), skill("escalate")]));
    assert_eq!(
        condition(&status, "SkillsResolved"),
        pair("True", "AllSkillsResolved")
    );
    assert_eq!(condition(&status, "SkillsValid"), pair("True", "NoCollisions"));
    assert_eq!(
        condition(&status, "SkillToolsResolved"),
        pair("True", "AllToolsResolved")
    );
    let status = with(json!([skill("refund"), skill("refund")]));
    assert_eq!(condition(&status, "SkillsValid"), pair("False", "NameCollision"));
    for path in [json!("skills/a"), json!({ "path": "skills/a", "preload": true })] {
        let status = with(json!([path]));
        assert_eq!(
            condition(&status, "SkillsResolved"),
            pair("False", "SkillSourcesNotServed")
        );
        assert_eq!(condition(&status, "SkillsValid"), None);
        let message = &find_condition(&status.conditions, "SkillsResolved")
            .unwrap()
            .message;
        assert!(message.contains("skills/a"), "{message}");
    }
}
