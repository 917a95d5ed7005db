//! Reachability of endpoints: one TCP connection each, nothing sent, no tool invoked (OM-329).

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use futures::StreamExt;
use mainstay_resources::{
    discovery::{ProbeTarget, probe_target},
    omnia::tool_registry::DiscoveredTool,
};
use mainstay_workload::{Resolution, ServiceResolver, address};
use tokio::net::TcpStream;

use super::ProbeResults;

/// Default of `spec.probe.timeout` (OM-108).
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that are tried at the same time.
const CONCURRENCY: usize = 8;

/// Probes every distinct endpoint that has an address.
pub(super) async fn probe(
    tools: &[DiscoveredTool],
    timeout: Duration,
    namespace: &str,
    resolver: &dyn ServiceResolver,
) -> ProbeResults {
    let endpoints: BTreeSet<String> = tools.iter().filter_map(|tool| tool.endpoint.clone()).collect();
    let targets: Vec<(String, ProbeTarget)> = endpoints
        .into_iter()
        .map(|endpoint| (endpoint.clone(), probe_target(Some(&endpoint))))
        .filter(|(_, target)| *target != ProbeTarget::None)
        .collect();
    let probes = targets.into_iter().map(|(endpoint, target)| async move {
        let result = match target {
            ProbeTarget::Address { host, port } => connect(&host, port, timeout, namespace, resolver).await,
            ProbeTarget::Unusable(message) => Err(message),
            ProbeTarget::None => Ok(()),
        };
        (endpoint, result)
    });
    futures::stream::iter(probes)
        .buffer_unordered(CONCURRENCY)
        .collect()
        .await
}

async fn connect(
    host: &str,
    port: u16,
    timeout: Duration,
    namespace: &str,
    resolver: &dyn ServiceResolver,
) -> Result<(), String> {
    let attempt = async {
        match resolver.resolve(host, port, namespace) {
            Resolution::Endpoint(address) => dial(vec![address]).await,
            Resolution::NoEndpoint { service } => Err(format!("service {service} has no ready endpoint")),
            Resolution::External { host } => look_up_and_dial(&host, port).await,
            Resolution::NotAService => look_up_and_dial(host, port).await,
        }
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(format!("no connection to {host}:{port} within {timeout:?}")),
    }
}

async fn look_up_and_dial(host: &str, port: u16) -> Result<(), String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| format!("cannot look up {host}: {error}"))?
        .collect();
    dial(addresses).await
}

/// Connects to the first address that answers. The addresses that no tool may reach are not tried either.
async fn dial(addresses: Vec<SocketAddr>) -> Result<(), String> {
    let mut last = "no address was found".to_owned();
    for address in addresses {
        if let Some(rule) = address::refused(address.ip(), true) {
            last = format!("{} is refused: {rule}", address.ip());
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(_) => return Ok(()),
            Err(error) => last = format!("cannot connect to {address}: {error}"),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mainstay_workload::connector::NoServices;

    use super::*;

    fn tool(endpoint: &str) -> DiscoveredTool {
        serde_json::from_value(serde_json::json!({
            "name": "t", "handlerName": "h", "status": "Available", "endpoint": endpoint,
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn an_open_port_is_reachable_and_a_closed_one_is_not_om_329() {
        let open = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed_port = closed.local_addr().unwrap().port();
        drop(closed);
        let open_url = format!("http://127.0.0.1:{}/x", open.local_addr().unwrap().port());
        let closed_address = format!("127.0.0.1:{closed_port}");
        let tools = [
            tool(&open_url),
            tool(&closed_address),
            tool("client://browser"),
            tool("nonsense"),
        ];
        let results = probe(&tools, DEFAULT_TIMEOUT, "default", &NoServices).await;
        assert_eq!(results.len(), 3, "client tools are never probed (OM-330)");
        assert_eq!(results[&open_url], Ok(()));
        assert!(results[&closed_address].is_err());
        assert!(
            results["nonsense"]
                .as_ref()
                .is_err_and(|error| error.contains("host:port"))
        );
    }

    #[tokio::test]
    async fn a_metadata_address_is_not_dialled() {
        let results = probe(
            &[tool("http://169.254.169.254/")],
            DEFAULT_TIMEOUT,
            "default",
            &NoServices,
        )
        .await;
        assert!(
            results["http://169.254.169.254/"]
                .as_ref()
                .is_err_and(|error| error.contains("refused"))
        );
    }
}
