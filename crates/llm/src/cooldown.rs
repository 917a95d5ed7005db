//! What all users of a provider know about its failures (OR-222…OR-227).
//!
//! A provider that fails is left alone: for `1 min × 5^(n−1)`, at most an hour, after the n-th
//! exhausted call in a row, or for as long as its `Retry-After` asks. One [`ProviderHealth`] belongs
//! to a provider, however many agents and sessions use it, so that an outage costs a few attempts in
//! all and not a few per session:
//!
//! - once a call fails, at most [`PROBERS`] calls go on trying; the others wait for what they find;
//! - a provider that nobody has had an answer of lately takes [`UNPROVEN`] calls at once, so that a
//!   burst does not find a dead server two hundred times;
//! - while it cools, calls use another provider; where there is none, one call probes and the
//!   others wait for it or fail with the reason.
//!
//! In memory, ends are monotonic; in the [`CooldownStore`] they are wall time, so that they survive a
//! restart.

mod health;
mod state;

use std::{
    collections::HashMap,
    fmt::{self, Debug},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_telemetry::clock::SharedClock;
use serde::{Deserialize, Serialize};

use crate::{
    config::{ProviderConfig, RateLimits},
    error::ModelError,
    rate_limit::Limiter,
};

pub use health::ProviderHealth;
pub(crate) use health::{Next, Ticket};
pub use state::{PROBERS, UNPROVEN};

/// Bound of every cooldown, also of one that a `Retry-After` asks for (OR-222, D12).
pub const LONGEST_COOLDOWN: Duration = Duration::from_secs(60 * 60);

/// How long a call waits for what another one finds out about the provider.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Cooldown after `failures` exhausted calls in a row: 1, 5, 25, 60, 60 … minutes (OR-222).
pub fn duration(failures: u32) -> Duration {
    let minutes = 5_u64.saturating_pow(failures.saturating_sub(1));
    Duration::from_secs(minutes.saturating_mul(60)).min(LONGEST_COOLDOWN)
}

/// Whether a call that failed for good counts against its provider: a 429, a 5xx or a failure of the
/// network that outlived its retries (OR-225).
pub fn counts(error: &ModelError) -> bool {
    error.is_retryable()
}

/// Which provider; what is known of failures is shared by all who use the same one (OR-226).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderKey {
    /// Namespace of the Provider resource.
    pub namespace: String,
    /// Name of the Provider resource.
    pub name: String,
    /// Its type.
    pub kind: String,
}

impl ProviderKey {
    /// The identity of a configured provider. An entry without a resource is known by its own name.
    pub fn of(config: &ProviderConfig) -> Self {
        let name = if config.provider.is_empty() {
            &config.name
        } else {
            &config.provider
        };
        Self {
            namespace: config.namespace.clone(),
            name: name.clone(),
            kind: config.kind.clone(),
        }
    }
}

impl fmt::Display for ProviderKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}/{}", self.namespace, self.name, self.kind)
    }
}

/// A cooldown, as it is shown and stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cooldown {
    /// Exhausted calls in a row.
    pub failures: u32,
    /// End, as wall time.
    pub until: Timestamp,
    /// The stable word for why, such as `ModelRateLimited`.
    pub reason: String,
    /// The HTTP status of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The last failure, for people.
    pub message: String,
}

/// Keeps cooldowns over a restart. Wired by the owner of a store.
#[async_trait]
pub trait CooldownStore: Debug + Send + Sync {
    /// What was stored for `provider` last.
    ///
    /// # Errors
    /// [`CooldownStoreError`]; the provider then begins without a past.
    async fn load(&self, provider: &ProviderKey) -> Result<Option<Cooldown>, CooldownStoreError>;

    /// Replaces what is stored; `None` removes it.
    ///
    /// # Errors
    /// [`CooldownStoreError`]; the cooldown then holds in this process only.
    async fn save(
        &self,
        provider: &ProviderKey,
        cooldown: Option<&Cooldown>,
    ) -> Result<(), CooldownStoreError>;
}

/// The store failed.
#[derive(Debug, thiserror::Error)]
#[error("cooldowns cannot be kept: {0}")]
pub struct CooldownStoreError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// One [`ProviderHealth`] for each provider of the process. Clones share them.
#[derive(Debug, Clone)]
pub struct Cooldowns {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: SharedClock,
    store: Option<Arc<dyn CooldownStore>>,
    // A std mutex: held to find or insert an entry, never across an await.
    providers: Mutex<HashMap<ProviderKey, Arc<ProviderHealth>>>,
    // As the other one.
    limiters: Mutex<HashMap<ProviderKey, Arc<Limiter>>>,
}

impl Cooldowns {
    /// Cooldowns that are kept in `store`.
    pub fn new(clock: SharedClock, store: Arc<dyn CooldownStore>) -> Self {
        Self::with(clock, Some(store))
    }

    /// Cooldowns that end with the process.
    pub fn in_memory(clock: SharedClock) -> Self {
        Self::with(clock, None)
    }

    fn with(clock: SharedClock, store: Option<Arc<dyn CooldownStore>>) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                store,
                providers: Mutex::default(),
                limiters: Mutex::default(),
            }),
        }
    }

    /// The rate limits of `provider`, with `limits` from now on; the same for every caller (OR-229).
    pub fn limiter(&self, provider: &ProviderKey, limits: &RateLimits) -> Arc<Limiter> {
        let mut limiters = self
            .shared
            .limiters
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(limiter) = limiters.get(provider) {
            limiter.adjust(limits);
            return Arc::clone(limiter);
        }
        let limiter = Arc::new(Limiter::new(limits));
        limiters.insert(provider.clone(), Arc::clone(&limiter));
        limiter
    }

    /// What is known of `provider`; the same for every caller.
    pub fn health(&self, provider: &ProviderKey) -> Arc<ProviderHealth> {
        let mut providers = self
            .shared
            .providers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let health = providers.entry(provider.clone()).or_insert_with(|| {
            Arc::new(ProviderHealth::new(
                provider.clone(),
                self.shared.clock.clone(),
                self.shared.store.clone(),
            ))
        });
        Arc::clone(health)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ModelErrorKind;

    #[test]
    fn cooldowns_grow_fivefold_up_to_an_hour_or_222() {
        let minutes: Vec<u64> = (1..=6)
            .map(|failures| duration(failures).as_secs() / 60)
            .collect();
        assert_eq!(minutes, [1, 5, 25, 60, 60, 60]);
        assert_eq!(duration(u32::MAX), LONGEST_COOLDOWN);
    }

    #[test]
    fn rate_limits_server_errors_and_the_network_count_or_225() {
        for (status, expected) in [(429, true), (500, true), (529, true), (401, false), (400, false)] {
            let error = ModelError::with_status("p", status, "x");
            assert_eq!(counts(&error), expected, "{status}");
        }
        for (kind, expected) in [
            (ModelErrorKind::Network, true),
            (ModelErrorKind::TimedOut, false),
            (ModelErrorKind::CredentialUnavailable, false),
        ] {
            assert_eq!(counts(&ModelError::new("p", kind, "x")), expected, "{kind:?}");
        }
    }
}
