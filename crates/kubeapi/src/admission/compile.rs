//! From the expressions of a policy to programs.

use mainstay_cel::{
    CheckErrors, CompileOptions, Declaration, ResultType, Scope, ScopedProgram, compile_scoped,
};

use super::{
    model::PolicySpec,
    shapes::{self, VARIABLES},
};

/// The same bounds as for the rules of custom resources.
const MAX_SOURCE_BYTES: usize = 64 * 1024;
const MAX_NODES: usize = 16 * 1024;

/// What an expression may result in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Bool,
    Text,
    TextOrNull,
    Anything,
}

impl Expected {
    /// The reference's words for a result of another type.
    fn refusal(self, found: &ResultType) -> Option<String> {
        let (fits, wanted) = match self {
            Self::Anything => return None,
            Self::Bool => (found.is("bool"), "must evaluate to bool"),
            Self::Text => (found.is("string"), "must evaluate to string"),
            Self::TextOrNull => (
                found.is("string") || found.is("null_type"),
                "must evaluate to one of [string null_type]",
            ),
        };
        (!fits).then(|| format!("{wanted} but got {found}"))
    }
}

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is wrong.
    Invalid(String),
    /// A program could not be made of it.
    Internal(String),
}

impl Fault {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Invalid(text) | Self::Internal(text) => text,
        }
    }
}

/// A compiled expression, or what is wrong with it.
pub(super) type Compiled = Result<ScopedProgram, Fault>;

/// The types of what expressions see, where they are known; anything is expected of the others.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// `object` and `oldObject`, with the name of their type.
    pub(super) object: Option<(String, Declaration)>,
    /// `params`, with the name of their type.
    pub(super) parameters: Option<(String, Declaration)>,
}

/// The variables that the expressions of one policy see. `variables` gain fields as they are compiled.
#[derive(Debug)]
pub(super) struct Expressions {
    /// With `authorizer`.
    full: Scope,
    /// Without: messages may not ask who may do what.
    messages: Scope,
}

impl Expressions {
    /// For a policy with parameters or without; `composed` makes `variables` known.
    pub(super) fn new(parameters: bool, composed: bool) -> Self {
        let scope = |authorizer: bool| {
            let mut scope = scope(parameters, composed, &Known::default());
            if authorizer {
                declare_authorizer(&mut scope);
                let check = shapes::opaque("kubernetes.authorization.ResourceCheck");
                scope.declare(&["authorizer.requestResource"], "", &check);
            }
            scope
        };
        Self {
            full: scope(true),
            messages: scope(false),
        }
    }

    /// Compiles an expression that sees everything.
    pub(super) fn compile(&self, source: &str, expected: Expected) -> Compiled {
        compile(source, expected, &self.full)
    }

    /// Compiles a message.
    pub(super) fn compile_message(&self, source: &str) -> Compiled {
        compile(source, Expected::Text, &self.messages)
    }

    /// Compiles a variable, which later expressions see.
    pub(super) fn add_variable(&mut self, name: &str, source: &str) -> Compiled {
        let compiled = self.compile(source, Expected::Anything);
        let result = compiled.as_ref().ok().map(|program| &program.result);
        for scope in [&mut self.full, &mut self.messages] {
            scope.add_field(VARIABLES, name, result);
        }
        compiled
    }
}

fn scope(parameters: bool, composed: bool, known: &Known) -> Scope {
    let mut scope = Scope::new();
    let anything = shapes::dynamic();
    let (name, declaration) = match &known.object {
        Some((name, declaration)) => (name.as_str(), declaration),
        None => ("", &anything),
    };
    scope.declare(&["object", "oldObject"], name, declaration);
    scope.declare(&["namespaceObject"], "", &shapes::namespace());
    scope.declare(&["request"], "", &shapes::request());
    if parameters {
        let (name, declaration) = match &known.parameters {
            Some((name, declaration)) => (name.as_str(), declaration),
            None => ("", &anything),
        };
        scope.declare(&["params"], name, declaration);
    }
    if composed {
        scope.declare(&["variables"], "", &shapes::variables());
    }
    scope
}

fn declare_authorizer(scope: &mut Scope) {
    let authorizer = shapes::opaque("kubernetes.authorization.Authorizer");
    scope.declare(&["authorizer"], "", &authorizer);
}

fn options() -> CompileOptions {
    CompileOptions {
        max_source_bytes: MAX_SOURCE_BYTES,
        max_nodes: MAX_NODES,
        ..CompileOptions::default()
    }
}

