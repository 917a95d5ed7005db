//! Port-forwards over SPDY, against workloads that answer, do not, and do not listen. Requirement KA-052.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::extract::{WebSocketUpgrade, ws::WebSocket};
use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _, future::BoxFuture};
use mainstay_telemetry::task;
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    task::JoinHandle,
};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use super::{Bounds, Coding, Forward};
use crate::{
    dialing::{Connection, DialError, DialTarget, Dialer},
    spdy::{self, Decoder, Frame, GoAway, ResetCode},
};

/// How long a test waits for a frame: longer than any wait of the server's that it looks at.
const DEADLINE: Duration = Duration::from_secs(150);
const ECHO: u16 = 7;
/// Takes nothing and says nothing.
const STUCK: u16 = 8;
/// Is closed once its first bytes have come.
const RUDE: u16 = 9;
/// Is never connected to.
const SLOW: u16 = 10;

/// Workloads by their ports.
#[derive(Default)]
struct Workloads {
    /// The other ends of those that do nothing.
    kept: Mutex<Vec<DuplexStream>>,
}

impl Dialer for Workloads {
    fn dial(&self, target: DialTarget) -> BoxFuture<'_, Result<Box<dyn Connection>, DialError>> {
        Box::pin(async move {
            let DialTarget::Pod { name, port, .. } = target else {
                panic!("{target:?}");
            };
            let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
            match port {
                ECHO => {
                    task::spawn("echo", async move {
                        let (mut reader, mut writer) = tokio::io::split(theirs);
                        let _ = tokio::io::copy(&mut reader, &mut writer).await;
                        let _ = writer.shutdown().await;
                    });
                }
                STUCK => self.kept.lock().unwrap().push(theirs),
                RUDE => {
                    task::spawn("rude", async move {
                        let _ = theirs.read_u8().await;
                    });
                }
                SLOW => std::future::pending().await,
                _ => {
                    return Err(DialError::NotListening {
                        pod: name,
                        port,
                        hint: "it listens on 7 (echo)".to_owned(),
                    });
                }
            }
            Ok(Box::new(ours) as Box<dyn Connection>)
        })
    }
}

/// A client that speaks SPDY, and the server that it speaks with.
struct Session {
    transport: DuplexStream,
    decoder: Decoder,
    buffer: BytesMut,
    client: spdy::tests::Client,
    next: u32,
    closing: CancellationToken,
    server: JoinHandle<()>,
}

impl Session {
    fn start(bounds: Bounds) -> Self {
        let (transport, theirs) = tokio::io::duplex(64 * 1024);
        let closing = CancellationToken::new();
        let forward = Forward {
            namespace: "shop".to_owned(),
            pod: "orders-1".to_owned(),
            uid: "u".to_owned(),
            dialer: Arc::new(Workloads::default()),
            bounds,
            closing: closing.clone(),
        };
        Self {
            transport,
            decoder: Decoder::new(),
            buffer: BytesMut::new(),
            client: spdy::tests::Client::new(),
            next: 1,
            closing,
            server: task::spawn("forward", async move { forward.over_spdy(theirs).await }),
        }
    }

    async fn say(&mut self, bytes: &[u8]) {
        self.transport.write_all(bytes).await.unwrap();
    }

    async fn stream(&mut self, kind: &str, pair: u32, port: u16) -> u32 {
        let stream = self.next;
        self.next += 2;
        let (pair, port) = (pair.to_string(), port.to_string());
        let headers = [("streamtype", kind), ("port", &port), ("requestid", &pair)];
        let frame = self.client.stream(stream, 0, &headers);
        self.say(&frame).await;
        stream
    }

    /// Opens a pair as kubectl does; the streams for data and for errors.
    async fn pair(&mut self, pair: u32, port: u16) -> (u32, u32) {
        let error = self.stream("error", pair, port).await;
        self.say(&spdy::data(error, &[], true)).await;
        (self.stream("data", pair, port).await, error)
    }

