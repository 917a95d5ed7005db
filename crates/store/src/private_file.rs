//! Files that only their owner may read, and that are there as a whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::OFlags;

/// Writes a file with mode 0600 so that a reader, or whoever comes after a crash, sees the old or the new content, never a
/// part: a neighbour file is written and synced, renamed over it, and the directory that names it is synced too.
///
/// # Errors
/// What the file system answers; the file is then as it was, or new.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    // Several programs may write the same file at once; each has a neighbour of its own, and the last one wins.
    name.push(format!(".{}.new", std::process::id()));
    let neighbour = path.with_file_name(name);
    // One that a crash left may have other permissions, which opening it would keep.
    match fs::remove_file(&neighbour) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(&neighbour)?;
    file.write_all(content)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&neighbour, path)?;
    // Without this the name may be lost with the power, and the old content be back.
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => File::open(".")?.sync_all(),
    }
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
        let left = world.path().join(format!("token.{}.new", std::process::id()));
        fs::write(&left, "half").unwrap();
        fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, b"secret").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"secret");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!left.exists());
        write_private(&path, b"another").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        assert!(write_private(&world.path().join("none/token"), b"x").is_err());
    }
}
