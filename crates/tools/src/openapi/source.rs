//! Fetches a handler's document and makes its operations tools (OM-426, OM-431).

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Method, header};
use mainstay_telemetry::text::escape;
use mainstay_workload::{Connector, OutboundRequest};
use url::Url;

use super::{
    call::Call,
    document::{Document, MAX_DOCUMENT_BYTES, Operation, ParseOptions, parse},
    server::BaseUrlError,
};
use crate::{
    arguments::ArgumentCheck,
    breaker::Breaker,
    config::{HandlerConfig, HttpConfig, OpenapiConfig},
    http::{
        HttpTool,
        credentials::{self, CredentialSources},
    },
    toolset::{Discovered, OfferedTool, Tool, ToolKind, ToolSource, Undiscovered, named},
    transport::Transport,
};

/// How long the document may take. The handler's `timeout` is for calls, and may be far shorter than
/// what a large document needs.
const DOCUMENT_DEADLINE: Duration = Duration::from_secs(30);

// Skipped operations that are logged one by one.
const LOGGED: usize = 20;

/// What a source needs of its toolset.
#[derive(Debug, Clone)]
pub(crate) struct SourceContext {
    pub(crate) registry: String,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) connector: Connector,
    pub(crate) credentials: CredentialSources,
}

/// The tools of one `openapi` handler.
#[derive(Debug)]
pub(crate) struct OpenapiSource {
    handler: HandlerConfig,
    config: OpenapiConfig,
    context: SourceContext,
}

impl OpenapiSource {
    /// The source of `handler`, whose block is `config`.
    pub(crate) fn new(handler: &HandlerConfig, config: &OpenapiConfig, context: SourceContext) -> Self {
        Self {
            handler: handler.clone(),
            config: config.clone(),
            context,
        }
    }

    fn failed(&self, reason: &'static str, cause: impl std::fmt::Display) -> Undiscovered {
        Undiscovered::new(reason, format!("handler `{}`: {cause}", self.handler.name))
    }

    async fn fetch(&self, url: &Url) -> Result<bytes::Bytes, Undiscovered> {
        let unavailable = |cause: String| self.failed("DocumentUnavailable", cause);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        // Read anew each time, so that a credential that was missing is found (OM-401).
        let authorization = credentials::authorization(self.handler.auth.as_ref(), &self.context.credentials)
            .await
            .map_err(|error| self.failed("CredentialUnavailable", error))?;
        if let Some(authorization) = authorization {
            headers.insert(authorization.name, authorization.value);
        }
        let answer = self
            .context
            .transport
            .exchange(
                OutboundRequest {
                    method: Method::GET,
                    url: url.clone(),
                    headers,
                    body: None,
                    deadline: DOCUMENT_DEADLINE,
                },
                MAX_DOCUMENT_BYTES,
            )
            .await
            .map_err(|error| unavailable(format!("the document at `specURL` cannot be fetched: {error}")))?;
        let status = answer.status;
        if status.is_redirection() {
            return Err(unavailable(format!(
                "`specURL` answers with HTTP {}; redirects are not followed, use the address it leads to",
                status.as_u16()
            )));
        }
        if !status.is_success() {
            // Not the body: nobody reads it, and it may quote the credential.
            return Err(unavailable(format!(
                "`specURL` answers with HTTP {}",
                status.as_u16()
            )));
        }
        let (body, is_cut) = answer
            .body
            .map_err(|error| unavailable(format!("the document at `specURL` ended early: {error}")))?;
        if is_cut {
            return Err(self.failed(
                "DocumentInvalid",
                format!("the document at `specURL` is larger than {MAX_DOCUMENT_BYTES} bytes"),
            ));
        }
        Ok(body)
    }

    async fn read(&self, text: bytes::Bytes) -> Result<Document, Undiscovered> {
        let options = ParseOptions {
            operation_filter: self.config.operation_filter.clone(),
            fixed_headers: self.config.headers.keys().cloned().collect(),
        };
        // A large document keeps a core busy for a while; turns go on meanwhile.
        let read = tokio::task::spawn_blocking(move || parse(&text, &options)).await;
        match read {
            Ok(Ok(document)) => Ok(document),
            Ok(Err(error)) => Err(self.failed("DocumentInvalid", error)),
            Err(error) => Err(self.failed(
                "DocumentInvalid",
                format!("the document could not be read: {error}"),
            )),
        }
    }

