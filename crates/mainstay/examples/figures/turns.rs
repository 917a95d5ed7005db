//! Turns: what an agent adds to its model, alone and under load.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{SinkExt, StreamExt, future::try_join_all};
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::Barrier};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use crate::{
    raw::{Raw, bodies},
    table::{milliseconds, percentile},
    world::{ANSWERS, PIECE_DELAY, PIECES, World},
};

/// Turns of each connection that are timed, where it waits for each.
const REPEATED: usize = 12;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn connect(endpoints: &Value, agent: &str) -> Result<Socket> {
    let text = |field: &str| endpoints.get(field).and_then(Value::as_str).unwrap_or_default();
    let url = format!(
        "{}/agents/default/{agent}/ws",
        text("http").replacen("http", "ws", 1)
    );
    let mut request = url.into_client_request()?;
    request
        .headers_mut()
        .insert("authorization", format!("Bearer {}", text("token")).parse()?);
    let (mut socket, _) = connect_async(request).await?;
    socket.next().await.context("no greeting")??;
    Ok(socket)
}

/// One turn, from sending the message to the end of the answer.
pub(crate) async fn turn(socket: &mut Socket, message: &str) -> Result<Duration> {
    let began = Instant::now();
    let frame = json!({"type": "message", "content": message}).to_string();
    socket.send(Message::text(frame)).await?;
    loop {
        let frame = socket.next().await.context("the connection closed")??;
        let Message::Text(frame) = frame else { continue };
        // Looked at as text: parsing would be most of what this program does.
        if frame.contains("\"type\":\"done\"") {
            return Ok(began.elapsed());
        }
        if frame.contains("\"type\":\"error\"") {
            bail!("{frame}");
        }
    }
}

async fn raw_turn(raw: &mut Raw, bodies: &[String]) -> Result<Duration> {
    let began = Instant::now();
    for body in bodies {
        raw.exchange("POST", "/v1/chat/completions", body).await?;
    }
    Ok(began.elapsed())
}

/// Added latency of a turn with one model call that answers at once, each connection with one turn at a time.
pub(crate) async fn added(world: &World, rows: &mut Vec<String>) -> Result<()> {
    for together in [1, 16, 64, 256] {
        let raw = raw_times(world.model_address, together).await?;
        let ours = our_times(world, together).await?;
        let added = |share| percentile(&ours, share).saturating_sub(percentile(&raw, share));
        rows.push(format!(
            "| {together} | {} | {} | {} | {} | {} | {} |",
            milliseconds(percentile(&raw, 0.5)),
            milliseconds(percentile(&raw, 0.99)),
            milliseconds(percentile(&ours, 0.5)),
            milliseconds(percentile(&ours, 0.99)),
            milliseconds(added(0.5)),
            milliseconds(added(0.99)),
        ));
    }
    Ok(())
}

async fn raw_times(model: SocketAddr, together: usize) -> Result<Vec<Duration>> {
    let bodies = Arc::new(bodies("hello", 0));
    let begin = Arc::new(Barrier::new(together));
    let clients = (0..together).map(|_| {
        let (bodies, begin) = (Arc::clone(&bodies), Arc::clone(&begin));
        run(async move {
            let mut raw = Raw::connect(model).await?;
            raw_turn(&mut raw, &bodies).await?;
            begin.wait().await;
            let mut times = Vec::new();
            for _ in 0..REPEATED {
                times.push(raw_turn(&mut raw, &bodies).await?);
            }
            Ok(times)
        })
    });
    Ok(try_join_all(clients).await?.concat())
}

async fn our_times(world: &World, together: usize) -> Result<Vec<Duration>> {
    let begin = Arc::new(Barrier::new(together));
    let clients = (0..together).map(|number| {
        let (endpoints, begin) = (world.endpoints.clone(), Arc::clone(&begin));
        run(async move {
            let mut socket = connect(&endpoints, &World::agent(number)).await?;
            turn(&mut socket, "hello").await?;
            begin.wait().await;
            let mut times = Vec::new();
            for _ in 0..REPEATED {
                times.push(turn(&mut socket, "hello").await?);
            }
            Ok(times)
        })
    });
    Ok(try_join_all(clients).await?.concat())
}

