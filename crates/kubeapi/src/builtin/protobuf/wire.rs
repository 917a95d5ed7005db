//! The wire form of protobuf messages.

use super::DecodeError;

/// The content of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field<'bytes> {
    /// A variable-length integer.
    Number(u64),
    /// Eight bytes, or four extended to eight.
    Fixed(u64),
    /// Anything with a length.
    Bytes(&'bytes [u8]),
}

/// The fields of a message, in order; ends after the first error.
#[derive(Debug)]
pub(super) struct Reader<'bytes> {
    rest: &'bytes [u8],
}

impl<'bytes> Reader<'bytes> {
    pub(super) fn new(message: &'bytes [u8]) -> Self {
        Self { rest: message }
    }

    fn take(&mut self, length: usize) -> Result<&'bytes [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Field<'bytes>), DecodeError> {
        let tag = number(&mut self.rest)?;
        let field_number = u32::try_from(tag >> 3).map_err(|_| DecodeError::Malformed)?;
        let field = match tag & 7 {
            0 => Field::Number(number(&mut self.rest)?),
            1 => Field::Fixed(little_endian(self.take(8)?)),
            2 => {
                let length = usize::try_from(number(&mut self.rest)?).map_err(|_| DecodeError::Malformed)?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Fixed(little_endian(self.take(4)?)),
            _ => return Err(DecodeError::Malformed),
        };
        Ok((field_number, field))
    }
}

impl<'bytes> Iterator for Reader<'bytes> {
    type Item = Result<(u32, Field<'bytes>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| (sum << 8) | u64::from(*byte))
}

fn number(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(DecodeError::Malformed)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(DecodeError::Malformed)
}

/// Whether a list of these may be written as one field.
pub(super) fn is_packable(type_: &str) -> bool {
    matches!(type_, "bool" | "int32" | "int64" | "uint32" | "uint64")
}

/// The numbers of a packed list.
pub(super) fn packed(mut bytes: &[u8]) -> impl Iterator<Item = Result<u64, DecodeError>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let value = number(&mut bytes);
        if value.is_err() {
            bytes = &[];
        }
        Some(value)
    })
}
