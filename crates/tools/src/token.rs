//! Tokens of the identity that a workload has by where it runs (OM-070, OM-402).
//!
//! On Azure, workload identity federation puts a token of the cluster's own into the Pod and its file's path, with the identity's
//! ids, into the environment. That token is exchanged for one that the backend knows.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use jiff::{SignedDuration, Timestamp};
use mainstay_telemetry::{clock::SharedClock, text::escape};
use mainstay_workload::{ConnectError, FileRoot, OutboundRequest};
use secrecy::SecretString;
use serde::Deserialize;
use url::{Host, Url};

use crate::{http::shaping::encode, transport::Transport};

/// Gives tokens that end.
#[async_trait]
pub(crate) trait TokenSource: fmt::Debug + Send + Sync {
    /// A token for `audience`, valid for a while yet.
    ///
    /// # Errors
    /// Why there is none. Never a reason to call without one.
    async fn token(&self, audience: &str) -> Result<SecretString, TokenError>;
}

/// Why there is no token. No text holds one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// The environment names no identity.
    #[error(
        "the Pod has no workload identity: the environment variable {0} is not set; on AKS the webhook of Azure Workload \
         Identity sets it, in Pods of a ServiceAccount that is set up for it"
    )]
    NoIdentity(&'static str),
    /// The environment's address cannot be used.
    #[error("the environment variable AZURE_AUTHORITY_HOST is no https address: {0}")]
    Authority(String),
    /// The cluster's token cannot be read.
    #[error("the Pod's own token cannot be read: {0}")]
    Assertion(String),
    /// Nobody answered.
    #[error("the token service did not answer: {0}")]
    Unreachable(String),
    /// It refused.
    #[error("the token service refused: HTTP {status}{detail}")]
    Refused { status: u16, detail: String },
    /// It answered something else.
    #[error("the token service gave no token")]
    Unusable,
}

const CLIENT: &str = "AZURE_CLIENT_ID";
const TENANT: &str = "AZURE_TENANT_ID";
const TOKEN_FILE: &str = "AZURE_FEDERATED_TOKEN_FILE";
const AUTHORITY: &str = "AZURE_AUTHORITY_HOST";
const PUBLIC_CLOUD: &str = "https://login.microsoftonline.com/";

const DEADLINE: Duration = Duration::from_secs(10);
const ANSWER_BYTES: usize = 64 * 1024;
const SHOWN_BYTES: usize = 256;

/// So long before its end a token is replaced, or at half its life where that is shorter.
const AHEAD: SignedDuration = SignedDuration::from_mins(5);
/// After a failed replacement the token that is still valid is used so long before the next try.
const AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// The identity of a Pod on Azure.
pub(crate) struct AzureIdentity {
    environment: BTreeMap<String, String>,
    files: FileRoot,
    transport: Arc<dyn Transport>,
    clock: SharedClock,
    // A std mutex: held to find an audience's place, never across an await. There are as many as handlers.
    places: Mutex<BTreeMap<String, Arc<Place>>>,
}

/// One audience's.
#[derive(Default)]
struct Place {
    // Held while the token is replaced, so that calls of one moment ask once.
    last: tokio::sync::Mutex<Last>,
    // Counted while `last` is held. Whoever waited through a failure shares it: else each would wait for the service in its turn.
    failures: AtomicU64,
}

/// The last token, and the last failure.
#[derive(Default)]
struct Last {
    issued: Option<Issued>,
    error: Option<TokenError>,
}

struct Issued {
    token: SecretString,
    replace_at: Timestamp,
    ends_at: Timestamp,
}

impl fmt::Debug for AzureIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AzureIdentity")
    }
}

/// What the token service answers.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    expires_in: Seconds,
}

/// A number, which some of its versions write as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(i64),
    Text(String),
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    error: String,
    error_description: String,
}

impl AzureIdentity {
    pub(crate) fn new(
        environment: &BTreeMap<String, String>,
        files: FileRoot,
        transport: Arc<dyn Transport>,
        clock: SharedClock,
    ) -> Self {
        let known = [CLIENT, TENANT, TOKEN_FILE, AUTHORITY];
        Self {
            environment: environment
                .iter()
                .filter(|(name, value)| known.contains(&name.as_str()) && !value.is_empty())
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            files,
            transport,
            clock,
            places: Mutex::default(),
        }
    }

    fn variable(&self, name: &'static str) -> Result<&str, TokenError> {
        let value = self.environment.get(name);
        value.map(String::as_str).ok_or(TokenError::NoIdentity(name))
    }

