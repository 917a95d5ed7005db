//! Looking at tools and calls without making any: for people, not for models.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{OfferedTool, Toolset, Unavailable, not_offered};
use crate::{
    config::HandlerType,
    invocation::{FailureReason, ToolInvocation, ToolOutcome},
    policy::Explanation,
    preview::Preview,
    propagation::{decision_request, propagated},
};

/// What a registry has, and what it cannot serve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolListing {
    /// The tools that can be called now, by name.
    pub tools: Vec<ListedTool>,
    /// Handlers that are not served, or not yet, in the registry's order.
    pub unavailable: Vec<Unavailable>,
}

/// A tool and what decides about it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedTool {
    /// The tool.
    pub tool: OfferedTool,
    /// The type of its handler, as manifests spell it.
    pub handler_type: Option<HandlerType>,
    /// The ToolPolicies that select it; `None` where calls are not judged (OM-483).
    pub policies: Option<Vec<String>>,
}

impl Toolset {
    /// The tools that can be called now, with the policies that select each.
    pub fn listing(&self) -> ToolListing {
        let tools = self.descriptors().into_iter().map(|tool| ListedTool {
            handler_type: self.types.get(&tool.handler).copied(),
            policies: self.policy.selecting(&self.registry, &tool.name),
            tool,
        });
        ToolListing {
            tools: tools.collect(),
            unavailable: self.unavailable(),
        }
    }

    /// How a call would be decided, with what every policy of the namespace has to do with it. As
    /// [`Toolset::decide`], but that nothing is logged, and that `headers` may say what else the caller sends.
    pub fn explain(&self, invocation: &ToolInvocation, headers: &BTreeMap<String, String>) -> Explanation {
        let mut invocation = invocation.clone();
        invocation.headers.extend(headers.clone());
        let handler = self.find(&invocation.tool);
        let handler = handler.as_ref().map_or("", |tool| tool.offered.handler.as_str());
        self.policy.explain(&decision_request(
            &self.agent,
            &self.registry,
            handler,
            &invocation,
        ))
    }

    /// The first request of a call that `explanation` allows, without sending it; secrets are masked. `None` for
    /// a tool that runs in the client.
    ///
    /// # Errors
    ///
    /// What ends the call before anything is sent.
    pub async fn preview(
        &self,
        invocation: &ToolInvocation,
        explanation: &Explanation,
    ) -> Result<Option<Preview>, ToolOutcome> {
        if let Some(refused) = self.refusal(invocation, &explanation.decision) {
            return Err(refused);
        }
        let (Some(tool), Value::Object(arguments)) = (self.find(&invocation.tool), &invocation.arguments)
        else {
            let message = not_offered(&invocation.tool);
            return Err(ToolOutcome::error(FailureReason::ToolNotOffered, message));
        };
        let Some(executor) = &tool.executor else {
            return Ok(None);
        };
        let propagated = propagated(&self.agent, &self.registry, invocation);
        let delegation = self.delegation(invocation, &tool.offered.handler);
        let context = self.context(&propagated, &delegation, invocation, &explanation.decision);
        executor
            .preview(&context, arguments)
            .await
            .map(Some)
            .map_err(|failure| ToolOutcome::error(failure.reason, failure.message))
    }
}
