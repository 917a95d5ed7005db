//! How a turn ends, and the stable words for it.

use mainstay_llm::ModelError;

use crate::budget::{BudgetStoreError, Exceeded};
use crate::event::TurnFailed;
use crate::pack::RenderError;

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// With the text of the last attempt.
    Answered,
    /// With an error for the user.
    Failed(TurnFailed),
    /// Because somebody asked for it.
    Cancelled { reason: String },
}

impl End {
    pub(crate) fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self::Failed(TurnFailed {
            reason: reason.to_owned(),
            message: message.into(),
            hint: None,
        })
    }

    pub(crate) fn cancelled(reason: &str) -> Self {
        Self::Cancelled {
            reason: reason.to_owned(),
        }
    }

    /// OM-370.
    pub(crate) fn rounds_exceeded(limit: u32) -> Self {
        Self::Failed(TurnFailed {
            reason: "ToolRoundsExceeded".to_owned(),
            message: format!("the turn asked for tools in more than {limit} rounds (max_rounds)"),
            hint: Some(
                "raise `tool_policy.max_rounds` of the prompt, or tell the model when to stop".to_owned(),
            ),
        })
    }

    /// OM-369.
    pub(crate) fn out_of_time(ceiling: std::time::Duration) -> Self {
        Self::Failed(TurnFailed {
            reason: "TurnDeadlineExceeded".to_owned(),
            message: format!("the turn did not end within {} s", ceiling.as_secs()),
            hint: Some(
                "the ceiling is two minutes and the longest `timeout` of the agent's handlers".to_owned(),
            ),
        })
    }

    /// A turn that took the process down with it again and again.
    pub(crate) fn restarted_too_often(times: u32) -> Self {
        Self::failed(
            "TurnRestartedTooOften",
            format!("the turn was interrupted and restarted {times} times"),
        )
    }

    /// OM-562: never sent to a model.
    pub(crate) fn not_rendered(error: &RenderError) -> Self {
        let reason = match error {
            RenderError::MissingVariable { .. } => "PromptVariableMissing",
            RenderError::InvalidVariable(_) => "PromptVariableInvalid",
            RenderError::PlaceholderLeft { .. } => "PromptPlaceholderLeft",
            RenderError::TooLong { .. } => "PromptTooLong",
        };
        Self::failed(reason, error.to_string())
    }

    /// OM-204: nothing was sent.
    pub(crate) fn over_budget(exceeded: &Exceeded) -> Self {
        let Exceeded {
            scope,
            period,
            limit,
            spent,
            needed,
        } = exceeded;
        Self::Failed(TurnFailed {
            reason: "BudgetExceeded".to_owned(),
            message: format!(
                "provider `{scope}`: the call may cost {needed}, and {spent} of the {} budget of {limit} are spent or put aside",
                period.word()
            ),
            hint: Some(
                "raise the Provider's annotation `mainstay.dev/cost-controls`, or wait for the next day or month of UTC"
                    .to_owned(),
            ),
        })
    }

    /// OM-204: nobody can say what is spent, so nothing was sent.
    pub(crate) fn budget_unknown(scope: &str, error: &BudgetStoreError) -> Self {
        Self::Failed(TurnFailed {
            reason: "BudgetUnavailable".to_owned(),
            message: format!("provider `{scope}`: what is spent of its budget cannot be read: {error}"),
            hint: Some(
                "try again; where it stays so, the server's log says what is wrong with its data directory"
                    .to_owned(),
            ),
        })
    }

    pub(crate) fn model_failed(error: &ModelError) -> Self {
        Self::Failed(TurnFailed {
            reason: error.reason().to_owned(),
            message: error.to_string(),
            hint: error.hint().map(str::to_owned),
        })
    }
}
