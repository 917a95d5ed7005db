//! Header blocks: names and values, deflated with one state for all blocks of a direction.

use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

use super::frame::FrameError;

/// The dictionary that both sides begin with; section 2.6.10.1 of the SPDY/3 draft.
pub(super) const DICTIONARY: &[u8] = include_bytes!("../../data/spdy-dictionary");
/// The largest inflated block, in bytes. A port-forward has three headers.
const LARGEST: usize = 16 * 1024;
/// The largest number of headers in a block.
const COUNT: u32 = 64;
/// Of the window of deflate, in bits: the largest there is, since the peer chooses.
const WINDOW_BITS: u8 = 15;

/// The headers of a stream, with names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers(Vec<(String, String)>);

impl Headers {
    /// The first value under `name`, which is written in lower case.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(own, _)| own == name)?;
        // Several values stand in one, with a zero byte between them.
        value.split('\0').next()
    }

    /// Reads an inflated block.
    ///
    /// # Errors
    /// [`FrameError::Headers`] for one that is cut, has too many headers, bytes left over, or is not text.
    pub(super) fn parse(block: &[u8]) -> Result<Self, FrameError> {
        let mut rest = block;
        let count = number(&mut rest)?;
        if count > COUNT {
            return Err(FrameError::Headers("too many headers"));
        }
        let mut headers = Vec::new();
        for _ in 0..count {
            let name = text(&mut rest)?.to_ascii_lowercase();
            headers.push((name, text(&mut rest)?));
        }
        if rest.is_empty() {
            Ok(Self(headers))
        } else {
            Err(FrameError::Headers("bytes are left over"))
        }
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, FrameError> {
    let (bytes, after) = rest
        .split_first_chunk::<4>()
        .ok_or(FrameError::Headers("the block is cut"))?;
    *rest = after;
    Ok(u32::from_be_bytes(*bytes))
}

fn text(rest: &mut &[u8]) -> Result<String, FrameError> {
    let length = usize::try_from(number(rest)?).unwrap_or(usize::MAX);
    // Compared with what is there before anything is made of it.
    let (bytes, after) = rest
        .split_at_checked(length)
        .ok_or(FrameError::Headers("the block is cut"))?;
    *rest = after;
    String::from_utf8(bytes.to_vec()).map_err(|_not_text| FrameError::Headers("a header is not UTF-8"))
}

/// Inflates the header blocks of one direction, in the order in which they come.
pub(super) struct Inflater {
    state: Inflate,
    /// Where a block is inflated to; its length is the bound.
    block: Box<[u8]>,
}

impl Inflater {
    pub(super) fn new() -> Self {
        Self {
            state: Inflate::new(true, WINDOW_BITS),
            block: vec![0; LARGEST].into_boxed_slice(),
        }
    }

    /// The headers of a block.
    ///
    /// # Errors
    /// [`FrameError::Headers`]. Afterwards nothing more can be inflated: the state is that of both sides together.
    pub(super) fn headers(&mut self, deflated: &[u8]) -> Result<Headers, FrameError> {
        let (mut taken, mut made) = (0, 0);
        while taken < deflated.len() {
            let (read, written) = (self.state.total_in(), self.state.total_out());
            let input = deflated.get(taken..).unwrap_or_default();
            let output = self.block.get_mut(made..).unwrap_or_default();
            let status = match self.state.decompress(input, output, InflateFlush::SyncFlush) {
                Err(InflateError::NeedDict { .. }) => {
                    taken += advanced(read, self.state.total_in());
                    self.state
                        .set_dictionary(DICTIONARY)
                        .map_err(|_other| FrameError::Headers("another dictionary is asked for"))?;
                    continue;
                }
                status => status.map_err(|_broken| FrameError::Headers("the block cannot be inflated"))?,
            };
            let (read, written) = (
                advanced(read, self.state.total_in()),
                advanced(written, self.state.total_out()),
            );
            taken += read;
            made += written;
            if status == Status::StreamEnd {
                return Err(FrameError::Headers("the stream of header blocks has ended"));
            }
            if read == 0 && written == 0 {
                // The output is full.
                return Err(FrameError::Headers("the block is too large"));
            }
        }
        if made == self.block.len() {
            // There may be more to come out, and it would be taken for the next block.
            return Err(FrameError::Headers("the block is too large"));
        }
        Headers::parse(self.block.get(..made).unwrap_or_default())
    }
}

fn advanced(before: u64, after: u64) -> usize {
    usize::try_from(after.saturating_sub(before)).unwrap_or(usize::MAX)
}

/// A block of no headers as it is sent first, and as it is sent later: stored and not deflated, so that no state is kept
/// for it. The empty block behind it makes a reader hand the first one on.
pub(super) const EMPTY_FIRST: &[u8] = &[0x78, 0x01, 0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
/// See [`EMPTY_FIRST`], which has the head of a zlib stream before it.
pub(super) const EMPTY_LATER: &[u8] = &[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
