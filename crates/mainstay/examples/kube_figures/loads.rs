//! What the servers are asked to do.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::future::try_join_all;
use mainstay_telemetry::task;
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    client::Client,
    servers::{Server, processor},
};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/figures.mainstay.dev/v1/namespaces/default/widgets";
/// Bytes of text in each object.
const TEXT: usize = 1_000;
/// … and in those that are updated beside watchers that do not read.
const LARGE_TEXT: usize = 8_000;
/// Longer than anything here may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// Without work for so long, memory is what it stays.
const SETTLING: Duration = Duration::from_secs(5);

pub(crate) struct Created {
    pub(crate) each_second: f64,
    pub(crate) syncs_each: f64,
    pub(crate) processor_each: Processor,
}

/// Processor time of one operation, in microseconds.
pub(crate) struct Processor {
    pub(crate) server: f64,
    pub(crate) client: f64,
}

/// The processor time that server and client have taken so far, in seconds.
struct Processors(f64, f64);

impl Processors {
    fn of(server: &Server) -> Result<Self> {
        Ok(Self(server.processor()?, processor(std::process::id())?))
    }

    /// What each of so many operations has taken since.
    fn each(self, server: &Server, operations: usize) -> Result<Processor> {
        let Self(servers, own) = Self::of(server)?;
        let each = |seconds: f64| seconds * 1e6 / operations.max(1) as f64;
        Ok(Processor {
            server: each(servers - self.0),
            client: each(own - self.1),
        })
    }
}

/// Waits until the server has nothing to do any more.
pub(crate) async fn settled(server: &Server) -> Result<()> {
    server.client().await?.get(CONFIG_MAPS).await?;
    tokio::time::sleep(SETTLING).await;
    Ok(())
}

async fn clients(server: &Server, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let client = server.client().await?;
        // Connected, before anything is timed.
        client.get("/version").await?;
        clients.push(client);
    }
    Ok(clients)
}

/// Each client creates one ConfigMap after the other.
pub(crate) async fn creates(server: &Server, count: usize, time: Duration) -> Result<Created> {
    let clients = clients(server, count).await?;
    let processors = Processors::of(server)?;
    let (syncs, began) = (server.syncs()?, Instant::now());
    let creating = clients.iter().enumerate().map(|(number, client)| async move {
        let mut created = 0_usize;
        while began.elapsed() < time {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("c{count}-{number}-{created}")}, "data": {"text": "x".repeat(TEXT)}});
            client.post(CONFIG_MAPS, object.to_string()).await?;
            created += 1;
        }
        anyhow::Ok(created)
    });
    let created: usize = try_join_all(creating).await?.iter().sum();
    Ok(Created {
        each_second: created as f64 / began.elapsed().as_secs_f64(),
        syncs_each: (server.syncs()? - syncs) as f64 / created.max(1) as f64,
        processor_each: processors.each(server, created)?,
    })
}

/// Defines a kind and creates so many objects of it.
pub(crate) async fn widgets(server: &Server, count: usize) -> Result<()> {
    let client = server.client().await?;
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "number": {"type": "integer", "minimum": 0}, "text": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}}}}}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.figures.mainstay.dev"},
        "spec": {"group": "figures.mainstay.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    client.post(path, definition.to_string()).await?;
    let began = Instant::now();
    while client.get(WIDGETS).await.is_err() {
        if began.elapsed() > DEADLINE {
            bail!("the kind is not served");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let next = AtomicUsize::new(0);
    let clients = clients(server, 32).await?;
    let creating = clients.iter().map(|client| async {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return anyhow::Ok(());
            }
            client.post(WIDGETS, widget(number, TEXT)).await?;
        }
    });
    try_join_all(creating).await?;
    Ok(())
}

fn widget(number: usize, text: usize) -> String {
    json!({"apiVersion": "figures.mainstay.dev/v1", "kind": "Widget",
        "metadata": {"name": format!("w{number}"), "labels": {"part": (number % 10).to_string()}},
        "spec": {"number": number, "text": "x".repeat(text), "tags": ["a", "b", "c"]}})
    .to_string()
}

