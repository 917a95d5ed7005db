//! Macros that walk over a list or map. What a round costs is what the reference's loops cost, whose accumulators are
//! variables and whose steps are calls.

use super::{Evaluated, LIST_COST, Machine, unique_map};
use crate::ast::{Fold, FoldKind};
use crate::costs;
use crate::error::{EvaluationError, EvaluationErrorKind};
use crate::functions;
use crate::value::{Key, Value};

/// Asking whether `all` goes on: the accumulator and a call.
const ALL_CONDITION: u64 = 2;
/// Asking whether `exists` goes on: the accumulator and two calls.
const EXISTS_CONDITION: u64 = 3;
/// Reading a variable.
const READ: u64 = 1;
/// A call such as joining two lists.
const CALL: u64 = 1;

impl<'a> Machine<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Evaluated {
        let range = self.evaluate(&fold.range)?;
        self.context.budget.work(1)?;
        let length = match &range {
            Value::List(list) => list.len(),
            Value::Map(map) => map.len(),
            other => {
                let found = other.type_of();
                let error = EvaluationError::new(
                    EvaluationErrorKind::NoSuchOverload,
                    format!(
                        "expression of type '{}' cannot be range of a comprehension",
                        found.name()
                    ),
                );
                let words = format!("got 'types.{found:?}', expected iterable type");
                return Err(error.in_the_reference(words));
            }
        };
        let base = self.locals.len();
        let result = match fold.kind {
            FoldKind::All => self.fold_logical(fold, &range, length, base, false),
            FoldKind::Exists => self.fold_logical(fold, &range, length, base, true),
            FoldKind::ExistsOne => self.fold_one(fold, &range, length, base),
            FoldKind::List => self.fold_list(fold, &range, length, base),
            FoldKind::Map | FoldKind::MapEntries => self.fold_map(fold, &range, length, base),
            FoldKind::SortBy => self.sort_by(fold, &range, length, base),
        };
        self.locals.truncate(base);
        result
    }

    /// Sets the macro's variables for one round. The key is also returned, for maps.
    fn round(
        &mut self,
        fold: &'a Fold,
        range: &Value,
        index: usize,
        base: usize,
    ) -> Result<Option<Key>, EvaluationError> {
        self.context.budget.work(1)?;
        self.locals.truncate(base);
        match range {
            Value::List(list) => {
                if fold.two {
                    self.locals
                        .push(Value::Int(i64::try_from(index).unwrap_or(i64::MAX)));
                }
                self.locals.extend(list.get(index).cloned());
                Ok(Some(Key::Int(i64::try_from(index).unwrap_or(i64::MAX))))
            }
            Value::Map(map) => {
                let Some((key, value)) = map.entry_at(index) else {
                    return Ok(None);
                };
                self.locals.push(key.to_value());
                if fold.two {
                    self.locals.push(value.clone());
                }
                Ok(Some(key.clone()))
            }
            _ => Ok(None),
        }
    }

    /// Whether this round's element is taken: the condition, when the macro has one.
    fn taken(&mut self, fold: &'a Fold) -> Result<bool, EvaluationError> {
        match &fold.condition {
            None => Ok(true),
            Some(condition) => match self.evaluate(condition)? {
                Value::Bool(taken) => Ok(taken),
                other => Err(EvaluationError::no_overload("_?_:_", &[other])),
            },
        }
    }

    fn fold_logical(
        &mut self,
        fold: &'a Fold,
        range: &Value,
        length: usize,
        base: usize,
        deciding: bool,
    ) -> Evaluated {
        let condition = if deciding { EXISTS_CONDITION } else { ALL_CONDITION };
        self.context.budget.charge(READ)?;
        let mut first_error = None;
        for index in 0..length {
            self.round(fold, range, index, base)?;
            self.context.budget.charge(condition + READ)?;
            match self.evaluate(&fold.step) {
                Ok(Value::Bool(value)) if value == deciding => {
                    // The reference finds out that it is done when it asks for the next round.
                    if index + 1 < length {
                        self.context.budget.charge(condition)?;
                    }
                    return Ok(Value::Bool(deciding));
                }
                Ok(Value::Bool(_)) => {}
                Ok(other) => {
                    let name = if deciding { "_||_" } else { "_&&_" };
                    let error = EvaluationError::no_overload(name, &[Value::Bool(!deciding), other]);
                    first_error.get_or_insert(error);
                }
                Err(error) if error.is_limit() => return Err(error),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => Ok(Value::Bool(!deciding)),
        }
    }

    fn fold_one(&mut self, fold: &'a Fold, range: &Value, length: usize, base: usize) -> Evaluated {
        self.context.budget.charge(READ + CALL)?;
        let mut found = 0_usize;
        for index in 0..length {
            self.round(fold, range, index, base)?;
            match self.evaluate(&fold.step)? {
                Value::Bool(true) => {
                    self.context.budget.charge(READ + CALL)?;
                    found += 1;
                }
                // Keeping the accumulator as it is costs nothing.
                Value::Bool(false) => {}
                other => return Err(EvaluationError::no_overload("_?_:_", &[other])),
            }
        }
        Ok(Value::Bool(found == 1))
    }

    fn fold_list(&mut self, fold: &'a Fold, range: &Value, length: usize, base: usize) -> Evaluated {
        self.context.budget.charge(READ)?;
        // A list of literals is made beforehand.
        let item = if fold.step.is_constant() { 0 } else { LIST_COST };
        let mut list = Vec::new();
        for index in 0..length {
            self.round(fold, range, index, base)?;
            if self.taken(fold)? {
                self.context.budget.charge(READ + item + CALL)?;
                self.context.budget.allocate_entries(1)?;
                let value = self.evaluate(&fold.step)?;
                list.push(value);
            }
        }
        Ok(Value::list(list))
    }

    fn fold_map(&mut self, fold: &'a Fold, range: &Value, length: usize, base: usize) -> Evaluated {
        self.context.budget.charge(READ)?;
        let mut entries = Vec::new();
        for index in 0..length {
            let Some(key) = self.round(fold, range, index, base)? else {
                break;
            };
            if !self.taken(fold)? {
                continue;
            }
            let value = self.evaluate(&fold.step)?;
            self.context.budget.charge(READ + CALL)?;
            if fold.kind == FoldKind::Map {
                self.context.budget.charge(READ)?;
                self.context.budget.allocate_entries(2)?;
                entries.push((key, value));
                continue;
            }
            let Value::Map(added) = value else {
                return Err(EvaluationError::no_overload("transformMapEntry", &[value]));
            };
            self.context
                .budget
                .allocate_entries(added.len().saturating_mul(2))?;
            self.context
                .budget
                .work(u64::try_from(added.len()).unwrap_or(u64::MAX))?;
            entries.extend(added.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        unique_map(entries)
    }

    /// The elements in the order of their keys, for which the reference makes a list of the keys.
    fn sort_by(&mut self, fold: &'a Fold, range: &Value, length: usize, base: usize) -> Evaluated {
        let Value::List(items) = range else {
            return Err(EvaluationError::no_overload(
                "sortBy",
                std::slice::from_ref(range),
            ));
        };
        self.context.budget.charge(READ + READ)?;
        let keys = self.fold_list(fold, range, length, base)?;
        self.context.budget.charge(costs::sorting(&keys))?;
        functions::sorted(&mut self.context, items, keys.as_list().unwrap_or_default())
    }
}
