//! The type checker: which type each part of an expression has, given the types of its variables, and every mistake with
//! its place. Rules and texts are those of the reference (cel-go), as Kubernetes configures it (KA-015).

mod expression;
mod literals;
mod overloads;
mod types;
mod unify;

use std::collections::HashMap;
use std::sync::Arc;

pub(crate) use self::expression::{Expression, Fold, Part, PieceKind};
use self::overloads::Overload;
pub(crate) use self::types::StaticType;
use self::types::separated;
use self::unify::{Bindings, most_general};
use crate::declaration::Types;
use crate::value::{Type, Value};

/// Most parts of a type; a larger one is `dyn`.
const MAX_TYPE: usize = 500;

/// What the checker found out about an expression.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) expression: Expression,
    /// Types by part.
    types: Vec<StaticType>,
    calls: HashMap<Part, Resolved>,
}

/// What a call turned out to be.
#[derive(Debug, Default)]
struct Resolved {
    /// The overloads that it may be.
    overloads: Vec<&'static str>,
    /// The whole name of a function or type of a namespace, such as `sets.contains`; what looks like its target is none.
    qualified: Option<String>,
}

impl Checked {
    pub(crate) fn type_of(&self, part: Part) -> &StaticType {
        self.types.get(part).unwrap_or(&StaticType::Dyn)
    }

    pub(crate) fn overloads(&self, part: Part) -> &[&'static str] {
        self.calls
            .get(&part)
            .map_or(&[], |resolved| resolved.overloads.as_slice())
    }

    /// The dotted name of a function or type that a part turned out to be.
    pub(crate) fn qualified(&self, part: Part) -> Option<&str> {
        self.calls.get(&part)?.qualified.as_deref()
    }

    /// The type of the whole.
    pub(crate) fn result(&self) -> &StaticType {
        self.type_of(self.expression.root)
    }
}

/// A mistake at a byte offset of the source.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) offset: usize,
    pub(crate) message: String,
}

/// Checks an expression whose free names have these types.
pub(crate) fn check(
    expression: Expression,
    variables: &[(String, StaticType)],
    types: &Types,
) -> Result<Checked, Vec<Mistake>> {
    let count = expression.pieces.len();
    let mut checker = Checker {
        expression: &expression,
        declared: types,
        variables,
        scope: Vec::new(),
        types: vec![None; count],
        calls: HashMap::new(),
        bindings: Bindings::default(),
        mistakes: Vec::new(),
    };
    checker.visit(expression.root);
    let Checker {
        types,
        calls,
        bindings,
        mut mistakes,
        ..
    } = checker;
    let types = types
        .into_iter()
        .map(|found| bindings.resolve(&found.unwrap_or(StaticType::Dyn), true))
        .collect();
    let checked = Checked {
        expression,
        types,
        calls,
    };
    if mistakes.is_empty() {
        literals::check(&checked, &mut mistakes);
    }
    if mistakes.is_empty() {
        return Ok(checked);
    }
    mistakes.sort_by_key(|mistake| mistake.offset);
    Err(mistakes)
}

struct Checker<'a> {
    expression: &'a Expression,
    declared: &'a Types,
    variables: &'a [(String, StaticType)],
    /// Names of the macros around the current part, innermost last.
    scope: Vec<(Arc<str>, StaticType)>,
    types: Vec<Option<StaticType>>,
    calls: HashMap<Part, Resolved>,
    bindings: Bindings,
    mistakes: Vec<Mistake>,
}

impl<'a> Checker<'a> {
    fn mistake(&mut self, part: Part, message: String) {
        self.mistakes.push(Mistake {
            offset: self.expression.offset(part),
            message,
        });
    }

    fn undeclared(&mut self, part: Part, name: &str) {
        self.mistake(
            part,
            format!("undeclared reference to '{name}' (in container '')"),
        );
    }

    fn mismatch(&mut self, part: Part, expected: &StaticType, found: &StaticType) {
        self.mistake(part, format!("expected type '{expected}' but found '{found}'"));
    }

    fn set(&mut self, part: Part, found: StaticType) {
        // A map of maps of maps … of one variable is as large as two to the power of its depth.
        let found = if found.is_larger_than(MAX_TYPE) {
            StaticType::Dyn
        } else {
            found
        };
        if let Some(slot) = self.types.get_mut(part) {
            *slot = Some(found);
        }
    }

    fn remember(&mut self, part: Part, overloads: Vec<&'static str>) {
        self.calls.entry(part).or_default().overloads = overloads;
    }

