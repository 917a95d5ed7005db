//! Conditions about sandboxes and Connections (OM-340 … OM-346).
//!
//! This version serves neither sandbox classes nor Connections, so none of them exists; what a registry says about
//! them is judged as far as that goes.

use mainstay_resources::{
    condition_types,
    conditions::NewCondition,
    omnia::tool_registry::{ToolRegistrySpec, sandbox::Sandbox},
    reasons,
};

use super::decision::Optional;

pub(super) fn conditions(spec: &ToolRegistrySpec) -> Optional {
    [
        (condition_types::SANDBOXES_VALID, sandboxes(spec)),
        (
            condition_types::SANDBOX_CONNECTIONS_VALID,
            sandbox_connections(spec),
        ),
        (
            condition_types::HANDLER_CONNECTIONS_VALID,
            handler_connections(spec),
        ),
    ]
    .into()
}

/// Sandboxes in list order, then handlers in list order; the reason is the first problem's (OM-343).
fn sandboxes(spec: &ToolRegistrySpec) -> Option<NewCondition> {
    let classes = spec.sandboxes.iter().map(|sandbox: &Sandbox| {
        let class = &sandbox.class;
        let message = format!(
            "sandbox {:?}: {} {:?} does not exist",
            sandbox.name, class.kind, class.name
        );
        (reasons::CLASS_NOT_FOUND, message)
    });
    let undeclared = spec.handlers.iter().filter_map(|handler| {
        let wanted = handler.sandbox.as_ref()?;
        let declared = spec.sandboxes.iter().any(|sandbox| sandbox.name == wanted.name);
        let message = format!(
            "handler {:?}: sandbox {:?} is not declared in spec.sandboxes",
            handler.name, wanted.name
        );
        (!declared).then_some((reasons::SANDBOX_NOT_DECLARED, message))
    });
    unmet(condition_types::SANDBOXES_VALID, classes.chain(undeclared))
}

fn sandbox_connections(spec: &ToolRegistrySpec) -> Option<NewCondition> {
    let bindings = spec.sandboxes.iter().flat_map(|sandbox| {
        sandbox.connections.iter().map(|binding| {
            let message = format!(
                "sandbox {:?}: Connection {:?} of role {:?} does not exist",
                sandbox.name, binding.connection, binding.role
            );
            (reasons::CONNECTION_NOT_FOUND, message)
        })
    });
    unmet(condition_types::SANDBOX_CONNECTIONS_VALID, bindings)
}

fn handler_connections(spec: &ToolRegistrySpec) -> Option<NewCondition> {
    let handlers = spec.handlers.iter().filter_map(|handler| {
        let connection = handler.auth.as_ref()?.connection_ref.as_ref()?;
        let message = format!(
            "handler {:?}: Connection {:?} does not exist",
            handler.name, connection.name
        );
        Some((reasons::CONNECTION_NOT_FOUND, message))
    });
    unmet(condition_types::HANDLER_CONNECTIONS_VALID, handlers)
}

/// A failing condition of all problems, or none when there is nothing to judge.
fn unmet(kind: &'static str, problems: impl Iterator<Item = (&'static str, String)>) -> Option<NewCondition> {
    let problems: Vec<_> = problems.collect();
    let (first, _) = problems.first()?;
    let message = problems
        .iter()
        .map(|(_, message)| message.as_str())
        .collect::<Vec<_>>()
        .join("; ");
    Some(NewCondition::unmet(kind, first, message))
}
