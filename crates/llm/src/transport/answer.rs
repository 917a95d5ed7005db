//! From the bytes of an answer to its events, with the time limits of a stream.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use mainstay_telemetry::random::{Random, SharedRandom};
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::Instant;

use super::redacted;
use crate::{
    conversion::{Ending, Progress, Reader, error_from_stream},
    error::{ModelError, ModelErrorKind},
    event::{ModelEvent, ModelStream},
    idle, sse,
};

// Once the provider has said why the answer ended only token counts can follow. A server that
// neither sends them nor closes must not hold the turn.
const TRAILER_TIMEOUT: Duration = Duration::from_secs(5);

/// What bounds the reading of one answer.
#[derive(Debug)]
pub(super) struct Limits {
    pub(super) provider: String,
    pub(super) key: Option<SecretString>,
    pub(super) idle_timeout: Duration,
    pub(super) request_timeout: Duration,
    pub(super) ends: Instant,
}

impl Limits {
    /// The error that `value` is, if it is one.
    fn error(&self, event_name: &str, value: &Value) -> Option<ModelError> {
        error_from_stream(&self.provider, event_name, value)?;
        let text = redacted(value.to_string(), self.key.as_ref());
        let value = serde_json::from_str(&text).unwrap_or_default();
        error_from_stream(&self.provider, event_name, &value).or_else(|| {
            let message = "the stream ended with an error that quotes the credential";
            Some(ModelError::new(&self.provider, ModelErrorKind::Server, message))
        })
    }

    fn protocol(&self, message: impl AsRef<str>) -> ModelError {
        ModelError::new(&self.provider, ModelErrorKind::Protocol, message)
    }
}

fn step(event: &sse::Event, reader: &mut dyn Reader, limits: &Limits) -> Result<Progress, ModelError> {
    let data = event.data.trim();
    if data.is_empty() {
        return Ok(Progress::default());
    }
    let value: Value = serde_json::from_str(data)
        .map_err(|error| limits.protocol(format!("an event of the stream is not JSON: {error}")))?;
    if let Some(error) = limits.error(&event.name, &value) {
        return Err(error);
    }
    reader
        .event(&event.name, value)
        .map_err(|error| limits.protocol(error.to_string()))
}

