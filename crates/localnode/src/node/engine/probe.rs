//! Probes and hooks of a container, as a kubelet runs them: an image by somebody else cannot say by itself that it is ready.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use futures::StreamExt;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{
    Container, ExecAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use mainstay_telemetry::task;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ANSWER, Engine, within};
use crate::node::environment::ConfigError;

/// How long a connection must stay open to count. The proxy of an engine takes connections for a container that does not
/// listen, and closes them at once.
const STAYS_OPEN: Duration = Duration::from_millis(200);
/// What of a probe's answer is shown, in bytes.
const SHOWN: usize = 256;

/// One thing to do with a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) enum Action {
    Http {
        port: u16,
        path: String,
        headers: Vec<(String, String)>,
    },
    Tcp {
        port: u16,
    },
    Exec(Vec<String>),
    Sleep(Duration),
}

impl Action {
    /// The port that it needs.
    pub(in crate::node) fn port(&self) -> Option<u16> {
        match self {
            Self::Http { port, .. } | Self::Tcp { port } => Some(*port),
            Self::Exec(_) | Self::Sleep(_) => None,
        }
    }
}

/// A probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct Check {
    /// `Readiness`, `Liveness` or `Startup`.
    pub(in crate::node) kind: &'static str,
    pub(in crate::node) action: Action,
    pub(in crate::node) delay: Duration,
    pub(in crate::node) period: Duration,
    pub(in crate::node) limit: Duration,
    pub(in crate::node) successes: u32,
    pub(in crate::node) failures: u32,
}

/// All that is asked of a container while it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::node) struct Checks {
    pub(in crate::node) startup: Option<Check>,
    pub(in crate::node) readiness: Option<Check>,
    pub(in crate::node) liveness: Option<Check>,
    pub(in crate::node) post_start: Option<Action>,
    pub(in crate::node) pre_stop: Option<Action>,
}

impl Checks {
    /// As the container says.
    pub(in crate::node) fn of(container: &Container) -> Result<Self, ConfigError> {
        let check = |kind, probe: &Option<Probe>| {
            probe
                .as_ref()
                .map(|probe| check(container, kind, probe))
                .transpose()
        };
        let hook = |name: &str, handler: Option<&LifecycleHandler>| {
            let of = |handler: &LifecycleHandler| {
                let sleep = handler.sleep.as_ref().map(|sleep| sleep.seconds);
                action(
                    container,
                    name,
                    handler.exec.as_ref(),
                    handler.http_get.as_ref(),
                    handler.tcp_socket.as_ref(),
                    sleep,
                )
            };
            handler.map(of).transpose()
        };
        let lifecycle = container.lifecycle.as_ref();
        Ok(Self {
            startup: check("Startup", &container.startup_probe)?,
            readiness: check("Readiness", &container.readiness_probe)?,
            liveness: check("Liveness", &container.liveness_probe)?,
            post_start: hook("postStart", lifecycle.and_then(|all| all.post_start.as_ref()))?,
            pre_stop: hook("preStop", lifecycle.and_then(|all| all.pre_stop.as_ref()))?,
        })
    }

    /// The ports that probes and hooks ask.
    pub(in crate::node) fn ports(&self) -> impl Iterator<Item = u16> {
        let checks = [&self.startup, &self.readiness, &self.liveness];
        let hooks = [&self.post_start, &self.pre_stop];
        let checks = checks
            .into_iter()
            .flatten()
            .filter_map(|check| check.action.port());
        checks.chain(hooks.into_iter().flatten().filter_map(Action::port))
    }
}

fn check(container: &Container, kind: &'static str, probe: &Probe) -> Result<Check, ConfigError> {
    let seconds = |value: Option<i32>, usual: u64| {
        let value = value.and_then(|value| u64::try_from(value).ok());
        Duration::from_secs(value.filter(|value| *value > 0).unwrap_or(usual))
    };
    let count = |value: Option<i32>, usual: u32| {
        let value = value.and_then(|value| u32::try_from(value).ok());
        value.filter(|value| *value > 0).unwrap_or(usual)
    };
    if probe.grpc.is_some() {
        return Err(unsupported(container, "a probe with grpc"));
    }
    Ok(Check {
        kind,
        action: action(
            container,
            kind,
            probe.exec.as_ref(),
            probe.http_get.as_ref(),
            probe.tcp_socket.as_ref(),
            None,
        )?,
        delay: seconds(probe.initial_delay_seconds, 0),
        period: seconds(probe.period_seconds, 10),
        limit: seconds(probe.timeout_seconds, 1),
        successes: count(probe.success_threshold, 1),
        failures: count(probe.failure_threshold, 3),
    })
}