fn compile(source: &str, expected: Expected, scope: &Scope) -> Compiled {
    match compile_scoped(source, &options(), scope) {
        Ok(program) => match expected.refusal(&program.result) {
            None => Ok(program),
            Some(refusal) => Err(Fault::Invalid(refusal)),
        },
        Err(CheckErrors::Instantiation(fault)) => {
            Err(Fault::Internal(format!("program instantiation failed: {fault}")))
        }
        Err(errors @ CheckErrors::Compilation { .. }) => {
            Err(Fault::Invalid(format!("compilation failed: {errors}")))
        }
    }
}

/// What is wrong with an expression of a policy if its variables have these types; `None` for nothing. The policy's own
/// variables are compiled first, whatever is wrong with them.
pub(super) fn check_types(spec: &PolicySpec, expression: &str, known: &Known) -> Option<String> {
    let mut scope = scope(spec.param_kind.is_some(), true, known);
    declare_authorizer(&mut scope);
    for variable in &spec.variables {
        // A variable that is wrong is told of where it stands; what uses it goes on without its type.
        let compiled = compile_scoped(&variable.expression, &options(), &scope).ok();
        scope.add_field(
            VARIABLES,
            &variable.name,
            compiled.as_ref().map(|program| &program.result),
        );
    }
    match compile_scoped(expression, &options(), &scope) {
        Err(errors @ CheckErrors::Compilation { .. }) => Some(errors.to_string()),
        // No program is made here, so what only a program shows is not told.
        Err(CheckErrors::Instantiation(_)) | Ok(_) => None,
    }
}

/// A policy ready to run.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) conditions: Vec<Named>,
    pub(super) variables: Vec<Named>,
    pub(super) validations: Vec<Judged>,
    pub(super) annotations: Vec<Named>,
    /// How deep the evaluation of each variable may be nested, through those that it may use.
    pub(super) nesting: Vec<usize>,
}

/// An expression with its name: of a condition, a variable, or an annotation's key.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) program: Compiled,
}

/// A validation.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) source: String,
    pub(super) program: Compiled,
    pub(super) message: String,
    /// The source of the message expression and what was made of it.
    pub(super) message_expression: Option<(String, Compiled)>,
    pub(super) reason: Option<String>,
}

impl Programs {
    /// Compiles everything. What does not compile, which a policy that was checked does not have, fails when it is needed.
    pub(super) fn compile(spec: &PolicySpec) -> Self {
        let mut expressions = Expressions::new(spec.param_kind.is_some(), true);
        let variables: Vec<Named> = spec
            .variables
            .iter()
            .map(|variable| Named {
                name: variable.name.clone(),
                source: variable.expression.clone(),
                program: expressions.add_variable(&variable.name, &variable.expression),
            })
            .collect();
        let conditions = spec
            .match_conditions
            .iter()
            .map(|condition| Named {
                name: condition.name.clone(),
                source: condition.expression.clone(),
                program: expressions.compile(&condition.expression, Expected::Bool),
            })
            .collect();
        let validations = spec
            .validations
            .iter()
            .map(|validation| Judged {
                source: validation.expression.clone(),
                program: expressions.compile(&validation.expression, Expected::Bool),
                message: validation.message.clone(),
                message_expression: (!validation.message_expression.is_empty()).then(|| {
                    let source = validation.message_expression.clone();
                    let compiled = expressions.compile_message(&source);
                    (source, compiled)
                }),
                reason: validation.reason.clone(),
            })
            .collect();
        let annotations = spec
            .audit_annotations
            .iter()
            .map(|annotation| Named {
                name: annotation.key.clone(),
                source: annotation.value_expression.clone(),
                program: expressions.compile(&annotation.value_expression, Expected::TextOrNull),
            })
            .collect();
        Self {
            nesting: nesting(&variables),
            conditions,
            variables,
            validations,
            annotations,
        }
    }

    /// Whether any expression mentions this variable.
    pub(super) fn uses(&self, name: &str) -> bool {
        let named = [&self.conditions, &self.variables, &self.annotations];
        let messages = self
            .validations
            .iter()
            .filter_map(|validation| validation.message_expression.as_ref())
            .map(|(_, program)| program);
        named
            .into_iter()
            .flatten()
            .map(|named| &named.program)
            .chain(self.validations.iter().map(|validation| &validation.program))
            .chain(messages)
            .filter_map(|program| program.as_ref().ok())
            .any(|compiled| compiled.program.uses_variable(name))
    }
}

fn nesting(variables: &[Named]) -> Vec<usize> {
    let mut deepest = 0;
    let mut nesting = Vec::with_capacity(variables.len());
    for variable in variables {
        let own = match &variable.program {
            // Which of the earlier ones it uses is not always told by its text.
            Ok(compiled) if compiled.program.uses_variable("variables") => {
                compiled.depth.saturating_add(deepest)
            }
            Ok(compiled) => compiled.depth,
            Err(_) => 0,
        };
        deepest = deepest.max(own);
        nesting.push(own);
    }
    nesting
}
