//! Looking at a database file without leaving a trace. Requirements OR-279, KA-033.
//!
//! What a file holds is what SQLite would see in it, and that includes the log (`-wal`) a crash left: a checkpoint cut
//! short leaves pages in the log only, even those the file's own header counts. So with a log the file is read through
//! SQLite's own recovery. Two settings keep that from leaving a trace: a connection in exclusive locking mode keeps the
//! index of the log in its own memory, not in a `-shm` file, and one that does not checkpoint when it closes writes
//! nothing. No copy is needed, so neither the size of the file nor a full disk matters.
//!
//! Without a log the file is read as immutable: no locks, no side files.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{Found, LayoutError, Layouts};

const DATABASE_MAGIC: &[u8] = b"SQLite format 3\0";
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The last bit says in which byte order the log's checksums are.
const LOG_MAGIC: u32 = 0x377f_0682;
const LOG_HEADER: usize = 32;
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
    let has_log = has_content(&log);
    if length == 0 {
        // SQLite would delete the log of an empty file, and with it whatever was committed there.
        return if has_log && holds_commit(&log).map_err(io_failed)? {
            Err(LayoutError::LogWithoutFile {
                path: path.to_owned(),
                log,
            })
        } else {
            Ok(Found::Empty)
        };
    }
    let journal = side_file(path, "-journal");
    let seen = if has_log && !has_content(&journal) {
        read_through_log(path, layouts)
    } else {
        // A rollback journal would be played back, that is, the file changed, by any opening that looks at it.
        open_immutable(path).and_then(|connection| layouts.recognise(&connection))
    };
    match seen {
        Ok(found) => Ok(found),
        Err(_) if creation_was_cut_short(&journal) => Ok(Found::Empty),
        Err(error) => Err(LayoutError::of(path, error)),
    }
}

/// Opens a file that nobody else has open, without locks and side files.
pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        immutable_uri(path),
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Reads the file with what its log adds to it.
fn read_through_log(path: &Path, layouts: &Layouts) -> rusqlite::Result<Found> {
    // Exclusive locking needs a file that is open for writing; nothing below writes.
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // Who holds a lock now holds it for as long as it has the file open.
    connection.busy_timeout(Duration::ZERO)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update_and_check(None, "locking_mode", "EXCLUSIVE", |_| Ok(()))?;
    match layouts.recognise(&connection) {
        // Somebody has the file open, so the side files are there already and are theirs.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
            let beside = Connection::open_with_flags(
                path,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            layouts.recognise(&beside)
        }
        seen => seen,
    }
}

/// True if the file begins as every SQLite database does.
pub(super) fn has_magic(path: &Path) -> bool {
    let mut start = Vec::with_capacity(DATABASE_MAGIC.len());
    File::open(path)
        .and_then(|file| file.take(DATABASE_MAGIC.len() as u64).read_to_end(&mut start))
        .is_ok_and(|_| start == DATABASE_MAGIC)
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

/// True if the log has a commit of its present use: frames of an earlier use carry other salts. Checksums are not looked
/// at: a damaged log without its file is not to be thrown away either.
fn holds_commit(log: &Path) -> io::Result<bool> {
    let mut log = File::open(log)?;
    let mut header = [0u8; LOG_HEADER];
    if read_full(&mut log, &mut header)? < LOG_HEADER || big_endian(&header, 0) & !1 != LOG_MAGIC {
        return Ok(false);
    }
    let page_size = u64::from(big_endian(&header, 8));
    let salts = &header[16..24];
    let mut frame = [0u8; FRAME_HEADER];
    let mut offset = LOG_HEADER as u64;
    loop {
        log.seek(SeekFrom::Start(offset))?;
        if read_full(&mut log, &mut frame)? < frame.len() || &frame[8..16] != salts {
            return Ok(false);
        }
        // The last frame of a commit carries the size of the database after it.
        if big_endian(&frame, 4) != 0 {
            return Ok(true);
        }
        offset += FRAME_HEADER as u64 + page_size;
    }
}

/// True if the journal says that the database was empty before the transaction that was cut short: the one that makes
/// the first page. SQLite makes the file empty again when it is opened for writing.
fn creation_was_cut_short(journal: &Path) -> bool {
    let mut header = [0u8; 28];
    File::open(journal)
        .and_then(|mut file| read_full(&mut file, &mut header))
        .is_ok_and(|read| {
            read == header.len() && header.starts_with(&JOURNAL_MAGIC) && big_endian(&header, 16) == 0
        })
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
