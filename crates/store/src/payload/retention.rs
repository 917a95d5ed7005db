//! Forgetting: sessions and events by age and by size, in small steps. Contract 1.
//!
//! Each step is one short transaction that removes a bounded number of rows, so that live turns never wait for a purge.
//! A session that goes is first retired: from then on nobody finds it, and its rows go step by step.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};

use super::thread::Durability;
use super::{PayloadError, PayloadStore, cooldowns, sessions::STREAM_TYPE, to_nanoseconds};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Sessions without activity for this long go; so do older events of sessions that live on.
    pub age: Duration,
    /// When the file holds more than this, the session unused for longest goes.
    pub bytes: u64,
    /// Rows a step removes at most.
    pub rows_per_step: usize,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self {
            age: Duration::from_secs(30 * 24 * 60 * 60),
            bytes: 1 << 30,
            rows_per_step: 500,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionStep {
    /// Sessions that cannot be found any more since this step.
    pub sessions_retired: usize,
    /// Rows removed.
    pub rows_removed: usize,
    /// Another step would remove more.
    pub more: bool,
}

impl PayloadStore {
    /// Does one step. The caller ticks it with the time, and goes on at once while [`RetentionStep::more`] holds.
    pub async fn enforce_retention(
        &self,
        limits: RetentionLimits,
        now: Timestamp,
    ) -> Result<RetentionStep, PayloadError> {
        self.thread
            .write(Durability::Relaxed, move |connection| {
                step(connection, &limits, now)
            })
            .await
    }

    /// Bytes that the file's rows take, free pages not counted.
    pub async fn used_bytes(&self) -> Result<u64, PayloadError> {
        self.thread.read(|connection| Ok(used_bytes(connection)?)).await
    }
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    Ok(number("page_count")?.saturating_sub(number("freelist_count")?) * number("page_size")?)
}

fn step(
    connection: &Connection,
    limits: &RetentionLimits,
    now: Timestamp,
) -> Result<RetentionStep, PayloadError> {
    let budget = limits.rows_per_step.max(1);
    let age = i64::try_from(limits.age.as_nanos()).unwrap_or(i64::MAX);
    let oldest = to_nanoseconds(now).saturating_sub(age);
    let mut done = RetentionStep::default();

    done.rows_removed += remove_retired(connection, budget)?;
    if done.rows_removed < budget {
        done.sessions_retired += retire_unused(connection, oldest, to_nanoseconds(now), budget)?;
        done.rows_removed += remove_old_events(connection, Some(oldest), budget - done.rows_removed)?;
        done.rows_removed += cooldowns::forget(connection, oldest, budget - done.rows_removed)?;
    }
    if done.rows_removed == 0 && done.sessions_retired == 0 && used_bytes(connection)? > limits.bytes {
        done.sessions_retired += retire_longest_unused(connection, to_nanoseconds(now))?;
        if done.sessions_retired == 0 {
            // One session, or sessions that are all at work, hold it all: their oldest events go.
            done.rows_removed += remove_old_events(connection, None, budget)?;
        }
    }
    done.more = done.rows_removed > 0 || done.sessions_retired > 0;
    if done.rows_removed > 0 {
        connection.execute_batch("PRAGMA incremental_vacuum(256)")?;
    }
    Ok(done)
}

const WITHOUT_OPEN_TURN: &str = "NOT EXISTS (SELECT 1 FROM open_turns t JOIN event_streams e ON e.id = t.stream \
     WHERE e.namespace = s.namespace AND e.stream_type = 'session' AND e.stream_id = s.name)";

/// Marks sessions without activity since `oldest`. A session whose turn is open is in use.
fn retire_unused(connection: &Connection, oldest: i64, now: i64, limit: usize) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(&format!(
            "UPDATE sessions SET retired_at = ?2 WHERE (namespace, name) IN (SELECT s.namespace, s.name FROM sessions s \
             WHERE s.retired_at IS NULL AND s.updated_at < ?1 AND s.active_task = '' AND {WITHOUT_OPEN_TURN} LIMIT ?3)"
        ))?
        .execute(params![oldest, now, limit])
}

/// Marks the session unused for longest, unless it is the only one.
fn retire_longest_unused(connection: &Connection, now: i64) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(&format!(
            "UPDATE sessions SET retired_at = ?1 WHERE (namespace, name) = (SELECT s.namespace, s.name FROM sessions s \
             WHERE s.retired_at IS NULL AND s.active_task = '' AND {WITHOUT_OPEN_TURN} ORDER BY s.updated_at LIMIT 1) \
             AND (SELECT count(*) FROM (SELECT 1 FROM sessions WHERE retired_at IS NULL LIMIT 2)) = 2"
        ))?
        .execute([now])
}

/// Removes rows of retired sessions: events, messages, and at last the session itself.
fn remove_retired(connection: &Connection, budget: usize) -> rusqlite::Result<usize> {
    let mut removed = 0;
    while removed < budget {
        let retired: Option<(String, String)> = connection
            .prepare_cached("SELECT namespace, name FROM sessions WHERE retired_at IS NOT NULL ORDER BY retired_at LIMIT 1")?
            .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((namespace, name)) = retired else { break };
        let mut left = 0;
        for statement in [
            "DELETE FROM execution_event_rows WHERE id IN (SELECT e.id FROM execution_event_rows e \
             JOIN event_streams s ON s.id = e.stream WHERE s.namespace = ?1 AND s.session_name = ?2 LIMIT ?3)",
            "DELETE FROM session_messages WHERE id IN (SELECT id FROM session_messages \
             WHERE namespace = ?1 AND session_name = ?2 LIMIT ?3)",
        ] {
            let gone =
                connection
                    .prepare_cached(statement)?
                    .execute(params![namespace, name, budget - removed])?;
            removed += gone;
            left = budget - removed;
            if left == 0 {
                break;
            }
        }
        if left == 0 {
            break;
        }
        connection
            .prepare_cached(
                "DELETE FROM event_streams WHERE namespace = ?1 AND stream_type = ?3 AND stream_id = ?2",
            )?
            .execute([&namespace, &name, STREAM_TYPE])?;
        connection
            .prepare_cached(
                "DELETE FROM execution_event_session_sequences WHERE namespace = ?1 AND session_name = ?2",
            )?
            .execute([&namespace, &name])?;
        removed += connection
            .prepare_cached("DELETE FROM sessions WHERE namespace = ?1 AND name = ?2")?
            .execute([&namespace, &name])?;
    }
    Ok(removed)
}

/// Removes the oldest events: those before `oldest`, or any. Ids rise with time, so no index by time is needed, which
/// every append would pay for. Events of open turns stay: a resume reads them.
fn remove_old_events(connection: &Connection, oldest: Option<i64>, budget: usize) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(
            "DELETE FROM execution_event_rows WHERE id IN (SELECT id FROM \
             (SELECT id, created_at FROM execution_event_rows WHERE stream NOT IN (SELECT stream FROM open_turns) \
              ORDER BY id LIMIT ?2) WHERE ?1 IS NULL OR created_at < ?1)",
        )?
        .execute(params![oldest, budget])
}
