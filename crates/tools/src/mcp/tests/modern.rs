//! Streamable HTTP with a server of the newer era: the library's own.

use std::sync::Mutex;

use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as ServerTool,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};

use super::*;

#[derive(Debug, Clone, Default)]
struct Served {
    tools: Arc<Mutex<Vec<&'static str>>>,
    versions: Arc<Mutex<Vec<String>>>,
}

impl ServerHandler for Served {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        let tools = self.tools.lock().unwrap();
        let tools = tools
            .iter()
            .map(|name| ServerTool::new(*name, "", Arc::new(schema.clone())));
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let version = context.meta.protocol_version();
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        self.versions.lock().unwrap().push(version);
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        Ok(CallToolResult::success(vec![ContentBlock::text(arguments.to_string())]).into())
    }
}

fn router(served: &Served) -> Router {
    let served = served.clone();
    let service = StreamableHttpService::new(
        move || Ok(served.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    Router::new().route_service("/mcp", service)
}

#[tokio::test(start_paused = true)]
async fn the_newest_revision_is_spoken_where_both_sides_know_it_om_420() {
    let served = Served::default();
    served.tools.lock().unwrap().extend(["echo", "sum"]);
    let way = Routed::to(router(&served));
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    assert_eq!(names(&set), ["echo", "sum"], "{:?}", set.unavailable());
    let outcome = call(&set, "echo", json!({"a": 1})).await;
    assert_eq!(outcome.content, json!("{\"a\":1}"));
    assert_eq!(*served.versions.lock().unwrap(), ["2026-07-28"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_replaced_by_one_of_the_other_era_is_found_again_om_422() {
    let older = super::fake::Fake::new(&["echo"], super::fake::Config::default());
    let served = Served::default();
    served.tools.lock().unwrap().push("echo");
    let way = Routed::to(older.router());
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    older.restart();
    assert!(!call(&set, "echo", json!({})).await.is_error);
    assert_eq!(
        older.count("server/discover"),
        1,
        "it is known to be of the older era"
    );
    way.set(Some(router(&served)));
    // The library's server speaks both, so the older one's way works at once.
    let outcome = call(&set, "echo", json!({})).await;
    assert!(!outcome.is_error, "{outcome:?}");
    way.set(Some(older.router()));
    let outcome = call(&set, "echo", json!({})).await;
    assert!(!outcome.is_error, "{outcome:?}");
}

/// Its requests stand alone: a server that was away is called again as soon as it is back.
#[tokio::test(start_paused = true)]
async fn a_server_of_the_newer_era_that_was_away_is_called_again_om_422() {
    let served = Served::default();
    served.tools.lock().unwrap().push("echo");
    let way = Routed::to(router(&served));
    let set = ready(McpTransport::StreamableHttp, &way, |_| {}).await;
    way.set(None);
    assert!(call(&set, "echo", json!({})).await.is_error);
    assert_eq!(names(&set), ["echo"]);
    served.tools.lock().unwrap().push("sum");
    way.set(Some(router(&served)));
    assert!(!call(&set, "echo", json!({})).await.is_error);
    until(&set, |set| names(set) == ["echo", "sum"]).await;
}
