//! The wire format: tags, varints and lengths.

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// One value as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire<'a> {
    /// A varint.
    Number(u64),
    /// Eight bytes.
    Fixed(u64),
    /// A text, bytes, a message, or packed numbers.
    Bytes(&'a [u8]),
}

/// Reads the fields of a message one after the other.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), Malformed> {
        let tag = varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).map_err(|_large| Malformed("a field number is too large"))?;
        let wire = match tag & 7 {
            0 => Wire::Number(varint(&mut self.rest)?),
            1 => {
                let (bytes, rest) = self
                    .rest
                    .split_first_chunk::<8>()
                    .ok_or(Malformed("it is cut short"))?;
                self.rest = rest;
                Wire::Fixed(u64::from_le_bytes(*bytes))
            }
            2 => {
                let length = usize::try_from(varint(&mut self.rest)?)
                    .map_err(|_large| Malformed("a length is too large"))?;
                let (bytes, rest) = self
                    .rest
                    .split_at_checked(length)
                    .ok_or(Malformed("it is cut short"))?;
                self.rest = rest;
                Wire::Bytes(bytes)
            }
            5 => {
                let (bytes, rest) = self
                    .rest
                    .split_first_chunk::<4>()
                    .ok_or(Malformed("it is cut short"))?;
                self.rest = rest;
                Wire::Fixed(u64::from(u32::from_le_bytes(*bytes)))
            }
            _ => return Err(Malformed("a field has an unknown wire type")),
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Wire<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // Behind a fault nothing can be found again.
            self.rest = &[];
        }
        Some(field)
    }
}

/// The numbers of a packed list.
pub(super) fn packed(bytes: &[u8]) -> impl Iterator<Item = Result<u64, Malformed>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let number = varint(&mut rest);
        if number.is_err() {
            rest = &[];
        }
        Some(number)
    })
}

fn varint(rest: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, tail) = rest.split_first().ok_or(Malformed("it is cut short"))?;
        *rest = tail;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed("a number is too long"))
}
