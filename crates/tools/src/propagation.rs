//! Headers that tell a backend, and a policy, on whose behalf a call is made (OM-374).

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    http::text_form,
    invocation::ToolInvocation,
    policy::{DecisionRequest, canonical_name as canonical},
};

/// The agent that makes the calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentIdentity {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its workspace; empty when there is none.
    pub workspace: String,
}

// A header is no place for a document; backends commonly refuse more than 8 KiB in all.
const VALUE_LIMIT: usize = 1_024;

/// What the broker is asked about a call of `agent` (OM-486, OM-487): the same in the agent that makes the call and
/// wherever a policy is tried out.
pub fn decision_request(
    agent: &AgentIdentity,
    registry: &str,
    handler: &str,
    invocation: &ToolInvocation,
) -> DecisionRequest {
    let propagated = propagated(agent, registry, invocation);
    let mut identity = invocation.identity.clone();
    identity.agent.clone_from(&agent.name);
    if identity.workspace.is_empty() {
        identity.workspace.clone_from(&agent.workspace);
    }
    DecisionRequest {
        registry: registry.to_owned(),
        tool: invocation.tool.clone(),
        handler: handler.to_owned(),
        body: invocation.arguments.clone(),
        headers: policy_headers(invocation, &propagated),
        identity,
    }
}

/// What a policy sees as `headers`: the caller's, without credentials, under the ones computed here.
fn policy_headers(
    invocation: &ToolInvocation,
    propagated: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = invocation
        .headers
        .iter()
        .map(|(name, value)| (canonical(name), value.clone()))
        .filter(|(name, _)| !is_credential(name))
        .collect();
    headers.extend(propagated.clone());
    headers
}

fn is_credential(canonical_name: &str) -> bool {
    matches!(
        canonical_name,
        "Authorization" | "Proxy-Authorization" | "Cookie" | "X-Omnia-Delegation"
    )
}

/// The headers sent with a call, by canonical name.
///
/// Of the caller's own headers only those that describe the model and the trace are taken over; all
/// others could claim an identity. The caller's `Authorization` is never forwarded.
pub(crate) fn propagated(
    agent: &AgentIdentity,
    registry: &str,
    invocation: &ToolInvocation,
) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let mut set = |name: String, value: &str| {
        if is_sendable(&name, value) {
            headers.insert(name, value.to_owned());
        }
    };
    for (name, value) in &invocation.headers {
        let name = canonical(name);
        if matches!(
            name.as_str(),
            "X-Omnia-Provider" | "X-Omnia-Model" | "Traceparent" | "Tracestate"
        ) {
            set(name, value);
        }
    }
    let identity = &invocation.identity;
    let user = if identity.end_user.is_empty() {
        &identity.subject
    } else {
        &identity.end_user
    };
    let workspace = if identity.workspace.is_empty() {
        &agent.workspace
    } else {
        &identity.workspace
    };
    for (name, value) in [
        ("Agent-Name", &agent.name),
        ("Namespace", &agent.namespace),
        ("Session-Id", &invocation.session),
        ("Request-Id", &invocation.turn),
        ("User-Id", user),
        ("Origin", &identity.origin),
        ("Workspace", workspace),
        ("Tool-Name", &invocation.tool),
    ] {
        set(format!("X-Omnia-{name}"), value);
    }
    set("X-Omnia-Tool-Registry".to_owned(), registry);
    if let Some(email) = identity.claims.get("email").and_then(Value::as_str) {
        set("X-Omnia-User-Email".to_owned(), email);
    }
    for (claim, value) in &identity.claims {
        if let Some(text) = scalar(value) {
            set(format!("X-Omnia-Claim-{}", canonical(claim)), &text);
        }
    }
    for (argument, value) in invocation.arguments.as_object().into_iter().flatten() {
        if let Some(text) = scalar(value) {
            set(format!("X-Omnia-Param-{}", canonical(argument)), &text);
        }
    }
    headers
        .entry("Traceparent".to_owned())
        .or_insert_with(|| trace_parent(invocation));
    headers
}

/// The trace context of a call that came without one: the turn is the trace, the call the span. It is computed and not
/// drawn, so that what a policy is asked about is what is sent.
fn trace_parent(invocation: &ToolInvocation) -> String {
    let digest = |parts: &[&str]| {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
        hash.finalize()
    };
    let hexadecimal = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let trace = digest(&[&invocation.session, &invocation.turn]);
    let span = digest(&[&invocation.session, &invocation.turn, &invocation.call_id]);
    format!(
        "00-{}-{}-01",
        hexadecimal(trace.get(..16).unwrap_or_default()),
        hexadecimal(span.get(..8).unwrap_or_default())
    )
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Array(_) | Value::Object(_) => None,
        other => text_form(other),
    }
}

