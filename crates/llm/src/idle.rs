//! The limit on silence of a stream that no connection is read for (OM-371).
//!
//! Whoever produces a stream keeps to the limit: only there a token is seen that completes no event yet, such
//! as a piece of a tool call's arguments. Consumers have no clock of their own. A provider over HTTP is held to
//! the limit where its bytes are read; this is the same limit for streams that begin as events.

use std::{pin::pin, time::Duration};

use futures::{Stream, StreamExt};
use tokio::time::Instant;

use crate::{
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream},
};

/// Longest time without a token where the provider sets none (OM-371).
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// What a model produces: an event, or `None` for a token that completes no event yet.
pub type Token = Result<Option<ModelEvent>, ModelError>;

/// The events of `tokens`, and [`ModelErrorKind::StreamIdle`] in place of the rest once none came for `limit`.
pub fn limited(
    provider: impl Into<String>,
    limit: Duration,
    tokens: impl Stream<Item = Token> + Send + 'static,
) -> ModelStream {
    let provider = provider.into();
    Box::pin(async_stream::stream! {
        let mut tokens = pin!(tokens);
        let mut idle_at = Instant::now() + limit;
        loop {
            match tokio::time::timeout_at(idle_at, tokens.next()).await {
                Ok(Some(Ok(event))) => {
                    if let Some(event) = event {
                        yield Ok(event);
                    }
                    // Counted from when the consumer asks again: its own time is not the provider's silence.
                    idle_at = Instant::now() + limit;
                }
                Ok(Some(Err(error))) => {
                    yield Err(error);
                    return;
                }
                Ok(None) => return,
                Err(_) => {
                    yield Err(error(&provider, limit));
                    return;
                }
            }
        }
    })
}

/// The error of a provider that sent nothing for `limit`.
pub(crate) fn error(provider: &str, limit: Duration) -> ModelError {
    ModelError::new(
        provider,
        ModelErrorKind::StreamIdle,
        format!("the model sent nothing for {limit:?}"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn played(pauses: &'static [u64]) -> (u64, Vec<Result<ModelEvent, ModelError>>) {
        let began = Instant::now();
        let tokens = async_stream::stream! {
            yield Ok(Some(ModelEvent::Started));
            for pause in pauses {
                tokio::time::sleep(Duration::from_secs(*pause)).await;
                yield Ok(None);
            }
        };
        let events = limited("p", DEFAULT_IDLE_TIMEOUT, tokens).collect().await;
        (began.elapsed().as_secs(), events)
    }

    #[tokio::test(start_paused = true)]
    async fn om_371_a_token_without_an_event_is_no_silence_and_silence_ends_the_stream() {
        assert_eq!(
            played(&[100, 100, 100]).await,
            (300, vec![Ok(ModelEvent::Started)])
        );
        let (after, events) = played(&[100, 121]).await;
        assert_eq!((after, events.len()), (220, 2));
        let error = events[1].clone().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::StreamIdle);
        assert_eq!(error.provider, "p");
    }
}
