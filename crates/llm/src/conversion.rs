//! Between the provider-neutral types and the wire types: pure functions, no I/O.

pub(crate) mod anthropic_messages;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod parameters;
mod provider_error;
mod reader;
mod response_format;
mod tool_calls;

pub(crate) use provider_error::rejects_stream_options;
pub(crate) use provider_error::{error_from_body, error_from_stream};
pub(crate) use reader::{Ending, Progress, Reader};
