//! What goes in and comes out: keys, values, changes, events.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;

/// Names one object. Ordered by resource, namespace, name, which is the order of lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// `GROUP/PLURAL`: `apps/deployments`, `/configmaps` for the core group. No version: all versions are one object.
    pub resource: Arc<str>,
    /// Empty for an object of the cluster.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(
        resource: impl Into<Arc<str>>,
        namespace: impl Into<Arc<str>>,
        name: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.resource.strip_prefix('/').unwrap_or(&self.resource);
        if self.namespace.is_empty() {
            write!(formatter, "{resource} {}", self.name)
        } else {
            write!(formatter, "{resource} {}/{}", self.namespace, self.name)
        }
    }
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub key: Key,
    /// The revision of its last write: its `resourceVersion`.
    pub revision: u64,
    /// The revision of the write that created it.
    pub create_revision: u64,
    /// The object's JSON, which carries `revision` as `metadata.resourceVersion`.
    pub value: Bytes,
}

/// The JSON of an object whose revision is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The JSON.
    pub bytes: Bytes,
    /// The writer inserts the revision's decimal digits at this offset: between the quotes of `"resourceVersion":""`.
    /// `None` stores the bytes as they are.
    pub revision_at: Option<usize>,
}

impl Body {
    /// The bytes with the revision in them (KA-021).
    pub(super) fn with_revision(&self, revision: u64) -> Bytes {
        let Some(at) = self.revision_at else {
            return self.bytes.clone();
        };
        let at = at.min(self.bytes.len());
        let mut whole = Vec::with_capacity(self.bytes.len() + 20);
        whole.extend_from_slice(&self.bytes[..at]);
        // Writing to a vector cannot fail.
        let _ = write!(whole, "{revision}");
        whole.extend_from_slice(&self.bytes[at..]);
        whole.shrink_to_fit();
        Bytes::from(whole)
    }
}

/// What must hold for a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// The object does not exist.
    Absent,
    /// The object exists at this revision.
    Revision(u64),
}

/// One change of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates or replaces an object.
    Put {
        /// Which.
        key: Key,
        /// Its new JSON.
        body: Body,
        /// What must hold.
        expect: Expect,
    },
    /// Removes an object.
    Delete {
        /// Which.
        key: Key,
        /// The revision it must have.
        expect: u64,
        /// The object as it was, to carry the revision of the deletion to watchers.
        last: Body,
    },
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was created.
    Added,
    /// It was replaced.
    Modified,
    /// It was removed.
    Deleted,
}

/// One committed change. Shared by all watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its place in the order of all changes.
    pub revision: u64,
    /// What happened.
    pub kind: EventKind,
    /// To which object.
    pub key: Key,
    /// The object after it; for a deletion, the last body with the deletion's revision.
    pub value: Bytes,
    /// The object before it. Selector transitions need it.
    pub previous: Option<Bytes>,
    /// When it was committed, in milliseconds since 1970.
    pub(super) written_at: i64,
}

/// A consistent list of what exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision at which all of it held; a watch from here misses nothing.
    pub revision: u64,
    /// Ordered by namespace and name.
    pub items: Vec<Stored>,
}

/// A part of a list at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The revision of the list.
    pub revision: u64,
    /// Ordered by namespace and name.
    pub items: Vec<Stored>,
    /// How many objects come after the last item.
    pub remaining: usize,
}
