//! Limits, liveness and the way in (OM-505, OM-527, contract 4).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use mainstay_agent::SessionHandle;
use mainstay_telemetry::metrics::Metrics;
use mainstay_telemetry::task;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Message;

use super::support::*;
use crate::facade::{FacadeLimits, FacadeOptions, router};
use crate::front_door::{self, Access, AgentDirectory, FrontDoor, Lookup};

async fn refused(url: &str) -> (u16, Value) {
    match Client::open(url, &[]).await {
        Ok(_) => panic!("{url} was upgraded"),
        Err((status, body)) => (status, serde_json::from_str(&body).unwrap_or(Value::Null)),
    }
}

#[tokio::test]
async fn om_505_the_query_must_name_this_agent_where_it_names_one() {
    let served = Served::new(vec![]).await;
    served
        .connect("?agent=helpdesk&namespace=default&workspace=w&device_id=d")
        .await;
    let base = format!("ws://{}", served.address);
    let path = format!("{base}/api/agents/default/helpdesk/ws");
    assert!(Client::open(&path, &[]).await.is_ok());
    for (path, status, error) in [
        ("/ws?agent=other", 404, "agent_not_found"),
        ("/ws?agent=helpdesk&namespace=shop", 404, "agent_not_found"),
        ("/api/agents/default/other/ws", 404, "agent_not_found"),
        ("/ws?after=soon", 400, "bad_query"),
        ("/ws?events=maybe", 400, "bad_query"),
        ("/nowhere", 404, "not_found"),
    ] {
        let (got, body) = refused(&format!("{base}{path}")).await;
        assert_eq!((got, &body["error"]), (status, &json!(error)), "{path}");
    }
}

#[tokio::test]
async fn om_527_connections_over_the_limit_and_while_draining_are_answered_with_503() {
    let limits = FacadeLimits {
        connections: 1,
        ..FacadeLimits::default()
    };
    let gate = Arc::new(Notify::new());
    let script = vec![text("Hello "), Say::Wait(gate.clone()), text("world")];
    let served = Served::with(vec![script], json!({}), limits).await;
    let url = format!("ws://{}/ws", served.address);
    let (client, _) = served.connect("").await;
    assert_eq!(refused(&url).await.0, 503);
    drop(client);
    served.connections(0).await;
    let (mut client, _) = served.connect("").await;
    client.say("hi").await;
    client.until("chunk").await;
    let drained = task::spawn("drain", {
        let engine = served.engine.clone();
        async move { engine.drain(PATIENCE).await }
    });
    while !served.engine.is_draining() {
        tokio::task::yield_now().await;
    }
    let (status, body) = refused(&url).await;
    assert_eq!((status, &body["error"]), (503, &json!("draining")), "OM-503");
    gate.notify_one();
    let (frames, code) = client.until_closed().await;
    assert_eq!(
        frames.last().unwrap()["content"],
        "Hello world",
        "the running turn is shown to its end"
    );
    assert_eq!(code, Some(1001));
    assert!(drained.await.unwrap());
}

