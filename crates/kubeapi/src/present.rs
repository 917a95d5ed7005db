//! Stored objects as a client of one version sees them. Requirements KA-012, KA-013.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    builtin::{KindInfo, conversion},
    registry::Snapshot,
    schema,
    status::{ApiError, ApiResult, Reason},
};

/// How the objects of one kind are shown.
///
/// Nearly always what is stored is what is sent, byte for byte: a list of ten thousand objects is then a concatenation.
/// Only an object written in another version, or under an older schema, is parsed.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) kind: Arc<KindInfo>,
    api_version: String,
    /// How every object that is in the asked version begins.
    beginning: String,
    defaults_before: u64,
    /// Whether fields that the version does not have are left out.
    prunes: bool,
}

impl View {
    pub(crate) fn new(kind: &Arc<KindInfo>, snapshot: &Snapshot) -> Self {
        let api_version = api_version(&kind.group, &kind.version);
        Self {
            beginning: format!("{{\"apiVersion\":{},", json!(api_version)),
            api_version,
            defaults_before: snapshot.defaults_before(kind),
            prunes: kind.custom,
            kind: Arc::clone(kind),
        }
    }

    /// The same, with all that is stored: for the server's own changes, which must lose nothing.
    pub(crate) fn whole(mut self) -> Self {
        self.prunes = false;
        self
    }

    /// `GROUP/VERSION`, or the version alone for the core group.
    pub(crate) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// The object as it is sent.
    ///
    /// # Errors
    /// 500 when the stored bytes are no JSON.
    pub(crate) fn bytes(&self, stored: &Bytes, revision: u64) -> ApiResult<Bytes> {
        if self.is_current(stored, revision) {
            return Ok(stored.clone());
        }
        Ok(Bytes::from(self.value(stored, revision)?.to_string()))
    }

    /// The object as it is sent, as a value.
    ///
    /// # Errors
    /// 500 when the stored bytes are no JSON.
    pub(crate) fn value(&self, stored: &Bytes, revision: u64) -> ApiResult<Value> {
        let mut object: Value = serde_json::from_slice(stored).map_err(|error| {
            ApiError::new(
                Reason::InternalError,
                format!(
                    "a stored object of {} cannot be read: {error}",
                    self.kind.storage_resource
                ),
            )
        })?;
        if !self.is_current(stored, revision) {
            self.convert(&mut object);
        }
        Ok(object)
    }

    /// Brings an object of another version, or of an older schema, into the form in which it is sent. Requirement KA-012.
    pub(crate) fn convert(&self, object: &mut Value) {
        conversion::from_stored(object, &self.api_version);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(self.api_version));
            fields.insert("kind".to_owned(), json!(self.kind.kind));
        }
        if self.prunes {
            schema::prune(&self.kind.node, object);
        }
        // Only what is stored gets defaults: those of the version that it is stored in.
        if self.kind.custom && self.kind.version == self.kind.storage_version {
            schema::default_object(&self.kind.node, object);
        }
    }

    fn is_current(&self, stored: &Bytes, revision: u64) -> bool {
        revision >= self.defaults_before && stored.starts_with(self.beginning.as_bytes())
    }
}

/// `GROUP/VERSION`, or the version alone for the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// The group and version of an `apiVersion`.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}
