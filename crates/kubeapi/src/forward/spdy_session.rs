//! Connections carried in pairs of SPDY streams: one for the bytes, one for what went wrong.

use std::{collections::BTreeMap, io, pin::pin, time::Duration};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Forward, LAST_WORDS, PIECE, WAITING_IN, WAITING_OUT,
    link::{Inbound, Link, Outbound},
};
use crate::spdy::{self, Decoder, Frame, FrameError, GoAway, Headers, ResetCode};

/// The longest name of a pair that is kept.
const REQUEST_ID: usize = 64;

/// The pair of streams of one connection, as it is written to.
pub(super) struct Pair {
    data: u32,
    error: u32,
    frames: mpsc::Sender<Bytes>,
}

/// What sending ends in when the client is gone.
pub(super) type Sent = Result<(), mpsc::error::SendError<Bytes>>;

impl Pair {
    pub(super) async fn send(&self, bytes: &[u8]) -> Sent {
        self.frames.send(spdy::data(self.data, bytes, false)).await
    }

    pub(super) async fn finish(&self) -> Sent {
        self.frames.send(spdy::data(self.data, &[], true)).await
    }

    pub(super) async fn broke(&self) -> Sent {
        self.frames.send(spdy::reset(self.data, ResetCode::Cancel)).await
    }

    pub(super) async fn close(&self, failure: &str) -> Sent {
        // The reason comes before the end, at which a client looks for it.
        self.frames
            .send(spdy::data(self.error, failure.as_bytes(), true))
            .await?;
        if failure.is_empty() {
            Ok(())
        } else {
            self.finish().await
        }
    }
}

/// Where the bytes of a stream for data go. What comes on a stream for errors is dropped.
struct Sink {
    /// To the workload; `None` once the client has said its last.
    bytes: Option<mpsc::Sender<Bytes>>,
    /// Cancelled when either side does not want the connection any more.
    reset: CancellationToken,
}

/// A stream that waits for the other one of its pair.
struct Half {
    kind: Kind,
    stream: u32,
    port: u16,
    /// The receiving end, of a stream for data.
    inbound: Option<Inbound>,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Error,
}

/// How a session ends, other than by the client's doing.
enum Ended {
    /// The client has gone, or said that it goes.
    ByClient,
    /// Nothing was heard for a long time, or the server ends.
    Over,
    Misunderstood(FrameError),
    Broken(io::Error),
}

/// Serves one client.
pub(super) async fn run(forward: &Forward, transport: impl AsyncRead + AsyncWrite + Send) {
    let (reader, writer) = tokio::io::split(transport);
    let (frames, to_write) = mpsc::channel(WAITING_OUT);
    let (links, to_run) = mpsc::channel(forward.bounds.connections.max(1));
    let mut session = Session {
        forward,
        frames,
        links,
        sinks: BTreeMap::new(),
        halves: BTreeMap::new(),
        last: 0,
        accepted: false,
    };
    let mut writing = pin!(write(writer, to_write, forward.bounds.idle));
    let ended = tokio::select! {
        ended = session.read(reader) => ended,
        // Only polled: they end when the session has.
        () = run_links(forward, to_run) => Ended::ByClient,
        written = &mut writing => written.map_or_else(Ended::Broken, |()| Ended::ByClient),
        () = forward.closing.cancelled() => Ended::Over,
    };
    let why = match &ended {
        Ended::Misunderstood(error) => {
            tracing::debug!(%error, pod = %forward.pod, "a port-forward is not understood");
            GoAway::Protocol
        }
        Ended::Broken(error) => {
            tracing::debug!(%error, pod = %forward.pod, "a port-forward broke");
            return;
        }
        Ended::ByClient => return,
        Ended::Over => GoAway::Done,
    };
    // A queue that is full has a client that does not listen.
    let _ = session.frames.try_send(spdy::go_away(session.last, why));
    drop(session);
    // A client that does not take what is left is not waited for.
    let _ = tokio::time::timeout(LAST_WORDS, writing).await;
}

