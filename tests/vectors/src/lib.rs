//! Conformance vectors: scripts of requests, written as data, whose answers are compared between a real API server and
//! the embedded one, or with what the real one answered when [`Golden`] files were written.
//!
//! [`Suite::load`] reads `cases/*.yaml`; [`run_file`] sends the scripts of one file to a server through a
//! `kube::Client` and gives [`Answers`], normalised so that answers of two servers are equal when their behaviour is;
//! [`differences`] compares them; [`Allowed`] holds the differences that are accepted, each with its reason.
//!
//! It must never know which server it talks to, nor drop a difference: what is not compared is named in the case.
//!
//! Start with [`Case`] and `cases/README.md`, then `run`.

mod answers;
mod case;
mod compare;
mod normalise;
mod placeholders;
mod pointer;
mod run;

pub use answers::{Answers, Golden};
pub use case::{Case, CaseFile, Step, Suite, Until};
pub use compare::{Allowed, AllowedDifference, Difference, Words, differences};
pub use run::{Server, run_file};
