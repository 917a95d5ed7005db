//! Model providers that are left alone for a while. Contract 8: the end of a cooldown survives a restart.
//!
//! One row for each provider that failed last; an answer removes it. Rows of providers that nobody uses any more go by
//! age with everything else (`retention.rs`).

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::thread::Durability;
use super::{PayloadError, PayloadStore, from_nanoseconds, to_nanoseconds};

/// Names one provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CooldownKey {
    /// The namespace of its resource.
    pub namespace: String,
    /// The name of its resource.
    pub provider: String,
    /// Its type.
    pub provider_type: String,
}

/// What is known of a provider that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCooldown {
    /// Failed calls in a row.
    pub failures: u32,
    /// The end, as wall time.
    pub ends_at: Timestamp,
    /// Stable word for why.
    pub reason: String,
    /// The HTTP status of the last failure, where there was one.
    pub status: Option<u16>,
    /// The last failure, for people.
    pub message: String,
}

impl PayloadStore {
    /// What was stored for a provider last.
    pub async fn cooldown(&self, key: &CooldownKey) -> Result<Option<StoredCooldown>, PayloadError> {
        let key = key.clone();
        self.thread
            .read(move |connection| Ok(read(connection, &key)?))
            .await
    }

    /// Replaces what is stored for a provider; `None` removes it. Survives the death of the process: a machine that
    /// lost its power asks the provider once more, which is no harm.
    pub async fn set_cooldown(
        &self,
        key: &CooldownKey,
        cooldown: Option<StoredCooldown>,
    ) -> Result<(), PayloadError> {
        let key = key.clone();
        self.thread
            .write(Durability::Relaxed, move |connection| {
                write(connection, &key, cooldown.as_ref())?;
                Ok(())
            })
            .await
    }
}

fn read(connection: &Connection, key: &CooldownKey) -> rusqlite::Result<Option<StoredCooldown>> {
    connection
        .prepare_cached(
            "SELECT failures, ends_at, reason, status, message FROM provider_cooldowns \
             WHERE namespace = ?1 AND provider = ?2 AND provider_type = ?3",
        )?
        .query_row([&key.namespace, &key.provider, &key.provider_type], |row| {
            Ok(StoredCooldown {
                failures: row.get(0)?,
                ends_at: from_nanoseconds(row.get(1)?),
                reason: row.get(2)?,
                status: row.get(3)?,
                message: row.get(4)?,
            })
        })
        .optional()
}

fn write(
    connection: &Connection,
    key: &CooldownKey,
    cooldown: Option<&StoredCooldown>,
) -> rusqlite::Result<usize> {
    let Some(cooldown) = cooldown else {
        return connection
            .prepare_cached(
                "DELETE FROM provider_cooldowns WHERE namespace = ?1 AND provider = ?2 AND provider_type = ?3",
            )?
            .execute([&key.namespace, &key.provider, &key.provider_type]);
    };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO provider_cooldowns \
             (namespace, provider, provider_type, failures, ends_at, reason, status, message) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            key.namespace,
            key.provider,
            key.provider_type,
            cooldown.failures,
            to_nanoseconds(cooldown.ends_at),
            cooldown.reason,
            cooldown.status,
            cooldown.message,
        ])
}

/// Removes cooldowns that ended before `oldest`: nobody has asked those providers since.
pub(super) fn forget(connection: &Connection, oldest: i64, limit: usize) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM provider_cooldowns WHERE (namespace, provider, provider_type) IN \
             (SELECT namespace, provider, provider_type FROM provider_cooldowns WHERE ends_at < ?1 LIMIT ?2)",
        )?
        .execute(params![oldest, limit])
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
