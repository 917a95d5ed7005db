//! Compiling with types: for expressions that decide about values of a declared shape, as the rules of a custom resource
//! do (KA-015).

use super::{CompileOptions, lower};
use crate::check::{self, Checked, Expression, Part, PieceKind, StaticType};
use crate::declaration::{Declaration, Types};
use crate::error::CompileError;
use crate::estimate;
use crate::functions::{self, Lookup};
use crate::parse;
use crate::patterns;
use crate::program::Program;
use crate::syntax::Syntax;
use crate::value::Value;

/// Most errors that are told of one expression.
const TOLD: usize = 100;
/// The name of the type of an environment's variables in messages, when they are objects.
const TYPE_NAME: &str = "selfType";

/// The variables of an expression, all of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The shape of each variable.
    pub declaration: &'a Declaration,
    /// Names of the variables, with whether each is an optional value of that shape.
    pub variables: &'a [(&'a str, bool)],
}

/// An expression without mistakes.
#[derive(Clone, Debug)]
pub struct CheckedProgram {
    /// What evaluates it.
    pub program: Program,
    /// The type of its result, as messages write types: `bool`, `list(string)`, `dyn`.
    pub result: String,
    /// Most cost units that an evaluation can take, by the sizes in the declaration.
    pub max_cost: u64,
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckErrors {
    /// The mistakes in it, in the order of their places.
    #[error("{}", rendered(errors, *more))]
    Compilation {
        /// The first hundred; at least one.
        errors: Vec<CompileError>,
        /// How many more there are.
        more: usize,
    },
    /// It has no mistake that the checker knows, but a literal of it cannot be what it should become.
    #[error("{0}")]
    Instantiation(String),
}

fn rendered(errors: &[CompileError], more: usize) -> String {
    let mut lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if more > 0 {
        lines.push(format!("{more} more errors were truncated"));
    }
    lines.join("\n")
}

impl From<CompileError> for CheckErrors {
    fn from(error: CompileError) -> Self {
        Self::Compilation {
            errors: vec![error],
            more: 0,
        }
    }
}

/// Checks an expression with the types of its variables, finds out what it can cost, and makes it ready for evaluation.
/// The variables of the options are ignored.
///
/// # Errors
/// A syntax error, or every mistake that the reference's type checker finds: undeclared names and fields, functions that
/// do not take such values, literals that are no times, durations or patterns.
pub fn compile_checked(
    source: &str,
    options: &CompileOptions,
    environment: Environment<'_>,
) -> Result<CheckedProgram, CheckErrors> {
    let mut types = Types::default();
    let declared = types.declare(TYPE_NAME, environment.declaration);
    let variables: Vec<(String, StaticType)> = environment
        .variables
        .iter()
        .map(|&(name, optional)| {
            let declared = if optional {
                StaticType::optional(declared.clone())
            } else {
                declared.clone()
            };
            (name.to_owned(), declared)
        })
        .collect();
    let (syntax, checked) = checked(source, options, &variables, &types)?;
    let max_cost = estimate::estimate(&checked, environment.declaration).max;
    let options = CompileOptions {
        variables: variables.into_iter().map(|(name, _)| name).collect(),
        ..options.clone()
    };
    Ok(CheckedProgram {
        program: lower(source, syntax, &options)?,
        result: checked.result().to_string(),
        max_cost,
    })
}

/// Parses an expression and checks its types.
pub(super) fn checked(
    source: &str,
    options: &CompileOptions,
    variables: &[(String, StaticType)],
    types: &Types,
) -> Result<(Syntax, Checked), CheckErrors> {
    let syntax = parse::parse(source, options).map_err(|error| match parse::diagnose(source) {
        mistakes if mistakes.is_empty() => error.into(),
        errors => CheckErrors::Compilation { errors, more: 0 },
    })?;
    let Some(expression) = Expression::expand(source, &syntax) else {
        return Err(CompileError::whole("expression node limit exceeded").into());
    };
    let checked = check::check(expression, variables, types).map_err(|mistakes| {
        let more = mistakes.len().saturating_sub(TOLD);
        let errors = mistakes
            .into_iter()
            .take(TOLD)
            .map(|mistake| CompileError::at(source, mistake.offset, mistake.message))
            .collect();
        CheckErrors::Compilation { errors, more }
    })?;
    instantiate(&checked)?;
    Ok((syntax, checked))
}

/// Makes what can be made of literals beforehand: values of other types, and patterns.
fn instantiate(checked: &check::Checked) -> Result<(), CheckErrors> {
    let expression = &checked.expression;
    let literal = |part: Part| match expression.kind(part) {
        Some(PieceKind::Literal(value)) => Some(value.clone()),
        _ => None,
    };
    for piece in &expression.pieces {
        let PieceKind::Call {
            target,
            function,
            arguments,
        } = &piece.kind
        else {
            continue;
        };
        let Some(first) = arguments.first().and_then(|&part| literal(part)) else {
            continue;
        };
        if let ("find" | "findAll", Value::String(pattern)) = (&**function, &first)
            && let Err(reason) = patterns::compile(pattern)
        {
            return Err(CheckErrors::Instantiation(patterns::explained(pattern, &reason)));
        }
        if target.is_none()
            && let Lookup::Found(conversion) = functions::find(function, false, arguments.len())
            && conversion.is_conversion
        {
            conversion
                .convert(&first)
                .map_err(|error| CheckErrors::Instantiation(error.to_string()))?;
        }
    }
    Ok(())
}