/// Runs the connections, all as part of the one task that serves the client: they end with it.
async fn run_links(forward: &Forward, mut links: mpsc::Receiver<Link>) {
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            link = links.recv() => match link {
                Some(link) => running.push(link.run(forward)),
                None => break,
            },
            Some(()) = running.next(), if !running.is_empty() => {}
        }
    }
    while running.next().await.is_some() {}
}

/// Writes frames until there are none any more.
async fn write(
    mut writer: impl AsyncWrite + Unpin,
    mut frames: mpsc::Receiver<Bytes>,
    longest: Duration,
) -> io::Result<()> {
    while let Some(frame) = frames.recv().await {
        let writing = async {
            writer.write_all(&frame).await?;
            // What waits already goes with it.
            while let Ok(frame) = frames.try_recv() {
                writer.write_all(&frame).await?;
            }
            writer.flush().await
        };
        match tokio::time::timeout(longest, writing).await {
            Ok(written) => written?,
            Err(_elapsed) => return Err(io::ErrorKind::TimedOut.into()),
        }
    }
    writer.shutdown().await
}

struct Session<'forward> {
    forward: &'forward Forward,
    frames: mpsc::Sender<Bytes>,
    links: mpsc::Sender<Link>,
    sinks: BTreeMap<u32, Sink>,
    halves: BTreeMap<String, Half>,
    /// The last stream that the client made.
    last: u32,
    /// Whether a stream was accepted.
    accepted: bool,
}

