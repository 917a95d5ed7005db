//! The connection to a backend (OM-417): dialled through the workload's connector by the first call, used by all, and
//! made anew when it is lost.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use mainstay_workload::{ConnectError, Connector, Dialled, FileRoot, TlsClient, TlsError, TlsOptions};
use tonic::transport::{Channel, Endpoint};
use url::Url;

use crate::config::GrpcConfig;

/// The connector's own limit for a connection; each attempt has its own besides.
const DIAL_LIMIT: Duration = Duration::from_secs(10);

/// Why there is no connection. Names fields of `grpcConfig`.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The address, or the network.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A file that the configuration names cannot be read.
    #[error("`grpcConfig.{field}`: {cause}")]
    File { field: &'static str, cause: String },
    /// What stands in those files cannot be used.
    #[error("`grpcConfig.{field}`: {cause}")]
    Tls { field: &'static str, cause: TlsError },
}

/// The files of TLS, by their fields.
#[derive(Debug, Clone)]
struct TlsFiles {
    authorities: Option<String>,
    /// Used only when both are named (OM-075).
    identity: Option<(String, String)>,
    skip_verification: bool,
}

impl TlsFiles {
    async fn read(&self, files: &FileRoot) -> Result<TlsClient, DialError> {
        let read = async |field: &'static str, path: &str| {
            files.read_bytes(path).await.map_err(|error| DialError::File {
                field,
                cause: error.to_string(),
            })
        };
        let mut options = TlsOptions {
            skip_verification: self.skip_verification,
            ..TlsOptions::default()
        };
        if let Some(path) = &self.authorities {
            options.authorities = Some(read("tlsCAPath", path).await?);
        }
        if let Some((certificate, key)) = &self.identity {
            let certificate = read("tlsCertPath", certificate).await?;
            options.identity = Some((certificate, read("tlsKeyPath", key).await?));
        }
        // Reading the machine's certificates takes a moment.
        let made = tokio::task::spawn_blocking(move || TlsClient::new(&options)).await;
        let made = made.unwrap_or_else(|error| Err(TlsError::Machine(error.to_string())));
        made.map_err(|cause| DialError::Tls {
            field: match &cause {
                TlsError::Authorities(_) => "tlsCAPath",
                TlsError::Certificate(_) => "tlsCertPath",
                TlsError::Key(_) => "tlsKeyPath",
                TlsError::Machine(_) => "tls",
            },
            cause,
        })
    }
}

/// What every new connection is made of.
struct Dialler {
    authority: String,
    tls: Option<TlsFiles>,
    connector: Connector,
    files: FileRoot,
}

impl Dialler {
    /// The files are read each time, so that a renewed certificate is used by the next connection.
    async fn dial(&self) -> Result<TokioIo<Dialled>, DialError> {
        let tls = match &self.tls {
            Some(files) => Some(files.read(&self.files).await?),
            None => None,
        };
        let dialled = self
            .connector
            .dial(&self.authority, tls.as_ref(), DIAL_LIMIT)
            .await?;
        Ok(TokioIo::new(dialled))
    }
}

/// The connection of one tool.
pub(super) struct ToolChannel {
    dialler: Arc<Dialler>,
    endpoint: Endpoint,
    url: Url,
    // A std mutex: held to look and to change, never across an await. `None` before the first call.
    open: Mutex<Option<Channel>>,
}

impl fmt::Debug for ToolChannel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ToolChannel")
            .field("authority", &self.dialler.authority)
            .field("tls", &self.dialler.tls)
            .finish_non_exhaustive()
    }
}

impl ToolChannel {
    /// # Errors
    /// What is wrong with the endpoint.
    pub(super) fn new(config: &GrpcConfig, connector: Connector, files: FileRoot) -> Result<Self, String> {
        let authority = config.endpoint.trim().to_owned();
        let scheme = if config.tls { "https" } else { "http" };
        let invalid = |cause: &dyn fmt::Display| format!("`grpcConfig.endpoint` is not host:port: {cause}");
        let origin: Uri = format!("{scheme}://{authority}")
            .parse()
            .map_err(|error| invalid(&error))?;
        let is_whole = origin
            .authority()
            .is_some_and(|parsed| parsed.as_str() == authority);
        if !is_whole || origin.port_u16().is_none() {
            return Err(invalid(&"it has no port, or more than a host and a port"));
        }
        let url = Url::parse(&origin.to_string()).map_err(|error| invalid(&error))?;
        // The dialler adds TLS, so the transport is to see a plain address; the requests name the real scheme.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .and_then(|endpoint| endpoint.user_agent("mainstay"))
            .map_err(|error| invalid(&error))?
            .origin(origin);
        let identity = config.tls_cert_path.clone().zip(config.tls_key_path.clone());
        let tls = config.tls.then(|| TlsFiles {
            authorities: config.tls_ca_path.clone(),
            identity,
            skip_verification: config.tls_insecure_skip_verify,
        });
        Ok(Self {
            dialler: Arc::new(Dialler {
                authority,
                tls,
                connector,
                files,
            }),
            endpoint,
            url,
            open: Mutex::new(None),
        })
    }

    /// Where the backend is.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The connection, which is made when the first request needs it.
    pub(super) fn get(&self) -> Channel {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get_or_insert_with(|| {
            let dialler = Arc::clone(&self.dialler);
            let dial = tower::service_fn(move |_: Uri| {
                let dialler = Arc::clone(&dialler);
                async move { dialler.dial().await }
            });
            self.endpoint.connect_with_connector_lazy(dial)
        })
        .clone()
    }

    /// Has the next request make a new connection.
    pub(super) fn discard(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
