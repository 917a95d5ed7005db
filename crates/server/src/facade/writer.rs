//! The writing half of a connection: a bounded queue and one task that empties it.
//!
//! A full queue makes the connection wait, and nobody else: a turn hands its events to a ring and never to a
//! client. A client that takes nothing for as long as one write may take loses its connection.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures::SinkExt;
use futures::stream::SplitSink;
use mainstay_telemetry::task;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The queue's end that a connection holds.
#[derive(Debug)]
pub(super) struct Writer {
    queue: mpsc::Sender<Message>,
    write_wait: Duration,
    task: JoinHandle<Ended>,
}

/// The connection cannot be written to any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unwritable;

/// How the writing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// Everything was written, or the client went away.
    Closed,
    /// The client took nothing for too long.
    TooSlow,
}

impl Writer {
    /// Starts the task.
    pub(super) fn start(sink: SplitSink<WebSocket, Message>, frames: usize, write_wait: Duration) -> Self {
        let (queue, waiting) = mpsc::channel(frames.max(1));
        let task = task::spawn("websocket-writer", drain(sink, waiting, write_wait));
        Self {
            queue,
            write_wait,
            task,
        }
    }

    /// Puts a message into the queue, and waits for a place as long as a write may take.
    pub(super) async fn send(&self, message: Message) -> Result<(), Unwritable> {
        // One of the writes before it is stuck for longer than its time, so the task is ending anyway.
        self.queue
            .send_timeout(message, self.write_wait)
            .await
            .map_err(|_| Unwritable)
    }

    /// Ends the writing: after everything in the queue and a goodbye, or, with `None`, as soon as the write
    /// that is under way has ended.
    pub(super) async fn close(self, goodbye: Option<(u16, &'static str)>) -> Ended {
        if let Some((code, reason)) = goodbye {
            let frame = CloseFrame {
                code,
                reason: reason.into(),
            };
            let _ = self.send(Message::Close(Some(frame))).await;
        }
        drop(self.queue);
        // Every write has a deadline, the first one that misses it ends the task, and the queue is bounded.
        self.task.await.unwrap_or(Ended::Closed)
    }
}

async fn drain(
    mut sink: SplitSink<WebSocket, Message>,
    mut waiting: mpsc::Receiver<Message>,
    write_wait: Duration,
) -> Ended {
    while let Some(message) = waiting.recv().await {
        let last = matches!(message, Message::Close(_));
        match tokio::time::timeout(write_wait, sink.send(message)).await {
            Ok(Ok(())) if !last => {}
            Ok(_) => return Ended::Closed,
            Err(_) => return Ended::TooSlow,
        }
    }
    let _ = tokio::time::timeout(write_wait, sink.close()).await;
    Ended::Closed
}

/// Why the server ends a connection, as a close code and its text.
pub(super) const GOING_AWAY: (u16, &str) = (close_code::AWAY, "the agent is ending");
/// A failure on this side.
pub(super) const FAILED: (u16, &str) = (close_code::ERROR, "the session cannot be read");
/// The client asked for the end.
pub(super) const FAREWELL: (u16, &str) = (close_code::NORMAL, "");
