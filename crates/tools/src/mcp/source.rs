//! Finds out a server's tools and when they change (OM-423, OM-424).

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{Connection, McpFailure, McpTool, Server, Session};
use crate::{
    arguments::ArgumentCheck,
    breaker::Breaker,
    config::{HandlerConfig, McpConfig},
    invocation::FailureReason,
    openapi::{Named, SourceContext, tool_names},
    toolset::{Discovered, OfferedTool, Tool, ToolKind, ToolSource, Undiscovered, named},
};

/// The tools of one `mcp` handler.
#[derive(Debug)]
pub(crate) struct McpSource {
    connection: Arc<Connection>,
    // What was discovered last. A std mutex: held to look and to change, never across an await.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone)]
struct Seen {
    session: Arc<Session>,
    sessions: u64,
    changes: u64,
}

impl McpSource {
    /// The source of `handler`, whose block is `config`.
    ///
    /// # Errors
    /// Why the block cannot be used.
    pub(crate) fn new(
        handler: &HandlerConfig,
        config: &McpConfig,
        context: SourceContext,
    ) -> Result<Self, String> {
        let server = Server::new(handler, config, context)?;
        Ok(Self {
            connection: Arc::new(Connection::new(Arc::new(server))),
            seen: Mutex::new(None),
        })
    }

    fn handler(&self) -> &HandlerConfig {
        &self.connection.server().handler
    }

    fn failed(&self, failure: &McpFailure) -> Undiscovered {
        let reason = match failure.reason {
            FailureReason::CredentialUnavailable => "CredentialUnavailable",
            FailureReason::AddressRefused => "AddressRefused",
            FailureReason::ProtocolError | FailureReason::ResponseInvalid => "ProtocolError",
            _ => "ServerUnavailable",
        };
        let name = &self.handler().name;
        Undiscovered::new(
            reason,
            format!("handler `{name}`: the MCP server's tools cannot be listed: {failure}"),
        )
    }

    fn tools(&self, session: &Session) -> Discovered {
        let handler = self.handler();
        let config = &self.connection.server().config;
        let listing = session.listing();
        let (listed, missing) = listing.filtered(config);
        let incomplete = listing
            .caveat(&handler.name)
            .or_else(|| unknown_names(&handler.name, &missing));
        let names: Vec<Named<'_>> = listed
            .iter()
            .map(|tool| Named {
                id: &tool.name,
                method: "",
                path: "",
            })
            .collect();
        let tools = tool_names(&names)
            .into_iter()
            .zip(listed)
            .map(|(name, tool)| Tool {
                offered: OfferedTool {
                    name,
                    description: tool.description.clone(),
                    parameters: tool.input_schema.clone(),
                    handler: handler.name.clone(),
                    timeout: handler.timeout,
                    kind: ToolKind::Backend,
                    repeat_safe: tool.is_repeat_safe,
                },
                check: ArgumentCheck::deferred(tool.input_schema.clone()),
                executor: Some(Box::new(McpTool::new(
                    Arc::clone(&self.connection),
                    tool.name.clone(),
                ))),
                breaker: Breaker::new(),
            })
            .collect();
        Discovered { tools, incomplete }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Option<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An allow list that names what the server does not have leaves the agent with less than its author meant it to have.
fn unknown_names(handler: &str, missing: &[&str]) -> Option<Undiscovered> {
    (!missing.is_empty()).then(|| {
        Undiscovered::new(
            "ToolUnknown",
            format!(
                "handler `{handler}`: the server does not list {} that `toolFilter.allowlist` names",
                named(missing.iter().copied())
            ),
        )
    })
}

#[async_trait]
impl ToolSource for McpSource {
    async fn discover(&self) -> Result<Discovered, Undiscovered> {
        let session = self
            .connection
            .session()
            .await
            .map_err(|failure| self.failed(&failure))?;
        let sessions = *self.connection.sessions().borrow();
        if session.is_outdated() {
            session.list().await.map_err(|failure| {
                if failure.is_session_lost {
                    session.lose();
                }
                self.failed(&failure)
            })?;
        }
        let discovered = self.tools(&session);
        *self.seen() = Some(Seen {
            changes: session.listing().as_of,
            session,
            sessions,
        });
        Ok(discovered)
    }

    async fn stale(&self) {
        let Some(seen) = self.seen().clone() else {
            return;
        };
        let mut changes = self.connection.changes();
        let mut sessions = self.connection.sessions();
        // The senders are the connection's, so neither wait ends with an error.
        tokio::select! {
            _ = changes.wait_for(|count| *count != seen.changes) => {}
            _ = sessions.wait_for(|count| *count != seen.sessions) => {}
            () = seen.session.lost() => {}
        }
    }
}
