#![allow(clippy::unwrap_used)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use mainstay_resources::conditions::find_condition;
use serde_json::{Value, json};

use super::*;

fn registry(handlers: Value) -> ToolRegistry {
    let mut registry = ToolRegistry::new(
        "r",
        serde_json::from_value(json!({ "handlers": handlers })).unwrap(),
    );
    registry.metadata.generation = Some(3);
    registry
}

fn four() -> Vec<Value> {
    vec![
        json!({ "name": "calc", "type": "http", "httpConfig": { "endpoint": "https://api.example.com/calc" },
            "tool": { "name": "calculate", "description": "d", "inputSchema": { "type": "object" } } }),
        json!({ "name": "users", "type": "grpc", "grpcConfig": { "endpoint": "users:50051" },
            "tool": { "name": "get_user", "description": "d", "inputSchema": { "type": "object" } } }),
        json!({ "name": "code", "type": "mcp", "mcpConfig": { "transport": "sse", "endpoint": "http://mcp:8080/sse" } }),
        json!({ "name": "petstore", "type": "openapi", "openAPIConfig": { "specURL": "https://p/openapi.json" } }),
    ]
}

fn judged(
    registry: &ToolRegistry,
    policies: Option<&[String]>,
    probe: Option<&ProbeResults>,
) -> ToolRegistryStatus {
    let mut discovery = discover(&registry.spec);
    if let Some(results) = probe {
        apply_probe(&mut discovery.tools, results, Timestamp::UNIX_EPOCH);
    }
    let told = Told {
        policies: policies.map(<[String]>::to_vec),
        missing: Vec::new(),
    };
    status(registry, discovery, &told, Timestamp::UNIX_EPOCH)
}

#[test]
fn tools_that_an_agent_misses_show_and_change_no_phase_d6() {
    let mut registry = registry(four().into());
    let problem = Problem {
        handler: "code".into(),
        reason: "ListingIncomplete".into(),
        message: "handler `code`: its list of tools leads from one page to an earlier one".into(),
    };
    let told = Told {
        policies: None,
        missing: vec![(problem, vec!["desk".into(), "lab".into()])],
    };
    let status = status(&registry, discover(&registry.spec), &told, Timestamp::UNIX_EPOCH);
    assert_eq!(status.phase, Some(Phase::Ready), "OM-327: nothing was probed");
    assert_eq!(condition(&status, "ToolsListed"), ("False", "ToolsMissing"));
    assert_eq!(
        find_condition(&status.conditions, "ToolsListed").unwrap().message,
        "ListingIncomplete: handler `code`: its list of tools leads from one page to an earlier one \
         (agent desk, lab)"
    );
    // Nobody misses anything any longer.
    registry.status = Some(status);
    let after = judged(&registry, None, None);
    assert!(
        find_condition(&after.conditions, "ToolsListed").is_none(),
        "OM-007"
    );
}

fn condition<'a>(status: &'a ToolRegistryStatus, kind: &str) -> (&'a str, &'a str) {
    let found: &Condition = find_condition(&status.conditions, kind).unwrap();
    (found.status.as_str(), found.reason.as_str())
}

#[test]
fn a_backoff_above_its_maximum_fails_the_registry_v_30() {
    let mut handlers = four();
    handlers[0]["httpConfig"]["retryPolicy"] =
        json!({ "maxAttempts": 2, "initialBackoff": "5s", "maxBackoff": "1s" });
    let status = judged(&registry(handlers.into()), Some(&[]), None);
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(condition(&status, "HandlersValid"), ("False", "ValidationFailed"));
    assert_eq!(condition(&status, "Ready"), ("False", "ValidationFailed"));
    assert_eq!(condition(&status, "Degraded"), ("False", "AllToolsAvailable"));
    let message = &find_condition(&status.conditions, "HandlersValid")
        .unwrap()
        .message;
    assert!(
        message.contains("\"calc\"") && message.contains("maxBackoff"),
        "{message}"
    );
    assert_eq!(
        status.discovered_tools_count,
        Some(3),
        "handlers that pass still contribute their tools (OM-324)"
    );
}

