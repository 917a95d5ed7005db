//! Frames: read from a buffer, and written.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::headers::{EMPTY_FIRST, EMPTY_LATER, Headers, Inflater};

/// The first bytes of a frame: what it is, its flags and its length.
const HEAD: usize = 8;
/// The largest control frame, in bytes. That of a port-forward has about a hundred.
const CONTROL: usize = 16 * 1024;
/// The largest data frame there is.
const DATA: usize = (1 << 24) - 1;
const VERSION: u16 = 3;
const STREAM_BITS: u32 = 0x7fff_ffff;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;
const HEADERS: u16 = 8;

const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;

/// What a peer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A stream begins.
    Stream {
        stream: u32,
        /// The peer sends nothing on it.
        fin: bool,
        /// The peer expects nothing on it.
        unidirectional: bool,
        headers: Headers,
    },
    /// Bytes of a stream, which may be a piece of a frame.
    Data {
        stream: u32,
        bytes: Bytes,
        /// They are the last ones.
        fin: bool,
    },
    /// A stream is over in both directions.
    Reset { stream: u32 },
    /// To be sent back.
    Ping { id: u32 },
    /// The peer makes no more streams.
    GoAway,
    /// More headers of a stream, or the answer to one of ours; `fin` as in data.
    Headers { stream: u32, fin: bool },
    /// A frame that means nothing here: settings, windows, and what later drafts may have.
    Other,
}

/// Why a peer is not understood. Whatever it is, the connection cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a control frame of SPDY version {0}")]
    Version(u16),
    #[error("a control frame of {0} bytes")]
    TooLarge(usize),
    #[error("a control frame of kind {0} has the wrong length")]
    Length(u16),
    #[error("a header block is refused: {0}")]
    Headers(&'static str),
    #[error("a frame for stream 0")]
    StreamZero,
}

/// The rest of a data frame that is still to come.
#[derive(Clone, Copy, Debug)]
struct Rest {
    stream: u32,
    length: usize,
    fin: bool,
}

/// Takes frames out of a buffer.
pub(crate) struct Decoder {
    rest: Option<Rest>,
    inflater: Inflater,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Self {
            rest: None,
            inflater: Inflater::new(),
        }
    }

    /// The next frame in `buffer`, which is taken out of it; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`]; afterwards the decoder is of no use.
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        if let Some(rest) = self.rest {
            return Ok(self.piece(rest, buffer));
        }
        let Some((head, _)) = buffer.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let [a, b, c, d, flags, lengths @ ..] = *head;
        let first = u32::from_be_bytes([a, b, c, d]);
        let [x, y, z] = lengths;
        let length = usize::try_from(u32::from_be_bytes([0, x, y, z])).unwrap_or(usize::MAX);
        if first & !STREAM_BITS == 0 {
            if first == 0 {
                return Err(FrameError::StreamZero);
            }
            buffer.advance(HEAD);
            let rest = Rest {
                stream: first,
                length,
                fin: flags & FIN != 0,
            };
            return Ok(self.piece(rest, buffer));
        }
        let version = u16::from_be_bytes([a & 0x7f, b]);
        let kind = u16::from_be_bytes([c, d]);
        if version != VERSION {
            return Err(FrameError::Version(version));
        }
        if length > CONTROL {
            return Err(FrameError::TooLarge(length));
        }
        if buffer.len() < HEAD + length {
            return Ok(None);
        }
        buffer.advance(HEAD);
        let payload = buffer.split_to(length);
        self.control(kind, flags, &payload).map(Some)
    }

    /// What there is of a data frame; `None` when that is nothing and there is to be something.
    fn piece(&mut self, rest: Rest, buffer: &mut BytesMut) -> Option<Frame> {
        let length = rest.length.min(buffer.len());
        let left = rest.length - length;
        self.rest = (left > 0).then_some(Rest { length: left, ..rest });
        if length == 0 && left > 0 {
            return None;
        }
        Some(Frame::Data {
            stream: rest.stream,
            bytes: buffer.split_to(length).freeze(),
            fin: rest.fin && left == 0,
        })
    }

    fn control(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<Frame, FrameError> {
        let fin = flags & FIN != 0;
        match kind {
            SYN_STREAM => {
                // The stream, the one it belongs to, a priority and a slot.
                let (head, block) = payload
                    .split_first_chunk::<10>()
                    .ok_or(FrameError::Length(kind))?;
                let [a, b, c, d, ..] = *head;
                Ok(Frame::Stream {
                    stream: stream([a, b, c, d])?,
                    fin,
                    unidirectional: flags & UNIDIRECTIONAL != 0,
                    headers: self.inflater.headers(block)?,
                })
            }
            SYN_REPLY | HEADERS => {
                let (head, block) = payload.split_first_chunk::<4>().ok_or(FrameError::Length(kind))?;
                // Inflated though nobody reads it: the next block goes on where this one ends.
                self.inflater.headers(block)?;
                Ok(Frame::Headers {
                    stream: stream(*head)?,
                    fin,
                })
            }
            RST_STREAM => {
                let [a, b, c, d, _, _, _, _] = exactly::<8>(kind, payload)?;
                Ok(Frame::Reset {
                    stream: stream([a, b, c, d])?,
                })
            }
            PING => Ok(Frame::Ping {
                id: u32::from_be_bytes(exactly::<4>(kind, payload)?),
            }),
            GO_AWAY => exactly::<8>(kind, payload).map(|_last| Frame::GoAway),
            _ => Ok(Frame::Other),
        }
    }
}