    fn address(&self, tenant: &str) -> Result<Url, TokenError> {
        let authority = self
            .environment
            .get(AUTHORITY)
            .map_or(PUBLIC_CLOUD, String::as_str);
        let invalid = || TokenError::Authority(escape(authority, SHOWN_BYTES));
        let text = format!(
            "{}/{}/oauth2/v2.0/token",
            authority.trim_end_matches('/'),
            encode(tenant)
        );
        let url = Url::parse(&text).map_err(|_| invalid())?;
        // The Pod's own token must not travel in plain text, unless it does not leave the machine.
        let stays = match url.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            _ => false,
        };
        if url.scheme() == "https" || stays {
            Ok(url)
        } else {
            Err(invalid())
        }
    }

    async fn request(&self, audience: &str) -> Result<Issued, TokenError> {
        let (client, tenant) = (self.variable(CLIENT)?, self.variable(TENANT)?);
        // Read anew: it is replaced long before it ends.
        let assertion = self
            .files
            .read_text(self.variable(TOKEN_FILE)?)
            .await
            .map_err(|error| TokenError::Assertion(error.to_string()))?;
        let scope = if audience.ends_with("/.default") {
            audience.to_owned()
        } else {
            format!("{audience}/.default")
        };
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", client),
            ("scope", &scope),
            (
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            ),
            ("client_assertion", assertion.trim()),
        ]
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .join("&");
        let mut headers = HeaderMap::new();
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form_type);
        let request = OutboundRequest {
            method: Method::POST,
            url: self.address(tenant)?,
            headers,
            body: Some(Bytes::from(form)),
            deadline: DEADLINE,
        };
        let asked_at = self.clock.now();
        let unreachable = |error: ConnectError| TokenError::Unreachable(error.to_string());
        let answer = self
            .transport
            .exchange(request, ANSWER_BYTES)
            .await
            .map_err(unreachable)?;
        let (body, _) = answer.body.map_err(unreachable)?;
        if !answer.status.is_success() {
            let Refusal {
                error,
                error_description,
            } = serde_json::from_slice(&body).unwrap_or_default();
            // Its first line; what follows are ids of the request.
            let line = error_description.lines().next().unwrap_or_default();
            let detail = [error.as_str(), line]
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(|text| format!(": {}", escape(text, SHOWN_BYTES)))
                .collect();
            return Err(TokenError::Refused {
                status: answer.status.as_u16(),
                detail,
            });
        }
        let granted: Granted = serde_json::from_slice(&body).map_err(|_| TokenError::Unusable)?;
        let seconds = match granted.expires_in {
            Seconds::Number(number) => Some(number),
            Seconds::Text(text) => text.parse().ok(),
        };
        let life = seconds
            .filter(|seconds| *seconds > 0 && !granted.access_token.is_empty())
            .map(SignedDuration::from_secs)
            .ok_or(TokenError::Unusable)?;
        let after = |time: SignedDuration| asked_at.saturating_add(time).unwrap_or(Timestamp::MAX);
        Ok(Issued {
            token: SecretString::from(granted.access_token),
            replace_at: after(life - AHEAD.min(life / 2)),
            ends_at: after(life),
        })
    }
}

