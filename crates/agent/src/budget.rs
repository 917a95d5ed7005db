//! Budgets: what may be spent on a model provider (OM-204, contract 8).
//!
//! Each call of a model reserves what it may cost at most before it is sent, and is settled from the token counts of
//! its own stream. Reservations come from a block that the process has leased in memory: the store is written once a
//! block. All agents that use a provider share one [`Ledger`].
//!
//! A day and a month are those of UTC. A provider without prices costs nothing here.

mod limits;
mod stored;

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_telemetry::clock::SharedClock;
use mainstay_telemetry::metrics::{Counter, Metrics};

pub use limits::{Amount, BudgetLimits, InvalidBudget, WhenExceeded};
pub use stored::StoredBudgets;

/// Part of the smallest limit that is leased at once: a hundredth.
const BLOCKS: i64 = 100;

/// One period of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    /// A day of UTC.
    Daily,
    /// A month of UTC.
    Monthly,
}

impl Period {
    /// The word for events and logs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Monthly => "monthly",
        }
    }
}

/// What is stored of one period of a scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spending {
    /// `2026-05-04` or `2026-05`.
    pub period: String,
    /// What is charged to it, leased blocks included; in [`BudgetStore::charge`] what is added.
    pub charged: Amount,
    /// Highest threshold that was told of, in percent.
    pub alerted: u32,
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
#[error("budgets cannot be kept: {0}")]
pub struct BudgetStoreError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Keeps what was spent over a restart.
#[async_trait]
pub trait BudgetStore: Debug + Send + Sync {
    /// What is stored of `periods`; one without an entry is left out.
    ///
    /// # Errors
    ///
    /// [`BudgetStoreError`].
    async fn load(&self, scope: &str, periods: Vec<String>) -> Result<Vec<Spending>, BudgetStoreError>;

    /// Adds to what is stored.
    ///
    /// # Errors
    ///
    /// [`BudgetStoreError`]; nothing was added then.
    async fn charge(&self, scope: &str, charges: Vec<Spending>) -> Result<(), BudgetStoreError>;
}

/// Counters of all budgets of a process.
#[derive(Debug, Clone, Default)]
pub struct BudgetMetrics {
    refused: Counter,
    alerts: Counter,
}

impl BudgetMetrics {
    /// Counters that `/metrics` shows.
    pub fn register(metrics: &Metrics) -> Self {
        let counters = Self::default();
        metrics.register(
            "budget_refused_calls",
            "Model calls that a budget refused",
            &counters.refused,
        );
        metrics.register(
            "budget_alerts",
            "Thresholds of budgets that were crossed",
            &counters.alerts,
        );
        counters
    }
}

/// The ledgers of a process. Clones share them.
#[derive(Debug, Clone)]
pub struct Budgets {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: SharedClock,
    store: Arc<dyn BudgetStore>,
    metrics: BudgetMetrics,
    // A std mutex: held to find or insert an entry, never across an await.
    ledgers: Mutex<HashMap<String, Arc<Ledger>>>,
}

impl Budgets {
    /// Budgets that are kept in `store`.
    pub fn new(clock: SharedClock, store: Arc<dyn BudgetStore>, metrics: BudgetMetrics) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                store,
                metrics,
                ledgers: Mutex::default(),
            }),
        }
    }

    /// What was spent on the Provider `scope` (`NAMESPACE/NAME`); the same for every caller.
    pub fn ledger(&self, scope: &str) -> Arc<Ledger> {
        let mut ledgers = self.shared.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let ledger = ledgers.entry(scope.to_owned()).or_insert_with(|| {
            Arc::new(Ledger {
                scope: scope.to_owned(),
                clock: self.shared.clock.clone(),
                store: Arc::clone(&self.shared.store),
                metrics: self.shared.metrics.clone(),
                state: tokio::sync::Mutex::default(),
            })
        });
        Arc::clone(ledger)
    }

    /// Gives back what is left of every block. For the orderly end of the process, before the store closes.
    pub async fn close(&self) {
        let ledgers: Vec<Arc<Ledger>> = self
            .shared
            .ledgers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .cloned()
            .collect();
        for ledger in ledgers {
            ledger.give_back().await;
        }
    }
}

/// What one scope has spent.
#[derive(Debug)]
pub struct Ledger {
    scope: String,
    clock: SharedClock,
    store: Arc<dyn BudgetStore>,
    metrics: BudgetMetrics,
    // A tokio mutex: held while a block is written, so that two calls do not lease two.
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether `day` and `month` are what the store has, with what this process added.
    loaded: bool,
    day: Spending,
    month: Spending,
    /// What is left of the leased block; below zero once calls cost more than they reserved, or were made while the store
    /// could not say what is spent: the next lease charges them.
    left: Amount,
}