/// Runs on a task of its own, so that two threads serve the load.
async fn run<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    mainstay_telemetry::task::spawn("load", work).await?
}

/// Streams that begin in an open loop: evenly over the length of a turn, whatever became of the earlier ones. Gives the
/// connections, which stay open.
pub(crate) async fn streams(world: &World, count: usize, rows: &mut Vec<String>) -> Result<Vec<Socket>> {
    let ideal = PIECE_DELAY * PIECES * ANSWERS;
    let raw = raw_streams(world.model_address, count, ideal).await?;

    let mut sockets = Vec::with_capacity(count);
    for number in 0..count {
        sockets.push(connect(&world.endpoints, &World::agent(number)).await?);
    }
    let (before, model_before) = (world.server.processor_time()?, world.model.processor_time()?);
    let began = Instant::now();
    let turns = sockets.into_iter().enumerate().map(|(number, mut socket)| {
        let wait = ideal.mul_f64(number as f64 / count as f64);
        run(async move {
            tokio::time::sleep(wait).await;
            let took = turn(&mut socket, "stream").await?;
            Ok((socket, took))
        })
    });
    let resident = async {
        tokio::time::sleep(ideal).await;
        world.server.resident()
    };
    let (finished, resident) = tokio::join!(try_join_all(turns), resident);
    let wall = began.elapsed();
    let cores = |used: Duration| used.as_secs_f64() / wall.as_secs_f64();
    let ours = cores(world.server.processor_time()?.saturating_sub(before));
    let model = cores(world.model.processor_time()?.saturating_sub(model_before));
    let (sockets, times): (Vec<Socket>, Vec<Duration>) = finished?.into_iter().unzip();
    let over = |time: Duration| 100.0 * (time.as_secs_f64() / ideal.as_secs_f64() - 1.0);
    rows.push(format!(
        "| {count} | {:.2} s | {:.2} s (+{:.1} %) | {:.2} s | {:.2} s (+{:.1} %) | {ours:.2} | {model:.2} | {} MiB |",
        ideal.as_secs_f64(),
        percentile(&raw, 0.99).as_secs_f64(),
        over(percentile(&raw, 0.99)),
        percentile(&times, 0.5).as_secs_f64(),
        percentile(&times, 0.99).as_secs_f64(),
        over(percentile(&times, 0.99)),
        resident? / 1024,
    ));
    Ok(sockets)
}

async fn raw_streams(model: SocketAddr, count: usize, ideal: Duration) -> Result<Vec<Duration>> {
    let bodies = Arc::new(bodies("stream", u64::from(ANSWERS) - 1));
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Raw::connect(model).await?);
    }
    let turns = clients.into_iter().enumerate().map(|(number, mut raw)| {
        let bodies = Arc::clone(&bodies);
        let wait = ideal.mul_f64(number as f64 / count as f64);
        run(async move {
            tokio::time::sleep(wait).await;
            raw_turn(&mut raw, &bodies).await
        })
    });
    try_join_all(turns).await
}

/// What sessions cost that nothing happens in: with their connections open, and without.
pub(crate) async fn parked(world: &World, rows: &mut Vec<String>) -> Result<()> {
    const SESSIONS: usize = 1_000;
    let visit = async |count: usize| -> Result<()> {
        for number in 0..count {
            let mut socket = connect(&world.endpoints, &World::agent(number)).await?;
            turn(&mut socket, "hello").await?;
        }
        Ok(())
    };
    visit(200).await?;
    let before = world.server.resident()?;
    visit(SESSIONS).await?;
    let left = world.server.resident()?;
    let mut open = Vec::new();
    for number in 0..SESSIONS {
        let mut socket = connect(&world.endpoints, &World::agent(number)).await?;
        turn(&mut socket, "hello").await?;
        open.push(socket);
    }
    let connected = world.server.resident()?;
    let each = |more: u64, less: u64| more.saturating_sub(less) as f64 / SESSIONS as f64;
    rows.push(format!(
        "| session without a connection | {:.1} KiB |",
        each(left, before)
    ));
    rows.push(format!(
        "| session with an idle connection | {:.1} KiB |",
        each(connected, left)
    ));
    Ok(())
}
