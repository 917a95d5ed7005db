//! Everything Mainstay keeps on disk, and the only crate that speaks SQL.
//!
//! Two files with two owners live in one [`data_directory::DataDirectory`]:
//!
//! | file | module | what it promises |
//! |---|---|---|
//! | `kube.db` | [`kube`] | Kubernetes objects: one ordered log of revisions, group commit, watches over a shared window |
//! | `payload.db` | [`payload`] | sessions, messages, events, side-effect intents: one connection, closures from a bounded queue |
//!
//! Main types: [`kube::KubeStore`], [`payload::PayloadStore`], [`data_directory::DataDirectory`]. [`layout`] decides
//! for both files whether a file on disk may be opened at all.
//!
//! What this crate must never do: answer a write before it is durable as promised, show a reader a change that is not
//! committed, reuse a revision or a sequence number, touch a file whose layout it does not recognise exactly, parse the
//! JSON of a Kubernetes object, or open a transaction across the two files (on a cluster the objects are elsewhere).
//!
//! Start reading at `kube/writer.rs` (how a commit happens), then `kube/watch.rs` (how watchers see it), then
//! `payload/thread.rs`.

pub mod data_directory;
pub mod kube;
pub mod layout;
pub mod payload;
mod private_file;
mod storage;

pub use private_file::write_private;
pub use storage::{CommitGate, StorageFault};