/// The budget of a provider: its ledger and the limits that hold.
#[derive(Debug, Clone)]
pub struct Budget {
    /// What was spent.
    pub ledger: Arc<Ledger>,
    /// What may be.
    pub limits: BudgetLimits,
}

/// What a call may cost, put aside. Without [`Budget::settle`] it counts as spent: the call may have been made.
#[derive(Debug)]
#[must_use = "a reservation that is not settled counts as spent"]
pub(crate) struct Reservation {
    amount: Amount,
    day: String,
    month: String,
    /// The limit that the call goes beyond, where that is allowed.
    pub(crate) beyond: Option<Exceeded>,
}

/// Why a call may not be made.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It would go beyond a limit.
    Exceeded(Exceeded),
    /// Nobody can say what is spent, and a limit that blocks holds all the same.
    Unknown { scope: String, error: BudgetStoreError },
}

/// A limit that a call would go beyond.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) scope: String,
    pub(crate) period: Period,
    pub(crate) limit: Amount,
    /// Spent and put aside so far.
    pub(crate) spent: Amount,
    /// What the call may cost.
    pub(crate) needed: Amount,
}

/// A threshold that was crossed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alert {
    pub(crate) scope: String,
    pub(crate) period: Period,
    pub(crate) percent: u32,
    pub(crate) limit: Amount,
    pub(crate) spent: Amount,
}

impl Budget {
    /// Puts aside what a call may cost at most.
    ///
    /// # Errors
    ///
    /// [`Refused`], where calls beyond a limit are blocked.
    pub(crate) async fn reserve(&self, needed: Amount) -> Result<Reservation, Refused> {
        let ledger = &*self.ledger;
        let mut state = ledger.state.lock().await;
        let (day, month) = periods_of(ledger.clock.now());
        if let Err(error) = ledger.begin(&mut state).await {
            if self.limits.when_exceeded == WhenExceeded::Block {
                ledger.metrics.refused.inc();
                return Err(Refused::Unknown {
                    scope: ledger.scope.clone(),
                    error,
                });
            }
            // Nothing can be leased from periods that are not known; it is charged when they are.
            state.left = state.left - needed;
            return Ok(Reservation {
                amount: needed,
                day,
                month,
                beyond: None,
            });
        }
        let beyond = self.periods(&state).find_map(|(period, limit, spent)| {
            (spent + needed > limit).then(|| Exceeded {
                scope: ledger.scope.clone(),
                period,
                limit,
                spent,
                needed,
            })
        });
        if let Some(beyond) = &beyond
            && self.limits.when_exceeded == WhenExceeded::Block
        {
            ledger.metrics.refused.inc();
            return Err(Refused::Exceeded(beyond.clone()));
        }
        if needed > state.left {
            let amount = (needed - state.left).max(self.block(&state));
            ledger.lease(&mut state, amount).await;
        }
        state.left = state.left - needed;
        Ok(Reservation {
            amount: needed,
            day: state.day.period.clone(),
            month: state.month.period.clone(),
            beyond,
        })
    }

    /// Replaces a reservation by what the call did cost. Returns the thresholds that were crossed by it, each told once
    /// a period.
    pub(crate) async fn settle(&self, reservation: Reservation, cost: Amount) -> Vec<Alert> {
        let ledger = &*self.ledger;
        let mut state = ledger.state.lock().await;
        let known = ledger.begin(&mut state).await.is_ok();
        let (day, month) = periods_of(ledger.clock.now());
        let unused = reservation.amount - cost;
        if reservation.day == day || unused < Amount::ZERO {
            state.left = state.left + unused;
        } else if reservation.month == month && unused > Amount::ZERO {
            // What was put aside on an earlier day is charged to that day, which is over, and to the month, which is not.
            ledger.give_back_to_month(&mut state, month, unused).await;
        }
        if !known {
            return Vec::new();
        }
        let mut alerts = Vec::new();
        for (period, limit, spent) in self.periods(&state) {
            let known = match period {
                Period::Daily => state.day.alerted,
                Period::Monthly => state.month.alerted,
            };
            let crossed = self
                .limits
                .alert_at
                .iter()
                .copied()
                .filter(|percent| *percent > known && spent >= limit.percent(*percent))
                .max();
            alerts.extend(crossed.map(|percent| Alert {
                scope: ledger.scope.clone(),
                period,
                percent,
                limit,
                spent,
            }));
        }
        for alert in &alerts {
            ledger.metrics.alerts.inc();
            ledger.alerted(&mut state, alert).await;
        }
        alerts
    }

    /// Counts what a call did cost that was put aside nowhere, because another provider stood in for the one asked.
    pub(crate) async fn spent(&self, cost: Amount) -> Vec<Alert> {
        let (day, month) = periods_of(self.ledger.clock.now());
        let reservation = Reservation {
            amount: Amount::ZERO,
            day,
            month,
            beyond: None,
        };
        self.settle(reservation, cost).await
    }

