//! What a power cut leaves of the files that a program was writing.
//!
//! A [`Recorder`] watches a program by a small library that is loaded before the C library (`recorder.c`): every write,
//! truncation, creation, renaming, removal and sync below one folder is written down in order. The program is an ordinary
//! build, SQLite's own access to files included, and may be killed instead of doing its Nth operation. From the record comes
//! every state in which a disk may be found when the power returns ([`Recording::left`]):
//!
//! - What was synced before a sync *began that has returned* is there.
//! - Of what was not, each sector of 512 bytes holds any of the contents it had since, whatever became of the sectors
//!   around it: writes are lost, torn and reordered.
//! - A name (of a new, renamed or removed file) is only there for certain after a sync of its *folder*. Names become
//!   durable in the order in which they were made, as on any file system with a journal.
//!
//! Why not an SQLite VFS: it would stand in for the very code that has to be right (SQLite's own unix VFS, its syncs of
//! folders, its truncations), would need a hook in the product to be used by the built binary, and would see nothing of the
//! keys and certificates beside the databases. The record proves itself complete: with nothing lost, what is made from it
//! must be what is in the folder ([`Recording::check_complete`]); and a call it cannot follow is an error.
//!
//! Linux only; the build script needs a C compiler, as SQLite does.

mod content;
mod journal;
mod model;

use std::{
    ffi::OsString,
    fs::{self, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

pub use model::{Loss, Recording};

/// Records what one program does in one folder.
#[derive(Debug)]
pub struct Recorder {
    folder: PathBuf,
    scratch: TempDir,
    start: model::Disk,
}

impl Recorder {
    /// Watches `folder`, whose present content counts as safe.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let folder = folder.canonicalize()?;
        let recorder = Self {
            start: model::Disk::read(&folder)?,
            scratch: TempDir::new()?,
            folder,
        };
        fs::write(recorder.control(), [0; 16])?;
        fs::write(recorder.journal(), [])?;
        Ok(recorder)
    }

    fn control(&self) -> PathBuf {
        self.scratch.path().join("control")
    }

    fn journal(&self) -> PathBuf {
        self.scratch.path().join("journal")
    }

    /// The variables with which the program has to be started.
    pub fn environment(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", LIBRARY.into()),
            ("POWER_CUT_FOLDER", self.folder.clone().into()),
            ("POWER_CUT_JOURNAL", self.journal().into()),
            ("POWER_CUT_CONTROL", self.control().into()),
        ]
    }

    /// How many operations the program has done so far.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn operations(&self) -> io::Result<u64> {
        let mut number = [0; 8];
        fs::File::open(self.control())?.read_exact_at(&mut number, 8)?;
        Ok(u64::from_ne_bytes(number))
    }

    /// Has the program killed instead of doing that operation, counted from its start.
    ///
    /// # Errors
    /// The order cannot be given.
    pub fn cut_at(&self, operation: u64) -> io::Result<()> {
        let control = OpenOptions::new().write(true).open(self.control())?;
        control.write_all_at(&operation.to_ne_bytes(), 0)
    }

    /// What the program did. It must have ended.
    ///
    /// # Errors
    /// The journal cannot be read, or has a call in it whose effect is not known.
    pub fn finish(self) -> io::Result<Recording> {
        let records = journal::read(&fs::read(self.journal())?)?;
        Recording::new(self.folder, self.start, records)
    }
}

/// The library, compiled by the build script.
const LIBRARY: &str = concat!(env!("OUT_DIR"), "/recorder.so");

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests;
