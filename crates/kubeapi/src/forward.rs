//! Port-forwards: connections to ports of a Pod, carried in one connection of a client. Requirement KA-052.
//!
//! There are three ways to carry them: SPDY, as an upgrade of its own (`spdy_session`) or in the binary messages of a
//! WebSocket (`tunnel`), where a client opens a pair of streams for each connection; and the channels of a WebSocket
//! (`channels`), where each port has one connection from the start. All of them end in [`link::Link`], one forwarded
//! connection.
//!
//! What is kept is bounded: a slow workload holds up its client, a slow client the workload, and a connection that stands
//! still for [`Bounds::stall`] while others wait for it is given up.

mod channels;
mod link;
mod spdy_session;
mod tunnel;

use std::{sync::Arc, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::dialing::{Connection, DialError, DialTarget, Dialer};

pub(crate) use channels::Coding;

/// The bytes that are read at a time from either side.
const PIECE: usize = 32 * 1024;
/// Pieces that wait for a workload, for each connection.
const WAITING_IN: usize = 4;
/// Pieces that wait for the client, for all its connections.
const WAITING_OUT: usize = 32;
/// The largest message of a WebSocket, in bytes. Clients send what a socket gave them at once, which is up to 1 MiB.
pub(crate) const MESSAGE: usize = 4 * 1024 * 1024;
/// How long the last words to a client may take.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What bounds one port-forward.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many connections it carries at a time.
    pub(crate) connections: usize,
    /// How long a stream waits for the other one of its pair. The reference's time.
    pub(crate) pair: Duration,
    /// How long connecting may take.
    pub(crate) dial: Duration,
    /// How long a workload may take nothing while the client waits to send it more.
    pub(crate) stall: Duration,
    /// How long a client goes on sending once the workload has said its last.
    pub(crate) linger: Duration,
    /// How long nothing at all is heard from a client. The reference's time.
    pub(crate) idle: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 256,
            pair: Duration::from_secs(30),
            dial: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            linger: Duration::from_secs(60),
            idle: Duration::from_secs(4 * 60 * 60),
        }
    }
}

/// A Pod whose ports are forwarded.
#[derive(Clone)]
pub(crate) struct Forward {
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) bounds: Bounds,
    /// Ends it with the server.
    pub(crate) closing: CancellationToken,
}

impl Forward {
    /// Connects to a port of the Pod.
    ///
    /// # Errors
    /// What the client is told, in the words of the reference.
    async fn dial(&self, port: u16) -> Result<Box<dyn Connection>, String> {
        let target = DialTarget::Pod {
            namespace: self.namespace.clone(),
            name: self.pod.clone(),
            uid: self.uid.clone(),
            port,
        };
        let dialed = tokio::time::timeout(self.bounds.dial, self.dialer.dial(target)).await;
        let dialed = dialed.unwrap_or_else(|_elapsed| {
            Err(DialError::Connect {
                source: std::io::ErrorKind::TimedOut.into(),
            })
        });
        dialed.map_err(|error| {
            format!(
                "error forwarding port {port} to pod {}, uid {}: {error}",
                self.pod, self.uid
            )
        })
    }

    /// Serves a client that speaks SPDY, until it ends.
    pub(crate) async fn over_spdy(&self, transport: impl AsyncRead + AsyncWrite + Send) {
        spdy_session::run(self, transport).await;
    }

    /// Serves a client that speaks SPDY in a WebSocket, until it ends.
    pub(crate) async fn over_tunnel(&self, socket: axum::extract::ws::WebSocket) {
        tunnel::run(self, socket).await;
    }

    /// Serves a client that has a channel for each of `ports`, until all of them have ended.
    pub(crate) async fn over_channels(
        &self,
        socket: axum::extract::ws::WebSocket,
        ports: &[u16],
        coding: Coding,
    ) {
        channels::run(self, socket, ports, coding).await;
    }
}

#[cfg(test)]
mod tests;
