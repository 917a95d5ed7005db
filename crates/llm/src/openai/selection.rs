//! Which of OpenAI's two formats a server is spoken to in (OR-235…OR-242).

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::{ModelError, ModelErrorKind};

/// What is known of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ApiMode {
    /// Nothing yet; Responses is tried first (OR-235).
    Unknown = 0,
    /// It answers Responses.
    Responses = 1,
    /// It does not; never tried again (OR-239).
    Chat = 2,
}

/// The mode of one provider instance: one atomic integer, read and switched without a lock
/// (OR-238). It lives as long as the instance (OR-239).
#[derive(Debug)]
pub(crate) struct ApiSelection(AtomicU8);

impl ApiSelection {
    /// Begins with `mode`.
    pub(crate) fn new(mode: ApiMode) -> Self {
        Self(AtomicU8::new(mode as u8))
    }

    /// The mode now.
    pub(crate) fn mode(&self) -> ApiMode {
        match self.0.load(Ordering::Acquire) {
            1 => ApiMode::Responses,
            2 => ApiMode::Chat,
            _ => ApiMode::Unknown,
        }
    }

    /// Responses worked. Settles an open question only: a concurrent call may have settled it for
    /// Chat Completions, and that is final.
    pub(crate) fn responses_worked(&self) {
        let _ = self.0.compare_exchange(
            ApiMode::Unknown as u8,
            ApiMode::Responses as u8,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }

    /// From now on Chat Completions.
    pub(crate) fn switch_to_chat(&self) {
        self.0.store(ApiMode::Chat as u8, Ordering::Release);
    }
}

/// What a failure of Responses means for the choice of format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An ordinary error; the mode stays.
    Error,
    /// The server does not know Responses: Chat Completions for good.
    Unsupported,
    /// A Copilot-compatible endpoint refuses this call (OR-240): Chat Completions for this call, and
    /// for good while nothing else was known.
    Scoped,
}

// Codes and phrases by which servers say that they do not know Responses (OR-237).
const SIGNALS: &[&str] = &[
    "unsupported_api",
    "invalid_url",
    "unsupported_api_for_model",
    "does not support /responses",
    "does not support responses",
    "responses api is not supported",
    "unsupported responses",
    "unsupported api surface",
];

/// Judges a failed call of Responses at `url`.
pub(crate) fn judge(error: &ModelError, url: &str) -> Verdict {
    if matches!(error.status, Some(404 | 405)) {
        return Verdict::Unsupported;
    }
    // Words count in refusals of the request; an overloaded server says nothing about its formats.
    let refuses = match error.status {
        Some(status) => matches!(status, 400 | 403 | 422 | 501),
        // An error inside a stream whose words stand for no status.
        None => error.kind == ModelErrorKind::Server,
    };
    let said = format!("{} {}", error.code.as_deref().unwrap_or_default(), error.message).to_lowercase();
    if refuses && SIGNALS.iter().any(|signal| said.contains(signal)) {
        return Verdict::Unsupported;
    }
    let url = url.to_lowercase();
    if error.status == Some(403) && url.contains("copilot") && url.contains("responses") {
        return Verdict::Scoped;
    }
    Verdict::Error
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://api.openai.com/v1/responses";
    const COPILOT: &str = "https://api.githubcopilot.com/responses";

    fn refused(status: u16, code: Option<&str>, message: &str) -> ModelError {
        let mut error = ModelError::with_status("p", status, message);
        error.code = code.map(str::to_owned);
        error
    }

    #[test]
    fn only_the_listed_signals_mean_that_responses_is_unsupported_or_236_or_237_or_241() {
        for (error, url, verdict) in [
            (refused(404, None, "x"), URL, Verdict::Unsupported),
            (refused(405, None, "x"), URL, Verdict::Unsupported),
            (
                refused(400, Some("unsupported_api_for_model"), "x"),
                URL,
                Verdict::Unsupported,
            ),
            (
                refused(400, None, "This model Does Not Support Responses"),
                URL,
                Verdict::Unsupported,
            ),
            (
                refused(403, Some("UNSUPPORTED_API"), "x"),
                URL,
                Verdict::Unsupported,
            ),
            (refused(400, None, "bad input"), URL, Verdict::Error),
            (refused(403, None, "no"), URL, Verdict::Error),
            (
                refused(403, None, ""),
                "https://proxy/v1/responses",
                Verdict::Error,
            ),
            (
                refused(503, None, "the responses api is not supported right now"),
                URL,
                Verdict::Error,
            ),
            (refused(401, None, "no"), COPILOT, Verdict::Error),
        ] {
            assert_eq!(judge(&error, url), verdict, "{error} {url}");
        }
        let network = ModelError::new("p", ModelErrorKind::Network, "invalid_url");
        assert_eq!(judge(&network, URL), Verdict::Error);
    }

    #[test]
    fn a_403_of_a_copilot_endpoint_is_scoped_or_240() {
        assert_eq!(judge(&refused(403, None, "no"), COPILOT), Verdict::Scoped);
        assert_eq!(
            judge(&refused(403, None, "no"), "https://api.githubcopilot.com/chat"),
            Verdict::Error
        );
    }

    #[test]
    fn chat_is_final_and_responses_may_degrade_or_239() {
        let selection = ApiSelection::new(ApiMode::Unknown);
        selection.responses_worked();
        assert_eq!(selection.mode(), ApiMode::Responses);
        selection.switch_to_chat();
        selection.responses_worked();
        assert_eq!(selection.mode(), ApiMode::Chat);
    }
}
