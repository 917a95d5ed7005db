//! Connections to the ports of the Pods that run here and of the Services before them: what `kubectl port-forward` and the
//! API's proxies reach. Requirement KA-052.
//!
//! A Pod's port is a free loopback port, or a router that requests are handed to without a socket; a connection to the
//! latter is kept in memory.

use std::io;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use mainstay_telemetry::task;
use tokio::io::DuplexStream;
use tokio::net::TcpStream;
use tokio_util::either::Either;

use crate::pods::{Endpoint, PodTable, PortReference, RouterPort};
use crate::services::Services;

/// The bytes that wait in memory in each direction of a connection without a socket.
const IN_MEMORY: usize = 64 * 1024;
/// How long a client of such a connection may take to send the head of a request.
const HEAD: std::time::Duration = std::time::Duration::from_secs(30);

/// A connection to a workload: over loopback, or in memory.
pub type PodConnection = Either<TcpStream, DuplexStream>;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No Pod of that UID runs here.
    #[error("the pod does not run on this node")]
    NotHere,
    /// The Pod runs and does not listen on that port.
    #[error("nothing listens on port {port}: {hint}")]
    NotListening {
        /// The port asked for.
        port: u16,
        /// The ports that it listens on, in words.
        hint: String,
    },
    /// No Pod behind the Service serves that port.
    #[error("no endpoint for service {namespace}/{service}")]
    NoEndpoint {
        /// The Service's namespace.
        namespace: String,
        /// The Service.
        service: String,
    },
    /// Connecting failed.
    #[error("connecting failed")]
    Connect {
        /// What the system answered.
        #[source]
        source: io::Error,
    },
}

/// Connects to Pods and Services. Clones are the same.
#[derive(Clone, Debug)]
pub struct PodDialer {
    pods: PodTable,
    services: Services,
}

impl PodDialer {
    pub(crate) fn new(pods: PodTable, services: Services) -> Self {
        Self { pods, services }
    }

    /// Connects to a container port of a Pod, by the number that the Pod declares.
    ///
    /// # Errors
    ///
    /// See [`DialError`]. A port may be listened on a moment later, while the Pod starts.
    pub async fn pod(&self, uid: &str, port: u16) -> Result<PodConnection, DialError> {
        match self.pods.endpoint(uid, &PortReference::Number(port)) {
            None => Err(DialError::NotHere),
            Some(Err(hint)) => Err(DialError::NotListening { port, hint }),
            Some(Ok(endpoint)) => self.connect(endpoint).await,
        }
    }

    /// Connects to a Pod behind a Service, or to the address that the Service stands for.
    ///
    /// # Errors
    ///
    /// See [`DialError`]. A Service that is another name for a host outside leads nowhere from here.
    pub async fn service(&self, namespace: &str, name: &str, port: u16) -> Result<PodConnection, DialError> {
        match self.services.endpoint(namespace, name, port) {
            Some(endpoint) => self.connect(endpoint).await,
            None => Err(DialError::NoEndpoint {
                namespace: namespace.to_owned(),
                service: name.to_owned(),
            }),
        }
    }

    async fn connect(&self, endpoint: Endpoint) -> Result<PodConnection, DialError> {
        match endpoint {
            Endpoint::Address(address) => {
                let connect = |source| DialError::Connect { source };
                let socket = TcpStream::connect(address).await.map_err(connect)?;
                // Small pieces of a conversation wait for nothing.
                socket.set_nodelay(true).map_err(connect)?;
                Ok(Either::Left(socket))
            }
            Endpoint::Router(port) => Ok(Either::Right(in_memory(port, self.pods.clone()))),
        }
    }
}

/// A connection that the router answers. Ends with the client, or with the Pod.
fn in_memory(port: RouterPort, pods: PodTable) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(IN_MEMORY);
    task::spawn("pod-connection", async move {
        let mut server = Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new()).header_read_timeout(HEAD);
        let service = TowerToHyperService::new(port.router.clone());
        let answering = server.serve_connection_with_upgrades(TokioIo::new(ours), service);
        tokio::select! {
            answered = answering => if let Err(error) = answered {
                tracing::debug!(error, "a connection to a Pod broke");
            },
            () = pods.router_ends(&port) => {}
        }
    });
    theirs
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::collections::BTreeMap;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::pods::{DeclaredPort, PodDescription};

    fn table() -> PodTable {
        let pods = PodTable::new();
        let declared = |name: &str, number| DeclaredPort {
            container: "c".to_owned(),
            name: name.to_owned(),
            number,
        };
        pods.describe(
            "uid",
            PodDescription {
                namespace: "shop".to_owned(),
                pod: "orders-1".to_owned(),
                labels: BTreeMap::new(),
                created: None,
                serves: true,
                waits: String::new(),
                declared: vec![
                    declared("http", 8080),
                    declared("facade", 8081),
                    declared("later", 8082),
                ],
            },
        );
        pods
    }

    fn dialer(pods: &PodTable) -> PodDialer {
        PodDialer::new(pods.clone(), crate::services::new(pods.clone()).1)
    }

    #[tokio::test]
    async fn a_pods_port_leads_to_what_listens_for_it_ka_052() {
        let pods = table();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        pods.listening("uid", "c", "http", listener.local_addr().unwrap());
        let mut connection = dialer(&pods).pod("uid", 8080).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        connection.write_all(b"hello").await.unwrap();
        connection.shutdown().await.unwrap();
        let mut heard = String::new();
        accepted.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
    }

    #[tokio::test]
    async fn a_port_without_a_socket_is_answered_in_memory_until_the_pod_ends_ka_052() {
        let pods = table();
        let router = axum::Router::new().fallback(async || "from the router");
        assert!(pods.serve("uid", "c", "facade", router));
        let dialer = dialer(&pods);
        let mut connection = dialer.pod("uid", 8081).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        connection.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"from the router") {
            assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0);
        }
        pods.forget("uid");
        assert_eq!(connection.read_buf(&mut answer).await.unwrap(), 0);
        assert!(matches!(dialer.pod("uid", 8081).await, Err(DialError::NotHere)));
    }

    #[tokio::test]
    async fn a_port_that_is_not_listened_on_is_refused_with_those_that_are_ka_052() {
        let pods = table();
        let hint = |port| {
            let dialer = dialer(&pods);
            async move {
                match dialer.pod("uid", port).await {
                    Err(DialError::NotListening { hint, .. }) => hint,
                    other => panic!("{other:?}"),
                }
            }
        };
        assert_eq!(hint(8080).await, "it listens on no port");
        pods.listening("uid", "c", "http", ([127, 0, 0, 1], 1).into());
        pods.serve("uid", "c", "facade", axum::Router::new());
        for port in [8082, 9] {
            assert_eq!(hint(port).await, "it listens on 8080 (http), 8081 (facade)");
        }
        let nowhere = dialer(&pods).service("shop", "orders", 80).await;
        assert!(matches!(nowhere, Err(DialError::NoEndpoint { .. })));
    }
}
