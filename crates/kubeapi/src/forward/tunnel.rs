//! SPDY in the binary messages of a WebSocket: the messages are a stream of bytes, wherever they are cut.

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::BytesMut;
use futures::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Forward, LAST_WORDS, PIECE};

/// Serves one client.
pub(super) async fn run(forward: &Forward, socket: WebSocket) {
    let idle = forward.bounds.idle;
    let (mut sink, mut stream) = socket.split();
    let (ours, theirs) = tokio::io::duplex(2 * PIECE);
    let (mut said, mut heard) = tokio::io::split(ours);
    let inwards = async {
        // Whoever sends anything else does not speak this, and is taken for gone.
        while let Some(Ok(message)) = stream.next().await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Text(_) | Message::Close(_) => break,
            };
            if heard.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // The session may be over already.
        let _ = heard.shutdown().await;
    };
    let outwards = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(PIECE);
            match said.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let message = Message::Binary(buffer.split().freeze());
            match tokio::time::timeout(idle, sink.send(message)).await {
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
    };
    let mut carried = std::pin::pin!(futures::future::join(forward.over_spdy(theirs), outwards));
    tokio::select! {
        ((), ()) = &mut carried => {}
        () = inwards => {
            // The client has gone: whoever is not done by then is dropped.
            let _ = tokio::time::timeout(LAST_WORDS, carried).await;
        }
    }
}
