//! One client of an API server: a connection of its own, and answers that are read whole and not looked into.
//!
//! It is as little as speaks HTTP over TLS: what the client does runs on the same processors as the server, and a client that
//! costs as much as a server would hide the difference between two of them. Both servers get the same.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use mainstay_telemetry::task;
use secrecy::ExposeSecret as _;
use tokio::{net::TcpStream, sync::Mutex};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        pki_types::{CertificateDer, ServerName},
    },
};

/// Where a server is and how one is let in; read once for all clients of it.
#[derive(Clone)]
pub(crate) struct Access {
    address: String,
    host: HeaderValue,
    token: HeaderValue,
    name: ServerName<'static>,
    tls: TlsConnector,
    /// The same for HTTP/2.
    tls_of_two: TlsConnector,
}

impl Access {
    pub(crate) async fn read(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let mut roots = RootCertStore::empty();
        for certificate in config.root_cert.context("no certificate authority")? {
            roots.add(CertificateDer::from(certificate))?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
        let mut of_two = tls.clone();
        of_two.alpn_protocols = vec![b"h2".to_vec()];
        let token = config.auth_info.token.context("no token")?;
        let authority = config.cluster_url.authority().context("no address")?;
        Ok(Self {
            address: authority.to_string(),
            host: HeaderValue::from_str(authority.as_str())?,
            token: HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))?,
            name: ServerName::try_from(authority.host().to_owned())?,
            tls: TlsConnector::from(Arc::new(tls)),
            tls_of_two: TlsConnector::from(Arc::new(of_two)),
        })
    }

    async fn connect(&self, tls: &TlsConnector) -> Result<TokioIo<TlsStream<TcpStream>>> {
        let socket = TcpStream::connect(&self.address).await?;
        // As Go's clients do.
        socket.set_nodelay(true)?;
        Ok(TokioIo::new(tls.connect(self.name.clone(), socket).await?))
    }
}

fn watch_path(path: &str, revision: &str) -> String {
    format!("{path}?watch=1&resourceVersion={revision}&timeoutSeconds=1800")
}

/// Several watches over one HTTP/2 connection: as the informers of a program with client-go have it.
pub(crate) struct SharedConnection {
    access: Access,
    connection: http2::SendRequest<Full<Bytes>>,
}

impl SharedConnection {
    /// What a stream and the connection may have on their way, as much as Go's clients allow.
    const STREAM: u32 = 4 << 20;
    const CONNECTION: u32 = 1 << 30;

    pub(crate) async fn new(access: &Access) -> Result<Self> {
        let stream = access.connect(&access.tls_of_two).await?;
        let (connection, driver) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(Self::STREAM)
            .initial_connection_window_size(Self::CONNECTION)
            .handshake(stream)
            .await?;
        // It ends with the connection; that one was broken the watches tell.
        task::spawn("connection", async move { drop(driver.await) });
        Ok(Self {
            access: access.clone(),
            connection,
        })
    }

    pub(crate) async fn watch(&self, path: &str, revision: &str) -> Result<Events> {
        let path = watch_path(path, revision);
        let request = Request::get(format!("https://{}{path}", self.access.address))
            .header(header::AUTHORIZATION, &self.access.token)
            .body(Full::default())?;
        let mut connection = self.connection.clone();
        connection.ready().await?;
        let answer = connection.send_request(request).await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        Ok(Events(answer.into_body()))
    }
}

pub(crate) struct Client {
    access: Access,
    // One request after the other.
    connection: Mutex<http1::SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client with a connection that is open; it shares it with no other.
    pub(crate) async fn new(access: &Access) -> Result<Self> {
        let (connection, driver) = http1::handshake(access.connect(&access.tls).await?).await?;
        // It ends with the connection; that one was broken the next request tells.
        task::spawn("connection", async move { drop(driver.await) });
        Ok(Self {
            access: access.clone(),
            connection: Mutex::new(connection),
        })
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Bytes> {
        self.whole(Method::GET, path, "", String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> Result<Bytes> {
        self.whole(Method::POST, path, "application/json", body).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: String) -> Result<Bytes> {
        self.whole(Method::PATCH, path, "application/merge-patch+json", body)
            .await
    }

    async fn whole(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Bytes> {
        let answer = self.send(method, path, kind, body).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(
            status.is_success(),
            "{path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        Ok(body)
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.access.host)
            .header(header::AUTHORIZATION, &self.access.token);
        if !kind.is_empty() {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let mut connection = self.connection.lock().await;
        connection.ready().await?;
        Ok(connection.send_request(request).await?)
    }

    /// A watch of a collection from a revision on. The connection is its alone.
    pub(crate) async fn watch(&self, path: &str, revision: &str) -> Result<Events> {
        let path = watch_path(path, revision);
        let answer = self.send(Method::GET, &path, "", String::new()).await?;
        ensure!(answer.status().is_success(), "{path}: {}", answer.status());
        Ok(Events(answer.into_body()))
    }

    /// The revision that a collection is at.
    pub(crate) async fn revision(&self, path: &str) -> Result<String> {
        let list: serde_json::Value = serde_json::from_slice(&self.get(&format!("{path}?limit=1")).await?)?;
        let revision = list.pointer("/metadata/resourceVersion");
        Ok(revision
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }
}

/// What a watch brings: a line for each event.
pub(crate) struct Events(Incoming);

impl Events {
    /// How many events ended in what came next; `None` when the watch has ended.
    pub(crate) async fn next(&mut self) -> Option<usize> {
        let frame = self.0.frame().await?.ok()?;
        let data = frame.into_data().unwrap_or_default();
        Some(data.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// The time below which such a share of the times is.
pub(crate) fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}
