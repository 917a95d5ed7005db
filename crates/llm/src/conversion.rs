//! Between the provider-neutral types and the wire types: pure functions, no I/O.

pub mod openai_chat;
mod openai_error;
pub mod parameters;
mod tool_calls;

pub(crate) use openai_error::rejects_stream_options;
pub use openai_error::{error_from_body, error_from_stream};
pub use tool_calls::{MAX_ARGUMENT_BYTES, MAX_CALLS, TooMuch, ToolCallAccumulator};
