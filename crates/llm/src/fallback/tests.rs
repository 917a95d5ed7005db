// Time is paused in every test here: a sleep takes none, it only says when something happens.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use mainstay_telemetry::{
    clock::{ManualClock, SharedClock},
    random::SeededRandom,
    task,
};

use super::*;
use crate::{
    config::RateLimits,
    cooldown::{CooldownStore, CooldownStoreError, Cooldowns, ProviderKey},
    event::{FinishReason, ModelEvent},
};

/// A provider whose answers are a function of the time since its start and the number of the call.
struct Fake {
    name: &'static str,
    start: Instant,
    latency: Duration,
    answer: Box<dyn Fn(Duration, usize) -> Option<ModelError> + Send + Sync>,
    calls: AtomicUsize,
    failures: AtomicUsize,
    models: Mutex<Vec<String>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

#[async_trait]
impl Model for Fake {
    fn name(&self) -> &str {
        self.name
    }

    async fn stream(&self, request: Request) -> Result<ModelStream, ModelError> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        self.models.lock().unwrap().push(request.model);
        let begun = self.start.elapsed();
        tokio::time::sleep(self.latency).await;
        match (self.answer)(begun, number) {
            Some(error) => {
                self.failures.fetch_add(1, Ordering::SeqCst);
                Err(error)
            }
            None => Ok(Box::pin(stream::iter([
                Ok(ModelEvent::Started),
                Ok(ModelEvent::Text(self.name.to_owned())),
                Ok(ModelEvent::Finished(FinishReason::Completed)),
            ]))),
        }
    }
}

fn fake(
    name: &'static str,
    answer: impl Fn(Duration, usize) -> Option<ModelError> + Send + Sync + 'static,
) -> Arc<Fake> {
    Arc::new(Fake {
        name,
        start: Instant::now(),
        latency: Duration::from_millis(20),
        answer: Box::new(answer),
        calls: AtomicUsize::new(0),
        failures: AtomicUsize::new(0),
        models: Mutex::default(),
    })
}

