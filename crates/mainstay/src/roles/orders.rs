//! `demo orders`: a small HTTP order service that the help desk example calls.
//!
//! | request | answer |
//! |---|---|
//! | `GET /orders` and `GET /orders?status=STATUS` | `{"orders": [ORDER, …]}` |
//! | `GET /orders/ID` | ORDER, or 404 |
//! | `DELETE /orders/ID` | 204, or 404 |
//! | `GET /openapi.json` | its description in OpenAPI 3.1 |
//! | `/mcp` | the same as tools of a Model Context Protocol server, over streamable HTTP |
//! | `GET /healthz` | 200 |
//! | gRPC, by the Tool protocol | `get_order`, `list_orders`, `delete_order` |
//!
//! ORDER is `{"id", "status", "customer", "items", "total", "carrier", "expected"}`. The orders are in memory: each
//! start brings them back.

mod mcp;
mod tool_service;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Json, Router,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
    serve::ListenerExt,
};
use mainstay_workload::{RoleError, WorkloadContext};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// One order.
#[derive(Clone, Debug, Serialize)]
struct Order {
    id: u64,
    status: &'static str,
    customer: &'static str,
    items: Vec<&'static str>,
    total: &'static str,
    carrier: &'static str,
    expected: &'static str,
}

/// The orders by number.
// A std mutex: held for one look-up, never across an await.
type Orders = Arc<Mutex<BTreeMap<u64, Order>>>;

/// The service as a router, with its orders as they are at the start. `ended` ends the streams that it keeps open.
pub(crate) fn router(ended: &CancellationToken) -> Router {
    let orders = fresh();
    Router::new()
        .route("/orders", get(list))
        .route("/orders/{id}", get(read).delete(delete))
        .route("/openapi.json", get(|| async { Json(description()) }))
        .route("/healthz", get(|| async { "ok" }))
        .route_service("/mcp", mcp::service(Arc::clone(&orders), ended))
        .route_service(tool_service::PATH, tool_service::service(Arc::clone(&orders)))
        .with_state(orders)
}

/// The orders as they are at the start.
fn fresh() -> Orders {
    Arc::new(Mutex::new(
        first_orders()
            .into_iter()
            .map(|order| (order.id, order))
            .collect(),
    ))
}

fn found(orders: &Orders, id: u64) -> Option<Order> {
    let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    orders.get(&id).cloned()
}

fn chosen(orders: &Orders, status: Option<&str>) -> Vec<Order> {
    let orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    orders
        .values()
        .filter(|order| status.is_none_or(|status| status == order.status))
        .cloned()
        .collect()
}

fn deleted(orders: &Orders, id: u64) -> bool {
    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
    orders.remove(&id).is_some()
}

/// What the service says of itself. The operations have the names that the help desk's pack lists.
fn description() -> Value {
    let id = json!({
        "name": "id", "in": "path", "required": true, "schema": { "type": "integer" },
        "description": "The order's number, for example 1017",
    });
    let order = json!({ "description": "The order", "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Order" } } } });
    let missing = json!({ "description": "There is no such order" });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Orders", "version": "1.0.0" },
        "paths": {
            "/orders": {
                "get": {
                    "operationId": "list_orders",
                    "summary": "Lists orders, all of them or those of one status.",
                    "parameters": [{
                        "name": "status", "in": "query",
                        "schema": { "type": "string", "enum": ["open", "shipped", "delivered", "returned"] },
                    }],
                    "responses": { "200": { "description": "The orders" } },
                },
            },
            "/orders/{id}": {
                "parameters": [id],
                "get": {
                    "operationId": "get_order",
                    "summary": "Reads one order by its number.",
                    "responses": { "200": order, "404": missing },
                },
                "delete": {
                    "operationId": "delete_order",
                    "summary": "Deletes an order for good.",
                    "responses": { "204": { "description": "It is deleted" }, "404": missing },
                },
            },
        },
        "components": { "schemas": { "Order": {
            "type": "object",
            "properties": {
                "id": { "type": "integer" }, "status": { "type": "string" }, "customer": { "type": "string" },
                "items": { "type": "array", "items": { "type": "string" } }, "total": { "type": "string" },
                "carrier": { "type": "string" }, "expected": { "type": "string" },
            },
        } } },
    })
}

