//! The states of a disk that a record allows.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, Permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use mainstay_telemetry::random::{Random, SeededRandom};

use crate::{
    content::{Change, Content},
    journal::{Record, What},
};

/// What the power cut takes of what was not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the process died and the machine lives.
    Nothing,
    /// All of it.
    Everything,
    /// A part by chance, in no order; the number is the seed.
    Some(u64),
}

/// A file, whatever its name.
type File = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Folder,
    File(File),
    Link(PathBuf),
}

#[derive(Debug)]
enum NameChange {
    Add(PathBuf, Node),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
}

impl NameChange {
    /// Whether the change is one of that folder.
    fn concerns(&self, folder: &Path) -> bool {
        let inside = |path: &Path| path.parent() == Some(folder);
        match self {
            Self::Add(path, _) | Self::Remove(path) => inside(path),
            Self::Rename(from, to) => inside(from) || inside(to),
        }
    }
}

/// Names and contents that are safe, and by inode what is what at present. Paths are absolute.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    names: BTreeMap<PathBuf, Node>,
    contents: Vec<Content>,
    files: HashMap<u64, File>,
    folders: HashMap<u64, PathBuf>,
}

/// An index of shared memory is made anew by whoever comes first after a restart.
fn is_kept(path: &Path) -> bool {
    !path.to_string_lossy().ends_with("-shm")
}

impl Disk {
    /// What is in a folder now, all of it safe.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let mut disk = Self::default();
        disk.folders
            .insert(fs::metadata(folder)?.ino(), folder.to_owned());
        let mut open = vec![folder.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(&folder)? {
                let (path, status) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
                if !is_kept(&path) {
                    continue;
                }
                let node = if status.is_dir() {
                    disk.folders.insert(status.ino(), path.clone());
                    open.push(path.clone());
                    Node::Folder
                } else if status.is_symlink() {
                    Node::Link(fs::read_link(&path)?)
                } else {
                    let file = disk.new_file(status.ino());
                    if let Some(content) = disk.contents.get_mut(file) {
                        content.safe = fs::read(&path)?;
                    }
                    Node::File(file)
                };
                disk.names.insert(path, node);
            }
        }
        Ok(disk)
    }

    fn new_file(&mut self, inode: u64) -> File {
        let file = self.contents.len();
        self.contents.push(Content::default());
        self.folders.remove(&inode);
        self.files.insert(inode, file);
        file
    }
}

/// What a program did in a folder.
#[derive(Debug)]
pub struct Recording {
    folder: PathBuf,
    disk: Disk,
    changes: Vec<(u64, NameChange)>,
    /// How many of the changes of names are safe.
    safe_names: usize,
    syncs: usize,
}

impl Recording {
    pub(crate) fn new(folder: PathBuf, start: Disk, records: Vec<Record>) -> io::Result<Self> {
        let mut recording = Self {
            folder,
            disk: start,
            changes: Vec::new(),
            safe_names: 0,
            syncs: 0,
        };
        for Record { sequence, what } in records {
            recording.take(sequence, what)?;
        }
        Ok(recording)
    }

    /// How many syncs there were, of files and of folders.
    pub fn syncs(&self) -> usize {
        self.syncs
    }

    fn content(&mut self, inode: u64) -> io::Result<&mut Content> {
        let file = self.disk.files.get(&inode).copied();
        file.and_then(|file| self.disk.contents.get_mut(file))
            .ok_or_else(|| {
                io::Error::other(format!("nobody has seen the file with inode {inode} being made"))
            })
    }

    fn take(&mut self, sequence: u64, what: What) -> io::Result<()> {
        match what {
            What::Write { inode, offset, data } => {
                let change = Change::Write { offset, data };
                self.content(inode)?.unsynced.push((sequence, change));
            }
            What::Truncate { inode, length } => {
                let change = Change::Truncate(length);
                self.content(inode)?.unsynced.push((sequence, change));
            }
            What::Sync { inode, before } => {
                self.syncs += 1;
                self.sync(inode, before)?;
            }
            What::Create { inode, path } => {
                let file = self.disk.new_file(inode);
                self.changes
                    .push((sequence, NameChange::Add(path, Node::File(file))));
            }
            What::Folder { inode, path } => {
                self.disk.files.remove(&inode);
                self.disk.folders.insert(inode, path.clone());
                self.changes.push((sequence, NameChange::Add(path, Node::Folder)));
            }
            What::Link { path, target } => self
                .changes
                .push((sequence, NameChange::Add(path, Node::Link(target)))),
            What::Remove { path } => self.changes.push((sequence, NameChange::Remove(path))),
            What::Rename { from, to } => {
                for folder in self.disk.folders.values_mut() {
                    if let Ok(below) = folder.strip_prefix(&from) {
                        *folder = to.join(below);
                    }
                }
                self.changes.push((sequence, NameChange::Rename(from, to)));
            }
        }
        Ok(())
    }

