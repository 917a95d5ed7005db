//! A bounded decoder of server-sent events.
//!
//! Streams come from servers we do not control, so the decoder never holds more than a
//! limit, takes every line ending (CR, LF, CRLF, also cut between chunks), skips a byte order mark
//! and comments, and delivers a last event that lacks its blank line (D7). How the bytes are cut
//! into chunks never changes what comes out.

/// Default limit of one event, in bytes.
pub const DEFAULT_LIMIT: usize = 4 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty when there was none.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: String,
    /// The `id` field: where a reader that lost the stream goes on. `None` when there was none.
    pub id: Option<String>,
    /// The `retry` field in milliseconds: how long that reader waits. Where an event without data had
    /// it, it comes with the next one.
    pub retry: Option<u64>,
}

/// An event, or a single line of one, exceeds the decoder's limit. The stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {limit} bytes")]
pub struct TooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// See the [module](self).
#[derive(Debug)]
pub struct Decoder {
    limit: usize,
    line: Vec<u8>,
    // The last byte was a CR that ended a line: an LF right after it belongs to the same ending.
    after_carriage_return: bool,
    at_start: bool,
    name: String,
    data: String,
    // An empty `data:` line still makes an event, which the text alone cannot tell.
    has_data: bool,
    id: Option<String>,
    retry: Option<u64>,
}

impl Decoder {
    /// A decoder for one stream whose events have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            after_carriage_return: false,
            at_start: true,
            name: String::new(),
            data: String::new(),
            has_data: false,
            id: None,
            retry: None,
        }
    }

    /// Takes the next bytes and appends the events they complete to `events`.
    ///
    /// # Errors
    /// [`TooLarge`]; the decoder is of no use afterwards.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), TooLarge> {
        for &byte in bytes {
            if std::mem::take(&mut self.after_carriage_return) && byte == b'\n' {
                continue;
            }
            match byte {
                b'\n' | b'\r' => {
                    self.after_carriage_return = byte == b'\r';
                    self.end_line(events)?;
                }
                _ => {
                    if self.line.len() + self.data.len() >= self.limit {
                        return Err(TooLarge { limit: self.limit });
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    /// Ends the stream; an event whose blank line is missing is delivered.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn finish(mut self) -> Result<Option<Event>, TooLarge> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events)?;
        }
        self.dispatch(&mut events);
        Ok(events.pop())
    }

    fn end_line(&mut self, events: &mut Vec<Event>) -> Result<(), TooLarge> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.dispatch(events);
            return Ok(());
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            // A comment.
            Some(0) => return Ok(()),
            Some(colon) => {
                let value = &line[colon + 1..];
                (
                    &line[..colon],
                    value.strip_prefix(b" ".as_slice()).unwrap_or(value),
                )
            }
            None => (line, &[][..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(&String::from_utf8_lossy(value));
                // Replacement characters are longer than the bytes they replace.
                if self.data.len() > self.limit {
                    return Err(TooLarge { limit: self.limit });
                }
            }
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            // One with a NUL cannot be sent back in a header and is ignored, as browsers do.
            b"id" if !value.contains(&0) => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                self.retry = String::from_utf8_lossy(value).parse().ok();
            }
            _ => {}
        }
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<Event>) {
        let name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if std::mem::take(&mut self.has_data) {
            events.push(Event {
                name,
                data,
                id: self.id.take(),
                retry: self.retry.take(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = Decoder::new(DEFAULT_LIMIT);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk, &mut events).unwrap();
        }
        events.extend(decoder.finish().unwrap());
        events
    }

    fn data(chunks: &[&[u8]]) -> Vec<String> {
        decode(chunks).into_iter().map(|event| event.data).collect()
    }

    #[test]
    fn every_line_ending_ends_a_line() {
        assert_eq!(data(&[b"data: a\n\ndata: b\r\n\r\ndata: c\r\r"]), ["a", "b", "c"]);
        assert_eq!(data(&[b"data: a\r", b"\n\r", b"\ndata: b\n\n"]), ["a", "b"]);
    }

    #[test]
    fn a_byte_order_mark_is_skipped_also_when_it_is_cut() {
        assert_eq!(data(&[b"\xef\xbb", b"\xbfdata: a\n\n"]), ["a"]);
    }

    #[test]
    fn comments_and_unknown_fields_are_skipped() {
        assert_eq!(data(&[b": ping\n\nid: 4\nretry: 5\nfoo\ndata:a\n\n"]), ["a"]);
    }

    #[test]
    fn data_lines_are_joined_and_only_one_space_is_stripped() {
        assert_eq!(data(&[b"data: a\ndata:  b\ndata\n\n"]), ["a\n b\n"]);
    }

    #[test]
    fn an_event_without_its_blank_line_is_delivered_at_the_end_d7() {
        assert_eq!(
            data(&[b"data: a\n\ndata: [DONE]"]),
            ["a".to_owned(), "[DONE]".to_owned()]
        );
    }

    #[test]
    fn the_name_belongs_to_one_event() {
        let events = decode(&[b"event: error\ndata: x\n\ndata: y\n\n"]);
        assert_eq!(events[0].name, "error");
        assert_eq!(events[1].name, "");
    }

    #[test]
    fn what_steers_reconnection_comes_with_its_event() {
        let events = decode(&[
            b"id: 7\nretry: 500\ndata:\n\nretry: 9\n\ndata: x\n\ndata: y\nretry: soon\nid: a\0b\n\n",
        ]);
        let steering: Vec<(Option<&str>, Option<u64>)> = events
            .iter()
            .map(|event| (event.id.as_deref(), event.retry))
            .collect();
        assert_eq!(steering, [(Some("7"), Some(500)), (None, Some(9)), (None, None)]);
        assert_eq!(events[0].data, "");
    }

    #[test]
    fn an_endless_line_or_event_is_refused() {
        let mut decoder = Decoder::new(16);
        let mut events = Vec::new();
        assert_eq!(
            decoder.push(&[b'x'; 17], &mut events),
            Err(TooLarge { limit: 16 })
        );
        let mut decoder = Decoder::new(16);
        assert!(
            decoder
                .push(b"data:aaaaaaaa\ndata:bbbbbbbb\n", &mut events)
                .is_err()
        );
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_cut_never_matters(
            bytes in proptest::collection::vec(
                prop_oneof![
                    Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), Just(b'a'), Just(b't'),
                    Just(0xef_u8), Just(0xbb), Just(0xbf), any::<u8>(),
                ],
                0..200,
            ),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let whole = decode(&[&bytes]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(decode(&chunks), whole);
        }

        #[test]
        fn whatever_data_is_sent_comes_out_again(texts in proptest::collection::vec("[^\r\n]{0,40}", 1..5)) {
            let stream: String = texts.iter().map(|text| format!("data: {text}\n\n")).collect();
            prop_assert_eq!(data(&[stream.as_bytes()]), texts);
        }
    }
}
