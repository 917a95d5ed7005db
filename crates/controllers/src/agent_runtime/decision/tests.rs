#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use mainstay_resources::{
    omnia::{agent_runtime::PromptPackRef, prompt_pack},
    pack_version::select,
};
use serde_json::{Value, json};

use super::*;

fn pack(phase: Option<prompt_pack::Phase>, live: bool) -> PackCandidate {
    PackCandidate {
        name: "pack".into(),
        pack_name: "p".into(),
        version: mainstay_resources::pack_version::parse("1.0.0").ok(),
        live,
        phase,
        failure: "invalid pack.json: /id: is required".into(),
        created: Timestamp::UNIX_EPOCH,
    }
}

/// Condition reason, phase and whether an error is returned: the columns of OM-257.
type Row = (&'static str, Phase, bool);

fn pack_row(packs: &[PackCandidate], reference: Value, rollout: bool) -> Result<String, Row> {
    let reference: PromptPackRef = serde_json::from_value(reference).unwrap();
    match judge_pack(select(&reference, rollout, packs)) {
        Ok(pack) => Ok(pack.name),
        Err(blocked) => {
            assert_eq!(blocked.kind, "PromptPackReady");
            Err((blocked.reason, blocked.phase, blocked.retry))
        }
    }
}

#[test]
fn each_row_about_packs_has_its_phase_reason_and_error_class_om_257() {
    use prompt_pack::Phase as P;
    let reference = || json!({ "name": "p" });
    let none: &[PackCandidate] = &[];
    assert_eq!(
        pack_row(none, reference(), false),
        Err(("PromptPackNotFound", Phase::Failed, true))
    );
    let live = [pack(Some(P::Active), true)];
    assert_eq!(
        pack_row(&live, reference(), true),
        Err(("PromptPackRefInvalid", Phase::Failed, false))
    );
    let mixed = [pack(Some(P::Active), true), pack(Some(P::Active), false)];
    assert_eq!(
        pack_row(&mixed, reference(), false),
        Err(("PromptPackRefInvalid", Phase::Failed, false))
    );
    let active = [pack(Some(P::Active), false)];
    let both = json!({ "name": "p", "version": "1.0.0", "track": "stable" });
    assert_eq!(
        pack_row(&active, both, false),
        Err(("PromptPackRefInvalid", Phase::Failed, false))
    );
    let failed = [pack(Some(P::Failed), false)];
    assert_eq!(
        pack_row(&failed, reference(), false),
        Err(("PromptPackInvalid", Phase::Failed, false))
    );
    let unseen = [pack(None, false)];
    assert_eq!(
        pack_row(&unseen, reference(), false),
        Err(("PromptPackNotReady", Phase::Pending, false))
    );
    assert_eq!(pack_row(&active, reference(), false), Ok("pack".into()));
}

#[test]
fn an_invalid_pack_carries_its_own_error_om_257() {
    let failed = pack(Some(prompt_pack::Phase::Failed), false);
    let blocked = judge_pack(Selection::Invalid(&failed)).unwrap_err();
    assert!(
        blocked.message.contains("invalid pack.json: /id: is required"),
        "{}",
        blocked.message
    );
}

fn agent(handler: &str) -> AgentRuntimeSpec {
    serde_json::from_value(json!({ "promptPackRef": { "name": "p" }, "facades": [{ "handler": handler }] }))
        .unwrap()
}

fn found(spec: Value, phase: Option<&str>) -> ProviderLookup {
    let mut provider = Provider::new("model", serde_json::from_value(spec).unwrap());
    provider.metadata.generation = Some(2);
    provider.status = phase
        .map(|phase| serde_json::from_value(json!({ "phase": phase, "observedGeneration": 2 })).unwrap());
    ProviderLookup::Found(Box::new(provider))
}

fn entry(name: &str, extra: Value, lookup: ProviderLookup) -> ProviderInput {
    let mut value = json!({ "name": name, "providerRef": { "name": "model" } });
    value
        .as_object_mut()
        .unwrap()
        .extend(extra.as_object().unwrap().clone());
    ProviderInput {
        entry: serde_json::from_value(value).unwrap(),
        lookup,
    }
}

fn provider_row(inputs: &[ProviderInput]) -> Result<usize, Row> {
    match judge_providers(&agent("runtime"), inputs) {
        Ok(usable) => Ok(usable.len()),
        Err(blocked) => {
            assert_eq!(blocked.kind, "ProviderReady");
            Err((blocked.reason, blocked.phase, blocked.retry))
        }
    }
}

#[test]
fn each_row_about_providers_has_its_phase_reason_and_error_class_om_257() {
    let mock = || json!({ "type": "mock" });
    let one = |extra: Value, lookup| provider_row(&[entry("default", extra, lookup)]);
    assert_eq!(
        one(json!({}), ProviderLookup::Missing),
        Err(("ProviderNotFound", Phase::Failed, true))
    );
    assert_eq!(
        one(json!({}), ProviderLookup::CrossNamespace),
        Err(("ProviderCrossNamespace", Phase::Failed, true))
    );
    let speech = found(json!({ "type": "openai", "role": "tts" }), Some("Ready"));
    assert_eq!(
        one(json!({}), speech),
        Err(("RoleMismatch", Phase::Failed, false))
    );
    for phase in [None, Some("Error"), Some("Unavailable")] {
        assert_eq!(
            one(json!({}), found(mock(), phase)),
            Err(("ProviderNotReady", Phase::Pending, false)),
            "OM-262"
        );
    }
    let wanted = json!({ "requiredCapabilities": ["tools", "vision"] });
    let lacking = found(
        json!({ "type": "mock", "capabilities": ["tools"] }),
        Some("Ready"),
    );
    assert_eq!(
        one(wanted.clone(), lacking),
        Err(("CapabilityMismatch", Phase::Pending, false))
    );
    let able = found(
        json!({ "type": "mock", "capabilities": ["vision", "tools"] }),
        Some("Ready"),
    );
    assert_eq!(one(wanted, able), Ok(1));
    assert_eq!(one(json!({}), found(mock(), Some("Ready"))), Ok(1));
}

#[test]
fn a_type_that_is_not_served_is_named() {
    // Admission refuses this role for this type; an object that was written around it has to be named here.
    let lookup = found(json!({ "type": "huggingface", "model": "m" }), Some("Ready"));
    let blocked = judge_providers(&agent("runtime"), &[entry("default", json!({}), lookup)]).unwrap_err();
    assert_eq!(
        (blocked.reason, blocked.phase, blocked.retry),
        ("ProviderTypeNotSupported", Phase::Failed, false)
    );
    assert!(blocked.message.contains("huggingface"), "{}", blocked.message);
}

#[test]
fn a_status_of_an_older_spec_does_not_count() {
    let ProviderLookup::Found(mut provider) = found(json!({ "type": "mock" }), Some("Ready")) else {
        panic!()
    };
    provider.metadata.generation = Some(3);
    let input = entry("default", json!({}), ProviderLookup::Found(provider));
    assert_eq!(
        provider_row(&[input]),
        Err(("ProviderNotReady", Phase::Pending, false))
    );
}

#[test]
fn a_failed_cause_outranks_a_pending_one_and_all_are_named_om_258() {
    let inputs = [
        entry("default", json!({}), found(json!({ "type": "mock" }), None)),
        entry("judge", json!({}), ProviderLookup::Missing),
    ];
    let blocked = judge_providers(&agent("runtime"), &inputs).unwrap_err();
    assert_eq!(
        (blocked.reason, blocked.phase, blocked.retry),
        ("ProviderNotFound", Phase::Failed, true)
    );
    assert!(
        blocked.message.contains("\"default\"") && blocked.message.contains("\"judge\""),
        "{}",
        blocked.message
    );
}

#[test]
fn without_a_model_only_echo_and_demo_work_om_261() {
    assert_eq!(
        provider_row(&[]),
        Err(("NoProviderConfigured", Phase::Failed, false))
    );
    assert!(judge_providers(&agent("echo"), &[]).unwrap().is_empty());
    let embedding = entry(
        "vectors",
        json!({ "role": "embedding" }),
        found(
            json!({ "type": "openai", "role": "embedding", "model": "m" }),
            Some("Ready"),
        ),
    );
    assert_eq!(
        provider_row(&[embedding]),
        Err(("NoProviderConfigured", Phase::Failed, false))
    );
}

/// A `pack.json` with prompts of these names, each with these validators.
fn pack_json(prompts: &[&str], validators: &serde_json::Value) -> Vec<u8> {
    let prompts: serde_json::Map<_, _> = prompts
        .iter()
        .map(|name| {
            let prompt = json!({
                "id": name, "name": name, "version": "1.0.0", "system_template": "You help.", "validators": validators,
            });
            ((*name).to_owned(), prompt)
        })
        .collect();
    json!({
        "id": "p", "name": "p", "version": "1.0.0",
        "template_engine": { "version": "v1", "syntax": "{{variable}}" }, "prompts": prompts,
    })
    .to_string()
    .into_bytes()
}

#[test]
fn a_pack_that_cannot_be_run_blocks_with_what_it_lacks_om_561_om_565() {
    let blocked = |content: &[u8]| {
        let blocked = judge_content("helpdesk", content).unwrap_err();
        assert_eq!((blocked.kind, blocked.retry), ("PromptPackReady", false));
        (blocked.reason, blocked.phase, blocked.message)
    };
    let (reason, phase, message) = blocked(&pack_json(&["x", "y"], &json!([])));
    assert_eq!((reason, phase), ("PromptAmbiguous", Phase::Pending));
    assert!(message.contains("x, y"), "{message}");
    let (reason, phase, message) = blocked(&pack_json(&["x"], &json!([{ "type": "zzz", "enabled": true }])));
    assert_eq!((reason, phase), ("GuardrailNotSupported", Phase::Pending));
    assert!(message.contains("zzz"), "{message}");
    let (reason, phase, message) = blocked(b"{}");
    assert_eq!((reason, phase), ("PromptPackInvalid", Phase::Failed));
    assert!(message.contains("invalid pack.json: "), "{message}");
    assert!(judge_content("helpdesk", &pack_json(&["x", "default"], &json!([]))).is_ok());
}
