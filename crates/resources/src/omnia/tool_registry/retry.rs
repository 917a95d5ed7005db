//! Retry policies of the transports (OM-057 … OM-065).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schemas;

/// Statuses that are retried when `retryOn` is absent.
pub const DEFAULT_RETRY_ON: [i32; 6] = [408, 429, 500, 502, 503, 504];

/// gRPC codes that are retried when `retryableStatusCodes` is absent.
pub const DEFAULT_RETRYABLE_STATUS_CODES: [&str; 3] =
    ["UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"];

/// The canonical gRPC codes (OM-064).
pub const GRPC_STATUS_CODES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// When and how HTTP calls are repeated. Without a policy a call is made once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpRetryPolicy {
    /// Attempts in total, the first included. 1 disables retries.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: i32,
    /// Delay before the first retry.
    #[serde(default = "initial_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub initial_backoff: String,
    /// Decimal factor by which each delay grows; at least 1.0.
    #[serde(default = "backoff_multiplier")]
    #[schemars(schema_with = "schemas::decimal")]
    pub backoff_multiplier: String,
    /// Upper bound of the delay; at least initialBackoff.
    #[serde(default = "max_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub max_backoff: String,
    /// HTTP statuses that are retried. An empty list disables retries by status.
    // An `Option`, because an empty list means something else than an absent one (OM-061).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_RETRY_ON))]
    pub retry_on: Option<Vec<i32>>,
    /// Whether connection, DNS and timeout failures are retried.
    #[serde(default = "enabled")]
    pub retry_on_network_error: bool,
    /// Whether a retry waits at least as long as the Retry-After header asks for, up to maxBackoff.
    #[serde(default = "enabled")]
    pub respect_retry_after: bool,
}

/// When and how gRPC calls are repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRetryPolicy {
    /// Attempts in total, the first included. 1 disables retries.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: i32,
    /// Delay before the first retry.
    #[serde(default = "initial_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub initial_backoff: String,
    /// Decimal factor by which each delay grows; at least 1.0.
    #[serde(default = "backoff_multiplier")]
    #[schemars(schema_with = "schemas::decimal")]
    pub backoff_multiplier: String,
    /// Upper bound of the delay; at least initialBackoff.
    #[serde(default = "max_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub max_backoff: String,
    /// gRPC status codes that are retried, by name. An empty list disables retries by code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_RETRYABLE_STATUS_CODES))]
    pub retryable_status_codes: Option<Vec<String>>,
}

/// When and how MCP tool calls are repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct McpRetryPolicy {
    /// Attempts in total, the first included. 1 disables retries.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: i32,
    /// Delay before the first retry.
    #[serde(default = "initial_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub initial_backoff: String,
    /// Decimal factor by which each delay grows; at least 1.0.
    #[serde(default = "backoff_multiplier")]
    #[schemars(schema_with = "schemas::decimal")]
    pub backoff_multiplier: String,
    /// Upper bound of the delay; at least initialBackoff.
    #[serde(default = "max_backoff")]
    #[schemars(schema_with = "schemas::duration")]
    pub max_backoff: String,
}

fn initial_backoff() -> String {
    "100ms".into()
}

fn backoff_multiplier() -> String {
    "2.0".into()
}

fn max_backoff() -> String {
    "30s".into()
}

fn enabled() -> bool {
    true
}