    fn type_of(&self, part: Part) -> StaticType {
        self.types
            .get(part)
            .cloned()
            .flatten()
            .unwrap_or(StaticType::Error)
    }

    fn resolved(&self, part: Part) -> StaticType {
        self.bindings.resolve(&self.type_of(part), false)
    }

    // The methods below call each other as deep as the expression is nested; each kind has a method of its own, so that
    // frames stay small.

    fn visit(&mut self, part: Part) {
        let expression = self.expression;
        match expression.kind(part) {
            Some(PieceKind::Literal(value)) => self.set(part, literal_type(value)),
            Some(PieceKind::Name(name)) => self.name(part, name),
            Some(PieceKind::Select { operand, field, test }) => self.select(part, *operand, field, *test),
            Some(PieceKind::Call {
                target,
                function,
                arguments,
            }) => self.call(part, *target, function, arguments),
            Some(PieceKind::List(items)) => self.list(part, items),
            Some(PieceKind::Map(items)) => self.map(part, items),
            Some(PieceKind::Fold(fold)) => self.fold(part, fold),
            None => {}
        }
    }

    fn find(&self, name: &str) -> Option<StaticType> {
        let local = self
            .scope
            .iter()
            .rev()
            .find(|(local, _)| **local == *name)
            .map(|(_, found)| found);
        let declared = || {
            self.variables
                .iter()
                .find(|(variable, _)| variable == name)
                .map(|(_, found)| found)
        };
        local
            .or_else(declared)
            .cloned()
            .or_else(|| StaticType::named(name).map(StaticType::type_of))
    }

    fn name(&mut self, part: Part, name: &str) {
        let found = self.find(name).unwrap_or_else(|| {
            self.undeclared(part, name);
            StaticType::Error
        });
        self.set(part, found);
    }

    /// The dotted name that a chain of selections spells.
    fn dotted(&self, part: Part) -> Option<String> {
        match self.expression.kind(part)? {
            PieceKind::Name(name) => Some(name.to_string()),
            PieceKind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", self.dotted(*operand)?)),
            _ => None,
        }
    }

    fn select(&mut self, part: Part, operand: Part, field: &str, test: bool) {
        if let (false, Some(dotted)) = (test, self.dotted(part))
            && let Some(found) = StaticType::named(&dotted)
        {
            self.set(part, StaticType::type_of(found));
            self.calls.entry(part).or_default().qualified = Some(dotted);
            return;
        }
        if let (false, Some(found)) = (test, self.qualified_variable(operand, field)) {
            self.set(part, found);
            return;
        }
        let found = self.field(part, operand, field, false);
        let found = if test { StaticType::Bool } else { found };
        let found = self.bindings.resolve(&found, false);
        self.set(part, found);
    }

    /// The type of a variable whose name has a dot.
    fn qualified_variable(&self, operand: Part, field: &str) -> Option<StaticType> {
        let PieceKind::Name(name) = self.expression.kind(operand)? else {
            return None;
        };
        let is_local = self.scope.iter().any(|(local, _)| local == name);
        let dotted = format!("{name}.{field}");
        let (_, found) = self.variables.iter().find(|(variable, _)| *variable == dotted)?;
        (!is_local).then(|| found.clone())
    }

    fn field(&mut self, part: Part, operand: Part, field: &str, optional: bool) -> StaticType {
        self.visit(operand);
        let operand_type = self.resolved(operand);
        let (target, is_optional) = match operand_type.unwrapped() {
            Some(inner) => (inner.clone(), true),
            None => (operand_type, false),
        };
        let found = match &target {
            StaticType::Map(_, value) => StaticType::clone(value),
            StaticType::Object(name) => match self.declared.field(name, field) {
                Some(found) => found,
                None if self.declared.is_declared(name) => {
                    self.mistake(part, format!("undefined field '{field}'"));
                    StaticType::Error
                }
                None => {
                    self.mistake(part, format!("unexpected failed resolution of '{name}'"));
                    StaticType::Error
                }
            },
            StaticType::Variable(_) => {
                self.bindings.assign(&StaticType::Dyn, &target);
                StaticType::Dyn
            }
            other if other.is_dyn_or_error() => StaticType::Dyn,
            other => {
                self.mistake(part, format!("type '{other}' does not support field selection"));
                StaticType::Dyn
            }
        };
        if is_optional || optional {
            StaticType::optional(found)
        } else {
            found
        }
    }

