//! The data directory of one running Mainstay: where its files are, and the lock that makes it the only user.
//! Requirements KA-033, OR-277; contract "Data directory and durability".

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::private_file::no_follow;

/// Why a data directory cannot be used. Nothing in it was changed, but for [`DataDirectoryError::Io`] midway.
#[derive(Debug, thiserror::Error)]
pub enum DataDirectoryError {
    /// Another process holds the lock.
    #[error(
        "the data directory {} is in use by {}",
        path.display(),
        holder.map_or_else(|| "another process".to_owned(), |pid| format!("the process with pid {pid}"))
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process that holds the lock, as it wrote into the lock file.
        holder: Option<u32>,
    },
    /// The path exists and is no directory.
    #[error("the data directory {} is not a directory", path.display())]
    NotADirectory {
        /// The path given.
        path: PathBuf,
    },
    /// The directory holds files that are not ours and was never one of ours.
    #[error(
        "{} is not a data directory of Mainstay: it holds {found:?}; name an empty or a new directory", path.display()
    )]
    Foreign {
        /// The path given.
        path: PathBuf,
        /// One of the entries found there.
        found: String,
    },
    /// The directory cannot be written.
    #[error("the data directory {} is not writable", path.display())]
    NotWritable {
        /// The file or directory that was refused.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
    /// Any other failure of the file system.
    #[error("cannot prepare {}", path.display())]
    Io {
        /// The file or directory at which it failed.
        path: PathBuf,
        /// What the system answered.
        #[source]
        source: io::Error,
    },
}

impl DataDirectoryError {
    /// Stable reason for logs and exit messages.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "DataDirectoryInUse",
            Self::NotADirectory { .. } => "DataDirectoryNotADirectory",
            Self::Foreign { .. } => "DataDirectoryForeign",
            Self::NotWritable { .. } => "DataDirectoryNotWritable",
            Self::Io { .. } => "DataDirectoryUnusable",
        }
    }

    fn at(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            io::ErrorKind::NotADirectory => Self::NotADirectory { path },
            _ => Self::Io { path, source },
        }
    }
}

const LOCK: &str = "lock";
/// How long two processes that look at the lock at the same time may keep each other waiting.
const SETTLING: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);
const FOLDERS: [&str; 4] = ["ca", "keys", "pods", "logs"];
const OWN_FILES: [&str; 6] = [
    ".gitignore",
    LOCK,
    "kubeconfig",
    "endpoints.json",
    "kube.db",
    "payload.db",
];

/// An open, exclusively locked data directory (mode 0700). The lock is held until this value is dropped or the process
/// ends; keep it for as long as anything uses the paths it gives.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    // The lock lives as long as this descriptor. It is close-on-exec, so that no child process inherits the lock.
    _lock: File,
}

impl DataDirectory {
    /// Creates the directory if it is missing, takes its lock and creates its folders.
    ///
    /// The lock comes before anything else is created or opened, so a second process changes nothing (KA-033).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataDirectoryError> {
        let path = std::path::absolute(path.as_ref())
            .map_err(|source| DataDirectoryError::at(path.as_ref(), source))?;
        create_private_folder(&path)?;
        if !path.is_dir() {
            return Err(DataDirectoryError::NotADirectory { path });
        }
        refuse_foreign(&path)?;
        let lock = take_lock(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o700))
            .map_err(|source| DataDirectoryError::at(&path, source))?;
        for folder in FOLDERS {
            create_private_folder(&path.join(folder))?;
        }
        let ignore = path.join(".gitignore");
        if !ignore.exists() {
            write_private(&ignore, b"*\n")?;
        }
        Ok(Self { path, _lock: lock })
    }

    /// The directory itself, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database of Kubernetes objects.
    pub fn kube_db(&self) -> PathBuf {
        self.path.join("kube.db")
    }

    /// The database of sessions, messages and events.
    pub fn payload_db(&self) -> PathBuf {
        self.path.join("payload.db")
    }

    /// The kubeconfig for kubectl, to be written with mode 0600 ([`write_private`]).
    pub fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// `endpoints.json`, to be written with mode 0600 ([`write_private`]).
    pub fn endpoints(&self) -> PathBuf {
        self.path.join("endpoints.json")
    }

    /// The folder of the certificate authority.
    pub fn ca_dir(&self) -> PathBuf {
        self.path.join("ca")
    }

    /// The folder of signing and encryption keys.
    pub fn keys_dir(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// The folder under which each Pod has its mounted files, by UID.
    pub fn pods_dir(&self) -> PathBuf {
        self.path.join("pods")
    }

    /// The folder of rotated logs.
    pub fn logs_dir(&self) -> PathBuf {
        self.path.join("logs")
    }
}

