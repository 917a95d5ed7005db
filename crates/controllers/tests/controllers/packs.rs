use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use mainstay_resources::omnia::{AgentRuntime, PromptPack, prompt_pack::Phase};
use serde_json::json;

use crate::world::{World, condition, content, prompt_pack};

fn phase(pack: &PromptPack) -> Option<Phase> {
    pack.status.as_ref().and_then(|status| status.phase)
}

fn has(pack: &PromptPack, kind: &str, wanted: &str) -> bool {
    pack.status
        .as_ref()
        .is_some_and(|status| condition(&status.conditions, kind) == wanted)
}

async fn until_phase(world: &World, name: &str, wanted: Phase) -> PromptPack {
    world
        .until(name, move |pack: &PromptPack| phase(pack) == Some(wanted))
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_publish_leaves_the_working_version_in_place_v_44() {
    let world = World::start().await;
    world.publish("good", "p", "1.0.0").await;
    until_phase(&world, "good", Phase::Active).await;
    world
        .create::<ConfigMap>(json!({ "metadata": { "name": "bad" }, "data": { "pack.json": "{\"id\": 7}" } }))
        .await;
    world.create::<PromptPack>(prompt_pack("bad", "p", "1.1.0")).await;
    let bad = until_phase(&world, "bad", Phase::Failed).await;
    assert!(has(&bad, "SchemaValid", "False SchemaValidationFailed"));
    let good: PromptPack = world.get("good").await;
    assert_eq!(
        (phase(&good), good.status.unwrap().active_version.as_deref()),
        (Some(Phase::Active), Some("1.0.0"))
    );
    let events = world.events("PromptPack", "bad", 1).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].0, "SchemaValidationFailed");
    assert!(events[0].1.starts_with("invalid pack.json: "), "{events:?}");

    // The content is repaired, so the newer version serves and the older one steps back (OM-309).
    world
        .merge::<ConfigMap>("bad", json!({ "data": { "pack.json": content(&[]) } }))
        .await;
    until_phase(&world, "bad", Phase::Active).await;
    let good = until_phase(&world, "good", Phase::Superseded).await;
    assert!(has(&good, "Superseded", "True NewerVersionPublished"));
    assert_eq!(good.status.unwrap().active_version, None, "OM-170");
    world.delete::<PromptPack>("bad").await;
    until_phase(&world, "good", Phase::Active).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stable_and_a_prerelease_version_serve_side_by_side_v_45() {
    let world = World::start().await;
    world.publish("stable", "p", "1.0.0").await;
    world.publish("next", "p", "1.1.0-rc.1").await;
    until_phase(&world, "next", Phase::Active).await;
    let stable = until_phase(&world, "stable", Phase::Active).await;
    assert_eq!(
        stable
            .labels()
            .get("omnia.altairalabs.ai/promptpack")
            .map(String::as_str),
        Some("p"),
        "OM-173"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_equal_versions_one_serves_and_the_other_says_so_v_46() {
    let world = World::start().await;
    world.publish("first", "p", "1.0.0+a").await;
    until_phase(&world, "first", Phase::Active).await;
    // Both may be created within one second; then the greater name decides, which is the later one's here.
    world.publish("second", "p", "1.0.0+b").await;
    until_phase(&world, "second", Phase::Active).await;
    let first = until_phase(&world, "first", Phase::Superseded).await;
    assert!(has(&first, "Superseded", "True DuplicateVersion"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_config_map_fails_an_active_pack_v_47() {
    let world = World::start().await;
    world.publish("p", "p", "1.0.0").await;
    until_phase(&world, "p", Phase::Active).await;
    world.delete::<ConfigMap>("p").await;
    let pack = until_phase(&world, "p", Phase::Failed).await;
    assert!(has(&pack, "SourceValid", "False SourceValidationFailed"));
    assert!(has(&pack, "SchemaValid", "Unknown SourceInvalid"));
    let reasons: Vec<String> = world
        .events("PromptPack", "p", 2)
        .await
        .into_iter()
        .map(|(reason, _)| reason)
        .collect();
    assert_eq!(reasons, ["ValidationSucceeded", "SourceValidationFailed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_of_a_pack_are_counted_om_304() {
    let world = World::start().await;
    world.publish("p", "p", "1.0.0").await;
    world
        .until("p", |pack: &PromptPack| {
            has(pack, "AgentsNotified", "True NoAgentsToNotify")
        })
        .await;
    world
        .create::<AgentRuntime>(json!({
            "metadata": { "name": "a" },
            "spec": { "promptPackRef": { "name": "p" }, "facades": [{ "handler": "echo" }] },
        }))
        .await;
    world
        .until("p", |pack: &PromptPack| {
            has(pack, "AgentsNotified", "True AgentsNotified")
        })
        .await;
    world.delete::<AgentRuntime>("a").await;
    world
        .until("p", |pack: &PromptPack| {
            has(pack, "AgentsNotified", "True NoAgentsToNotify")
        })
        .await;
}
