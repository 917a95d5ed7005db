//! Compiling with variables that each have a type of their own, as the expressions of an admission policy do.

use super::typed::{self, CheckErrors};
use super::{CompileOptions, lower};
use crate::check::StaticType;
use crate::declaration::{Declaration, Types};
use crate::program::Program;

/// The variables of an expression and the object types they have.
#[derive(Debug, Default)]
pub struct Scope {
    variables: Vec<(String, StaticType)>,
    types: Types,
}

/// The type of an expression's result.
#[derive(Clone, Debug)]
pub struct ResultType(StaticType);

/// An expression without mistakes.
#[derive(Clone, Debug)]
pub struct ScopedProgram {
    /// What evaluates it.
    pub program: Program,
    /// The type of its result.
    pub result: ResultType,
    /// How deep it is nested with its macros written out. An evaluation recurses as deep.
    pub depth: usize,
}

impl Scope {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds variables of that shape. Objects without a name of their own are called by their path below `type_name`. A name
    /// may have a dot (`authorizer.requestResource`).
    pub fn declare(&mut self, names: &[&str], type_name: &str, declaration: &Declaration) {
        let declared = self.types.declare(type_name, declaration);
        self.variables
            .extend(names.iter().map(|name| ((*name).to_owned(), declared.clone())));
    }

    /// Adds a field to the objects of a type, with the type of the expression that it comes from; `None` for one that
    /// could not be compiled, of which anything may be expected.
    pub fn add_field(&mut self, type_name: &str, field: &str, result: Option<&ResultType>) {
        let found = result.map_or(StaticType::Dyn, |result| result.0.as_field());
        self.types.add(type_name, field, found);
    }
}

impl ResultType {
    /// Whether it is the type of that name, as values write their type: `string`, `null_type`, `list(int)`.
    pub fn is(&self, name: &str) -> bool {
        self.to_string() == name
    }
}

impl std::fmt::Display for ResultType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0.declared_name())
    }
}

/// Checks an expression with the types of its variables, and makes it ready for evaluation. The variables of the options are
/// ignored.
///
/// # Errors
/// A syntax error, or every mistake that the reference's type checker finds.
pub fn compile_scoped(
    source: &str,
    options: &CompileOptions,
    scope: &Scope,
) -> Result<ScopedProgram, CheckErrors> {
    let (syntax, checked) = typed::checked(source, options, &scope.variables, &scope.types)?;
    let options = CompileOptions {
        variables: scope.variables.iter().map(|(name, _)| name.clone()).collect(),
        ..options.clone()
    };
    Ok(ScopedProgram {
        depth: checked.expression.depth(),
        result: ResultType(checked.result().clone()),
        program: lower(source, syntax, &options)?,
    })
}
