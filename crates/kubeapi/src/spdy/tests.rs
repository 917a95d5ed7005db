//! SPDY against what `moby/spdystream` sends, and against noise. Requirement KA-052.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;
use zlib_rs::{Deflate, DeflateFlush};

use super::{Decoder, Frame, FrameError, GoAway, ResetCode, frame, headers};

/// The sending side of a client: header blocks deflated with the dictionary, as `moby/spdystream` does.
pub(crate) struct Client {
    deflate: Deflate,
}

impl Client {
    pub(crate) fn new() -> Self {
        let mut deflate = Deflate::new(9, true, 15);
        deflate.set_dictionary(headers::DICTIONARY).unwrap();
        Self { deflate }
    }

    fn deflated(&mut self, block: &[u8]) -> Vec<u8> {
        let mut output = vec![0; block.len() + 1024];
        let before = self.deflate.total_out();
        self.deflate
            .compress(block, &mut output, DeflateFlush::SyncFlush)
            .unwrap();
        output.truncate(usize::try_from(self.deflate.total_out() - before).unwrap());
        output
    }

    pub(crate) fn stream(&mut self, stream: u32, flags: u8, headers: &[(&str, &str)]) -> Vec<u8> {
        let block = self.deflated(&block(headers));
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend([0; 6]);
        payload.extend(block);
        control(1, flags, &payload)
    }
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        block.extend(text.as_bytes());
    }
    block
}

fn control(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend(kind.to_be_bytes());
    frame.push(flags);
    frame.extend(&u32::try_from(payload.len()).unwrap().to_be_bytes()[1..]);
    frame.extend(payload);
    frame
}

fn all(bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
    let (mut decoder, mut buffer) = (Decoder::new(), BytesMut::from(bytes));
    let mut frames = Vec::new();
    while let Some(frame) = decoder.decode(&mut buffer)? {
        frames.push(frame);
    }
    Ok(frames)
}

#[test]
fn streams_are_opened_with_headers_that_go_on_from_each_other_ka_052() {
    let mut client = Client::new();
    let mut bytes = Vec::new();
    for (stream, kind) in [(1, "error"), (3, "data")] {
        let headers = [("streamtype", kind), ("port", "8080"), ("requestid", "0")];
        bytes.extend(client.stream(stream, 0, &headers));
    }
    let frames = all(&bytes).unwrap();
    assert_eq!(frames.len(), 2);
    for (frame, kind) in frames.iter().zip(["error", "data"]) {
        let Frame::Stream { headers, fin, .. } = frame else {
            panic!("{frame:?}");
        };
        assert_eq!(headers.get("streamtype"), Some(kind));
        assert_eq!(headers.get("port"), Some("8080"));
        assert_eq!(headers.get("requestid"), Some("0"));
        assert_eq!(headers.get("host"), None);
        assert!(!fin);
    }
}

#[test]
fn every_frame_is_read_as_it_is_written_ka_052() {
    let long = vec![7; 70_000];
    let bytes = [
        frame::data(5, b"hello", false),
        frame::data(5, b"", true),
        frame::data(5, &long, true),
        frame::reset(5, ResetCode::Cancel),
        frame::ping(3),
        frame::go_away(5, GoAway::Done),
        frame::reply(7, true),
        frame::reply(9, false),
        Bytes::from(control(4, 0, &[0; 4])),
        Bytes::from(control(9, 0, &[0; 8])),
    ]
    .concat();
    let data = |bytes: &[u8], fin| Frame::Data {
        stream: 5,
        bytes: Bytes::copy_from_slice(bytes),
        fin,
    };
    let expected = [
        data(b"hello", false),
        data(b"", true),
        data(&long, true),
        Frame::Reset { stream: 5 },
        Frame::Ping { id: 3 },
        Frame::GoAway,
        Frame::Headers {
            stream: 7,
            fin: false,
        },
        Frame::Headers {
            stream: 9,
            fin: false,
        },
        Frame::Other,
        Frame::Other,
    ];
    assert_eq!(all(&bytes).unwrap(), expected);
}

