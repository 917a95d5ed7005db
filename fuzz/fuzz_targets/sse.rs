//! A stream of events decodes the same however it is cut.
#![no_main]
use libfuzzer_sys::fuzz_target;
use mainstay_workload::sse::{Decoder, Event};

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Event>> {
    let mut decoder = Decoder::new(512);
    let mut events = Vec::new();
    for piece in pieces {
        decoder.push(piece, &mut events).ok()?;
    }
    events.extend(decoder.finish().ok()?);
    Some(events)
}

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(std::iter::once(bytes));
    let single = decode(bytes.chunks(1));
    if let (Some(whole), Some(single)) = (whole, single) {
        assert_eq!(whole, single);
    }
});
