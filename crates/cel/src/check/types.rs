//! Types as the checker knows them, and how its messages write them.

use std::fmt;
use std::sync::Arc;

/// Name of the type of optional values.
pub(crate) const OPTIONAL: &str = "optional_type";

/// The type of an expression before it is evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StaticType {
    /// The type of a part that has an error already: fits everywhere, so that one mistake is told once.
    Error,
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    List(Arc<StaticType>),
    Map(Arc<StaticType>, Arc<StaticType>),
    /// A type with fields of its own, or one of a library, by name.
    Object(Arc<str>),
    /// A type without fields, such as `optional_type(string)`.
    Opaque(Arc<str>, Vec<StaticType>),
    /// A type as a value; without a parameter the type of types.
    Type(Option<Arc<StaticType>>),
    /// A parameter of a signature.
    Parameter(char),
    /// A type that is found out while checking.
    Variable(usize),
}

impl StaticType {
    pub(crate) fn list(item: StaticType) -> Self {
        StaticType::List(Arc::new(item))
    }

    pub(crate) fn map(key: StaticType, value: StaticType) -> Self {
        StaticType::Map(Arc::new(key), Arc::new(value))
    }

    pub(crate) fn optional(inner: StaticType) -> Self {
        StaticType::Opaque(OPTIONAL.into(), vec![inner])
    }

    pub(crate) fn type_of(inner: StaticType) -> Self {
        StaticType::Type(Some(Arc::new(inner)))
    }

    /// The content of an optional.
    pub(crate) fn unwrapped(&self) -> Option<&StaticType> {
        match self {
            StaticType::Opaque(name, parameters) if **name == *OPTIONAL => parameters.first(),
            _ => None,
        }
    }

