//! Values that nobody reads in the file: an order for sealing them on the way in and opening them on the way out.
//! Requirement KA-034.
//!
//! In memory values are open; only what is written to the file is sealed. What kind of seal it is, and where its key
//! comes from, is the business of whoever opens the store.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use rusqlite::types::Type;

use super::object::Key;

/// How a sealed value begins in the file. No JSON begins so.
const MARK: &[u8] = b"\0sealed\x01";

/// Seals the values of some resources. The key and the revision belong to a value: sealed under another key or revision it
/// must not open.
pub trait ValueSeal: Send + Sync {
    /// Whether values of this resource (`GROUP/PLURAL`) are sealed.
    fn covers(&self, resource: &str) -> bool;

    /// Seals a value.
    ///
    /// # Errors
    /// [`SealError`], and the commit fails.
    fn seal(&self, key: &Key, revision: u64, value: &[u8]) -> Result<Vec<u8>, SealError>;

    /// Opens what [`ValueSeal::seal`] gave.
    ///
    /// # Errors
    /// [`SealError`], and what needs the value fails: at the start, opening the store.
    fn open(&self, key: &Key, revision: u64, sealed: &[u8]) -> Result<Vec<u8>, SealError>;
}

/// Why a value could not be sealed or opened. The text says what to do, and names the key's file.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SealError(pub String);

/// The seal of a store, if it has one.
#[derive(Clone, Default)]
pub(super) struct Sealing(pub(super) Option<Arc<dyn ValueSeal>>);

impl fmt::Debug for Sealing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Sealing({})", self.0.is_some())
    }
}

impl Sealing {
    /// The value as it is written to the file.
    pub(super) fn to_file<'a>(
        &self,
        key: &Key,
        revision: u64,
        value: &'a [u8],
    ) -> rusqlite::Result<Cow<'a, [u8]>> {
        match &self.0 {
            Some(seal) if seal.covers(&key.resource) => {
                let sealed = seal
                    .seal(key, revision, value)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
                Ok(Cow::Owned([MARK, &sealed].concat()))
            }
            _ => Ok(Cow::Borrowed(value)),
        }
    }

    /// The value that the file holds. One that was written before there was a seal is open already.
    pub(super) fn of_file(&self, key: &Key, revision: u64, stored: Vec<u8>) -> rusqlite::Result<Bytes> {
        let Some(sealed) = stored.strip_prefix(MARK) else {
            return Ok(Bytes::from(stored));
        };
        let opened = match &self.0 {
            Some(seal) => seal.open(key, revision, sealed),
            None => Err(SealError(format!("{key} is sealed, and no key was given for it"))),
        };
        opened
            .map(Bytes::from)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, Box::new(error)))
    }
}
