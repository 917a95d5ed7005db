//! Cooldowns of model providers over `payload.db` (contract 8).

use async_trait::async_trait;
use mainstay_llm::{Cooldown, CooldownStore, CooldownStoreError, ProviderKey};
use mainstay_store::payload::{CooldownKey, PayloadError, PayloadStore, StoredCooldown};

/// Keeps cooldowns in the payload store. One for the process, as the store is.
#[derive(Debug, Clone)]
pub struct StoredCooldowns {
    store: PayloadStore,
}

impl StoredCooldowns {
    /// Cooldowns in `store`, beside the sessions.
    pub fn new(store: PayloadStore) -> Self {
        Self { store }
    }
}

#[async_trait]
impl CooldownStore for StoredCooldowns {
    async fn load(&self, provider: &ProviderKey) -> Result<Option<Cooldown>, CooldownStoreError> {
        let stored = self
            .store
            .cooldown(&stored_key(provider))
            .await
            .map_err(translate)?;
        Ok(stored.map(|stored| Cooldown {
            failures: stored.failures,
            until: stored.ends_at,
            reason: stored.reason,
            status: stored.status,
            message: stored.message,
        }))
    }

    async fn save(
        &self,
        provider: &ProviderKey,
        cooldown: Option<&Cooldown>,
    ) -> Result<(), CooldownStoreError> {
        let stored = cooldown.map(|cooldown| StoredCooldown {
            failures: cooldown.failures,
            ends_at: cooldown.until,
            reason: cooldown.reason.clone(),
            status: cooldown.status,
            message: cooldown.message.clone(),
        });
        self.store
            .set_cooldown(&stored_key(provider), stored)
            .await
            .map_err(translate)
    }
}

fn stored_key(provider: &ProviderKey) -> CooldownKey {
    CooldownKey {
        namespace: provider.namespace.clone(),
        provider: provider.name.clone(),
        provider_type: provider.kind.clone(),
    }
}

fn translate(error: PayloadError) -> CooldownStoreError {
    CooldownStoreError(Box::new(error))
}
