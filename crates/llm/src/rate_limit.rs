//! A provider's limits of requests and tokens a minute, kept before the provider has to refuse (OR-229).
//!
//! Each limit is a bucket that holds what a minute allows and fills evenly. A call takes one request and the tokens that
//! its prompt is estimated to have; where too little is left it waits its turn, as long as one call may take, and then
//! counts as refused with 429. What the answer really used is settled at its end, so that a long answer makes later calls
//! wait and an estimate that was too high does not.
//!
//! All users of a Provider share its buckets ([`crate::Cooldowns::limiter`]).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use tokio::time::Instant;

use crate::{
    config::RateLimits,
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream},
    request::Request,
};

/// The buckets of one provider.
#[derive(Debug)]
pub struct Limiter {
    // A std mutex: held to reckon, never across an await.
    buckets: Mutex<Buckets>,
}

#[derive(Debug)]
struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    per_minute: f64,
    // Below nothing while calls wait, or after an answer that was longer than expected.
    left: f64,
    as_of: Instant,
}

impl Bucket {
    fn full(per_minute: f64, now: Instant) -> Self {
        Self {
            per_minute,
            left: per_minute,
            as_of: now,
        }
    }

    fn fill(&mut self, now: Instant) {
        let minutes = now.saturating_duration_since(self.as_of).as_secs_f64() / 60.0;
        self.left = (self.left + minutes * self.per_minute).min(self.per_minute);
        self.as_of = now;
    }

    /// Time until `amount` is there. More than a minute allows is never there at once, so it asks for a full bucket.
    fn wait(&self, amount: f64) -> Duration {
        let lacking = amount.min(self.per_minute) - self.left;
        Duration::try_from_secs_f64(lacking.max(0.0) * 60.0 / self.per_minute).unwrap_or(Duration::MAX)
    }
}

impl Limiter {
    pub(crate) fn new(limits: &RateLimits) -> Self {
        let limiter = Self {
            buckets: Mutex::new(Buckets {
                requests: None,
                tokens: None,
            }),
        };
        limiter.adjust(limits);
        limiter
    }

    /// Takes over other limits. What is left of a bucket stays, as far as the new one holds it.
    pub(crate) fn adjust(&self, limits: &RateLimits) {
        let now = Instant::now();
        let adjusted = |bucket: Option<Bucket>, per_minute: Option<f64>| {
            let per_minute = per_minute?;
            let Some(mut bucket) = bucket else {
                return Some(Bucket::full(per_minute, now));
            };
            bucket.fill(now);
            bucket.per_minute = per_minute;
            bucket.left = bucket.left.min(per_minute);
            Some(bucket)
        };
        let mut buckets = self.buckets();
        buckets.requests = adjusted(buckets.requests, limits.requests_per_minute.map(f64::from));
        // Counts beyond 2^53 lose their last digits, which no limit notices.
        buckets.tokens = adjusted(buckets.tokens, limits.tokens_per_minute.map(|count| count as f64));
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to make one request, and how long to wait before it is made; or, where that is longer than `longest`,
    /// only the wait.
    fn take(self: &Arc<Self>, tokens: u64, longest: Duration) -> Result<(Permit, Duration), Duration> {
        let tokens = tokens as f64;
        let mut buckets = self.buckets();
        let now = Instant::now();
        let Buckets {
            requests,
            tokens: of_tokens,
        } = &mut *buckets;
        let parts = [(requests.as_mut(), 1.0), (of_tokens.as_mut(), tokens)];
        let mut parts: Vec<(&mut Bucket, f64)> = parts
            .into_iter()
            .filter_map(|(bucket, amount)| Some((bucket?, amount)))
            .collect();
        let mut wait = Duration::ZERO;
        for (bucket, amount) in &mut parts {
            bucket.fill(now);
            wait = wait.max(bucket.wait(*amount));
        }
        if wait > longest {
            return Err(wait);
        }
        for (bucket, amount) in parts {
            bucket.left -= amount;
        }
        drop(buckets);
        let permit = Permit {
            limiter: Arc::clone(self),
            tokens,
            is_sent: false,
        };
        Ok((permit, wait))
    }

    fn give_back(&self, requests: f64, tokens: f64) {
        let now = Instant::now();
        let mut buckets = self.buckets();
        let Buckets {
            requests: of_requests,
            tokens: of_tokens,
        } = &mut *buckets;
        for (bucket, amount) in [(of_requests, requests), (of_tokens, tokens)] {
            if let Some(bucket) = bucket {
                bucket.fill(now);
                bucket.left = (bucket.left + amount).min(bucket.per_minute);
            }
        }
    }
}

/// One request that was taken from the buckets. Dropped before it is sent, it goes back.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Arc<Limiter>,
    tokens: f64,
    is_sent: bool,
}

