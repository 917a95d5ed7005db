//! Amounts of money, and what a budget allows.

use std::fmt;
use std::ops::{Add, Sub};

use mainstay_llm::config::CostControls;

/// Billionths of a dollar: the price of one token is a few hundred to a few ten thousand of them.
const UNITS: f64 = 1e9;

/// An amount of US dollars, exact to a billionth. Sums never overflow: they stop at about nine billion dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i64);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// An amount in billionths of a dollar.
    pub fn from_units(units: i64) -> Self {
        Self(units)
    }

    /// The amount in billionths of a dollar.
    pub fn units(self) -> i64 {
        self.0
    }

    /// An amount in dollars, rounded up: what was spent is never counted as less. What is no amount of money is nothing.
    pub fn from_dollars(dollars: f64) -> Self {
        // The conversion stops at the bounds of the integer, and makes nothing of what is no number.
        Self((dollars * UNITS).ceil() as i64)
    }

    /// The amount in dollars.
    pub fn dollars(self) -> f64 {
        self.0 as f64 / UNITS
    }

    pub(super) fn percent(self, percent: u32) -> Self {
        Self((i128::from(self.0) * i128::from(percent) / 100) as i64)
    }

    pub(super) fn part(self, parts: i64) -> Self {
        Self(self.0 / parts.max(1))
    }
}

impl Add for Amount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Amount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.dollars();
        if dollars.abs() < 0.01 && self.0 != 0 {
            write!(formatter, "${dollars:.6}")
        } else {
            write!(formatter, "${dollars:.2}")
        }
    }
}

/// What happens to a call beyond a limit (OM-204).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenExceeded {
    /// It is made, and the session is told.
    #[default]
    Warn,
    /// Jobs pause. A conversation is no job: its calls are made, and the session is told.
    PauseJobs,
    /// It is refused, and the turn fails.
    Block,
}

impl WhenExceeded {
    /// The word of the manifest.
    pub fn word(self) -> &'static str {
        match self {
            Self::Warn => "warn",
            Self::PauseJobs => "pauseJobs",
            Self::Block => "block",
        }
    }
}

/// What may be spent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BudgetLimits {
    /// In a day of UTC.
    pub daily: Option<Amount>,
    /// In a month of UTC.
    pub monthly: Option<Amount>,
    /// What happens beyond.
    pub when_exceeded: WhenExceeded,
    /// Percentages of a limit that are told of when they are reached.
    pub alert_at: Vec<u32>,
}

/// A budget that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("costControls.{field}: {value:?} {problem}")]
pub struct InvalidBudget {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What is wrong.
    pub problem: &'static str,
}

impl BudgetLimits {
    /// Reads what the controllers rendered.
    ///
    /// # Errors
    ///
    /// The field that cannot be used. A budget is never left out silently.
    pub fn of(config: &CostControls) -> Result<Self, InvalidBudget> {
        let amount = |field, text: &Option<String>| {
            text.as_ref()
                .map(|text| {
                    let invalid = || InvalidBudget {
                        field,
                        value: text.clone(),
                        problem: "is no amount of dollars",
                    };
                    let dollars: f64 = text.trim().parse().map_err(|_no_number| invalid())?;
                    if !dollars.is_finite() || dollars < 0.0 {
                        return Err(invalid());
                    }
                    Ok(Amount::from_dollars(dollars))
                })
                .transpose()
        };
        let when_exceeded = match config.budget_exceeded_action.as_deref() {
            None | Some("warn") => WhenExceeded::Warn,
            Some("pauseJobs") => WhenExceeded::PauseJobs,
            Some("block") => WhenExceeded::Block,
            Some(other) => {
                return Err(InvalidBudget {
                    field: "budgetExceededAction",
                    value: other.to_owned(),
                    problem: "is none of warn, pauseJobs and block",
                });
            }
        };
        Ok(Self {
            daily: amount("dailyBudget", &config.daily_budget)?,
            monthly: amount("monthlyBudget", &config.monthly_budget)?,
            when_exceeded,
            alert_at: config.alert_thresholds.clone(),
        })
    }

    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        self.daily.is_none() && self.monthly.is_none()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn om_204_limits_are_read_as_they_were_written_or_refused() {
        let config = CostControls {
            daily_budget: Some("10.50".to_owned()),
            monthly_budget: None,
            budget_exceeded_action: Some("block".to_owned()),
            alert_thresholds: vec![80],
        };
        let limits = BudgetLimits::of(&config).unwrap();
        assert_eq!(limits.daily, Some(Amount::from_units(10_500_000_000)));
        assert_eq!(limits.when_exceeded, WhenExceeded::Block);
        assert!(!limits.is_unlimited() && BudgetLimits::default().is_unlimited());
        for (daily, action) in [
            (Some("ten"), None),
            (Some("-1"), None),
            (Some("NaN"), None),
            (Some("inf"), None),
            (None, Some("stop")),
        ] {
            let config = CostControls {
                daily_budget: daily.map(str::to_owned),
                budget_exceeded_action: action.map(str::to_owned),
                ..CostControls::default()
            };
            assert!(BudgetLimits::of(&config).is_err(), "{daily:?} {action:?}");
        }
    }

    #[test]
    fn amounts_are_rounded_up_and_shown_with_the_digits_that_matter() {
        assert_eq!(Amount::from_dollars(1e-10).units(), 1);
        assert_eq!(Amount::from_dollars(f64::NAN), Amount::ZERO);
        assert_eq!(Amount::from_dollars(f64::MAX).units(), i64::MAX);
        assert_eq!(Amount::from_dollars(12.5).to_string(), "$12.50");
        assert_eq!(Amount::from_dollars(0.000_25).to_string(), "$0.000250");
        assert_eq!(Amount::ZERO.to_string(), "$0.00");
    }
}
