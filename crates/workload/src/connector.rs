//! The one way out of a workload.

mod dial;

pub use dial::{Dialled, TlsClient, TlsError, TlsOptions};

use std::{
    collections::HashMap,
    error::Error,
    fmt::Debug,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use tokio::time::Instant;
use url::{Host, Url};

use crate::address::{self, Refusal};

/// How long establishing a connection may take, within the request's own deadline.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How many names are remembered at once; past that the memory starts anew, since each request writes its own name again.
const PINNED_LIMIT: usize = 4_096;

/// What a host name means to the cluster around the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Not a Service's name: it is looked up in DNS.
    NotAService,
    /// A live endpoint of the Service, port included.
    Endpoint(SocketAddr),
    /// The Service exists and nothing ready stands behind it.
    NoEndpoint {
        /// The Service as `NAMESPACE/NAME`.
        service: String,
    },
    /// The Service is another name for a host elsewhere.
    External {
        /// That host.
        host: String,
    },
}

/// Knows the Services around a workload.
pub trait ServiceResolver: Debug + Send + Sync {
    /// What `host` with `port` means to a workload in `from_namespace`. Known forms: `name`, `name.namespace`,
    /// `name.namespace.svc` and `name.namespace.svc.cluster.local`.
    fn resolve(&self, host: &str, port: u16, from_namespace: &str) -> Resolution;
}

/// Knows no Service: every name is looked up in DNS, as a container's own resolver would.
#[derive(Debug)]
pub struct NoServices;

impl ServiceResolver for NoServices {
    fn resolve(&self, _host: &str, _port: u16, _from_namespace: &str) -> Resolution {
        Resolution::NotAService
    }
}

/// What a connector is built from.
#[derive(Clone, Debug)]
pub struct ConnectorOptions {
    /// The Services around the workload.
    pub resolver: Arc<dyn ServiceResolver>,
    /// The workload's namespace, which short Service names belong to.
    pub namespace: String,
    /// Whether private and loopback addresses may be dialled.
    pub allow_private: bool,
}

/// Sends requests for a workload. Cloning shares its connections.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Shared>,
}

struct Shared {
    options: ConnectorOptions,
    client: reqwest::Client,
    pinned: Pinned,
}

impl Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connector")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct OutboundRequest {
    /// The method.
    pub method: Method,
    /// The absolute URL, `http` or `https`.
    pub url: Url,
    /// The headers; `Host` and `Content-Length` are set by the connector.
    pub headers: HeaderMap,
    /// The body, if one is sent.
    pub body: Option<Bytes>,
    /// How long until the response's headers have arrived, and its body too where it is read with
    /// [`OutboundResponse::bytes_capped`].
    pub deadline: Duration,
}

/// A response whose body has not been read yet.
pub struct OutboundResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    response: reqwest::Response,
    ends: Instant,
    deadline: Duration,
}

