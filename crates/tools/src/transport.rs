//! The way to a backend: the workload's connector, or a script in tests, where time is paused and
//! real sockets would stand still.

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use http::{HeaderMap, StatusCode};
use mainstay_workload::{ConnectError, Connector, OutboundRequest};

/// Sends one request and reads its answer.
#[async_trait]
pub(crate) trait Transport: std::fmt::Debug + Send + Sync {
    /// The answer once its status has arrived; no status is an error. Of the body, `body_limit` bytes
    /// are read.
    async fn exchange(&self, request: OutboundRequest, body_limit: usize) -> Result<Exchange, ConnectError>;

    /// The answer once its status has arrived, its body as it comes. The request's deadline ends with the
    /// headers: whoever reads the body bounds each wait.
    async fn open(&self, request: OutboundRequest) -> Result<Opened, ConnectError> {
        let whole = self.exchange(request, usize::MAX).await?;
        let body = whole.body.map(|(body, _)| body);
        Ok(Opened {
            status: whole.status,
            headers: whole.headers,
            body: futures::stream::iter([body]).boxed(),
        })
    }
}

/// An answer whose body is still under way.
pub(crate) struct Opened {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: BoxStream<'static, Result<Bytes, ConnectError>>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The body, and whether it was longer than the limit. It may fail after the status arrived,
    /// which is not the same as no status (OM-393).
    pub(crate) body: Result<(Bytes, bool), ConnectError>,
}

#[async_trait]
impl Transport for Connector {
    async fn exchange(&self, request: OutboundRequest, body_limit: usize) -> Result<Exchange, ConnectError> {
        let response = self.send(request).await?;
        Ok(Exchange {
            status: response.status,
            headers: response.headers.clone(),
            body: response.bytes_capped(body_limit).await,
        })
    }

    async fn open(&self, request: OutboundRequest) -> Result<Opened, ConnectError> {
        let response = self.send(request).await?;
        Ok(Opened {
            status: response.status,
            headers: response.headers.clone(),
            body: response.into_stream().boxed(),
        })
    }
}
