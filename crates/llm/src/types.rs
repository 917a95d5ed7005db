//! Wire types of the providers, without transport.
//!
//! Fields this program does not know are kept in `extra` and written out again, because it stands
//! on both sides of the same formats.

pub mod openai_chat;