impl Fake {
    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn key(name: &str) -> ProviderKey {
    ProviderKey {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        kind: "openai".to_owned(),
    }
}

fn status(code: u16) -> ModelError {
    ModelError::with_status("p", code, "no")
}

fn clock() -> SharedClock {
    ManualClock::at(Timestamp::from_second(1_700_000_000).unwrap())
}

fn chain(fakes: &[&Arc<Fake>], cooldowns: &Cooldowns) -> Arc<Chain> {
    let numbered = fakes.iter().enumerate();
    let candidates = numbered
        .map(|(index, fake)| Candidate {
            model: Arc::clone(*fake) as Arc<dyn Model>,
            health: cooldowns.health(&key(fake.name)),
            limit: None,
            model_name: (index > 0).then(|| format!("{}-model", fake.name)),
        })
        .collect();
    Arc::new(Chain::new(
        "chain",
        candidates,
        RetryPolicy::default(),
        SeededRandom::new(1),
    ))
}

#[derive(Default)]
struct Recorder(Mutex<Vec<CallEvent>>);

impl CallObserver for Recorder {
    fn observe(&self, event: CallEvent) {
        self.0.lock().unwrap().push(event);
    }
}

async fn ask(chain: &Chain) -> Result<String, ModelError> {
    let request = Request {
        model: "asked".to_owned(),
        ..Request::default()
    };
    crate::model::complete(chain, request)
        .await
        .map(|answer| answer.text)
}

#[tokio::test(start_paused = true)]
async fn unauthorized_moves_on_at_once_and_cools_nothing_or_220() {
    let (first, second) = (
        fake("first", |_, _| Some(status(401))),
        fake("second", |_, _| None),
    );
    let cooldowns = Cooldowns::in_memory(clock());
    let chain = chain(&[&first, &second], &cooldowns);
    for _ in 0..2 {
        assert_eq!(ask(&chain).await.unwrap(), "second");
    }
    assert_eq!(first.calls(), 2);
    assert_eq!(cooldowns.health(&key("first")).cooling(), None);
    assert_eq!(*first.models.lock().unwrap(), ["asked", "asked"]);
    assert_eq!(*second.models.lock().unwrap(), ["second-model", "second-model"]);
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_refusal_is_returned_without_trying_others_or_221_or_228() {
    let (first, second) = (
        fake("first", |_, _| Some(status(400))),
        fake("second", |_, _| None),
    );
    let chain = chain(&[&first, &second], &Cooldowns::in_memory(clock()));
    assert_eq!(ask(&chain).await.unwrap_err().status, Some(400));
    assert_eq!(second.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_provider_cools_and_is_skipped_until_then_or_221_or_223() {
    let first = fake("first", |time, _| {
        (time < Duration::from_secs(30)).then(|| status(429))
    });
    let second = fake("second", |_, _| None);
    let cooldowns = Cooldowns::in_memory(clock());
    let chain = chain(&[&first, &second], &cooldowns);
    let recorder = Recorder::default();
    let mut stream = chain
        .stream_observed(Request::default(), &recorder)
        .await
        .unwrap();
    assert_eq!(stream.next().await, Some(Ok(ModelEvent::Started)));
    assert_eq!(first.calls(), 4);
    let kinds: Vec<String> = recorder
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|event| match event {
            CallEvent::Retrying { attempts, .. } => format!("retrying {attempts}"),
            CallEvent::Cooled { cooldown, .. } => format!("cooled {} {}", cooldown.failures, cooldown.reason),
            CallEvent::FailedOver { from, to, .. } => format!("{from} to {to}"),
            CallEvent::Answering { provider, .. } => format!("answering {provider}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "retrying 1",
            "retrying 2",
            "retrying 3",
            "cooled 1 ModelRateLimited",
            "first to second",
            "answering second",
        ]
    );

    assert_eq!(ask(&chain).await.unwrap(), "second");
    assert_eq!(first.calls(), 4);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert_eq!(ask(&chain).await.unwrap(), "first");
    assert_eq!(cooldowns.health(&key("first")).cooling(), None);
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_fails_over_at_once_d12() {
    let first = fake("first", |_, _| {
        let mut error = status(429);
        error.retry_after = Some(Duration::from_secs(120));
        Some(error)
    });
    let second = fake("second", |_, _| None);
    let cooldowns = Cooldowns::in_memory(clock());
    let chain = chain(&[&first, &second], &cooldowns);
    let began = Instant::now();
    assert_eq!(ask(&chain).await.unwrap(), "second");
    assert_eq!((first.calls(), began.elapsed().as_secs()), (1, 0));
    let until = cooldowns.health(&key("first")).cooling().unwrap().until;
    assert_eq!(until.as_second(), 1_700_000_120);
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_the_last_failure_is_named_or_221() {
    let (first, second) = (
        fake("first", |_, _| Some(status(401))),
        fake("second", |_, _| {
            Some(ModelError::with_status("second", 403, "not you"))
        }),
    );
    let chain = chain(&[&first, &second], &Cooldowns::in_memory(clock()));
    let error = ask(&chain).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "provider `chain`: HTTP 403: all providers failed: provider `second`: HTTP 403: not you"
    );
}

#[tokio::test(start_paused = true)]
async fn where_every_provider_cools_the_one_with_least_time_left_is_probed_once_or_227() {
    let down = |seconds: u64| {
        move |_: Duration, _: usize| {
            let mut error = status(429);
            error.retry_after = Some(Duration::from_secs(seconds));
            Some(error)
        }
    };
    let (first, second) = (fake("first", down(600)), fake("second", down(300)));
    let chain = chain(&[&first, &second], &Cooldowns::in_memory(clock()));
    assert!(ask(&chain).await.is_err());
    assert_eq!((first.calls(), second.calls()), (1, 1));

    // Too early for a probe: the reason comes at once, and when to come back.
    let error = ask(&chain).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::CoolingDown);
    assert!(error.message.contains("HTTP 429: no"), "{error}");
    assert!(error.retry_after.unwrap() <= Duration::from_secs(5));
    assert_eq!((first.calls(), second.calls()), (1, 1));

    tokio::time::advance(Duration::from_secs(6)).await;
    let calls = (0..20).map(|_| ask(&chain));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_err));
    assert_eq!((first.calls(), second.calls()), (1, 2));
}

/// The figure the model layer promises: an outage of a minute under 200 busy sessions.
#[tokio::test(start_paused = true)]
async fn a_minute_of_outage_under_200_sessions_costs_tens_of_attempts_or_222() {
    const SESSIONS: usize = 200;
    for (begins, failure) in [
        // Down from the start: a burst finds it dead.
        (0, status(503)),
        // Goes down while everybody is at work.
        (20, status(503)),
        (
            20,
            ModelError::new("p", ModelErrorKind::Network, "connection refused"),
        ),
    ] {
        let error = failure.clone();
        let down = move |time: Duration| (begins..begins + 60).contains(&time.as_secs());
        let provider = fake("main", move |time, _| down(time).then(|| error.clone()));
        let cooldowns = Cooldowns::in_memory(clock());
        let start = Instant::now();
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let chain = chain(&[&provider], &cooldowns);
                task::spawn("session", async move {
                    // Sessions are at different points of their turns, except in the burst.
                    let offset = if begins == 0 { 0 } else { number as u64 * 10 };
                    tokio::time::sleep(Duration::from_millis(offset)).await;
                    let mut told = Vec::new();
                    while start.elapsed() < Duration::from_secs(150) {
                        match ask(&chain).await {
                            Ok(_) => {}
                            Err(error) => told.push(error.message.clone()),
                        }
                        tokio::time::sleep(Duration::from_secs(2)).await;
                    }
                    (told, ask(&chain).await)
                })
            })
            .collect();
        let mut told = Vec::new();
        for session in sessions {
            let (errors, last) = session.await.unwrap();
            told.extend(errors);
            assert_eq!(last.unwrap(), "main");
        }
        assert!(!told.is_empty());
        let named = |message: &String| {
            message.contains("no") || message.contains("connection refused") || message.contains("HTTP 503")
        };
        assert!(told.iter().all(named), "every session is told why");
        let attempts = provider.failures.load(Ordering::SeqCst);
        assert!(attempts < 60, "{attempts} attempts");
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_swallows_connections_is_not_swamped_by_a_burst() {
    let provider = Arc::new(Fake {
        name: "main",
        start: Instant::now(),
        latency: Duration::from_secs(10),
        answer: Box::new(|_, _| {
            Some(ModelError::new(
                "p",
                ModelErrorKind::Network,
                "connection timed out",
            ))
        }),
        calls: AtomicUsize::new(0),
        failures: AtomicUsize::new(0),
        models: Mutex::default(),
    });
    let chain = chain(&[&provider], &Cooldowns::in_memory(clock()));
    let answers = futures::future::join_all((0..200).map(|_| ask(&chain))).await;
    assert!(answers.iter().all(Result::is_err));
    assert!(provider.calls() < 60, "{} attempts", provider.calls());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_lets_a_waiting_one_find_out() {
    let provider = fake("main", |_, number| (number < 3).then(|| status(503)));
    let cooldowns = Cooldowns::in_memory(clock());
    let chain = chain(&[&provider], &cooldowns);
    {
        // Two calls fail and are the ones that go on trying.
        let probers = futures::future::join(ask(&chain), ask(&chain));
        assert!(
            tokio::time::timeout(Duration::from_millis(500), probers)
                .await
                .is_err()
        );
    }
    assert_eq!(provider.calls(), 2);
    let began = Instant::now();
    assert_eq!(ask(&chain).await.unwrap(), "main");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_are_told_and_go_on_with_the_answer_of_another() {
    let provider = fake("main", |_, number| (number < 2).then(|| status(503)));
    let chain = chain(&[&provider], &Cooldowns::in_memory(clock()));
    let recorder = Recorder::default();
    let waiting = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        chain
            .stream_observed(Request::default(), &recorder)
            .await
            .map(drop)
    };
    let (first, second, third) = futures::future::join3(ask(&chain), ask(&chain), waiting).await;
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let events = recorder.0.lock().unwrap();
    let CallEvent::Waiting { reason, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert!(reason.contains("HTTP 503: no"), "{reason}");
    // Two failures, their two retries (or one and the waiting call), and no storm.
    assert!(provider.calls() <= 5, "{}", provider.calls());
}

#[derive(Debug, Default)]
struct MemoryStore(Mutex<HashMap<ProviderKey, Cooldown>>, tokio::sync::Notify);

#[async_trait]
impl CooldownStore for MemoryStore {
    async fn load(&self, provider: &ProviderKey) -> Result<Option<Cooldown>, CooldownStoreError> {
        Ok(self.0.lock().unwrap().get(provider).cloned())
    }

    async fn save(
        &self,
        provider: &ProviderKey,
        cooldown: Option<&Cooldown>,
    ) -> Result<(), CooldownStoreError> {
        match cooldown {
            Some(cooldown) => self.0.lock().unwrap().insert(provider.clone(), cooldown.clone()),
            None => self.0.lock().unwrap().remove(provider),
        };
        self.1.notify_one();
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_cooldown_survives_a_restart_and_an_answer_removes_it_or_224() {
    let store = Arc::new(MemoryStore::default());
    let clock = ManualClock::at(Timestamp::from_second(1_700_000_000).unwrap());
    let (first, second) = (
        fake("first", |_, number| (number < 4).then(|| status(503))),
        fake("second", |_, _| None),
    );
    let before = chain(
        &[&first, &second],
        &Cooldowns::new(Arc::clone(&clock) as SharedClock, Arc::clone(&store) as _),
    );
    assert_eq!(ask(&before).await.unwrap(), "second");
    store.1.notified().await;
    assert_eq!(store.0.lock().unwrap()[&key("first")].failures, 1);

    // Another process, half a minute later.
    clock.advance(Duration::from_secs(30));
    let after = chain(
        &[&first, &second],
        &Cooldowns::new(Arc::clone(&clock) as SharedClock, Arc::clone(&store) as _),
    );
    assert_eq!(ask(&after).await.unwrap(), "second");
    assert_eq!(first.calls(), 4);
    tokio::time::advance(Duration::from_secs(31)).await;
    assert_eq!(ask(&after).await.unwrap(), "first");
    store.1.notified().await;
    assert!(store.0.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_after_the_first_event_passes_through_or_217_or_228() {
    #[derive(Debug)]
    struct Breaks;
    #[async_trait]
    impl Model for Breaks {
        fn name(&self) -> &str {
            "first"
        }
        async fn stream(&self, _request: Request) -> Result<ModelStream, ModelError> {
            Ok(Box::pin(stream::iter([
                Ok(ModelEvent::Started),
                Err(status(503)),
            ])))
        }
    }
    let cooldowns = Cooldowns::in_memory(clock());
    let second = fake("second", |_, _| None);
    let candidate = |model: Arc<dyn Model>, name| Candidate {
        model,
        health: cooldowns.health(&key(name)),
        limit: None,
        model_name: None,
    };
    let chain = Chain::new(
        "chain",
        vec![
            candidate(Arc::new(Breaks), "first"),
            candidate(Arc::clone(&second) as Arc<dyn Model>, "second"),
        ],
        RetryPolicy::default(),
        SeededRandom::new(1),
    );
    let events: Vec<_> = chain.stream(Request::default()).await.unwrap().collect().await;
    assert_eq!(events, [Ok(ModelEvent::Started), Err(status(503))]);
    assert_eq!(second.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_provider_whose_own_limit_is_used_up_is_passed_over_and_not_blamed_or_229() {
    let (first, second) = (fake("first", |_, _| None), fake("second", |_, _| None));
    let cooldowns = Cooldowns::in_memory(clock());
    let limits = RateLimits {
        requests_per_minute: Some(2),
        tokens_per_minute: None,
    };
    let limited = |longest_wait| {
        let numbered = [&first, &second].into_iter().enumerate();
        let candidates = numbered.map(|(index, fake)| Candidate {
            model: Arc::clone(fake) as Arc<dyn Model>,
            health: cooldowns.health(&key(fake.name)),
            limit: (index == 0).then(|| RateLimit {
                limiter: cooldowns.limiter(&key(fake.name), &limits),
                longest_wait,
            }),
            model_name: None,
        });
        let random = SeededRandom::new(1);
        Chain::new("chain", candidates.collect(), RetryPolicy::default(), random)
    };
    // Two agents share what the Provider allows.
    let (one, other) = (limited(Duration::from_secs(10)), limited(Duration::from_secs(10)));
    assert_eq!(ask(&one).await.unwrap(), "first");
    assert_eq!(ask(&other).await.unwrap(), "first");
    assert_eq!(ask(&one).await.unwrap(), "second");
    assert_eq!(first.calls(), 2);
    assert_eq!(cooldowns.health(&key("first")).cooling(), None);

    // A call that may take longer waits, and says so.
    let patient = limited(Duration::from_secs(60));
    let recorder = Recorder::default();
    let began = Instant::now();
    let answer = patient.stream_observed(Request::default(), &recorder).await;
    drop(answer.unwrap());
    let waited = began.elapsed().as_secs_f64();
    assert!(
        (29.0..31.0).contains(&waited),
        "half a minute a request: {waited}"
    );
    assert_eq!(first.calls(), 3);
    assert!(
        recorder
            .0
            .lock()
            .unwrap()
            .iter()
            .any(|event| matches!(event, CallEvent::Waiting { reason, .. } if reason.contains("rate limit")))
    );
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_a_request_or_229() {
    let flaky = fake("flaky", |_, number| (number == 0).then(|| status(503)));
    let cooldowns = Cooldowns::in_memory(clock());
    let limits = RateLimits {
        requests_per_minute: Some(1),
        tokens_per_minute: None,
    };
    let limit = |longest_wait| RateLimit {
        limiter: cooldowns.limiter(&key("flaky"), &limits),
        longest_wait,
    };
    let candidate = Candidate {
        model: Arc::clone(&flaky) as Arc<dyn Model>,
        health: cooldowns.health(&key("flaky")),
        limit: Some(limit(Duration::from_secs(90))),
        model_name: None,
    };
    let random = SeededRandom::new(1);
    let chain = Chain::new("chain", vec![candidate], RetryPolicy::default(), random);
    let began = Instant::now();
    assert_eq!(ask(&chain).await.unwrap(), "flaky");
    // The retry waits for its own place and not only for its back-off.
    assert_eq!((flaky.calls(), began.elapsed().as_secs()), (2, 60));
}
