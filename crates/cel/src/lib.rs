//! Checks and evaluates CEL expressions that come from tenants: rules of custom resources and of tool
//! policies.
//!
//! # Role
//! [`compile`] turns a source into a [`Program`] and refuses what cannot work (undeclared names, unknown
//! functions, wrong numbers of arguments, literal patterns that are no regular expressions).
//! [`compile_checked`] also checks types against a [`Declaration`] and tells what the expression can cost;
//! [`compile_scoped`] checks types where each variable has its own.
//! [`Program::evaluate`] runs it on [`Variables`] within a [`Budget`] of cost (Kubernetes' cost model),
//! memory and time. [`escape_property`] maps property names to identifiers as Kubernetes does (KA-015).
//!
//! # What it must never do
//! - Run longer than its budget: everything is charged **before** it is done, and recursion is as deep
//!   as the source, which is limited.
//! - Panic or abort on any source or value.
//! - Let the parser's crate be seen outside `parse`; nothing of that crate's evaluator is used, since
//!   it has neither a budget nor an interrupt.
//!
//! # Where to start reading
//! `compile` (what is checked), `check` (the type checker), `estimate` (costs before anything runs), `ast` (the checked form), `evaluate` (how it runs), `functions` (the
//! table of functions), `value` (what it works on).

mod ast;
mod budget;
mod check;
mod compile;
mod costs;
mod declaration;
mod error;
mod escape;
mod estimate;
mod evaluate;
mod functions;
mod operators;
mod parse;
mod patterns;
mod program;
mod syntax;
mod text;
mod trace;
mod value;

pub use budget::{Budget, OBJECT_COST, RULE_COST};
pub use compile::{
    CheckErrors, CheckedProgram, CompileOptions, Environment, ResultType, Scope, ScopedProgram, compile,
    compile_checked, compile_scoped,
};
pub use declaration::{Declaration, Shape};
pub use error::{CompileError, EvaluationError, EvaluationErrorKind};
pub use escape::{RESERVED, escape_property};
pub use functions::NamedFormat;
pub use program::{Program, Variables};
pub use value::{
    Access, AccessDecision, Authorize, Extension, Fields, JsonTooLarge, Key, LazyFields, Map, Network,
    Notation, Quantity, ResourceCheck, Timestamp, Type, Url, Value, Version, canonical_quantity,
};
