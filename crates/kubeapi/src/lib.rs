//! The embedded Kubernetes API: a tower service over `mainstay-store`, served over TLS for `kubectl` and in process for
//! this program's own controllers.
//!
//! [`Api::open`] makes the server from [`ApiOptions`]; [`Api::run`] does its background work; [`Api::client`] is a
//! `kube::Client` in this process, [`Api::serve_tls`] a socket. Both lead to the one router.
//!
//! # Where to start reading
//!
//! A request is taken apart in `request`, answered from `router`, and reads in `read` and `watch` or writes in `write`:
//! the one pipeline that create, update, every patch and apply pass, planned in `write::plan` without touching anything.
//! `delete` and `background` (garbage collection, namespaces, definitions) are the other writers. All of them end in
//! `commit`. What users' policies say of a write, `admission` asks before it is stored. `registry` holds the kinds being served: `builtin` ones are data, those of definitions come from [`crd`].
//! [`schema`], [`patch`], [`apply`], [`selector`], [`table`] and [`strict`] are functions over JSON values that know
//! nothing of requests. `forward` carries the connections of `kubectl port-forward` to whoever runs Pods ([`Dialer`]), by the
//! frames of `spdy` or the channels of a WebSocket.
//!
//! # What it must never do
//!
//! Take an identity from a header; store what did not pass the pipeline; answer a write before it is durable; keep a
//! queue per watcher; let one client's slowness reach another.

mod admission;
mod aftermath;
mod answer;
mod api;
pub mod apply;
mod authorization;
mod background;
pub mod builtin;
mod commit;
pub mod crd;
mod custom;
mod delete;
mod dialing;
pub mod discovery;
pub mod field;
mod files;
mod forward;
mod identity;
mod logs;
mod measure;
mod names;
mod negotiation;
mod object;
pub mod openapi;
pub mod patch;
mod present;
mod protobuf;
mod read;
mod registry;
mod request;
mod router;
pub mod schema;
mod seal;
pub mod selector;
mod serve;
mod spdy;
pub mod status;
pub mod strict;
mod structure;
pub mod table;
mod tokens;
mod watch;
mod write;

pub use api::{Api, ApiOptions, Limits, OpenError};
pub use dialing::{Connection, DialError, DialTarget, Dialer};
pub use identity::Identity;
pub use logs::{LogError, LogRequest, LogSource, LogStream};
pub use seal::SecretSeal;
pub use serve::{CertificateError, CredentialError, KubeconfigError, ServeError, ServeOptions, Serving};
pub use tokens::KeyError;
