//! The tools that a registry's handlers contribute, as the controller reports them (OM-323, OM-326, OM-332).

mod platform;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::omnia::tool_registry::{DiscoveredTool, Handler, HandlerType, ToolStatus};

/// Endpoint of tools that run in the connected client.
pub const CLIENT_ENDPOINT: &str = "client://browser";

/// The tools of valid handlers, in list order, each `Available` (OM-327).
///
/// `http`, `grpc` and `client` contribute the tool they declare, `mcp` and `openapi` one placeholder named after the
/// handler, `platform` the fixed list of its service.
#[must_use]
pub fn discover(handlers: &[&Handler]) -> Vec<DiscoveredTool> {
    handlers.iter().flat_map(|handler| tools(handler)).collect()
}

fn tools(handler: &Handler) -> Vec<DiscoveredTool> {
    let endpoint = endpoint(handler);
    let tool = |name: &str, description: Option<String>, input: Option<Value>, output: Option<Value>| {
        DiscoveredTool {
            name: name.to_owned(),
            handler_name: handler.name.clone(),
            description,
            input_schema: input,
            output_schema: output,
            endpoint: endpoint.clone(),
            status: ToolStatus::Available,
            last_checked: None,
            error: None,
        }
    };
    match handler.kind {
        HandlerType::Http | HandlerType::Grpc | HandlerType::Client => handler
            .tool
            .iter()
            .map(|declared| {
                tool(
                    &declared.name,
                    Some(declared.description.clone()),
                    Some(declared.input_schema.clone()),
                    declared.output_schema.clone(),
                )
            })
            .collect(),
        HandlerType::Mcp | HandlerType::OpenApi => vec![tool(&handler.name, None, None, None)],
        HandlerType::Platform => handler
            .platform
            .iter()
            .flat_map(|platform| platform::tools(platform.service))
            .map(|(name, description, input)| tool(name, Some(description.to_owned()), Some(input), None))
            .collect(),
    }
}

/// Where calls of a handler go, as `discoveredTools[].endpoint` says it (OM-326).
#[must_use]
pub fn endpoint(handler: &Handler) -> Option<String> {
    let address = match handler.kind {
        HandlerType::Http => handler.http_config.as_ref().map(|config| config.endpoint.clone()),
        HandlerType::Grpc => handler
            .grpc_config
            .as_ref()
            .and_then(|config| config.endpoint.clone()),
        HandlerType::Mcp => handler.mcp_config.as_ref().map(|config| config.endpoint.clone()),
        HandlerType::OpenApi => handler
            .open_api_config
            .as_ref()
            .map(|config| match &handler.sandbox {
                // On a sandbox the document's own address is not where calls go.
                Some(_) => config.base_url.clone().unwrap_or_else(|| "/".into()),
                None => config.spec_url.clone(),
            }),
        HandlerType::Client => Some(CLIENT_ENDPOINT.to_owned()),
        HandlerType::Platform => handler
            .platform
            .as_ref()
            .map(|platform| format!("platform://{}", platform.service)),
    };
    match &handler.sandbox {
        Some(sandbox) => Some(format!(
            "sandbox://{}/{}{}",
            sandbox.name,
            sandbox.port,
            address.unwrap_or_default()
        )),
        None => address,
    }
}

/// Host and port that a probe of an endpoint connects to (OM-329).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeTarget {
    /// Nothing to connect to: the tool has no address of its own (OM-330).
    None,
    /// Connect to this.
    Address {
        /// Host name or address.
        host: String,
        /// Port.
        port: u16,
    },
    /// The address cannot be parsed; the tool is unavailable for this reason.
    Unusable(String),
}

/// What a probe of a discovered tool connects to. Ports that a URL leaves out are 80 and 443, by its scheme.
#[must_use]
pub fn probe_target(endpoint: Option<&str>) -> ProbeTarget {
    let Some(endpoint) = endpoint else {
        return ProbeTarget::Unusable("the tool has no endpoint".into());
    };
    if ["client://", "platform://", "sandbox://"]
        .iter()
        .any(|scheme| endpoint.starts_with(scheme))
    {
        return ProbeTarget::None;
    }
    if !endpoint.contains("://") {
        return match crate::validation::endpoint::host_and_port(endpoint) {
            Ok((host, port)) => ProbeTarget::Address { host, port },
            Err(message) => ProbeTarget::Unusable(message),
        };
    }
    match crate::validation::endpoint::absolute_url(endpoint) {
        Ok(url) => match (url.host_str(), url.port_or_known_default()) {
            (Some(host), Some(port)) => ProbeTarget::Address {
                host: host.to_owned(),
                port,
            },
            _ => ProbeTarget::Unusable(format!("{endpoint:?} names no host")),
        },
        Err(message) => ProbeTarget::Unusable(message),
    }
}

/// `sha256:` and the digest of what agents can reach: names, descriptions, schemas and endpoints. Neither the order of
/// handlers nor the health of tools is part of it (OM-332).
#[must_use]
pub fn content_digest(tools: &[DiscoveredTool]) -> String {
    let mut sorted: Vec<&DiscoveredTool> = tools.iter().collect();
    sorted.sort_by(|left, right| (&left.name, &left.handler_name).cmp(&(&right.name, &right.handler_name)));
    // Object keys are sorted and nothing is padded: serde_json's maps are ordered by key.
    let canonical: Value = sorted
        .into_iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "outputSchema": tool.output_schema,
                "endpoint": tool.endpoint,
            })
        })
        .collect();
    sha256(canonical.to_string().as_bytes())
}

