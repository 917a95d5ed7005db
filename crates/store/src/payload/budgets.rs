//! What was spent of budgets (OM-204, contract 8).
//!
//! One row for each scope and period. `charged` holds whole blocks that a process has leased, so a row is written once a
//! block and not once a call; what a process had left of its block when it died stays charged.

use rusqlite::{Connection, params};

use super::thread::Durability;
use super::{PayloadError, PayloadStore};

/// What is stored of one period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredSpending {
    /// The period: `2026-05-04` or `2026-05`.
    pub period: String,
    /// Billionths of a US dollar, leased blocks included.
    pub charged: i64,
    /// The highest threshold, in percent, that was told of.
    pub alerted: u32,
}

impl PayloadStore {
    /// What is stored of the periods of `scope` that are asked for; a period without a row is left out.
    pub async fn spending(
        &self,
        scope: &str,
        periods: Vec<String>,
    ) -> Result<Vec<StoredSpending>, PayloadError> {
        let scope = scope.to_owned();
        self.thread
            .read(move |connection| {
                let mut statement = connection.prepare_cached(
                    "SELECT period, charged, alerted FROM budget_spending WHERE scope = ?1 AND period = ?2",
                )?;
                let mut found = Vec::new();
                for period in &periods {
                    let rows = statement.query_map([&scope, period], |row| {
                        Ok(StoredSpending {
                            period: row.get(0)?,
                            charged: row.get(1)?,
                            alerted: row.get(2)?,
                        })
                    })?;
                    for row in rows {
                        found.push(row?);
                    }
                }
                Ok(found)
            })
            .await
    }

    /// Adds to what is charged; `alerted` only rises. A period takes the place of the older ones of its kind. Survives the
    /// death of the process; a machine that loses its power may forget the newest block.
    pub async fn charge(&self, scope: &str, charges: Vec<StoredSpending>) -> Result<(), PayloadError> {
        let scope = scope.to_owned();
        self.thread
            .write(Durability::Relaxed, move |connection| {
                for charge in &charges {
                    add(connection, &scope, charge)?;
                }
                Ok(())
            })
            .await
    }
}

fn add(connection: &Connection, scope: &str, charge: &StoredSpending) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO budget_spending (scope, period, charged, alerted) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO UPDATE SET charged = charged + excluded.charged, alerted = max(alerted, excluded.alerted)",
        )?
        .execute(params![scope, charge.period, charge.charged, charge.alerted])?;
    // Days and months have names of different lengths, which sort by time.
    connection
        .prepare_cached(
            "DELETE FROM budget_spending WHERE scope = ?1 AND length(period) = length(?2) AND period < ?2",
        )?
        .execute([scope, &charge.period])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::payload::PayloadOptions;

    fn charge(period: &str, charged: i64, alerted: u32) -> StoredSpending {
        StoredSpending {
            period: period.to_owned(),
            charged,
            alerted,
        }
    }

    #[tokio::test]
    async fn om_204_spending_adds_up_over_a_restart_and_a_new_period_begins_at_nothing() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("payload.db");
        let both = || vec!["2026-05-04".to_owned(), "2026-05".to_owned()];
        let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
        assert_eq!(store.spending("default", both()).await.unwrap(), []);
        for _ in 0..2 {
            let charges = vec![charge("2026-05-04", 10, 50), charge("2026-05", 10, 0)];
            store.charge("default", charges).await.unwrap();
        }
        store
            .charge("default", vec![charge("2026-05-04", -5, 0)])
            .await
            .unwrap();
        store.close().await;
        drop(store);

        let store = PayloadStore::open(PayloadOptions::file(&path)).unwrap();
        assert_eq!(
            store.spending("default", both()).await.unwrap(),
            [charge("2026-05-04", 15, 50), charge("2026-05", 20, 0)]
        );
        assert_eq!(store.spending("other", both()).await.unwrap(), []);
        store
            .charge("default", vec![charge("2026-05-05", 1, 0)])
            .await
            .unwrap();
        let next = vec![
            "2026-05-04".to_owned(),
            "2026-05-05".to_owned(),
            "2026-05".to_owned(),
        ];
        assert_eq!(
            store.spending("default", next).await.unwrap(),
            [charge("2026-05-05", 1, 0), charge("2026-05", 20, 0)],
            "yesterday is gone, the month is not"
        );
    }
}