impl Permit {
    /// The tokens that were used.
    fn used(&mut self, tokens: u64) {
        let tokens = tokens as f64;
        self.limiter.give_back(0.0, self.tokens - tokens);
        self.tokens = tokens;
    }

    /// The request failed. One that reached nobody is not counted, and no refused one cost tokens.
    pub(crate) fn failed(mut self, error: &ModelError) {
        self.is_sent = error.status.is_some()
            || !matches!(
                error.kind,
                ModelErrorKind::CredentialUnavailable
                    | ModelErrorKind::Unreachable
                    | ModelErrorKind::Configuration
                    | ModelErrorKind::CoolingDown
            );
        if self.is_sent {
            self.used(0);
        }
    }

    /// The answer of the request, which settles what it used.
    pub(crate) fn settling(mut self, answer: ModelStream) -> ModelStream {
        self.is_sent = true;
        Box::pin(answer.inspect(move |event| {
            if let Ok(ModelEvent::Usage(usage)) = event {
                self.used(usage.input_tokens.saturating_add(usage.output_tokens));
            }
        }))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !self.is_sent {
            self.limiter.give_back(1.0, self.tokens);
        }
    }
}

/// The limits of one provider as a call meets them.
#[derive(Debug, Clone)]
pub struct RateLimit {
    /// The buckets, shared by all users of the provider.
    pub limiter: Arc<Limiter>,
    /// How long a call waits: as long as one may take.
    pub longest_wait: Duration,
}

impl RateLimit {
    /// Waits until the request may be made. `waiting` is told what for, where it has to.
    pub(crate) async fn admit(
        &self,
        provider: &str,
        request: &Request,
        waiting: impl FnOnce(String),
    ) -> Result<Permit, ModelError> {
        match self.limiter.take(estimate(request), self.longest_wait) {
            Ok((permit, wait)) => {
                if !wait.is_zero() {
                    waiting(format!(
                        "the rate limit of provider `{provider}` is used up; the call goes out in {} s",
                        seconds(wait)
                    ));
                    tokio::time::sleep(wait).await;
                }
                Ok(permit)
            }
            Err(wait) => {
                let message = format!(
                    "its own rate limit is used up for {} s, longer than a call may take",
                    seconds(wait)
                );
                let mut error = ModelError::with_status(provider, 429, message);
                error.retry_after = Some(wait);
                Err(error)
            }
        }
    }
}

