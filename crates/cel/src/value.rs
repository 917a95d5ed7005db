//! The values that expressions work on.
//!
//! Lists, maps and texts are shared (`Arc`), so handing a part of a large object to a rule copies a
//! pointer. An object is converted once and then serves every rule on it.

mod access;
mod compare;
mod extension;
mod fields;
mod json;
mod map;
mod quantity;
mod timestamp;
mod url;
mod version;

use std::sync::Arc;

use jiff::SignedDuration;

pub use access::{Access, AccessDecision, Authorize, ResourceCheck};
pub(crate) use compare::{Comparison, compare_numbers, ordering};
pub use extension::{Extension, Network};
pub use fields::{Fields, LazyFields};
pub use json::JsonTooLarge;
pub use map::{Key, Map};
pub use quantity::{Notation, Quantity, canonical_quantity};
pub use timestamp::Timestamp;
pub use url::Url;
pub use version::Version;

/// A CEL value.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`
    Null,
    /// `bool`
    Bool(bool),
    /// `int`: 64 bit, signed
    Int(i64),
    /// `uint`: 64 bit, unsigned
    Uint(u64),
    /// `double`
    Double(f64),
    /// `string`
    String(Arc<str>),
    /// `bytes`
    Bytes(Arc<[u8]>),
    /// `list`
    List(Arc<Vec<Value>>),
    /// `map`
    Map(Arc<Map>),
    /// `google.protobuf.Timestamp`
    Timestamp(Timestamp),
    /// `google.protobuf.Duration`
    Duration(SignedDuration),
    /// A type as a value: the result of `type(x)`, or a type's name
    Type(Type),
    /// `optional_type`: what `.?` and `optional.of` give
    Optional(Option<Arc<Value>>),
    /// A value of one of Kubernetes' libraries
    Extension(Arc<Extension>),
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // each variant is the CEL type of that name
pub enum Type {
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    List,
    Map,
    Timestamp,
    Duration,
    Type,
    Optional,
    Dyn,
    Url,
    Ip,
    Cidr,
    Quantity,
    Version,
    Format,
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
    Fields,
}

impl Type {
    /// The name CEL gives this type; also what `type(x)` prints.
    pub fn name(self) -> &'static str {
        match self {
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::List => "list",
            Type::Map => "map",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::Duration => "google.protobuf.Duration",
            Type::Type => "type",
            Type::Optional => "optional_type",
            Type::Dyn => "dyn",
            Type::Url => "kubernetes.URL",
            Type::Ip => "net.IP",
            Type::Cidr => "net.CIDR",
            Type::Quantity => "kubernetes.Quantity",
            Type::Version => "kubernetes.Semver",
            Type::Format => "kubernetes.NamedFormat",
            Type::Authorizer => "kubernetes.authorization.Authorizer",
            Type::PathCheck => "kubernetes.authorization.PathCheck",
            Type::GroupCheck => "kubernetes.authorization.GroupCheck",
            Type::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            Type::Decision => "kubernetes.authorization.Decision",
            Type::Fields => "object",
        }
    }

    /// The type a name stands for in an expression, or `None` when it names no type.
    pub(crate) fn named(name: &str) -> Option<Type> {
        Some(match name {
            "null_type" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "list" => Type::List,
            "map" => Type::Map,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "google.protobuf.Duration" => Type::Duration,
            "type" => Type::Type,
            "optional_type" => Type::Optional,
            "net.IP" => Type::Ip,
            "net.CIDR" => Type::Cidr,
            _ => return None,
        })
    }
}

impl Value {
    /// The type of this value.
    pub fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::List(_) => Type::List,
            Value::Map(_) => Type::Map,
            Value::Timestamp(_) => Type::Timestamp,
            Value::Duration(_) => Type::Duration,
            Value::Type(_) => Type::Type,
            Value::Optional(_) => Type::Optional,
            Value::Extension(extension) => extension.type_of(),
        }
    }

    /// A list value.
    pub fn list(items: Vec<Value>) -> Value {
        Value::List(Arc::new(items))
    }

    /// A map value with texts as keys; of two equal keys the later one stays.
    pub fn map<K: Into<Arc<str>>>(entries: impl IntoIterator<Item = (K, Value)>) -> Value {
        Value::Map(Arc::new(
            entries
                .into_iter()
                .map(|(key, value)| (Key::String(key.into()), value))
                .collect(),
        ))
    }

    /// The boolean, when this is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, when this is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    /// The list's elements, when this is a list.
    pub fn as_list(&self) -> Option<&[Value]> {
        match self {
            Value::List(value) => Some(value),
            _ => None,
        }
    }

    /// The fields of an object that are found out when they are asked for.
    pub(crate) fn as_fields(&self) -> Option<&LazyFields> {
        match self {
            Value::Extension(extension) => match &**extension {
                Extension::Fields(fields) => Some(fields),
                _ => None,
            },
            _ => None,
        }
    }

    pub(crate) fn none() -> Value {
        Value::Optional(None)
    }

    /// A value of one of Kubernetes' libraries.
    pub fn extension(extension: Extension) -> Value {
        Value::Extension(Arc::new(extension))
    }

    pub(crate) fn some(value: Value) -> Value {
        Value::Optional(Some(Arc::new(value)))
    }
}

/// Equality of CEL without a budget: for tests and small values. Expressions use the metered form.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Value::List(left), Value::List(right)) => left == right,
            (Value::Map(left), Value::Map(right)) => left == right,
            (Value::Optional(left), Value::Optional(right)) => left == right,
            (Value::Extension(left), Value::Extension(right)) => left == right,
            _ => compare::scalars_equal(self, other),
        }
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Value::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Value::Uint(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value::Double(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::String(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Value::String(value.into())
    }
}

impl From<Vec<Value>> for Value {
    fn from(value: Vec<Value>) -> Self {
        Value::list(value)
    }
}
