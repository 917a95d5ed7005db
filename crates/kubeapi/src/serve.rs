//! Serving over TLS on a socket. Requirements KA-001, KA-040, KA-042.

mod authenticate;
mod certificates;
mod coalesce;
mod credentials;
mod kubeconfig;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use axum_server::{
    Handle,
    accept::NoDelayAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use mainstay_telemetry::task;
use secrecy::SecretString;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::Api;

pub use certificates::CertificateError;
pub use credentials::CredentialError;
pub use kubeconfig::KubeconfigError;

/// How long open requests may go on once the server is to end.
const DRAIN: Duration = Duration::from_secs(5);
/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(30);
/// How often an idle HTTP/2 connection is asked whether it lives, and how long it may take to answer.
const PING: Duration = Duration::from_secs(30);
const PING_ANSWER: Duration = Duration::from_secs(15);
/// Streams per HTTP/2 connection; every watch is one.
const STREAMS: u32 = 1000;

/// Where to serve, and where keys are kept.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The address; port 0 takes a free one. Loopback unless the user asked otherwise in so many words.
    pub address: SocketAddr,
    /// The directory of the CA, the server's certificate and the admin token. Made with mode 0700.
    pub directory: PathBuf,
    /// Where the kubeconfig is written, mode 0600.
    pub kubeconfig: PathBuf,
}

/// Why serving did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be bound; often another process has it.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system answered.
        source: io::Error,
    },
    /// Keys or certificates cannot be made or read.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The admin token cannot be made or read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// The kubeconfig cannot be written.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
}

/// A server that runs.
#[derive(Debug)]
pub struct Serving {
    /// The address bound, with its real port.
    pub address: SocketAddr,
    /// The absolute path of the kubeconfig.
    pub kubeconfig: PathBuf,
    /// The admin token. Requirement KA-042: it is never logged.
    pub token: SecretString,
    /// The CA in PEM, for clients that do not read the kubeconfig.
    pub certificate_authority: String,
    /// Ends with the server; its failure is that of the listener.
    pub task: JoinHandle<io::Result<()>>,
}

impl Api {
    /// Serves over TLS until `cancellation`, after which open watches end and open requests get five seconds.
    ///
    /// The CA, the certificate and the token are made at the first start and kept, so that a kubeconfig survives a
    /// restart.
    ///
    /// # Errors
    /// [`ServeError`], each naming the address or file.
    pub async fn serve_tls(
        &self,
        options: ServeOptions,
        cancellation: CancellationToken,
    ) -> Result<Serving, ServeError> {
        let ServeOptions {
            address,
            directory,
            kubeconfig,
        } = options;
        let bind = |source| ServeError::Bind { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(bind)?;
        listener.set_nonblocking(true).map_err(bind)?;
        let bound = listener.local_addr().map_err(bind)?;
        let certificates = certificates::load_or_make(&directory, bound.ip(), self.clock().now())?;
        let token = credentials::load_or_make(&directory)?;
        let kubeconfig = kubeconfig::write(&kubeconfig, bound, &certificates.authority_pem, &token)?;
        self.serves_at(bound, &token);
        self.publish_service(bound.port()).await;
        let router = authenticate::layer(self.router(), self.clone());

        let handle: Handle<SocketAddr> = Handle::new();
        // Without a delay: an event is small, and must not wait until the client has acknowledged the one before it.
        let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(certificates.config))
            .acceptor(NoDelayAcceptor::new());
        let mut server = axum_server::from_tcp(listener)
            .map_err(bind)?
            .acceptor(coalesce::Coalescing(acceptor))
            .handle(handle.clone())
            .first_request_timeout(HEAD);
        let timer = || hyper_util::rt::TokioTimer::new();
        server
            .http_builder()
            .http1()
            .timer(timer())
            .header_read_timeout(HEAD);
        server
            .http_builder()
            .http2()
            .timer(timer())
            .keep_alive_interval(PING)
            .keep_alive_timeout(PING_ANSWER)
            .max_concurrent_streams(STREAMS);
        let task = task::spawn("kubeapi-tls", async move {
            server.serve(router.into_make_service()).await
        });
        let closing = self.closing().clone();
        task::spawn("kubeapi-tls-drain", async move {
            cancellation.cancelled().await;
            // Watches have no end of their own: they are ended first, and then the rest drains.
            closing.cancel();
            handle.graceful_shutdown(Some(DRAIN));
        });
        Ok(Serving {
            address: bound,
            kubeconfig,
            token,
            certificate_authority: certificates.authority_pem,
            task,
        })
    }
}
