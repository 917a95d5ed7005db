//! Between the provider-neutral types and the wire types: pure functions, no I/O.

pub mod anthropic_messages;
pub mod openai_chat;
pub mod openai_responses;
pub mod parameters;
mod provider_error;
mod reader;
mod tool_calls;

pub(crate) use provider_error::rejects_stream_options;
pub use provider_error::{error_from_body, error_from_stream};
pub use reader::{Ending, Progress, ReadError, Reader};
pub use tool_calls::{MAX_ARGUMENT_BYTES, MAX_CALLS, TooMuch, ToolCallAccumulator};
