//! What a call of the model may cost, and what it did cost (OM-204, contract 8).

use mainstay_llm::{Request, Usage};

use super::super::driver::Driver;
use super::super::end::End;
use crate::budget::{Amount, Refused, Reservation};
use crate::event::{BudgetAlerted, BudgetExceeded, Payload};
use crate::history;
use crate::model_entry::ModelEntry;

/// Tokens of an answer whose length nobody limits.
const ASSUMED_ANSWER: u64 = 4096;

/// What was put aside for one call.
pub(super) struct Spending {
    reservation: Option<Reservation>,
    /// Estimated tokens of the request.
    input_tokens: u64,
}

impl Driver {
    /// Puts aside what the call may cost at most.
    ///
    /// # Errors
    ///
    /// How the turn ends where the call is not allowed. The session is told of a limit.
    pub(super) async fn put_aside(&mut self, entry: &ModelEntry, request: &Request) -> Result<Spending, End> {
        let input_tokens = self.last_estimate + self.fixed_tokens();
        let Some(budget) = entry.budget.clone() else {
            return Ok(Spending {
                reservation: None,
                input_tokens,
            });
        };
        let output_tokens = request
            .parameters
            .max_tokens
            .or(Some(entry.answer_reserve).filter(|reserve| *reserve > 0))
            .unwrap_or(ASSUMED_ANSWER);
        let needed = cost(
            entry,
            &Usage {
                input_tokens,
                output_tokens,
                cached_tokens: 0,
            },
        );
        let (reserved, beyond) = match budget.reserve(needed).await {
            Ok(reservation) => {
                let beyond = reservation.beyond.clone();
                (Ok(reservation), beyond)
            }
            Err(Refused::Exceeded(exceeded)) => (Err(End::over_budget(&exceeded)), Some(exceeded)),
            Err(Refused::Unknown { scope, error }) => (Err(End::budget_unknown(&scope, &error)), None),
        };
        if let Some(beyond) = beyond
            && !std::mem::replace(&mut self.told_of_budget, true)
        {
            self.pending
                .payloads
                .push(Payload::BudgetExceeded(BudgetExceeded {
                    provider: beyond.scope,
                    period: beyond.period.word().to_owned(),
                    limit_usd: beyond.limit.dollars(),
                    spent_usd: beyond.spent.dollars(),
                    needed_usd: beyond.needed.dollars(),
                    action: budget.limits.when_exceeded.word().to_owned(),
                }));
        }
        reserved.map(|reservation| Spending {
            reservation: Some(reservation),
            input_tokens,
        })
    }

    /// Replaces what was put aside by what the stream's own counts cost. An answer that broke off before its counts is
    /// estimated by what came of it, in `answered` bytes: text, reasoning and calls. The provider had read the request by
    /// then. A call that was not answered at all costs nothing.
    pub(super) async fn settle(
        &mut self,
        spending: Spending,
        usage: Option<Usage>,
        answered: Option<usize>,
        asked: &ModelEntry,
        answering: &ModelEntry,
    ) {
        let usage = usage.unwrap_or(answered.map_or_else(Usage::default, |bytes| Usage {
            input_tokens: spending.input_tokens,
            output_tokens: history::tokens(bytes),
            cached_tokens: 0,
        }));
        let cost = cost(answering, &usage);
        let same = asked.name == answering.name;
        let mut alerts = Vec::new();
        if let (Some(budget), Some(reservation)) = (&asked.budget, spending.reservation) {
            alerts.extend(
                budget
                    .settle(reservation, if same { cost } else { Amount::ZERO })
                    .await,
            );
        }
        // Another provider stepped in: what it cost is spent, whatever its budget says.
        if let Some(budget) = answering.budget.as_ref().filter(|_| !same) {
            alerts.extend(budget.spent(cost).await);
        }
        for alert in alerts {
            self.pending.payloads.push(Payload::BudgetAlerted(BudgetAlerted {
                provider: alert.scope,
                period: alert.period.word().to_owned(),
                percent: alert.percent,
                limit_usd: alert.limit.dollars(),
                spent_usd: alert.spent.dollars(),
            }));
        }
    }
}

/// What a call costs by the entry's prices; nothing without any.
fn cost(entry: &ModelEntry, usage: &Usage) -> Amount {
    entry
        .prices
        .cost(usage)
        .map_or(Amount::ZERO, Amount::from_dollars)
}
