//! `openapi` handlers: a service's own description becomes tools (C.9, OM-426…OM-431).
//!
//! [`parse`] is pure: a document in, operations out, in bounded time and memory whatever the document
//! holds. Nothing is fetched for it and no reference leaves the document. `OpenapiSource` fetches
//! the document and binds the operations to a base URL; `Call` makes a request of a call's arguments.
//!
//! Start reading at `document`, then `operation`, and `schema` for what becomes of references.

mod body;
mod call;
mod document;
mod flatten;
mod multipart;
mod name;
mod operation;
mod parameter;
mod recursion;
mod reference;
mod schema;
mod server;
mod source;
mod style;

#[cfg(test)]
mod tests;

pub(crate) use self::{
    call::Call,
    name::{Named, tool_names},
    source::{OpenapiSource, SourceContext},
};
pub use self::{
    document::{
        Document, DocumentError, MAX_DOCUMENT_BYTES, MAX_OPERATIONS, Operation, ParseOptions, Skipped, parse,
    },
    server::BaseUrlError,
};
