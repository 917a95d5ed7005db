//! An MCP server over streamable HTTP that answers at once, so that what a call costs is the client's own.

use std::net::SocketAddr;

use anyhow::Result;
use axum::{Json, Router, http::StatusCode, response::IntoResponse, routing::any};
use serde_json::{Value, json};

/// The path of the endpoint.
pub(crate) const PATH: &str = "/mcp";

/// Starts the server.
pub(crate) async fn server() -> Result<SocketAddr> {
    let router = Router::new().route(PATH, any(|body: String| async move { answer(&body) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    drop(mainstay_telemetry::task::spawn("mcp server", async move {
        axum::serve(listener, router).await
    }));
    Ok(address)
}

/// The message that calls the tool, as a client writes it.
pub(crate) fn call() -> String {
    json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "get_order", "arguments": {"id": 7}}})
    .to_string()
}

fn answer(body: &str) -> axum::response::Response {
    let Ok(message) = serde_json::from_str::<Value>(body) else {
        // No stream of the server's own.
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    };
    let Some(id) = message.get("id") else {
        return StatusCode::ACCEPTED.into_response();
    };
    let result = match message.get("method").and_then(Value::as_str) {
        Some("initialize") => json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "load", "version": "1"}}),
        Some("tools/list") => json!({"tools": [{"name": "get_order", "description": "Reads an order.",
            "inputSchema": {"type": "object", "properties": {"id": {"type": "integer"}}}}]}),
        Some("tools/call") => {
            json!({"content": [{"type": "text", "text": "{\"id\":7,\"status\":\"shipped\"}"}]})
        }
        Some("ping") => json!({}),
        _ => {
            let error = json!({"code": -32601, "message": "Method not found"});
            return Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}
