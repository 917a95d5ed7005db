//! Takes the whole-program figures of `benches/RESULTS.md`: `benches/run`, or
//! `cargo run --profile laptop -p mainstay --example figures -- bin/mainstay`.
//!
//! Everything runs in a temporary world on free loopback ports, and is stopped again.
#![allow(clippy::print_stdout, reason = "a program whose output is tables")]

mod mcp;
mod parts;
mod raw;
mod table;
mod turns;
mod world;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

/// Starts that are timed.
const STARTS: usize = 10;
/// Turns that are timed.
const TURNS: usize = 100;
/// The delay before each piece of text in the help desk's scenario.
const CHUNK_DELAY: Duration = Duration::from_millis(20);

#[tokio::main]
async fn main() -> Result<()> {
    let binary = PathBuf::from(
        std::env::args()
            .nth(1)
            .unwrap_or_else(|| "bin/mainstay".to_owned()),
    );
    allow_files()?;
    if std::env::args().nth(2).as_deref() == Some("calls") {
        return calls().await;
    }
    let world = tempfile::tempdir()?;
    let mut rows = Vec::new();

    let mut fresh = Vec::new();
    for number in 0..STARTS {
        let data = world.path().join(format!("fresh{number}"));
        let (server, took) = start(&binary, &data)?;
        fresh.push(took);
        server.stop()?;
    }
    rows.push(row("process start to agent Running, new data directory", &fresh));

    let data = world.path().join("kept");
    start(&binary, &data)?.0.stop()?;
    let mut again = Vec::new();
    for _ in 0..STARTS {
        let (server, took) = start(&binary, &data)?;
        again.push(took);
        server.stop()?;
    }
    rows.push(row(
        "process start to agent Running, data of an earlier run",
        &again,
    ));

    let (server, _) = start(&binary, &data)?;
    let endpoints: Value = serde_json::from_slice(&std::fs::read(data.join("endpoints.json"))?)?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let idle = server.resident()?;
    let (plain, plain_raw) = turns(&endpoints, "hello", TURNS).await?;
    rows.push(row(
        "turn of one model call: added to the model's own delays",
        &plain,
    ));
    rows.push(row("  of it before the first piece of text", &plain_raw));
    let (tool, _) = turns(&endpoints, "Where is order 1017?", TURNS).await?;
    rows.push(row(
        "turn with a tool call (two model calls, policy, HTTP): added",
        &tool,
    ));
    let after = server.resident()?;
    server.stop()?;

    let (syncs, steps) = (world.path().join("steps"), &mut Vec::new());
    std::fs::create_dir_all(&syncs)?;
    parts::durable_steps(&syncs, steps).await?;
    let load = world::World::start(&binary, world.path()).await?;
    let (added, streams, parked) = (&mut Vec::new(), &mut Vec::new(), &mut Vec::new());
    turns::added(&load, added).await?;
    turns::parked(&load, parked).await?;
    for count in [100, 250, 500, 1_000, 2_000] {
        drop(turns::streams(&load, count, streams).await?);
    }
    drop(load);

    println!("| figure | min | median | p99 | max |\n|---|---|---|---|---|");
    rows.iter().for_each(|row| println!("{row}"));
    println!(
        "| resident memory, idle with the help desk | | {:.1} MiB | | |",
        mebibytes(idle)
    );
    println!(
        "| resident memory after {} turns | | {:.1} MiB | | |",
        2 * TURNS,
        mebibytes(after)
    );
    table::print(
        "Added latency of a turn over the raw model",
        "| connections | raw p50 | raw p99 | agent p50 | agent p99 | added p50 | added p99 |",
        added,
    );
    table::print(
        "Streams with two tool calls, in an open loop",
        "| streams | ideal | raw p99 | agent p50 | agent p99 | cores | cores of the mock | memory |",
        streams,
    );
    calls().await?;
    table::print("Memory of idle sessions", "| state | each |", parked);
    table::print(
        "Durable steps",
        "| sessions | syncs/s of a file | steps/s | transactions/s | steps a sync | rows a step |",
        steps,
    );
    Ok(())
}

/// The calls of tools, which need nothing of the rest: `figures BINARY calls` takes them alone.
async fn calls() -> Result<()> {
    let rows = &mut Vec::new();
    parts::tool_calls(world::service().await?, rows).await?;
    table::print(
        "A tool call over the same request by hand",
        "| tool | raw p50 | raw p99 | ours p50 | ours p99 | added p50 | added p99 |",
        rows,
    );
    Ok(())
}

/// Thousands of connections need as many files, here and in what is started from here.
fn allow_files() -> Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    Ok(rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        wanted,
    )?)
}

fn mebibytes(kibibytes: u64) -> f64 {
    kibibytes as f64 / 1024.0
}

/// Starts the help desk in the foreground; gives the time until the agent is Running.
fn start(binary: &Path, data: &Path) -> Result<(world::Process, Duration)> {
    let began = Instant::now();
    let mut command = Command::new(binary);
    command
        .args([
            "up",
            "--listen",
            "127.0.0.1:0",
            "--kube-listen",
            "127.0.0.1:0",
            "--data",
        ])
        .arg(data)
        .arg("examples/helpdesk");
    let (server, _) = world::Process::start(&mut command, "helpdesk is Running")?;
    Ok((server, began.elapsed()))
}

/// Times turns over one connection. The ideal of a turn is the scenario's delay for each piece of text; what is beyond is
/// what we add.
async fn turns(endpoints: &Value, message: &str, count: usize) -> Result<(Vec<Duration>, Vec<Duration>)> {
    let mut socket = turns::connect(endpoints, "helpdesk").await?;
    let mut added = Vec::new();
    let mut first = Vec::new();
    // The first turns warm up connections and are not counted.
    for number in 0..count + 5 {
        let began = Instant::now();
        socket
            .send(Message::text(
                json!({ "type": "message", "content": message }).to_string(),
            ))
            .await
            .ok();
        let mut pieces = 0_u32;
        let mut first_piece = None;
        loop {
            let Some(frame) = socket.next().await else {
                bail!("the connection closed")
            };
            let Message::Text(frame) = frame? else { continue };
            let frame: Value = serde_json::from_str(&frame)?;
            match frame.get("type").and_then(Value::as_str) {
                Some("chunk") => {
                    pieces += 1;
                    first_piece.get_or_insert_with(|| began.elapsed());
                }
                Some("done") => break,
                Some("error") => bail!("{frame}"),
                _ => {}
            }
        }
        if number >= 5 {
            added.push(began.elapsed().saturating_sub(CHUNK_DELAY * pieces));
            first.push(first_piece.unwrap_or_default().saturating_sub(CHUNK_DELAY));
        }
    }
    Ok((added, first))
}

fn row(name: &str, times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let at = |share: f64| {
        let index = ((sorted.len() as f64 - 1.0) * share).round() as usize;
        let millis = sorted.get(index).copied().unwrap_or_default().as_secs_f64() * 1_000.0;
        format!("{millis:.1} ms")
    };
    format!(
        "| {name} | {} | {} | {} | {} |",
        at(0.0),
        at(0.5),
        at(0.99),
        at(1.0)
    )
}
