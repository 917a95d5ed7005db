//! A workload in a process of its own: what the server and that process say to each other, and the process's side of it.
//!
//! The server starts its own binary again, with one end of a socket pair as standard input. Over it the process first hears
//! what it is ([`Start`]), and then which Services lead where; it answers where it listens, whether it can serve and why its
//! role ended ([`ToServer`]), and calls the server for what they share ([`calls`]). Its standard output and standard error are the Pod's log. It is told to end by SIGTERM.
//!
//! The end of the socket pair is the end of the server, however that came: a thread that does nothing else waits for it and
//! kills the process, so that none is left behind.

pub mod calls;
mod child;
mod message;
mod routes;

pub use child::{ProcessError, run};
pub use message::{KubernetesAccess, Port, Start, ToServer, ToWorkload};
pub use routes::{Route, RouteTable, ServiceRoute};