#[test]
fn a_data_frame_is_handed_on_as_it_comes_ka_052() {
    let (mut decoder, mut buffer) = (Decoder::new(), BytesMut::new());
    let whole = frame::data(1, b"abcdef", true);
    let mut pieces = Vec::new();
    for byte in &whole {
        buffer.extend([*byte]);
        while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
            pieces.push(frame);
        }
    }
    assert_eq!(pieces.len(), 6, "{pieces:?}");
    for (position, piece) in pieces.iter().enumerate() {
        let last = position == 5;
        assert!(
            matches!(piece, Frame::Data { fin, bytes, .. } if *fin == last && bytes.len() == 1),
            "{piece:?}"
        );
    }
}

#[test]
fn what_is_too_large_or_broken_is_refused_with_a_reason_ka_052() {
    let mut other_version = control(6, 0, &[0, 0, 0, 1]);
    other_version[1] = 2;
    let bomb = Client::new().stream(1, 0, &[("a", &"x".repeat(100_000))]);
    let many: Vec<(&str, &str)> = vec![("a", "b"); 100];
    let crowd = Client::new().stream(1, 0, &many);
    let zero = Client::new().stream(0, 0, &[]);
    let cases: [(&[u8], FrameError); 9] = [
        (&other_version, FrameError::Version(2)),
        (&control(6, 0, &[0; 5]), FrameError::Length(6)),
        (&control(3, 0, &[0; 4]), FrameError::Length(3)),
        (&control(1, 0, &[0; 9]), FrameError::Length(1)),
        (&[0x80, 3, 0, 1, 0, 1, 0, 0], FrameError::TooLarge(65536)),
        (&bomb, FrameError::Headers("the block is too large")),
        (&crowd, FrameError::Headers("too many headers")),
        (&zero, FrameError::StreamZero),
        (&[0, 0, 0, 0, 0, 0, 0, 1], FrameError::StreamZero),
    ];
    for (bytes, expected) in cases {
        assert_eq!(all(bytes), Err(expected));
    }
}

proptest! {
    /// Noise ends in frames or in an error, however it is cut; and what is kept is bounded by what came.
    #[test]
    fn noise_is_survived_ka_052(noise in proptest::collection::vec(any::<u8>(), 0..600), cut in 1_usize..50) {
        let (mut decoder, mut buffer) = (Decoder::new(), BytesMut::new());
        'reading: for piece in noise.chunks(cut) {
            buffer.extend_from_slice(piece);
            loop {
                match decoder.decode(&mut buffer) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => break 'reading,
                }
            }
        }
        prop_assert!(buffer.len() <= noise.len());
    }

    /// Noise inside a well-formed frame of headers, which gets as far as the inflater and the parser behind it.
    #[test]
    fn noise_in_headers_is_survived_ka_052(noise in proptest::collection::vec(any::<u8>(), 0..300), deflated: bool) {
        let block = if deflated { Client::new().deflated(&noise) } else { noise };
        let mut payload = vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        payload.extend(block);
        let _ = all(&control(1, 0, &payload));
    }

    /// Bytes arrive as they were sent, whatever the pieces.
    #[test]
    fn data_survives_any_cut_ka_052(sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..8), cut in 1_usize..64) {
        let last = sent.len() - 1;
        let bytes: Vec<u8> = sent
            .iter()
            .enumerate()
            .flat_map(|(position, piece)| frame::data(1, piece, position == last))
            .collect();
        let (mut decoder, mut buffer, mut received, mut ended) = (Decoder::new(), BytesMut::new(), Vec::new(), false);
        for piece in bytes.chunks(cut) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = decoder.decode(&mut buffer).unwrap() {
                let Frame::Data { bytes, fin, .. } = frame else { panic!("{frame:?}") };
                prop_assert!(!ended);
                received.extend(bytes);
                ended = fin;
            }
        }
        prop_assert!(ended);
        prop_assert_eq!(received, sent.concat());
    }
}
