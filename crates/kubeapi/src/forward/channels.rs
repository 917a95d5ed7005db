//! Connections carried in the channels of a WebSocket: two for each port, one for bytes and one for what went wrong.
//!
//! The first byte of a message is the channel. The first two bytes of a channel are the port, with the lower one first.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{
    SinkExt as _, StreamExt as _,
    stream::{FuturesUnordered, SplitSink, SplitStream},
};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Forward, LAST_WORDS, WAITING_IN, WAITING_OUT,
    link::{Inbound, Link, Outbound},
};

/// How long a client may go on once the workload has said its last: there is no way to tell it so but by the end. The
/// time is that of the reference.
const LINGER: Duration = Duration::from_secs(1);

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// The channel as a byte, then the bytes.
    Binary,
    /// The channel as a digit, then the bytes in base64.
    Base64,
}

impl Coding {
    /// A message for a channel.
    pub(super) fn message(self, channel: u8, bytes: &[u8]) -> Bytes {
        match self {
            Self::Binary => {
                let mut message = BytesMut::with_capacity(1 + bytes.len());
                message.put_u8(channel);
                message.put_slice(bytes);
                message.freeze()
            }
            Self::Base64 => {
                let mut message = String::from(char::from(b'0'.wrapping_add(channel)));
                STANDARD.encode_string(bytes, &mut message);
                message.into()
            }
        }
    }

    /// The channel and the bytes of a message; `None` where it is none.
    pub(super) fn read(self, message: &Bytes) -> Option<(u8, Bytes)> {
        let first = *message.first()?;
        let rest = message.slice(1..);
        match self {
            Self::Binary => Some((first, rest)),
            Self::Base64 => Some((first.checked_sub(b'0')?, STANDARD.decode(&rest).ok()?.into())),
        }
    }
}

/// The two channels of a port, as they are written to.
pub(super) struct Channel {
    data: u8,
    coding: Coding,
    messages: mpsc::Sender<Bytes>,
}

/// What sending ends in when the client is gone.
type Sent = Result<(), mpsc::error::SendError<Bytes>>;

impl Channel {
    pub(super) async fn send(&self, bytes: &[u8]) -> Sent {
        self.messages.send(self.coding.message(self.data, bytes)).await
    }

    async fn fail(&self, bytes: &[u8]) -> Sent {
        self.messages
            .send(self.coding.message(self.data + 1, bytes))
            .await
    }

    pub(super) async fn close(&self, failure: &str) -> Sent {
        if failure.is_empty() {
            return Ok(());
        }
        self.fail(failure.as_bytes()).await
    }
}

/// Where the bytes of a port's channel go.
struct Sink {
    bytes: mpsc::Sender<Bytes>,
    reset: CancellationToken,
}

/// Serves one client. There are at most as many ports as there are channels, which the caller has seen to.
pub(super) async fn run(forward: &Forward, socket: WebSocket, ports: &[u16], coding: Coding) {
    let (sink, stream) = socket.split();
    let (messages, to_write) = mpsc::channel(WAITING_OUT);
    let (mut sinks, links) = (Vec::new(), FuturesUnordered::new());
    for (position, port) in ports.iter().enumerate() {
        let Ok(data) = u8::try_from(position * 2) else {
            break;
        };
        let (bytes, received) = mpsc::channel(WAITING_IN);
        let reset = CancellationToken::new();
        sinks.push(Sink {
            bytes,
            reset: reset.clone(),
        });
        let channel = Channel {
            data,
            coding,
            messages: messages.clone(),
        };
        let port = *port;
        links.push(async move {
            let first = port.to_le_bytes();
            if channel.send(&first).await.is_err() || channel.fail(&first).await.is_err() {
                return;
            }
            let link = Link {
                port,
                inbound: Inbound {
                    bytes: received,
                    reset,
                },
                outbound: Outbound::Channels(channel),
                linger: LINGER,
            };
            link.run(forward).await;
        });
    }
    drop(messages);
    let mut writing = std::pin::pin!(write(sink, to_write, coding, forward.bounds.idle));
    tokio::select! {
        () = read(forward, stream, &sinks, coding) => {}
        // The last link's end is the end of what is to be written, and that comes last.
        ((), ()) = futures::future::join(links.collect::<()>(), &mut writing) => return,
        () = forward.closing.cancelled() => {}
    }
    drop(sinks);
    // The links have gone, and with them whoever wrote.
    let _ = tokio::time::timeout(LAST_WORDS, writing).await;
}

/// Hands the client's bytes to the workloads until it goes, says nothing for long, or breaks the protocol.
async fn read(forward: &Forward, mut stream: SplitStream<WebSocket>, sinks: &[Sink], coding: Coding) {
    loop {
        let message = match tokio::time::timeout(forward.bounds.idle, stream.next()).await {
            Ok(Some(Ok(Message::Binary(message)))) => message,
            Ok(Some(Ok(Message::Text(text)))) => text.into(),
            // Answered below this, where they are to be.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) | Err(_) => return,
        };
        // As with the reference, a message for a channel that does not exist or is not listened to is passed over.
        let Some((channel, bytes)) = coding.read(&message) else {
            continue;
        };
        let sink = sinks.get(usize::from(channel / 2)).filter(|_| channel % 2 == 0);
        if let Some(sink) = sink
            && !bytes.is_empty()
        {
            let sending = tokio::time::timeout(forward.bounds.stall, sink.bytes.send(bytes));
            // Where the connection is over, what is still sent is dropped.
            if sending.await.is_err() {
                sink.reset.cancel();
            }
        }
    }
}

/// Writes messages until there are none any more, and then the end.
async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut messages: mpsc::Receiver<Bytes>,
    coding: Coding,
    longest: Duration,
) {
    while let Some(message) = messages.recv().await {
        let message = match coding {
            Coding::Binary => Message::Binary(message),
            Coding::Base64 => match message.try_into() {
                Ok(text) => Message::Text(text),
                Err(_not_text) => continue,
            },
        };
        match tokio::time::timeout(longest, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    let end = CloseFrame {
        code: close_code::NORMAL,
        reason: "".into(),
    };
    // A client that has gone already needs no goodbye.
    let _ = tokio::time::timeout(LAST_WORDS, sink.send(Message::Close(Some(end)))).await;
}