impl Session<'_> {
    async fn read(&mut self, mut reader: impl AsyncRead + Unpin) -> Ended {
        let (mut decoder, mut buffer) = (Decoder::new(), BytesMut::new());
        loop {
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(Frame::GoAway)) => return Ended::ByClient,
                    Ok(Some(frame)) => {
                        if self.take(frame).await.is_err() {
                            return Ended::ByClient;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Ended::Misunderstood(error),
                }
            }
            buffer.reserve(PIECE);
            let read = tokio::time::timeout(self.forward.bounds.idle, reader.read_buf(&mut buffer));
            let next = self.halves.values().map(|half| half.until).min();
            let late = async {
                match next {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = read => match read {
                    Ok(Ok(0)) => return Ended::ByClient,
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return Ended::Broken(error),
                    Err(_elapsed) => return Ended::Over,
                },
                () = late => {
                    if self.give_up_halves().await.is_err() {
                        return Ended::ByClient;
                    }
                }
            }
        }
    }

    async fn take(&mut self, frame: Frame) -> Sent {
        match frame {
            Frame::Stream {
                stream,
                fin,
                unidirectional,
                headers,
            } => self.open(stream, fin, unidirectional, &headers).await,
            Frame::Data { stream, bytes, fin } => self.deliver(stream, bytes, fin).await,
            Frame::Headers { stream, fin } => self.deliver(stream, Bytes::new(), fin).await,
            Frame::Reset { stream } => {
                if let Some(sink) = self.sinks.remove(&stream) {
                    sink.reset.cancel();
                }
                self.halves.retain(|_, half| half.stream != stream);
                Ok(())
            }
            // Ours would be even; none is sent.
            Frame::Ping { id } if id % 2 == 1 => self.frames.send(spdy::ping(id)).await,
            Frame::Ping { .. } | Frame::GoAway | Frame::Other => Ok(()),
        }
    }

    /// Takes a stream that the client makes, or refuses it.
    async fn open(&mut self, stream: u32, fin: bool, unidirectional: bool, headers: &Headers) -> Sent {
        // Those whose connection is over.
        self.sinks.retain(|_, sink| !sink.reset.is_cancelled());
        let in_order = stream % 2 == 1 && stream > self.last;
        if !in_order || unidirectional {
            return self.refuse(stream, ResetCode::Protocol).await;
        }
        self.last = stream;
        let Some((kind, port, pair)) = wanted(stream, headers) else {
            return self.refuse(stream, ResetCode::Protocol).await;
        };
        let other = self.halves.get(&pair);
        if other.is_some_and(|other| other.kind == kind) {
            return self.refuse(stream, ResetCode::Protocol).await;
        }
        let full = self.sinks.len().max(self.halves.len()) >= self.forward.bounds.connections;
        if full && other.is_none() {
            return self.refuse(stream, ResetCode::Refused).await;
        }
        self.frames.send(spdy::reply(stream, !self.accepted)).await?;
        self.accepted = true;
        let mut half = Half {
            kind,
            stream,
            port,
            inbound: None,
            until: Instant::now() + self.forward.bounds.pair,
        };
        if kind == Kind::Data {
            let (bytes, received) = mpsc::channel(WAITING_IN);
            let reset = CancellationToken::new();
            half.inbound = Some(Inbound {
                bytes: received,
                reset: reset.clone(),
            });
            let bytes = (!fin).then_some(bytes);
            self.sinks.insert(stream, Sink { bytes, reset });
        }
        match self.halves.remove(&pair) {
            None => {
                self.halves.insert(pair, half);
            }
            Some(other) => self.start(half, other),
        }
        Ok(())
    }

    /// Runs the connection of a pair.
    fn start(&mut self, one: Half, other: Half) {
        let (data, error) = match one.kind {
            Kind::Data => (one, other),
            Kind::Error => (other, one),
        };
        let Some(inbound) = data.inbound else {
            return;
        };
        let link = Link {
            port: data.port,
            inbound,
            outbound: Outbound::Streams(Pair {
                data: data.stream,
                error: error.stream,
                frames: self.frames.clone(),
            }),
            linger: self.forward.bounds.linger,
        };
        // There is room: whatever is taken out of it is run at once.
        if self.links.try_send(link).is_err() {
            tracing::warn!(pod = %self.forward.pod, "a connection is not forwarded: there are too many");
        }
    }

    async fn refuse(&mut self, stream: u32, code: ResetCode) -> Sent {
        self.frames.send(spdy::reset(stream, code)).await
    }

    /// Hands bytes to the workload, and waits for it where it is slow.
    async fn deliver(&mut self, stream: u32, bytes: Bytes, fin: bool) -> Sent {
        let Some(sink) = self.sinks.get_mut(&stream) else {
            return Ok(());
        };
        if let Some(queue) = &sink.bytes
            && !bytes.is_empty()
        {
            let sending = tokio::time::timeout(self.forward.bounds.stall, queue.send(bytes));
            // Where the connection is over, what is still sent is dropped; so is it where nobody has taken the pair up.
            if sending.await.is_err() {
                sink.reset.cancel();
                self.sinks.remove(&stream);
                return self.refuse(stream, ResetCode::Cancel).await;
            }
        }
        if fin {
            sink.bytes = None;
        }
        Ok(())
    }

    /// Gives up streams whose other one did not come.
    async fn give_up_halves(&mut self) -> Sent {
        let now = Instant::now();
        let late: Vec<String> = self
            .halves
            .iter()
            .filter(|(_, half)| half.until <= now)
            .map(|(pair, _)| pair.clone())
            .collect();
        for pair in late {
            let Some(half) = self.halves.remove(&pair) else {
                continue;
            };
            self.sinks.remove(&half.stream);
            match half.kind {
                Kind::Error => {
                    let text = format!("(request={pair}) timed out waiting for streams");
                    self.frames
                        .send(spdy::data(half.stream, text.as_bytes(), true))
                        .await?;
                }
                Kind::Data => self.refuse(half.stream, ResetCode::Cancel).await?,
            }
        }
        Ok(())
    }
}

/// What a stream is for, its port, and the name of its pair; `None` where the headers do not say.
fn wanted(stream: u32, headers: &Headers) -> Option<(Kind, u16, String)> {
    let kind = match headers.get("streamtype")? {
        "data" => Kind::Data,
        "error" => Kind::Error,
        _ => return None,
    };
    let port = headers.get("port")?.parse().ok().filter(|port| *port > 0)?;
    let pair = match headers.get("requestid") {
        Some(pair) if pair.len() > REQUEST_ID => return None,
        Some(pair) if !pair.is_empty() => pair.to_owned(),
        // Older clients give none, and make the stream for data behind that for errors.
        _ => match kind {
            Kind::Error => stream.to_string(),
            Kind::Data => stream.saturating_sub(2).to_string(),
        },
    };
    Some((kind, port, pair))
}
