//! Wire types of the providers, without transport.
//!
//! Fields this program does not know are kept in `extra` and written out again, because it stands
//! on both sides of the same formats. Parts of a kind it does not know are kept whole.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

pub(crate) mod anthropic_messages;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;

/// Fields that are not modelled.
pub(crate) type Extra = Map<String, Value>;

/// `null` where a value is expected means the value's default: several servers send it.
pub(crate) fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A field that is there, be it `null`, so that it can be written as it was read.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
