//! Validator of ToolRegistry (OM-033, OM-323, OM-324).

use std::{collections::BTreeSet, fmt};

use url::Url;

use super::{Finding, endpoint, is_name, positive_duration, retry, tool_auth};
use crate::omnia::tool_registry::{Handler, HandlerType, ToolDefinition, ToolRegistrySpec, sandbox::Sandbox};

/// Something that is wrong with a handler, or with a part of the registry that handlers rely on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerError {
    /// Index in `spec.handlers`; `None` for a fault outside of any handler.
    pub index: Option<usize>,
    /// Name of the handler, or empty.
    pub handler: String,
    /// Where and what.
    pub finding: Finding,
}

impl fmt::Display for HandlerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(_) => write!(formatter, "handler {:?}: {}", self.handler, self.finding),
            None => write!(formatter, "{}", self.finding),
        }
    }
}

/// What the validator says about a registry.
#[derive(Debug, Default)]
pub struct Verdict<'a> {
    /// Handlers without a fault, in list order.
    pub valid: Vec<&'a Handler>,
    /// Every fault of every handler.
    pub errors: Vec<HandlerError>,
}

impl Verdict<'_> {
    /// All faults in one line, for `HandlersValid`.
    #[must_use]
    pub fn message(&self) -> String {
        self.errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    }
}

/// What only whoever makes the calls can say about a handler.
pub trait CallRules {
    /// Why the host of an MCP server's URL may not be called (OM-325), or `None` where it may. It looks up no names.
    fn refused_host(&self, url: &Url) -> Option<String>;

    /// Why a JMESPath expression can never work (OM-383, OM-390), or `None` where it may.
    fn mapping_fault(&self, expression: &str) -> Option<String>;
}

/// No rules: for whoever judges the rest of a registry.
#[derive(Clone, Copy, Debug)]
pub struct NoCallRules;

impl CallRules for NoCallRules {
    fn refused_host(&self, _url: &Url) -> Option<String> {
        None
    }

    fn mapping_fault(&self, _expression: &str) -> Option<String> {
        None
    }
}

/// Judges every handler of a registry, and the registry's other fields.
#[must_use]
pub fn validate<'a>(spec: &'a ToolRegistrySpec, rules: &dyn CallRules) -> Verdict<'a> {
    let mut verdict = Verdict::default();
    for finding in registry_findings(spec) {
        verdict.errors.push(HandlerError {
            index: None,
            handler: String::new(),
            finding,
        });
    }
    let mut names = BTreeSet::new();
    for (index, handler) in spec.handlers.iter().enumerate() {
        let field = format!("spec.handlers[{index}]");
        let mut findings = handler_findings(&field, handler, rules);
        if !names.insert(handler.name.as_str()) {
            findings.push(Finding::new(
                format!("{field}.name"),
                "another handler has the same name",
            ));
        }
        if findings.is_empty() {
            verdict.valid.push(handler);
        }
        verdict
            .errors
            .extend(findings.into_iter().map(|finding| HandlerError {
                index: Some(index),
                handler: handler.name.clone(),
                finding,
            }));
    }
    verdict
}

fn registry_findings(spec: &ToolRegistrySpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    if spec.handlers.is_empty() {
        findings.push(Finding::new("spec.handlers", "at least one handler is required"));
    }
    if let Some(probe) = &spec.probe {
        positive_duration(&mut findings, "spec.probe.interval".into(), &probe.interval);
        positive_duration(&mut findings, "spec.probe.timeout".into(), &probe.timeout);
    }
    if spec.sandboxes.len() > 16 {
        findings.push(Finding::new(
            "spec.sandboxes",
            "at most 16 sandboxes are permitted",
        ));
    }
    let mut names = BTreeSet::new();
    for (index, sandbox) in spec.sandboxes.iter().enumerate() {
        let field = format!("spec.sandboxes[{index}]");
        if !names.insert(sandbox.name.as_str()) {
            findings.push(Finding::new(
                format!("{field}.name"),
                "another sandbox has the same name",
            ));
        }
        sandbox_findings(&mut findings, &field, sandbox);
    }
    findings
}

fn sandbox_findings(findings: &mut Vec<Finding>, field: &str, sandbox: &Sandbox) {
    if !is_name(&sandbox.name) {
        findings.push(Finding::new(
            format!("{field}.name"),
            "is not a name of lower-case letters, digits and -",
        ));
    }
    if sandbox.max_instances < 1 {
        findings.push(Finding::new(
            format!("{field}.maxInstances"),
            "must be at least 1",
        ));
    }
    let target = sandbox.target_path.as_deref().unwrap_or_default();
    if target.chars().count() > 512 {
        findings.push(Finding::new(
            format!("{field}.targetPath"),
            "must have at most 512 characters",
        ));
    }
    if !target.is_empty() && sandbox.max_instances > 1 {
        findings.push(Finding::new(
            format!("{field}.maxInstances"),
            "must be 1 when targetPath is set, because every instance would sync back into the same project",
        ));
    }
    if sandbox.connections.len() > 16 {
        findings.push(Finding::new(
            format!("{field}.connections"),
            "at most 16 connections are permitted",
        ));
    }
}

