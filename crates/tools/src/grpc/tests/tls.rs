//! TLS towards the backend (OM-074…OM-077).

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

use super::*;

/// An authority, what it signed for the server and for a client, and an authority nobody knows; as files.
struct World {
    directory: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl World {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = authority("ca");
        let world = Self { directory, authority };
        world.write("ca.pem", &world.authority.pem());
        world.write("other.pem", &authority_pem("other"));
        let (certificate, key) = world.signed("client");
        world.write("client.pem", &certificate.pem());
        world.write("client.key", &key.serialize_pem());
        world.write("broken.pem", "not a certificate");
        world
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.directory.path().join(name), content).unwrap();
    }

    fn files(&self) -> FileRoot {
        FileRoot::at(self.directory.path())
    }

    fn signed(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.authority).unwrap(), key)
    }

    /// A backend over TLS under the name of the Service; with `mutual` it wants to know its clients.
    async fn serve(&self, backend: &Backend, mutual: bool) -> SocketAddr {
        let (certificate, key) = self.signed("users.shop.svc.cluster.local");
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.authority.der().clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let config = axum_server::tls_rustls::RustlsConfig::from_config(Arc::new(config));
        let server = axum_server::from_tcp_rustls(listener, config).unwrap();
        let service = backend.router().into_make_service();
        task::spawn("test backend", async move { server.serve(service).await });
        address
    }

    async fn call(&self, address: SocketAddr, change: impl FnOnce(&mut GrpcConfig)) -> Called {
        let mut handler = handler("users.shop.svc.cluster.local:50051");
        let config = handler.grpc.as_mut().unwrap();
        config.tls = true;
        change(config);
        let tool = tool_at(&handler, services(address), &self.files());
        Surroundings::default().call(&tool).await
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn authority_pem(name: &str) -> String {
    authority(name).pem()
}

fn path(name: &str) -> Option<String> {
    Some(format!("/{name}"))
}

#[tokio::test]
async fn a_server_is_verified_with_the_ca_bundle_or_not_at_all_om_074_om_076_om_077() {
    let world = World::new();
    let backend = Backend::new([Reply::Json("1")]);
    let address = world.serve(&backend, false).await;
    let called = world
        .call(address, |config| config.tls_ca_path = path("ca.pem"))
        .await;
    assert_eq!(called.result, Ok(json!(1)));

    // Another authority, or the machine's own: the server is not known, and nothing is sent.
    for authorities in [path("other.pem"), None] {
        let called = world
            .call(address, |config| config.tls_ca_path = authorities)
            .await;
        let failure = called.result.unwrap_err();
        assert_eq!(failure.reason, FailureReason::NetworkError, "{}", failure.message);
        assert!(failure.message.contains("certificate"), "{}", failure.message);
    }
    assert_eq!(backend.calls().len(), 1);

    let called = world
        .call(address, |config| config.tls_insecure_skip_verify = true)
        .await;
    assert_eq!(called.result, Ok(json!(1)));
}

#[tokio::test]
async fn a_client_certificate_is_shown_when_both_its_files_are_named_om_075() {
    let world = World::new();
    let backend = Backend::new([Reply::Json("1")]);
    let address = world.serve(&backend, true).await;
    let both = |config: &mut GrpcConfig| {
        config.tls_ca_path = path("ca.pem");
        config.tls_cert_path = path("client.pem");
        config.tls_key_path = path("client.key");
    };
    assert_eq!(world.call(address, both).await.result, Ok(json!(1)));

    let one = |config: &mut GrpcConfig| {
        both(config);
        config.tls_key_path = None;
    };
    let called = world.call(address, one).await;
    assert!(called.result.is_err());
    assert_eq!(backend.calls().len(), 1);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_by_its_field_om_403() {
    let world = World::new();
    let nowhere: SocketAddr = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    for (field, file) in [
        ("tlsCAPath", "absent.pem"),
        ("tlsCAPath", "broken.pem"),
        ("tlsCertPath", "broken.pem"),
        ("tlsKeyPath", "client.pem"),
    ] {
        let change = |config: &mut GrpcConfig| {
            config.tls_ca_path = path("ca.pem");
            config.tls_cert_path = path("client.pem");
            config.tls_key_path = path("client.key");
            match field {
                "tlsCAPath" => config.tls_ca_path = path(file),
                "tlsCertPath" => config.tls_cert_path = path(file),
                _ => config.tls_key_path = path(file),
            }
        };
        let failure = world.call(nowhere, change).await.result.unwrap_err();
        assert_eq!(
            failure.reason,
            FailureReason::CredentialUnavailable,
            "{field} {file}: {}",
            failure.message
        );
        assert!(
            failure.message.contains(&format!("`grpcConfig.{field}`")),
            "{}",
            failure.message
        );
    }
}
