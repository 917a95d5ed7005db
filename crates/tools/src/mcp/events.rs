//! Event streams, as bounded events and as the library wants them.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream, stream::BoxStream};
use mainstay_workload::{
    ConnectError,
    sse::{Decoder, Event},
};
use serde_json::Value;
use sse_stream::Sse;

use super::{CallState, MESSAGE_LIMIT, McpFailure};
use crate::invocation::FailureReason;

struct Reading {
    body: BoxStream<'static, Result<Bytes, ConnectError>>,
    // `None`: the stream is over.
    decoder: Option<Decoder>,
    queue: VecDeque<Event>,
}

/// The events of `body`. It ends after an error.
pub(super) fn events(
    body: BoxStream<'static, Result<Bytes, ConnectError>>,
) -> BoxStream<'static, Result<Event, McpFailure>> {
    let reading = Reading {
        body,
        decoder: Some(Decoder::new(MESSAGE_LIMIT)),
        queue: VecDeque::new(),
    };
    stream::unfold(reading, |mut reading| async move {
        loop {
            if let Some(event) = reading.queue.pop_front() {
                return Some((Ok(event), reading));
            }
            let decoder = reading.decoder.as_mut()?;
            match reading.body.next().await {
                Some(Ok(bytes)) => {
                    let mut complete = Vec::new();
                    let pushed = decoder.push(&bytes, &mut complete);
                    reading.queue.extend(complete);
                    if pushed.is_err() {
                        reading.decoder = None;
                        return Some((Err(too_large()), reading));
                    }
                }
                Some(Err(error)) => {
                    reading.decoder = None;
                    return Some((Err(McpFailure::unanswered(&error)), reading));
                }
                None => {
                    // A last message without its blank line is whole all the same (D7).
                    let last = reading.decoder.take()?.finish();
                    match last {
                        Ok(Some(event)) => return Some((Ok(event), reading)),
                        Ok(None) => return None,
                        Err(_) => return Some((Err(too_large()), reading)),
                    }
                }
            }
        }
    })
    .boxed()
}

/// A message beyond the limit.
pub(super) fn too_large() -> McpFailure {
    McpFailure::lasting(
        FailureReason::ResponseInvalid,
        format!("the answer is larger than {MESSAGE_LIMIT} bytes"),
    )
}

/// The events of an answer to `call` as the library wants them.
pub(super) fn library_events(
    body: BoxStream<'static, Result<Bytes, ConnectError>>,
    call: Option<Arc<CallState>>,
) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
    events(body)
        .flat_map(move |event| {
            let converted = match event {
                Ok(event) => messages(event).into_iter().map(Ok).collect(),
                Err(failure) => {
                    // The library would ask for the rest of the stream, and get the same again.
                    if let (Some(call), false) = (&call, failure.may_retry) {
                        call.end(failure.clone());
                    }
                    vec![Err(sse_stream::Error::Body(Box::new(failure)))]
                }
            };
            stream::iter(converted)
        })
        .boxed()
}

/// `messages` as a stream of one event each.
pub(super) fn stream_of(messages: Vec<Value>) -> BoxStream<'static, Result<Sse, sse_stream::Error>> {
    stream::iter(
        messages
            .into_iter()
            .map(|message| Ok(Sse::default().data(message.to_string()))),
    )
    .boxed()
}

/// The event, or one for each message where it holds a batch, which the revision of 2025-03-26 has.
pub(super) fn messages(event: Event) -> Vec<Sse> {
    let Event {
        name,
        data,
        id,
        retry,
    } = event;
    let whole = |data: String| Sse {
        event: (!name.is_empty()).then(|| name.clone()),
        data: Some(data),
        id: id.clone(),
        retry,
    };
    if data.trim_start().starts_with('[')
        && let Ok(batch) = serde_json::from_str::<Vec<Value>>(&data)
        && !batch.is_empty()
    {
        return batch
            .into_iter()
            .map(|message| whole(message.to_string()))
            .collect();
    }
    vec![whole(data)]
}

/// The bytes of `body` up to the limit.
pub(super) async fn whole(
    mut body: impl Stream<Item = Result<Bytes, ConnectError>> + Unpin,
    limit: usize,
) -> Result<(Vec<u8>, bool), McpFailure> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|error| McpFailure::unanswered(&error))?;
        let room = limit.saturating_sub(bytes.len());
        if chunk.len() > room {
            bytes.extend_from_slice(chunk.get(..room).unwrap_or_default());
            return Ok((bytes, true));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, false))
}