/// Writes a file of the data directory: [`crate::write_private`].
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), DataDirectoryError> {
    crate::write_private(path, content).map_err(|source| DataDirectoryError::at(path, source))
}

/// Who holds the lock of a data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// Nobody: it may be opened.
    Nobody,
    /// The process with this number.
    Process(u32),
    /// A process whose number the lock file does not tell: it runs in another container or on another machine, or the file
    /// was overwritten.
    Unknown,
}

impl Holder {
    /// The number of the process, where it is known.
    pub fn pid(self) -> Option<u32> {
        match self {
            Self::Process(pid) => Some(pid),
            Self::Nobody | Self::Unknown => None,
        }
    }
}

/// Who holds the lock of a data directory. Used by commands that talk to a running server.
///
/// A process that has only just taken the lock writes its number a moment later; until then the file has that of an earlier
/// one, which is not told.
pub fn holder(path: &Path) -> Holder {
    let Ok(file) = File::open(path.join(LOCK)) else {
        return Holder::Nobody;
    };
    let until = Instant::now() + SETTLING;
    loop {
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return Holder::Nobody;
        }
        match read_pid(&file) {
            Some(pid) if is_alive(pid) => return Holder::Process(pid),
            _ if Instant::now() >= until => return Holder::Unknown,
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Whether there is a process of that number, ours or somebody else's.
fn is_alive(pid: u32) -> bool {
    i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .is_some_and(|pid| {
            !matches!(
                rustix::process::test_kill_process(pid),
                Err(rustix::io::Errno::SRCH)
            )
        })
}

fn create_private_folder(path: &Path) -> Result<(), DataDirectoryError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent()
        && !parent.as_os_str().is_empty()
    {
        if parent.exists() && !parent.is_dir() {
            return Err(DataDirectoryError::NotADirectory {
                path: parent.to_owned(),
            });
        }
        std::fs::create_dir_all(parent).map_err(|source| DataDirectoryError::at(parent, source))?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(DataDirectoryError::at(path, source)),
    }
}

/// A directory that was never ours and holds other things is left alone: our `.gitignore` of `*` and mode 0700 in
/// somebody's project folder would do harm.
fn refuse_foreign(path: &Path) -> Result<(), DataDirectoryError> {
    if path.join(LOCK).exists() {
        return Ok(());
    }
    let failed = |source| DataDirectoryError::at(path, source);
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        let ours = FOLDERS.contains(&name.as_str()) || OWN_FILES.iter().any(|own| name.starts_with(own));
        if !ours {
            return Err(DataDirectoryError::Foreign {
                path: path.to_owned(),
                found: name,
            });
        }
    }
    Ok(())
}

fn take_lock(path: &Path) -> Result<File, DataDirectoryError> {
    let lock_path = path.join(LOCK);
    let failed = |source| DataDirectoryError::at(&lock_path, source);
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(&lock_path)
        .map_err(failed)?;
    let until = Instant::now() + SETTLING;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        // Whoever only looks for the holder has a lock too, which is shared and lasts a moment. The holder's does not share.
        let is_held = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err();
        if is_held || Instant::now() >= until {
            return Err(DataDirectoryError::InUse {
                path: path.to_owned(),
                holder: holder(path).pid(),
            });
        }
        rustix::fs::flock(&lock, FlockOperation::Unlock).map_err(|errno| failed(errno.into()))?;
        std::thread::sleep(PAUSE);
    }
    // Written over the old number before it is cut to length: there is no moment at which the file has none.
    let number = format!("{}\n", std::process::id());
    lock.write_all(number.as_bytes())
        .and_then(|()| lock.set_len(number.len() as u64))
        .map_err(failed)?;
    Ok(lock)
}