fn unsupported(container: &Container, what: &'static str) -> ConfigError {
    ConfigError::Unsupported {
        place: format!("container {:?}", container.name),
        what,
    }
}

fn action(
    container: &Container,
    kind: &str,
    exec: Option<&ExecAction>,
    http: Option<&HTTPGetAction>,
    tcp: Option<&TCPSocketAction>,
    sleep: Option<i64>,
) -> Result<Action, ConfigError> {
    let elsewhere = |host: Option<&str>| !matches!(host, None | Some("" | "localhost" | "127.0.0.1"));
    if let Some(exec) = exec {
        return Ok(Action::Exec(exec.command.clone().unwrap_or_default()));
    }
    if let Some(http) = http {
        if http.scheme.as_deref() == Some("HTTPS") {
            return Err(unsupported(container, "httpGet over HTTPS"));
        }
        if elsewhere(http.host.as_deref()) {
            return Err(unsupported(container, "httpGet at another host"));
        }
        let path = http.path.clone().unwrap_or_default();
        let headers = http.http_headers.iter().flatten();
        return Ok(Action::Http {
            port: port(container, kind, &http.port)?,
            path: if path.starts_with('/') {
                path
            } else {
                format!("/{path}")
            },
            headers: headers
                .map(|header| (header.name.clone(), header.value.clone()))
                .collect(),
        });
    }
    if let Some(tcp) = tcp {
        if elsewhere(tcp.host.as_deref()) {
            return Err(unsupported(container, "tcpSocket at another host"));
        }
        let port = port(container, kind, &tcp.port)?;
        return Ok(Action::Tcp { port });
    }
    match sleep {
        Some(seconds) => Ok(Action::Sleep(Duration::from_secs(
            u64::try_from(seconds).unwrap_or(0),
        ))),
        None => Err(unsupported(container, "a probe or hook of an unknown kind")),
    }
}

fn port(container: &Container, kind: &str, port: &IntOrString) -> Result<u16, ConfigError> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let named = ports.find(|port| port.name.as_ref() == Some(name));
            named
                .map(|port| port.container_port)
                .or_else(|| name.parse().ok())
        }
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| ConfigError::NoPort {
            place: format!("{kind} of container {:?}", container.name),
            port: match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name.clone(),
            },
        })
}

/// A container that runs, as probes see it.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) engine: Engine,
    pub(super) id: String,
    /// Where each of its ports is reached.
    pub(super) ports: BTreeMap<u16, u16>,
}

impl Target {
    /// Does it, within `limit`; what went wrong, in a kubelet's words.
    pub(super) async fn act(&self, action: &Action, limit: Duration) -> Result<(), String> {
        let acting = async {
            match action {
                Action::Http { port, path, headers } => self.http(*port, path, headers).await,
                Action::Tcp { port } => self.tcp(*port).await,
                Action::Exec(command) => self.exec(command).await,
                Action::Sleep(time) => {
                    tokio::time::sleep(*time).await;
                    Ok(())
                }
            }
        };
        match timeout(limit, acting).await {
            Ok(done) => done,
            Err(_) => Err(match action {
                Action::Exec(command) => format!("command timed out: {command:?} timed out after {limit:?}"),
                _ => format!("no answer within {limit:?}"),
            }),
        }
    }

    async fn connect(&self, port: u16) -> Result<TcpStream, String> {
        let reached = self
            .ports
            .get(&port)
            .ok_or_else(|| format!("port {port} is not published"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, *reached));
        TcpStream::connect(address)
            .await
            .map_err(|error| format!("dial tcp {address}: {error}"))
    }

