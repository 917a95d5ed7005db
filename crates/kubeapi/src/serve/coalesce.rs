//! Small writes of one moment leave in one record of TLS and one call of the system.
//!
//! An HTTP/2 connection writes each frame of data by itself, and is run as soon as one of its streams has something. Where a
//! change is told to a hundred watches of one connection, those would be a hundred records and calls. Here the connection
//! waits, before it flushes, until the tasks that are ready now have had their turn: the other watches among them. Nothing is
//! held back longer, and where nothing else is to be done not at all.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum_server::accept::Accept;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

/// How much is collected at most: four full records of TLS, which leave in one call.
const COLLECTED: usize = 64 * 1024;

/// A stream that collects writes until they are flushed or are [`COLLECTED`] bytes. Its memory is given back at each flush, since a
/// server has thousands of connections and most are silent.
pub(super) struct Coalesced<S> {
    stream: S,
    waiting: Vec<u8>,
    /// How much of `waiting` is written already.
    written: usize,
    /// Whether a flush lets other tasks go first. HTTP/1.1 has one answer at a time, and nothing to wait for.
    yields: bool,
    /// Whether the flush that is asked for has let them.
    yielded: bool,
}

impl<S: AsyncWrite + Unpin> Coalesced<S> {
    pub(super) fn new(stream: S, yields: bool) -> Self {
        Self {
            stream,
            waiting: Vec::new(),
            written: 0,
            yields,
            yielded: false,
        }
    }

    /// Hands everything that waits to the stream.
    fn poll_hand_on(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.waiting.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        self.waiting = Vec::new();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if this.waiting.len() + length > COLLECTED {
            ready!(this.poll_hand_on(context))?;
        }
        if length >= COLLECTED {
            return Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        }
        if this.waiting.is_empty() {
            this.waiting.reserve(length);
        }
        for slice in slices {
            this.waiting.extend_from_slice(slice);
        }
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.yields && !this.waiting.is_empty() && this.written == 0 && !this.yielded {
            this.yielded = true;
            // Behind what is ready: a task that wakes itself is run last.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.poll_hand_on(context))?;
        this.yielded = false;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_hand_on(context))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

/// Accepts as another does, and coalesces what is written then.
#[derive(Clone)]
pub(super) struct Coalescing<A>(pub(super) A);

impl<A, I, S, T> Accept<I, S> for Coalescing<A>
where
    A: Accept<I, S, Stream = TlsStream<T>>,
    A::Future: Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin,
{
    type Stream = Coalesced<A::Stream>;
    type Service = A::Service;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let accepting = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepting.await?;
            let (_, session) = stream.get_ref();
            let yields = session.alpn_protocol() == Some(b"h2");
            Ok((Coalesced::new(stream, yields), service))
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn small_writes_wait_for_the_flush_and_large_ones_keep_their_order() {
        // Less than is written in all: a peer that does not read makes the writer wait, and nothing is lost.
        let (near, mut far) = tokio::io::duplex(1_000);
        let mut stream = Coalesced::new(near, false);
        stream.write_all(b"one ").await.unwrap();
        let written = stream
            .write_vectored(&[IoSlice::new(b"two "), IoSlice::new(b"three ")])
            .await
            .unwrap();
        assert_eq!(written, b"two three ".len());
        let mut seen = [0; 64];
        assert!(futures::poll!(std::pin::pin!(far.read(&mut seen))).is_pending());
        let large = vec![b'x'; 3 * COLLECTED];
        let sent = large.clone();
        let writing = async move {
            stream.write_all(&sent).await.unwrap();
            stream.write_all(b" end").await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let mut read = Vec::new();
        let (_, count) = futures::join!(writing, far.read_to_end(&mut read));
        assert_eq!(count.unwrap(), read.len());
        assert_eq!(read, [b"one two three ".as_slice(), &large, b" end"].concat());
    }

    #[tokio::test]
    async fn a_flush_hands_on_what_waits_and_keeps_no_memory() {
        let (near, mut far) = tokio::io::duplex(1_000);
        let mut stream = Coalesced::new(near, true);
        stream.write_all(b"event\n").await.unwrap();
        // Others have their turn once, and then it leaves.
        assert!(futures::poll!(std::pin::pin!(stream.flush())).is_pending());
        stream.flush().await.unwrap();
        assert_eq!(stream.waiting.capacity(), 0);
        let mut seen = [0; 6];
        far.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"event\n");
    }
}
