//! From a handler's configuration to its place in the toolset.

use std::sync::Arc;

use super::{
    OfferedTool, ToolKind, Unavailable,
    discovery::ToolSource,
    surface::{Place, Tool},
};
use crate::{
    arguments::ArgumentCheck,
    breaker::Breaker,
    config::{HandlerConfig, HandlerType},
    executor::Executor,
    grpc::GrpcTool,
    http::HttpTool,
    mcp::McpSource,
    openapi::{OpenapiSource, SourceContext},
    support::{mapping_fault, supported},
};

/// The place of `handler`, and what finds out its tools where they are not in the configuration.
pub(super) fn load(handler: &HandlerConfig, context: &SourceContext) -> (Place, Option<Box<dyn ToolSource>>) {
    let mut place = Place {
        handler: handler.name.clone(),
        tools: Vec::new(),
        reserved: handler.tool.as_ref().map(|tool| tool.name.clone()),
        problem: None,
        pending: false,
    };
    match contribution(handler, context) {
        Ok(Contribution::Tool(tool)) => {
            place.tools.push(Arc::new(*tool));
            place.reserved = None;
        }
        Ok(Contribution::Source(source)) => {
            // The tools name themselves; a definition beside them names none (OM-017).
            place.reserved = None;
            place.pending = true;
            place.problem = Some(Unavailable {
                handler: handler.name.clone(),
                reason: "DiscoveryPending",
                message: format!("handler `{}`: its tools are being found out", handler.name),
            });
            return (place, Some(source));
        }
        Err(problem) => place.problem = Some(problem),
    }
    (place, None)
}

enum Contribution {
    Tool(Box<Tool>),
    Source(Box<dyn ToolSource>),
}

fn contribution(handler: &HandlerConfig, context: &SourceContext) -> Result<Contribution, Unavailable> {
    let unavailable = |reason, message: String| Unavailable {
        handler: handler.name.clone(),
        reason,
        message,
    };
    supported(handler).map_err(|refused| unavailable(refused.reason, refused.message))?;
    let missing = |block: &str| {
        unavailable(
            "HandlerInvalid",
            format!(
                "handler `{}`: `{block}` is required for type `{}`",
                handler.name, handler.kind
            ),
        )
    };
    if handler.kind == HandlerType::Openapi {
        let config = handler.openapi.as_ref().ok_or_else(|| missing("openAPIConfig"))?;
        let source = OpenapiSource::new(handler, config, context.clone());
        return Ok(Contribution::Source(Box::new(source)));
    }
    if handler.kind == HandlerType::Mcp {
        let config = handler.mcp.as_ref().ok_or_else(|| missing("mcpConfig"))?;
        let source = McpSource::new(handler, config, context.clone()).map_err(|problem| {
            unavailable("HandlerInvalid", format!("handler `{}`: {problem}", handler.name))
        })?;
        return Ok(Contribution::Source(Box::new(source)));
    }
    let definition = handler.tool.as_ref().ok_or_else(|| missing("tool"))?;
    let check = ArgumentCheck::compile(&definition.input_schema).map_err(|problem| {
        unavailable(
            "InputSchemaInvalid",
            format!(
                "handler `{}`: `tool.inputSchema` cannot be used: {problem}",
                handler.name
            ),
        )
    })?;
    let mut repeat_safe = false;
    let (kind, executor): (_, Option<Box<dyn Executor>>) = match handler.kind {
        HandlerType::Http => {
            let config = handler.http.as_ref().ok_or_else(|| missing("httpConfig"))?;
            for (field, mapping) in [
                ("bodyMapping", &config.body_mapping),
                ("responseMapping", &config.response_mapping),
            ] {
                if let Some(fault) = mapping.as_deref().and_then(mapping_fault) {
                    let message = format!("handler `{}`: `httpConfig.{field}`: {fault}", handler.name);
                    return Err(unavailable("MappingInvalid", message));
                }
            }
            let tool = HttpTool::new(handler, config);
            repeat_safe = tool.is_repeat_safe();
            (ToolKind::Backend, Some(Box::new(tool)))
        }
        HandlerType::Grpc => {
            let config = handler.grpc.as_ref().ok_or_else(|| missing("grpcConfig"))?;
            let (connector, files) = (context.connector.clone(), context.credentials.files.clone());
            let tool =
                GrpcTool::new(handler, config, &definition.name, connector, files).map_err(|cause| {
                    unavailable("HandlerInvalid", format!("handler `{}`: {cause}", handler.name))
                })?;
            (ToolKind::Backend, Some(Box::new(tool)))
        }
        _ => {
            let client = handler.client.clone().unwrap_or_default();
            let kind = ToolKind::Client {
                consent_message: client.consent_message,
                categories: client.categories,
            };
            (kind, None)
        }
    };
    Ok(Contribution::Tool(Box::new(Tool {
        offered: OfferedTool {
            name: definition.name.clone(),
            description: definition.description.clone(),
            parameters: definition.input_schema.clone(),
            handler: handler.name.clone(),
            timeout: handler.timeout,
            kind,
            repeat_safe,
        },
        check,
        executor,
        breaker: Breaker::new(),
    })))
}
