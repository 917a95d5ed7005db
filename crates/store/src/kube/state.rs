//! What is in memory: the current view and the window of recent events. Written by the writer's thread only, after a
//! commit; read by everybody.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;
use jiff::Timestamp;
use rusqlite::{Connection, params};
use tokio::sync::watch as notice;

use super::KubeStatistics;
use super::layout::FIRST_REVISION;
use super::object::{Event, EventKind, Key, Stored};
use super::options::WindowLimits;
use super::seal::Sealing;
use super::topic::{Topic, Topics, Wake};

/// The state behind its lock. A std lock: held for look-ups and clones of references, never across an await.
#[derive(Debug)]
pub(super) struct Shared(RwLock<State>);

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self(RwLock::new(state))
    }

    // A panic under the lock cannot leave half a change: `publish` does nothing that panics.
    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct State {
    revision: u64,
    current: BTreeMap<Key, Stored>,
    window: Window,
    topics: Topics,
    closed: bool,
    changes: u64,
    transactions: u64,
}

/// The last events, without a gap: the event of revision `start + 1 + i` is at index `i`.
#[derive(Debug)]
pub(super) struct Window {
    start: u64,
    bytes: usize,
    events: VecDeque<Arc<Event>>,
}

impl Window {
    /// The revision before the oldest event kept.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The events with a revision above `after`, which must not be below [`Window::start`].
    pub(super) fn after(&self, after: u64) -> impl Iterator<Item = &Arc<Event>> {
        let skip = usize::try_from(after.saturating_sub(self.start)).unwrap_or(usize::MAX);
        self.events.range(skip.min(self.events.len())..)
    }

    fn push(&mut self, event: Event) {
        self.bytes += event.value.len();
        self.events.push_back(Arc::new(event));
    }

    fn pop(&mut self, topics: &mut Topics) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.value.len();
            self.start = event.revision;
            topics.forgotten(&event);
        }
    }

    fn trim(&mut self, limits: &WindowLimits, now: Timestamp, topics: &mut Topics) {
        let age = i64::try_from(limits.age.as_millis()).unwrap_or(i64::MAX);
        let oldest_time = now.as_millisecond().saturating_sub(age);
        while let Some(oldest) = self.events.front() {
            let exceeds = self.events.len() > limits.events
                || self.bytes > limits.bytes
                || oldest.written_at < oldest_time;
            if !exceeds {
                break;
            }
            self.pop(topics);
        }
    }
}

impl State {
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Ends every watch.
    pub(super) fn close(&mut self) -> Wake {
        self.closed = true;
        self.topics.all()
    }

    /// What watchers of a resource need to know; `None` for one that was neither watched nor written.
    pub(super) fn topic(&self, resource: &str) -> Option<&Topic> {
        self.topics.get(resource)
    }

