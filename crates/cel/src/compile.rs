//! From source to [`Program`]: names, functions and literal patterns are checked here, so that an
//! expression with a mistake is refused when it is written and not when it first decides something.

mod operator;
mod path;
mod scope;
mod typed;

use std::sync::Arc;

use self::operator::{Operator, operator};
pub use self::scope::{ResultType, Scope, ScopedProgram, compile_scoped};
pub use self::typed::{CheckErrors, CheckedProgram, Environment, compile_checked};
use crate::ast::{BinaryOperator, Call, Fold, Index, Kind, ListItem, MapItem, Node, Select, SelectMode};
use crate::error::CompileError;
use crate::functions::{self, Function, Lookup};
use crate::parse;
use crate::patterns;
use crate::program::Program;
use crate::syntax::{FoldSyntax, Form, Syntax};
use crate::value::{Type, Value};

/// What an expression may be and may mention.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Names of the variables. Any other free name is a compile error.
    pub variables: Vec<String>,
    /// Longest source in bytes.
    pub max_source_bytes: usize,
    /// Deepest nesting of the expression. Evaluation recurses as deep.
    pub max_depth: usize,
    /// Most parts (names, literals, operators, calls) of the expression.
    pub max_nodes: usize,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            variables: Vec::new(),
            max_source_bytes: 5120,
            max_depth: 100,
            max_nodes: 2048,
        }
    }
}

impl CompileOptions {
    /// The default limits with these variables.
    pub fn with_variables<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self {
            variables: names.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}

/// Checks an expression and makes it ready for evaluation.
///
/// # Errors
/// A syntax error, an undeclared name, an unknown function or wrong number of arguments, a literal
/// pattern that is no regular expression, or a limit of the options; with line, column and the line.
pub fn compile(source: &str, options: &CompileOptions) -> Result<Program, CompileError> {
    lower(source, parse::parse(source, options)?, options)
}

/// Resolves the names of a parsed expression.
fn lower(source: &str, syntax: Syntax, options: &CompileOptions) -> Result<Program, CompileError> {
    let mut keys = Vec::new();
    let mut used = vec![false; options.variables.len()];
    let mut checker = Checker {
        source,
        variables: &options.variables,
        locals: Vec::new(),
        used: &mut used,
        keys: &mut keys,
    };
    let root = checker.check(syntax)?;
    let variables: Vec<Arc<str>> = options
        .variables
        .iter()
        .map(|name| name.as_str().into())
        .collect();
    Ok(Program::new(source, root, variables, used, keys))
}

struct Checker<'a> {
    source: &'a str,
    variables: &'a [String],
    /// Variables of the macros around the current part, outermost first.
    locals: Vec<String>,
    used: &'a mut Vec<bool>,
    /// Literal keys by the index of the variable they are looked up in.
    keys: &'a mut Vec<(usize, String)>,
}