    pub(crate) fn is_dyn(&self) -> bool {
        matches!(self, StaticType::Dyn)
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, StaticType::Dyn | StaticType::Error)
    }

    /// Whether values have a fixed size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            StaticType::Bool
            | StaticType::Double
            | StaticType::Duration
            | StaticType::Int
            | StaticType::Timestamp
            | StaticType::Uint => true,
            other => other.unwrapped().is_some_and(StaticType::is_scalar),
        }
    }

    /// The first parameter of a type that has any: the items of a list, the keys of a map.
    pub(crate) fn first_parameter(&self) -> Option<&StaticType> {
        match self {
            StaticType::List(item) => Some(item),
            StaticType::Map(key, _) => Some(key),
            StaticType::Opaque(_, parameters) => parameters.first(),
            StaticType::Type(Some(inner)) => Some(inner),
            _ => None,
        }
    }

    /// The type that a field gets from the expression it is computed by: of what is no plain value, list or map, anything
    /// may be expected.
    pub(crate) fn as_field(&self) -> StaticType {
        match self {
            StaticType::List(item) => StaticType::list(item.as_field()),
            StaticType::Map(key, value) => StaticType::map(key.as_field(), value.as_field()),
            StaticType::Null
            | StaticType::Bool
            | StaticType::Int
            | StaticType::Uint
            | StaticType::Double
            | StaticType::String
            | StaticType::Bytes
            | StaticType::Timestamp
            | StaticType::Duration => self.clone(),
            _ => StaticType::Dyn,
        }
    }

    /// The name of the type as a value, with its parameters: `null_type`, `google.protobuf.Timestamp`, `list(string)`.
    pub(crate) fn declared_name(&self) -> String {
        let named = |name: &str, parameters: &[&StaticType]| {
            let parameters: Vec<String> = parameters
                .iter()
                .map(|parameter| parameter.declared_name())
                .collect();
            format!("{name}({})", parameters.join(", "))
        };
        match self {
            StaticType::List(item) => named("list", &[item]),
            StaticType::Map(key, value) => named("map", &[key, value]),
            StaticType::Opaque(name, parameters) if !parameters.is_empty() => {
                named(name, &parameters.iter().collect::<Vec<_>>())
            }
            StaticType::Type(Some(inner)) => named("type", &[inner]),
            plain => plain.runtime_name().to_owned(),
        }
    }

    /// The name of the type of such values when they are evaluated.
    pub(crate) fn runtime_name(&self) -> &str {
        match self {
            StaticType::List(_) => "list",
            StaticType::Map(..) => "map",
            StaticType::Null => "null_type",
            StaticType::Timestamp => "google.protobuf.Timestamp",
            StaticType::Duration => "google.protobuf.Duration",
            StaticType::Bool => "bool",
            StaticType::Int => "int",
            StaticType::Uint => "uint",
            StaticType::Double => "double",
            StaticType::String => "string",
            StaticType::Bytes => "bytes",
            StaticType::Type(_) => "type",
            StaticType::Object(name) | StaticType::Opaque(name, _) => name,
            StaticType::Error | StaticType::Dyn | StaticType::Parameter(_) | StaticType::Variable(_) => "dyn",
        }
    }

    /// Whether it has more than so many parts.
    pub(crate) fn is_larger_than(&self, most: usize) -> bool {
        let mut open = vec![self];
        let mut seen = 0;
        while let Some(next) = open.pop() {
            seen += 1;
            if seen > most {
                return true;
            }
            match next {
                StaticType::List(item) => open.push(item),
                StaticType::Map(key, value) => open.extend([&**key, &**value]),
                StaticType::Opaque(_, parameters) => open.extend(parameters),
                StaticType::Type(Some(inner)) => open.push(inner),
                _ => {}
            }
        }
        false
    }

    /// The type with each part that `replace` has something for replaced.
    pub(crate) fn replaced(&self, replace: &mut impl FnMut(&StaticType) -> Option<StaticType>) -> StaticType {
        if let Some(other) = replace(self) {
            return other;
        }
        match self {
            StaticType::List(item) => StaticType::list(item.replaced(replace)),
            StaticType::Map(key, value) => StaticType::map(key.replaced(replace), value.replaced(replace)),
            StaticType::Opaque(name, parameters) => StaticType::Opaque(
                Arc::clone(name),
                parameters
                    .iter()
                    .map(|parameter| parameter.replaced(replace))
                    .collect(),
            ),
            StaticType::Type(Some(inner)) => StaticType::type_of(inner.replaced(replace)),
            other => other.clone(),
        }
    }

    /// The type a name stands for in an expression.
    pub(crate) fn named(name: &str) -> Option<StaticType> {
        Some(match name {
            "bool" => StaticType::Bool,
            "bytes" => StaticType::Bytes,
            "double" => StaticType::Double,
            "google.protobuf.Duration" => StaticType::Duration,
            "google.protobuf.Timestamp" => StaticType::Timestamp,
            "int" => StaticType::Int,
            "list" => StaticType::list(StaticType::Dyn),
            "map" => StaticType::map(StaticType::Dyn, StaticType::Dyn),
            "null_type" => StaticType::Null,
            "string" => StaticType::String,
            "type" => StaticType::Type(None),
            "uint" => StaticType::Uint,
            "optional_type" => StaticType::optional(StaticType::Dyn),
            "net.IP" | "net.CIDR" => StaticType::Opaque(name.into(), Vec::new()),
            _ => return None,
        })
    }
}

impl fmt::Display for StaticType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            StaticType::Error => "!error!",
            StaticType::Dyn => "dyn",
            StaticType::Null => "null",
            StaticType::Bool => "bool",
            StaticType::Int => "int",
            StaticType::Uint => "uint",
            StaticType::Double => "double",
            StaticType::String => "string",
            StaticType::Bytes => "bytes",
            StaticType::Timestamp => "timestamp",
            StaticType::Duration => "duration",
            StaticType::List(item) => return write!(formatter, "list({item})"),
            StaticType::Map(key, value) => return write!(formatter, "map({key}, {value})"),
            StaticType::Object(name) => name,
            StaticType::Opaque(name, parameters) if parameters.is_empty() => name,
            StaticType::Opaque(name, parameters) => {
                return write!(formatter, "{name}({})", separated(parameters));
            }
            StaticType::Type(None) => "type",
            StaticType::Type(Some(inner)) => return write!(formatter, "type({inner})"),
            StaticType::Parameter(name) => return write!(formatter, "{name}"),
            StaticType::Variable(number) => return write!(formatter, "_var{number}"),
        };
        formatter.write_str(name)
    }
}

/// Types with commas between them.
pub(crate) fn separated(types: &[StaticType]) -> String {
    let written: Vec<String> = types.iter().map(ToString::to_string).collect();
    written.join(", ")
}
