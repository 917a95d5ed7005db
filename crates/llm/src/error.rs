//! Why a call of a model failed (OR-203, OR-213…OR-215).

use std::{fmt, time::Duration};

/// Longest part of a provider's own message that is kept, in bytes.
pub const MESSAGE_LIMIT: usize = 512;

/// A failed call.
///
/// The message is fit to be shown and logged: cut, without control characters and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelError {
    /// The provider entry that was called.
    pub provider: String,
    /// The HTTP status, or the status an error inside a stream stands for.
    pub status: Option<u16>,
    /// What kind of failure; decides about retry and fallback.
    pub kind: ModelErrorKind,
    /// What happened, for people.
    pub message: String,
    /// The provider's own word for it, such as `overloaded_error`.
    pub code: Option<String>,
    /// How long the provider asked to wait (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// How many times the provider was called, retries included.
    pub attempts: u32,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelErrorKind {
    /// 401 or 403.
    Unauthorized,
    /// 429.
    RateLimited,
    /// The conversation does not fit into the model's context (OR-203).
    ContextTooLong,
    /// Another 4xx.
    InvalidRequest,
    /// 5xx.
    Server,
    /// No answer arrived, or only a part of one: name not found, connection refused, reset or closed
    /// early, TLS.
    Network,
    /// The request took longer than its `requestTimeout`.
    TimedOut,
    /// The stream stood still for longer than its `streamIdleTimeout` (OM-371).
    StreamIdle,
    /// A success whose body is not what the protocol says.
    Protocol,
    /// The provider's credential is not there; nothing was sent.
    CredentialUnavailable,
    /// The address may not be called, or its Service has no ready endpoint; nothing was sent.
    Unreachable,
    /// The provider failed lately and is left alone; nothing was sent (OR-222).
    CoolingDown,
    /// The provider's configuration or the mock's scenario cannot be used; nothing was sent.
    Configuration,
}

impl ModelErrorKind {
    /// The kind an HTTP status stands for.
    pub fn from_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Unauthorized,
            429 => Self::RateLimited,
            400..=499 => Self::InvalidRequest,
            500..=599 => Self::Server,
            _ => Self::Protocol,
        }
    }

    /// The stable word for conditions, records and metrics.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unauthorized => "ModelUnauthorized",
            Self::RateLimited => "ModelRateLimited",
            Self::ContextTooLong => "ModelContextTooLong",
            Self::InvalidRequest => "ModelRequestInvalid",
            Self::Server => "ModelServerError",
            Self::Network => "ModelNetworkError",
            Self::TimedOut => "ModelTimedOut",
            Self::StreamIdle => "ModelStreamIdle",
            Self::Protocol => "ModelProtocolError",
            Self::CredentialUnavailable => "ModelCredentialUnavailable",
            Self::Unreachable => "ModelUnreachable",
            Self::CoolingDown => "ModelCoolingDown",
            Self::Configuration => "ModelConfigurationInvalid",
        }
    }
}

impl ModelError {
    /// A failure without a status.
    pub fn new(provider: &str, kind: ModelErrorKind, message: impl AsRef<str>) -> Self {
        Self {
            provider: provider.to_owned(),
            status: None,
            kind,
            message: mainstay_telemetry::text::escape(message.as_ref(), MESSAGE_LIMIT),
            code: None,
            retry_after: None,
            attempts: 1,
        }
    }

    /// A failure that the provider reported with `status`.
    pub fn with_status(provider: &str, status: u16, message: impl AsRef<str>) -> Self {
        let message = message.as_ref();
        let mut kind = ModelErrorKind::from_status(status);
        if status == 400 && mentions_context_length(message) {
            kind = ModelErrorKind::ContextTooLong;
        }
        Self {
            status: Some(status),
            ..Self::new(provider, kind, message)
        }
    }

