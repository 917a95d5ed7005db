//! Budgets over `payload.db`.

use async_trait::async_trait;
use mainstay_store::payload::{PayloadError, PayloadStore, StoredSpending};

use super::{Amount, BudgetStore, BudgetStoreError, Spending};

/// Keeps what was spent in the payload store. One for the process, as the store is.
#[derive(Debug, Clone)]
pub struct StoredBudgets {
    store: PayloadStore,
}

impl StoredBudgets {
    /// Budgets in `store`, beside the sessions.
    pub fn new(store: PayloadStore) -> Self {
        Self { store }
    }
}

#[async_trait]
impl BudgetStore for StoredBudgets {
    async fn load(&self, scope: &str, periods: Vec<String>) -> Result<Vec<Spending>, BudgetStoreError> {
        let stored = self.store.spending(scope, periods).await.map_err(translate)?;
        Ok(stored
            .into_iter()
            .map(|stored| Spending {
                period: stored.period,
                charged: Amount::from_units(stored.charged),
                alerted: stored.alerted,
            })
            .collect())
    }

    async fn charge(&self, scope: &str, charges: Vec<Spending>) -> Result<(), BudgetStoreError> {
        let charges = charges.into_iter().map(|charge| StoredSpending {
            period: charge.period,
            charged: charge.charged.units(),
            alerted: charge.alerted,
        });
        self.store
            .charge(scope, charges.collect())
            .await
            .map_err(translate)
    }
}

fn translate(error: PayloadError) -> BudgetStoreError {
    BudgetStoreError(Box::new(error))
}
