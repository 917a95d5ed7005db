//! When a call is made again (OR-210…OR-217); [`crate::fallback::Chain`] does it.
//!
//! A call is retried only while nothing of its answer has been shown: the first event is read
//! before the stream is handed out, and an error in its place counts as a failed call (OR-216).

use std::time::Duration;

use futures::{StreamExt, stream};
use mainstay_telemetry::random::Random;

use crate::{error::ModelError, event::ModelStream, model::Model, request::Request};

/// Longest `Retry-After` that is waited for. Beyond it, another provider is used and this one cools
/// down until then.
pub const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(30);

/// How often and how late a call is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Retries after the first call (OR-210).
    pub retries: u32,
    /// Delay before the first retry; it doubles with each (OR-211).
    pub base: Duration,
    /// Bound of the delay before jitter (OR-211, OR-212).
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            retries: 3,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(30),
        }
    }
}

impl RetryPolicy {
    /// The delay before retry `retry` (counted from 0), or `None` when it must not be made: the
    /// provider asks for a wait beyond [`LONGEST_RETRY_AFTER`].
    ///
    /// A shorter `Retry-After` is a lower bound of the delay. Jitter multiplies the capped
    /// value by a factor in [0.9, 1.1] (OR-212).
    pub fn delay(&self, retry: u32, retry_after: Option<Duration>, random: &dyn Random) -> Option<Duration> {
        let doubled = self.base.saturating_mul(2_u32.saturating_pow(retry));
        let jittered = doubled.min(self.cap).mul_f64(0.9 + 0.2 * random.fraction());
        match retry_after {
            Some(asked) if asked > LONGEST_RETRY_AFTER => None,
            Some(asked) => Some(jittered.max(asked)),
            None => Some(jittered),
        }
    }
}

/// Calls `model` once and waits for its first event.
pub(crate) async fn call(model: &dyn Model, request: Request) -> Result<ModelStream, ModelError> {
    first_event(model.stream(request).await?).await
}

