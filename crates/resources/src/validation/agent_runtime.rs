//! Validator of AgentRuntime (OM-117 … OM-151). References to other objects are judged by the controller.

use std::collections::BTreeSet;

use super::{Finding, is_name, positive_duration};
use crate::omnia::agent_runtime::{
    AgentMode, AgentRuntimeSpec, Context, ContextType, Facade, FacadeHandler, FacadeType,
    features::FrameworkType,
};

/// Judges a spec, apart from `promptPackRef`, which has a condition of its own.
#[must_use]
pub fn validate(spec: &AgentRuntimeSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    facades(&mut findings, spec);
    function_mode(&mut findings, spec);
    providers(&mut findings, spec);
    if let Some(context) = &spec.context {
        context_findings(&mut findings, context);
    }
    if spec.runtime.as_ref().is_some_and(|runtime| runtime.replicas < 0) {
        findings.push(Finding::new("spec.runtime.replicas", "must be at least 0"));
    }
    if let Some(framework) = &spec.framework
        && framework.kind == FrameworkType::Custom
        && framework.image.is_none()
    {
        findings.push(Finding::new(
            "spec.framework.image",
            "is required for type custom",
        ));
    }
    if spec
        .sandbox
        .as_ref()
        .and_then(|sandbox| sandbox.max_per_session)
        .is_some_and(|limit| limit < 1)
    {
        findings.push(Finding::new("spec.sandbox.maxPerSession", "must be at least 1"));
    }
    findings
}

fn facades(findings: &mut Vec<Finding>, spec: &AgentRuntimeSpec) {
    if spec.facades.is_empty() || spec.facades.len() > 4 {
        findings.push(Finding::new("spec.facades", "one to four facades are required"));
    }
    let mut kinds = BTreeSet::new();
    for (index, facade) in spec.facades.iter().enumerate() {
        let field = format!("spec.facades[{index}]");
        if !kinds.insert(facade.kind) {
            findings.push(Finding::new(
                format!("{field}.type"),
                "another facade has the same type",
            ));
        }
        facade_findings(findings, &field, spec.mode, facade);
    }
    if spec.mode == AgentMode::Function && !kinds.contains(&FacadeType::Rest) {
        findings.push(Finding::new(
            "spec.facades",
            "mode function needs exactly one facade of type rest",
        ));
    }
}

fn facade_findings(findings: &mut Vec<Finding>, field: &str, mode: AgentMode, facade: &Facade) {
    let fits = match mode {
        AgentMode::Agent => matches!(
            facade.kind,
            FacadeType::WebSocket | FacadeType::A2a | FacadeType::Custom
        ),
        AgentMode::Function => matches!(facade.kind, FacadeType::Rest | FacadeType::Mcp),
    };
    if !fits {
        findings.push(Finding::new(
            format!("{field}.type"),
            format!("mode {mode} does not take a {} facade", facade.kind),
        ));
    }
    if facade.kind == FacadeType::Custom && facade.image.is_none() {
        findings.push(Finding::new(
            format!("{field}.image"),
            "is required for type custom",
        ));
    }
    if !(1..=65535).contains(&facade.port) {
        findings.push(Finding::new(format!("{field}.port"), "must be 1 to 65535"));
    }
    if let Err(error) = crate::duration::parse_go(&facade.drain_timeout) {
        findings.push(Finding::new(format!("{field}.drainTimeout"), error.to_string()));
    }
    positive_duration(
        findings,
        format!("{field}.clientToolTimeout"),
        &facade.client_tool_timeout,
    );
}

fn function_mode(findings: &mut Vec<Finding>, spec: &AgentRuntimeSpec) {
    let function = spec.mode == AgentMode::Function;
    for (name, present) in [
        ("inputSchema", spec.input_schema.is_some()),
        ("outputSchema", spec.output_schema.is_some()),
    ] {
        if function && !present {
            findings.push(Finding::new(
                format!("spec.{name}"),
                "is required in mode function",
            ));
        }
        if !function && present {
            findings.push(Finding::new(
                format!("spec.{name}"),
                "is not permitted in mode agent",
            ));
        }
    }
    if !function && spec.output_format.is_some() {
        findings.push(Finding::new("spec.outputFormat", "is only for mode function"));
    }
}

fn providers(findings: &mut Vec<Finding>, spec: &AgentRuntimeSpec) {
    let mut names = BTreeSet::new();
    for (index, entry) in spec.providers.iter().enumerate() {
        let field = format!("spec.providers[{index}].name");
        if !is_name(&entry.name) {
            findings.push(Finding::new(
                field.clone(),
                "is not a name of lower-case letters, digits and -",
            ));
        }
        if !names.insert(entry.name.as_str()) {
            findings.push(Finding::new(field, "another entry has the same name"));
        }
    }
}

fn context_findings(findings: &mut Vec<Finding>, context: &Context) {
    if context.kind == ContextType::Redis && context.store_ref.is_none() {
        findings.push(Finding::new(
            "spec.context.storeRef",
            "is required for type redis",
        ));
    }
    positive_duration(findings, "spec.context.ttl".into(), &context.ttl);
}

/// Whether the agent has to have a model: a facade's messages reach the runtime (OM-261).
#[must_use]
pub fn needs_provider(spec: &AgentRuntimeSpec) -> bool {
    spec.facades
        .iter()
        .any(|facade| facade.handler == FacadeHandler::Runtime)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn findings(mut value: serde_json::Value) -> Vec<String> {
        value["promptPackRef"] = json!({ "name": "p" });
        validate(&serde_json::from_value(value).unwrap())
            .into_iter()
            .map(|finding| finding.field)
            .collect()
    }

    #[test]
    fn each_mode_has_its_facades_om_121() {
        assert!(findings(json!({ "facades": [{ "type": "websocket" }, { "type": "a2a" }] })).is_empty());
        assert_eq!(
            findings(json!({ "facades": [{ "type": "rest" }] })),
            ["spec.facades[0].type"]
        );
        assert_eq!(findings(json!({ "facades": [] })), ["spec.facades"]);
        assert_eq!(findings(json!({ "facades": [{}, {}] })), ["spec.facades[1].type"]);
        assert_eq!(
            findings(json!({ "facades": [{ "type": "custom" }] })),
            ["spec.facades[0].image"]
        );
        let function = json!({ "mode": "function", "facades": [{ "type": "mcp" }], "inputSchema": {} });
        assert_eq!(findings(function), ["spec.facades", "spec.outputSchema"]);
    }

    #[test]
    fn only_runtime_facades_need_a_model_om_261() {
        let spec = |handler: &str| -> AgentRuntimeSpec {
            serde_json::from_value(
                json!({ "promptPackRef": { "name": "p" }, "facades": [{ "handler": handler }] }),
            )
            .unwrap()
        };
        assert!(needs_provider(&spec("runtime")));
        assert!(!needs_provider(&spec("echo")) && !needs_provider(&spec("demo")));
    }
}
