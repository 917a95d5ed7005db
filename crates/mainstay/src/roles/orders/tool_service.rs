//! The orders by the Tool protocol, on the service's one port: HTTP/2 without TLS, beside HTTP/1.1.

use async_trait::async_trait;
use mainstay_tools::grpc::protocol::{
    ListToolsRequest, ListToolsResponse, ToolInfo, ToolRequest, ToolResponse,
    tool_service_server::{ToolService, ToolServiceServer},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::{Request, Response, Status};

use super::{Orders, chosen, deleted, found};

/// The path that all methods of the protocol are below.
pub(super) const PATH: &str = "/omnia.tools.v1.ToolService/{method}";

/// The protocol's side of the order service.
pub(super) fn service(orders: Orders) -> ToolServiceServer<OrderTools> {
    ToolServiceServer::new(OrderTools { orders })
}

pub(super) struct OrderTools {
    orders: Orders,
}

#[derive(Debug, Deserialize)]
struct OneOrder {
    id: u64,
}

#[derive(Debug, Deserialize)]
struct SomeOrders {
    status: Option<String>,
}

fn arguments<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Status> {
    serde_json::from_str(text).map_err(|error| Status::invalid_argument(error.to_string()))
}

fn result(value: &Value) -> ToolResponse {
    ToolResponse {
        result_json: value.to_string(),
        ..ToolResponse::default()
    }
}

fn missing(id: u64) -> ToolResponse {
    ToolResponse {
        is_error: true,
        error_message: format!("there is no order {id}"),
        ..ToolResponse::default()
    }
}

#[async_trait]
impl ToolService for OrderTools {
    async fn execute(&self, request: Request<ToolRequest>) -> Result<Response<ToolResponse>, Status> {
        let request = request.into_inner();
        let text = request.arguments_json.as_str();
        let response = match request.tool_name.as_str() {
            "get_order" => {
                let OneOrder { id } = arguments(text)?;
                found(&self.orders, id).map_or_else(|| missing(id), |order| result(&json!(order)))
            }
            "list_orders" => {
                let SomeOrders { status } = arguments(text)?;
                result(&json!({ "orders": chosen(&self.orders, status.as_deref()) }))
            }
            "delete_order" => {
                let OneOrder { id } = arguments(text)?;
                if deleted(&self.orders, id) {
                    result(&Value::Null)
                } else {
                    missing(id)
                }
            }
            other => return Err(Status::not_found(format!("there is no tool {other:?}"))),
        };
        Ok(Response::new(response))
    }

    async fn list_tools(&self, _: Request<ListToolsRequest>) -> Result<Response<ListToolsResponse>, Status> {
        let one =
            json!({ "type": "object", "properties": { "id": { "type": "integer" } }, "required": ["id"] });
        let some = json!({ "type": "object", "properties": { "status": { "type": "string" } } });
        let tools = [
            ("get_order", "Reads one order by its number.", &one),
            (
                "list_orders",
                "Lists orders, all of them or those of one status.",
                &some,
            ),
            ("delete_order", "Deletes an order for good.", &one),
        ];
        let tools = tools.map(|(name, description, schema)| ToolInfo {
            name: name.to_owned(),
            description: description.to_owned(),
            input_schema: schema.to_string(),
        });
        Ok(Response::new(ListToolsResponse {
            tools: tools.to_vec(),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn execute(service: &OrderTools, tool: &str, arguments: &str) -> Result<ToolResponse, Status> {
        let request = ToolRequest {
            tool_name: tool.to_owned(),
            arguments_json: arguments.to_owned(),
            ..ToolRequest::default()
        };
        let response = service.execute(Request::new(request)).await?;
        Ok(response.into_inner())
    }

    #[tokio::test]
    async fn orders_are_read_listed_and_deleted_by_the_tool_protocol_om_415() {
        let service = OrderTools {
            orders: super::super::fresh(),
        };
        let read = execute(&service, "get_order", r#"{"id":1017}"#).await.unwrap();
        assert!(read.result_json.contains("Harbour Express"), "{read:?}");
        let listed = execute(&service, "list_orders", r#"{"status":"open"}"#)
            .await
            .unwrap();
        assert!(
            listed.result_json.contains("1016") && !listed.result_json.contains("1017"),
            "{listed:?}"
        );
        let deleted = execute(&service, "delete_order", r#"{"id":1017}"#).await.unwrap();
        assert_eq!((deleted.is_error, deleted.result_json.as_str()), (false, "null"));
        let gone = execute(&service, "get_order", r#"{"id":1017}"#).await.unwrap();
        assert_eq!(
            (gone.is_error, gone.error_message.as_str()),
            (true, "there is no order 1017")
        );
        let refused = execute(&service, "get_order", "{}").await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
        let unknown = execute(&service, "fly", "{}").await.unwrap_err();
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    }
}
