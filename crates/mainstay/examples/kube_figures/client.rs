//! One client of an API server: a connection of its own, and answers that are read whole and not looked into.

use std::{path::Path, time::Duration};

use anyhow::Result;
use futures::io::AsyncBufRead;
use http::{Method, Request};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

#[derive(Clone)]
pub(crate) struct Client(kube::Client);

impl Client {
    /// A client with the credentials of a kubeconfig; it shares no connection with others.
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self> {
        let mut config =
            Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default())
                .await?;
        // A watch may be silent.
        config.read_timeout = None;
        Ok(Self(kube::Client::try_from(config)?))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<String> {
        Ok(self.0.request_text(Request::get(path).body(Vec::new())?).await?)
    }

    pub(crate) async fn post(&self, path: &str, body: String) -> Result<String> {
        self.send(Method::POST, path, "application/json", body).await
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, body: String) -> Result<String> {
        self.send(Method::PATCH, path, "application/merge-patch+json", body)
            .await
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> Result<String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.into_bytes())?;
        Ok(self.0.request_text(request).await?)
    }

    /// A watch of a collection from a revision on.
    pub(crate) async fn watch(
        &self,
        path: &str,
        revision: &str,
    ) -> Result<impl AsyncBufRead + Unpin + Send + use<>> {
        let path = format!("{path}?watch=1&resourceVersion={revision}&timeoutSeconds=1800");
        Ok(Box::pin(
            self.0
                .request_stream(Request::get(path).body(Vec::new())?)
                .await?,
        ))
    }

    /// The revision that a collection is at.
    pub(crate) async fn revision(&self, path: &str) -> Result<String> {
        let list: serde_json::Value = serde_json::from_str(&self.get(&format!("{path}?limit=1")).await?)?;
        let revision = list.pointer("/metadata/resourceVersion");
        Ok(revision
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned())
    }
}

/// The time below which such a share of the times is.
pub(crate) fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    let index = ((sorted.len().saturating_sub(1)) as f64 * share).round() as usize;
    sorted.get(index).copied().unwrap_or_default()
}