/// Lists everything, again and again.
pub(crate) async fn lists(server: &Server, count: usize) -> Result<Vec<Duration>> {
    let client = server.client().await?;
    client.get(WIDGETS).await?;
    let mut times = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        client.get(WIDGETS).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Several list everything at the same time: the time until the last has it, and the most memory of the server meanwhile.
pub(crate) async fn lists_at_once(server: &Server, count: usize) -> Result<(Duration, f64)> {
    let clients = clients(server, count).await?;
    let began = Instant::now();
    let listing = try_join_all(clients.iter().map(|client| client.get(WIDGETS)));
    tokio::pin!(listing);
    let mut peak = server.resident()?;
    loop {
        tokio::select! {
            listed = &mut listing => {
                listed?;
                return Ok((began.elapsed(), peak.max(server.resident()?)));
            }
            () = tokio::time::sleep(Duration::from_millis(20)) => peak = peak.max(server.resident()?),
        }
    }
}

/// How many watches share a connection where their latency is measured.
const TOGETHER: usize = 100;

/// How long after a request to create an object each watcher has it, and the processor time of each event of a watcher. As
/// programs with client-go do it: a hundred watches over one HTTP/2 connection, not a connection each.
pub(crate) async fn watch_latency(
    server: &Server,
    watchers: usize,
    changes: usize,
) -> Result<(Vec<Duration>, Processor)> {
    let creator = server.client().await?;
    let revision = creator.revision(CONFIG_MAPS).await?;
    let (told, mut seen) = mpsc::channel(watchers * 2);
    let mut watching = Vec::new();
    let mut connections = Vec::new();
    for number in 0..watchers {
        if number % TOGETHER == 0 {
            connections.push(server.shared_connection().await?);
        }
        let connection = connections.last().context("no connection")?;
        let mut events = connection.watch(CONFIG_MAPS, &revision).await?;
        let told = told.clone();
        watching.push(task::spawn("watcher", async move {
            while let Some(ended) = events.next().await {
                for _ in 0..ended {
                    if told.send(Instant::now()).await.is_err() {
                        return;
                    }
                }
            }
        }));
    }
    let processors = Processors::of(server)?;
    let mut times = Vec::with_capacity(watchers * changes);
    for number in 0..changes {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("seen-{number}")}, "data": {"text": "x".repeat(TEXT)}});
        let began = Instant::now();
        creator.post(CONFIG_MAPS, object.to_string()).await?;
        for _ in 0..watchers {
            let at = tokio::time::timeout(DEADLINE, seen.recv()).await?;
            times.push(at.context("the watchers have ended")?.duration_since(began));
        }
    }
    let processor = processors.each(server, watchers * changes)?;
    for task in watching {
        task.abort();
    }
    Ok((times, processor))
}

/// Memory that each watch takes which has nothing to tell, in KiB.
pub(crate) async fn idle_watches(server: &Server, count: usize) -> Result<f64> {
    settled(server).await?;
    let before = server.resident()?;
    let revision = server.client().await?.revision(WIDGETS).await?;
    let mut watches = Vec::with_capacity(count);
    for _ in 0..count {
        let client = server.client().await?;
        let stream = client.watch(WIDGETS, &revision).await?;
        watches.push((client, stream));
    }
    settled(server).await?;
    let after = server.resident()?;
    Ok((after - before) * 1024.0 / count as f64)
}

/// Updates one large object beside watchers that read, or do not: updates a second, and memory added in MiB.
pub(crate) async fn updates_watched(
    server: &Server,
    watchers: usize,
    reading: bool,
    updates: usize,
) -> Result<(f64, f64)> {
    let client = server.client().await?;
    let name = if reading { 1_000_000 } else { 2_000_000 };
    client.post(WIDGETS, widget(name, LARGE_TEXT)).await?;
    let revision = client.revision(WIDGETS).await?;
    let mut unread = Vec::new();
    let (mut tasks, read) = (Vec::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..watchers {
        let own = server.client().await?;
        let mut events = own.watch(WIDGETS, &revision).await?;
        if reading {
            let read = Arc::clone(&read);
            tasks.push(task::spawn("watcher", async move {
                let _connected = own;
                while let Some(ended) = events.next().await {
                    read.fetch_add(ended, Ordering::Relaxed);
                }
            }));
        } else {
            unread.push((own, events));
        }
    }
    let (before, began) = (server.resident()?, Instant::now());
    for number in 0..updates {
        let patch = json!({"spec": {"number": number}}).to_string();
        client.patch(&format!("{WIDGETS}/w{name}"), patch).await?;
    }
    let each_second = updates as f64 / began.elapsed().as_secs_f64();
    while reading && read.load(Ordering::Relaxed) < watchers * updates {
        if began.elapsed() > DEADLINE {
            bail!("watchers have not seen every update");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let added = server.resident()? - before;
    for task in tasks {
        task.abort();
    }
    Ok((each_second, added))
}
