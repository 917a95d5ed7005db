//! One handler's server: where it is, and what each request to it carries.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method};
use mainstay_workload::OutboundRequest;
use secrecy::SecretString;
use url::Url;

use super::{CallState, McpFailure};
use crate::{
    config::{HandlerConfig, McpConfig},
    http::{Identity, conceal, headers, identity},
    invocation::FailureReason,
    openapi::SourceContext,
    transport::Opened,
};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Server {
    pub(super) handler: HandlerConfig,
    pub(super) config: McpConfig,
    pub(super) context: SourceContext,
    url: Url,
    is_older: AtomicBool,
}

/// The headers of a request, and the texts that must not come back in its answer.
pub(super) struct Carried {
    pub(super) headers: HeaderMap,
    pub(super) secrets: Vec<SecretString>,
}

impl Carried {
    /// `text` without the secrets.
    pub(super) fn conceal(&self, text: String) -> String {
        conceal(text, &self.secrets)
    }
}

impl Server {
    /// The server of `handler`, whose block is `config`.
    ///
    /// # Errors
    /// Why the endpoint cannot be used.
    pub(super) fn new(
        handler: &HandlerConfig,
        config: &McpConfig,
        context: SourceContext,
    ) -> Result<Self, String> {
        let url = Url::parse(config.endpoint.trim())
            .map_err(|error| format!("`mcpConfig.endpoint` is not a URL: {error}"))?;
        Ok(Self {
            handler: handler.clone(),
            config: config.clone(),
            context,
            url,
            is_older: AtomicBool::new(false),
        })
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the server spoke the protocol's older era when it was last connected to. It is then not asked
    /// about the newer one first: some servers begin a session for the question and keep it.
    pub(super) fn is_older(&self) -> bool {
        self.is_older.load(Ordering::Relaxed)
    }

    pub(super) fn note_era(&self, is_older: bool) {
        self.is_older.store(is_older, Ordering::Relaxed);
    }

    /// The headers that the configuration, the caller and the policies give a request. They are made anew
    /// for each request, so that a rotated credential is used by the next one (OM-397, OM-401, OM-420).
    pub(super) async fn carried(&self, call: Option<&CallState>) -> Result<Carried, McpFailure> {
        // On calls only: what the session itself asks for is asked on nobody's behalf (OM-410).
        let signed = call.and_then(|call| call.delegation.clone());
        let mut secrets = Vec::new();
        let Identity {
            secret,
            credential,
            delegation,
        } = identity(
            &self.handler.secret_headers,
            self.handler.auth.as_ref(),
            signed,
            &self.context.credentials,
            &mut secrets,
        )
        .await
        .map_err(|failed| McpFailure::lasting(failed.failure.reason, failed.failure.message))?;
        let headers = headers::assemble(headers::Sources {
            content_type: None,
            fixed: None,
            secret,
            credential,
            propagated: call.map(|call| &call.propagated),
            delegation,
            injected: call.map(|call| &call.injected),
            from_arguments: &[],
        })
        .map_err(|error| McpFailure::lasting(FailureReason::RequestInvalid, error.to_string()))?;
        if let Some(call) = call {
            call.note_secrets(secrets.clone());
        }
        Ok(Carried { headers, secrets })
    }

    /// Sends a request to `url`, which is the server's or one that it announced.
    pub(super) async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Option<Bytes>,
        deadline: Duration,
    ) -> Result<Opened, McpFailure> {
        self.context
            .transport
            .open(OutboundRequest {
                method,
                url,
                headers,
                body,
                deadline,
            })
            .await
            .map_err(|error| McpFailure::unanswered(&error))
    }
}
