//! One call: its attempts, and the one repeat after a lost session (OM-396, OM-422).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{CallState, Connection, McpFailure, Session, result, server::Carried};
use crate::{
    breaker::Verdict,
    config::RetryPolicy,
    executor::{CallContext, Called, Executor, Failure},
    http::{signed, verdict},
    invocation::FailureReason,
    preview::Preview,
    retry::{Again, Attempts, Failed, cancelled},
};

/// The procedure of the protocol that calls a tool.
const PROCEDURE: &str = "tools/call";

/// One of a server's tools.
#[derive(Debug)]
pub(super) struct McpTool {
    connection: Arc<Connection>,
    // The server's own name for it, which need not be the one that models see (D3).
    name: String,
}

/// What the attempts of one call came to, for the record.
#[derive(Debug, Default)]
struct Record {
    // Counted on the way to the server, so that it holds for a call that is cancelled too.
    sent: Arc<AtomicU32>,
    status: Option<u16>,
    // The last attempt found no session to be made in.
    has_no_session: bool,
}

impl Record {
    fn verdict(&self, result: &Result<Value, Failure>) -> Verdict {
        match verdict(result, self.status) {
            // A server that answers and gives no session serves nobody.
            Verdict::Works if self.has_no_session => Verdict::Fails,
            other => other,
        }
    }
}

impl McpTool {
    pub(super) fn new(connection: Arc<Connection>, name: String) -> Self {
        Self { connection, name }
    }

    fn timeout(&self) -> Duration {
        self.connection.server().handler.timeout
    }

    /// One attempt. Where the session turns out to be lost, the call is made once more in a new one,
    /// whatever the retry policy says.
    async fn attempt(
        &self,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
        record: &mut Record,
    ) -> Result<Value, McpFailure> {
        let (session, failure) = match self.once(None, context, arguments, record).await {
            Err((Some(session), failure)) if failure.is_session_lost => (session, failure),
            other => return other.map_err(|(_, failure)| failure),
        };
        tracing::info!(
            handler = self.connection.server().handler.name,
            tool = self.name,
            cause = %failure,
            "an MCP session was lost during a call; it is made once more in a new one"
        );
        session.lose();
        let repeated = self.once(Some(&session), context, arguments, record).await;
        repeated.map_err(|(session, failure)| {
            if failure.is_session_lost
                && let Some(session) = session
            {
                // The background finds a new one.
                session.lose();
            }
            failure
        })
    }

    /// What one request carries beside its arguments.
    async fn state(
        &self,
        context: &CallContext<'_>,
        sent: &Arc<AtomicU32>,
        deadline: Duration,
    ) -> Result<CallState, McpFailure> {
        let mut state = CallState::of(context, sent, deadline);
        state.delegation = signed(self.connection.server().handler.delegation, context)
            .await
            .map_err(|failed| McpFailure::lasting(failed.failure.reason, failed.failure.message))?;
        Ok(state)
    }

    /// One request, within the handler's `timeout`. An error comes with the session it was made in.
    /// `lost` is the session that the first request of the same attempt was lost with.
    async fn once(
        &self,
        lost: Option<&Arc<Session>>,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
        record: &mut Record,
    ) -> Result<Value, (Option<Arc<Session>>, McpFailure)> {
        // What an earlier request came to says nothing about this one.
        record.status = None;
        record.has_no_session = false;
        let timeout = self.timeout();
        let ends = Instant::now() + timeout;
        let session = match tokio::time::timeout_at(ends, self.connection.session()).await {
            Ok(Ok(session)) => session,
            // To dial again at once would only make the caller wait twice as long.
            Ok(Err(failure)) => {
                record.status = failure.status;
                record.has_no_session = true;
                let message = format!("there is no session with the MCP server: {failure}");
                return Err((None, McpFailure { message, ..failure }));
            }
            Err(_) => return Err((None, timed_out(timeout))),
        };
        // The list was made anew with the session (OM-423).
        if lost.is_some() && !session.listing().has(&self.name) {
            let message = format!("the server has no tool `{}` any more", self.name);
            return Err((None, McpFailure::lasting(FailureReason::ToolNotOffered, message)));
        }
        let left = ends.saturating_duration_since(Instant::now());
        let state = self
            .state(context, &record.sent, left)
            .await
            .map_err(|failure| (None, failure))?;
        let state = Arc::new(state);
        let answer = session.call(&self.name, arguments, &state).await;
        record.status = state.status();
        answer
            .and_then(|answer| result::shape(&answer, &state.secrets()))
            .map_err(|failure| {
                // What is left of the time is an accident of the dial; the limit is what the author knows.
                let failure = match failure.reason {
                    FailureReason::TimedOut => timed_out(timeout),
                    _ => failure,
                };
                (Some(session), failure)
            })
    }
}

fn timed_out(timeout: Duration) -> McpFailure {
    McpFailure::transient(FailureReason::TimedOut, format!("no answer within {timeout:?}"))
}

#[async_trait]
impl Executor for McpTool {
    /// Without the number of the message and the session, which it gets when it is sent.
    async fn preview(
        &self,
        context: &CallContext<'_>,
        arguments: &Map<String, Value>,
    ) -> Result<Preview, Failure> {
        let server = self.connection.server();
        let carried = async {
            let state = self.state(context, &Arc::default(), self.timeout()).await?;
            server.carried(Some(&state)).await
        };
        let carried = carried
            .await
            .map_err(|McpFailure { reason, message, .. }| Failure { reason, message })?;
        let message = json!({
            "jsonrpc": "2.0", "method": PROCEDURE,
            "params": { "name": self.name, "arguments": arguments },
        });
        let Carried { headers, secrets } = carried;
        Ok(Preview::of_procedure(
            PROCEDURE,
            server.url(),
            &headers,
            &message,
            &secrets,
        ))
    }

    async fn call(&self, context: &CallContext<'_>, arguments: &Map<String, Value>) -> Called {
        let mut record = Record::default();
        let policy = self.connection.server().config.retry_policy.as_ref();
        let mut attempts = Attempts::new(policy.map(RetryPolicy::backoff), context);
        let result = loop {
            let attempt = self.attempt(context, arguments, &mut record);
            let failure = match context.cancel.run_until_cancelled(attempt).await {
                None => break Err(cancelled()),
                Some(Ok(value)) => break Ok(value),
                Some(Err(failure)) => failure,
            };
            let McpFailure { reason, message, .. } = failure;
            let failed = Failed {
                failure: Failure { reason, message },
                again: if failure.may_retry {
                    Again::After(Duration::ZERO)
                } else {
                    Again::Never
                },
            };
            if let Err(last) = attempts.another(failed).await {
                break Err(last);
            }
        };
        Called {
            verdict: record.verdict(&result),
            result,
            attempts: record.sent.load(Ordering::Relaxed),
            status: record.status,
        }
    }
}
