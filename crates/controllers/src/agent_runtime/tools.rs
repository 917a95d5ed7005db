//! What an agent is told about its tools: `tools.yaml`, the Secrets behind it, and what of the registry this version
//! does not serve (OM-263, OM-274 … OM-278, OM-365). Pure.

use std::{collections::BTreeMap, time::Duration};

use mainstay_resources::{
    duration::parse_go,
    names,
    omnia::{
        ToolRegistry,
        reference::SecretKey,
        tool_registry::{
            Handler, HandlerType,
            auth::{Auth, AuthType},
            retry::{GrpcRetryPolicy, HttpRetryPolicy, McpRetryPolicy},
            transport::{GrpcConfig, HttpConfig, McpConfig, McpTransport, OpenApiConfig},
        },
    },
    validation::{tool_auth, tool_registry},
};
use mainstay_tools::{config, support};

use crate::tool_registry::RuntimeRules;

/// The tools of a registry as an agent gets them.
#[derive(Debug, Default)]
pub(super) struct Tools {
    /// The file.
    pub(super) config: config::ToolsConfig,
    /// Key in the agent's tool Secret → where its value comes from (OM-275).
    pub(super) secrets: BTreeMap<String, SecretKey>,
    /// Handler → audience of the ServiceAccount token that it sends (OM-069).
    pub(super) tokens: BTreeMap<String, String>,
    /// Handlers that this version does not serve, each with the reason.
    pub(super) unsupported: Vec<String>,
    /// Handlers on a sandbox that the agent has not enabled (OM-278).
    pub(super) sandbox_not_enabled: Vec<String>,
    /// Whether the registry has handlers on a sandbox.
    pub(super) has_sandbox_handlers: bool,
    /// Handlers whose kind of authentication does not fit their type (OM-276).
    pub(super) auth_faults: Vec<String>,
    /// Names of the tools that the registry declares.
    pub(super) names: Vec<String>,
}

/// Renders the valid handlers of a registry.
pub(super) fn render(registry: &ToolRegistry, namespace: &str, sandbox_enabled: bool) -> Tools {
    let mut tools = Tools {
        config: config::ToolsConfig {
            registry: registry.metadata.name.clone().unwrap_or_default(),
            namespace: namespace.to_owned(),
            handlers: Vec::new(),
        },
        ..Tools::default()
    };
    for handler in tool_registry::validate(&registry.spec, &RuntimeRules).valid {
        tools.add(handler, sandbox_enabled);
    }
    tools
}

impl Tools {
    fn add(&mut self, handler: &Handler, sandbox_enabled: bool) {
        if handler.sandbox.is_some() {
            self.has_sandbox_handlers = true;
            if !sandbox_enabled {
                self.sandbox_not_enabled.push(handler.name.clone());
                return;
            }
        }
        if let Some(fault) = tool_auth::unsupported(handler) {
            self.auth_faults
                .push(format!("handler {:?}: {fault}", handler.name));
            return;
        }
        let auth = tool_auth::effective(handler);
        if auth.connection_ref.is_some() {
            // Its credential cannot be had, and without it the backend is not called.
            self.unsupported.push(format!(
                "handler {:?}: auth.connectionRef is not supported by this version",
                handler.name
            ));
            return;
        }
        let rendered = self.handler(handler, &auth);
        if let Err(unsupported) = support::supported(&rendered) {
            self.unsupported.push(unsupported.to_string());
            // The agent is told nevertheless, so that its own log says the same; it does not offer the tools.
            self.config.handlers.push(rendered);
            return;
        }
        self.names
            .extend(rendered.tool.iter().map(|tool| tool.name.clone()));
        self.secrets.extend(secrets(handler, &auth));
        if auth.kind == AuthType::ServiceAccount
            && let Some(account) = &auth.service_account
        {
            self.tokens.insert(handler.name.clone(), account.audience.clone());
        }
        self.config.handlers.push(rendered);
    }

