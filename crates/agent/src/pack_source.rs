//! Where an agent's pack comes from, and the one that its next session gets.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::event::PackReference;
use crate::pack::{self, Allowlist, Finding, GuardrailError, Guardrails, Pack, Prompt, SelectError, Skills};

/// Gives the bytes of `pack.json`. Called at the start of every session, so an edited prompt reaches the
/// next one without a restart.
pub trait PackSource: Debug + Send + Sync {
    /// The bytes as they are now.
    ///
    /// # Errors
    ///
    /// Whatever the source met; the session then gets the last good pack.
    fn read(&self) -> io::Result<Vec<u8>>;
}

/// A file that is mounted into the workload.
#[derive(Debug, Clone)]
pub struct PackFile {
    path: PathBuf,
}

impl PackFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

impl PackSource for PackFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        std::fs::read(&self.path)
    }
}

/// Bytes that do not change.
#[derive(Debug, Clone)]
pub struct FixedPack(pub Vec<u8>);

impl PackSource for FixedPack {
    fn read(&self) -> io::Result<Vec<u8>> {
        Ok(self.0.clone())
    }
}

/// Why a pack cannot be used; the agent is not ready and says so.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The file is not there or cannot be read.
    #[error("pack.json cannot be read")]
    Unreadable(#[source] io::Error),
    /// The document is not valid.
    #[error("{}", pack::describe(.0))]
    Invalid(Vec<Finding>),
    /// No prompt can be chosen (OM-561).
    #[error(transparent)]
    NoPrompt(#[from] SelectError),
    /// A guardrail cannot be run (OM-565).
    #[error("prompt `{prompt}`: {source}")]
    Guardrail {
        /// Key of the prompt.
        prompt: String,
        /// Which one and why.
        source: GuardrailError,
    },
}

impl PackError {
    /// Stable word for conditions and logs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "PackUnreadable",
            Self::Invalid(_) => "PackInvalid",
            Self::NoPrompt(_) => "PromptAmbiguous",
            Self::Guardrail { .. } => "GuardrailNotSupported",
        }
    }
}

/// A pack that can be run, with everything that is derived from it.
#[derive(Debug)]
pub struct LoadedPack {
    /// The document.
    pub pack: Pack,
    /// Key of the prompt in use (OM-561).
    pub prompt_name: String,
    /// Which pack this is.
    pub reference: PackReference,
    pub(crate) prompt: Prompt,
    pub(crate) guardrails: Guardrails,
    pub(crate) allowlist: Allowlist,
    pub(crate) skills: Skills,
}

impl LoadedPack {
    /// Reads and checks the bytes of a `pack.json`.
    ///
    /// # Errors
    ///
    /// [`PackError`], never [`PackError::Unreadable`].
    pub fn load(bytes: &[u8]) -> Result<Self, PackError> {
        let pack = pack::validate(bytes).map_err(PackError::Invalid)?;
        let (name, prompt) = pack::select_prompt(&pack)?;
        let (prompt_name, prompt) = (name.to_owned(), prompt.clone());
        let guardrails = Guardrails::compile(&prompt.validators).map_err(|source| PackError::Guardrail {
            prompt: prompt_name.clone(),
            source,
        })?;
        let reference = PackReference {
            id: pack.id.clone(),
            version: pack.version.clone(),
            digest: pack::digest(bytes),
        };
        let allowlist = Allowlist::of(&prompt);
        Ok(Self {
            skills: Skills::of(&pack),
            pack,
            prompt_name,
            reference,
            prompt,
            guardrails,
            allowlist,
        })
    }
}

/// The source together with the last good pack.
#[derive(Debug)]
pub(crate) struct PackShelf {
    source: Arc<dyn PackSource>,
    // A std mutex: held for an assignment, never across an await.
    shelf: Mutex<Shelf>,
}

#[derive(Debug)]
struct Shelf {
    good: Arc<LoadedPack>,
    /// Digest of the last bytes that were refused, so that one broken edit is logged once.
    refused: Option<String>,
}

impl PackShelf {
    pub(crate) async fn open(source: Arc<dyn PackSource>) -> Result<Self, PackError> {
        let bytes = read(&source).await.map_err(PackError::Unreadable)?;
        let good = Arc::new(LoadedPack::load(&bytes)?);
        Ok(Self {
            source,
            shelf: Mutex::new(Shelf { good, refused: None }),
        })
    }

    /// The pack for a new session: the present one, or the last good one when that is broken.
    pub(crate) async fn current(&self) -> Arc<LoadedPack> {
        let loaded = match read(&self.source).await {
            Ok(bytes) => {
                let digest = pack::digest(&bytes);
                let shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
                if shelf.good.reference.digest == digest || shelf.refused.as_ref() == Some(&digest) {
                    return Arc::clone(&shelf.good);
                }
                drop(shelf);
                LoadedPack::load(&bytes).map_err(|error| (digest, error))
            }
            Err(error) => Err((String::new(), PackError::Unreadable(error))),
        };
        let mut shelf = self.shelf.lock().unwrap_or_else(PoisonError::into_inner);
        match loaded {
            Ok(loaded) => {
                tracing::info!(
                    pack = loaded.reference.id,
                    version = loaded.reference.version,
                    "new pack"
                );
                *shelf = Shelf {
                    good: Arc::new(loaded),
                    refused: None,
                };
            }
            Err((digest, error)) => {
                tracing::warn!(
                    reason = error.reason(),
                    %error,
                    "the pack was edited and cannot be used; sessions keep the last good one"
                );
                shelf.refused = Some(digest);
            }
        }
        Arc::clone(&shelf.good)
    }
}

/// Reads away from the threads that serve conversations: a mounted file may sit on a slow disk.
async fn read(source: &Arc<dyn PackSource>) -> io::Result<Vec<u8>> {
    let source = Arc::clone(source);
    tokio::task::spawn_blocking(move || source.read())
        .await
        .map_err(io::Error::other)?
}
