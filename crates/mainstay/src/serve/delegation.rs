//! The keys that delegation tokens are signed with: kept among the server's keys, changed in the background, published at
//! `/.well-known/jwks.json` (OM-412).

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    http::header,
    response::{IntoResponse, Response},
    routing::get,
};
use mainstay_store::data_directory::{DataDirectory, write_private};
use mainstay_telemetry::{clock::SharedClock, random::SharedRandom};
use mainstay_tools::delegation::{Issuer, KeyRing};
use secrecy::ExposeSecret;
use tokio_util::sync::CancellationToken;

use crate::terminal::Failure;

/// How often is asked whether the keys have to change. They live for weeks.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How long a backend may remember the published keys, in seconds: far shorter than a new key waits before it signs.
const REMEMBERED: u32 = 300;

/// The issuer, and where its keys are kept.
#[derive(Clone)]
pub(super) struct Delegation {
    pub(super) issuer: Arc<Issuer>,
    file: PathBuf,
    clock: SharedClock,
}

impl Delegation {
    /// Reads the keys, or makes the first one. Tokens name `url` as their issuer.
    pub(super) fn open(
        data: &DataDirectory,
        url: String,
        clock: &SharedClock,
        random: &SharedRandom,
    ) -> Result<Self, Failure> {
        let file = data.keys_dir().join("delegation.json");
        let failed = |cause: &dyn std::fmt::Display| {
            Failure::new(format!("{}: {cause}", file.display()))
                .with_hint("remove it to have new keys made; backends then have to fetch the key set again")
        };
        let kept = match std::fs::read_to_string(&file) {
            Ok(text) => KeyRing::parse(&text).map_err(|error| failed(&error))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => KeyRing::default(),
            Err(error) => return Err(failed(&error)),
        };
        let delegation = Self {
            issuer: Arc::new(Issuer::new(url, kept, Arc::clone(clock), Arc::clone(random))),
            file,
            clock: Arc::clone(clock),
        };
        delegation.tend().map_err(Failure::new)?;
        Ok(delegation)
    }

    /// Changes the keys where that is due. They sign only once they are kept.
    fn tend(&self) -> Result<(), String> {
        let failed = |cause: &dyn std::fmt::Display| format!("{}: {cause}", self.file.display());
        let changed = self.issuer.keys().tended(self.clock.now());
        if let Some(keys) = changed.map_err(|error| failed(&error))? {
            write_private(&self.file, keys.render().expose_secret().as_bytes())
                .map_err(|error| failed(&error))?;
            self.issuer.set_keys(keys);
        }
        Ok(())
    }

    /// Changes the keys when that is due, until cancelled.
    pub(super) async fn run(self, cancellation: CancellationToken) {
        let tended = async {
            loop {
                tokio::time::sleep(INTERVAL).await;
                let delegation = self.clone();
                let tended = tokio::task::spawn_blocking(move || delegation.tend()).await;
                match tended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => {
                        tracing::warn!(error, "the keys of delegation tokens are not changed yet")
                    }
                    Err(error) => tracing::error!(%error, "the keys of delegation tokens are not changed"),
                }
            }
        };
        cancellation.run_until_cancelled(tended).await;
    }

    /// What everybody may read.
    pub(super) fn routes(&self) -> Router {
        let issuer = Arc::clone(&self.issuer);
        let keys = move || async move { key_set(&issuer) };
        Router::new().route("/.well-known/jwks.json", get(keys))
    }
}

fn key_set(issuer: &Issuer) -> Response {
    let remembered = format!("public, max-age={REMEMBERED}");
    ([(header::CACHE_CONTROL, remembered)], Json(issuer.web_keys())).into_response()
}