#[async_trait]
impl TokenSource for AzureIdentity {
    async fn token(&self, audience: &str) -> Result<SecretString, TokenError> {
        let place = {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(places.entry(audience.to_owned()).or_default())
        };
        let known = place.failures.load(Ordering::Relaxed);
        let mut last = place.last.lock().await;
        let now = self.clock.now();
        if let Some(issued) = last.issued.as_ref().filter(|issued| now < issued.replace_at) {
            return Ok(issued.token.clone());
        }
        if place.failures.load(Ordering::Relaxed) != known
            && let Some(error) = &last.error
        {
            return Err(error.clone());
        }
        match self.request(audience).await {
            Ok(issued) => Ok(last.issued.insert(issued).token.clone()),
            Err(error) => match last.issued.as_mut().filter(|issued| now < issued.ends_at) {
                // It was replaced early for this: the one there is goes on.
                Some(issued) => {
                    tracing::warn!(%error, "a workload identity token could not be replaced yet");
                    issued.replace_at = now.saturating_add(AGAIN).unwrap_or(Timestamp::MAX);
                    Ok(issued.token.clone())
                }
                None => {
                    last.error = Some(error.clone());
                    place.failures.fetch_add(1, Ordering::Relaxed);
                    Err(error)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use mainstay_telemetry::clock::ManualClock;
    use secrecy::ExposeSecret;

    use super::*;
    use crate::http::tests::{Backend, Reply};

    const GRANTED: &str = r#"{"token_type":"Bearer","expires_in":3600,"access_token":"azure-one"}"#;
    const RENEWED: &str = r#"{"token_type":"Bearer","expires_in":"3600","access_token":"azure-two"}"#;
    const REFUSED: &str =
        r#"{"error":"invalid_client","error_description":"AADSTS70021: No match.\r\nTrace ID: 1"}"#;

    fn is(token: &SecretString, text: &str) -> bool {
        token.expose_secret() == text
    }

    struct World {
        directory: tempfile::TempDir,
        clock: Arc<ManualClock>,
        service: Backend,
        identity: AzureIdentity,
    }

    fn world(
        replies: impl IntoIterator<Item = Reply>,
        change: impl FnOnce(&mut BTreeMap<String, String>),
    ) -> World {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("federated"), "cluster-token\n").unwrap();
        let mut environment = BTreeMap::from(
            [
                (CLIENT, "client-1"),
                (TENANT, "tenant-1"),
                (TOKEN_FILE, "/federated"),
                ("PATH", "/bin"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        change(&mut environment);
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        let service = Backend::new(replies);
        let identity = AzureIdentity::new(
            &environment,
            FileRoot::at(directory.path()),
            Arc::new(service.clone()),
            clock.clone(),
        );
        World {
            directory,
            clock,
            service,
            identity,
        }
    }

    #[tokio::test]
    async fn the_pods_token_is_exchanged_for_one_of_the_audience_om_402() {
        let world = world([Reply::Answer(200, GRANTED)], |_| {});
        let token = world.identity.token("api://crm").await.unwrap();
        assert!(is(&token, "azure-one"));
        let request = world.service.requests().remove(0);
        assert_eq!(
            request.url.as_str(),
            "https://login.microsoftonline.com/tenant-1/oauth2/v2.0/token"
        );
        assert_eq!(
            request.body.as_deref(),
            Some(
                b"grant_type=client_credentials&client_id=client-1&scope=api%3A%2F%2Fcrm%2F.default\
                  &client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer\
                  &client_assertion=cluster-token"
                    .as_slice()
            )
        );
    }

    #[tokio::test]
    async fn a_token_is_kept_until_five_minutes_before_its_end_om_402() {
        let world = world([Reply::Answer(200, GRANTED), Reply::Answer(200, RENEWED)], |_| {});
        for _ in 0..3 {
            assert!(is(&world.identity.token("api://crm").await.unwrap(), "azure-one"));
        }
        assert_eq!(world.service.requests().len(), 1);
        world.clock.advance(Duration::from_secs(3_300));
        std::fs::write(world.directory.path().join("federated"), "next-token").unwrap();
        assert!(is(&world.identity.token("api://crm").await.unwrap(), "azure-two"));
        let requests = world.service.requests();
        assert_eq!(requests.len(), 2);
        let body = String::from_utf8(requests[1].body.clone().unwrap().to_vec()).unwrap();
        assert!(body.ends_with("client_assertion=next-token"), "{body}");
        // Another audience has a token of its own.
        world.identity.token("api://erp").await.unwrap();
        assert_eq!(world.service.requests().len(), 3);
    }

    #[tokio::test]
    async fn a_valid_token_outlives_a_failed_replacement_and_an_ended_one_does_not_om_402() {
        let world = world([Reply::Answer(200, GRANTED), Reply::Answer(401, REFUSED)], |_| {});
        world.identity.token("api://crm").await.unwrap();
        world.clock.advance(Duration::from_secs(3_400));
        for _ in 0..5 {
            assert!(is(&world.identity.token("api://crm").await.unwrap(), "azure-one"));
        }
        assert_eq!(world.service.requests().len(), 2, "asked once, then left alone");
        world.clock.advance(Duration::from_secs(300));
        let error = world.identity.token("api://crm").await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the token service refused: HTTP 401: invalid_client: AADSTS70021: No match."
        );
    }

    #[tokio::test(start_paused = true)]
    async fn calls_of_one_moment_wait_for_a_silent_token_service_once_om_402() {
        let world = world([Reply::Silence], |_| {});
        let began = tokio::time::Instant::now();
        let asked = futures::future::join_all((0..20).map(|_| world.identity.token("api://crm"))).await;
        assert!(
            asked
                .iter()
                .all(|token| matches!(token, Err(TokenError::Unreachable(_))))
        );
        assert_eq!((began.elapsed(), world.service.requests().len()), (DEADLINE, 1));
        // Whoever comes later asks.
        world.identity.token("api://crm").await.unwrap_err();
        assert_eq!(world.service.requests().len(), 2);
    }

    #[tokio::test]
    async fn without_an_identity_there_is_no_token_om_402() {
        for name in [CLIENT, TENANT, TOKEN_FILE] {
            let world = world([Reply::Answer(200, GRANTED)], |environment| {
                environment.remove(name);
            });
            let error = world.identity.token("api://crm").await.unwrap_err();
            assert_eq!(error, TokenError::NoIdentity(name));
            assert!(world.service.requests().is_empty());
        }
        for (reply, expected) in [
            (Reply::Answer(200, "{}"), "gave no token"),
            (
                Reply::Answer(200, r#"{"access_token":"","expires_in":60}"#),
                "gave no token",
            ),
            (
                Reply::Answer(200, r#"{"access_token":"a","expires_in":0}"#),
                "gave no token",
            ),
            (Reply::Answer(500, "busy"), "refused: HTTP 500"),
            (Reply::Refuse, "did not answer"),
        ] {
            let world = world([reply], |_| {});
            let error = world.identity.token("api://crm").await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("cluster-token"), "{error}");
        }
    }

    #[tokio::test]
    async fn the_pods_token_goes_to_https_addresses_only() {
        for (authority, allowed) in [
            ("https://login.example.com/", true),
            ("http://127.0.0.1:1", true),
            ("http://login.example.com", false),
            ("login.example.com", false),
        ] {
            let world = world([Reply::Answer(200, GRANTED)], |environment| {
                environment.insert(AUTHORITY.to_owned(), authority.to_owned());
            });
            assert_eq!(world.identity.token("a").await.is_ok(), allowed, "{authority}");
            assert_eq!(world.service.requests().len(), usize::from(allowed));
        }
    }
}
