//! The tool calls of one round: judged, stored as intents, sent, and answered in order.

use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use mainstay_llm::Message;
use mainstay_tools::policy::{Decision, Mode};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client_tool;
use super::driver::{Driver, Interrupt, milliseconds};
use super::judgement::{Objection, admissible, objection};
use super::machine::Input;
use super::recovery::{PendingCall, Progress};
use super::skill;
use crate::event::{
    CallOutcome, ClientToolRequested, Payload, PolicyDecided, RecordedCall, ToolFinished, ToolStarted,
};
use crate::history::UNKNOWN_OUTCOME;
use crate::journal::JournalError;
use crate::tool::{RegistryTool, Runs, ToolAnswer, ToolRequest};

/// A call that may be sent.
struct Admitted {
    request: ToolRequest,
    decision: Decision,
    tool: RegistryTool,
    repeated: bool,
}

/// What a call came to.
struct Finished {
    call_id: String,
    tool: String,
    answer: ToolAnswer,
    outcome: CallOutcome,
    took: Duration,
}

impl Driver {
    /// Runs the calls of an answer; `refused` are beyond the turn's limit of calls (OM-370).
    pub(super) async fn run_tools(
        &mut self,
        calls: Vec<RecordedCall>,
        refused: Vec<RecordedCall>,
    ) -> Result<Input, JournalError> {
        for call in refused {
            let limit = self.pack.prompt.tool_policy.max_tool_calls_per_turn.unwrap_or(0);
            self.refuse(
                &call,
                &format!("the turn's limit of {limit} tool calls (max_tool_calls_per_turn) is reached"),
            );
        }
        let mut admitted = Vec::new();
        for call in calls {
            admitted.extend(self.judge(call, false).await);
        }
        self.send_all(admitted).await
    }

    /// Finishes the calls of a round that a crash interrupted (contract 7).
    pub(super) async fn finish_calls(&mut self, pending: Vec<PendingCall>) -> Result<Input, JournalError> {
        let mut admitted = Vec::new();
        for PendingCall { call, progress } in pending {
            match progress {
                Progress::NotSent => admitted.extend(self.judge(call, false).await),
                // Safe when it was stored and safe now: the handler may have been changed in between.
                Progress::Unknown { repeat_safe: true }
                    if self.surface.find(&call.name).is_ok_and(|tool| tool.repeat_safe) =>
                {
                    admitted.extend(self.judge(call, true).await);
                }
                Progress::Unknown { .. } => self.outcome_unknown(&call),
            }
        }
        self.send_all(admitted).await
    }

    /// Decides about one call. A call that may not be sent gets its result at once (OM-363, OM-364, OM-490).
    async fn judge(&mut self, call: RecordedCall, repeated: bool) -> Option<Admitted> {
        let (tool, arguments) = match admissible(&self.surface, &call.name, &call.arguments) {
            Ok((tool, arguments)) => (tool.clone(), arguments),
            Err(reason) => {
                self.refuse(&call, &reason);
                return None;
            }
        };
        if tool.runs == Runs::Builtin {
            self.run_builtin(call, tool, arguments);
            return None;
        }
        let request = ToolRequest {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            arguments,
            session: self.hub.key.session.clone(),
            turn: self.turn.clone(),
            caller: self.started.caller.clone(),
            provider: self.started.provider.clone(),
            model: self.started.model.clone(),
        };
        let tools = self.shared.options.tools.clone();
        let decision = tools.decide(&request).await;
        self.pending.payloads.push(Payload::PolicyDecided(PolicyDecided {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            allow: decision.allow,
            denied_by: decision.denied_by.clone(),
            message: decision.message.clone(),
            mode: match decision.mode {
                Mode::Enforce => "enforce".to_owned(),
                Mode::Audit => "audit".to_owned(),
            },
            would_deny: decision.would_deny,
            policy: decision.deciding_policy().map(str::to_owned),
            injected_headers: decision.injected_headers.keys().cloned().collect(),
            trace: if decision.trace.is_empty() {
                Value::Null
            } else {
                json!(decision.trace)
            },
        }));
        if let Some(Objection { outcome, answer }) = objection(&*tools, &request, &decision) {
            self.record_result(Finished {
                call_id: call.id,
                tool: call.name,
                answer,
                outcome,
                took: Duration::ZERO,
            });
            return None;
        }
        if matches!(tool.runs, Runs::AtClient { .. }) && !(self.started.client_tools && self.hub.has_client())
        {
            self.refuse(&call, "no client that can run this tool is connected");
            return None;
        }
        Some(Admitted {
            request,
            decision,
            tool,
            repeated,
        })
    }