/// The events of a streamed answer.
///
/// The answer is complete where its format says so ([`Reader::ending`], D10); after a finish reason
/// a broken connection ends it too. What breaks off before is an error, and its tool calls are never
/// handed out: they may be half of what the model said. A stream that holds nothing of the format,
/// such as a proxy's page or no byte at all, is an error too (OM-495).
pub(super) fn read(
    mut bytes: impl Stream<Item = Result<Bytes, ModelError>> + Send + Unpin,
    mut reader: Box<dyn Reader>,
    limits: Limits,
    random: SharedRandom,
) -> impl Stream<Item = Result<ModelEvent, ModelError>> + Send {
    async_stream::stream! {
        let mut decoder = Some(sse::Decoder::new(sse::DEFAULT_LIMIT));
        let mut idle_at = Instant::now() + limits.idle_timeout;
        let mut decoded = Vec::new();
        let mut marked = false;
        'answer: while let Some(open) = decoder.as_mut() {
            let wake = idle_at.min(limits.ends);
            let next = tokio::time::timeout_at(wake, bytes.next()).await;
            match next {
                Err(_) if reader.is_complete() => break,
                Err(_) if wake == limits.ends => {
                    yield Err(ModelError::new(
                        &limits.provider,
                        ModelErrorKind::TimedOut,
                        format!("the answer was not complete after {:?}", limits.request_timeout),
                    ));
                    return;
                }
                Err(_) => {
                    yield Err(idle::error(&limits.provider, limits.idle_timeout));
                    return;
                }
                Ok(Some(Ok(chunk))) => {
                    if let Err(error) = open.push(&chunk, &mut decoded) {
                        yield Err(limits.protocol(error.to_string()));
                        return;
                    }
                }
                Ok(Some(Err(_))) if reader.is_complete() => break,
                Ok(Some(Err(error))) => {
                    yield Err(error);
                    return;
                }
                // The end of the bytes: what is left in the decoder is the last event.
                Ok(None) => match decoder.take().map(sse::Decoder::finish) {
                    Some(Ok(last)) => decoded.extend(last),
                    Some(Err(error)) => {
                        yield Err(limits.protocol(error.to_string()));
                        return;
                    }
                    None => {}
                },
            }
            for event in decoded.drain(..) {
                if event.data.trim() == "[DONE]" {
                    marked = true;
                    break 'answer;
                }
                match step(&event, &mut *reader, &limits) {
                    Ok(Progress { events, token, done }) => {
                        if token {
                            idle_at = Instant::now() + limits.idle_timeout;
                        }
                        for event in events {
                            yield Ok(event);
                        }
                        if done {
                            break 'answer;
                        }
                    }
                    // The bytes ended in the middle of this event: it is a cut, not a mistake.
                    Err(error) if decoder.is_none() && error.kind == ModelErrorKind::Protocol => {
                        break 'answer;
                    }
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
            if reader.is_complete() {
                idle_at = idle_at.min(Instant::now() + TRAILER_TIMEOUT);
            }
        }
        // Ends the request before the last events are read by a consumer that may take its time.
        drop(bytes);
        match reader.ending(marked) {
            Ending::Complete => {}
            Ending::Cut => {
                yield Err(ModelError::new(
                    &limits.provider,
                    ModelErrorKind::Network,
                    "the stream ended before the answer was complete",
                ));
                return;
            }
            Ending::Nothing => {
                yield Err(limits.protocol("the stream holds no event of the provider's format"));
                return;
            }
        }
        for event in reader.finish(&*random) {
            yield Ok(event);
        }
    }
}

/// The events of an answer that was not streamed.
pub(super) fn read_plain(
    body: &[u8],
    mut reader: Box<dyn Reader>,
    limits: &Limits,
    random: &dyn Random,
) -> Result<ModelStream, ModelError> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| limits.protocol(format!("the answer is not JSON: {error}")))?;
    if let Some(error) = limits.error("", &body) {
        return Err(error);
    }
    let mut events = reader
        .plain(body)
        .map_err(|error| limits.protocol(error.to_string()))?;
    events.extend(reader.finish(random));
    Ok(Box::pin(stream::iter(events.into_iter().map(Ok))))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::random::SeededRandom;

    use super::*;
    use crate::{conversion::openai_chat::AnswerReader, event::FinishReason, message::ToolCall};

    fn limits() -> Limits {
        Limits {
            provider: "p".to_owned(),
            key: Some(SecretString::from("sk-secret")),
            idle_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(600),
            ends: Instant::now() + Duration::from_secs(600),
        }
    }

    // `None` is a pause of the given length before the next piece.
    fn pieces(
        pieces: Vec<(u64, &'static str)>,
    ) -> impl Stream<Item = Result<Bytes, ModelError>> + Send + Unpin {
        Box::pin(async_stream::stream! {
            for (pause, piece) in pieces {
                tokio::time::sleep(Duration::from_secs(pause)).await;
                yield Ok(Bytes::from_static(piece.as_bytes()));
            }
        })
    }

    async fn collect(
        bytes: impl Stream<Item = Result<Bytes, ModelError>> + Send + Unpin,
    ) -> Vec<Result<ModelEvent, ModelError>> {
        read(
            bytes,
            Box::new(AnswerReader::default()),
            limits(),
            SeededRandom::new(1),
        )
        .collect()
        .await
    }

    fn text(text: &str) -> Result<ModelEvent, ModelError> {
        Ok(ModelEvent::Text(text.to_owned()))
    }

    const DONE: Result<ModelEvent, ModelError> = Ok(ModelEvent::Finished(FinishReason::Completed));
    const HELLO: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hello\"}}]}\n\n";
    const STOP: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_with_done_a_finish_reason_or_its_token_counts_d10() {
        for end in [
            vec![STOP, "data: [DONE]\n\n"],
            vec![STOP],
            vec!["data: [DONE]"],
            vec![
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"\"}]}\n\n",
                "data: [DONE]\n\n",
            ],
            // The connection broke in the middle of the token counts.
            vec![STOP, "data: {\"usa"],
        ] {
            let mut all = vec![(0, HELLO)];
            all.extend(end.into_iter().map(|piece| (0, piece)));
            assert_eq!(
                collect(pieces(all)).await,
                [Ok(ModelEvent::Started), text("hello"), DONE]
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_stream_is_aborted_om_371() {
        let keep_alive = "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n: ping\n\n";
        let events = collect(pieces(vec![(0, HELLO), (60, keep_alive), (61, HELLO)])).await;
        assert_eq!(events.len(), 3);
        assert_eq!(events[2].clone().unwrap_err().kind, ModelErrorKind::StreamIdle);

        let events = collect(pieces(vec![(0, HELLO), (119, HELLO), (119, STOP)])).await;
        assert_eq!(events.last(), Some(&DONE));
    }

    #[tokio::test(start_paused = true)]
    async fn om_371_a_tool_call_that_comes_in_pieces_is_no_silence() {
        let begin = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\n";
        let piece = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\" \"}}]}}]}\n\n";
        let end = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"}\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n";
        let events = collect(pieces(vec![(0, begin), (100, piece), (100, piece), (100, end)])).await;
        let call = ToolCall::new("a", "f", "{  }");
        assert_eq!(
            events,
            [
                Ok(ModelEvent::Started),
                Ok(ModelEvent::ToolCall(call)),
                Ok(ModelEvent::Finished(FinishReason::ToolCalls)),
            ]
        );

        let events = collect(pieces(vec![(0, begin), (121, end)])).await;
        assert_eq!(events[1].clone().unwrap_err().kind, ModelErrorKind::StreamIdle);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_never_ends_reaches_the_request_timeout() {
        let events = collect(pieces(vec![(100, HELLO); 10])).await;
        assert_eq!(
            events.last().unwrap().clone().unwrap_err().kind,
            ModelErrorKind::TimedOut
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_finish_reason_a_server_that_stays_open_is_not_waited_for() {
        let began = Instant::now();
        let events = collect(pieces(vec![(0, HELLO), (0, STOP), (3_600, HELLO)])).await;
        assert_eq!(events.last(), Some(&DONE));
        assert_eq!(began.elapsed().as_secs(), TRAILER_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_an_error_unless_the_answer_was_complete() {
        let broken = || Err(ModelError::new("p", ModelErrorKind::Network, "reset"));
        let cut = stream::iter([Ok(Bytes::from_static(HELLO.as_bytes())), broken()]);
        let events = collect(cut).await;
        assert_eq!(events[2].clone().unwrap_err().kind, ModelErrorKind::Network);

        let complete = stream::iter([Ok(Bytes::from_static(STOP.as_bytes())), broken()]);
        assert_eq!(collect(complete).await, [Ok(ModelEvent::Started), DONE]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_breaks_off_inside_an_event_is_cut_d10() {
        let events = collect(pieces(vec![(0, HELLO), (0, "data: {\"choices\":[{\"del")])).await;
        assert_eq!(events[..2], [Ok(ModelEvent::Started), text("hello")]);
        assert_eq!(events[2].clone().unwrap_err().kind, ModelErrorKind::Network);
        assert_eq!(events.len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_inside_the_stream_ends_it_without_showing_the_key() {
        let error = "data: {\"error\":{\"message\":\"slow down, sk-secret\",\"code\":429}}\n\n";
        let events = collect(pieces(vec![(0, error)])).await;
        let [Err(error)] = events.as_slice() else {
            panic!("{events:?}");
        };
        assert_eq!(error.status, Some(429));
        assert_eq!(error.message, "slow down, [REDACTED]");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_not_json_is_a_protocol_error() {
        let events = collect(pieces(vec![(0, "data: <html>\n\n")])).await;
        assert_eq!(events[0].clone().unwrap_err().kind, ModelErrorKind::Protocol);
    }

    #[test]
    fn an_error_in_a_plain_answer_with_status_200_is_an_error() {
        let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = br#"{"error":{"message":"overloaded","type":"overloaded_error"}}"#;
        let Err(error) = read_plain(
            body,
            Box::new(AnswerReader::default()),
            &limits(),
            &*SeededRandom::new(1),
        ) else {
            panic!("an error was expected");
        };
        assert_eq!(error.status, Some(529));
    }
}
