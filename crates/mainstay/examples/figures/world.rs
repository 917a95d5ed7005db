//! What the load talks to: the built binary as server and as mock model, and a service that tools call.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use axum::{Json, Router, extract::Path as UrlPath, routing::get};
use serde_json::{Value, json};

/// Connections that one agent takes.
const PER_AGENT: usize = 450;
/// Agents, so that two thousand connections find a place.
pub(crate) const AGENTS: usize = 5;
/// Pieces of each answer in the scenario of the streams.
pub(crate) const PIECES: u32 = 30;
/// Wait before each of them.
pub(crate) const PIECE_DELAY: Duration = Duration::from_millis(30);
/// Answers of a turn with two tool calls.
pub(crate) const ANSWERS: u32 = 3;

/// A process that is ended with the figures.
pub(crate) struct Process {
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts the binary and waits for a line with `sign`, which is returned.
    pub(crate) fn start(command: &mut Command, sign: &str) -> Result<(Self, String)> {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("no output")?;
        let errors = child.stderr.take().context("no standard error")?;
        let (sender, lines) = std::sync::mpsc::sync_channel(1024);
        for reader in [
            Box::new(output) as Box<dyn std::io::Read + Send>,
            Box::new(errors),
        ] {
            let sender = sender.clone();
            // Read to the end: a full pipe would hold the process up.
            std::thread::spawn(move || {
                for line in BufReader::new(reader).lines().map_while(Result::ok) {
                    // Nobody listens any more once the sign was seen.
                    let _ = sender.try_send(line);
                }
            });
        }
        let process = Self { child };
        let mut seen = Vec::new();
        while let Ok(line) = lines.recv_timeout(Duration::from_secs(60)) {
            if line.contains(sign) {
                return Ok((process, line));
            }
            seen.push(line);
        }
        bail!("no line with {sign:?}: {seen:?}")
    }

    /// Tells the process to end and waits until it has.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        let pid = rustix::process::Pid::from_raw(pid).context("no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Resident memory of the process and its children, in KiB.
    pub(crate) fn resident(&self) -> Result<u64> {
        Ok(tree(self.child.id())?.iter().map(|pid| memory(*pid)).sum())
    }

    /// Processor time of the process and its children so far.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        Ok(tree(self.child.id())?.iter().map(|pid| cpu(*pid)).sum())
    }
}

/// A process and what it has started.
fn tree(root: u32) -> Result<Vec<u32>> {
    let mut pids = vec![root];
    let mut at = 0;
    while let Some(pid) = pids.get(at) {
        let path = format!("/proc/{pid}/task");
        for task in std::fs::read_dir(path).into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(
                children
                    .split_whitespace()
                    .filter_map(|pid| pid.parse::<u32>().ok()),
            );
        }
        at += 1;
    }
    Ok(pids)
}

fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The fields behind the name, which may hold anything: user and system time are the 12th and 13th of them, in
    // hundredths of a second.
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| -> u64 { fields.get(at).and_then(|field| field.parse().ok()).unwrap_or(0) };
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// Everything the loads need, running.
pub(crate) struct World {
    pub(crate) server: Process,
    pub(crate) model: Process,
    pub(crate) endpoints: Value,
    /// Where the mock model is.
    pub(crate) model_address: SocketAddr,
}

/// The service that tools call: it answers at once.
pub(crate) async fn service() -> Result<SocketAddr> {
    let router = Router::new().route(
        "/orders/{id}",
        get(|UrlPath(id): UrlPath<u64>| async move { Json(json!({"id": id, "status": "shipped"})) }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    drop(mainstay_telemetry::task::spawn("service", async move {
        axum::serve(listener, router).await
    }));
    Ok(address)
}

impl World {
    pub(crate) async fn start(binary: &Path, directory: &Path) -> Result<Self> {
        let service = service().await?;
        let scenario = directory.join("scenario.yaml");
        std::fs::write(&scenario, scenario_text())?;
        let (model, line) = Process::start(
            Command::new(binary)
                .args(["mock-model", "--listen", "127.0.0.1:0", "--scenario"])
                .arg(&scenario),
            "model at http://",
        )?;
        let model_address = line
            .split("http://")
            .nth(1)
            .and_then(|rest| rest.split('/').next())
            .ok_or_else(|| anyhow!("no address in {line:?}"))?
            .parse()?;
        let manifests = directory.join("manifests.yaml");
        std::fs::write(&manifests, manifests_text(model_address, service))?;
        let data: PathBuf = directory.join("data");
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
            .arg(&data)
            .arg(&manifests);
        let last = format!("load-{} is Running", AGENTS - 1);
        let (server, _) = Process::start(&mut command, &last)?;
        let endpoints = serde_json::from_slice(&std::fs::read(data.join("endpoints.json"))?)?;
        Ok(Self {
            server,
            model,
            endpoints,
            model_address,
        })
    }

    /// The agent of connection number `number`.
    pub(crate) fn agent(number: usize) -> String {
        format!("load-{}", number / PER_AGENT % AGENTS)
    }
}

/// A turn with two tool calls and thirty slow pieces an answer, and one that answers at once.
fn scenario_text() -> String {
    let words = "word ".repeat(PIECES as usize);
    let delay = PIECE_DELAY.as_millis();
    format!(
        r#"turns:
  - match: '^stream'
    steps:
      - {{text: "{words}", delay: {delay}ms, calls: [{{tool: get_order, arguments: {{id: 1}}}}]}}
      - {{text: "{words}", delay: {delay}ms, calls: [{{tool: get_order, arguments: {{id: 2}}}}]}}
      - {{text: "{words}", delay: {delay}ms}}
  - default: true
    steps:
      - text: "one two three four five six seven eight nine ten"
"#
    )
}

fn manifests_text(model: SocketAddr, service: SocketAddr) -> String {
    let mut text = format!(
        r#"apiVersion: omnia.altairalabs.ai/v1alpha1
kind: PromptPack
metadata: {{name: load}}
spec:
  packName: load
  version: 1.0.0
  source: {{type: configmap, configMapRef: {{name: load-pack}}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: load-pack}}
data:
  pack.json: |
    {{"id": "load", "name": "Load", "version": "1.0.0",
     "template_engine": {{"version": "v1", "syntax": "{{{{variable}}}}"}},
     "prompts": {{"default": {{"id": "default", "name": "Load", "version": "1.0.0", "system_template": "Answer.",
       "tools": ["get_order"]}}}}}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: Provider
metadata: {{name: load}}
spec: {{type: openai, model: mock, baseURL: "http://{model}/v1"}}
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolPolicy
metadata: {{name: load}}
spec:
  selector: {{registry: load}}
  rules: [{{name: real-orders, deny: {{cel: "body.id < 1", message: there is no such order}}}}]
---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolRegistry
metadata: {{name: load}}
spec:
  handlers:
    - name: get
      type: http
      httpConfig: {{endpoint: "http://{service}", urlTemplate: "http://{service}/orders/{{id}}", method: GET}}
      tool:
        name: get_order
        description: Reads an order.
        inputSchema: {{type: object, properties: {{id: {{type: integer}}}}, required: [id]}}
"#
    );
    for agent in 0..AGENTS {
        text.push_str(&format!(
            r#"---
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: AgentRuntime
metadata: {{name: load-{agent}}}
spec:
  promptPackRef: {{name: load}}
  toolRegistryRef: {{name: load}}
  providers: [{{name: default, providerRef: {{name: load}}}}]
  facades: [{{type: websocket}}]
"#
        ));
    }
    text
}