    /// Runs a tool of the engine's own. It has no effect outside of the conversation, so its intent is stored together
    /// with its result.
    fn run_builtin(&mut self, call: RecordedCall, tool: RegistryTool, arguments: Value) {
        let most = self.shared.options.limits.active_skills;
        let answer = skill::activate(&self.pack.skills, &arguments, &self.history, most);
        self.pending.payloads.push(Payload::ToolStarted(ToolStarted {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            handler: tool.handler,
            arguments,
            repeat_safe: tool.repeat_safe,
            repeated: false,
        }));
        let outcome = match answer.is_error {
            true => CallOutcome::Failed,
            false => CallOutcome::Succeeded,
        };
        self.record_result(Finished {
            call_id: call.id,
            tool: call.name,
            answer,
            outcome,
            took: Duration::ZERO,
        });
    }

    /// Sends what was admitted, a bounded number at a time (OM-367). Results are stored as they come; the
    /// conversation that the model reads has them in the order of the calls ([`crate::history::repair`]). The intents of a batch are stored with
    /// whatever is pending, in one transaction, before any call of the batch is sent.
    async fn send_all(&mut self, admitted: Vec<Admitted>) -> Result<Input, JournalError> {
        let parallel = self.shared.options.limits.parallel_tool_calls.max(1);
        let mut waiting = admitted.into_iter().peekable();
        while waiting.peek().is_some() {
            let batch: Vec<Admitted> = waiting.by_ref().take(parallel).collect();
            if let Err(interrupt) = self.send_batch(batch).await? {
                return Ok(Input::Interrupted(self.end_of(interrupt)));
            }
        }
        Ok(Input::ToolsFinished)
    }

    async fn send_batch(&mut self, batch: Vec<Admitted>) -> Result<Result<(), Interrupt>, JournalError> {
        // In the order of the calls, which is the order in which they are reported if the turn is interrupted.
        let mut open: Vec<RecordedCall> = Vec::new();
        let mut running: FuturesUnordered<BoxFuture<'static, Finished>> = FuturesUnordered::new();
        for admitted in batch {
            let Admitted {
                request,
                tool,
                repeated,
                ..
            } = &admitted;
            open.push(RecordedCall {
                id: request.call_id.clone(),
                name: request.tool.clone(),
                arguments: String::new(),
            });
            self.pending.payloads.push(Payload::ToolStarted(ToolStarted {
                call_id: request.call_id.clone(),
                tool: request.tool.clone(),
                handler: tool.handler.clone(),
                arguments: request.arguments.clone(),
                repeat_safe: tool.repeat_safe,
                repeated: *repeated,
            }));
            if let Runs::AtClient {
                consent_message,
                categories,
            } = &tool.runs
            {
                self.pending
                    .payloads
                    .push(Payload::ClientToolRequested(ClientToolRequested {
                        call_id: request.call_id.clone(),
                        tool: request.tool.clone(),
                        arguments: request.arguments.clone(),
                        consent_message: consent_message.clone(),
                        categories: categories.clone().unwrap_or_default(),
                    }));
            }
            running.push(self.execution(admitted));
        }
        // Nothing is polled, and so nothing is sent, before this has returned.
        self.flush().await?;
        while !running.is_empty() {
            match self.uninterrupted(running.next()).await {
                Ok(Some(finished)) => {
                    open.retain(|call| call.id != finished.call_id);
                    self.record_result(finished);
                    self.flush().await?;
                }
                Ok(None) => break,
                Err(interrupt) => {
                    // Dropping the futures aborts the requests, but not what they may have caused.
                    drop(running);
                    for call in &open {
                        self.outcome_unknown(call);
                    }
                    return Ok(Err(interrupt));
                }
            }
        }
        Ok(Ok(()))
    }