    /// The next frame; `None` at the end.
    async fn hear(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            let read = tokio::time::timeout(DEADLINE, self.transport.read_buf(&mut self.buffer));
            if read.await.expect("the server says something").unwrap() == 0 {
                return None;
            }
        }
    }

    /// What is said on `streams` until each of them has ended; whether by a reset is noted in the text.
    async fn until_ended(&mut self, streams: &[u32]) -> BTreeMap<u32, String> {
        let mut texts: BTreeMap<u32, String> =
            streams.iter().map(|stream| (*stream, String::new())).collect();
        let mut open = streams.to_vec();
        while !open.is_empty() {
            match self.hear().await.expect("the server goes on") {
                Frame::Data { stream, bytes, fin } => {
                    texts
                        .entry(stream)
                        .or_default()
                        .push_str(&String::from_utf8_lossy(&bytes));
                    if fin {
                        open.retain(|other| *other != stream);
                    }
                }
                Frame::Reset { stream } => {
                    texts.entry(stream).or_default().push_str("(reset)");
                    open.retain(|other| *other != stream);
                }
                Frame::Headers { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        texts
    }
}

#[tokio::test]
async fn connections_are_carried_beside_each_other_ka_052() {
    let mut session = Session::start(Bounds::default());
    let mut pairs = Vec::new();
    for pair in 0..20 {
        pairs.push(session.pair(pair, ECHO).await);
    }
    for (data, _) in &pairs {
        session
            .say(&spdy::data(*data, format!("hello {data}").as_bytes(), false))
            .await;
        session.say(&spdy::data(*data, b", and the end", true)).await;
    }
    let streams: Vec<u32> = pairs.iter().flat_map(|(data, error)| [*data, *error]).collect();
    let texts = session.until_ended(&streams).await;
    for (data, error) in pairs {
        assert_eq!(texts[&data], format!("hello {data}, and the end"));
        assert_eq!(texts[&error], "");
    }
    session.say(&spdy::ping(5)).await;
    assert_eq!(session.hear().await, Some(Frame::Ping { id: 5 }));
    session.say(&spdy::go_away(0, GoAway::Done)).await;
    assert_eq!(session.hear().await, None);
    session.server.await.unwrap();
}

#[tokio::test]
async fn a_port_that_is_not_listened_on_is_told_on_the_stream_for_errors_ka_052() {
    let mut session = Session::start(Bounds::default());
    let (data, error) = session.pair(0, 4000).await;
    let texts = session.until_ended(&[error, data]).await;
    assert_eq!(
        texts[&error],
        "error forwarding port 4000 to pod orders-1, uid u: failed to connect to localhost:4000 inside pod \"orders-1\": \
         connection refused: it listens on 7 (echo)"
    );
    assert_eq!(texts[&data], "");
    // The others of the client go on.
    let (data, error) = session.pair(1, ECHO).await;
    session.say(&spdy::data(data, b"hello", true)).await;
    assert_eq!(session.until_ended(&[data, error]).await[&data], "hello");
}

#[tokio::test]
async fn ten_megabytes_go_through_and_back_ka_052() {
    let mut session = Session::start(Bounds::default());
    let (data, error) = session.pair(0, ECHO).await;
    let piece = vec![b'x'; 100_000];
    let (reader, mut writer) = tokio::io::split(session.transport);
    let mut reader = reader;
    let sending = async {
        for _ in 0..100 {
            writer.write_all(&spdy::data(data, &piece, false)).await.unwrap();
        }
        writer.write_all(&spdy::data(data, &[], true)).await.unwrap();
    };
    let receiving = async {
        let (mut bytes, mut largest, mut ended) = (0, 0, false);
        while !ended {
            reader.read_buf(&mut session.buffer).await.unwrap();
            while let Some(frame) = session.decoder.decode(&mut session.buffer).unwrap() {
                match frame {
                    Frame::Data {
                        stream, bytes: piece, ..
                    } if stream == data => {
                        bytes += piece.len();
                        largest = largest.max(piece.len());
                    }
                    Frame::Data { stream, fin, .. } if stream == error => ended = fin,
                    _ => {}
                }
            }
        }
        (bytes, largest)
    };
    let ((), (bytes, largest)) = futures::future::join(sending, receiving).await;
    assert_eq!(bytes, 10_000_000);
    assert!(largest <= super::PIECE, "{largest}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_its_other_one_is_given_up_ka_052() {
    let mut session = Session::start(Bounds::default());
    let error = session.stream("error", 3, ECHO).await;
    let data = session.stream("data", 4, ECHO).await;
    let texts = session.until_ended(&[error, data]).await;
    assert_eq!(texts[&error], "(request=3) timed out waiting for streams");
    assert_eq!(texts[&data], "(reset)");
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_cannot_be_reached_in_time_is_told_ka_052() {
    let mut session = Session::start(Bounds::default());
    let (data, error) = session.pair(0, SLOW).await;
    let texts = session.until_ended(&[error, data]).await;
    assert!(
        texts[&error].ends_with("connecting failed: timed out"),
        "{texts:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_workload_that_takes_nothing_holds_the_others_up_for_a_bounded_time_ka_052() {
    let mut session = Session::start(Bounds::default());
    let (stuck, _) = session.pair(0, STUCK).await;
    let (data, error) = session.pair(1, ECHO).await;
    let piece = vec![0; 60_000];
    let before = tokio::time::Instant::now();
    for _ in 0..20 {
        session.say(&spdy::data(stuck, &piece, false)).await;
    }
    session.say(&spdy::data(data, b"hello", true)).await;
    let texts = session.until_ended(&[stuck, data, error]).await;
    assert_eq!(texts[&data], "hello");
    assert_eq!(texts[&stuck], "(reset)");
    assert!(before.elapsed() >= Bounds::default().stall);
    assert!(before.elapsed() < 2 * Bounds::default().stall);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_end_is_not_waited_for_for_ever_ka_052() {
    let mut session = Session::start(Bounds::default());
    let (data, error) = session.pair(0, RUDE).await;
    session.say(&spdy::data(data, b"x", false)).await;
    let before = tokio::time::Instant::now();
    let texts = session.until_ended(&[data, error]).await;
    assert_eq!(texts[&error], "");
    assert!(before.elapsed() <= Bounds::default().linger + Duration::from_secs(1));
}

#[tokio::test]
async fn streams_that_are_wrong_or_too_many_are_refused_and_the_rest_goes_on_ka_052() {
    let mut session = Session::start(Bounds {
        connections: 2,
        ..Bounds::default()
    });
    let (first, _) = session.pair(0, STUCK).await;
    let (_second, _) = session.pair(1, STUCK).await;
    let third = session.stream("error", 2, ECHO).await;
    assert_eq!(session.until_ended(&[third]).await[&third], "(reset)");
    // One that is given back makes room for another.
    session.say(&spdy::reset(first, ResetCode::Cancel)).await;
    let (data, error) = session.pair(3, ECHO).await;
    session.say(&spdy::data(data, b"hello", true)).await;
    assert_eq!(session.until_ended(&[data, error]).await[&data], "hello");
    for (kind, port, stream) in [
        ("data", "0", 101),
        ("data", "65536", 103),
        ("other", "7", 105),
        ("data", "", 107),
        ("data", "7", 4),
        ("data", "7", 1),
    ] {
        let frame = session.client.stream(
            stream,
            0,
            &[("streamtype", kind), ("port", port), ("requestid", "9")],
        );
        session.say(&frame).await;
        assert_eq!(session.until_ended(&[stream]).await[&stream], "(reset)");
    }
}

#[tokio::test]
async fn an_older_client_names_no_pairs_ka_052() {
    let mut session = Session::start(Bounds::default());
    for (stream, kind) in [(1, "error"), (3, "data")] {
        let frame = session
            .client
            .stream(stream, 0, &[("streamtype", kind), ("port", "7")]);
        session.say(&frame).await;
    }
    session.say(&spdy::data(3, b"hello", true)).await;
    assert_eq!(session.until_ended(&[1, 3]).await[&3], "hello");
}

#[tokio::test]
async fn a_client_that_is_not_understood_and_the_end_of_the_server_are_told_ka_052() {
    let mut session = Session::start(Bounds::default());
    // A ping of version 2.
    session.say(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]).await;
    assert_eq!(session.hear().await, Some(Frame::GoAway));
    assert_eq!(session.hear().await, None);
    let mut session = Session::start(Bounds::default());
    let (data, _) = session.pair(0, ECHO).await;
    session.say(&spdy::data(data, b"hello", false)).await;
    while !matches!(session.hear().await, Some(Frame::Data { .. })) {}
    session.closing.cancel();
    // What was on its way comes before it, in as many pieces as it was heard in.
    let mut heard = session.hear().await;
    while matches!(heard, Some(Frame::Data { .. })) {
        heard = session.hear().await;
    }
    assert_eq!(heard, Some(Frame::GoAway));
    assert_eq!(session.hear().await, None);
}

/// A WebSocket to `serve`, which is given the other end.
async fn websocket<F>(serve: impl Fn(Forward, WebSocket) -> F + Clone + Send + Sync + 'static) -> Socket
where
    F: Future<Output = ()> + Send + 'static,
{
    let forward = Forward {
        namespace: "shop".to_owned(),
        pod: "orders-1".to_owned(),
        uid: "u".to_owned(),
        dialer: Arc::new(Workloads::default()),
        bounds: Bounds::default(),
        closing: CancellationToken::new(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = axum::Router::new().fallback(move |upgrade: WebSocketUpgrade| {
        let (serve, forward) = (serve.clone(), forward.clone());
        async move { upgrade.on_upgrade(move |socket| serve(forward, socket)) }
    });
    task::spawn("server", async move { axum::serve(listener, router).await });
    tokio_tungstenite::connect_async(format!("ws://{address}/"))
        .await
        .unwrap()
        .0
}

type Socket = tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// What comes next, which is to come soon.
async fn message(socket: &mut Socket) -> Message {
    tokio::time::timeout(DEADLINE, socket.next())
        .await
        .expect("the server says something")
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn spdy_goes_through_a_websocket_however_its_messages_are_cut_ka_052() {
    let mut socket = websocket(|forward, socket| async move { forward.over_tunnel(socket).await }).await;
    let mut client = spdy::tests::Client::new();
    let mut said = Vec::new();
    for (stream, kind) in [(1, "error"), (3, "data")] {
        said.extend(client.stream(
            stream,
            0,
            &[("streamtype", kind), ("port", "7"), ("requestid", "0")],
        ));
    }
    said.extend(spdy::data(3, &[b'x'; 10_000], true));
    for piece in said.chunks(999) {
        socket.send(Message::binary(piece.to_vec())).await.unwrap();
    }
    let (mut decoder, mut buffer, mut echoed, mut open) = (Decoder::new(), BytesMut::new(), 0, 2);
    while open > 0 {
        let Message::Binary(bytes) = message(&mut socket).await else {
            panic!("no bytes");
        };
        buffer.extend_from_slice(&bytes);
        while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
            if let Frame::Data { bytes, fin, .. } = frame {
                echoed += bytes.len();
                open -= usize::from(fin);
            }
        }
    }
    assert_eq!(echoed, 10_000);
    let end = spdy::go_away(0, GoAway::Done);
    socket.send(Message::Binary(end)).await.unwrap();
    assert!(message(&mut socket).await.is_close());
}

#[tokio::test]
async fn channels_carry_ports_and_what_went_wrong_in_both_codings_ka_052() {
    for coding in [Coding::Binary, Coding::Base64] {
        let mut socket = websocket(move |forward, socket| async move {
            forward.over_channels(socket, &[RUDE, 4000], coding).await;
        })
        .await;
        // For a channel that is not there, for one that is not listened to, and nothing at all.
        for strange in [coding.message(9, b"x"), coding.message(1, b"x"), Bytes::new()] {
            socket.send(Message::Binary(strange)).await.unwrap();
        }
        socket
            .send(Message::Binary(coding.message(0, b"hello")))
            .await
            .unwrap();
        let mut heard: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        loop {
            let bytes = match message(&mut socket).await {
                Message::Binary(bytes) if coding == Coding::Binary => bytes,
                Message::Text(text) if coding == Coding::Base64 => text.into(),
                Message::Close(_) => break,
                other => panic!("{other:?}"),
            };
            let (channel, bytes) = coding.read(&bytes).unwrap();
            heard.entry(channel).or_default().extend(bytes);
        }
        let port = |port: u16| port.to_le_bytes().to_vec();
        assert_eq!(
            (&heard[&0], &heard[&1], &heard[&2]),
            (&port(RUDE), &port(RUDE), &port(4000))
        );
        let failure = String::from_utf8_lossy(&heard[&3][2..]).into_owned();
        assert!(failure.contains("it listens on 7 (echo)"), "{failure}");
    }
}

#[test]
fn a_message_is_read_as_it_is_written_ka_052() {
    for coding in [Coding::Binary, Coding::Base64] {
        let message = coding.message(3, b"\x00hello\xff");
        assert_eq!(
            coding.read(&message),
            Some((3, Bytes::from_static(b"\x00hello\xff")))
        );
        assert_eq!(coding.read(&Bytes::new()), None);
    }
    assert_eq!(&Coding::Base64.message(1, b"x")[..], b"1eA==");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever a client says, the server ends with it, and does not panic.
    #[test]
    fn noise_ends_a_session_and_nothing_else_ka_052(
        noise in proptest::collection::vec(any::<u8>(), 0..300), opened: bool, coding: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut session = Session::start(Bounds::default());
            if opened {
                session.pair(0, ECHO).await;
            }
            // A server that has ended already reads no more.
            let _ = session.transport.write_all(&noise).await;
            let _ = session.transport.shutdown().await;
            while let Ok(Some(_)) = session.decoder.decode(&mut session.buffer) {}
            let mut rest = Vec::new();
            let _ = session.transport.read_to_end(&mut rest).await;
            session.server.await.unwrap();
        });
        let coding = if coding { Coding::Binary } else { Coding::Base64 };
        let _ = coding.read(&Bytes::from(noise));
    }
}
