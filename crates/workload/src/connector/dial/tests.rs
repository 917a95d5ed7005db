#![allow(clippy::unwrap_used)]

use tokio::net::TcpListener;

use super::*;
use crate::{ConnectorOptions, Resolution, ServiceResolver};

/// A Service `users` in every namespace.
#[derive(Debug)]
struct Users(Option<SocketAddr>);

impl ServiceResolver for Users {
    fn resolve(&self, host: &str, port: u16, _from_namespace: &str) -> Resolution {
        match (host, port, self.0) {
            ("users", 50051, Some(endpoint)) => Resolution::Endpoint(endpoint),
            ("users", ..) => Resolution::NoEndpoint {
                service: "shop/users".to_owned(),
            },
            ("alias", ..) => Resolution::External {
                host: "localhost".to_owned(),
            },
            _ => Resolution::NotAService,
        }
    }
}

fn connector(endpoint: Option<SocketAddr>, allow_private: bool) -> Connector {
    Connector::new(ConnectorOptions {
        resolver: Arc::new(Users(endpoint)),
        namespace: "shop".to_owned(),
        allow_private,
    })
    .unwrap()
}

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_name_is_dialled_as_requests_dial_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connector = connector(Some(address), true);
    for authority in [
        "users:50051".to_owned(),
        address.to_string(),
        format!("localhost:{}", address.port()),
        format!("alias:{}", address.port()),
    ] {
        assert!(
            connector.dial(&authority, None, SOON).await.is_ok(),
            "{authority}"
        );
    }
    let error = connector.dial("users:1", None, SOON).await.unwrap_err();
    assert_eq!(error.to_string(), "Service shop/users has no ready endpoint");
}

#[tokio::test]
async fn a_refused_address_is_not_dialled_whatever_leads_to_it() {
    let metadata: SocketAddr = "169.254.169.254:80".parse().unwrap();
    for (connector, authority) in [
        (connector(None, true), "169.254.169.254:80"),
        (connector(None, true), "0xA9FEA9FE:80"),
        (connector(None, true), "[fe80::1]:80"),
        (connector(None, true), "metadata.google.internal:80"),
        (connector(Some(metadata), true), "users:50051"),
        (connector(None, false), "127.0.0.1:80"),
        (connector(None, false), "localhost:80"),
    ] {
        let error = connector.dial(authority, None, SOON).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::AddressRefused(_)),
            "{authority}: {error}"
        );
    }
}

#[tokio::test]
async fn what_is_no_host_and_port_is_refused() {
    let connector = connector(None, true);
    for authority in ["", "host:port", "a:1/b", "user@a:1", "a:1?b"] {
        let error = connector.dial(authority, None, SOON).await.unwrap_err();
        assert!(
            matches!(error, ConnectError::InvalidUrl { .. }),
            "{authority}: {error}"
        );
    }
}

/// The system accepts the connection, nobody answers the handshake.
#[tokio::test]
async fn a_silent_server_costs_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let tls = TlsClient::new(&TlsOptions {
        skip_verification: true,
        ..TlsOptions::default()
    })
    .unwrap();
    let error = connector(None, true)
        .dial(&address, Some(&tls), Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
}

#[test]
fn what_is_not_pem_is_named_by_its_part() {
    let options = |authorities: Option<&str>, identity: Option<(&str, &str)>| TlsOptions {
        authorities: authorities.map(|text| text.as_bytes().to_vec()),
        identity: identity.map(|(chain, key)| (chain.as_bytes().to_vec(), key.as_bytes().to_vec())),
        skip_verification: false,
    };
    let error = TlsClient::new(&options(Some("nothing"), None)).unwrap_err();
    assert!(matches!(error, TlsError::Authorities(_)), "{error}");
    let with_identity = TlsOptions {
        skip_verification: true,
        ..options(None, Some(("nothing", "nothing")))
    };
    let error = TlsClient::new(&with_identity).unwrap_err();
    assert!(matches!(error, TlsError::Certificate(_)), "{error}");
    assert!(!format!("{with_identity:?}").contains("nothing"));
}

/// A listener whose queue is full leaves a connection without an answer, as a dead address does.
#[tokio::test]
async fn a_dead_address_leaves_the_others_their_time() {
    let full = tokio::net::TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(1).unwrap();
    let dead = full.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = tokio::time::timeout(Duration::from_millis(300), TcpStream::connect(dead)).await {
        waiting.push(stream.unwrap());
        assert!(waiting.len() < 100, "the queue has an end");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let alive = listener.local_addr().unwrap();
    let deadline = Duration::from_secs(2);
    let began = Instant::now();
    let stream = connected(&[dead, dead, alive], began + deadline).await.unwrap();
    assert_eq!(stream.peer_addr().unwrap(), alive);
    assert!(began.elapsed() < deadline);
    let error = connector(None, true)
        .dial(&dead.to_string(), None, Duration::from_millis(50))
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::TimedOut { .. }), "{error}");
    let refused = connected(&[], began + deadline).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::AddrNotAvailable);
}