    fn sync(&mut self, inode: u64, before: u64) -> io::Result<()> {
        if let Some(folder) = self.disk.folders.get(&inode) {
            let last = self
                .changes
                .iter()
                .rposition(|(sequence, change)| *sequence < before && change.concerns(folder));
            self.safe_names = self.safe_names.max(last.map_or(0, |index| index + 1));
            return Ok(());
        }
        self.content(inode)?.sync(before);
        Ok(())
    }

    /// The files of the folder as a power cut may leave them.
    fn state(&self, loss: Loss) -> BTreeMap<PathBuf, State> {
        let random = match loss {
            Loss::Some(seed) => Some(SeededRandom::new(seed)),
            _ => None,
        };
        let below = |limit: usize| match (&random, loss) {
            (Some(random), _) => (random.bits() % (limit as u64 + 1)) as usize,
            (None, Loss::Nothing) => limit,
            _ => 0,
        };
        let kept_names = self.safe_names + below(self.changes.len() - self.safe_names);
        let mut names = self.disk.names.clone();
        for (_, change) in self.changes.iter().take(kept_names) {
            rename(&mut names, change);
        }
        let contents: Vec<Vec<u8>> = self
            .disk
            .contents
            .iter()
            .map(|content| content.after(&below))
            .collect();
        names
            .into_iter()
            .map(|(path, node)| {
                let state = match node {
                    Node::Folder => State::Folder,
                    Node::Link(target) => State::Link(target),
                    Node::File(file) => State::File(contents.get(file).cloned().unwrap_or_default()),
                };
                (path, state)
            })
            .collect()
    }

    /// Puts the folder into a state that a power cut may leave.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn left(&self, loss: Loss) -> io::Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.is_dir() && !path.is_symlink() {
                fs::remove_dir_all(path)?;
            } else {
                fs::remove_file(path)?;
            }
        }
        // In order of their names, so that a folder comes before what is in it.
        for (path, state) in self.state(loss) {
            match state {
                State::Folder => {
                    fs::create_dir(&path)?;
                    fs::set_permissions(&path, Permissions::from_mode(0o700))?;
                }
                State::Link(target) => symlink(target, &path)?,
                State::File(content) => {
                    fs::write(&path, content)?;
                    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
                }
            }
        }
        Ok(())
    }

    /// Compares what was recorded with what the program has left in the folder, before that is changed by anybody. The
    /// program must have been killed at one of its operations or have ended by itself.
    ///
    /// # Errors
    /// The folder cannot be read, or differs: then something was done that was not seen.
    pub fn check_complete(&self) -> io::Result<()> {
        let there =
            Self::new(self.folder.clone(), Disk::read(&self.folder)?, Vec::new())?.state(Loss::Nothing);
        let recorded = self.state(Loss::Nothing);
        for path in there.keys().chain(recorded.keys()) {
            if there.get(path) != recorded.get(path) {
                let text = format!("{} is not as it was recorded", path.display());
                return Err(io::Error::other(text));
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Folder,
    File(Vec<u8>),
    Link(PathBuf),
}

fn rename(names: &mut BTreeMap<PathBuf, Node>, change: &NameChange) {
    match change {
        NameChange::Add(path, node) => {
            names.insert(path.clone(), node.clone());
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            names.remove(to);
            let moved: Vec<PathBuf> = names
                .keys()
                .filter(|path| path.starts_with(from))
                .cloned()
                .collect();
            for path in moved {
                if let (Some(node), Ok(below)) = (names.remove(&path), path.strip_prefix(from)) {
                    let target = if below.as_os_str().is_empty() {
                        to.clone()
                    } else {
                        to.join(below)
                    };
                    names.insert(target, node);
                }
            }
        }
    }
}
