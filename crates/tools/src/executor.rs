//! What a toolset needs of the code that calls one kind of backend.

use std::collections::BTreeMap;

use async_trait::async_trait;
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::{
    breaker::Verdict, delegation::Delegation, http::credentials::CredentialSources,
    invocation::FailureReason, preview::Preview, transport::Transport,
};

/// Calls the backend of one tool.
#[async_trait]
pub(crate) trait Executor: std::fmt::Debug + Send + Sync {
    /// What the tool's schema cannot say about the arguments (OM-364). They match the schema already.
    ///
    /// # Errors
    /// A text for the model that names each violation.
    fn check(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        let _ = arguments;
        Ok(())
    }

    /// The request that [`Executor::call`] would send first, with secrets masked. Nothing is sent.
    ///
    /// # Errors
    /// Why there would be no request.
    async fn preview(
        &self,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<Preview, Failure>;

    /// Makes the call with all its attempts.
    async fn call(&self, context: &CallContext<'_>, arguments: &Map<String, Value>) -> Called;
}

/// What a call needs of its surroundings.
pub(crate) struct CallContext<'a> {
    pub(crate) transport: &'a dyn Transport,
    pub(crate) credentials: &'a CredentialSources,
    pub(crate) clock: &'a SharedClock,
    pub(crate) random: &'a SharedRandom,
    pub(crate) propagated: &'a BTreeMap<String, String>,
    pub(crate) injected: &'a BTreeMap<String, String>,
    /// Sent by handlers that enable it (OM-410).
    pub(crate) delegation: &'a Delegation<'a>,
    pub(crate) cancel: &'a CancellationToken,
}

/// How an invocation ended.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) result: Result<Value, Failure>,
    pub(crate) attempts: u32,
    /// HTTP status of the last answer.
    pub(crate) status: Option<u16>,
    /// What the call says about the backend.
    pub(crate) verdict: Verdict,
}

/// An invocation that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: FailureReason,
    pub(crate) message: String,
}
