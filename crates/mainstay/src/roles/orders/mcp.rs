//! The order service as a Model Context Protocol server: the same three operations as tools.

use std::sync::{Arc, PoisonError};

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Order, Orders};

/// Serves `orders` until `ended`.
pub(super) fn service(
    orders: Orders,
    ended: &CancellationToken,
) -> StreamableHttpService<OrderTools, LocalSessionManager> {
    let mut config = StreamableHttpServerConfig::default()
        // It is called by its Service's name. What keeps web pages out is that they cannot hide where they are from.
        .disable_allowed_hosts()
        .enforce_origin_validation();
    config.cancellation_token = ended.child_token();
    StreamableHttpService::new(
        move || {
            Ok(OrderTools {
                orders: Arc::clone(&orders),
            })
        },
        Arc::new(LocalSessionManager::default()),
        config,
    )
}

/// The tools.
pub(super) struct OrderTools {
    orders: Orders,
}

impl ServerHandler for OrderTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("orders", env!("CARGO_PKG_VERSION")))
            .with_instructions("Orders of the help desk's shop")
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        match request.name.as_ref() {
            "get_order" => Ok(self.get(number(&arguments)?).into()),
            "list_orders" => Ok(self.list(arguments["status"].as_str()).into()),
            "delete_order" => Ok(self.delete(number(&arguments)?).into()),
            other => Err(ErrorData::invalid_params(
                format!("there is no tool `{other}`"),
                None,
            )),
        }
    }
}

impl OrderTools {
    fn get(&self, id: u64) -> CallToolResult {
        match self
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&id)
        {
            Some(order) => CallToolResult::structured(json!(order)),
            None => missing(id),
        }
    }

    fn list(&self, status: Option<&str>) -> CallToolResult {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen: Vec<&Order> = orders
            .values()
            .filter(|order| status.is_none_or(|status| status == order.status))
            .collect();
        CallToolResult::structured(json!({ "orders": chosen }))
    }

    fn delete(&self, id: u64) -> CallToolResult {
        match self
            .orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id)
        {
            Some(_) => CallToolResult::structured(json!({ "deleted": id })),
            None => missing(id),
        }
    }
}

fn number(arguments: &Value) -> Result<u64, ErrorData> {
    arguments["id"]
        .as_u64()
        .ok_or_else(|| ErrorData::invalid_params("`id` is the number of an order", None))
}

fn missing(id: u64) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(format!("there is no order {id}"))])
}

fn tools() -> Vec<Tool> {
    let by_number = json!({
        "type": "object", "required": ["id"],
        "properties": { "id": { "type": "integer", "description": "The order's number, for example 1017" } },
    });
    let by_status = json!({
        "type": "object",
        "properties": { "status": { "type": "string", "enum": ["open", "shipped", "delivered", "returned"] } },
    });
    let tool = |name: &'static str, description: &'static str, schema: &Value| {
        let schema = schema.as_object().cloned().unwrap_or_default();
        Tool::new(name, description, Arc::new(schema))
    };
    let reads = || ToolAnnotations::new().read_only(true).open_world(false);
    vec![
        tool("get_order", "Reads one order by its number.", &by_number).with_annotations(reads()),
        tool(
            "list_orders",
            "Lists orders, all of them or those of one status.",
            &by_status,
        )
        .with_annotations(reads()),
        tool("delete_order", "Deletes an order for good.", &by_number)
            .with_annotations(ToolAnnotations::new().destructive(true).open_world(false)),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::roles::orders::first_orders;

    #[test]
    fn the_tools_do_what_the_routes_do() {
        let orders = first_orders()
            .into_iter()
            .map(|order| (order.id, order))
            .collect();
        let tools = OrderTools {
            orders: Arc::new(std::sync::Mutex::new(orders)),
        };
        let read = tools.get(1017).structured_content.unwrap();
        assert_eq!(read["carrier"], "Harbour Express");
        let open = tools.list(Some("open")).structured_content.unwrap();
        assert_eq!(open["orders"].as_array().unwrap().len(), 1);
        assert_eq!(tools.delete(1017).is_error, Some(false));
        assert_eq!(tools.get(1017).is_error, Some(true));
        assert_eq!(tools.delete(1017).is_error, Some(true));
    }
}
