//! One forwarded connection: bytes to a workload and back.

use std::time::Duration;

use bytes::Bytes;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use super::{Forward, PIECE, channels, spdy_session};
use crate::dialing::Connection;

/// What the client says on a connection.
pub(super) struct Inbound {
    /// Its bytes; the end of them when it has said its last.
    pub(super) bytes: mpsc::Receiver<Bytes>,
    /// Cancelled when it does not want the connection any more.
    pub(super) reset: CancellationToken,
}

/// How the client hears of a connection.
pub(super) enum Outbound {
    Streams(spdy_session::Pair),
    Channels(channels::Channel),
}

/// The client is gone.
struct Gone;

impl Outbound {
    async fn send(&self, bytes: &[u8]) -> Result<(), Gone> {
        match self {
            Self::Streams(pair) => pair.send(bytes).await,
            Self::Channels(channel) => channel.send(bytes).await,
        }
        .map_err(|_closed| Gone)
    }

    /// The workload has said its last.
    async fn finish(&self) -> Result<(), Gone> {
        match self {
            Self::Streams(pair) => pair.finish().await.map_err(|_closed| Gone),
            Self::Channels(_) => Ok(()),
        }
    }

    /// The connection broke.
    async fn broke(&self) -> Result<(), Gone> {
        match self {
            Self::Streams(pair) => pair.broke().await.map_err(|_closed| Gone),
            Self::Channels(_) => Ok(()),
        }
    }

    /// The connection is over; `failure` says why there was none.
    async fn close(&self, failure: &str) {
        // A client that is gone is told nothing.
        let _ = match self {
            Self::Streams(pair) => pair.close(failure).await,
            Self::Channels(channel) => channel.close(failure).await,
        };
    }
}

/// Why the bytes from the workload ended.
enum End {
    Finished,
    Broken,
}

/// A connection that is to be forwarded.
pub(super) struct Link {
    pub(super) port: u16,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
    /// How long the client may go on once the workload has said its last.
    pub(super) linger: Duration,
}

impl Link {
    /// Connects, and carries bytes until both sides have said their last, either breaks off, or the client does not want
    /// it any more.
    pub(super) async fn run(self, forward: &Forward) {
        let Self {
            port,
            inbound: Inbound { bytes, reset },
            outbound,
            linger,
        } = self;
        let dialed = tokio::select! {
            dialed = forward.dial(port) => dialed,
            () = reset.cancelled() => return outbound.close("").await,
        };
        // Whoever reads the client's frames learns by it that the connection is over.
        let over = reset.clone().drop_guard();
        let connection = match dialed {
            Ok(connection) => connection,
            Err(failure) => {
                tracing::debug!(pod = %forward.pod, namespace = %forward.namespace, port, %failure, "a port is not forwarded");
                return outbound.close(&failure).await;
            }
        };
        let (reader, writer) = tokio::io::split(connection);
        let said_last = CancellationToken::new();
        let up = upwards(bytes, writer, &said_last, linger);
        let down = async {
            let told = match downwards(reader, &outbound).await {
                Ok(End::Finished) => outbound.finish().await,
                Ok(End::Broken) => outbound.broke().await,
                Err(gone) => Err(gone),
            };
            if told.is_err() {
                reset.cancel();
            }
            said_last.cancel();
        };
        tokio::select! {
            ((), ()) = futures::future::join(up, down) => {}
            () = reset.cancelled() => {}
        }
        outbound.close("").await;
        drop(over);
    }
}

/// Hands the client's bytes to the workload.
async fn upwards(
    mut bytes: mpsc::Receiver<Bytes>,
    mut writer: WriteHalf<Box<dyn Connection>>,
    said_last: &CancellationToken,
    linger: Duration,
) {
    loop {
        let late = async {
            said_last.cancelled().await;
            tokio::time::sleep(linger).await;
        };
        let piece = tokio::select! {
            piece = bytes.recv() => piece,
            () = late => return,
        };
        let written = match piece {
            Some(piece) => {
                async {
                    writer.write_all(&piece).await?;
                    writer.flush().await
                }
                .await
            }
            None => {
                // A workload that has closed already is told nothing.
                let _ = writer.shutdown().await;
                return;
            }
        };
        // It does not listen any more, which it may say more about in the other direction.
        if written.is_err() {
            return;
        }
    }
}

/// Hands the workload's bytes to the client.
async fn downwards(mut reader: ReadHalf<Box<dyn Connection>>, outbound: &Outbound) -> Result<End, Gone> {
    let mut piece = vec![0; PIECE];
    loop {
        match reader.read(&mut piece).await {
            Ok(0) => return Ok(End::Finished),
            Ok(length) => outbound.send(piece.get(..length).unwrap_or_default()).await?,
            Err(error) => {
                tracing::debug!(%error, "a forwarded connection broke");
                return Ok(End::Broken);
            }
        }
    }
}