/// The number in the lock file's first line.
fn read_pid(lock: &File) -> Option<u32> {
    let mut start = [0; 32];
    let length = lock.read_at(&mut start, 0).ok()?;
    let text = std::str::from_utf8(start.get(..length)?).ok()?;
    text.lines().next()?.trim().parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_new_directory_is_private_and_ignored_by_git() {
        let world = tempfile::tempdir().unwrap();
        let data = DataDirectory::open(world.path().join("deep/data")).unwrap();
        assert_eq!(mode(data.path()), 0o700);
        assert_eq!(mode(&data.path().join(LOCK)), 0o600);
        for folder in [data.ca_dir(), data.keys_dir(), data.pods_dir(), data.logs_dir()] {
            assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        }
        assert_eq!(
            std::fs::read_to_string(data.path().join(".gitignore")).unwrap(),
            "*\n"
        );
    }

    #[test]
    fn ka_033_looking_for_the_holder_keeps_nobody_from_the_lock() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("data");
        drop(DataDirectory::open(&path).unwrap());
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    holder(&path);
                }
            });
            for _opened in 0..200 {
                drop(DataDirectory::open(&path).unwrap());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }

    #[test]
    fn ka_033_a_number_that_an_earlier_process_left_is_not_told() {
        let world = tempfile::tempdir().unwrap();
        let data = DataDirectory::open(world.path().join("data")).unwrap();
        // No process has this number: it is beyond what a system gives.
        std::fs::write(data.path().join(LOCK), "2147483646\n").unwrap();
        assert_eq!(holder(data.path()), Holder::Unknown, "held all the same");
        std::fs::write(data.path().join(LOCK), "").unwrap();
        assert_eq!(holder(data.path()), Holder::Unknown);
        std::fs::write(data.path().join(LOCK), format!("{}\n46\n", std::process::id())).unwrap();
        assert_eq!(holder(data.path()), Holder::Process(std::process::id()));
    }

    #[test]
    fn ka_033_a_second_opener_is_refused_with_the_holders_pid_and_changes_nothing() {
        let world = tempfile::tempdir().unwrap();
        let first = DataDirectory::open(world.path().join("data")).unwrap();
        let error = DataDirectory::open(first.path()).unwrap_err();
        assert!(
            matches!(error, DataDirectoryError::InUse { holder: Some(pid), .. } if pid == std::process::id())
        );
        assert!(
            error.to_string().contains(&std::process::id().to_string()),
            "{error}"
        );
        assert!(error.to_string().contains("data"), "{error}");
        assert_eq!(holder(first.path()), Holder::Process(std::process::id()));
        let path = first.path().to_owned();
        drop(first);
        assert_eq!(holder(&path), Holder::Nobody);
        DataDirectory::open(&path).unwrap();
    }

    #[test]
    fn a_path_that_is_a_file_or_below_one_is_named_in_the_error() {
        let world = tempfile::tempdir().unwrap();
        let file = world.path().join("file");
        std::fs::write(&file, "x").unwrap();
        for path in [file.clone(), file.join("below")] {
            let error = DataDirectory::open(&path).unwrap_err();
            assert_eq!(error.reason(), "DataDirectoryNotADirectory", "{error:?}");
            assert!(error.to_string().contains("file"), "{error}");
        }
    }

    #[test]
    fn a_directory_that_refuses_writes_is_named_in_the_error() {
        // The kernel's own file system refuses new files even to root, unlike a mode.
        let error = DataDirectory::open("/proc/self/mainstay").unwrap_err();
        assert!(error.to_string().contains("/proc/self/mainstay"), "{error}");
        let refused = DataDirectoryError::at(
            Path::new("/data"),
            io::Error::from(io::ErrorKind::PermissionDenied),
        );
        assert_eq!(refused.to_string(), "the data directory /data is not writable");
    }

    #[test]
    fn a_folder_with_foreign_files_is_left_alone() {
        let world = tempfile::tempdir().unwrap();
        std::fs::write(world.path().join("thesis.tex"), "x").unwrap();
        let error = DataDirectory::open(world.path()).unwrap_err();
        assert!(
            matches!(&error, DataDirectoryError::Foreign { found, .. } if found == "thesis.tex"),
            "{error:?}"
        );
        assert_eq!(std::fs::read_dir(world.path()).unwrap().count(), 1);
    }

    #[test]
    fn private_files_replace_the_old_content_whole() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("kubeconfig");
        std::fs::write(&path, "old and longer").unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(mode(&path), 0o600);
    }
}
