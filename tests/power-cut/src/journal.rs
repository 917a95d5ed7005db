//! The records that the library writes.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, path::PathBuf};

/// Six numbers of eight bytes.
const HEAD: usize = 48;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Write {
        inode: u64,
        offset: u64,
        data: Vec<u8>,
    },
    Truncate {
        inode: u64,
        length: u64,
    },
    /// Of a file or a folder; what was done before operation `before` is safe.
    Sync {
        inode: u64,
        before: u64,
    },
    Create {
        inode: u64,
        path: PathBuf,
    },
    Folder {
        inode: u64,
        path: PathBuf,
    },
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    Remove {
        path: PathBuf,
    },
    Link {
        path: PathBuf,
        target: PathBuf,
    },
}

/// What was done, and as which operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) what: What,
}

/// Reads a journal; a record that its program was killed in is none.
pub(crate) fn read(bytes: &[u8]) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_at_checked(HEAD) {
        let mut numbers = head.chunks_exact(8).map(|number| {
            number
                .iter()
                .rev()
                .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        });
        let mut number = || numbers.next().unwrap_or_default();
        let (kind, sequence, inode, value) = (number(), number(), number(), number());
        let (path_bytes, data_bytes) = (number() as usize, number() as usize);
        let Some((path, behind)) = behind.split_at_checked(path_bytes) else {
            break;
        };
        let Some((data, behind)) = behind.split_at_checked(data_bytes) else {
            break;
        };
        rest = behind;
        let path = PathBuf::from(OsStr::from_bytes(path));
        let data_path = || PathBuf::from(OsStr::from_bytes(data));
        let what = match u8::try_from(kind).unwrap_or_default() {
            b'W' => What::Write {
                inode,
                offset: value,
                data: data.to_vec(),
            },
            b'T' => What::Truncate { inode, length: value },
            b'S' => What::Sync { inode, before: value },
            b'C' => What::Create { inode, path },
            b'M' => What::Folder { inode, path },
            b'R' => What::Rename {
                from: path,
                to: data_path(),
            },
            b'U' => What::Remove { path },
            b'L' => What::Link {
                path,
                target: data_path(),
            },
            _ => {
                let text = format!(
                    "the program used {}, whose effect is not recorded",
                    path.display()
                );
                return Err(io::Error::other(text));
            }
        };
        records.push(Record { sequence, what });
    }
    Ok(records)
}
