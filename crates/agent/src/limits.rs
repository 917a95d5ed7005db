//! What bounds sessions and turns beside the pack and the tools.

use std::time::Duration;

/// Bounds with the defaults of the requirements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Rounds of tool calls per turn when the pack gives none (OM-370).
    pub tool_rounds: u32,
    /// Calls of one model message that run at the same time (OM-367).
    pub parallel_tool_calls: usize,
    /// Longest answer of a model, in bytes.
    pub answer_bytes: usize,
    /// Longest result of a tool that a model is shown, in bytes; longer ones are cut.
    pub tool_result_bytes: usize,
    /// Longest message of a user, in bytes.
    pub message_bytes: usize,
    /// Longest client key, in bytes.
    pub client_key_bytes: usize,
    /// Newest messages of a session that a turn reads.
    pub history_messages: usize,
    /// Skills that are active at a time in a conversation (OM-168, OM-567).
    pub active_skills: usize,
    /// How long a client may take to acknowledge a tool call (OM-434).
    pub client_tool_acknowledgement: Duration,
    /// How long a client may take to run a tool (OM-434; a facade's `clientToolTimeout`).
    pub client_tool_timeout: Duration,
    /// How long a session can be continued after its last activity (OM-587; `context.ttl`).
    pub session_ttl: Duration,
    /// How often a turn is continued after a crash before it is given up.
    pub restarts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tool_rounds: 50,
            parallel_tool_calls: 8,
            answer_bytes: 4 << 20,
            tool_result_bytes: 1 << 20,
            message_bytes: 4 << 20,
            client_key_bytes: 256,
            history_messages: 2_000,
            active_skills: 5,
            client_tool_acknowledgement: Duration::from_secs(5),
            client_tool_timeout: Duration::from_secs(60),
            session_ttl: Duration::from_secs(24 * 3600),
            restarts: 5,
        }
    }
}
