//! Providers that are left alone: what agents share of them, what their turns record, and what a restart keeps (contract 8,
//! OR-216…OR-228).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use mainstay_llm::fallback::{Candidate, Chain};
use mainstay_llm::retry::RetryPolicy;
use mainstay_llm::{
    Cooldown, CooldownStore, CooldownStoreError, Cooldowns, Model, ModelError, ModelErrorKind, ProviderKey,
};
use mainstay_store::payload::{PayloadOptions, PayloadStore};
use mainstay_telemetry::random::SeededRandom;
use serde_json::json;
use tokio::sync::mpsc;

use super::support::*;
use crate::event::Payload;
use crate::{ModelEntry, Prices, StoredCooldowns};

fn provider(name: &str) -> ProviderKey {
    ProviderKey {
        namespace: "models".to_owned(),
        name: name.to_owned(),
        kind: "openai".to_owned(),
    }
}

/// The models as one, each with the cooldown of the Provider that has its name.
fn chain(models: &[&Arc<ScriptedModel>], cooldowns: &Cooldowns) -> Arc<dyn Model> {
    let candidates = models.iter().enumerate().map(|(index, model)| Candidate {
        model: Arc::<ScriptedModel>::clone(model),
        health: cooldowns.health(&provider(model.name())),
        limit: None,
        model_name: (index > 0).then(String::new),
    });
    Arc::new(Chain::new(
        models[0].name().to_owned(),
        candidates.collect(),
        RetryPolicy::default(),
        SeededRandom::new(3),
    ))
}

fn boom() -> Vec<Say> {
    vec![Say::Fail(ModelError::with_status("main", 500, "boom"))]
}

/// A refusal that asks for more than a call waits, so the provider is left alone at once.
fn asks_for_a_minute() -> Vec<Say> {
    let mut error = ModelError::with_status("main", 429, "slow down");
    error.retry_after = Some(Duration::from_secs(60));
    vec![Say::Fail(error)]
}

/// An agent whose only entry is `models` as one.
fn agent(name: &str, models: &[&Arc<ScriptedModel>], cooldowns: &Cooldowns) -> World {
    let mut world = World::new(vec![], vec![], json!({}));
    world.options.agent = name.to_owned();
    world.options.models = vec![ModelEntry::plain("main", chain(models, cooldowns))];
    world
}

#[tokio::test(start_paused = true)]
async fn or_226_two_agents_of_one_provider_share_its_cooldown() {
    let clock = World::new(vec![], vec![], json!({})).clock;
    let cooldowns = Cooldowns::in_memory(clock);
    // The call and its three retries.
    let first = ScriptedModel::named("main", vec![boom(), boom(), boom(), boom()]);
    let seen = run(&agent("helpdesk", &[&first], &cooldowns), "hi").await;
    assert_eq!(first.count(), 4);
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.waiting",
            "model.waiting",
            "model.waiting",
            "model.cooled",
            "model.failed",
            "turn.failed"
        ],
        "who listens is told of each wait"
    );
    let waits = all(&seen, "model.waiting");
    assert_eq!(
        (&waits[0]["reason"], &waits[0]["status"], &waits[0]["message"]),
        (&json!("ModelServerError"), &json!(500), &json!("boom"))
    );
    // About 1, 2 and 4 seconds (OR-211).
    for (wait, seconds) in waits.iter().zip([1_000.0, 2_000.0, 4_000.0]) {
        let delay = wait["delay_ms"].as_f64().unwrap();
        assert!((seconds * 0.9..=seconds * 1.1).contains(&delay), "{wait}");
    }
    assert_eq!(
        seen[6].data,
        json!({
            "attempt": 1, "provider": "main", "until": "2026-01-01T00:01:00Z", "failures": 1,
            "reason": "ModelServerError", "message": "boom", "status": 500
        })
    );
    assert!(matches!(seen[6].payload(), Some(Payload::ModelCooled(_))));
    assert_eq!(find(&seen, "turn.failed")["reason"], "ModelServerError");

    // Another agent of the same Provider has not had a failure of its own, and does not ask it.
    let second = ScriptedModel::named("main", vec![vec![Say::Text("Up again.")]]);
    let other = agent("shop", &[&second], &cooldowns);
    let session = other.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("hi")).await;
    assert_eq!(second.count(), 0);
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.failed",
            "turn.failed"
        ]
    );
    let failed = find(&seen, "turn.failed");
    assert_eq!(failed["reason"], "ModelCoolingDown");
    let text = failed["message"].as_str().unwrap();
    assert!(text.contains("boom") && text.contains("next attempt"), "{text}");

    // A Provider of another name is not concerned.
    let stranger = ScriptedModel::named("stranger", vec![vec![Say::Text("Here.")]]);
    let seen = run(&agent("shop", &[&stranger], &cooldowns), "hi").await;
    assert_eq!(seen.last().unwrap().kind, "turn.done");

    tokio::time::advance(Duration::from_secs(61)).await;
    let seen = converse(&session, message("and now?")).await;
    assert_eq!((text_of(&seen).as_str(), second.count()), ("Up again.", 1));
}