/// Seconds, rounded up: nobody is told of a wait of none.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Tokens of a prompt: a quarter of its bytes (OR-260).
fn estimate(request: &Request) -> u64 {
    let messages = request.messages.iter().map(|message| {
        let calls = message.tool_calls.iter();
        let calls: usize = calls.map(|call| call.name.len() + call.arguments.len()).sum();
        message.content.len() + calls
    });
    let tools = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len());
    let bytes: usize = messages.chain(tools).sum::<usize>() + request.system.len();
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use futures::{StreamExt, stream};

    use super::*;
    use crate::{FinishReason, Message, Usage};

    const MINUTE: Duration = Duration::from_secs(60);

    fn limiter(requests: Option<u32>, tokens: Option<u64>) -> Arc<Limiter> {
        Arc::new(Limiter::new(&RateLimits {
            requests_per_minute: requests,
            tokens_per_minute: tokens,
        }))
    }

    fn limit(limiter: &Arc<Limiter>, longest_wait: Duration) -> RateLimit {
        RateLimit {
            limiter: Arc::clone(limiter),
            longest_wait,
        }
    }

    fn request(bytes: usize) -> Request {
        Request {
            messages: vec![Message::user("x".repeat(bytes))].into(),
            ..Request::default()
        }
    }

    fn answer(input_tokens: u64, output_tokens: u64) -> ModelStream {
        let usage = Usage {
            input_tokens,
            output_tokens,
            cached_tokens: 0,
        };
        Box::pin(stream::iter([
            Ok(ModelEvent::Usage(usage)),
            Ok(ModelEvent::Finished(FinishReason::Completed)),
        ]))
    }

    /// Admits one request and has it answered; the seconds it waited.
    async fn waited(limit: &RateLimit, bytes: usize, used: (u64, u64)) -> f64 {
        let began = Instant::now();
        let permit = limit.admit("p", &request(bytes), |_| {}).await.unwrap();
        let waited = began.elapsed().as_secs_f64();
        let _: Vec<_> = permit.settling(answer(used.0, used.1)).collect().await;
        (waited * 10.0).round() / 10.0
    }

    #[tokio::test(start_paused = true)]
    async fn requests_beyond_a_minutes_worth_wait_their_turn_or_229() {
        let limit = limit(&limiter(Some(6), None), MINUTE);
        for _ in 0..6 {
            assert_eq!(waited(&limit, 4, (1, 1)).await, 0.0);
        }
        assert_eq!(waited(&limit, 4, (1, 1)).await, 10.0);
        tokio::time::advance(2 * MINUTE).await;
        // A bucket holds one minute and not more.
        for _ in 0..6 {
            assert_eq!(waited(&limit, 4, (1, 1)).await, 0.0);
        }
        let (second, third) = tokio::join!(waited(&limit, 4, (1, 1)), waited(&limit, 4, (1, 1)));
        assert_eq!((second, third), (10.0, 20.0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_deadline_of_a_call_is_a_429_or_229() {
        let limit = limit(&limiter(Some(1), None), Duration::from_secs(30));
        waited(&limit, 4, (1, 1)).await;
        let began = Instant::now();
        let error = limit.admit("main", &request(4), |_| {}).await.unwrap_err();
        assert_eq!(
            (error.status, error.kind),
            (Some(429), ModelErrorKind::RateLimited)
        );
        assert!(
            error.allows_fallback() && error.to_string().contains("60 s"),
            "{error}"
        );
        assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for nothing");
        // What was refused took nothing out of the bucket.
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(waited(&limit, 4, (1, 1)).await, 20.0);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_estimated_before_and_settled_after_or_229() {
        let limit = limit(&limiter(None, Some(600)), MINUTE);
        // 100 tokens of prompt became 700 with the answer: 100 more than there are.
        assert_eq!(waited(&limit, 400, (100, 600)).await, 0.0);
        assert_eq!(waited(&limit, 400, (50, 0)).await, 20.0);
        // The estimate of 100 was settled at 50.
        assert_eq!(waited(&limit, 400, (100, 0)).await, 5.0);
        // A prompt that no minute allows waits for a full bucket and goes out.
        assert_eq!(waited(&limit, 4_000, (0, 0)).await, 60.0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_sent_goes_back_or_229() {
        let limit = limit(&limiter(Some(1), Some(100)), MINUTE);
        drop(limit.admit("p", &request(400), |_| {}).await.unwrap());
        let permit = limit.admit("p", &request(400), |_| {}).await.unwrap();
        permit.failed(&ModelError::new(
            "p",
            ModelErrorKind::CredentialUnavailable,
            "no key",
        ));
        let permit = limit.admit("p", &request(400), |_| {}).await.unwrap();
        permit.failed(&ModelError::with_status("p", 503, "busy"));
        // A refused request counts, its tokens do not.
        let mut told = None;
        let began = Instant::now();
        limit
            .admit("p", &request(400), |reason| told = Some(reason))
            .await
            .unwrap();
        assert_eq!(began.elapsed().as_secs(), 60);
        assert!(
            told.unwrap()
                .contains("provider `p` is used up; the call goes out in 60 s")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_frees_its_place_or_229() {
        let limit = limit(&limiter(Some(1), None), 10 * MINUTE);
        waited(&limit, 4, (1, 1)).await;
        let asked = request(4);
        let given_up = tokio::time::timeout(Duration::from_secs(1), limit.admit("p", &asked, |_| {}));
        assert!(given_up.await.is_err());
        assert_eq!(waited(&limit, 4, (1, 1)).await, 59.0);
    }

    #[tokio::test(start_paused = true)]
    async fn other_limits_take_effect_at_once_or_229() {
        let limiter = limiter(Some(60), None);
        let limit = limit(&limiter, MINUTE);
        waited(&limit, 4, (1, 1)).await;
        limiter.adjust(&RateLimits {
            requests_per_minute: Some(2),
            tokens_per_minute: None,
        });
        assert_eq!(waited(&limit, 4, (1, 1)).await, 0.0);
        assert_eq!(waited(&limit, 4, (1, 1)).await, 0.0);
        assert_eq!(waited(&limit, 4, (1, 1)).await, 30.0);
        limiter.adjust(&RateLimits::default());
        assert_eq!(waited(&limit, 4, (1, 1)).await, 0.0);
    }
}