/// `sha256:` and the digest of bytes, in lower-case hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        omnia::tool_registry::ToolRegistrySpec,
        validation::tool_registry::{NoCallRules, validate},
    };

    fn spec(handlers: Value) -> ToolRegistrySpec {
        serde_json::from_value(json!({ "handlers": handlers })).unwrap()
    }

    fn four_handlers() -> Vec<Value> {
        vec![
            json!({ "name": "calc", "type": "http", "httpConfig": { "endpoint": "https://api.example.com/calc" },
                "tool": { "name": "calculate", "description": "d", "inputSchema": { "type": "object" } } }),
            json!({ "name": "users", "type": "grpc", "grpcConfig": { "endpoint": "users:50051" },
                "tool": { "name": "get_user", "description": "d", "inputSchema": { "type": "object" } } }),
            json!({ "name": "code", "type": "mcp",
                "mcpConfig": { "transport": "sse", "endpoint": "http://mcp:8080/sse" } }),
            json!({ "name": "petstore", "type": "openapi", "openAPIConfig": { "specURL": "https://p/openapi.json" } }),
        ]
    }

    #[test]
    fn each_type_contributes_its_tools_v_33() {
        let spec = spec(four_handlers().into());
        let verdict = validate(&spec, &NoCallRules);
        assert!(verdict.errors.is_empty(), "{}", verdict.message());
        let tools = discover(&verdict.valid);
        let found: Vec<_> = tools
            .iter()
            .map(|tool| {
                (
                    tool.name.as_str(),
                    tool.handler_name.as_str(),
                    tool.endpoint.as_deref().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("calculate", "calc", "https://api.example.com/calc"),
                ("get_user", "users", "users:50051"),
                ("code", "code", "http://mcp:8080/sse"),
                ("petstore", "petstore", "https://p/openapi.json"),
            ]
        );
        assert!(tools.iter().all(|tool| tool.status == ToolStatus::Available));
    }

    #[test]
    fn a_platform_handler_contributes_its_services_list_v_34() {
        let mut handlers = four_handlers();
        handlers
            .push(json!({ "name": "catalog", "type": "platform", "platform": { "service": "discovery" } }));
        let spec = spec(handlers.into());
        let verdict = validate(&spec, &NoCallRules);
        let tools = discover(&verdict.valid);
        assert_eq!(tools.len(), 7);
        assert_eq!(tools[4].name, "catalog_overview");
        assert_eq!(tools[4].endpoint.as_deref(), Some("platform://discovery"));
    }

    #[test]
    fn sandbox_and_client_handlers_have_endpoints_of_their_own_om_326() {
        let spec = spec(json!([
            { "name": "shell", "type": "mcp", "sandbox": { "name": "box", "port": "mcp" },
              "mcpConfig": { "transport": "sse", "endpoint": "/sse", "toolFilter": { "allowlist": ["Read"] } } },
            { "name": "loc", "type": "client", "tool": { "name": "where", "description": "d", "inputSchema": {} } },
            { "name": "rpc", "type": "grpc", "sandbox": { "name": "box", "port": "rpc" }, "grpcConfig": {},
              "tool": { "name": "run", "description": "d", "inputSchema": {} } },
        ]));
        let verdict = validate(&spec, &NoCallRules);
        assert!(verdict.errors.is_empty(), "{}", verdict.message());
        let endpoints: Vec<_> = discover(&verdict.valid)
            .into_iter()
            .filter_map(|tool| tool.endpoint)
            .collect();
        assert_eq!(
            endpoints,
            ["sandbox://box/mcp/sse", "client://browser", "sandbox://box/rpc"]
        );
        for endpoint in &endpoints {
            assert_eq!(
                probe_target(Some(endpoint)),
                ProbeTarget::None,
                "OM-330: {endpoint}"
            );
        }
    }

    #[test]
    fn the_digest_depends_on_what_can_be_reached_and_on_nothing_else_om_332() {
        let first = spec(four_handlers().into());
        let tools = discover(&validate(&first, &NoCallRules).valid);
        let digest = content_digest(&tools);
        assert!(digest.starts_with("sha256:") && digest.len() == 71, "{digest}");

        let mut reversed: Vec<_> = tools.iter().rev().cloned().collect();
        reversed[0].status = ToolStatus::Unavailable;
        reversed[0].error = Some("refused".into());
        assert_eq!(
            content_digest(&reversed),
            digest,
            "order and health are not part of it"
        );

        let mut changed = tools.clone();
        changed[0].endpoint = Some("https://api.example.com/other".into());
        assert_ne!(content_digest(&changed), digest);
        assert_eq!(
            sha256(b"[]"),
            "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
            "the digest of an empty registry is that of an empty array"
        );
        assert_eq!(content_digest(&[]), sha256(b"[]"));
    }

    #[test]
    fn a_probe_connects_to_the_port_of_the_scheme_om_329() {
        let address = |host: &str, port| ProbeTarget::Address {
            host: host.into(),
            port,
        };
        assert_eq!(
            probe_target(Some("https://api.example.com/x")),
            address("api.example.com", 443)
        );
        assert_eq!(
            probe_target(Some("http://api.example.com/x")),
            address("api.example.com", 80)
        );
        assert_eq!(probe_target(Some("http://api:8080/x")), address("api", 8080));
        assert_eq!(probe_target(Some("users:50051")), address("users", 50051));
        assert!(matches!(probe_target(Some("users")), ProbeTarget::Unusable(_)));
        assert!(matches!(probe_target(None), ProbeTarget::Unusable(_)));
    }
}