#[tokio::test(start_paused = true)]
async fn or_221_the_next_provider_answers_in_the_same_attempt_and_is_paid_at_its_own_prices() {
    let clock = World::new(vec![], vec![], json!({})).clock;
    let cooldowns = Cooldowns::in_memory(clock);
    let main = ScriptedModel::named("main", vec![asks_for_a_minute()]);
    let spare = ScriptedModel::named(
        "spare",
        vec![vec![Say::Text("Hel"), Say::Text("lo"), Say::Usage(3, 2)]],
    );
    let mut world = agent("helpdesk", &[&main, &spare], &cooldowns);
    world.options.models[0].prices = Prices {
        input: Some(1000.0),
        output: Some(1000.0),
        cached: None,
    };
    world.options.models[0].model_name = "large".to_owned();
    let mut entry = ModelEntry::plain("spare", spare.clone());
    entry.model_name = "small".to_owned();
    entry.prices = Prices {
        input: Some(10.0),
        output: Some(20.0),
        cached: None,
    };
    world.options.models.push(entry);

    let session = world.engine().await.open_session(None).await.unwrap();
    let seen = converse(&session, message("hi")).await;
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.cooled",
            "model.failed_over",
            "model.delta",
            "model.delta",
            "model.done",
            "usage",
            "message",
            "turn.done"
        ]
    );
    let shown: Vec<_> = seen.iter().filter(|event| event.seq.is_some()).cloned().collect();
    assert_eq!(stored(&world, &session).await, shown, "all but deltas is stored");
    assert_eq!(find(&seen, "model.started")["provider"], "main");
    let cooled = find(&seen, "model.cooled");
    assert_eq!(
        (&cooled["provider"], &cooled["status"]),
        (&json!("main"), &json!(429))
    );
    assert_eq!(
        *find(&seen, "model.failed_over"),
        json!({
            "attempt": 1, "from": "main", "to": "spare", "reason": "ModelRateLimited", "message": "slow down",
            "status": 429
        })
    );
    let usage = find(&seen, "usage");
    assert_eq!(
        (&usage["provider"], &usage["model"]),
        (&json!("spare"), &json!("small"))
    );
    assert_eq!(usage["cost_usd"], 0.07);
    assert_eq!(find(&seen, "turn.done")["cost_usd"], 0.07);
    assert_eq!(
        (main.request(0).model, spare.request(0).model),
        ("large".to_owned(), String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_is_cancelled_while_the_next_provider_is_asked_still_records_the_cooldown() {
    let clock = World::new(vec![], vec![], json!({})).clock;
    let cooldowns = Cooldowns::in_memory(clock);
    let main = ScriptedModel::named("main", vec![asks_for_a_minute()]);
    let spare = ScriptedModel::named("spare", vec![vec![Say::Hang]]);
    let world = agent("helpdesk", &[&main, &spare], &cooldowns);
    let session = world.engine().await.open_session(None).await.unwrap();
    let events = session.subscribe(None);
    let mut ticket = session.send(message("hi")).unwrap();
    ticket.started().await.unwrap();
    spare.asked.notified().await;
    assert!(session.cancel());
    let seen = until_end(events, &ticket).await;
    assert_eq!(
        kinds(&seen),
        [
            "turn.started",
            "message",
            "model.started",
            "model.cooled",
            "model.failed_over",
            "turn.cancelled"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_session_that_waits_for_a_provider_on_trial_is_told_while_it_waits() {
    let clock = World::new(vec![], vec![], json!({})).clock;
    let cooldowns = Cooldowns::in_memory(clock);
    // Both that go on trying fail once; what they hear then lets the third go.
    let mut answers = vec![boom(), boom()];
    answers.extend((0..3).map(|_| vec![Say::Text("Up.")]));
    let model = ScriptedModel::named("main", answers);
    let world = agent("helpdesk", &[&model], &cooldowns);
    let engine = world.engine().await;
    let mut open = Vec::new();
    for _ in 0..3 {
        let session = engine.open_session(None).await.unwrap();
        let mut events = Box::pin(session.subscribe(None));
        let mut ticket = session.send(message("hi")).unwrap();
        ticket.started().await.unwrap();
        // The next one comes when this one waits, so the third finds two that go on trying.
        let waiting = loop {
            let event = events.next().await.unwrap().unwrap();
            if event.kind == "model.waiting" {
                break event;
            }
        };
        open.push((events, ticket, waiting));
    }
    let reasons: Vec<&str> = open
        .iter()
        .map(|(_, _, waiting)| waiting.data["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["ModelServerError", "ModelServerError", "ModelProviderOnTrial"]
    );
    let told = open[2].2.data["message"].as_str().unwrap();
    assert!(told.contains("HTTP 500: boom"), "{told}");
    for (events, ticket, _) in open {
        let seen = until_end(events, &ticket).await;
        assert_eq!(seen.last().unwrap().kind, "turn.done");
    }
    assert_eq!(model.count(), 5);
}

/// Tells when something was stored.
#[derive(Debug)]
struct Watched {
    store: StoredCooldowns,
    saved: mpsc::Sender<Option<Cooldown>>,
}

#[async_trait]
impl CooldownStore for Watched {
    async fn load(&self, provider: &ProviderKey) -> Result<Option<Cooldown>, CooldownStoreError> {
        self.store.load(provider).await
    }

    async fn save(
        &self,
        provider: &ProviderKey,
        cooldown: Option<&Cooldown>,
    ) -> Result<(), CooldownStoreError> {
        self.store.save(provider, cooldown).await?;
        // Nobody waits for a write of a test that is over.
        let _ = self.saved.try_send(cooldown.cloned());
        Ok(())
    }
}

#[tokio::test]
async fn contract_8_a_cooldown_survives_a_restart_until_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("payload.db");
    let clock = World::new(vec![], vec![], json!({})).clock;
    let (saved, mut writes) = mpsc::channel(8);
    // One life of the process: everything but the file is new.
    let process = async |life: u64, main: Vec<Vec<Say>>, spare: Vec<Vec<Say>>| {
        let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
        let kept = StoredCooldowns::new(store.clone());
        let watched = Watched {
            store: kept.clone(),
            saved: saved.clone(),
        };
        let cooldowns = Cooldowns::new(clock.clone(), Arc::new(watched));
        let (main, spare) = (
            ScriptedModel::named("main", main),
            ScriptedModel::named("spare", spare),
        );
        let mut world = World::over(Arc::new(store.clone()), vec![], vec![], json!({}));
        world.options.models = vec![ModelEntry::plain("main", chain(&[&main, &spare], &cooldowns))];
        world.options.random = SeededRandom::new(life);
        let engine = world.engine().await;
        let session = engine.open_session(None).await.unwrap();
        let seen = converse(&session, message("hi")).await;
        engine.stop().await;
        (store, kept, seen, main.count(), spare.count())
    };
    let mut written = async || {
        tokio::time::timeout(Duration::from_secs(30), writes.recv())
            .await
            .expect("a cooldown is stored in time")
            .unwrap()
    };

    let spare = || vec![vec![Say::Text("spare")]];
    let (store, kept, seen, ..) = process(1, vec![asks_for_a_minute()], spare()).await;
    assert_eq!(text_of(&seen), "spare");
    assert_eq!(find(&seen, "model.cooled")["until"], "2026-01-01T00:01:00Z");
    let cooldown = written().await.expect("a cooldown");
    assert_eq!(kept.load(&provider("main")).await.unwrap(), Some(cooldown));
    assert_eq!(kept.load(&provider("spare")).await.unwrap(), None);
    store.close().await;

    clock.advance(Duration::from_secs(59));
    let (store, _, seen, asked, _) = process(2, vec![], spare()).await;
    assert_eq!((text_of(&seen).as_str(), asked), ("spare", 0));
    assert!(!kinds(&seen).contains(&"model.cooled"), "it did not begin here");
    store.close().await;

    clock.advance(Duration::from_secs(2));
    let back = vec![vec![Say::Text("main")]];
    let (store, kept, seen, _, asked) = process(3, back, vec![]).await;
    assert_eq!((text_of(&seen).as_str(), asked), ("main", 0));
    assert_eq!(written().await, None, "an answer ends the count");
    assert_eq!(kept.load(&provider("main")).await.unwrap(), None);
    store.close().await;
}

#[tokio::test]
async fn contract_8_what_llm_keeps_reads_back_from_the_payload_store_as_it_was() {
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    let kept = StoredCooldowns::new(store.clone());
    let key = provider("main");
    let network = ModelError::new("main", ModelErrorKind::Network, "connection refused");
    let cooldown = Cooldown {
        failures: 4,
        until: "2026-01-01T01:00:00.25Z".parse().unwrap(),
        reason: network.reason().to_owned(),
        status: None,
        message: network.message,
    };
    kept.save(&key, Some(&cooldown)).await.unwrap();
    assert_eq!(kept.load(&key).await.unwrap(), Some(cooldown));
    kept.save(&key, None).await.unwrap();
    assert_eq!(kept.load(&key).await.unwrap(), None);
    store.close().await;
    let error = kept.load(&key).await.unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
}