#[test]
fn a_mapping_that_can_never_work_is_named_by_its_field_om_383_om_390() {
    for (field, expression) in [("bodyMapping", "{n: "), ("responseMapping", "size(items)")] {
        let mut handlers = four();
        handlers[0]["httpConfig"][field] = expression.into();
        let status = judged(&registry(handlers.into()), Some(&[]), None);
        assert_eq!(condition(&status, "HandlersValid"), ("False", "ValidationFailed"));
        let condition = find_condition(&status.conditions, "HandlersValid").unwrap();
        let expected = format!("spec.handlers[0].httpConfig.{field}: MappingInvalid: ");
        assert!(condition.message.contains(&expected), "{}", condition.message);
    }
}

#[test]
fn an_mcp_endpoint_of_a_metadata_service_fails_the_registry_v_31_v_32() {
    let with = |endpoint: &str| {
        let mut handlers = four();
        handlers[2]["mcpConfig"]["endpoint"] = endpoint.into();
        let status = judged(&registry(handlers.into()), None, None);
        let found = find_condition(&status.conditions, "HandlersValid").unwrap();
        match found.status.as_str() {
            "True" => None,
            _ => Some(found.message.clone()),
        }
    };
    for (refused, host) in [
        (
            "http://169.254.169.254/sse",
            "169.254.169.254 is a link-local or cloud metadata address",
        ),
        (
            "http://[fe80::1]/",
            "fe80::1 is a link-local or cloud metadata address",
        ),
        (
            "http://metadata.google.internal./x",
            "metadata.google.internal is a cloud metadata service",
        ),
        (
            "http://0xA9FEA9FE/",
            "169.254.169.254 is a link-local or cloud metadata address",
        ),
        (
            "http://168.63.129.16/",
            "168.63.129.16 is a link-local or cloud metadata address",
        ),
        (
            "http://[2002:a9fe:a9fe::1]/",
            "2002:a9fe:a9fe::1 is a link-local or cloud metadata address",
        ),
        (
            "http://[::ffff:0:a9fe:a9fe]/",
            "::ffff:0:a9fe:a9fe is a link-local or cloud metadata address",
        ),
        (
            "http://224.0.0.1/",
            "224.0.0.1 is a multicast or broadcast address",
        ),
    ] {
        let expected = format!("handler \"code\": spec.handlers[2].mcpConfig.endpoint: host {host}");
        assert_eq!(with(refused), Some(expected), "{refused}");
    }
    for allowed in [
        "http://10.0.0.7:8080/sse",
        "http://svc.ns.svc.cluster.local/mcp",
        "http://127.0.0.1:9000/mcp",
    ] {
        assert_eq!(with(allowed), None, "{allowed}");
    }
}

#[test]
fn four_valid_handlers_are_ready_without_probing_v_33() {
    let status = judged(
        &registry(four().into()),
        Some(&["calculator-policy".to_owned()]),
        None,
    );
    assert_eq!(
        (status.phase, status.discovered_tools_count),
        (Some(Phase::Ready), Some(4))
    );
    assert_eq!(
        (status.policy_count, status.observed_generation),
        (Some(1), Some(3))
    );
    assert_eq!(condition(&status, "Ready"), ("True", "ToolsDiscovered"));
    assert_eq!(condition(&status, "Degraded"), ("False", "AllToolsAvailable"));
    assert_eq!(condition(&status, "HandlersValid"), ("True", "HandlersValid"));
    assert_eq!(condition(&status, "ToolsDiscovered"), ("True", "ToolsDiscovered"));
    let message = |kind| find_condition(&status.conditions, kind).unwrap().message.as_str();
    assert_eq!(
        message("ToolsDiscovered"),
        "Discovered 4 tool(s) from 4 handler(s)"
    );
    assert_eq!(
        message("PolicyBound"),
        "selected by 1 ToolPolicy(s): [calculator-policy]"
    );
    assert_eq!(
        condition(&status, "PolicyBound"),
        ("True", "PolicySelectsRegistry")
    );
    for absent in [
        "SandboxesValid",
        "SandboxConnectionsValid",
        "HandlerConnectionsValid",
    ] {
        assert!(find_condition(&status.conditions, absent).is_none(), "{absent}");
    }
    let names: Vec<_> = status
        .discovered_tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names, ["calculate", "get_user", "code", "petstore"]);
}