// These headers are an extra: one that cannot be sent is left out and does not fail the call.
fn is_sendable(name: &str, value: &str) -> bool {
    !value.is_empty()
        && value.len() <= VALUE_LIMIT
        && !value.chars().any(char::is_control)
        && http::HeaderName::from_bytes(name.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::policy::Identity;

    fn invocation() -> ToolInvocation {
        ToolInvocation {
            call_id: "call_1".to_owned(),
            tool: "get_order".to_owned(),
            arguments: json!({"id": 7, "note": "a\nb", "list": [1], "order_id": "x", "gone": null}),
            session: "s1".to_owned(),
            turn: "t1".to_owned(),
            identity: Identity {
                origin: "oidc".to_owned(),
                subject: "sub".to_owned(),
                end_user: "ada".to_owned(),
                claims: BTreeMap::from([
                    ("email".to_owned(), json!("ada@example.com")),
                    ("groups".to_owned(), json!(["a"])),
                ]),
                ..Identity::default()
            },
            headers: BTreeMap::from([
                ("authorization".to_owned(), "Bearer caller".to_owned()),
                ("x-omnia-user-id".to_owned(), "root".to_owned()),
                ("x-omnia-model".to_owned(), "gpt".to_owned()),
                ("x-team".to_owned(), "support".to_owned()),
            ]),
            cancel: CancellationToken::new(),
        }
    }

    fn agent() -> AgentIdentity {
        AgentIdentity {
            name: "helpdesk".to_owned(),
            namespace: "default".to_owned(),
            workspace: "w".to_owned(),
        }
    }

    #[test]
    fn a_call_says_on_whose_behalf_it_is_made_om_374() {
        let headers = propagated(&agent(), "orders", &invocation());
        for (name, value) in [
            ("X-Omnia-Agent-Name", "helpdesk"),
            ("X-Omnia-Namespace", "default"),
            ("X-Omnia-Session-Id", "s1"),
            ("X-Omnia-Request-Id", "t1"),
            ("X-Omnia-User-Id", "ada"),
            ("X-Omnia-User-Email", "ada@example.com"),
            ("X-Omnia-Claim-Email", "ada@example.com"),
            ("X-Omnia-Model", "gpt"),
            ("X-Omnia-Origin", "oidc"),
            ("X-Omnia-Workspace", "w"),
            ("X-Omnia-Tool-Name", "get_order"),
            ("X-Omnia-Tool-Registry", "orders"),
            ("X-Omnia-Param-Id", "7"),
            ("X-Omnia-Param-Order_id", "x"),
        ] {
            assert_eq!(headers.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(headers["Traceparent"].len(), 55);
        for absent in [
            "Authorization",
            "X-Team",
            "X-Omnia-Param-Note",
            "X-Omnia-Param-List",
            "X-Omnia-Claim-Groups",
        ] {
            assert_eq!(headers.get(absent), None, "{absent}");
        }
    }

    #[test]
    fn calls_of_a_turn_are_spans_of_one_trace_and_a_callers_trace_is_kept_om_374() {
        let of = |turn: &str, call: &str| {
            let mut invocation = invocation();
            invocation.turn = turn.to_owned();
            invocation.call_id = call.to_owned();
            propagated(&agent(), "orders", &invocation)["Traceparent"].clone()
        };
        assert_eq!(of("t1", "c1"), of("t1", "c1"));
        assert_eq!(of("t1", "c1")[..35], of("t1", "c2")[..35]);
        assert_ne!(of("t1", "c1")[36..52], of("t1", "c2")[36..52]);
        assert_ne!(of("t1", "c1")[..35], of("t2", "c1")[..35]);
        let mut traced = invocation();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        traced.headers.insert("traceparent".to_owned(), parent.to_owned());
        assert_eq!(propagated(&agent(), "orders", &traced)["Traceparent"], parent);
    }

    #[test]
    fn a_policy_sees_the_callers_headers_without_credentials_and_without_claims_of_identity() {
        let invocation = invocation();
        let propagated = propagated(&agent(), "orders", &invocation);
        let headers = policy_headers(&invocation, &propagated);
        assert_eq!(headers["X-Team"], "support");
        assert_eq!(headers["X-Omnia-User-Id"], "ada");
        assert_eq!(headers.get("Authorization"), None);
    }
}