fn handler_findings(field: &str, handler: &Handler, rules: &dyn CallRules) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !is_name(&handler.name) {
        findings.push(Finding::new(
            format!("{field}.name"),
            "must be 1 to 63 lower-case letters, digits and -, starting and ending with a letter or digit",
        ));
    }
    pairing(&mut findings, field, handler);
    if let Some(tool) = &handler.tool {
        tool_findings(&mut findings, field, tool);
    }
    placement(&mut findings, field, handler);
    positive_duration(&mut findings, format!("{field}.timeout"), &handler.timeout);
    transport(&mut findings, field, handler, rules);
    tool_auth::check(&mut findings, field, handler);
    findings
}

/// A missing type block or tool definition (OM-033).
fn pairing(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    let kind = handler.kind;
    let present = match kind {
        HandlerType::Http => handler.http_config.is_some(),
        HandlerType::Grpc => handler.grpc_config.is_some(),
        HandlerType::Mcp => handler.mcp_config.is_some(),
        HandlerType::OpenApi => handler.open_api_config.is_some(),
        HandlerType::Client => true,
        HandlerType::Platform => handler.platform.is_some(),
    };
    if let Some(block) = kind.block().filter(|_| !present) {
        findings.push(Finding::new(
            format!("{field}.{block}"),
            format!("{block} is required for {kind} handlers"),
        ));
    }
    if kind.needs_tool() && handler.tool.is_none() {
        findings.push(Finding::new(
            format!("{field}.tool"),
            format!("a tool definition is required for {kind} handlers"),
        ));
    }
}

fn tool_findings(findings: &mut Vec<Finding>, field: &str, tool: &ToolDefinition) {
    let starts = tool
        .name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = tool
        .name
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !starts || !rest || tool.name.len() > 64 {
        findings.push(Finding::new(
            format!("{field}.tool.name"),
            "must be 1 to 64 lower-case letters, digits and _, starting with a letter",
        ));
    }
    if !tool.input_schema.is_object() {
        findings.push(Finding::new(
            format!("{field}.tool.inputSchema"),
            "must be an object",
        ));
    }
    if tool
        .output_schema
        .as_ref()
        .is_some_and(|schema| !schema.is_object())
    {
        findings.push(Finding::new(
            format!("{field}.tool.outputSchema"),
            "must be an object",
        ));
    }
}

/// What may not stand on which type (OM-031, OM-034, OM-103).
fn placement(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    let mut refuse =
        |name: &str, message: String| findings.push(Finding::new(format!("{field}.{name}"), message));
    if handler.kind == HandlerType::Platform {
        for (present, name) in [
            (handler.auth.is_some(), "auth"),
            (handler.client_config.is_some(), "clientConfig"),
            (handler.delegation.is_some(), "delegation"),
            (handler.grpc_config.is_some(), "grpcConfig"),
            (handler.http_config.is_some(), "httpConfig"),
            (handler.mcp_config.is_some(), "mcpConfig"),
            (handler.open_api_config.is_some(), "openAPIConfig"),
            (handler.sandbox.is_some(), "sandbox"),
            (handler.tool.is_some(), "tool"),
        ] {
            if present {
                refuse(name, format!("{name} is not permitted on a platform handler"));
            }
        }
        return;
    }
    if handler.platform.is_some() {
        refuse(
            "platform",
            "platform is only for handlers of type platform".into(),
        );
    }
    if handler.kind == HandlerType::Client {
        if handler.sandbox.is_some() {
            refuse("sandbox", "sandbox is not permitted on a client handler".into());
        }
        if handler
            .delegation
            .as_ref()
            .is_some_and(|delegation| delegation.enabled)
        {
            refuse(
                "delegation",
                "delegation cannot be enabled on a client handler".into(),
            );
        }
    }
}

fn transport(findings: &mut Vec<Finding>, field: &str, handler: &Handler, rules: &dyn CallRules) {
    match handler.kind {
        HandlerType::Http => http(findings, field, handler, rules),
        HandlerType::Grpc => grpc(findings, field, handler),
        HandlerType::Mcp => mcp(findings, field, handler, rules),
        HandlerType::OpenApi => open_api(findings, field, handler),
        HandlerType::Client | HandlerType::Platform => {}
    }
}