    pub(super) fn subscribe(&mut self, resource: &Arc<str>) -> notice::Receiver<()> {
        self.topics.subscribe(resource)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Stored> {
        self.current.get(key)
    }

    /// The objects of a resource in order, after `after` (namespace, name).
    pub(super) fn list<'a>(
        &'a self,
        resource: &'a str,
        namespace: Option<&'a str>,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = &'a Stored> {
        let start = match after {
            Some((namespace, name)) => Bound::Excluded(Key::new(resource, namespace, name)),
            None => Bound::Included(Key::new(resource, namespace.unwrap_or(""), "")),
        };
        self.current
            .range((start, Bound::Unbounded))
            .map(|(_, stored)| stored)
            .take_while(move |stored| {
                &*stored.key.resource == resource
                    && namespace.is_none_or(|only| &*stored.key.namespace == only)
            })
    }

    /// Makes committed events visible, in order, and trims the window. Says whom they concern.
    pub(super) fn publish(
        &mut self,
        events: Vec<(Event, u64 /* create revision */)>,
        limits: &WindowLimits,
        now: Timestamp,
    ) -> Wake {
        let before = self.revision;
        self.transactions += 1;
        for (event, create_revision) in events {
            self.changes += 1;
            self.revision = event.revision;
            match event.kind {
                EventKind::Deleted => {
                    self.current.remove(&event.key);
                }
                EventKind::Added | EventKind::Modified => {
                    let stored = Stored {
                        key: event.key.clone(),
                        revision: event.revision,
                        create_revision,
                        value: event.value.clone(),
                    };
                    self.current.insert(event.key.clone(), stored);
                }
            }
            self.topics.published(&event);
            self.window.push(event);
        }
        self.window.trim(limits, now, &mut self.topics);
        self.topics.changed_since(before)
    }

    /// Forgets events up to `through` and what the limits do not allow. Says who may stand before what is gone.
    pub(super) fn trim(&mut self, through: Option<u64>, limits: &WindowLimits, now: Timestamp) -> Wake {
        if let Some(through) = through {
            while self.window.start < through && !self.window.events.is_empty() {
                self.window.pop(&mut self.topics);
            }
        }
        self.window.trim(limits, now, &mut self.topics);
        self.topics.all()
    }

    pub(super) fn statistics(&self) -> KubeStatistics {
        KubeStatistics {
            objects: self.current.len(),
            window_events: self.window.events.len(),
            window_bytes: self.window.bytes,
            waiting: 0,
            changes: self.changes,
            transactions: self.transactions,
        }
    }
}

/// The revision up to which history was forgotten.
pub(super) fn compacted(connection: &Connection) -> rusqlite::Result<u64> {
    connection.query_row("SELECT compacted FROM progress", [], |row| row.get(0))
}

/// Keeps one copy of each resource and namespace name, however many objects carry it.
#[derive(Default)]
struct Names(HashSet<Arc<str>>);

impl Names {
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.0.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

/// Reads the current view and the window from the file. The counter goes on after the newest revision ever used, even
/// if compaction removed its row (KA-030).
pub(super) fn load(
    connection: &Connection,
    limits: &WindowLimits,
    sealing: &Sealing,
    now: Timestamp,
) -> rusqlite::Result<State> {
    let compacted = compacted(connection)?.max(FIRST_REVISION);
    let newest: Option<u64> =
        connection.query_row("SELECT max(revision) FROM revisions", [], |row| row.get(0))?;
    let revision = newest.unwrap_or(0).max(compacted);
    let mut names = Names::default();
    let mut values: HashMap<u64, Bytes> = HashMap::new();
    // The newest events first, until a limit is met, so that a long history costs no more than the window.
    let mut events = VecDeque::new();
    let mut bytes = 0usize;
    let age = i64::try_from(limits.age.as_millis()).unwrap_or(i64::MAX);
    let oldest_time = now.as_millisecond().saturating_sub(age);
    let mut start = revision;
    {
        let mut statement = connection.prepare(
            "SELECT revision, resource, namespace, name, previous_revision, deleted, written_at, value \
             FROM revisions WHERE revision > ?1 ORDER BY revision DESC",
        )?;
        let mut rows = statement.query([compacted])?;
        while let Some(row) = rows.next()? {
            let at: u64 = row.get(0)?;
            let written_at: i64 = row.get(6)?;
            let key = Key {
                resource: names.shared(row.get_ref(1)?.as_str()?),
                namespace: names.shared(row.get_ref(2)?.as_str()?),
                name: row.get_ref(3)?.as_str()?.into(),
            };
            let value = sealing.of_file(&key, at, row.get(7)?)?;
            // A gap would make the window's arithmetic wrong; only compaction makes gaps, and only below `compacted`.
            let fits = at == start
                && events.len() < limits.events
                && bytes + value.len() <= limits.bytes
                && written_at >= oldest_time;
            if !fits {
                break;
            }
            start = at - 1;
            bytes += value.len();
            values.insert(at, value.clone());
            let previous_revision: u64 = row.get(4)?;
            let kind = match (row.get::<_, bool>(5)?, previous_revision) {
                (true, _) => EventKind::Deleted,
                (false, 0) => EventKind::Added,
                (false, _) => EventKind::Modified,
            };
            events.push_front((
                Event {
                    revision: at,
                    kind,
                    key,
                    value,
                    previous: None,
                    written_at,
                },
                previous_revision,
            ));
        }
    }
    let mut previous_value = connection.prepare("SELECT value FROM revisions WHERE revision = ?1")?;
    let mut window = Window {
        start,
        bytes: 0,
        events: VecDeque::with_capacity(events.len()),
    };
    for (mut event, previous_revision) in events {
        if previous_revision != 0 {
            event.previous = Some(match values.get(&previous_revision) {
                Some(value) => value.clone(),
                None => {
                    let value: Vec<u8> =
                        previous_value.query_row(params![previous_revision], |row| row.get(0))?;
                    let value = sealing.of_file(&event.key, previous_revision, value)?;
                    values.insert(previous_revision, value.clone());
                    value
                }
            });
        }
        window.push(event);
    }
    let mut topics = Topics::default();
    for event in &window.events {
        topics.published(event);
    }
    let mut current = BTreeMap::new();
    {
        let mut statement = connection.prepare(
            "SELECT revision, resource, namespace, name, create_revision FROM current WHERE deleted = 0",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let at: u64 = row.get(0)?;
            let key = Key {
                resource: names.shared(row.get_ref(1)?.as_str()?),
                namespace: names.shared(row.get_ref(2)?.as_str()?),
                name: row.get_ref(3)?.as_str()?.into(),
            };
            let value = match values.get(&at) {
                Some(value) => value.clone(),
                None => {
                    let value: Vec<u8> = previous_value.query_row(params![at], |row| row.get(0))?;
                    sealing.of_file(&key, at, value)?
                }
            };
            let stored = Stored {
                key: key.clone(),
                revision: at,
                create_revision: row.get(4)?,
                value,
            };
            current.insert(key, stored);
        }
    }
    Ok(State {
        revision,
        current,
        window,
        topics,
        closed: false,
        changes: 0,
        transactions: 0,
    })
}