    fn handler(&self, handler: &Handler, auth: &Auth) -> config::HandlerConfig {
        let mut rendered = config::HandlerConfig::new(&handler.name, kind(handler.kind));
        rendered.endpoint = mainstay_resources::discovery::endpoint(handler);
        rendered.tool = handler.tool.as_ref().map(|tool| config::ToolDefinition {
            name: tool.name.clone(),
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            output_schema: tool.output_schema.clone(),
        });
        rendered.timeout = duration(&handler.timeout, config::DEFAULT_TIMEOUT);
        rendered.delegation = handler
            .delegation
            .as_ref()
            .is_some_and(|delegation| delegation.enabled);
        rendered.sandbox = handler.sandbox.as_ref().map(|sandbox| config::SandboxReference {
            name: sandbox.name.clone(),
            port: sandbox.port.clone(),
        });
        rendered.auth = authentication(handler, auth);
        // The blocks of other types, should there be any, have no effect.
        if handler.kind == HandlerType::Http
            && let Some(http_config) = &handler.http_config
        {
            rendered.http = Some(http(http_config));
            rendered.secret_headers = http_config
                .headers_from_secret
                .keys()
                .map(|header| {
                    (
                        header.clone(),
                        secret_file(&names::secret_header_key(&handler.name, header)),
                    )
                })
                .collect();
        }
        if handler.kind == HandlerType::OpenApi {
            rendered.openapi = handler.open_api_config.as_ref().map(openapi);
        }
        if handler.kind == HandlerType::Mcp {
            rendered.mcp = handler.mcp_config.as_ref().map(mcp);
        }
        if handler.kind == HandlerType::Grpc {
            rendered.grpc = handler.grpc_config.as_ref().map(grpc);
        }
        if handler.kind == HandlerType::Client {
            rendered.client = handler.client_config.as_ref().map(|client| config::ClientConfig {
                consent_message: client.consent_message.clone(),
                categories: client.categories.clone(),
            });
        }
        rendered
    }
}

/// Where each key of the tool Secret comes from.
fn secrets(handler: &Handler, auth: &Auth) -> BTreeMap<String, SecretKey> {
    let mut secrets = BTreeMap::new();
    if matches!(auth.kind, AuthType::Bearer | AuthType::Basic)
        && let Some(secret) = &auth.secret_ref
    {
        secrets.insert(handler.name.clone(), secret.clone());
    }
    if handler.kind == HandlerType::Http {
        for (header, secret) in handler
            .http_config
            .iter()
            .flat_map(|config| &config.headers_from_secret)
        {
            secrets.insert(names::secret_header_key(&handler.name, header), secret.clone());
        }
    }
    secrets
}

fn secret_file(key: &str) -> String {
    format!("{}/{key}", names::TOOL_SECRETS_DIRECTORY)
}

fn authentication(handler: &Handler, auth: &Auth) -> Option<config::AuthConfig> {
    let mut rendered = config::AuthConfig::default();
    match auth.kind {
        AuthType::None => return None,
        AuthType::Bearer => {
            rendered.kind = config::AuthType::Bearer;
            rendered.credential_file = Some(secret_file(&handler.name));
        }
        AuthType::Basic => {
            rendered.kind = config::AuthType::Basic;
            rendered.credential_file = Some(secret_file(&handler.name));
        }
        AuthType::ServiceAccount => {
            rendered.kind = config::AuthType::ServiceAccount;
            rendered.credential_file = Some(format!("{}/{}", names::TOOL_TOKENS_DIRECTORY, handler.name));
            rendered.audience = auth
                .service_account
                .as_ref()
                .map(|account| account.audience.clone());
        }
        AuthType::WorkloadIdentity => {
            rendered.kind = config::AuthType::WorkloadIdentity;
            if let Some(identity) = &auth.workload_identity {
                rendered.audience = Some(identity.audience.clone());
                let is_own = !identity.header.eq_ignore_ascii_case("authorization");
                rendered.header = is_own.then(|| identity.header.clone());
            }
        }
    }
    Some(rendered)
}