/// A URL, or a path where the handler addresses a sandbox.
fn address(findings: &mut Vec<Finding>, field: String, text: &str, on_sandbox: bool) -> Option<Url> {
    if on_sandbox {
        if !text.starts_with('/') {
            findings.push(Finding::new(
                field,
                "must be a path starting with / on a handler that addresses a sandbox",
            ));
        }
        return None;
    }
    match endpoint::absolute_url(text) {
        Ok(url) => Some(url),
        Err(message) => {
            findings.push(Finding::new(field, message));
            None
        }
    }
}

fn http(findings: &mut Vec<Finding>, field: &str, handler: &Handler, rules: &dyn CallRules) {
    let Some(config) = &handler.http_config else {
        return;
    };
    let block = format!("{field}.httpConfig");
    let on_sandbox = handler.sandbox.is_some();
    address(
        findings,
        format!("{block}.endpoint"),
        &config.endpoint,
        on_sandbox,
    );
    if let Some(template) = &config.url_template {
        // Placeholders may stand anywhere, so the template cannot be parsed as the URL it becomes.
        let absolute =
            template.starts_with("http://") || template.starts_with("https://") || template.starts_with('{');
        if on_sandbox && !template.starts_with('/') {
            findings.push(Finding::new(
                format!("{block}.urlTemplate"),
                "must be a path starting with / on a handler that addresses a sandbox",
            ));
        } else if !on_sandbox && !absolute {
            findings.push(Finding::new(
                format!("{block}.urlTemplate"),
                "must be a whole http or https URL",
            ));
        }
    }
    for (name, mapping) in [
        ("bodyMapping", &config.body_mapping),
        ("responseMapping", &config.response_mapping),
    ] {
        if let Some(fault) = mapping
            .as_deref()
            .and_then(|mapping| rules.mapping_fault(mapping))
        {
            findings.push(Finding::new(
                format!("{block}.{name}"),
                format!("MappingInvalid: {fault}"),
            ));
        }
    }
    if let Some(policy) = &config.retry_policy {
        retry::http(findings, &format!("{block}.retryPolicy"), policy);
    }
}

fn grpc(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    let Some(config) = &handler.grpc_config else {
        return;
    };
    let block = format!("{field}.grpcConfig");
    match (&config.endpoint, handler.sandbox.is_some()) {
        (Some(_), true) => findings.push(Finding::new(
            format!("{block}.endpoint"),
            "must be unset on a handler that addresses a sandbox",
        )),
        (None, false) => findings.push(Finding::new(
            format!("{block}.endpoint"),
            "is required unless the handler addresses a sandbox",
        )),
        (Some(text), false) => {
            if let Err(message) = endpoint::host_and_port(text) {
                findings.push(Finding::new(format!("{block}.endpoint"), message));
            }
        }
        (None, true) => {}
    }
    if let Some(policy) = &config.retry_policy {
        retry::grpc(findings, &format!("{block}.retryPolicy"), policy);
    }
}

fn mcp(findings: &mut Vec<Finding>, field: &str, handler: &Handler, rules: &dyn CallRules) {
    let Some(config) = &handler.mcp_config else { return };
    let block = format!("{field}.mcpConfig");
    let on_sandbox = handler.sandbox.is_some();
    let url = address(
        findings,
        format!("{block}.endpoint"),
        &config.endpoint,
        on_sandbox,
    );
    if let Some(message) = url.as_ref().and_then(|url| rules.refused_host(url)) {
        findings.push(Finding::new(format!("{block}.endpoint"), message));
    }
    if on_sandbox
        && config
            .tool_filter
            .as_ref()
            .is_none_or(|filter| filter.allowlist.is_empty())
    {
        findings.push(Finding::new(
            format!("{block}.toolFilter.allowlist"),
            "is required on a handler that addresses a sandbox",
        ));
    }
    if let Some(policy) = &config.retry_policy {
        retry::mcp(findings, &format!("{block}.retryPolicy"), policy);
    }
}

fn open_api(findings: &mut Vec<Finding>, field: &str, handler: &Handler) {
    let Some(config) = &handler.open_api_config else {
        return;
    };
    let block = format!("{field}.openAPIConfig");
    // The document is read before any sandbox exists, so its own address is never a path.
    address(findings, format!("{block}.specURL"), &config.spec_url, false);
    if let Some(base) = &config.base_url {
        address(
            findings,
            format!("{block}.baseURL"),
            base,
            handler.sandbox.is_some(),
        );
    }
    if let Some(policy) = &config.retry_policy {
        retry::http(findings, &format!("{block}.retryPolicy"), policy);
    }
}
