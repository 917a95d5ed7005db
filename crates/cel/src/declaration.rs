//! What a rule's variables are: the shape of values as a schema declares them, with what their size can be. The sizes bound
//! what a rule may cost (KA-015).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::check::StaticType;

/// The shape of a value.
#[derive(Clone, Debug)]
pub enum Shape {
    /// Anything; what may be done with it is found out when it is done.
    Dyn,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// A moment
    Timestamp,
    /// A span of time
    Duration,
    /// A list of such items
    List(Arc<Declaration>),
    /// A map from texts to such values
    Map(Arc<Declaration>),
    /// An object with these fields, by the identifiers under which rules reach them
    Object(BTreeMap<String, Arc<Declaration>>),
    /// An object of a type with a name, with these fields
    Named(&'static str, BTreeMap<String, Arc<Declaration>>),
    /// A type of a library, by its name
    Opaque(&'static str),
}

/// The declaration of a value.
#[derive(Clone, Debug)]
pub struct Declaration {
    /// The shape.
    pub shape: Shape,
    /// Most characters, bytes, items or entries that a value can have; 0 for what has no size.
    pub max_elements: u64,
    /// Fewest bytes that a value takes as JSON.
    pub min_serialized_size: u64,
}

impl Declaration {
    /// A declaration of that shape and size.
    pub fn new(shape: Shape, max_elements: u64, min_serialized_size: u64) -> Self {
        Self {
            shape,
            max_elements,
            min_serialized_size,
        }
    }

    /// The declaration at the end of a path: field names, `@items`, `@values`; `None` where nothing is declared.
    pub(crate) fn at<'a>(&'a self, path: &[Arc<str>]) -> Option<Size<'a>> {
        let Some((first, rest)) = path.split_first() else {
            return Some(Size::Of(self));
        };
        match (&self.shape, &**first) {
            (Shape::List(item), "@items") => item.at(rest),
            (Shape::Map(value), "@items" | "@values") | (Shape::List(value), "@values") => value.at(rest),
            // Keys are texts about whose length the reference assumes nothing.
            (Shape::Map(_), "@keys") if rest.is_empty() => Some(Size::Key),
            (Shape::Object(fields), name) => fields.get(name)?.at(rest),
            _ => None,
        }
    }
}

/// What the size of a part is known from.
pub(crate) enum Size<'a> {
    Of(&'a Declaration),
    Key,
}

impl Size<'_> {
    pub(crate) fn max_elements(&self) -> u64 {
        match self {
            Size::Of(declaration) => declaration.max_elements,
            Size::Key => 0,
        }
    }
}

/// The object types of an expression's variables, by the names that the checker gives them.
#[derive(Debug, Default)]
pub(crate) struct Types {
    fields: BTreeMap<Arc<str>, BTreeMap<String, StaticType>>,
}

impl Types {
    /// The type of values of a declaration; objects in it are named by their path below `name`.
    pub(crate) fn declare(&mut self, name: &str, declaration: &Declaration) -> StaticType {
        match &declaration.shape {
            Shape::Dyn => StaticType::Dyn,
            Shape::Bool => StaticType::Bool,
            Shape::Int => StaticType::Int,
            Shape::Double => StaticType::Double,
            Shape::String => StaticType::String,
            Shape::Bytes => StaticType::Bytes,
            Shape::Timestamp => StaticType::Timestamp,
            Shape::Duration => StaticType::Duration,
            Shape::List(item) => StaticType::list(self.declare(&format!("{name}.@idx"), item)),
            Shape::Map(value) => {
                StaticType::map(StaticType::String, self.declare(&format!("{name}.@elem"), value))
            }
            Shape::Object(fields) => self.object(name, fields),
            Shape::Named(own, fields) => self.object(own, fields),
            Shape::Opaque(name) => StaticType::Object((*name).into()),
        }
    }

    fn object(&mut self, name: &str, fields: &BTreeMap<String, Arc<Declaration>>) -> StaticType {
        let known: Arc<str> = name.into();
        let fields = fields
            .iter()
            .map(|(field, declared)| (field.clone(), self.declare(&format!("{name}.{field}"), declared)))
            .collect();
        self.fields.insert(Arc::clone(&known), fields);
        StaticType::Object(known)
    }

    /// Whether objects of the type have fields that are declared.
    pub(crate) fn is_declared(&self, object: &str) -> bool {
        self.fields.contains_key(object)
    }

    /// Adds a field to an object type.
    pub(crate) fn add(&mut self, object: &str, field: &str, found: StaticType) {
        self.fields
            .entry(object.into())
            .or_default()
            .insert(field.to_owned(), found);
    }

    /// The type of a field of an object type.
    pub(crate) fn field(&self, object: &str, field: &str) -> Option<StaticType> {
        self.fields.get(object)?.get(field).cloned()
    }
}