impl Debug for OutboundResponse {
    // Headers may hold cookies or tokens.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("OutboundResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL cannot be dialled.
    #[error("URL {url:?} cannot be used: {reason}")]
    InvalidUrl {
        /// The URL without credentials and query.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address rules forbid the target.
    #[error(transparent)]
    AddressRefused(#[from] Refusal),
    /// The Service has no ready endpoint.
    #[error("Service {service} has no ready endpoint")]
    NoEndpoint {
        /// The Service as `NAMESPACE/NAME`.
        service: String,
    },
    /// The deadline passed.
    #[error("no answer within {after:?}")]
    TimedOut {
        /// The deadline that was given.
        after: Duration,
    },
    /// The connection could not be made or broke.
    #[error("the connection to {host:?} failed: {cause}")]
    Network {
        /// The host of the URL.
        host: String,
        /// The innermost cause, in words.
        cause: String,
    },
    /// The client could not be built; a fault of this process's surroundings.
    #[error("the HTTP client could not be set up: {cause}")]
    SetUp {
        /// Why.
        cause: String,
    },
}

impl ConnectError {
    /// Whether no status arrived because of the network: connection, DNS, TLS, reset, missing endpoint or time-out
    /// (OM-062, OM-393). A refused address or an unusable URL is not: it fails the same way again.
    pub fn is_network(&self) -> bool {
        matches!(
            self,
            Self::Network { .. } | Self::TimedOut { .. } | Self::NoEndpoint { .. }
        )
    }
}

impl Connector {
    /// A connector with its own connections.
    ///
    /// # Errors
    ///
    /// `SetUp` when the TLS roots of the machine cannot be read.
    pub fn new(options: ConnectorOptions) -> Result<Self, ConnectError> {
        // Several connectors may race here; whichever installs first, it is the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let pinned = Pinned::default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            // A proxy would dial in our place, where the address rules cannot see what it dials.
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .dns_resolver(Arc::new(CheckedResolver {
                pinned: pinned.clone(),
                allow_private: options.allow_private,
            }))
            .build()
            .map_err(|error| ConnectError::SetUp {
                cause: innermost(&error),
            })?;
        Ok(Self {
            shared: Arc::new(Shared {
                options,
                client,
                pinned,
            }),
        })
    }

    /// A connector that knows no Services, in namespace `default`.
    ///
    /// # Errors
    ///
    /// As [`Connector::new`].
    pub fn direct() -> Result<Self, ConnectError> {
        Self::new(ConnectorOptions {
            resolver: Arc::new(NoServices),
            namespace: "default".to_owned(),
            allow_private: true,
        })
    }

    /// The same connections' rules for a workload in `namespace`, with connections of its own.
    ///
    /// # Errors
    ///
    /// As [`Connector::new`].
    pub fn in_namespace(&self, namespace: &str) -> Result<Self, ConnectError> {
        Self::new(ConnectorOptions {
            namespace: namespace.to_owned(),
            ..self.shared.options.clone()
        })
    }

    /// Sends `request` and waits for the response's headers. No redirect is followed: a 3xx answer is returned as it is.
    ///
    /// # Errors
    ///
    /// See [`ConnectError`]; the URL's query and credentials never stand in the text.
    pub async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, ConnectError> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let routed = self.route(request.url)?;
        let mut headers = request.headers;
        if let Some(authority) = routed.authority {
            // In place of one from the caller: a request with two is malformed.
            headers.insert(header::HOST, authority);
        }
        let mut builder = self
            .shared
            .client
            .request(request.method, routed.url)
            .headers(headers);
        if let Some(body) = request.body {
            builder = builder.body(body);
        }
        let ends = Instant::now() + request.deadline;
        let answered = tokio::time::timeout_at(ends, builder.send()).await;
        let response = match answered {
            Err(_) => {
                return Err(ConnectError::TimedOut {
                    after: request.deadline,
                });
            }
            Ok(Err(error)) => return Err(classify(&host, request.deadline, &error)),
            Ok(Ok(response)) => response,
        };
        Ok(OutboundResponse {
            status: response.status(),
            headers: response.headers().clone(),
            response,
            ends,
            deadline: request.deadline,
        })
    }

    /// Where a request for `url` really goes.
    fn route(&self, url: Url) -> Result<Routed, ConnectError> {
        if !matches!(url.scheme(), "http" | "https") {
            let reason = "the scheme is neither http nor https".to_owned();
            return Err(ConnectError::InvalidUrl {
                url: shown(&url),
                reason,
            });
        }
        let options = &self.shared.options;
        if let Some(refusal) = address::refused_url_host(&url, options.allow_private) {
            return Err(refusal.into());
        }
        let name = match url.host() {
            None => {
                return Err(ConnectError::InvalidUrl {
                    url: shown(&url),
                    reason: "it has no host".to_owned(),
                });
            }
            Some(Host::Ipv4(_) | Host::Ipv6(_)) => return Ok(Routed { url, authority: None }),
            Some(Host::Domain(name)) => name.to_owned(),
        };
        let port = url.port_or_known_default().unwrap_or(80);
        match options.resolver.resolve(&name, port, &options.namespace) {
            Resolution::NotAService => {
                self.shared.pinned.forget(&name);
                Ok(Routed { url, authority: None })
            }
            Resolution::NoEndpoint { service } => Err(ConnectError::NoEndpoint { service }),
            Resolution::External { host } => {
                self.shared.pinned.remember(&name, Target::Name(host));
                Ok(Routed { url, authority: None })
            }
            Resolution::Endpoint(endpoint) => {
                service_endpoint(&name, endpoint.ip())?;
                self.shared.pinned.remember(&name, Target::Address(endpoint.ip()));
                let authority = match url.port() {
                    Some(port) => format!("{name}:{port}"),
                    None => name,
                };
                let mut routed = url;
                if routed.set_port(Some(endpoint.port())).is_err() {
                    let reason = "its port cannot be set".to_owned();
                    return Err(ConnectError::InvalidUrl {
                        url: shown(&routed),
                        reason,
                    });
                }
                Ok(Routed {
                    url: routed,
                    authority: HeaderValue::from_str(&authority).ok(),
                })
            }
        }
    }
}

impl OutboundResponse {
    /// The body, cut at `limit` bytes; the flag says whether something was cut off. What follows the limit is not read.
    ///
    /// # Errors
    ///
    /// `Network` when the connection breaks, `TimedOut` when the request's deadline passes first.
    pub async fn bytes_capped(self, limit: usize) -> Result<(Bytes, bool), ConnectError> {
        let (ends, deadline) = (self.ends, self.deadline);
        let read = async move {
            let mut stream = self.into_stream();
            let mut body = BytesMut::new();
            while let Some(chunk) = stream.next().await {
                let chunk = chunk?;
                let room = limit.saturating_sub(body.len());
                if chunk.len() > room {
                    body.extend_from_slice(chunk.get(..room).unwrap_or_default());
                    return Ok((body.freeze(), true));
                }
                body.extend_from_slice(&chunk);
            }
            Ok((body.freeze(), false))
        };
        match tokio::time::timeout_at(ends, read).await {
            Ok(read) => read,
            Err(_) => Err(ConnectError::TimedOut { after: deadline }),
        }
    }

