//! Watches. Requirement KA-026, with the nine rules of the embedded API for watches.
//!
//! A watch has no queue: it is a cursor over the store's window that moves when the client reads. One that falls out of
//! the window ends without an error, and the client resumes or learns of the 410 on its next watch.

mod event;

use std::time::Duration;

use async_stream::stream;
use axum::body::Body;
use bytes::Bytes;
use futures::Stream;
use http::HeaderValue;
use mainstay_store::kube::{Stored, Watch, WatchItem};
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, MissedTickBehavior, interval_at, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    answer::Answer,
    api::Api,
    negotiation::{Encoding, Rendering},
    present::View,
    read::{Selection, history_failure, parse_version, too_large},
    request::QueryOptions,
    status::{ApiError, ApiResult, Reason},
};
use event::Encoder;

/// How often the start of a watch from the current state is tried again when the window moves on meanwhile.
const ATTEMPTS: usize = 5;

/// A watch request.
pub(crate) struct WatchQuery {
    pub(crate) view: View,
    pub(crate) namespace: Option<String>,
    pub(crate) selection: Selection,
    pub(crate) options: QueryOptions,
    /// JSON or protobuf.
    pub(crate) rendering: Rendering,
    /// Cancelled when the resource is served no longer.
    pub(crate) served: CancellationToken,
}

/// What a stream begins with.
struct Start {
    initial: Vec<Stored>,
    /// The version that the initial bookmark carries, if one is wanted.
    initial_end: Option<u64>,
    cursor: Watch,
}

impl Api {
    /// Answers a watch.
    ///
    /// # Errors
    /// 400 or 422 for options that are none, 429 when too many watches are open. Everything later is an ERROR event.
    pub(crate) fn watch(&self, query: WatchQuery) -> ApiResult<Answer> {
        query.options.check_list(true)?;
        let wanted = parse_version(&query.options.resource_version)?;
        let Ok(permit) = std::sync::Arc::clone(self.watches()).try_acquire_owned() else {
            let mut error = ApiError::new(
                Reason::TooManyRequests,
                "too many watches are open, please try again later",
            );
            error.retry_after_seconds = Some(1);
            return Err(error);
        };
        let encoder = Encoder::new(
            self.clone(),
            query.view.clone(),
            query.selection,
            query.rendering,
            &query.options,
        );
        let body = match self.start(&query.view, query.namespace.as_deref(), wanted, &query.options) {
            Ok(start) => {
                let pace = Pace::new(self, &query.options);
                Body::from_stream(follow(
                    encoder,
                    start,
                    pace,
                    query.served,
                    self.closing().clone(),
                    permit,
                ))
            }
            Err(error) => Body::from(encoder.error(&error)),
        };
        let content_type = match query.rendering.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Encoding::Json | Encoding::Yaml => "application/json",
        };
        Ok(Answer::stream(HeaderValue::from_static(content_type), body))
    }

    fn start(
        &self,
        view: &View,
        namespace: Option<&str>,
        wanted: Option<u64>,
        options: &QueryOptions,
    ) -> ApiResult<Start> {
        let resource = view.kind.storage_resource.as_str();
        let from_now = matches!(wanted, None | Some(0));
        let streaming_list = options.send_initial_events == Some(true);
        if !streaming_list && !from_now {
            let cursor = self
                .store()
                .watch(resource, namespace, wanted.unwrap_or_default())
                .map_err(|error| history_failure(&error))?;
            return Ok(Start {
                initial: Vec::new(),
                initial_end: None,
                cursor,
            });
        }
        if let (true, Some(wanted)) = (streaming_list, wanted) {
            let current = self.store().revision();
            if wanted > current {
                return Err(too_large(wanted, current));
            }
        }
        let mut failure = None;
        for _attempt in 0..ATTEMPTS {
            let snapshot = self.store().list(resource, namespace);
            match self.store().watch(resource, namespace, snapshot.revision) {
                Ok(cursor) => {
                    let wants_state = options.send_initial_events != Some(false);
                    return Ok(Start {
                        initial: if wants_state { snapshot.items } else { Vec::new() },
                        initial_end: streaming_list.then_some(snapshot.revision),
                        cursor,
                    });
                }
                Err(error) => failure = Some(history_failure(&error)),
            }
        }
        Err(failure.unwrap_or_else(|| ApiError::new(Reason::InternalError, "the watch could not be started")))
    }
}

/// When a watch tells its client something unasked.
struct Pace {
    deadline: Instant,
    bookmark: Duration,
    bookmarks: bool,
}

impl Pace {
    fn new(api: &Api, options: &QueryOptions) -> Self {
        // Without a wish of the client the end is spread out, so that clients do not all come back at once.
        let lasting = match options.timeout_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds),
            _ => api.limits().watch.mul_f64(1.0 + api.random().fraction()),
        };
        Self {
            deadline: Instant::now() + lasting,
            bookmark: api.limits().bookmark,
            bookmarks: options.allow_watch_bookmarks,
        }
    }
}

fn follow(
    encoder: Encoder,
    start: Start,
    pace: Pace,
    served: CancellationToken,
    closing: CancellationToken,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> + Send + 'static {
    stream! {
        let _held_while_open = permit;
        let Start { initial, initial_end, mut cursor } = start;
        for stored in initial {
            if let Some(line) = encoder.added(&stored) {
                yield Ok(line);
            }
        }
        if let (Some(revision), true) = (initial_end, pace.bookmarks) {
            yield Ok(encoder.bookmark(revision, true));
        }
        let mut bookmarks = interval_at(Instant::now() + pace.bookmark, pace.bookmark);
        // A client that reads slowly gets one bookmark when it reads on, not all that it missed.
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let deadline = sleep_until(pace.deadline);
        // Once for the whole watch: to wait for them anew at each event would cost more than the event.
        let (closed, gone) = (closing.cancelled(), served.cancelled());
        tokio::pin!(deadline, closed, gone);
        loop {
            tokio::select! {
                biased;
                () = &mut deadline => {
                    if pace.bookmarks {
                        // Nobody was woken by what happened to other resources: the bookmark says how far that went.
                        if let Some(line) = encoder.passed(cursor.try_next()) {
                            yield Ok(line);
                        }
                        yield Ok(encoder.bookmark(cursor.position(), false));
                    }
                    break;
                }
                () = &mut closed => break,
                () = &mut gone => {
                    // The objects were deleted before the kind went: their events come first.
                    while let Ok(Some(item)) = cursor.try_next() {
                        if let WatchItem::Event(event) = item && let Some(line) = encoder.event(&event) {
                            yield Ok(line);
                        }
                    }
                    break;
                }
                item = cursor.next() => match item {
                    Ok(WatchItem::Event(event)) => {
                        if let Some(line) = encoder.event(&event) {
                            yield Ok(line);
                        }
                    }
                    Ok(WatchItem::Progress(_)) => {}
                    Err(_lagged) => break,
                },
                _ = bookmarks.tick(), if pace.bookmarks => {
                    if let Some(line) = encoder.passed(cursor.try_next()) {
                        yield Ok(line);
                    }
                    yield Ok(encoder.bookmark(cursor.position(), false));
                }
            }
        }
    }
}
