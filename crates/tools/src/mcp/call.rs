//! What one call's request carries besides its message, and what is noted about it on the way.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU16, AtomicU32, Ordering},
    },
    time::Duration,
};

use http::HeaderValue;
use secrecy::SecretString;
use tokio::sync::Notify;

use super::McpFailure;
use crate::executor::CallContext;

/// See the [module](self). It travels with the request through the library, which knows nothing of it.
pub(super) struct CallState {
    /// How long the answer may take.
    pub(super) deadline: Duration,
    /// Headers that say on whose behalf the call is made (OM-374).
    pub(super) propagated: BTreeMap<String, String>,
    /// Headers that policies add.
    pub(super) injected: BTreeMap<String, String>,
    /// The signed statement of who is behind the call, as a header and as the text that must not come back (OM-410).
    pub(super) delegation: Option<(HeaderValue, SecretString)>,
    // Over all attempts of the call.
    sent: Arc<AtomicU32>,
    // 0: no status arrived.
    status: AtomicU16,
    // A std mutex: held to note and to take, never across an await.
    noted: Mutex<Noted>,
    is_over: Notify,
}

#[derive(Default)]
struct Noted {
    failure: Option<McpFailure>,
    secrets: Vec<SecretString>,
}

impl fmt::Debug for CallState {
    // Injected headers may hold what only the server should see.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CallState")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

impl CallState {
    /// A request that is nobody's call.
    pub(super) fn new(deadline: Duration) -> Self {
        Self {
            deadline,
            propagated: BTreeMap::new(),
            injected: BTreeMap::new(),
            delegation: None,
            sent: Arc::default(),
            status: AtomicU16::new(0),
            noted: Mutex::default(),
            is_over: Notify::new(),
        }
    }

    /// One of a call's requests, which `sent` counts.
    pub(super) fn of(context: &CallContext<'_>, sent: &Arc<AtomicU32>, deadline: Duration) -> Self {
        Self {
            propagated: context.propagated.clone(),
            injected: context.injected.clone(),
            sent: Arc::clone(sent),
            ..Self::new(deadline)
        }
    }

    pub(super) fn count_request(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_status(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn status(&self) -> Option<u16> {
        Some(self.status.load(Ordering::Relaxed)).filter(|status| *status != 0)
    }

    /// Notes why the request failed, in more detail than the library hands on.
    pub(super) fn note_failure(&self, failure: McpFailure) {
        self.lock().failure = Some(failure);
    }

    /// Notes a failure after which no answer is worth waiting for.
    pub(super) fn end(&self, failure: McpFailure) {
        self.note_failure(failure);
        self.is_over.notify_one();
    }

    /// Returns when [`CallState::end`] was called.
    pub(super) async fn ended(&self) {
        self.is_over.notified().await;
    }

    pub(super) fn take_failure(&self) -> Option<McpFailure> {
        self.lock().failure.take()
    }

    /// Notes the secrets that the request carried.
    pub(super) fn note_secrets(&self, secrets: Vec<SecretString>) {
        self.lock().secrets = secrets;
    }

    pub(super) fn secrets(&self) -> Vec<SecretString> {
        self.lock().secrets.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
