//! SPDY/3.1, as far as it is still spoken: the frames that `kubectl port-forward` carries its connections in.
//!
//! [`Decoder`] takes frames out of a buffer and knows nothing of sockets; [`Frame`] is what it finds. What is sent is
//! written by the functions of `frame`. Flow control by windows is not part of it, because the clients have none
//! (`moby/spdystream`): a receiver that is slow is felt through the connection.
//!
//! A peer decides only how many bytes are read, never how many are kept: a control frame has a bound, a header block has a
//! bound before and after it is inflated, and the data of a frame is handed on as it comes. Requirement KA-052.

mod frame;
mod headers;

pub(crate) use frame::{Decoder, Frame, FrameError, GoAway, ResetCode, data, go_away, ping, reply, reset};
pub(crate) use headers::Headers;

#[cfg(test)]
pub(crate) mod tests;