fn kind(kind: HandlerType) -> config::HandlerType {
    match kind {
        HandlerType::Http => config::HandlerType::Http,
        HandlerType::Grpc => config::HandlerType::Grpc,
        HandlerType::Mcp => config::HandlerType::Mcp,
        HandlerType::OpenApi => config::HandlerType::Openapi,
        HandlerType::Client => config::HandlerType::Client,
        HandlerType::Platform => config::HandlerType::Platform,
    }
}

fn http(config: &HttpConfig) -> config::HttpConfig {
    let mut rendered = config::HttpConfig::new(&config.endpoint);
    rendered.method.clone_from(&config.method);
    rendered.headers.clone_from(&config.headers);
    rendered.content_type.clone_from(&config.content_type);
    rendered.retry_policy = config.retry_policy.as_ref().map(retry);
    rendered.url_template.clone_from(&config.url_template);
    rendered.query_params.clone_from(&config.query_params);
    rendered.header_params.clone_from(&config.header_params);
    rendered.static_query.clone_from(&config.static_query);
    rendered.static_body.clone_from(&config.static_body);
    rendered.body_mapping.clone_from(&config.body_mapping);
    rendered.response_mapping.clone_from(&config.response_mapping);
    rendered.redact.clone_from(&config.redact);
    rendered
}

fn openapi(config: &OpenApiConfig) -> config::OpenapiConfig {
    let mut rendered = config::OpenapiConfig::new(&config.spec_url);
    rendered.base_url.clone_from(&config.base_url);
    rendered.operation_filter.clone_from(&config.operation_filter);
    rendered.headers.clone_from(&config.headers);
    rendered.retry_policy = config.retry_policy.as_ref().map(retry);
    rendered
}

fn mcp(config: &McpConfig) -> config::McpConfig {
    let transport = match config.transport {
        McpTransport::Sse => config::McpTransport::Sse,
        McpTransport::StreamableHttp => config::McpTransport::StreamableHttp,
    };
    let mut rendered = config::McpConfig::new(transport, &config.endpoint);
    if let Some(filter) = &config.tool_filter {
        rendered.allowlist.clone_from(&filter.allowlist);
        rendered.blocklist.clone_from(&filter.blocklist);
    }
    rendered.retry_policy = config.retry_policy.as_ref().map(mcp_retry);
    rendered
}

/// The four fields that an MCP policy has (OM-065).
fn mcp_retry(policy: &McpRetryPolicy) -> config::RetryPolicy {
    let default = config::RetryPolicy::new(u32::try_from(policy.max_attempts).unwrap_or(1));
    config::RetryPolicy {
        initial_backoff: duration(&policy.initial_backoff, default.initial_backoff),
        backoff_multiplier: policy
            .backoff_multiplier
            .parse()
            .unwrap_or(default.backoff_multiplier),
        max_backoff: duration(&policy.max_backoff, default.max_backoff),
        ..default
    }
}

fn grpc(config: &GrpcConfig) -> config::GrpcConfig {
    config::GrpcConfig {
        endpoint: config.endpoint.clone().unwrap_or_default(),
        tls: config.tls,
        tls_cert_path: config.tls_cert_path.clone(),
        tls_key_path: config.tls_key_path.clone(),
        tls_ca_path: config.tls_ca_path.clone(),
        tls_insecure_skip_verify: config.tls_insecure_skip_verify,
        retry_policy: config.retry_policy.as_ref().map(grpc_retry),
    }
}

fn grpc_retry(policy: &GrpcRetryPolicy) -> config::GrpcRetryPolicy {
    let default = config::GrpcRetryPolicy::new(u32::try_from(policy.max_attempts).unwrap_or(1));
    config::GrpcRetryPolicy {
        initial_backoff: duration(&policy.initial_backoff, default.initial_backoff),
        backoff_multiplier: policy
            .backoff_multiplier
            .parse()
            .unwrap_or(default.backoff_multiplier),
        max_backoff: duration(&policy.max_backoff, default.max_backoff),
        // Absent is the default list, empty is no code at all (OM-064).
        retryable_status_codes: policy
            .retryable_status_codes
            .clone()
            .unwrap_or(default.retryable_status_codes),
        ..default
    }
}

