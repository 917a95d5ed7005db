//! The tools of a ToolRegistry.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_tools::policy::{Decision, Explanation, Identity};
use mainstay_tools::{Preview, ToolInvocation, ToolKind, ToolOutcome, Toolset};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    RegistryFacts, RegistryTool, Runs, ToolAnswer, ToolFacts, ToolRequest, ToolRunner, UnavailableHandler,
};

#[async_trait]
impl ToolRunner for Toolset {
    fn tools(&self) -> Vec<RegistryTool> {
        self.descriptors()
            .into_iter()
            .map(|tool| RegistryTool {
                name: tool.name,
                description: tool.description,
                // A registry without a schema accepts whatever the model sends (OM-364); models want an object.
                parameters: match tool.parameters {
                    Value::Null => serde_json::json!({"type": "object"}),
                    schema => schema,
                },
                handler: tool.handler,
                runs: match tool.kind {
                    ToolKind::Client {
                        consent_message,
                        categories,
                    } => Runs::AtClient {
                        consent_message,
                        categories,
                    },
                    ToolKind::Backend => Runs::Here,
                },
                repeat_safe: tool.repeat_safe,
            })
            .collect()
    }

    fn ceiling(&self) -> Duration {
        Toolset::ceiling(self)
    }

    async fn decide(&self, request: &ToolRequest) -> Decision {
        Toolset::decide(self, &invocation(request))
    }

    fn refusal(&self, request: &ToolRequest, decision: &Decision) -> Option<ToolAnswer> {
        Toolset::refusal(self, &invocation(request), decision).map(answer)
    }

    async fn execute(&self, request: &ToolRequest, decision: &Decision) -> ToolAnswer {
        // The turn has asked for a refusal before it stored its intent to make the call.
        answer(self.execute_checked(&invocation(request), decision).await)
    }

    fn registry(&self) -> RegistryFacts {
        let listing = self.listing();
        RegistryFacts {
            tools: listing
                .tools
                .into_iter()
                .map(|listed| {
                    let facts = ToolFacts {
                        handler_type: listed
                            .handler_type
                            .map(|kind| kind.to_string())
                            .unwrap_or_default(),
                        policies: listed.policies,
                    };
                    (listed.tool.name, facts)
                })
                .collect(),
            unavailable: listing
                .unavailable
                .into_iter()
                .map(|problem| UnavailableHandler {
                    handler: problem.handler,
                    reason: problem.reason.to_owned(),
                    message: problem.message,
                })
                .collect(),
        }
    }

    async fn explain(&self, request: &ToolRequest, headers: &BTreeMap<String, String>) -> Explanation {
        Toolset::explain(self, &invocation(request), headers)
    }

    async fn preview(
        &self,
        request: &ToolRequest,
        explanation: &Explanation,
    ) -> Result<Option<Preview>, ToolAnswer> {
        Toolset::preview(self, &invocation(request), explanation)
            .await
            .map_err(answer)
    }
}

fn invocation(request: &ToolRequest) -> ToolInvocation {
    let caller = request.caller.clone();
    ToolInvocation {
        call_id: request.call_id.clone(),
        tool: request.tool.clone(),
        arguments: request.arguments.clone(),
        session: request.session.clone(),
        turn: request.turn.clone(),
        identity: Identity {
            origin: caller.origin,
            subject: caller.subject,
            end_user: caller.end_user,
            claims: caller.claims,
            ..Identity::default()
        },
        headers: BTreeMap::from([
            ("X-Omnia-Provider".to_owned(), request.provider.clone()),
            ("X-Omnia-Model".to_owned(), request.model.clone()),
        ]),
        // A turn ends a call by dropping its future.
        cancel: CancellationToken::new(),
    }
}

fn answer(outcome: ToolOutcome) -> ToolAnswer {
    ToolAnswer {
        content: outcome.text(),
        is_error: outcome.is_error,
        attempts: outcome.attempts,
        // The reason's serde form is its stable word.
        reason: outcome
            .reason
            .and_then(|reason| serde_json::to_value(reason).ok())
            .and_then(|word| word.as_str().map(str::to_owned)),
        status: outcome.status,
    }
}