    /// The body as it arrives. It has no deadline: the reader bounds the wait for each chunk.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, ConnectError>> + Send + Unpin {
        let host = self.response.url().host_str().unwrap_or_default().to_owned();
        let deadline = self.deadline;
        self.response
            .bytes_stream()
            .map(move |chunk| chunk.map_err(|error| classify(&host, deadline, &error)))
    }
}

struct Routed {
    url: Url,
    /// The `Host` header, where the URL's port is not the one that was asked for.
    authority: Option<HeaderValue>,
}

/// The rules for `address`, which a Service called `host` leads to. Whoever may write a Service chooses its address, so
/// metadata is refused here too; Pods have private and loopback addresses, and those are always allowed.
fn service_endpoint(host: &str, address: IpAddr) -> Result<(), Refusal> {
    match address::refused(address, true) {
        None => Ok(()),
        Some(rule) => Err(Refusal {
            host: host.to_owned(),
            address: address.to_string(),
            rule,
        }),
    }
}

/// `url` without what may be secret.
fn shown(url: &Url) -> String {
    format!(
        "{}://{}{}",
        url.scheme(),
        url.host_str().unwrap_or_default(),
        url.path()
    )
}

/// Where a name leads that is not looked up under itself.
#[derive(Clone, Debug)]
enum Target {
    Address(IpAddr),
    Name(String),
}

/// Names whose target the route decided. The resolver that reqwest calls sees only the name, so the decision is handed
/// over here; it is written anew by each request for the name.
#[derive(Clone, Debug, Default)]
struct Pinned {
    // A std mutex: held for one look-up, never across an await.
    targets: Arc<Mutex<HashMap<String, Target>>>,
}

impl Pinned {
    fn remember(&self, name: &str, target: Target) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if targets.len() >= PINNED_LIMIT && !targets.contains_key(name) {
            targets.clear();
        }
        targets.insert(name.to_owned(), target);
    }

    fn forget(&self, name: &str) {
        self.targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }

    fn target(&self, name: &str) -> Option<Target> {
        self.targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(name)
            .cloned()
    }
}

/// Looks names up and applies the rules to the addresses that will be dialled, so that a name cannot lead where its
/// literal address could not (DNS rebinding included).
#[derive(Debug)]
struct CheckedResolver {
    pinned: Pinned,
    allow_private: bool,
}

impl reqwest::dns::Resolve for CheckedResolver {
    fn resolve(&self, name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        let asked = name.as_str().to_owned();
        let target = self.pinned.target(&asked);
        let allow_private = self.allow_private;
        Box::pin(async move {
            let allowed = allowed_addresses(&asked, target, allow_private).await?;
            let addresses: reqwest::dns::Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

/// The addresses behind the name `asked` that may be dialled, without a port.
async fn allowed_addresses(
    asked: &str,
    target: Option<Target>,
    allow_private: bool,
) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let name = match target {
        Some(Target::Address(address)) => {
            // The route said so before; this is the last place before the address is dialled.
            service_endpoint(asked, address)?;
            return Ok(vec![SocketAddr::new(address, 0)]);
        }
        Some(Target::Name(name)) => name,
        None => asked.to_owned(),
    };
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
    let mut rule = None;
    let allowed: Vec<SocketAddr> = found
        .into_iter()
        .filter(
            |candidate| match address::refused(candidate.ip(), allow_private) {
                None => true,
                Some(found) => {
                    rule = Some(Refusal {
                        host: asked.to_owned(),
                        address: candidate.ip().to_string(),
                        rule: found,
                    });
                    false
                }
            },
        )
        .collect();
    match rule {
        Some(refusal) if allowed.is_empty() => Err(Box::new(refusal)),
        _ => Ok(allowed),
    }
}

fn classify(host: &str, deadline: Duration, error: &reqwest::Error) -> ConnectError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(link) = cause {
        if let Some(refusal) = link.downcast_ref::<Refusal>() {
            return ConnectError::AddressRefused(refusal.clone());
        }
        cause = link.source();
    }
    if error.is_timeout() && !error.is_connect() {
        return ConnectError::TimedOut { after: deadline };
    }
    ConnectError::Network {
        host: host.to_owned(),
        cause: innermost(error),
    }
}

/// The innermost cause: the outer texts of reqwest repeat the URL, whose query may hold what must not be logged.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