    async fn tcp(&self, port: u16) -> Result<(), String> {
        let mut stream = self.connect(port).await?;
        match timeout(STAYS_OPEN, stream.read(&mut [0_u8; 1])).await {
            Ok(Ok(0)) => Err(format!("port {port} closes each connection at once")),
            Ok(Err(error)) => Err(format!("port {port}: {error}")),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    async fn http(&self, port: u16, path: &str, headers: &[(String, String)]) -> Result<(), String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("Get \"http://127.0.0.1:{port}{path}\": {error}");
        let stream = self.connect(port).await.map_err(|error| failed(&error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
        let connection = task::spawn("probe", connection);
        let _ends = AbortOnDrop(connection.abort_handle());
        let is_host = |name: &str| name.eq_ignore_ascii_case("host");
        let host = headers.iter().find(|(name, _)| is_host(name));
        let mut request = http::Request::get(path)
            .header(
                "Host",
                host.map_or_else(|| format!("127.0.0.1:{port}"), |(_, host)| host.clone()),
            )
            .header("User-Agent", "kube-probe/mainstay")
            .header("Accept", "*/*")
            .header("Connection", "close");
        for (name, value) in headers {
            if !is_host(name) {
                request = request.header(name, value);
            }
        }
        let request = request
            .body(Empty::<bytes::Bytes>::new())
            .map_err(|error| failed(&error))?;
        let answer = sender
            .send_request(request)
            .await
            .map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        if (200..400).contains(&status) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {status}"))
        }
    }

    async fn exec(&self, command: &[String]) -> Result<(), String> {
        let docker = &self.engine.docker;
        let options = CreateExecOptions {
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            cmd: Some(command.to_vec()),
            ..CreateExecOptions::default()
        };
        let created = within(ANSWER, docker.create_exec(&self.id, options))
            .await
            .map_err(|error| error.to_string())?;
        let started = within(ANSWER, docker.start_exec(&created.id, None::<StartExecOptions>))
            .await
            .map_err(|error| error.to_string())?;
        let mut said = Vec::new();
        if let StartExecResults::Attached { mut output, .. } = started {
            while let Some(Ok(piece)) = output.next().await {
                let room = SHOWN.saturating_sub(said.len());
                let piece = piece.into_bytes();
                said.extend_from_slice(&piece[..piece.len().min(room)]);
            }
        }
        let ended = within(ANSWER, docker.inspect_exec(&created.id))
            .await
            .map_err(|error| error.to_string())?;
        match ended.exit_code {
            Some(0) => Ok(()),
            code => {
                let said = String::from_utf8_lossy(&said).trim().to_owned();
                if said.is_empty() {
                    Err(format!("exit code {}", code.unwrap_or(-1)))
                } else {
                    Err(said)
                }
            }
        }
    }
}

/// The connection of a probe ends with it.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checks(container: serde_json::Value) -> Result<Checks, ConfigError> {
        let container: Container = serde_json::from_value(container).unwrap();
        Checks::of(&container)
    }

    #[test]
    fn probes_are_read_with_the_defaults_of_kubernetes_ka_051() {
        let found = checks(json!({
            "name": "c",
            "ports": [{ "name": "web", "containerPort": 8080 }],
            "readinessProbe": { "httpGet": { "port": "web", "path": "ready" } },
            "livenessProbe": { "tcpSocket": { "port": 9 }, "periodSeconds": 2, "failureThreshold": 5 },
            "lifecycle": { "preStop": { "sleep": { "seconds": 3 } } },
        }))
        .unwrap();
        let readiness = found.readiness.as_ref().unwrap();
        assert_eq!(
            readiness.action,
            Action::Http {
                port: 8080,
                path: "/ready".into(),
                headers: vec![]
            }
        );
        assert_eq!(
            (
                readiness.period.as_secs(),
                readiness.limit.as_secs(),
                readiness.failures
            ),
            (10, 1, 3)
        );
        let liveness = found.liveness.as_ref().unwrap();
        assert_eq!((liveness.period.as_secs(), liveness.failures), (2, 5));
        assert_eq!(found.pre_stop, Some(Action::Sleep(Duration::from_secs(3))));
        assert_eq!(found.ports().collect::<Vec<_>>(), [8080, 9]);
    }

    #[test]
    fn a_probe_that_cannot_be_run_here_is_refused_by_name_ka_051() {
        let refused = |probe: serde_json::Value| {
            let found = checks(json!({ "name": "c", "readinessProbe": probe }));
            found.unwrap_err().to_string()
        };
        assert!(refused(json!({ "grpc": { "port": 1 } })).contains("a probe with grpc"));
        assert!(refused(json!({ "httpGet": { "port": 1, "scheme": "HTTPS" } })).contains("HTTPS"));
        assert!(refused(json!({ "httpGet": { "port": "web" } })).contains("names the port \"web\""));
    }
}
