//! TLS, the token and the kubeconfig. Requirements KA-001, KA-040, KA-042.

use std::{net::SocketAddr, os::unix::fs::PermissionsExt as _, path::Path};

use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace, Service},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{Api, Client, Config, config::KubeConfigOptions, config::Kubeconfig};
use mainstay_kubeapi::{ServeOptions, Serving};
use secrecy::ExposeSecret as _;
use tokio_util::sync::CancellationToken;

use crate::harness::{CONFIG_MAPS, DEADLINE, Server};

pub(crate) async fn serve(server: &Server, directory: &Path, cancellation: &CancellationToken) -> Serving {
    let options = ServeOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        directory: directory.join("ca"),
        kubeconfig: directory.join("kubeconfig"),
    };
    server.api.serve_tls(options, cancellation.clone()).await.unwrap()
}

pub(crate) async fn client(path: &Path) -> Client {
    // The process needs a default provider once; a second installation is refused and harmless.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test]
async fn the_kubeconfig_is_all_a_client_needs_ka_001() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let cancellation = CancellationToken::new();
    let serving = serve(&server, directory.path(), &cancellation).await;
    assert!(serving.kubeconfig.is_absolute());
    let client = client(&serving.kubeconfig).await;
    let namespaces = Api::<Namespace>::all(client.clone())
        .list(&Default::default())
        .await
        .unwrap();
    assert!(
        namespaces
            .items
            .iter()
            .any(|namespace| namespace.metadata.name.as_deref() == Some("default"))
    );
    assert_eq!(client.apiserver_version().await.unwrap().minor, "37");
    // KA-010: what programs look for an API server by.
    let service = Api::<Service>::default_namespaced(client)
        .get("kubernetes")
        .await
        .unwrap();
    let spec = service.spec.unwrap();
    assert_eq!(spec.cluster_ip.as_deref(), Some("10.96.0.1"));
    let port = &spec.ports.unwrap()[0];
    assert_eq!(
        port.target_port,
        Some(IntOrString::Int(serving.address.port().into()))
    );
    for file in ["kubeconfig", "ca/ca.key", "ca/server.key", "ca/admin-token"] {
        let mode = std::fs::metadata(directory.path().join(file))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    cancellation.cancel();
    tokio::time::timeout(DEADLINE, serving.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_service_with_the_name_or_the_address_of_the_servers_own_does_not_stop_it_ka_001() {
    let services = "/api/v1/namespaces/default/services";
    for (name, address) in [("other", "10.96.0.1"), ("kubernetes", "10.96.1.1")] {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start().await;
        let service = serde_json::json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"clusterIP": address, "ports": [{"port": 80}]},
        });
        assert_eq!(server.post(services, &service).await.status, 201);
        let cancellation = CancellationToken::new();
        let serving = serve(&server, directory.path(), &cancellation).await;
        let client = client(&serving.kubeconfig).await;
        let kept = Api::<Service>::default_namespaced(client)
            .get(name)
            .await
            .unwrap();
        assert_eq!(kept.spec.unwrap().cluster_ip.as_deref(), Some(address));
        cancellation.cancel();
    }
}

#[tokio::test]
async fn keys_and_token_survive_a_restart_ka_001() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let cancellation = CancellationToken::new();
    let first = serve(&server, directory.path(), &cancellation).await;
    let second = serve(&server, directory.path(), &cancellation).await;
    assert_eq!(first.token.expose_secret(), second.token.expose_secret());
    assert_eq!(first.certificate_authority, second.certificate_authority);
    cancellation.cancel();
}

#[tokio::test]
async fn a_wrong_token_and_none_are_refused_ka_040() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let cancellation = CancellationToken::new();
    let serving = serve(&server, directory.path(), &cancellation).await;
    let mut kubeconfig = Kubeconfig::read_from(&serving.kubeconfig).unwrap();
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let wrong = (Some("wrong".to_owned()), 401, "Unauthorized");
    for (token, code, reason) in [wrong, (None, 403, "Forbidden")] {
        kubeconfig.auth_infos[0].auth_info.as_mut().unwrap().token = token.map(Into::into);
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
            .await
            .unwrap();
        let client = Client::try_from(config).unwrap();
        let error = Api::<ConfigMap>::default_namespaced(client)
            .list(&Default::default())
            .await
            .unwrap_err();
        match error {
            kube::Error::Api(status) => {
                assert_eq!((status.code, status.reason.as_str()), (code, reason))
            }
            other => panic!("{other}"),
        }
    }
    cancellation.cancel();
}

#[tokio::test]
async fn a_client_that_stalls_does_not_hold_up_others_or_the_end_ka_008() {
    use tokio::io::AsyncWriteExt as _;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start().await;
    let cancellation = CancellationToken::new();
    let serving = serve(&server, directory.path(), &cancellation).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        let mut connection = tokio::net::TcpStream::connect(serving.address).await.unwrap();
        connection.write_all(b"\x16\x03").await.unwrap();
        silent.push(connection);
    }
    let client = client(&serving.kubeconfig).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    tokio::time::timeout(DEADLINE, api.list(&Default::default()))
        .await
        .unwrap()
        .unwrap();
    let _watch = api.watch(&Default::default(), "0").await.unwrap();
    cancellation.cancel();
    tokio::time::timeout(DEADLINE, serving.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(server.get(CONFIG_MAPS).await.status, 200);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_ka_001() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start().await;
    let options = ServeOptions {
        address: taken.local_addr().unwrap(),
        directory: directory.path().join("ca"),
        kubeconfig: directory.path().join("kubeconfig"),
    };
    let error = server
        .api
        .serve_tls(options, CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on {}", taken.local_addr().unwrap()))
    );
}

#[tokio::test]
async fn a_timeout_in_the_address_is_checked_wherever_it_leads_ka_008() {
    let server = Server::start().await;
    for path in ["/version", "/apis", CONFIG_MAPS] {
        let answer = server.get(&format!("{path}?timeout=invalid")).await;
        assert_eq!(answer.status, http::StatusCode::BAD_REQUEST, "{path}");
        assert_eq!(
            answer.message(),
            "invalid timeout specified in the request URL - time: invalid duration \"invalid\""
        );
        for accepted in ["0s", "32s", "10m", ""] {
            let answer = server.get(&format!("{path}?timeout={accepted}")).await;
            assert_eq!(answer.status, http::StatusCode::OK, "{path} {accepted}");
        }
    }
    let never =
        axum::body::Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>());
    let request = http::Request::post(format!("{CONFIG_MAPS}?timeout=1ms"))
        .header("content-type", "application/json")
        .body(never)
        .unwrap();
    let answer = server.send(request).await;
    assert_eq!(answer.status, http::StatusCode::GATEWAY_TIMEOUT);
}