    /// Whether the same call may be made again: exactly 429, 500, 502, 503, 529 and failures of
    /// the network (OR-213, OR-215). Never a deadline (OR-214). An answer that is not one counts as a
    /// failure of the network: it comes from a proxy whose server is away, or from a broken server.
    pub fn is_retryable(&self) -> bool {
        match self.status {
            Some(status) => matches!(status, 429 | 500 | 502 | 503 | 529),
            None => matches!(self.kind, ModelErrorKind::Network | ModelErrorKind::Protocol),
        }
    }

    /// Whether another provider may be tried: 401, 403, the network, or what is retryable but
    /// outlived its retries (OR-220, OR-221).
    pub fn allows_fallback(&self) -> bool {
        self.kind == ModelErrorKind::Unauthorized || self.is_retryable()
    }

    /// The stable word of [`ModelErrorKind::reason`].
    pub fn reason(&self) -> &'static str {
        self.kind.reason()
    }

    /// What to try, when there is something.
    pub fn hint(&self) -> Option<&'static str> {
        match self.kind {
            ModelErrorKind::Unauthorized | ModelErrorKind::CredentialUnavailable => {
                Some("check the Provider's `spec.credential` and the Secret it names")
            }
            ModelErrorKind::Network | ModelErrorKind::Unreachable => {
                Some("check the Provider's `spec.baseURL` and that the server is up")
            }
            ModelErrorKind::Protocol => {
                Some("check that the Provider's `spec.baseURL` is an API of the Provider's type")
            }
            ModelErrorKind::TimedOut => Some("raise the Provider's `spec.defaults.requestTimeout`"),
            ModelErrorKind::StreamIdle => Some("raise the Provider's `spec.defaults.streamIdleTimeout`"),
            ModelErrorKind::CoolingDown => {
                Some("check the provider's status page and quota, or add another provider")
            }
            ModelErrorKind::ContextTooLong => Some("set `spec.defaults.contextWindow` to the model's window"),
            _ => None,
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "provider `{}`: ", self.provider)?;
        if let Some(status) = self.status {
            write!(formatter, "HTTP {status}: ")?;
        }
        formatter.write_str(&self.message)?;
        if self.attempts > 1 {
            write!(formatter, " (after {} attempts)", self.attempts)?;
        }
        Ok(())
    }
}

impl std::error::Error for ModelError {}

// The requirement names these words; providers have no common error code for this case.
fn mentions_context_length(message: &str) -> bool {
    let message = message.to_lowercase();
    ["context", "token", "too long", "maximum"]
        .iter()
        .any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_listed_statuses_are_retried_or_213() {
        let retried: Vec<u16> = (100..600)
            .filter(|status| ModelError::with_status("p", *status, "x").is_retryable())
            .collect();
        assert_eq!(retried, [429, 500, 502, 503, 529]);
    }

    #[test]
    fn deadlines_are_not_retried_and_the_network_is_or_214_or_215() {
        for (kind, retried) in [
            (ModelErrorKind::Network, true),
            (ModelErrorKind::Protocol, true),
            (ModelErrorKind::TimedOut, false),
            (ModelErrorKind::StreamIdle, false),
            (ModelErrorKind::CredentialUnavailable, false),
            (ModelErrorKind::Unreachable, false),
        ] {
            assert_eq!(
                ModelError::new("p", kind, "x").is_retryable(),
                retried,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn unauthorized_allows_fallback_but_no_retry_or_214_or_220() {
        let error = ModelError::with_status("p", 403, "no");
        assert!(!error.is_retryable());
        assert!(error.allows_fallback());
        assert!(!ModelError::with_status("p", 404, "no").allows_fallback());
    }

    #[test]
    fn a_400_about_tokens_is_a_context_that_is_too_long_or_203() {
        let error = ModelError::with_status("p", 400, "This model's Maximum is 8192");
        assert_eq!(error.kind, ModelErrorKind::ContextTooLong);
        let error = ModelError::with_status("p", 413, "maximum");
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
    }

    #[test]
    fn the_message_names_the_provider_and_the_attempts() {
        let mut error = ModelError::with_status("main", 503, "busy\n");
        error.attempts = 4;
        assert_eq!(
            error.to_string(),
            "provider `main`: HTTP 503: busy\\n (after 4 attempts)"
        );
    }
}
