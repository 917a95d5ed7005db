//! Which handlers this version can serve. Asked when tools are loaded and by the controllers, so that
//! a condition says the same as the agent does.

use crate::{
    config::{HandlerConfig, HandlerType},
    http::mapping,
};

/// Why a handler is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unsupported {
    /// Stable word for conditions and logs.
    pub reason: &'static str,
    /// What is not supported, naming the handler and the field.
    pub message: String,
}

/// Why a JMESPath expression of a handler (`bodyMapping`, `responseMapping`) can never work, or `None` where it may (OM-383,
/// OM-390).
pub fn mapping_fault(expression: &str) -> Option<String> {
    mapping::check(expression).err().map(|error| error.to_string())
}

/// Types whose calls can carry a delegation token.
const SIGNED: [HandlerType; 4] = [
    HandlerType::Http,
    HandlerType::Grpc,
    HandlerType::Openapi,
    HandlerType::Mcp,
];

/// Whether this version serves `handler`.
///
/// # Errors
/// [`Unsupported`]; its tools are then not offered to any model.
pub fn supported(handler: &HandlerConfig) -> Result<(), Unsupported> {
    let refuse = |reason, what: String| {
        Err(Unsupported {
            reason,
            message: format!(
                "handler `{}`: {what} is not supported by this version",
                handler.name
            ),
        })
    };
    if !matches!(
        handler.kind,
        HandlerType::Http | HandlerType::Grpc | HandlerType::Openapi | HandlerType::Mcp | HandlerType::Client
    ) {
        return refuse("HandlerTypeNotSupported", format!("type `{}`", handler.kind));
    }
    if handler.sandbox.is_some() {
        return refuse("SandboxNotSupported", "`sandbox`".to_owned());
    }
    // A backend that expects the token must not be called without it.
    if handler.delegation && !SIGNED.contains(&handler.kind) {
        return refuse("DelegationNotSupported", "`delegation.enabled: true`".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::config::{AuthConfig, AuthType, SandboxReference};

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        let handler = |kind| HandlerConfig::new("h", kind);
        for kind in [
            HandlerType::Http,
            HandlerType::Grpc,
            HandlerType::Openapi,
            HandlerType::Mcp,
            HandlerType::Client,
        ] {
            assert_eq!(supported(&handler(kind)), Ok(()));
        }
        let error = supported(&handler(HandlerType::Platform)).unwrap_err();
        assert_eq!(error.reason, "HandlerTypeNotSupported");
        assert!(error.message.contains("type `platform`"), "{error}");
        for kind in [
            AuthType::None,
            AuthType::Bearer,
            AuthType::Basic,
            AuthType::ServiceAccount,
            AuthType::WorkloadIdentity,
        ] {
            let mut with_auth = handler(HandlerType::Http);
            with_auth.auth = Some(AuthConfig {
                kind,
                ..AuthConfig::default()
            });
            assert_eq!(supported(&with_auth), Ok(()), "{kind}");
        }
        let mut sandboxed = handler(HandlerType::Http);
        sandboxed.sandbox = Some(SandboxReference::default());
        assert_eq!(supported(&sandboxed).unwrap_err().reason, "SandboxNotSupported");
        for (kind, works) in [
            (HandlerType::Http, true),
            (HandlerType::Grpc, true),
            (HandlerType::Openapi, true),
            (HandlerType::Mcp, true),
            (HandlerType::Client, false),
        ] {
            let mut delegating = handler(kind);
            delegating.delegation = true;
            let refused = supported(&delegating).err().map(|error| error.reason);
            assert_eq!(refused, (!works).then_some("DelegationNotSupported"), "{kind}");
        }
    }
}