    fn call(&mut self, part: Part, target: Option<Part>, function: &str, arguments: &[Part]) {
        if let ("_?._", [operand, field]) = (function, arguments) {
            let Some(PieceKind::Literal(Value::String(name))) = self.expression.kind(*field) else {
                return;
            };
            let found = self.field(part, *operand, name, true);
            self.set(*field, StaticType::String);
            let found = self.bindings.resolve(&found, false);
            self.set(part, found);
            self.remember(part, vec!["select_optional_field"]);
            return;
        }
        for argument in arguments {
            self.visit(*argument);
        }
        let Some(target) = target else {
            match overloads::of(function) {
                Some(overloads) => self.resolve(part, function, overloads, None, arguments),
                None => {
                    self.undeclared(part, function);
                    self.set(part, StaticType::Error);
                }
            }
            return;
        };
        if let Some(namespace) = self.dotted(target) {
            let qualified = format!("{namespace}.{function}");
            if let Some(overloads) = overloads::of(&qualified) {
                self.resolve(part, &qualified, overloads, None, arguments);
                self.calls.entry(part).or_default().qualified = Some(qualified);
                return;
            }
        }
        self.visit(target);
        match overloads::of(function) {
            Some(overloads) => self.resolve(part, function, overloads, Some(target), arguments),
            None => {
                self.set(part, StaticType::Error);
                self.undeclared(part, function);
            }
        }
    }

    fn resolve(
        &mut self,
        part: Part,
        function: &str,
        overloads: &'static [Overload],
        target: Option<Part>,
        arguments: &[Part],
    ) {
        let given: Vec<StaticType> = target
            .iter()
            .chain(arguments)
            .map(|&argument| self.type_of(argument))
            .collect();
        if matches!(function, "_&&_" | "_||_") {
            self.logical(part, overloads, arguments, &given);
            return;
        }
        let mut found: Option<StaticType> = None;
        let mut names = Vec::new();
        for overload in overloads
            .iter()
            .filter(|overload| overload.member == target.is_some())
        {
            let (wanted, result) = self.instantiated(overload);
            if !self.bindings.assign_all(&given, &wanted) {
                continue;
            }
            names.push(overload.name);
            let result = self.bindings.resolve(&result, false);
            found = Some(match found {
                None => result,
                Some(earlier) if earlier.is_dyn() || earlier == result => earlier,
                Some(_) => StaticType::Dyn,
            });
        }
        let Some(found) = found else {
            let given: Vec<StaticType> = given
                .iter()
                .map(|argument| self.bindings.resolve(argument, true))
                .collect();
            let applied = match (target, given.split_first()) {
                (Some(_), Some((target, arguments))) => format!("{target}.({})", separated(arguments)),
                _ => format!("({})", separated(&given)),
            };
            self.mistake(
                part,
                format!("found no matching overload for '{function}' applied to '{applied}'"),
            );
            self.set(part, StaticType::Error);
            return;
        };
        self.set(part, found);
        self.remember(part, names);
    }

    /// `&&` and `||` say of each side whether it is a bool.
    fn logical(
        &mut self,
        part: Part,
        overloads: &'static [Overload],
        arguments: &[Part],
        given: &[StaticType],
    ) {
        let mut fits = true;
        for (&argument, found) in arguments.iter().zip(given) {
            if !self.bindings.assign(found, &StaticType::Bool) {
                let found = self.bindings.resolve(found, false);
                self.mismatch(argument, &StaticType::Bool, &found);
                fits = false;
            }
        }
        self.set(part, if fits { StaticType::Bool } else { StaticType::Error });
        let names = overloads.iter().map(|overload| overload.name).collect();
        self.remember(part, names);
    }

    /// The types of an overload with fresh variables for its parameters.
    fn instantiated(&mut self, overload: &Overload) -> (Vec<StaticType>, StaticType) {
        let mut fresh: Vec<(char, StaticType)> = Vec::new();
        let bindings = &mut self.bindings;
        let mut replace = |part: &StaticType| match part {
            StaticType::Parameter(name) => {
                if let Some((_, known)) = fresh.iter().find(|(known, _)| known == name) {
                    return Some(known.clone());
                }
                let variable = bindings.fresh();
                fresh.push((*name, variable.clone()));
                Some(variable)
            }
            _ => None,
        };
        let arguments = overload
            .arguments
            .iter()
            .map(|argument| argument.replaced(&mut replace))
            .collect();
        let result = overload.result.replaced(&mut replace);
        (arguments, result)
    }

