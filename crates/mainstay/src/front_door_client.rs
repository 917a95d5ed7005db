//! The front door as the verbs ask it: REST with the token of `endpoints.json`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use mainstay_workload::{Connector, OutboundRequest};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use url::Url;

use crate::{endpoints::Endpoints, terminal::Failure};

/// How long an answer may take that is only looked up.
pub(crate) const LOOKED_UP_WITHIN: Duration = Duration::from_secs(30);
/// The largest answer that is read. A session may hold a gigabyte; it is read in pages.
const LARGEST_ANSWER: usize = 64 * 1024 * 1024;

/// A way in.
#[derive(Debug)]
pub(crate) struct FrontDoorClient {
    address: String,
    base: Url,
    token: HeaderValue,
    connector: Connector,
}

impl FrontDoorClient {
    /// The front door of the server at `endpoints`.
    pub(crate) fn new(endpoints: &Endpoints) -> Result<Self, Failure> {
        let base = Url::parse(&endpoints.http)
            .map_err(|error| Failure::new(format!("the front door's address {}: {error}", endpoints.http)))?;
        let mut token = HeaderValue::from_str(&format!("Bearer {}", endpoints.token))
            .map_err(|_| Failure::new("the front door's token cannot be sent in a header"))?;
        token.set_sensitive(true);
        let connector = Connector::direct()
            .map_err(|error| Failure::new(format!("no connection can be made: {error}")))?;
        Ok(Self {
            address: endpoints.http.clone(),
            base,
            token,
            connector,
        })
    }

    /// What stands at `path` with `query`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, Refused> {
        self.ask(Method::GET, path, query, None, LOOKED_UP_WITHIN).await
    }

    /// The answer to `body` at `path`, within `deadline`.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        deadline: Duration,
    ) -> Result<T, Refused> {
        let body = serde_json::to_vec(body)
            .map_err(|error| Failure::new(format!("the request cannot be written: {error}")))?;
        self.ask(Method::POST, path, &[], Some(body.into()), deadline)
            .await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<Bytes>,
        deadline: Duration,
    ) -> Result<T, Refused> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, self.token.clone());
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let unreachable = |error: &dyn std::fmt::Display| {
            Failure::new(format!("{} cannot be reached: {error}", self.address))
        };
        let request = OutboundRequest {
            method,
            url,
            headers,
            body,
            deadline,
        };
        let answer = self
            .connector
            .send(request)
            .await
            .map_err(|error| unreachable(&error))?;
        let status = answer.status;
        let (body, cut) = answer
            .bytes_capped(LARGEST_ANSWER)
            .await
            .map_err(|error| unreachable(&error))?;
        if !status.is_success() {
            return Err(Refused::of(status, &body));
        }
        if cut {
            return Err(Failure::new(format!("the answer is larger than {LARGEST_ANSWER} bytes")).into());
        }
        serde_json::from_slice(&body).map_err(|error| {
            Failure::new(format!("the answer of {} cannot be read: {error}", self.address)).into()
        })
    }
}

/// Why there is no answer: the code of the front door's problem, where it answered, and what to tell.
#[derive(Debug)]
pub(crate) struct Refused {
    /// `agent_not_found` for example; empty where the front door did not answer.
    pub(crate) code: String,
    /// For the terminal.
    pub(crate) failure: Failure,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self {
            code: String::new(),
            failure,
        }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        refused.failure
    }
}

impl Refused {
    fn of(status: StatusCode, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let said = |field: &str| body.get(field).and_then(Value::as_str).map(str::to_owned);
        let code = said("error").unwrap_or_default();
        let text = said("detail").unwrap_or_else(|| format!("the front door answered {status}"));
        let failure = match code.as_str() {
            "agent_not_found" => Failure::new(text)
                .with_hint("`mainstay status` lists the agents; `-n` names another namespace"),
            "agent_not_ready" | "draining" => {
                Failure::new(text).with_hint("`mainstay status` says what the agent waits for")
            }
            _ => Failure::new(text),
        };
        Self { code, failure }
    }
}
