//! Lines of a stream, each of a bounded length.

use bytes::{Buf, BytesMut};
use tokio::io::AsyncReadExt;

use super::Source;

/// A longer line of a log is given in pieces.
const LONGEST: usize = 64 * 1024;
/// Bytes that are asked for at once.
const PIECE: usize = 8 * 1024;

/// Gives each line of `source`, to its end.
pub(super) async fn each(source: impl Source, line: impl FnMut(&str)) {
    each_of(source, LONGEST, line).await;
}

/// The same with pieces of `longest` bytes.
pub(super) async fn each_of(mut source: impl Source, longest: usize, mut line: impl FnMut(&str)) {
    let mut held = BytesMut::new();
    loop {
        let seen = held.len();
        held.reserve(PIECE);
        // A stream that breaks has said what it had to say.
        let read = source.read_buf(&mut held).await.unwrap_or(0);
        let mut from = seen;
        while let Some(at) = held.iter().skip(from).position(|byte| *byte == b'\n') {
            let whole = held.split_to(from + at);
            held.advance(1);
            line(&String::from_utf8_lossy(&whole));
            from = 0;
        }
        while held.len() > longest {
            line(&String::from_utf8_lossy(&held.split_to(longest)));
        }
        if read == 0 {
            break;
        }
    }
    if !held.is_empty() {
        line(&String::from_utf8_lossy(&held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], longest: usize) -> Vec<String> {
        let mut found = Vec::new();
        each_of(bytes, longest, |line| found.push(line.to_owned())).await;
        found
    }

    #[tokio::test]
    async fn lines_are_given_whole_and_long_ones_in_pieces() {
        assert_eq!(read(b"one\n\ntwo", 64).await, ["one", "", "two"]);
        assert_eq!(read(b"", 64).await, Vec::<String>::new());
        assert_eq!(read(b"a\xff\n", 64).await, ["a\u{fffd}"]);
        assert_eq!(
            read(&[b'x'; 150], 64)
                .await
                .iter()
                .map(String::len)
                .collect::<Vec<_>>(),
            [64, 64, 22]
        );
        let long = [vec![b'y'; 20_000], b"\nend\n".to_vec()].concat();
        let found = read(&long, 16 * 1024).await;
        assert_eq!(found.concat().len(), 20_003);
        assert_eq!(found.last().map(String::as_str), Some("end"));
        // As they come over a pipe: in pieces that are cut anywhere.
        let (mut sender, receiver) = tokio::io::duplex(3);
        let sending = async move {
            tokio::io::AsyncWriteExt::write_all(&mut sender, b"first\nsecond\n")
                .await
                .unwrap();
        };
        let mut found = Vec::new();
        tokio::join!(sending, each(receiver, |line| found.push(line.to_owned())));
        assert_eq!(found, ["first", "second"]);
    }
}