#[tokio::test]
async fn om_527_a_message_over_the_limit_is_an_error_that_names_it_and_ends_the_connection() {
    let limits = FacadeLimits {
        message_bytes: 1_000,
        ..FacadeLimits::default()
    };
    let served = Served::with(vec![vec![text("ok")]], json!({}), limits).await;
    let (mut client, _) = served.connect("").await;
    client.say(&"x".repeat(900)).await;
    client.until("done").await;
    client.say(&"x".repeat(2_000)).await;
    let (frames, code) = client.until_closed().await;
    assert_eq!(frames[0]["error"]["code"], "INVALID_MESSAGE");
    assert!(
        frames[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains("1000 bytes"),
        "{frames:?}"
    );
    assert_eq!(code, Some(1009));
}

#[tokio::test]
async fn rfc_6455_frames_that_break_the_protocol_end_the_connection_with_the_right_code_and_the_cause() {
    use tokio::io::AsyncWriteExt;

    let served = Served::new(vec![]).await;
    // Masked with zeros, except the first.
    let long_ping = [b"\x89\xfe\0\x7e\0\0\0\0".as_slice(), &[0; 126]].concat();
    let cases: [(&str, &[u8], u16, &str); 10] = [
        ("unmasked", b"\x81\x02hi", 1002, "unmasked"),
        ("reserved bit", b"\xc1\x82\0\0\0\0hi", 1002, "Reserved bits"),
        (
            "text that is not UTF-8",
            b"\x81\x82\0\0\0\0\xff\xfe",
            1007,
            "not UTF-8",
        ),
        ("fragmented ping", b"\x09\x80\0\0\0\0", 1002, "Fragmented control"),
        (
            "continuation first",
            b"\x80\x80\0\0\0\0",
            1002,
            "nothing to continue",
        ),
        (
            "text within a message",
            b"\x01\x80\0\0\0\0\x81\x80\0\0\0\0",
            1002,
            "waiting for more fragments",
        ),
        ("unknown opcode", b"\x83\x80\0\0\0\0", 1002, "invalid opcode"),
        ("long ping", &long_ping, 1002, "too big"),
        (
            "close of one byte",
            b"\x88\x81\0\0\0\0\x03",
            1002,
            "close sequence",
        ),
        (
            "close reason that is not UTF-8",
            b"\x88\x83\0\0\0\0\x03\xe8\xff",
            1007,
            "not UTF-8",
        ),
    ];
    for (name, bytes, expected, cause) in cases {
        let (mut client, _) = served.connect("").await;
        client.socket.get_mut().write_all(bytes).await.unwrap();
        let (frames, code) = client.until_closed().await;
        let error = &frames.first().unwrap_or(&Value::Null)["error"];
        assert_eq!(
            (code, &error["code"]),
            (Some(expected), &json!("INVALID_MESSAGE")),
            "{name}"
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(cause), "{name}: {message}");
        assert!(
            !message.contains("bytes") || name == "long ping",
            "{name}: {message}"
        );
    }
    served.connections(0).await;
}

#[tokio::test]
async fn om_527_messages_over_the_rate_are_refused_and_the_connection_stays() {
    let limits = FacadeLimits {
        message_burst: 3,
        messages_per_second: 1,
        ..FacadeLimits::default()
    };
    let served = Served::with(vec![], json!({}), limits).await;
    let (mut client, _) = served.connect("").await;
    for _ in 0..5 {
        client.send(json!({"type": "dance"})).await;
    }
    let mut codes = Vec::new();
    for _ in 0..5 {
        codes.push(client.next().await["error"]["code"].as_str().unwrap().to_owned());
    }
    assert_eq!(codes[..3], ["INVALID_MESSAGE"; 3]);
    assert!(codes[3..].contains(&"RATE_LIMITED".to_owned()), "{codes:?}");
}

#[tokio::test]
async fn om_527_the_server_pings_and_gives_up_a_client_that_is_silent() {
    let limits = FacadeLimits {
        ping: Duration::from_millis(20),
        pong_wait: Duration::from_millis(200),
        ..FacadeLimits::default()
    };
    let served = Served::with(vec![], json!({}), limits).await;
    let (mut client, _) = served.connect("").await;
    for _ in 0..30 {
        let received = client.received().await;
        assert!(matches!(received, Some(Ok(Message::Ping(_)))), "{received:?}");
    }
    // This library answers pings only while it is read from; from here on the client is silent.
    served.connections(0).await;
}

/// Waits until the session's newest event is the end of a turn.
async fn turn_ended(session: &SessionHandle) {
    let ended = async {
        while session.last_seq() == 0 || session.running_turn().is_some() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("the turn ends");
}

#[tokio::test]
async fn a_client_that_reads_too_slowly_loses_its_connection_and_the_turn_goes_on() {
    let limits = FacadeLimits {
        outgoing_frames: 8,
        write_wait: Duration::from_millis(300),
        ..FacadeLimits::default()
    };
    let script = (0..60).map(|_| Say::Text("x".repeat(64 * 1024))).collect();
    let served = Served::with(vec![script], json!({}), limits).await;
    let mut client = Client::narrow(&format!("ws://{}/ws?events=1", served.address), served.address).await;
    let connected = client.next().await;
    client.say("flood me").await;
    // Nothing is read from here on: the socket's buffers fill, then the queue.
    served.connections(0).await;
    assert_eq!(served.options.metrics.too_slow.get(), 1);
    let id = connected["session_id"].as_str().unwrap().parse().unwrap();
    let session = served.engine.open_session(Some(id)).await.unwrap();
    turn_ended(&session).await;
    let (mut again, _) = served.connect(&format!("?resume={id}&events=1&after=0")).await;
    let done = again.until("event").await;
    assert_eq!(done.last().unwrap()["event"]["type"], "turn.started");
    let turn = done.last().unwrap()["event"]["turn"].as_str().unwrap().to_owned();
    let stored = session.events_of(&turn).await.unwrap();
    assert_eq!(stored.last().unwrap().kind, "turn.done");
}

struct One(Router);

impl AgentDirectory for One {
    fn find(&self, namespace: &str, name: &str) -> Lookup {
        match (namespace, name) {
            ("default", "helpdesk") => Lookup::Ready(self.0.clone()),
            _ => Lookup::Absent,
        }
    }
}

/// The front door in front of an agent, as on a laptop.
async fn behind_the_door(scripts: Vec<Vec<Say>>) -> (std::net::SocketAddr, Served) {
    let served = Served::new(scripts).await;
    let facade = router(served.engine.clone(), FacadeOptions::default());
    let door = front_door::router(FrontDoor {
        agents: Arc::new(One(facade)),
        access: Access::loopback("correct horse".to_owned().into()),
        metrics: Metrics::new(),
        version: "0",
        routes: Router::new(),
        open_routes: Router::new(),
    });
    (listen(door).await, served)
}

#[tokio::test]
async fn contract_4_a_websocket_goes_through_the_front_door_in_process() {
    let (address, served) = behind_the_door(vec![vec![text("hello")], vec![text("again")]]).await;
    let own = format!("http://{address}");
    for (path, headers) in [
        ("/agents/default/helpdesk/ws", vec![]),
        (
            "/ws?agent=helpdesk",
            vec![
                ("origin", own.as_str()),
                ("authorization", "Bearer correct horse"),
            ],
        ),
    ] {
        let mut client = Client::open(&format!("ws://{address}{path}"), &headers)
            .await
            .unwrap();
        client.next().await;
        client.say("hi").await;
        client.until("done").await;
    }
    assert_eq!(served.model.requests.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn contract_4_a_page_of_another_origin_cannot_open_the_websocket() {
    let (address, served) = behind_the_door(vec![]).await;
    let url = format!("ws://{address}/agents/default/helpdesk/ws");
    for (headers, status, error) in [
        (
            vec![("origin", "https://evil.example")],
            403,
            "origin_not_allowed",
        ),
        (vec![("origin", "null")], 403, "origin_not_allowed"),
        (vec![("host", "evil.example")], 403, "host_not_allowed"),
        (vec![("authorization", "Bearer wrong")], 401, "unauthorized"),
    ] {
        let (got, body) = Client::open(&url, &headers).await.err().expect("it is refused");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((got, &body["error"]), (status, &json!(error)));
    }
    served.connections(0).await;
    let (got, body) = Client::open(&format!("ws://{address}/agents/default/nobody/ws"), &[])
        .await
        .err()
        .unwrap();
    assert_eq!(got, 404);
    assert!(
        body.contains("there is no agent `nobody` in namespace `default`"),
        "{body}"
    );
}

#[tokio::test]
async fn a_client_that_reads_gets_a_long_replay_whole_whatever_the_queue_holds() {
    let limits = FacadeLimits {
        outgoing_frames: 2,
        ..FacadeLimits::default()
    };
    let script = (0..3_000).map(|_| text("x")).collect();
    let served = Served::with(vec![script], json!({}), limits).await;
    let (mut client, connected) = served.connect("").await;
    client.say("hi").await;
    let frames = client.until("done").await;
    let streamed: usize = frames
        .iter()
        .filter(|frame| frame["type"] == "chunk")
        .map(|frame| frame["content"].as_str().unwrap().len())
        .sum();
    assert_eq!(streamed, 3_000);
    let resume = connected["session_id"].as_str().unwrap();
    let (mut again, _) = served
        .connect(&format!("?resume={resume}&events=1&after=0"))
        .await;
    while again.next().await["event"]["type"] != "turn.done" {}
}
