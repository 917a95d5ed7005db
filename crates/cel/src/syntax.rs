//! The form of an expression as it was written: macros found, names not yet resolved.

use crate::ast::{FoldKind, SelectMode};
use crate::value::Value;

/// One part of an expression with its place in the source.
#[derive(Debug)]
pub(crate) struct Syntax {
    /// Byte offset in the source.
    pub(crate) offset: usize,
    pub(crate) form: Form,
}

#[derive(Debug)]
pub(crate) enum Form {
    Literal(Value),
    Name(String),
    Select {
        operand: Box<Syntax>,
        field: String,
        mode: SelectMode,
    },
    Index {
        operand: Box<Syntax>,
        index: Box<Syntax>,
        optional: bool,
    },
    /// Operators are calls too, by the reference's names (`_+_`).
    Call {
        target: Option<Box<Syntax>>,
        function: String,
        arguments: Vec<Syntax>,
    },
    List(Vec<(Syntax, bool)>),
    Map(Vec<(Syntax, Syntax, bool)>),
    Fold(Box<FoldSyntax>),
    /// `cel.bind(name, value, body)`
    Bind {
        name: String,
        value: Box<Syntax>,
        body: Box<Syntax>,
    },
    /// `x.optMap(name, body)` and `x.optFlatMap(name, body)`
    OptionalMap {
        operand: Box<Syntax>,
        name: String,
        body: Box<Syntax>,
        flat: bool,
    },
}

#[derive(Debug)]
pub(crate) struct FoldSyntax {
    pub(crate) range: Syntax,
    pub(crate) kind: FoldKind,
    pub(crate) first: String,
    pub(crate) second: Option<String>,
    pub(crate) condition: Option<Syntax>,
    pub(crate) step: Syntax,
}