    /// The future that makes one call.
    fn execution(&self, admitted: Admitted) -> BoxFuture<'static, Finished> {
        let Admitted {
            request,
            decision,
            tool,
            ..
        } = admitted;
        let shared = self.shared.clone();
        match tool.runs {
            // What the engine runs itself was answered before anything was admitted.
            Runs::Here | Runs::Builtin => Box::pin(async move {
                let begun = Instant::now();
                let answer = shared.options.tools.execute(&request, &decision).await;
                let outcome = if answer.is_error {
                    CallOutcome::Failed
                } else {
                    CallOutcome::Succeeded
                };
                Finished {
                    call_id: request.call_id,
                    tool: request.tool,
                    answer,
                    outcome,
                    took: begun.elapsed(),
                }
            }),
            Runs::AtClient { .. } => {
                // Opened before the request is shown, so that no reply can come too early.
                let replies = self.hub.await_replies(&request.call_id);
                Box::pin(async move {
                    let begun = Instant::now();
                    let answer = client_tool::wait(replies, &shared.options.limits).await;
                    let outcome = if answer.is_error {
                        CallOutcome::Failed
                    } else {
                        CallOutcome::Succeeded
                    };
                    Finished {
                        call_id: request.call_id,
                        tool: request.tool,
                        answer,
                        outcome,
                        took: begun.elapsed(),
                    }
                })
            }
        }
    }

    fn refuse(&mut self, call: &RecordedCall, reason: &str) {
        self.record_result(Finished {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            answer: ToolAnswer {
                content: reason.to_owned(),
                is_error: true,
                ..ToolAnswer::default()
            },
            outcome: CallOutcome::Refused,
            took: Duration::ZERO,
        });
    }

    /// The result of a call that was sent and of which nobody knows what came (contract 7).
    pub(super) fn outcome_unknown(&mut self, call: &RecordedCall) {
        self.record_result(Finished {
            call_id: call.id.clone(),
            tool: call.name.clone(),
            answer: ToolAnswer {
                content: UNKNOWN_OUTCOME.to_owned(),
                is_error: true,
                attempts: 1,
                ..ToolAnswer::default()
            },
            outcome: CallOutcome::Unknown,
            took: Duration::ZERO,
        });
    }

    fn record_result(&mut self, finished: Finished) {
        let Finished {
            call_id,
            tool,
            answer,
            outcome,
            took,
        } = finished;
        let content = shortened(answer.content, self.shared.options.limits.tool_result_bytes);
        let message = Message::tool_result(&call_id, &tool, &content, answer.is_error);
        let message_id = self.shared.options.random.uuid().to_string();
        self.remember(message_id, message);
        self.shared.options.metrics.call_ended(outcome);
        self.pending.payloads.push(Payload::ToolFinished(ToolFinished {
            call_id,
            tool,
            outcome,
            is_error: answer.is_error,
            content,
            duration_ms: milliseconds(took),
            attempts: answer.attempts,
            reason: answer.reason,
            status: answer.status,
        }));
    }
}

fn shortened(mut content: String, limit: usize) -> String {
    if content.len() > limit {
        let whole = content.len();
        let mut end = limit;
        while !content.is_char_boundary(end) {
            end -= 1;
        }
        content.truncate(end);
        content.push_str(&format!("\n[cut: {end} of {whole} bytes]"));
    }
    content
}
