//! Names of what an expression reads, for traces.

use super::Checker;
use crate::ast::SelectMode;
use crate::syntax::{Form, Syntax};
use crate::value::Value;

/// Bytes of a path in a trace.
const PATH_LENGTH: usize = 200;

impl Checker<'_> {
    /// How a trace names this part, when it is a declared variable or a selection from one.
    pub(super) fn path(&self, syntax: &Syntax) -> Option<String> {
        let path = self.path_text(syntax)?;
        (path.len() <= PATH_LENGTH).then_some(path)
    }

    fn path_text(&self, syntax: &Syntax) -> Option<String> {
        match &syntax.form {
            Form::Name(name) => {
                let declared = !self.locals.contains(name) && self.variables.contains(name);
                declared.then(|| name.clone())
            }
            Form::Select { operand, field, mode } => {
                let operand = self.path_text(operand)?;
                Some(match mode {
                    SelectMode::Plain => format!("{operand}.{field}"),
                    SelectMode::Optional => format!("{operand}.?{field}"),
                    SelectMode::Test => format!("has({operand}.{field})"),
                })
            }
            Form::Index {
                operand,
                index,
                optional,
            } => {
                let operand = self.path_text(operand)?;
                let index = match &index.form {
                    Form::Literal(Value::String(key)) => format!("\"{}\"", key.escape_debug()),
                    Form::Literal(Value::Int(key)) => key.to_string(),
                    _ => self.path_text(index)?,
                };
                let mark = if *optional { "?" } else { "" };
                Some(format!("{operand}[{mark}{index}]"))
            }
            _ => None,
        }
    }
}
