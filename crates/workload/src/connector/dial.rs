//! Connections for protocols that keep one of their own, such as gRPC: dialled under the rules that requests are.

use std::{io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::either::Either;
use url::{Host, Url};

use super::{CONNECT_TIMEOUT, ConnectError, Connector, Target, allowed_addresses, innermost};

/// A connection, over TLS or plain.
pub type Dialled = Either<TlsStream<TcpStream>, TcpStream>;

/// How a server is verified, and what it is shown. All texts are PEM.
#[derive(Clone, Default)]
pub struct TlsOptions {
    /// Certificates that the server's is verified with, in place of the machine's.
    pub authorities: Option<Vec<u8>>,
    /// A certificate chain and its private key, for a server that wants to know its client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// Does not verify the server at all.
    pub skip_verification: bool,
}

impl std::fmt::Debug for TlsOptions {
    // The identity holds a private key.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("TlsOptions")
            .field("has_authorities", &self.authorities.is_some())
            .field("has_identity", &self.identity.is_some())
            .field("skip_verification", &self.skip_verification)
            .finish()
    }
}

/// Why TLS cannot be used as it is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// [`TlsOptions::authorities`].
    #[error("the CA bundle cannot be used: {0}")]
    Authorities(String),
    /// The certificates of [`TlsOptions::identity`].
    #[error("the client certificate cannot be used: {0}")]
    Certificate(String),
    /// The private key of [`TlsOptions::identity`].
    #[error("the client certificate's private key cannot be used: {0}")]
    Key(String),
    /// The machine's certificates.
    #[error("the certificates of this machine cannot be used: {0}")]
    Machine(String),
}

/// The client's side of TLS for HTTP/2. Cloning shares it.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// Reads the certificates. Without authorities of its own it reads the machine's, which takes a moment: not for the
    /// threads of the async runtime.
    ///
    /// # Errors
    ///
    /// [`TlsError`]; no text quotes what was read.
    pub fn new(options: &TlsOptions) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::Machine(error.to_string()))?;
        let builder = if options.skip_verification {
            builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyServer { provider }))
        } else if let Some(text) = &options.authorities {
            builder.with_root_certificates(authorities(text)?)
        } else {
            builder
                .with_platform_verifier()
                .map_err(|error| TlsError::Machine(error.to_string()))?
        };
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = certificates(chain).map_err(TlsError::Certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| TlsError::Key("it holds no private key in PEM".to_owned()))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsError::Key(error.to_string()))?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }
}

fn authorities(text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(text).map_err(TlsError::Authorities)? {
        store
            .add(certificate)
            .map_err(|error| TlsError::Authorities(error.to_string()))?;
    }
    Ok(store)
}

fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|_| "it is not PEM".to_owned())?;
    if found.is_empty() {
        return Err("it holds no certificate in PEM".to_owned());
    }
    Ok(found)
}

/// Takes every certificate, but checks that the server holds its key.
#[derive(Debug)]
struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl Connector {
    /// A connection to `authority` (`host:port`), which may name a Service, within `deadline`. With `tls` the server is
    /// verified under the name that was asked for.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`].
    pub async fn dial(
        &self,
        authority: &str,
        tls: Option<&TlsClient>,
        deadline: Duration,
    ) -> Result<Dialled, ConnectError> {
        let ends = Instant::now() + deadline.min(CONNECT_TIMEOUT);
        let dialled = self.dial_unbounded(authority, tls, ends);
        match tokio::time::timeout_at(ends, dialled).await {
            Ok(dialled) => dialled,
            Err(_) => Err(ConnectError::TimedOut {
                after: deadline.min(CONNECT_TIMEOUT),
            }),
        }
    }

    async fn dial_unbounded(
        &self,
        authority: &str,
        tls: Option<&TlsClient>,
        ends: Instant,
    ) -> Result<Dialled, ConnectError> {
        let invalid = |reason: &str| ConnectError::InvalidUrl {
            url: authority.to_owned(),
            reason: reason.to_owned(),
        };
        // As a URL, so that every spelling of an address is read as requests read it.
        let url = Url::parse(&format!("http://{authority}/"))
            .ok()
            .filter(|url| url.path() == "/" && url.query().is_none() && url.username().is_empty())
            .ok_or_else(|| invalid("it is not of the form host:port"))?;
        let host = url.host().ok_or_else(|| invalid("it has no host"))?.to_owned();
        let routed = self.route(url)?.url;
        let port = routed.port_or_known_default().unwrap_or(80);
        let shown = host.to_string();
        let network = |cause: String| ConnectError::Network {
            host: shown.clone(),
            cause,
        };
        let addresses = match routed.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Ipv6(address)) => vec![SocketAddr::new(address.into(), port)],
            Some(Host::Domain(name)) => {
                let shared = &self.shared;
                let target: Option<Target> = shared.pinned.target(name);
                let found = allowed_addresses(name, target, shared.options.allow_private).await;
                found
                    .map_err(|error| match error.downcast::<super::Refusal>() {
                        Ok(refusal) => ConnectError::AddressRefused(*refusal),
                        Err(error) => network(innermost(&*error)),
                    })?
                    .into_iter()
                    .map(|address| SocketAddr::new(address.ip(), port))
                    .collect()
            }
            None => return Err(invalid("it has no host")),
        };
        let stream = connected(&addresses, ends)
            .await
            .map_err(|error| network(error.to_string()))?;
        // Small frames must not wait for one another.
        stream
            .set_nodelay(true)
            .map_err(|error| network(error.to_string()))?;
        let Some(tls) = tls else {
            return Ok(Either::Right(stream));
        };
        let name = match host {
            Host::Domain(name) => {
                ServerName::try_from(name).map_err(|_| invalid("its host is no name that TLS knows"))?
            }
            Host::Ipv4(address) => ServerName::IpAddress(std::net::IpAddr::from(address).into()),
            Host::Ipv6(address) => ServerName::IpAddress(std::net::IpAddr::from(address).into()),
        };
        let stream = TlsConnector::from(Arc::clone(&tls.config))
            .connect(name, stream)
            .await
            .map_err(|error| network(innermost(&error)))?;
        Ok(Either::Left(stream))
    }
}

/// The first connection that one of `addresses` gives. Each has its share of the time until `ends`: one that is dead must not
/// take that of the others. The last is bounded by the caller, who says how long all of them took.
async fn connected(addresses: &[SocketAddr], ends: Instant) -> std::io::Result<TcpStream> {
    let Some((last, others)) = addresses.split_last() else {
        return Err(std::io::Error::new(
            ErrorKind::AddrNotAvailable,
            "the name has no address",
        ));
    };
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in others {
        let now = Instant::now();
        let share = ends.saturating_duration_since(now) / left;
        left = left.saturating_sub(1).max(1);
        if let Ok(Ok(stream)) = tokio::time::timeout_at(now + share, TcpStream::connect(address)).await {
            return Ok(stream);
        }
    }
    TcpStream::connect(last).await
}

#[cfg(test)]
mod tests;
