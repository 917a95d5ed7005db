//! What can go wrong: when an expression is compiled, and when it is evaluated. The texts follow the
//! reference implementation (cel-go), since users and tests of Kubernetes read them.

use crate::value::{Type, Value};

/// An expression that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render())]
pub struct CompileError {
    /// What is wrong, without position.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The text of that line, shortened when it is very long; empty when the error has no place.
    pub snippet: String,
}

/// Characters of a line that an error shows.
const SNIPPET_LENGTH: usize = 1024;

impl CompileError {
    /// An error at a byte offset of the source.
    pub(crate) fn at(source: &str, offset: usize, message: impl Into<String>) -> Self {
        let mut offset = offset.min(source.len());
        while !source.is_char_boundary(offset) {
            offset -= 1;
        }
        let before = &source[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = source[line_start..].lines().next().unwrap_or_default();
        Self {
            message: message.into(),
            line: before.matches('\n').count() + 1,
            column: source[line_start..offset].chars().count() + 1,
            snippet: line_text.chars().take(SNIPPET_LENGTH).collect(),
        }
    }

    /// An error of the expression as a whole.
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            line: 1,
            column: 1,
            snippet: String::new(),
        }
    }

    fn render(&self) -> String {
        let mut text = format!("ERROR: <input>:{}:{}: {}", self.line, self.column, self.message);
        if !self.snippet.is_empty() && self.column <= SNIPPET_LENGTH {
            text.push_str("\n | ");
            text.push_str(&self.snippet.replace('\t', " "));
            text.push_str("\n | ");
            // Characters that take several bytes are taken for wide ones, as in the reference.
            let mut characters = self.snippet.chars();
            for character in characters.by_ref().take(self.column - 1) {
                text.push(if character.len_utf8() > 1 { '．' } else { '.' });
            }
            let is_wide = characters
                .next()
                .is_some_and(|character| character.len_utf8() > 1);
            text.push(if is_wide { '＾' } else { '^' });
        }
        text
    }
}

/// Why an evaluation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationErrorKind {
    /// The cost budget is used up.
    CostExceeded,
    /// The memory budget is used up.
    MemoryExceeded,
    /// The deadline has passed.
    DeadlineExceeded,
    /// A map has no such key, an object no such field.
    NoSuchKey,
    /// The operation does not exist for values of these types.
    NoSuchOverload,
    /// A declared variable was not given.
    NoSuchVariable,
    /// An integer, time or duration left its range.
    Overflow,
    /// Division or remainder by zero.
    DivisionByZero,
    /// An index outside a list or text.
    IndexOutOfBounds,
    /// A value cannot be converted to the wanted type.
    Conversion,
    /// An argument the function cannot work with, such as a broken pattern.
    InvalidArgument,
    /// The value of an empty optional was asked for.
    EmptyOptional,
}

/// An evaluation that ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvaluationError {
    kind: EvaluationErrorKind,
    message: Box<str>,
    /// The reference's words where ours say more.
    reference: Option<Box<str>>,
}

impl EvaluationError {
    pub(crate) fn new(kind: EvaluationErrorKind, message: impl Into<Box<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            reference: None,
        }
    }

    /// The same failure, which the reference words in another way.
    pub(crate) fn in_the_reference(mut self, words: impl Into<Box<str>>) -> Self {
        self.reference = Some(words.into());
        self
    }

    /// What the reference says of it: for answers in which clients look for its words.
    pub fn reference(&self) -> &str {
        self.reference.as_deref().unwrap_or(&self.message)
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> EvaluationErrorKind {
        self.kind
    }

    /// Whether a limit ended the evaluation. Such an error is never absorbed by `&&` or `||`.
    pub fn is_limit(&self) -> bool {
        matches!(
            self.kind,
            EvaluationErrorKind::CostExceeded
                | EvaluationErrorKind::MemoryExceeded
                | EvaluationErrorKind::DeadlineExceeded
        )
    }

    pub(crate) fn no_overload(function: &str, arguments: &[Value]) -> Self {
        let types: Vec<&str> = arguments
            .iter()
            .map(|argument| argument.type_of().name())
            .collect();
        let error = Self::new(
            EvaluationErrorKind::NoSuchOverload,
            format!("no such overload: {function}({})", types.join(", ")),
        );
        match function {
            // Operators, and what the standard library binds to the type of its target.
            "@in" | "startsWith" | "endsWith" | "contains" | "matches" => {
                error.in_the_reference("no such overload")
            }
            _ if function.starts_with(['_', '!', '-']) => error.in_the_reference("no such overload"),
            "size" => error.in_the_reference("no such overload: size"),
            _ => error,
        }
    }

    pub(crate) fn no_key(key: impl std::fmt::Display) -> Self {
        Self::new(EvaluationErrorKind::NoSuchKey, format!("no such key: {key}"))
    }

    pub(crate) fn overflow(message: &str) -> Self {
        Self::new(EvaluationErrorKind::Overflow, message)
    }

    pub(crate) fn index(index: impl std::fmt::Display) -> Self {
        Self::new(
            EvaluationErrorKind::IndexOutOfBounds,
            format!("index out of bounds: {index}"),
        )
    }

    pub(crate) fn conversion(from: Type, to: Type) -> Self {
        Self::new(
            EvaluationErrorKind::Conversion,
            format!("type conversion error from '{}' to '{}'", from.name(), to.name()),
        )
    }

    pub(crate) fn argument(message: impl Into<Box<str>>) -> Self {
        Self::new(EvaluationErrorKind::InvalidArgument, message)
    }
}
