//! `probe URL`: asks an address until it answers well, and ends. For init containers, Jobs and the tests of a Helm chart.

use std::time::Duration;

use async_trait::async_trait;
use clap::Parser as _;
use http::{HeaderMap, Method, StatusCode};
use mainstay_telemetry::text::with_causes;
use mainstay_workload::{Connector, OutboundRequest, Role, RoleError, WorkloadContext};
use url::Url;

use crate::arguments::ProbeArguments;

/// How long one question may take.
const ONE_ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// The pause before the second question; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The role.
#[derive(Debug)]
pub(crate) struct Probe;

#[async_trait]
impl Role for Probe {
    async fn run(&self, context: WorkloadContext) -> Result<(), RoleError> {
        let words = std::iter::once("probe").chain(context.arguments.iter().map(String::as_str));
        let arguments = ProbeArguments::try_parse_from(words)
            .map_err(|error| RoleError::new(format!("probe: {}", error.kind())))?;
        context.readiness.ready();
        let answered = tokio::select! {
            answered = until_well(&context.connector, &arguments.url, arguments.within) => answered,
            () = context.cancellation.cancelled() => return Ok(()),
        };
        match answered {
            Ok(status) => {
                context
                    .log
                    .line(format!("{} answers with {status}", arguments.url));
                Ok(())
            }
            Err(reason) => Err(RoleError::new(reason)),
        }
    }
}

/// Asks until the answer's status is one of success. The error says what the last question came to.
pub(crate) async fn until_well(
    connector: &Connector,
    url: &Url,
    within: Duration,
) -> Result<StatusCode, String> {
    let ends = tokio::time::Instant::now() + within;
    let mut pause = FIRST_PAUSE;
    loop {
        let request = OutboundRequest {
            method: Method::GET,
            url: url.clone(),
            headers: HeaderMap::new(),
            body: None,
            deadline: ONE_ANSWER_WITHIN,
        };
        let reason = match connector.send(request).await {
            Ok(answer) if answer.status.is_success() => return Ok(answer.status),
            Ok(answer) => format!("it answers with {}", answer.status),
            Err(error) => with_causes(&error),
        };
        if tokio::time::Instant::now() + pause > ends {
            return Err(format!(
                "{url} did not answer well within {} s: {reason}",
                within.as_secs_f64()
            ));
        }
        tokio::time::sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use axum::{Router, routing::get};

    use super::*;

    /// A server that answers badly so many times.
    async fn answers_after(bad: usize) -> Url {
        let asked = Arc::new(AtomicUsize::new(0));
        let answer = move || {
            let asked = Arc::clone(&asked);
            async move {
                if asked.fetch_add(1, Ordering::Relaxed) < bad {
                    StatusCode::SERVICE_UNAVAILABLE
                } else {
                    StatusCode::OK
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        mainstay_telemetry::task::spawn("probed", async move {
            axum::serve(listener, Router::new().route("/", get(answer)))
                .await
                .unwrap();
        });
        url.parse().unwrap()
    }

    #[tokio::test]
    async fn an_address_is_asked_until_it_answers_well() {
        let connector = Connector::direct().unwrap();
        let url = answers_after(2).await;
        assert_eq!(
            until_well(&connector, &url, Duration::from_secs(20)).await,
            Ok(StatusCode::OK)
        );
        let url = answers_after(usize::MAX).await;
        let reason = until_well(&connector, &url, Duration::ZERO).await.unwrap_err();
        assert!(
            reason.ends_with("within 0 s: it answers with 503 Service Unavailable"),
            "{reason}"
        );
    }
}