#[test]
fn some_unreachable_endpoints_degrade_the_registry_v_35() {
    let registry = registry(four().into());
    let results: ProbeResults = [
        ("https://api.example.com/calc".to_owned(), Ok(())),
        ("users:50051".to_owned(), Err("connection refused".to_owned())),
        (
            "http://mcp:8080/sse".to_owned(),
            Err("connection refused".to_owned()),
        ),
        ("https://p/openapi.json".to_owned(), Ok(())),
    ]
    .into();
    let status = judged(&registry, None, Some(&results));
    assert_eq!(status.phase, Some(Phase::Degraded));
    assert_eq!(condition(&status, "Degraded"), ("True", "SomeToolsUnavailable"));
    assert_eq!(condition(&status, "Ready"), ("True", "ToolsDiscovered"), "DD-19");
    assert_eq!(
        status.content_digest,
        judged(&registry, None, None).content_digest,
        "health is not in the digest"
    );
    let unavailable = &status.discovered_tools[1];
    assert_eq!(
        (unavailable.status, unavailable.error.as_deref()),
        (ToolStatus::Unavailable, Some("connection refused"))
    );
    assert!(unavailable.last_checked.is_some() && status.discovered_tools[0].error.is_none());
}

#[test]
fn no_reachable_endpoint_fails_the_registry_v_36() {
    let registry = registry(four().into());
    let results: ProbeResults = [
        "https://api.example.com/calc",
        "users:50051",
        "http://mcp:8080/sse",
        "https://p/openapi.json",
    ]
    .map(|endpoint| (endpoint.to_owned(), Err("refused".to_owned())))
    .into();
    let status = judged(&registry, None, Some(&results));
    assert_eq!(status.phase, Some(Phase::Failed));
    assert_eq!(condition(&status, "Ready"), ("False", "NoToolsAvailable"));
    assert_eq!(condition(&status, "Degraded"), ("False", "AllToolsAvailable"));
    assert_eq!(condition(&status, "HandlersValid"), ("True", "HandlersValid"));
}

#[test]
fn policies_are_counted_and_their_absence_leaves_no_trace_om_333_v_39() {
    let mut registry = registry(four().into());
    let unbound = judged(&registry, Some(&[]), None);
    assert_eq!(
        (unbound.policy_count, unbound.phase),
        (Some(0), Some(Phase::Ready)),
        "OM-334"
    );
    assert_eq!(
        condition(&unbound, "PolicyBound"),
        ("False", "NoPolicySelectsRegistry")
    );
    let two = judged(&registry, Some(&["a".to_owned(), "b".to_owned()]), None);
    assert_eq!(
        find_condition(&two.conditions, "PolicyBound").unwrap().message,
        "selected by 2 ToolPolicy(s): [a b]"
    );

    registry.status = Some(two);
    let without_engine = judged(&registry, None, None);
    assert_eq!(without_engine.policy_count, None);
    assert!(find_condition(&without_engine.conditions, "PolicyBound").is_none());
}

#[test]
fn sandboxes_and_connections_that_do_not_exist_are_reported_and_change_no_phase_om_343_om_344() {
    let mut registry = registry(json!([
        { "name": "shell", "type": "mcp", "sandbox": { "name": "box", "port": "mcp" },
          "mcpConfig": { "transport": "sse", "endpoint": "/sse", "toolFilter": { "allowlist": ["Read"] } } },
        { "name": "other", "type": "mcp", "sandbox": { "name": "nowhere", "port": "mcp" },
          "mcpConfig": { "transport": "sse", "endpoint": "/sse", "toolFilter": { "allowlist": ["Read"] } } },
        { "name": "crm", "type": "http", "httpConfig": { "endpoint": "https://crm" },
          "auth": { "type": "bearer", "connectionRef": { "name": "crm-shared", "key": "token" } },
          "tool": { "name": "crm", "description": "d", "inputSchema": {} } },
    ]));
    registry.spec.sandboxes = serde_json::from_value(json!([
        { "name": "box", "class": { "name": "codegen" }, "connections": [{ "role": "vcs", "connection": "github" }] },
    ]))
    .unwrap();
    let status = judged(&registry, None, None);
    assert_eq!(status.phase, Some(Phase::Ready));
    assert_eq!(
        condition(&status, "SandboxesValid"),
        ("False", "ClassNotFound"),
        "the reason of the first problem"
    );
    let message = &find_condition(&status.conditions, "SandboxesValid")
        .unwrap()
        .message;
    assert!(
        message.contains("\"box\"") && message.contains("\"other\""),
        "every failing one is named: {message}"
    );
    assert_eq!(
        condition(&status, "SandboxConnectionsValid"),
        ("False", "ConnectionNotFound")
    );
    assert_eq!(
        condition(&status, "HandlerConnectionsValid"),
        ("False", "ConnectionNotFound")
    );
}