fn stream(bytes: [u8; 4]) -> Result<u32, FrameError> {
    match u32::from_be_bytes(bytes) & STREAM_BITS {
        0 => Err(FrameError::StreamZero),
        stream => Ok(stream),
    }
}

fn exactly<const LENGTH: usize>(kind: u16, payload: &[u8]) -> Result<[u8; LENGTH], FrameError> {
    payload.try_into().map_err(|_other| FrameError::Length(kind))
}

/// Why a stream is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ResetCode {
    /// It breaks the protocol.
    Protocol = 1,
    /// It is not wanted, and nothing was done for it.
    Refused = 3,
    /// It is not wanted any more.
    Cancel = 5,
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum GoAway {
    /// It is over.
    Done = 0,
    /// The peer is not understood.
    Protocol = 1,
}

fn control(kind: u16, flags: u8, payload: &[&[u8]]) -> Bytes {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(HEAD + length);
    frame.put_u16(0x8000 | VERSION);
    frame.put_u16(kind);
    frame.put_u8(flags);
    frame.put_uint(length as u64, 3);
    for part in payload {
        frame.put_slice(part);
    }
    frame.freeze()
}

/// Accepts a stream. `first` is whether nothing was accepted on this connection before.
pub(crate) fn reply(stream: u32, first: bool) -> Bytes {
    let block = if first { EMPTY_FIRST } else { EMPTY_LATER };
    control(SYN_REPLY, 0, &[&stream.to_be_bytes(), block])
}

/// Ends a stream in both directions.
pub(crate) fn reset(stream: u32, code: ResetCode) -> Bytes {
    control(
        RST_STREAM,
        0,
        &[&stream.to_be_bytes(), &(code as u32).to_be_bytes()],
    )
}

/// Answers a ping.
pub(crate) fn ping(id: u32) -> Bytes {
    control(PING, 0, &[&id.to_be_bytes()])
}

/// Ends a connection. `last` is the last stream that was accepted.
pub(crate) fn go_away(last: u32, why: GoAway) -> Bytes {
    control(GO_AWAY, 0, &[&last.to_be_bytes(), &(why as u32).to_be_bytes()])
}

/// Bytes of a stream; `fin` when they are the last. Of more than a frame can hold the rest is left out, which no caller
/// comes near: they send what they read at once.
pub(crate) fn data(stream: u32, bytes: &[u8], fin: bool) -> Bytes {
    let bytes = bytes.get(..DATA).unwrap_or(bytes);
    let mut frame = BytesMut::with_capacity(HEAD + bytes.len());
    frame.put_u32(stream & STREAM_BITS);
    frame.put_u8(u8::from(fin));
    frame.put_uint(bytes.len() as u64, 3);
    frame.put_slice(bytes);
    frame.freeze()
}
