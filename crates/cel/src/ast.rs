//! The checked form of an expression. Names are resolved: a variable is an index into the declared
//! names, a macro's own variable an index into the stack of the evaluation, a function a pointer.

use std::sync::Arc;

use crate::functions::Function;
use crate::value::{Type, Value};

/// One node with its place in the source.
#[derive(Debug)]
pub(crate) struct Node {
    /// Byte offset in the source.
    pub(crate) offset: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Value),
    /// A declared variable, by index.
    Variable(usize),
    /// A variable of a macro, counted from the bottom of the evaluation's stack.
    Local(usize),
    Select(Box<Select>),
    Index(Box<Index>),
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Binary(BinaryOperator, Box<[Node; 2]>),
    Conditional(Box<[Node; 3]>),
    List(Vec<ListItem>),
    Map(Vec<MapItem>),
    Call(Box<Call>),
    Fold(Box<Fold>),
    /// `cel.bind(name, value, body)`: the local is the next free one.
    Bind(Box<[Node; 2]>),
    /// `x.optMap(name, body)`; `flat` for `optFlatMap`.
    OptionalMap {
        parts: Box<[Node; 2]>,
        flat: bool,
    },
    /// `x.or(y)` and `x.orValue(y)`: the second is evaluated only when the first is empty.
    OptionalOr {
        parts: Box<[Node; 2]>,
        unwrap: bool,
    },
    /// A part whose value a trace shows under `path`.
    Observed {
        path: Arc<str>,
        node: Box<Node>,
    },
}

#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) operand: Node,
    pub(crate) field: Arc<str>,
    pub(crate) mode: SelectMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelectMode {
    /// `a.b`
    Plain,
    /// `has(a.b)`
    Test,
    /// `a.?b`
    Optional,
}

#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) operand: Node,
    pub(crate) index: Node,
    /// `a[?b]`
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct ListItem {
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct MapItem {
    pub(crate) key: Node,
    pub(crate) value: Node,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: &'static Function,
    /// The target of a member call comes first.
    pub(crate) arguments: Vec<Node>,
    /// The pattern of a regular expression function, when it is a literal.
    pub(crate) pattern: Option<Arc<regex::Regex>>,
}

/// A macro that walks over a list or map.
#[derive(Debug)]
pub(crate) struct Fold {
    pub(crate) range: Node,
    pub(crate) kind: FoldKind,
    /// Whether it has two variables: index and element, or key and value.
    pub(crate) two: bool,
    /// The predicate, or the transformation.
    pub(crate) step: Node,
    /// The condition of `map(x, condition, transformation)` and its relatives.
    pub(crate) condition: Option<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldKind {
    All,
    Exists,
    ExistsOne,
    /// `map`, `filter`, `transformList`
    List,
    /// `transformMap`: keys stay
    Map,
    /// `transformMapEntry`: the step gives a map of entries
    MapEntries,
    /// `sortBy(x, key)`: the elements in the order of their keys
    SortBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
}

impl BinaryOperator {
    /// The reference's name of the operator, as its messages show it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            BinaryOperator::Add => "_+_",
            BinaryOperator::Subtract => "_-_",
            BinaryOperator::Multiply => "_*_",
            BinaryOperator::Divide => "_/_",
            BinaryOperator::Remainder => "_%_",
            BinaryOperator::Equal => "_==_",
            BinaryOperator::NotEqual => "_!=_",
            BinaryOperator::Less => "_<_",
            BinaryOperator::LessOrEqual => "_<=_",
            BinaryOperator::Greater => "_>_",
            BinaryOperator::GreaterOrEqual => "_>=_",
            BinaryOperator::In => "@in",
        }
    }

    fn is_relation(self) -> bool {
        !matches!(
            self,
            BinaryOperator::Add
                | BinaryOperator::Subtract
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Remainder
        )
    }
}

impl Node {
    /// Whether its value is known before anything is evaluated.
    pub(crate) fn is_constant(&self) -> bool {
        match &self.kind {
            Kind::Literal(_) => true,
            Kind::List(_) => self.is_constant_list(),
            Kind::Map(items) => items
                .iter()
                .all(|item| !item.optional && item.key.is_constant() && item.value.is_constant()),
            Kind::Call(call) => call.function.is_conversion && call.arguments.iter().all(Node::is_constant),
            _ => false,
        }
    }

    /// Whether it is a variable.
    pub(crate) fn is_variable(&self) -> bool {
        match &self.kind {
            Kind::Variable(_) | Kind::Local(_) => true,
            Kind::Observed { node, .. } => node.is_variable(),
            _ => false,
        }
    }

    /// Whether it is a variable or a selection.
    pub(crate) fn is_attribute(&self) -> bool {
        match &self.kind {
            Kind::Variable(_) | Kind::Local(_) | Kind::Index(_) => true,
            Kind::Select(select) => select.mode != SelectMode::Test,
            Kind::Observed { node, .. } => node.is_attribute(),
            _ => false,
        }
    }

    pub(crate) fn is_empty_list(&self) -> bool {
        matches!(&self.kind, Kind::List(items) if items.is_empty())
    }

    pub(crate) fn is_constant_list(&self) -> bool {
        matches!(&self.kind, Kind::List(items) if items.iter().all(|item| !item.optional && item.value.is_constant()))
    }

    /// The type of the result as far as the form alone tells it.
    pub(crate) fn known_type(&self) -> Option<Type> {
        match &self.kind {
            Kind::Literal(value) => Some(value.type_of()),
            Kind::Not(_) | Kind::And(_) | Kind::Or(_) => Some(Type::Bool),
            Kind::Select(select) if select.mode == SelectMode::Test => Some(Type::Bool),
            Kind::Binary(operator, _) if operator.is_relation() => Some(Type::Bool),
            Kind::List(_) => Some(Type::List),
            Kind::Map(_) => Some(Type::Map),
            Kind::Conditional(parts) => {
                let known = parts[1].known_type()?;
                (parts[2].known_type() == Some(known)).then_some(known)
            }
            Kind::Fold(fold) => Some(match fold.kind {
                FoldKind::All | FoldKind::Exists | FoldKind::ExistsOne => Type::Bool,
                FoldKind::List | FoldKind::SortBy => Type::List,
                FoldKind::Map | FoldKind::MapEntries => Type::Map,
            }),
            Kind::Bind(parts) => parts[1].known_type(),
            Kind::Call(call) => call.function.result,
            Kind::Observed { node, .. } => node.known_type(),
            _ => None,
        }
    }
}
