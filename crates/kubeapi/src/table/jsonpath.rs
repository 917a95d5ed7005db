//! JSON paths in the dialect of `kubectl`: `{.status.conditions[?(@.type=="Ready")].status}`. Used for printer columns,
//! for scale paths, and by clients of this crate that wait for a field.
//!
//! One expression, with or without its braces. Templates (text between expressions, `range`) are for clients.

mod evaluate;
mod parse;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde_json::Value;
use thiserror::Error;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Why a path does not parse. The texts are those of the reference.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// An action that does not end.
    #[error("unclosed action")]
    UnclosedAction,
    /// An array that does not end.
    #[error("unterminated array")]
    UnterminatedArray,
    /// A filter that does not end.
    #[error("unterminated filter")]
    UnterminatedFilter,
    /// A filter without its closing bracket.
    #[error("unclosed array expect ]")]
    UnclosedFilter,
    /// A text that does not end, or has a bad escape.
    #[error("unterminated quoted string")]
    UnterminatedText,
    /// A character that begins nothing.
    #[error("unrecognized character in action: {0:?}")]
    Character(char),
    /// An index that is none.
    #[error("invalid array index {0}")]
    Index(String),
    /// A number that is none.
    #[error("cannot parse number {0}")]
    Number(String),
    /// A name that means nothing here.
    #[error("unrecognized identifier {0}")]
    Identifier(String),
    /// `....`
    #[error("invalid multiple recursive descent")]
    Recursive,
    /// An operator that is none.
    #[error("unrecognized filter operator {0}")]
    Operator(String),
}

/// Why a path cannot be followed in a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FindError {
    /// An index into something else.
    #[error("value is not array or slice")]
    NotAList,
    /// An index that is not there.
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        /// The index.
        index: i64,
        /// The length of the list.
        length: usize,
    },
    /// A range that ends before it starts.
    #[error("starting index {start} is greater than ending index {end}")]
    Backwards {
        /// Where it starts.
        start: i64,
        /// Where it ends.
        end: i64,
    },
    /// A step of a range that does not go forward.
    #[error("step must be > 0")]
    Step,
    /// A side of a comparison that is several values.
    #[error("can only compare one element at a time")]
    Several,
    /// Two values that cannot be compared.
    #[error("incompatible types for comparison")]
    Incomparable,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Wildcard,
    Recursive,
    Range {
        start: Option<i64>,
        end: Option<i64>,
        step: Option<i64>,
        single: bool,
    },
    Union(Vec<Vec<Step>>),
    Filter {
        left: Vec<Step>,
        comparison: Option<(Operator, Vec<Step>)>,
    },
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path: `.a.b`, `{.a.b}` or `$.a.b`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let trimmed = text.trim();
        let inside = trimmed
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(trimmed);
        parse::action(inside).map(|steps| Self { steps })
    }

    /// The values that the path leads to; none when something on the way is missing.
    ///
    /// # Errors
    /// A value on the way that is not what the path needs it to be.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Vec<Cow<'a, Value>>, FindError> {
        evaluate::walk(&self.steps, vec![Cow::Borrowed(value)])
    }

    /// The names of a path that is nothing but fields, such as `.spec.replicas`.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.steps
            .iter()
            .map(|step| match step {
                Step::Field(name) => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

/// A found value as text: a text as it is, lists and maps as JSON.
pub fn print(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