    /// The tools, and the ids of the operations that have no address to be called at.
    fn tools<'a>(
        &self,
        document: &'a Document,
        spec_url: &Url,
    ) -> Result<(Vec<Tool>, Vec<&'a str>), BaseUrlError> {
        let mut tools = Vec::new();
        let mut without = Vec::new();
        let mut refused: Option<BaseUrlError> = None;
        for operation in &document.operations {
            match document.base_url(operation, self.config.base_url.as_deref(), spec_url) {
                Ok(base) => tools.push(self.tool(operation, base)),
                Err(error) => {
                    self.skipped(&operation.id, &error.to_string());
                    without.push(operation.id.as_str());
                    refused.get_or_insert(error);
                }
            }
        }
        match refused {
            Some(error) if tools.is_empty() => Err(error),
            _ => Ok((tools, without)),
        }
    }

    /// What of the document is not offered, for people (D6).
    fn caveat(&self, document: &Document, without_address: &[&str]) -> Option<Undiscovered> {
        let skipped: Vec<&str> = document
            .skipped
            .iter()
            .map(|skipped| skipped.id.as_str())
            .chain(without_address.iter().copied())
            .collect();
        let mut told = Vec::new();
        if !skipped.is_empty() {
            let names = named(skipped.into_iter());
            told.push(format!("operations of the document cannot be offered: {names}"));
        }
        if !document.unknown_ids.is_empty() {
            let names = named(document.unknown_ids.iter().map(String::as_str));
            told.push(format!(
                "the document does not have {names} that `operationFilter` names"
            ));
        }
        (!told.is_empty()).then(|| self.failed("ListingIncomplete", told.join("; ")))
    }

    fn tool(&self, operation: &Operation, base: Url) -> Tool {
        let mut config = HttpConfig::new(base.as_str());
        config.method = operation.method.to_string();
        config.headers.clone_from(&self.config.headers);
        if !config
            .headers
            .keys()
            .any(|name| name.eq_ignore_ascii_case("accept"))
        {
            let accept = "application/json".to_owned();
            config.headers.insert("Accept".to_owned(), accept);
        }
        config.retry_policy.clone_from(&self.config.retry_policy);
        let http = HttpTool::operation(&self.handler, config, Call::new(operation, base));
        Tool {
            offered: OfferedTool {
                name: operation.tool.clone(),
                description: operation.description.clone(),
                parameters: operation.input_schema.clone(),
                handler: self.handler.name.clone(),
                timeout: self.handler.timeout,
                kind: ToolKind::Backend,
                repeat_safe: http.is_repeat_safe(),
            },
            check: ArgumentCheck::deferred(operation.input_schema.clone()),
            executor: Some(Box::new(http)),
            breaker: Breaker::new(),
        }
    }

    fn skipped(&self, operation: &str, reason: &str) {
        tracing::warn!(
            registry = self.context.registry,
            handler = self.handler.name,
            operation = %escape(operation, 128),
            reason = %escape(reason, 256),
            "an operation of the document is not offered"
        );
    }

    fn report(&self, document: &Document) {
        for skipped in document.skipped.iter().take(LOGGED) {
            self.skipped(&skipped.id, &skipped.reason);
        }
        if document.skipped.len() > LOGGED {
            tracing::warn!(
                registry = self.context.registry,
                handler = self.handler.name,
                operations = document.skipped.len(),
                "further operations of the document are not offered"
            );
        }
        for id in document.unknown_ids.iter().take(LOGGED) {
            tracing::warn!(
                registry = self.context.registry,
                handler = self.handler.name,
                operation = %escape(id, 128),
                "`operationFilter` names an operation that the document does not have"
            );
        }
    }
}

#[async_trait]
impl ToolSource for OpenapiSource {
    async fn discover(&self) -> Result<Discovered, Undiscovered> {
        let url = Url::parse(self.config.spec_url.trim())
            .map_err(|error| self.failed("HandlerInvalid", format!("`specURL` is not a URL: {error}")))?;
        let text = self.fetch(&url).await?;
        let document = self.read(text).await?;
        self.report(&document);
        let (tools, without_address) = self
            .tools(&document, &url)
            .map_err(|error| self.failed("BaseURLInvalid", error))?;
        let incomplete = self.caveat(&document, &without_address);
        Ok(Discovered { tools, incomplete })
    }
}