    /// The common type of the parts of a literal; that they have one is checked when all types are known.
    fn join(&mut self, before: Option<StaticType>, found: StaticType) -> StaticType {
        match before {
            None => found,
            Some(before) if self.bindings.assign(&before, &found) => most_general(&before, &found).clone(),
            Some(_) => StaticType::Dyn,
        }
    }

    /// The type of an entry of a literal: that of the content where the entry is optional (`[?a]`).
    fn entry(&mut self, part: Part, optional: bool) -> StaticType {
        self.visit(part);
        let found = self.type_of(part);
        if !optional {
            return found;
        }
        if let Some(inner) = found.unwrapped() {
            return inner.clone();
        }
        if !found.is_dyn() {
            self.mismatch(part, &StaticType::optional(found.clone()), &found);
        }
        found
    }

    fn list(&mut self, part: Part, items: &[(Part, bool)]) {
        let mut joined = None;
        for &(item, optional) in items {
            let found = self.entry(item, optional);
            joined = Some(self.join(joined, found));
        }
        let item = joined.unwrap_or_else(|| self.bindings.fresh());
        self.set(part, StaticType::list(item));
    }

    fn map(&mut self, part: Part, items: &[(Part, Part, bool)]) {
        let mut joined: Option<(StaticType, StaticType)> = None;
        for &(key, value, optional) in items {
            self.visit(key);
            let (keys, values) = joined.map_or((None, None), |(keys, values)| (Some(keys), Some(values)));
            let found = self.type_of(key);
            let keys = self.join(keys, found);
            let found = self.entry(value, optional);
            joined = Some((keys, self.join(values, found)));
        }
        let (key, value) = joined.unwrap_or_else(|| (self.bindings.fresh(), self.bindings.fresh()));
        self.set(part, StaticType::map(key, value));
    }

    fn fold(&mut self, part: Part, fold: &Fold) {
        self.visit(fold.range);
        self.visit(fold.initial);
        let range = self.resolved(fold.range);
        let gathered = self.type_of(fold.initial);
        let base = self.scope.len();
        self.scope.push((Arc::clone(&fold.accumulator), gathered.clone()));
        let (first, second) = self.element_types(fold, &range);
        self.scope.push((Arc::clone(&fold.first), first));
        if let Some(name) = &fold.second {
            self.scope.push((Arc::clone(name), second));
        }
        self.visit(fold.condition);
        self.demand(fold.condition, &StaticType::Bool);
        self.visit(fold.step);
        self.demand(fold.step, &gathered);
        self.scope.truncate(base + 1);
        self.visit(fold.result);
        self.scope.truncate(base);
        let found = self.resolved(fold.result);
        self.set(part, found);
    }

    fn element_types(&mut self, fold: &Fold, range: &StaticType) -> (StaticType, StaticType) {
        let two = fold.second.is_some();
        match range {
            StaticType::List(item) if two => (StaticType::Int, StaticType::clone(item)),
            StaticType::List(item) => (StaticType::clone(item), StaticType::Dyn),
            StaticType::Map(key, value) => (StaticType::clone(key), StaticType::clone(value)),
            StaticType::Dyn | StaticType::Error | StaticType::Variable(_) => {
                self.bindings.assign(&StaticType::Dyn, range);
                (StaticType::Dyn, StaticType::Dyn)
            }
            other => {
                self.mistake(
                    fold.range,
                    format!(
                        "expression of type '{other}' cannot be range of a comprehension (must be list, map, or \
                         dynamic)"
                    ),
                );
                (StaticType::Error, StaticType::Error)
            }
        }
    }

    fn demand(&mut self, part: Part, wanted: &StaticType) {
        let found = self.type_of(part);
        if !self.bindings.assign(wanted, &found) {
            let wanted = self.bindings.resolve(wanted, false);
            let found = self.bindings.resolve(&found, false);
            self.mismatch(part, &wanted, &found);
        }
    }
}

fn literal_type(value: &Value) -> StaticType {
    match value.type_of() {
        Type::Null => StaticType::Null,
        Type::Bool => StaticType::Bool,
        Type::Int => StaticType::Int,
        Type::Uint => StaticType::Uint,
        Type::Double => StaticType::Double,
        Type::String => StaticType::String,
        Type::Bytes => StaticType::Bytes,
        _ => StaticType::Dyn,
    }
}