/// Waits for the first event: an error in its place is the call's, and the stream that is returned
/// has the event still (OR-216). A stream without events is an empty success (OR-217).
pub(crate) async fn first_event(mut events: ModelStream) -> Result<ModelStream, ModelError> {
    match events.next().await {
        None => Ok(Box::pin(stream::empty())),
        Some(Err(error)) => Err(error),
        Some(first) => Ok(Box::pin(stream::iter([first]).chain(events))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::{
        collections::VecDeque,
        sync::{Arc, Mutex},
    };

    use async_trait::async_trait;
    use mainstay_telemetry::{clock, random::SeededRandom};
    use tokio::time::Instant;

    use super::*;
    use crate::{
        cooldown::{Cooldowns, ProviderKey},
        error::ModelErrorKind,
        event::{FinishReason, ModelEvent},
        fallback::{Candidate, Chain},
    };

    enum Reply {
        Refuse(ModelError),
        Stream(Vec<Result<ModelEvent, ModelError>>),
    }

    #[derive(Clone)]
    struct Scripted {
        replies: Arc<Mutex<VecDeque<Reply>>>,
        calls: Arc<Mutex<Vec<Instant>>>,
    }

    impl std::fmt::Debug for Scripted {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("Scripted")
        }
    }

    impl Scripted {
        fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
            Self {
                replies: Arc::new(Mutex::new(replies.into_iter().collect())),
                calls: Arc::default(),
            }
        }

        fn waits(&self) -> Vec<Duration> {
            let calls = self.calls.lock().unwrap();
            calls.windows(2).map(|pair| pair[1] - pair[0]).collect()
        }
    }

    #[async_trait]
    impl Model for Scripted {
        fn name(&self) -> &str {
            "scripted"
        }

        async fn stream(&self, _request: Request) -> Result<ModelStream, ModelError> {
            self.calls.lock().unwrap().push(Instant::now());
            match self.replies.lock().unwrap().pop_front().unwrap() {
                Reply::Refuse(error) => Err(error),
                Reply::Stream(events) => Ok(Box::pin(stream::iter(events))),
            }
        }
    }

    fn status(status: u16) -> ModelError {
        ModelError::with_status("scripted", status, "no")
    }

    fn good() -> Vec<Result<ModelEvent, ModelError>> {
        vec![
            Ok(ModelEvent::Started),
            Ok(ModelEvent::Text("hi".to_owned())),
            Ok(ModelEvent::Finished(FinishReason::Completed)),
        ]
    }

    async fn run(model: &Scripted) -> Result<Vec<Result<ModelEvent, ModelError>>, ModelError> {
        let key = ProviderKey {
            namespace: "ns".to_owned(),
            name: "scripted".to_owned(),
            kind: "openai".to_owned(),
        };
        let candidate = Candidate {
            model: Arc::new(model.clone()),
            health: Cooldowns::in_memory(clock::system()).health(&key),
            limit: None,
            model_name: None,
        };
        let random = SeededRandom::new(3);
        let chain = Chain::new("scripted", vec![candidate], RetryPolicy::default(), random);
        Ok(chain.stream(Request::default()).await?.collect().await)
    }

    fn between(wait: Duration, low: f64, high: f64) -> bool {
        (low..=high + 0.002).contains(&wait.as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn two_failures_then_success_take_three_calls_or_211() {
        let model = Scripted::new([
            Reply::Refuse(status(429)),
            Reply::Refuse(status(500)),
            Reply::Stream(good()),
        ]);
        assert_eq!(run(&model).await.unwrap(), good());
        let waits = model.waits();
        assert!(between(waits[0], 0.9, 1.1), "{waits:?}");
        assert!(between(waits[1], 1.8, 2.2), "{waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn after_three_retries_the_last_error_is_returned_or_210() {
        let model = Scripted::new((0..4).map(|_| Reply::Refuse(status(503))));
        let error = run(&model).await.unwrap_err();
        assert_eq!((error.status, error.attempts), (Some(503), 4));
        assert_eq!(model.calls.lock().unwrap().len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_are_returned_at_once_or_214_or_215() {
        for error in [
            status(400),
            status(401),
            status(403),
            status(404),
            ModelError::new("scripted", ModelErrorKind::TimedOut, "late"),
            ModelError::new("scripted", ModelErrorKind::StreamIdle, "silent"),
        ] {
            let model = Scripted::new([Reply::Refuse(error.clone())]);
            assert_eq!(run(&model).await.unwrap_err(), error);
            assert_eq!(model.calls.lock().unwrap().len(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_as_first_event_is_retried_and_nothing_is_shown_twice_or_216() {
        let model = Scripted::new([Reply::Stream(vec![Err(status(503))]), Reply::Stream(good())]);
        assert_eq!(run(&model).await.unwrap(), good());
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_after_the_first_event_passes_through_or_217() {
        let broken = vec![Ok(ModelEvent::Started), Err(status(503))];
        let model = Scripted::new([Reply::Stream(broken.clone())]);
        assert_eq!(run(&model).await.unwrap(), broken);
    }

    #[tokio::test(start_paused = true)]
    async fn network_failures_are_retried_or_215() {
        let network = ModelError::new("scripted", ModelErrorKind::Network, "refused");
        let model = Scripted::new([Reply::Refuse(network), Reply::Stream(good())]);
        assert_eq!(run(&model).await.unwrap(), good());
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_is_a_lower_bound_and_beyond_the_cap_no_retry_is_made_d12() {
        let mut asked = status(429);
        asked.retry_after = Some(Duration::from_secs(12));
        let model = Scripted::new([Reply::Refuse(asked.clone()), Reply::Stream(good())]);
        run(&model).await.unwrap();
        assert!(between(model.waits()[0], 12.0, 12.0));

        asked.retry_after = Some(Duration::from_secs(120));
        let model = Scripted::new([Reply::Refuse(asked)]);
        let error = run(&model).await.unwrap_err();
        assert_eq!(error.retry_after, Some(Duration::from_secs(120)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_dropped_during_the_delay_is_not_made_again_or_214() {
        let model = Scripted::new([Reply::Refuse(status(503)), Reply::Stream(good())]);
        let call = run(&model);
        assert!(
            tokio::time::timeout(Duration::from_millis(500), call)
                .await
                .is_err()
        );
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(model.calls.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_delay_is_capped_before_jitter_or_212() {
        let random = SeededRandom::new(9);
        for _ in 0..200 {
            let delay = RetryPolicy::default().delay(20, None, &*random).unwrap();
            assert!((27.0..=33.0).contains(&delay.as_secs_f64()), "{delay:?}");
        }
    }
}