fn first_orders() -> Vec<Order> {
    let order = |id, status, customer, items: &[&'static str], total, carrier, expected| Order {
        id,
        status,
        customer,
        items: items.to_vec(),
        total,
        carrier,
        expected,
    };
    vec![
        order(
            1015,
            "delivered",
            "Ada",
            &["lantern"],
            "24.00 EUR",
            "Parcel Post",
            "last Monday",
        ),
        order(
            1016,
            "open",
            "Grace",
            &["compass", "map"],
            "61.50 EUR",
            "a carrier yet to be chosen",
            "next week",
        ),
        order(
            1017,
            "shipped",
            "Linus",
            &["rope", "anchor"],
            "139.90 EUR",
            "Harbour Express",
            "Friday",
        ),
        order(
            1018,
            "returned",
            "Barbara",
            &["sextant"],
            "310.00 EUR",
            "Parcel Post",
            "last Thursday",
        ),
    ]
}

#[derive(Debug, Deserialize)]
struct Filter {
    status: Option<String>,
}

async fn list(State(orders): State<Orders>, Query(filter): Query<Filter>) -> Response {
    Json(json!({ "orders": chosen(&orders, filter.status.as_deref()) })).into_response()
}

async fn read(State(orders): State<Orders>, Path(id): Path<u64>) -> Response {
    match found(&orders, id) {
        Some(order) => Json(order).into_response(),
        None => missing(id),
    }
}

async fn delete(State(orders): State<Orders>, Path(id): Path<u64>) -> Response {
    if deleted(&orders, id) {
        StatusCode::NO_CONTENT.into_response()
    } else {
        missing(id)
    }
}

fn missing(id: u64) -> Response {
    (
        StatusCode::NOT_FOUND,
        Json(json!({ "error": format!("there is no order {id}") })),
    )
        .into_response()
}

/// Serves the orders on the container port `http`.
pub(super) async fn serve(context: &WorkloadContext) -> Result<(), RoleError> {
    let listener = context
        .ports
        .listen("http")
        .await
        .map_err(|error| RoleError::new(format!("port `http` cannot be listened on: {error}")))?;
    context.log.line("the order service is ready");
    context.readiness.ready();
    let cancelled = context.cancellation.clone();
    axum::serve(
        listener.tap_io(crate::serve::send_at_once),
        router(&context.cancellation),
    )
    .with_graceful_shutdown(async move { cancelled.cancelled().await })
    .await
    .map_err(|error| RoleError::new(format!("the order service ended: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::{body::Body, body::to_bytes, http::Request};
    use tower::ServiceExt;

    use super::*;

    async fn ask(router: &Router, method: &str, path: &str) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .body(Body::empty())
            .unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        (
            status,
            String::from_utf8(to_bytes(response.into_body(), 10_000).await.unwrap().to_vec()).unwrap(),
        )
    }

    #[tokio::test]
    async fn orders_are_read_listed_and_deleted() {
        let router = router(&CancellationToken::new());
        let (status, body) = ask(&router, "GET", "/orders/1017").await;
        assert!(
            status == StatusCode::OK && body.contains("Harbour Express"),
            "{body}"
        );
        let (_, body) = ask(&router, "GET", "/orders?status=open").await;
        assert!(body.contains("1016") && !body.contains("1017"), "{body}");
        assert_eq!(
            ask(&router, "DELETE", "/orders/1017").await.0,
            StatusCode::NO_CONTENT
        );
        assert_eq!(ask(&router, "GET", "/orders/1017").await.0, StatusCode::NOT_FOUND);
    }
}
