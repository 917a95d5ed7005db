//! The backoff fields that every retry policy has (OM-057 … OM-060).

use super::Finding;
use crate::{
    duration::parse_go,
    omnia::tool_registry::retry::{GRPC_STATUS_CODES, GrpcRetryPolicy, HttpRetryPolicy, McpRetryPolicy},
};

struct Backoff<'a> {
    max_attempts: i32,
    initial: &'a str,
    multiplier: &'a str,
    max: &'a str,
}

pub(super) fn http(findings: &mut Vec<Finding>, field: &str, policy: &HttpRetryPolicy) {
    backoff(
        findings,
        field,
        &Backoff {
            max_attempts: policy.max_attempts,
            initial: &policy.initial_backoff,
            multiplier: &policy.backoff_multiplier,
            max: &policy.max_backoff,
        },
    );
}

pub(super) fn grpc(findings: &mut Vec<Finding>, field: &str, policy: &GrpcRetryPolicy) {
    backoff(
        findings,
        field,
        &Backoff {
            max_attempts: policy.max_attempts,
            initial: &policy.initial_backoff,
            multiplier: &policy.backoff_multiplier,
            max: &policy.max_backoff,
        },
    );
    for (index, code) in policy.retryable_status_codes.iter().flatten().enumerate() {
        if !GRPC_STATUS_CODES.contains(&code.as_str()) {
            findings.push(Finding::new(
                format!("{field}.retryableStatusCodes[{index}]"),
                format!("{code:?} is not a gRPC status code; names are written like DEADLINE_EXCEEDED"),
            ));
        }
    }
}

pub(super) fn mcp(findings: &mut Vec<Finding>, field: &str, policy: &McpRetryPolicy) {
    backoff(
        findings,
        field,
        &Backoff {
            max_attempts: policy.max_attempts,
            initial: &policy.initial_backoff,
            multiplier: &policy.backoff_multiplier,
            max: &policy.max_backoff,
        },
    );
}

fn backoff(findings: &mut Vec<Finding>, field: &str, policy: &Backoff<'_>) {
    if !(1..=10).contains(&policy.max_attempts) {
        findings.push(Finding::new(format!("{field}.maxAttempts"), "must be 1 to 10"));
    }
    let plain_decimal = !policy.multiplier.is_empty()
        && policy
            .multiplier
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
    match policy.multiplier.parse::<f64>() {
        Ok(multiplier) if plain_decimal && multiplier >= 1.0 => {}
        Ok(_) if plain_decimal => {
            findings.push(Finding::new(
                format!("{field}.backoffMultiplier"),
                "must be at least 1.0",
            ));
        }
        _ => findings.push(Finding::new(
            format!("{field}.backoffMultiplier"),
            format!("{:?} is not a decimal number", policy.multiplier),
        )),
    }
    let initial = parse_go(policy.initial);
    let max = parse_go(policy.max);
    for (name, parsed) in [("initialBackoff", &initial), ("maxBackoff", &max)] {
        if let Err(error) = parsed {
            findings.push(Finding::new(format!("{field}.{name}"), error.to_string()));
        }
    }
    if let (Ok(initial), Ok(max)) = (initial, max)
        && max < initial
    {
        findings.push(Finding::new(
            format!("{field}.maxBackoff"),
            format!("{} is below initialBackoff {}", policy.max, policy.initial),
        ));
    }
}
