//! Looking at a database file without leaving a trace. Requirement OR-279.
//!
//! SQLite cannot open a file in WAL mode without creating `-shm` beside it, unless it is told that the file is
//! immutable, and then it does not see the log. So the file is read as immutable, and a log left by a crash is looked
//! at by ourselves: only if it changes the schema or the versions in the header is a copy of both files opened instead.
//! Copying always would make every start after a crash as slow as the file is large.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{Found, LayoutError, Layouts};

const WAL_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// Says what the file holds, without changing it or its neighbours.
pub(super) fn inspect(path: &Path, layouts: &Layouts) -> Result<Found, LayoutError> {
    let io_failed = |source| LayoutError::Io {
        path: path.to_owned(),
        source,
    };
    let length = match std::fs::metadata(path) {
        Ok(metadata) => metadata.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(source) => return Err(io_failed(source)),
    };
    let log = side_file(path, "-wal");
    if length == 0 && !has_content(&log) {
        return Ok(Found::Empty);
    }
    if has_content(&log) && log_may_change_layout(path, &log).map_err(io_failed)? {
        return inspect_copy(path, &log, layouts);
    }
    read_immutable(path, layouts).map_err(|error| refuse(path, error))
}

/// Opens a file that nobody else has open, without locks and side files.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        immutable_uri(path),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

fn read_immutable(path: &Path, layouts: &Layouts) -> rusqlite::Result<Found> {
    layouts.recognise(&open_immutable(path)?)
}

fn refuse(path: &Path, error: rusqlite::Error) -> LayoutError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => LayoutError::NotADatabase {
            path: path.to_owned(),
        },
        _ => LayoutError::Storage {
            path: path.to_owned(),
            source: error.into(),
        },
    }
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for character in path.to_string_lossy().chars() {
        match character {
            '%' => uri.push_str("%25"),
            '?' => uri.push_str("%3f"),
            '#' => uri.push_str("%23"),
            other => uri.push(other),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

pub(super) fn side_file(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn has_content(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

/// The fields of page 1 that any change of layout changes: schema cookie, user version, application id.
type LayoutFields = [[u8; 4]; 3];

fn layout_fields(page: &[u8]) -> Option<LayoutFields> {
    let field = |at: usize| page.get(at..at + 4)?.try_into().ok();
    Some([field(40)?, field(60)?, field(68)?])
}

/// True if some frame of the log carries a first page whose layout fields differ from those in the file. Frames of an
/// earlier use of the log carry other salts and do not count; a frame that was not committed is taken as if it were,
/// which only costs a copy.
fn log_may_change_layout(path: &Path, log: &Path) -> io::Result<bool> {
    let mut start = Vec::with_capacity(100);
    File::open(path)?.take(100).read_to_end(&mut start)?;
    let Some(in_file) = layout_fields(&start) else {
        return Ok(true);
    };
    let mut log = File::open(log)?;
    let mut header = [0u8; WAL_HEADER];
    if read_full(&mut log, &mut header)? < WAL_HEADER {
        return Ok(false);
    }
    let page_size = u64::from(big_endian(&header, 8));
    if page_size < 512 {
        return Ok(true);
    }
    let salts = &header[16..24];
    let mut frame = [0u8; FRAME_HEADER + 72];
    let mut offset = WAL_HEADER as u64;
    loop {
        log.seek(SeekFrom::Start(offset))?;
        if read_full(&mut log, &mut frame)? < frame.len() {
            return Ok(false);
        }
        if &frame[8..16] != salts {
            return Ok(false);
        }
        if big_endian(&frame, 0) == 1 && layout_fields(&frame[FRAME_HEADER..]) != Some(in_file) {
            return Ok(true);
        }
        offset += FRAME_HEADER as u64 + page_size;
    }
}

fn big_endian(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|field| field.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..])? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Opens copies of the file and its log, in a private folder beside them that is removed again.
fn inspect_copy(path: &Path, log: &Path, layouts: &Layouts) -> Result<Found, LayoutError> {
    let io_failed = |source| LayoutError::Io {
        path: path.to_owned(),
        source,
    };
    let folder = side_file(path, &format!(".inspect-{}", uuid::Uuid::new_v4()));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .map_err(io_failed)?;
    let copy = folder.join("copy.db");
    let found = std::fs::copy(path, &copy)
        .and_then(|_| std::fs::copy(log, side_file(&copy, "-wal")))
        .map_err(io_failed)
        .and_then(|_| {
            Connection::open_with_flags(
                &copy,
                OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )
            .and_then(|connection| layouts.recognise(&connection))
            .map_err(|error| refuse(path, error))
        });
    let removed = std::fs::remove_dir_all(&folder).map_err(io_failed);
    let found = found?;
    removed?;
    Ok(found)
}
