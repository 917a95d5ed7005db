//! A checked expression and the variables it is evaluated with.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::ast::Node;
use crate::budget::Budget;
use crate::error::EvaluationError;
use crate::evaluate::Machine;
use crate::trace::Trace;
use crate::value::{Type, Value};

/// A checked expression. Cheap to clone; evaluations share nothing that changes.
#[derive(Clone, Debug)]
pub struct Program {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: String,
    root: Node,
    names: Vec<Arc<str>>,
    used: Vec<bool>,
    keys: Vec<(usize, String)>,
}

impl Program {
    pub(crate) fn new(
        source: &str,
        root: Node,
        names: Vec<Arc<str>>,
        used: Vec<bool>,
        keys: Vec<(usize, String)>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                source: source.to_owned(),
                root,
                names,
                used,
                keys,
            }),
        }
    }

    /// The text this was compiled from.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The type of every result, when the form of the expression alone tells it: `a == b` is a bool,
    /// `a` may be anything (`None`).
    pub fn result_type(&self) -> Option<Type> {
        self.inner.root.known_type()
    }

    /// Whether the expression mentions this variable.
    pub fn uses_variable(&self, name: &str) -> bool {
        self.inner
            .names
            .iter()
            .zip(&self.inner.used)
            .any(|(candidate, used)| *used && **candidate == *name)
    }

    /// The literal keys that the expression looks up directly in a variable, in the order of the
    /// source: `headers["a"]`, `headers[?"a"]`, `headers.a`, `"a" in headers`.
    pub fn index_literals(&self, variable: &str) -> Vec<String> {
        let Some(index) = self.inner.names.iter().position(|name| **name == *variable) else {
            return Vec::new();
        };
        self.inner
            .keys
            .iter()
            .filter(|(of, _)| *of == index)
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// See [`crate::EvaluationErrorKind`]; whatever was charged stays charged.
    pub fn evaluate(&self, variables: &Variables, budget: &mut Budget) -> Result<Value, EvaluationError> {
        self.machine(variables, budget, None).evaluate(&self.inner.root)
    }

    /// Evaluates the expression and tells the values of the selections from variables that were read
    /// on the way (`body.id` → 1017), the first 32 of them, each at most about a kilobyte.
    pub fn evaluate_traced(
        &self,
        variables: &Variables,
        budget: &mut Budget,
    ) -> (Result<Value, EvaluationError>, Vec<(String, Json)>) {
        let mut machine = self.machine(variables, budget, Some(Trace::default()));
        let result = machine.evaluate(&self.inner.root);
        let entries = machine.into_trace().map(Trace::into_entries).unwrap_or_default();
        (result, entries)
    }

    fn machine<'a>(
        &'a self,
        variables: &'a Variables,
        budget: &'a mut Budget,
        trace: Option<Trace>,
    ) -> Machine<'a> {
        let given = self.inner.names.iter().map(|name| variables.get(name)).collect();
        Machine::new(&self.inner.names, given, budget, trace)
    }
}

/// Values of variables by name.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    values: BTreeMap<String, Value>,
}

impl Variables {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.values.insert(name.into(), value.into());
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }
}