impl Checker<'_> {
    fn error(&self, offset: usize, message: impl Into<String>) -> CompileError {
        CompileError::at(self.source, offset, message)
    }

    fn undeclared(&self, offset: usize, name: &str) -> CompileError {
        self.error(
            offset,
            format!("undeclared reference to '{name}' (in container '')"),
        )
    }

    fn is_declared(&self, name: &str) -> bool {
        self.locals.iter().any(|local| local == name)
            || self.variables.iter().any(|variable| variable == name)
    }

    // The methods below call each other as deep as the expression is nested. They are small, and what
    // builds a node from checked parts is apart, so that the frames of a deep expression fit a stack.

    /// Checks a part; what reads a declared variable is marked for traces.
    fn check(&mut self, syntax: Syntax) -> Result<Node, CompileError> {
        let path = self.path(&syntax);
        let offset = syntax.offset;
        let node = self.check_plain(syntax)?;
        Ok(match path {
            Some(path) => Node {
                offset,
                kind: Kind::Observed {
                    path: path.into(),
                    node: Box::new(node),
                },
            },
            None => node,
        })
    }

    /// Checks the start of a selection chain: not marked, since the whole chain is.
    fn check_operand(&mut self, syntax: Syntax) -> Result<Node, CompileError> {
        if self.path(&syntax).is_some() {
            self.check_plain(syntax)
        } else {
            self.check(syntax)
        }
    }

    fn check_plain(&mut self, syntax: Syntax) -> Result<Node, CompileError> {
        let Syntax { offset, form } = syntax;
        let kind = match form {
            Form::Literal(value) => Kind::Literal(value),
            Form::Name(name) => self.name(&name, offset)?,
            Form::Select { operand, field, mode } => self.select(*operand, field, mode)?,
            Form::Index {
                operand,
                index,
                optional,
            } => self.index(*operand, *index, optional)?,
            Form::Call {
                target,
                function,
                arguments,
            } => self.call(target, &function, arguments, offset)?,
            Form::List(items) => self.list(items)?,
            Form::Map(items) => self.map(items)?,
            Form::Fold(fold) => self.fold(*fold)?,
            Form::Bind { name, value, body } => Kind::Bind(self.bound(name, *value, *body)?),
            Form::OptionalMap {
                operand,
                name,
                body,
                flat,
            } => Kind::OptionalMap {
                parts: self.bound(name, *operand, *body)?,
                flat,
            },
        };
        Ok(Node { offset, kind })
    }

    fn select(&mut self, operand: Syntax, field: String, mode: SelectMode) -> Result<Kind, CompileError> {
        if let Some(named) = self.qualified_type(&operand, &field) {
            return Ok(Kind::Literal(Value::Type(named)));
        }
        if let (SelectMode::Plain, Some(variable)) = (mode, self.qualified_variable(&operand, &field)) {
            return Ok(variable);
        }
        self.note_key(&operand, &field);
        let operand = self.check_operand(operand)?;
        let field = field.into();
        Ok(Kind::Select(Box::new(Select { operand, field, mode })))
    }

    fn index(&mut self, operand: Syntax, index: Syntax, optional: bool) -> Result<Kind, CompileError> {
        if let Form::Literal(Value::String(key)) = &index.form {
            self.note_key(&operand, key);
        }
        let operand = self.check_operand(operand)?;
        let index = self.check(index)?;
        Ok(Kind::Index(Box::new(Index {
            operand,
            index,
            optional,
        })))
    }

    fn list(&mut self, items: Vec<(Syntax, bool)>) -> Result<Kind, CompileError> {
        let mut checked = Vec::with_capacity(items.len());
        for (value, optional) in items {
            let value = self.check(value)?;
            checked.push(ListItem { value, optional });
        }
        Ok(Kind::List(checked))
    }

    fn map(&mut self, items: Vec<(Syntax, Syntax, bool)>) -> Result<Kind, CompileError> {
        let mut checked = Vec::with_capacity(items.len());
        for (key, value, optional) in items {
            let key = self.check(key)?;
            let value = self.check(value)?;
            checked.push(MapItem { key, value, optional });
        }
        Ok(Kind::Map(checked))
    }

    /// A value and the body that sees it under a name.
    fn bound(&mut self, name: String, value: Syntax, body: Syntax) -> Result<Box<[Node; 2]>, CompileError> {
        let value = self.check(value)?;
        self.locals.push(name);
        let body = self.check(body);
        self.locals.pop();
        Ok(Box::new([value, body?]))
    }

    fn with_locals<T>(
        &mut self,
        names: impl IntoIterator<Item = String>,
        check: impl FnOnce(&mut Self) -> Result<T, CompileError>,
    ) -> Result<T, CompileError> {
        let before = self.locals.len();
        self.locals.extend(names);
        let result = check(self);
        self.locals.truncate(before);
        result
    }

    fn fold(&mut self, fold: FoldSyntax) -> Result<Kind, CompileError> {
        let FoldSyntax {
            range,
            kind,
            first,
            second,
            condition,
            step,
        } = fold;
        let two = second.is_some();
        let range = self.check(range)?;
        let (condition, step) = self.with_locals([Some(first), second].into_iter().flatten(), |checker| {
            let condition = match condition {
                Some(condition) => Some(checker.check(condition)?),
                None => None,
            };
            Ok((condition, checker.check(step)?))
        })?;
        Ok(Kind::Fold(Box::new(Fold {
            range,
            kind,
            two,
            step,
            condition,
        })))
    }

    fn name(&mut self, name: &str, offset: usize) -> Result<Kind, CompileError> {
        if let Some(local) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Kind::Local(local));
        }
        if let Some(variable) = self.variables.iter().position(|variable| variable == name) {
            if let Some(used) = self.used.get_mut(variable) {
                *used = true;
            }
            return Ok(Kind::Variable(variable));
        }
        match Type::named(name) {
            Some(named) => Ok(Kind::Literal(Value::Type(named))),
            None => Err(self.undeclared(offset, name)),
        }
    }

    /// `google.protobuf.Timestamp` and its like, which look like selections.
    fn qualified_type(&self, operand: &Syntax, field: &str) -> Option<Type> {
        let Form::Select {
            operand: root,
            field: middle,
            mode: SelectMode::Plain,
        } = &operand.form
        else {
            return None;
        };
        match &root.form {
            Form::Name(name) if name == "google" && middle == "protobuf" && !self.is_declared(name) => {
                Type::named(&format!("{name}.{middle}.{field}"))
            }
            _ => None,
        }
    }

    /// A variable whose name has a dot, which looks like a selection.
    fn qualified_variable(&mut self, operand: &Syntax, field: &str) -> Option<Kind> {
        let Form::Name(name) = &operand.form else {
            return None;
        };
        let is_this = |variable: &String| {
            variable
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|rest| rest == field)
        };
        let index = self.variables.iter().position(is_this)?;
        if self.locals.contains(name) {
            return None;
        }
        if let Some(used) = self.used.get_mut(index) {
            *used = true;
        }
        Some(Kind::Variable(index))
    }

    fn note_key(&mut self, operand: &Syntax, key: &str) {
        if let Form::Name(name) = &operand.form
            && !self.locals.contains(name)
            && let Some(variable) = self.variables.iter().position(|variable| variable == name)
        {
            self.keys.push((variable, key.to_owned()));
        }
    }

    fn all(&mut self, arguments: Vec<Syntax>) -> Result<Vec<Node>, CompileError> {
        // A loop, since the frames of iterator adapters would multiply with the nesting.
        let mut checked = Vec::with_capacity(arguments.len());
        for argument in arguments {
            checked.push(self.check(argument)?);
        }
        Ok(checked)
    }

    fn call(
        &mut self,
        target: Option<Box<Syntax>>,
        function: &str,
        arguments: Vec<Syntax>,
        offset: usize,
    ) -> Result<Kind, CompileError> {
        let Some(target) = target else {
            return match operator(function) {
                Some(operator) => self.operator(operator, arguments, offset),
                None => self.function(function, false, arguments, offset),
            };
        };
        if let Form::Name(namespace) = &target.form
            && !self.is_declared(namespace)
        {
            let qualified = format!("{namespace}.{function}");
            if functions::is_known(&qualified, false) {
                return self.function(&qualified, false, arguments, offset);
            }
            if Type::named(namespace).is_none() {
                return Err(self.undeclared(target.offset, namespace));
            }
        }
        if matches!(function, "or" | "orValue") && arguments.len() == 1 {
            return self.optional_or(*target, arguments, function == "orValue", offset);
        }
        let mut all = Vec::with_capacity(arguments.len() + 1);
        all.push(*target);
        all.extend(arguments);
        self.function(function, true, all, offset)
    }

    fn optional_or(
        &mut self,
        target: Syntax,
        mut arguments: Vec<Syntax>,
        unwrap: bool,
        offset: usize,
    ) -> Result<Kind, CompileError> {
        arguments.insert(0, target);
        let parts = self.all(arguments)?;
        let parts =
            <[Node; 2]>::try_from(parts).map_err(|_| self.error(offset, "Syntax error: incomplete call"))?;
        Ok(Kind::OptionalOr {
            parts: Box::new(parts),
            unwrap,
        })
    }

    fn operator(
        &mut self,
        operator: Operator,
        arguments: Vec<Syntax>,
        offset: usize,
    ) -> Result<Kind, CompileError> {
        if let Operator::Binary(BinaryOperator::In) = operator
            && let [key, map] = arguments.as_slice()
            && let Form::Literal(Value::String(key)) = &key.form
        {
            let key = key.to_string();
            self.note_key(map, &key);
        }
        let checked = self.all(arguments)?;
        self.operation(operator, checked, offset)
    }

    fn function(
        &mut self,
        name: &str,
        member: bool,
        arguments: Vec<Syntax>,
        offset: usize,
    ) -> Result<Kind, CompileError> {
        let function = self.find_function(name, member, arguments.len(), offset)?;
        let arguments = self.all(arguments)?;
        self.applied(function, arguments)
    }

    fn find_function(
        &self,
        name: &str,
        member: bool,
        arguments: usize,
        offset: usize,
    ) -> Result<&'static Function, CompileError> {
        // The reference points at the bracket; the parser gives the start of the name.
        let named = !member
            && self
                .source
                .get(offset..)
                .is_some_and(|rest| rest.starts_with(name));
        let offset = if named { offset + name.len() } else { offset };
        match functions::find(name, member, arguments) {
            Lookup::Found(function) => Ok(function),
            Lookup::WrongArguments => {
                let dynamic = vec!["dyn"; arguments - usize::from(member)].join(", ");
                let applied = if member {
                    format!("dyn.({dynamic})")
                } else {
                    format!("({dynamic})")
                };
                Err(self.error(
                    offset,
                    format!("found no matching overload for '{name}' applied to '{applied}'"),
                ))
            }
            Lookup::Unknown => Err(self.undeclared(offset, name)),
        }
    }

    fn applied(&self, function: &'static Function, arguments: Vec<Node>) -> Result<Kind, CompileError> {
        let mut pattern = None;
        if let Some(index) = function.pattern
            && let Some(Node {
                kind: Kind::Literal(Value::String(text)),
                offset,
            }) = arguments.get(index)
        {
            pattern = Some(patterns::compile(text).map_err(|error| {
                let error = error.replace('\n', " ");
                self.error(*offset, format!("invalid matches argument: {error}"))
            })?);
        }
        Ok(Kind::Call(Box::new(Call {
            function,
            arguments,
            pattern,
        })))
    }
}
