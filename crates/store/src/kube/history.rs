//! Lists at an older revision, read from the log on connections of their own and off the async threads. Requirement
//! KA-025.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OpenFlags, params};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::object::{Key, Page, Stored};
use super::seal::Sealing;
use super::writer::Request;
use super::{HistoryError, state};
use crate::StorageFault;

/// One question to the log.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) resource: String,
    pub(super) namespace: Option<String>,
    pub(super) after: Option<(String, String)>,
    pub(super) revision: u64,
    pub(super) limit: usize,
}

/// The reader connections: opened when first needed, a fixed number at most.
#[derive(Clone, Debug)]
pub(super) struct Readers {
    path: Option<PathBuf>,
    places: Arc<Semaphore>,
    sealing: Sealing,
    // A std mutex: held to push or pop one connection, never across an await.
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: Option<PathBuf>, places: usize, sealing: Sealing) -> Self {
        Self {
            path,
            places: Arc::new(Semaphore::new(places.max(1))),
            sealing,
            idle: Arc::default(),
        }
    }

    /// Answers the query. A store in memory has one connection, so its writer answers.
    pub(super) async fn list(
        &self,
        query: Query,
        writer: &mpsc::Sender<Request>,
    ) -> Result<Page, HistoryError> {
        let sealing = self.sealing.clone();
        let Some(path) = self.path.clone() else {
            let (reply, answer) = oneshot::channel();
            let read = Request::Read(Box::new(move |connection| {
                // The caller may have gone; then nobody needs the answer.
                let _ = reply.send(page(connection, &query, &sealing));
            }));
            writer.send(read).await.map_err(|_| HistoryError::Closed)?;
            return answer.await.unwrap_or(Err(HistoryError::Closed));
        };
        let _place = self.places.acquire().await.map_err(|_| HistoryError::Closed)?;
        let idle = Arc::clone(&self.idle);
        let task = tokio::task::spawn_blocking(move || {
            let pooled = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match pooled {
                Some(connection) => connection,
                None => open(&path).map_err(storage)?,
            };
            let transaction = connection.transaction().map_err(storage)?;
            let answer = page(&transaction, &query, &sealing);
            transaction.finish().map_err(storage)?;
            idle.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            answer
        });
        task.await.unwrap_or(Err(HistoryError::Closed))
    }

    pub(super) fn close(&self) {
        self.places.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn storage(error: rusqlite::Error) -> HistoryError {
    HistoryError::Storage(StorageFault::from(error))
}

fn open(path: &PathBuf) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

fn page(connection: &Connection, query: &Query, sealing: &Sealing) -> Result<Page, HistoryError> {
    let named = |error| HistoryError::Storage(StorageFault::of(error, connection));
    let compacted = state::compacted(connection).map_err(named)?;
    if query.revision < compacted {
        return Err(HistoryError::Compacted {
            revision: query.revision,
            oldest: compacted,
        });
    }
    read_page(connection, query, sealing).map_err(named)
}

/// First the keys, from the index alone, then the values of those that are returned: counting the rest costs no values.
fn read_page(connection: &Connection, query: &Query, sealing: &Sealing) -> rusqlite::Result<Page> {
    let (namespace, name) = query.after.clone().unwrap_or_default();
    let mut keys = connection.prepare_cached(
        "SELECT max(revision), deleted FROM revisions \
         WHERE resource = ?1 AND (namespace, name) > (?2, ?3) AND (?4 IS NULL OR namespace = ?4) AND revision <= ?5 \
         GROUP BY namespace, name ORDER BY namespace, name",
    )?;
    let mut values = connection.prepare_cached(
        "SELECT namespace, name, revision, create_revision, value FROM revisions WHERE revision = ?1",
    )?;
    let resource: Arc<str> = query.resource.as_str().into();
    let mut items = Vec::new();
    let mut remaining = 0;
    let mut rows = keys.query(params![
        query.resource,
        namespace,
        name,
        query.namespace,
        query.revision
    ])?;
    while let Some(row) = rows.next()? {
        if row.get::<_, bool>(1)? {
            continue;
        }
        if items.len() >= query.limit {
            remaining += 1;
            continue;
        }
        items.push(values.query_row([row.get::<_, u64>(0)?], |row| {
            let key = Key {
                resource: Arc::clone(&resource),
                namespace: row.get_ref(0)?.as_str()?.into(),
                name: row.get_ref(1)?.as_str()?.into(),
            };
            let revision = row.get(2)?;
            Ok(Stored {
                value: sealing.of_file(&key, revision, row.get(4)?)?,
                key,
                revision,
                create_revision: row.get(3)?,
            })
        })?);
    }
    Ok(Page {
        revision: query.revision,
        items,
        remaining,
    })
}
