//! Files that only their owner may read, and that are there as a whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::fs::OFlags;

/// Neighbour files of this process so far.
static NEIGHBOURS: AtomicU64 = AtomicU64::new(0);

/// Writes a file with mode 0600 so that a reader, or whoever comes after a crash, sees the old or the new content, never a
/// part: a neighbour file is written and synced, renamed over it, and the directory that names it is synced too.
///
/// # Errors
/// What the file system answers; the file is then as it was, or new. Nothing is left beside it.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    // Several writers, of this process and of others, may write the same file at once; each has a neighbour of its own, and
    // the last one wins.
    let number = NEIGHBOURS.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}.new", std::process::id()));
    let neighbour = path.with_file_name(name);
    if let Err(error) = write_neighbour(&neighbour, content).and_then(|()| fs::rename(&neighbour, path)) {
        // What was written of it is of no use, and takes room on a disk that may be full. Why the file could not be written
        // counts more than that this could not be removed either.
        let _ = fs::remove_file(&neighbour);
        return Err(error);
    }
    // Without this the name may be lost with the power, and the old content be back.
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
}

fn write_neighbour(neighbour: &Path, content: &[u8]) -> io::Result<()> {
    // One that a crash left may have other permissions, which opening it would keep.
    match fs::remove_file(neighbour) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(neighbour)?;
    file.write_all(content)?;
    file.sync_all()
}

/// The flags of every file of ours: not through a link, and not in a child process.
pub(crate) fn no_follow() -> i32 {
    // The flag bits fit: they are the platform's own `int` constants.
    (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_whatever_a_crash_left_beside_it_ka_042() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("token");
        // Of an earlier process with this number: whatever name comes next, one of these has it.
        let next = NEIGHBOURS.load(Ordering::Relaxed);
        for number in next..next + 1_000 {
            let left = world
                .path()
                .join(format!("token.{}-{number}.new", std::process::id()));
            fs::write(&left, "half").unwrap();
            fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        }
        write_private(&path, b"secret").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(world.path()).len(), 1_000, "its place was taken");
        write_private(&path, b"another").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        assert!(write_private(&world.path().join("none/token"), b"x").is_err());
    }

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn writers_of_one_process_do_not_share_a_neighbour() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("token");
        let contents: Vec<Vec<u8>> = (0..8_u8).map(|letter| vec![b'a' + letter; 4_096]).collect();
        std::thread::scope(|scope| {
            for content in &contents {
                scope.spawn(|| {
                    for _written in 0..20 {
                        write_private(&path, content).unwrap();
                    }
                });
            }
        });
        assert!(contents.contains(&fs::read(&path).unwrap()), "one of them, whole");
        assert_eq!(names(world.path()), ["token"]);
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_beside_it() {
        let world = tempfile::tempdir().unwrap();
        let path = world.path().join("token");
        // A folder with something in it is not replaced by a file.
        fs::create_dir_all(path.join("below")).unwrap();
        assert!(write_private(&path, b"secret").is_err());
        assert_eq!(names(world.path()), ["token"]);
    }
}