/// The handler is valid, so everything here parses; what does not would be the default, which is also what an absent
/// field is (OM-004).
fn retry(policy: &HttpRetryPolicy) -> config::RetryPolicy {
    let default = config::RetryPolicy::new(u32::try_from(policy.max_attempts).unwrap_or(1));
    config::RetryPolicy {
        initial_backoff: duration(&policy.initial_backoff, default.initial_backoff),
        backoff_multiplier: policy
            .backoff_multiplier
            .parse()
            .unwrap_or(default.backoff_multiplier),
        max_backoff: duration(&policy.max_backoff, default.max_backoff),
        // Absent is the default list, empty is no status at all (OM-061).
        retry_on: match &policy.retry_on {
            None => default.retry_on.clone(),
            Some(list) => list
                .iter()
                .filter_map(|status| u16::try_from(*status).ok())
                .collect(),
        },
        retry_on_network_error: policy.retry_on_network_error,
        respect_retry_after: policy.respect_retry_after,
        ..default
    }
}

fn duration(text: &str, default: Duration) -> Duration {
    parse_go(text).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn rendered(handlers: Value, sandbox_enabled: bool) -> Tools {
        let registry = ToolRegistry::new(
            "r",
            serde_json::from_value(json!({ "handlers": handlers })).unwrap(),
        );
        render(&registry, "default", sandbox_enabled)
    }

    fn http_handler(extra: Value) -> Value {
        let mut handler = json!({
            "name": "orders", "type": "http", "httpConfig": { "endpoint": "http://orders" },
            "tool": { "name": "get_order", "description": "d", "inputSchema": { "type": "object" } },
        });
        handler
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        handler
    }

    #[test]
    fn a_handler_is_rendered_with_its_defaults_om_365() {
        let tools = rendered(json!([http_handler(json!({ "timeout": "1m30s" }))]), false);
        let handler = &tools.config.handlers[0];
        let http = handler.http.as_ref().unwrap();
        assert_eq!(
            (http.method.as_str(), http.content_type.as_str()),
            ("POST", "application/json")
        );
        assert_eq!(handler.timeout, Duration::from_secs(90));
        assert_eq!(tools.names, ["get_order"]);
        assert!(http.retry_policy.is_none() && handler.auth.is_none() && tools.secrets.is_empty());
    }

    #[test]
    fn an_openapi_handler_is_rendered_with_its_block_om_365() {
        let tools = rendered(
            json!([{ "name": "orders", "type": "openapi", "openAPIConfig": {
                "specURL": "http://orders/openapi.json", "operationFilter": ["get_order"],
                "retryPolicy": { "maxAttempts": 3 },
            } }]),
            false,
        );
        let openapi = tools.config.handlers[0].openapi.as_ref().unwrap();
        assert_eq!(openapi.spec_url, "http://orders/openapi.json");
        assert_eq!(openapi.operation_filter, ["get_order"]);
        assert_eq!(openapi.retry_policy.as_ref().unwrap().max_attempts, 3);
        assert!(tools.names.is_empty(), "its tools are known to the agent only");
    }

    #[test]
    fn an_mcp_handler_is_rendered_with_its_block_om_065_om_079_om_081() {
        let tools = rendered(
            json!([{ "name": "code", "type": "mcp", "mcpConfig": {
                "transport": "streamable-http", "endpoint": "http://code:8080/mcp",
                "toolFilter": { "allowlist": ["Read"], "blocklist": ["Write"] },
                "retryPolicy": { "maxAttempts": 3, "initialBackoff": "1s", "backoffMultiplier": "1.5", "maxBackoff": "4s" },
            }, "auth": { "type": "bearer", "secretRef": { "name": "code", "key": "token" } } }]),
            false,
        );
        let handler = &tools.config.handlers[0];
        let mut expected =
            config::McpConfig::new(config::McpTransport::StreamableHttp, "http://code:8080/mcp");
        expected.allowlist = vec!["Read".to_owned()];
        expected.blocklist = vec!["Write".to_owned()];
        expected.retry_policy = Some(config::RetryPolicy {
            initial_backoff: Duration::from_secs(1),
            backoff_multiplier: 1.5,
            max_backoff: Duration::from_secs(4),
            ..config::RetryPolicy::new(3)
        });
        assert_eq!(handler.mcp.as_ref(), Some(&expected));
        assert_eq!(
            handler.auth.as_ref().unwrap().credential_file.as_deref(),
            Some("/etc/omnia/tool-secrets/code")
        );
        assert!(tools.unsupported.is_empty() && tools.names.is_empty());
    }

    #[test]
    fn a_grpc_handler_is_rendered_with_its_block_om_064_om_073_om_365() {
        let with = |policy: Value| {
            let tools = rendered(
                json!([{ "name": "rpc", "type": "grpc",
                    "grpcConfig": { "endpoint": "users:50051", "tls": true, "tlsCAPath": "/tls/ca.pem", "retryPolicy": policy },
                    "tool": { "name": "get_user", "description": "d", "inputSchema": {} } }]),
                false,
            );
            assert_eq!(tools.names, ["get_user"]);
            tools.config.handlers[0].grpc.clone().unwrap()
        };
        let grpc = with(json!({ "maxAttempts": 2 }));
        assert_eq!(
            (grpc.endpoint.as_str(), grpc.tls, grpc.tls_ca_path.as_deref()),
            ("users:50051", true, Some("/tls/ca.pem"))
        );
        let codes = |policy: Value| with(policy).retry_policy.unwrap().retryable_status_codes;
        assert_eq!(
            codes(json!({ "maxAttempts": 2 })),
            config::DEFAULT_RETRYABLE_STATUS_CODES
        );
        assert!(codes(json!({ "maxAttempts": 2, "retryableStatusCodes": [] })).is_empty());
        assert_eq!(
            codes(json!({ "maxAttempts": 2, "retryableStatusCodes": ["ABORTED"] })),
            ["ABORTED"]
        );
    }

    #[test]
    fn an_empty_retry_list_reaches_the_agent_as_empty_om_061() {
        let with = |policy: Value| {
            let config = json!({ "httpConfig": { "endpoint": "http://orders", "retryPolicy": policy } });
            let tools = rendered(json!([http_handler(config)]), false);
            tools.config.handlers[0]
                .http
                .clone()
                .unwrap()
                .retry_policy
                .unwrap()
                .retry_on
        };
        assert_eq!(with(json!({ "maxAttempts": 2 })), config::DEFAULT_RETRY_ON);
        assert!(with(json!({ "maxAttempts": 2, "retryOn": [] })).is_empty());
        assert_eq!(with(json!({ "maxAttempts": 2, "retryOn": [418] })), [418]);
    }

    #[test]
    fn credentials_are_paths_in_the_file_and_copies_in_the_secret_om_274_om_275() {
        let tools = rendered(
            json!([http_handler(json!({
                "auth": { "type": "bearer", "secretRef": { "name": "api", "key": "token" } },
                "httpConfig": { "endpoint": "http://orders", "headersFromSecret": { "X-Api-Key": { "name": "k", "key": "v" } } },
            }))]),
            false,
        );
        let handler = &tools.config.handlers[0];
        assert_eq!(
            handler.auth.as_ref().unwrap().credential_file.as_deref(),
            Some("/etc/omnia/tool-secrets/orders")
        );
        assert_eq!(
            handler.secret_headers["X-Api-Key"],
            "/etc/omnia/tool-secrets/orders.x-api-key"
        );
        let keys: Vec<_> = tools
            .secrets
            .iter()
            .map(|(key, secret)| (key.as_str(), secret.name.as_str()))
            .collect();
        assert_eq!(keys, [("orders", "api"), ("orders.x-api-key", "k")]);
    }

    #[test]
    fn tokens_are_named_by_audience_and_file_om_069_om_070_om_400() {
        let tools = rendered(
            json!([
                http_handler(
                    json!({ "name": "sa", "auth": { "type": "serviceAccount", "serviceAccount": { "audience": "crm" } } })
                ),
                http_handler(json!({ "name": "wi", "auth": { "type": "workloadIdentity",
                    "workloadIdentity": { "cloud": "azure", "audience": "api://crm", "header": "X-Token" } } })),
                http_handler(json!({ "name": "plain", "auth": { "type": "workloadIdentity",
                    "workloadIdentity": { "cloud": "azure", "audience": "api://crm" } } })),
            ]),
            false,
        );
        let auth = |index: usize| tools.config.handlers[index].auth.clone().unwrap();
        assert_eq!(auth(0).kind, config::AuthType::ServiceAccount);
        assert_eq!(
            auth(0).credential_file.as_deref(),
            Some("/var/run/secrets/omnia/tool-tokens/sa")
        );
        assert_eq!(auth(1).kind, config::AuthType::WorkloadIdentity);
        assert_eq!(
            (
                auth(1).audience.as_deref(),
                auth(1).header.as_deref(),
                auth(1).credential_file
            ),
            (Some("api://crm"), Some("X-Token"), None)
        );
        assert_eq!(auth(2).header, None);
        assert_eq!(
            tools.tokens,
            BTreeMap::from([("sa".to_owned(), "crm".to_owned())])
        );
        assert!(tools.secrets.is_empty() && tools.unsupported.is_empty());
    }

    #[test]
    fn deprecated_fields_are_an_auth_stanza_om_072() {
        let tools = rendered(
            json!([http_handler(json!({
                "httpConfig": { "endpoint": "http://orders", "authSecretRef": { "name": "api", "key": "token" } },
            }))]),
            false,
        );
        assert_eq!(
            tools.config.handlers[0].auth.as_ref().unwrap().kind,
            config::AuthType::Bearer
        );
        assert!(tools.secrets.contains_key("orders"));
    }

    #[test]
    fn what_is_not_served_is_named_and_offers_no_tool() {
        let tools = rendered(
            json!([
                http_handler(json!({})),
                { "name": "shell", "type": "platform", "platform": { "service": "discovery" } },
                http_handler(json!({ "name": "crm", "auth": { "type": "bearer", "connectionRef": { "name": "c", "key": "k" } } })),
                http_handler(json!({ "name": "sa", "sandbox": { "name": "box", "port": "http" }, "httpConfig": { "endpoint": "/" } })),
            ]),
            true,
        );
        assert_eq!(tools.names, ["get_order"]);
        assert_eq!(tools.unsupported.len(), 3, "{:?}", tools.unsupported);
        for (text, name) in tools.unsupported.iter().zip(["shell", "crm", "sa"]) {
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn an_authentication_that_does_not_fit_its_type_is_a_fault_om_276() {
        let tools = rendered(
            json!([{ "name": "where", "type": "client", "tool": { "name": "where", "description": "d", "inputSchema": {} },
                "auth": { "type": "workloadIdentity", "workloadIdentity": { "cloud": "azure", "audience": "x" } } }]),
            false,
        );
        assert_eq!(tools.auth_faults.len(), 1);
        assert!(tools.config.handlers.is_empty());
    }

    #[test]
    fn sandbox_handlers_wait_for_the_agents_consent_om_278() {
        let handlers = json!([{ "name": "shell", "type": "mcp", "sandbox": { "name": "box", "port": "mcp" },
            "mcpConfig": { "transport": "sse", "endpoint": "/sse", "toolFilter": { "allowlist": ["Read"] } } }]);
        let off = rendered(handlers.clone(), false);
        assert_eq!(
            (off.sandbox_not_enabled, off.config.handlers.len()),
            (vec!["shell".to_owned()], 0)
        );
        let on = rendered(handlers, true);
        assert!(on.sandbox_not_enabled.is_empty() && !on.unsupported.is_empty());
    }

    #[test]
    fn an_invalid_handler_is_left_out_and_the_others_are_served_om_263() {
        let tools = rendered(
            json!([{ "name": "bad", "type": "http" }, http_handler(json!({}))]),
            false,
        );
        assert_eq!(tools.config.handlers.len(), 1);
    }
}