    /// The limits with what is spent and put aside.
    fn periods<'a>(&'a self, state: &'a State) -> impl Iterator<Item = (Period, Amount, Amount)> + 'a {
        let daily = self
            .limits
            .daily
            .map(|limit| (Period::Daily, limit, state.day.charged - state.left));
        let monthly = self
            .limits
            .monthly
            .map(|limit| (Period::Monthly, limit, state.month.charged - state.left));
        daily.into_iter().chain(monthly)
    }

    /// How much to lease: a hundredth of the smallest limit, and no more than is left of any.
    fn block(&self, state: &State) -> Amount {
        let smallest = self.limits.daily.into_iter().chain(self.limits.monthly).min();
        let block = smallest.map_or(Amount::ZERO, |limit| limit.part(BLOCKS));
        self.periods(state)
            .map(|(_, limit, spent)| limit - spent - state.left)
            .fold(block, Amount::min)
    }
}

impl Ledger {
    /// Loads what is stored, and begins a new day or month.
    ///
    /// # Errors
    ///
    /// When the store cannot say what is spent. It is asked again at the next call: taken as nothing, it would let a
    /// limit begin anew.
    async fn begin(&self, state: &mut State) -> Result<(), BudgetStoreError> {
        let (day, month) = periods_of(self.clock.now());
        if state.loaded && state.day.period == day {
            return Ok(());
        }
        if state.loaded {
            // What is left of the block belongs to the day it was leased on.
            self.return_block(state).await;
            state.loaded = false;
        }
        let stored = match self
            .store
            .load(&self.scope, vec![day.clone(), month.clone()])
            .await
        {
            Ok(stored) => stored,
            Err(error) => {
                tracing::error!(provider = self.scope, %error, "what was spent is not known");
                return Err(error);
            }
        };
        let known = |period: String| {
            let found = stored.iter().find(|spending| spending.period == period);
            found.cloned().unwrap_or(Spending {
                period,
                ..Spending::default()
            })
        };
        (state.day, state.month) = (known(day), known(month));
        state.loaded = true;
        Ok(())
    }

    /// Charges `amount` to both periods and adds it to the block. A store that fails costs the memory of this block only.
    async fn lease(&self, state: &mut State, amount: Amount) {
        state.day.charged = state.day.charged + amount;
        state.month.charged = state.month.charged + amount;
        state.left = state.left + amount;
        self.store(state, amount, 0, 0).await;
    }

    async fn return_block(&self, state: &mut State) {
        if state.left == Amount::ZERO {
            return;
        }
        let back = Amount::ZERO - state.left;
        state.day.charged = state.day.charged + back;
        state.month.charged = state.month.charged + back;
        state.left = Amount::ZERO;
        self.store(state, back, 0, 0).await;
    }

    async fn give_back_to_month(&self, state: &mut State, month: String, unused: Amount) {
        let back = Amount::ZERO - unused;
        if state.month.period == month {
            state.month.charged = state.month.charged + back;
        }
        let charge = Spending {
            period: month,
            charged: back,
            alerted: 0,
        };
        self.charge(vec![charge]).await;
    }

    async fn give_back(&self) {
        let mut state = self.state.lock().await;
        if state.loaded {
            self.return_block(&mut state).await;
        }
    }

    async fn alerted(&self, state: &mut State, alert: &Alert) {
        let percent = alert.percent;
        match alert.period {
            Period::Daily => {
                state.day.alerted = percent;
                self.store(state, Amount::ZERO, percent, 0).await;
            }
            Period::Monthly => {
                state.month.alerted = percent;
                self.store(state, Amount::ZERO, 0, percent).await;
            }
        }
        tracing::warn!(
            provider = self.scope,
            period = alert.period.word(),
            percent,
            limit_usd = alert.limit.dollars(),
            spent_usd = alert.spent.dollars(),
            "a threshold of a budget was crossed"
        );
    }

    async fn store(&self, state: &State, amount: Amount, day_alerted: u32, month_alerted: u32) {
        let charge = |spending: &Spending, alerted| Spending {
            period: spending.period.clone(),
            charged: amount,
            alerted,
        };
        self.charge(vec![
            charge(&state.day, day_alerted),
            charge(&state.month, month_alerted),
        ])
        .await;
    }

    async fn charge(&self, charges: Vec<Spending>) {
        if let Err(error) = self.store.charge(&self.scope, charges).await {
            tracing::error!(provider = self.scope, %error, "what is spent holds in this process only");
        }
    }
}

/// The names of the day and the month of a moment, in UTC.
fn periods_of(now: Timestamp) -> (String, String) {
    let date = now.to_zoned(jiff::tz::TimeZone::UTC).date();
    let month = format!("{:04}-{:02}", date.year(), date.month());
    (format!("{month}-{:02}", date.day()), month)
}

#[cfg(test)]
mod tests;
