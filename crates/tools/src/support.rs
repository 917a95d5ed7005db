//! Which handlers this version can serve. Asked when tools are loaded and by the controllers, so that
//! a condition says the same as the agent does.

use crate::config::{AuthType, HandlerConfig, HandlerType};

/// Why a handler is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unsupported {
    /// Stable word for conditions and logs.
    pub reason: &'static str,
    /// What is not supported, naming the handler and the field.
    pub message: String,
}

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
        HandlerType::Http | HandlerType::Openapi | HandlerType::Mcp | HandlerType::Client
    ) {
        return refuse("HandlerTypeNotSupported", format!("type `{}`", handler.kind));
    }
    if let Some(auth) = &handler.auth
        && matches!(auth.kind, AuthType::ServiceAccount | AuthType::WorkloadIdentity)
    {
        return refuse("AuthTypeNotSupported", format!("`auth.type: {}`", auth.kind));
    }
    if handler.sandbox.is_some() {
        return refuse("SandboxNotSupported", "`sandbox`".to_owned());
    }
    // A backend that expects the token must not be called without it.
    if handler.delegation {
        return refuse("DelegationNotSupported", "`delegation.enabled: true`".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::config::{AuthConfig, SandboxReference};

    #[test]
    fn what_is_not_built_is_refused_by_name() {
        let handler = |kind| HandlerConfig::new("h", kind);
        for kind in [
            HandlerType::Http,
            HandlerType::Openapi,
            HandlerType::Mcp,
            HandlerType::Client,
        ] {
            assert_eq!(supported(&handler(kind)), Ok(()));
        }
        for kind in [HandlerType::Grpc, HandlerType::Platform] {
            let error = supported(&handler(kind)).unwrap_err();
            assert_eq!(error.reason, "HandlerTypeNotSupported");
            assert!(error.message.contains(&format!("type `{kind}`")), "{error}");
        }
        let mut with_auth = handler(HandlerType::Http);
        for (kind, works) in [
            (AuthType::None, true),
            (AuthType::Bearer, true),
            (AuthType::Basic, true),
            (AuthType::ServiceAccount, false),
            (AuthType::WorkloadIdentity, false),
        ] {
            with_auth.auth = Some(AuthConfig {
                kind,
                credential_file: None,
            });
            assert_eq!(supported(&with_auth).is_ok(), works, "{kind}");
        }
        let mut sandboxed = handler(HandlerType::Http);
        sandboxed.sandbox = Some(SandboxReference::default());
        assert_eq!(supported(&sandboxed).unwrap_err().reason, "SandboxNotSupported");
        let mut delegating = handler(HandlerType::Http);
        delegating.delegation = true;
        assert_eq!(
            supported(&delegating).unwrap_err().reason,
            "DelegationNotSupported"
        );
    }
}
