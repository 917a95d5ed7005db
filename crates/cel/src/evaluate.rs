//! Evaluation: a walk over the checked tree that charges before it works.

mod fold;

use std::sync::Arc;

use crate::ast::{BinaryOperator, Call, Index, Kind, ListItem, MapItem, Node, Select, SelectMode};
use crate::budget::Budget;
use crate::costs;
use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::operators;
use crate::patterns::Patterns;
use crate::trace::Trace;
use crate::value::{Key, LazyFields, Map, Value};

/// Cost of making a list, before its elements (Kubernetes' base cost).
const LIST_COST: u64 = 10;
/// Cost of making a map, before its entries (Kubernetes' base cost).
const MAP_COST: u64 = 30;

type Evaluated = Result<Value, EvaluationError>;

/// What functions work with besides their arguments.
pub(crate) struct Context<'a> {
    pub(crate) budget: &'a mut Budget,
    pub(crate) patterns: Patterns,
}

impl<'a> Context<'a> {
    pub(crate) fn new(budget: &'a mut Budget) -> Self {
        Self {
            budget,
            patterns: Patterns::default(),
        }
    }
}

pub(crate) struct Machine<'a> {
    context: Context<'a>,
    names: &'a [Arc<str>],
    variables: Vec<Option<&'a Value>>,
    /// Variables of the macros that are running, outermost first.
    locals: Vec<Value>,
    trace: Option<Trace>,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(
        names: &'a [Arc<str>],
        variables: Vec<Option<&'a Value>>,
        budget: &'a mut Budget,
        trace: Option<Trace>,
    ) -> Self {
        Self {
            context: Context::new(budget),
            names,
            variables,
            locals: Vec::new(),
            trace,
        }
    }

    pub(crate) fn into_trace(self) -> Option<Trace> {
        self.trace
    }

    /// Each arm calls a method of its own: this function recurses as deep as the expression, so its
    /// stack frame has to stay small.
    pub(crate) fn evaluate(&mut self, node: &'a Node) -> Evaluated {
        match &node.kind {
            Kind::Literal(value) => Ok(value.clone()),
            Kind::Variable(index) => self.variable(*index),
            Kind::Local(index) => self.local(*index),
            Kind::Select(select) => self.select(select),
            Kind::Index(index) => self.index(index),
            Kind::Not(operand) => self.not(operand),
            Kind::Negate(operand) => self.negate(operand),
            Kind::And(parts) => self.logical(parts, false),
            Kind::Or(parts) => self.logical(parts, true),
            Kind::Binary(BinaryOperator::In, parts) if parts[1].is_constant_list() => self.is_member(parts),
            Kind::Binary(operator, parts) => {
                let left = self.evaluate(&parts[0])?;
                let right = self.evaluate(&parts[1])?;
                operators::binary(&mut self.context, *operator, &left, &right)
            }
            Kind::Conditional(parts) => self.conditional(parts),
            Kind::List(items) => self.list(items),
            Kind::Map(items) => self.map(items),
            Kind::Call(call) => self.call(call),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind(parts) => self.bind(parts),
            Kind::OptionalMap { parts, flat } => self.optional_map(parts, *flat),
            Kind::OptionalOr { parts, unwrap } => self.optional_or(parts, *unwrap),
            Kind::Observed { path, node } => self.observed(path, node),
        }
    }

    fn variable(&mut self, index: usize) -> Evaluated {
        self.context.budget.charge(1)?;
        match self.variables.get(index).copied().flatten() {
            Some(value) => Ok(value.clone()),
            None => {
                let name = self.names.get(index).map_or("", |name| name);
                Err(EvaluationError::new(
                    EvaluationErrorKind::NoSuchVariable,
                    format!("no such attribute(s): {name}"),
                ))
            }
        }
    }

    fn local(&mut self, index: usize) -> Evaluated {
        self.context.budget.charge(1)?;
        self.locals.get(index).cloned().ok_or_else(|| {
            EvaluationError::new(
                EvaluationErrorKind::NoSuchVariable,
                "no such attribute(s): macro variable",
            )
        })
    }

    fn select(&mut self, select: &'a Select) -> Evaluated {
        let operand = self.evaluate(&select.operand)?;
        self.begin_chain(&select.operand)?;
        self.context.budget.work(1)?;
        if let Some(fields) = operand.as_fields() {
            return self.lazy_field(fields, select);
        }
        let (found, was_optional) = match &operand {
            Value::Map(map) => (map.get(&select.field).cloned(), false),
            Value::Optional(None) => (None, true),
            Value::Optional(Some(inner)) => match &**inner {
                Value::Map(map) => (map.get(&select.field).cloned(), true),
                _ => (None, true),
            },
            _ => (None, false),
        };
        // Kubernetes does not charge for `has()` itself, nor for what an optional selection does not find.
        let is_free = match select.mode {
            SelectMode::Test => true,
            SelectMode::Optional => found.is_none(),
            SelectMode::Plain => false,
        };
        self.context.budget.charge(u64::from(!is_free))?;
        match select.mode {
            SelectMode::Test => Ok(Value::Bool(found.is_some())),
            SelectMode::Optional => Ok(found.map_or_else(Value::none, Value::some)),
            SelectMode::Plain if was_optional => Ok(found.map_or_else(Value::none, Value::some)),
            SelectMode::Plain => found.ok_or_else(|| EvaluationError::no_key(&select.field)),
        }
    }

    /// A field that is found out now. It has a budget of its own.
    fn lazy_field(&mut self, fields: &LazyFields, select: &'a Select) -> Evaluated {
        let found = fields.0.field(&select.field);
        let is_free =
            select.mode != SelectMode::Plain && (select.mode == SelectMode::Test || found.is_none());
        self.context.budget.charge(u64::from(!is_free))?;
        match (select.mode, found) {
            (_, Some(Err(reason))) => Err(EvaluationError::argument(reason)),
            (SelectMode::Test, found) => Ok(Value::Bool(found.is_some())),
            (SelectMode::Optional, None) => Ok(Value::none()),
            (SelectMode::Plain, None) => Err(EvaluationError::no_key(&select.field)),
            (SelectMode::Optional, Some(Ok(value))) => Ok(Value::some(value)),
            (SelectMode::Plain, Some(Ok(value))) => Ok(value),
        }
    }

    fn index(&mut self, index: &'a Index) -> Evaluated {
        let operand = self.evaluate(&index.operand)?;
        self.begin_chain(&index.operand)?;
        let key = self.evaluate(&index.index)?;
        self.context.budget.work(1)?;
        let (container, was_optional) = match &operand {
            Value::Optional(None) => return Ok(Value::none()),
            Value::Optional(Some(inner)) => (&**inner, true),
            other => (other, false),
        };
        let found = operators::element(container, &key);
        // A variable as index is part of the selection; what an optional selection does not find is free.
        let is_free = index.index.is_variable() || (index.optional && found.is_err());
        self.context.budget.charge(u64::from(!is_free))?;
        match found {
            Ok(value) if index.optional || was_optional => Ok(Value::some(value)),
            Ok(value) => Ok(value),
            Err(error)
                if (index.optional || was_optional)
                    && matches!(
                        error.kind(),
                        EvaluationErrorKind::NoSuchKey | EvaluationErrorKind::IndexOutOfBounds
                    ) =>
            {
                Ok(Value::none())
            }
            Err(error) => Err(error),
        }
    }

    /// Selecting from what is no selection or variable itself costs one more, for looking at it.
    fn begin_chain(&mut self, operand: &Node) -> Result<(), EvaluationError> {
        self.context.budget.charge(u64::from(!operand.is_attribute()))
    }

    fn not(&mut self, operand: &'a Node) -> Evaluated {
        let value = self.evaluate(operand)?;
        self.context.budget.charge(1)?;
        match value {
            Value::Bool(value) => Ok(Value::Bool(!value)),
            other => Err(EvaluationError::no_overload("!_", &[other])),
        }
    }

    fn negate(&mut self, operand: &'a Node) -> Evaluated {
        let value = self.evaluate(operand)?;
        self.context.budget.charge(1)?;
        operators::negate(value)
    }

    /// `&&` and `||`. A side that decides the result absorbs an error of the other side; a limit is
    /// never absorbed.
    fn logical(&mut self, parts: &'a [Node; 2], deciding: bool) -> Evaluated {
        let left = self.evaluate(&parts[0]);
        match &left {
            Ok(Value::Bool(value)) if *value == deciding => return left,
            Err(error) if error.is_limit() => return left,
            _ => {}
        }
        let right = self.evaluate(&parts[1]);
        match &right {
            Ok(Value::Bool(value)) if *value == deciding => return right,
            Err(error) if error.is_limit() => return right,
            _ => {}
        }
        match (left?, right?) {
            (Value::Bool(_), Value::Bool(_)) => Ok(Value::Bool(!deciding)),
            (left, right) => {
                let name = if deciding { "_||_" } else { "_&&_" };
                Err(EvaluationError::no_overload(name, &[left, right]))
            }
        }
    }

    fn conditional(&mut self, parts: &'a [Node; 3]) -> Evaluated {
        let branch = match self.evaluate(&parts[0])? {
            Value::Bool(true) => &parts[1],
            Value::Bool(false) => &parts[2],
            other => return Err(EvaluationError::no_overload("_?_:_", &[other])),
        };
        let value = self.evaluate(branch)?;
        // The reference does not count the variable at the start of a branch.
        self.context.budget.refund(u64::from(branch.is_attribute()));
        Ok(value)
    }

    fn list(&mut self, items: &'a [ListItem]) -> Evaluated {
        // A list of literals is made once by the reference, before anything is charged.
        let is_constant = items.iter().all(|item| item.value.is_constant());
        self.context
            .budget
            .charge(if is_constant { 0 } else { LIST_COST })?;
        self.context.budget.work(LIST_COST)?;
        self.context.budget.allocate_entries(items.len())?;
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            let value = self.evaluate(&item.value)?;
            if !item.optional {
                list.push(value);
            } else if let Some(value) = optional_entry(value)? {
                list.push(value);
            }
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, items: &'a [MapItem]) -> Evaluated {
        let is_constant = items
            .iter()
            .all(|item| item.key.is_constant() && item.value.is_constant());
        self.context
            .budget
            .charge(if is_constant { 0 } else { MAP_COST })?;
        self.context.budget.work(MAP_COST)?;
        self.context
            .budget
            .allocate_entries(items.len().saturating_mul(2))?;
        let mut entries = Vec::with_capacity(items.len());
        for item in items {
            let key = self.evaluate(&item.key)?;
            let value = self.evaluate(&item.value)?;
            let key = map_key(key)?;
            if !item.optional {
                entries.push((key, value));
            } else if let Some(value) = optional_entry(value)? {
                entries.push((key, value));
            }
        }
        unique_map(entries)
    }

    fn call(&mut self, call: &'a Call) -> Evaluated {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(self.evaluate(argument)?);
        }
        let name = call.function.name;
        let is_free = call.function.is_conversion && call.arguments.iter().all(Node::is_constant);
        if !is_free {
            self.context.budget.charge(costs::before(name, &arguments))?;
        }
        self.context.budget.work(1)?;
        self.context.patterns.literal = call.pattern.clone();
        let result = (call.function.call)(&mut self.context, &arguments)?;
        self.context.budget.charge(costs::after(name, &result))?;
        Ok(result)
    }

    /// `x in [1, 2]`: the reference makes a set of such a list beforehand and then charges nothing.
    fn is_member(&mut self, parts: &'a [Node; 2]) -> Evaluated {
        if parts[1].is_empty_list() {
            return Ok(Value::Bool(false));
        }
        let left = self.evaluate(&parts[0])?;
        let right = self.evaluate(&parts[1])?;
        operators::contains(&mut self.context, &left, &right)
    }

    fn bind(&mut self, parts: &'a [Node; 2]) -> Evaluated {
        let value = self.evaluate(&parts[0])?;
        self.with_local(value, &parts[1])
    }

    fn with_local(&mut self, value: Value, body: &'a Node) -> Evaluated {
        let base = self.locals.len();
        self.locals.push(value);
        let result = self.evaluate(body);
        self.locals.truncate(base);
        result
    }

    fn optional_map(&mut self, parts: &'a [Node; 2], flat: bool) -> Evaluated {
        let used = self.context.budget.used();
        let operand = self.evaluate(&parts[0])?;
        let again = self.context.budget.used() - used;
        self.context.budget.charge(2)?;
        // Where there is a value the macro takes it from the operand a second time.
        if matches!(operand, Value::Optional(Some(_))) {
            self.context.budget.charge(again + u64::from(!flat))?;
        }
        match operand {
            Value::Optional(None) => Ok(Value::none()),
            Value::Optional(Some(inner)) => match self.with_local((*inner).clone(), &parts[1])? {
                value @ Value::Optional(_) if flat => Ok(value),
                other if flat => Err(EvaluationError::no_overload("optFlatMap", &[other])),
                value => Ok(Value::some(value)),
            },
            other => Err(EvaluationError::no_overload(
                if flat { "optFlatMap" } else { "optMap" },
                &[other],
            )),
        }
    }

    fn optional_or(&mut self, parts: &'a [Node; 2], unwrap: bool) -> Evaluated {
        let operand = self.evaluate(&parts[0])?;
        self.context.budget.work(1)?;
        match operand {
            Value::Optional(Some(inner)) if unwrap => Ok((*inner).clone()),
            Value::Optional(Some(_)) => Ok(operand),
            Value::Optional(None) => match self.evaluate(&parts[1])? {
                value if unwrap => Ok(value),
                value @ Value::Optional(_) => Ok(value),
                other => Err(EvaluationError::no_overload("or", &[operand, other])),
            },
            other => Err(EvaluationError::no_overload(
                if unwrap { "orValue" } else { "or" },
                &[other],
            )),
        }
    }

    fn observed(&mut self, path: &Arc<str>, node: &'a Node) -> Evaluated {
        let value = self.evaluate(node);
        if let (Some(trace), Ok(value)) = (&mut self.trace, &value) {
            trace.record(path, value);
        }
        value
    }
}

fn unique_map(entries: Vec<(Key, Value)>) -> Evaluated {
    match Map::unique(entries) {
        Ok(map) => Ok(Value::Map(Arc::new(map))),
        Err(key) => Err(EvaluationError::argument(format!(
            "insert failed: key {key} already exists"
        ))),
    }
}

fn map_key(key: Value) -> Result<Key, EvaluationError> {
    Key::from_value(&key)
        .ok_or_else(|| EvaluationError::argument(format!("unsupported key type: {}", key.type_of().name())))
}

/// The content of an optional entry of a literal (`[?a]`, `{?k: v}`).
fn optional_entry(value: Value) -> Result<Option<Value>, EvaluationError> {
    match value {
        Value::Optional(inner) => Ok(inner.map(|inner| (*inner).clone())),
        other => Err(EvaluationError::argument(format!(
            "cannot initialize optional entry from non-optional value of type {}",
            other.type_of().name()
        ))),
    }
}
