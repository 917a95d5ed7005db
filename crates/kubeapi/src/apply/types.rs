//! How a place in a schema behaves under merging: which of scalar, list and map it may be, and whether lists and
//! maps are merged or replaced.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::element::PathElement;
use crate::schema::{ListType, MapType, Node, NodeKind};

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type<'a> {
    /// A declared place. `preserve` is inherited: a node that keeps unknown fields lets every node below it
    /// keep them too.
    Node { node: &'a Node, preserve: bool },
    /// Nothing is declared: maps are merged key by key, lists are replaced.
    Deduced,
    /// A field the schema does not have. Refused in an applied configuration, deduced in a stored object.
    Undeclared,
}

/// What a scalar may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    String,
    Numeric,
    Boolean,
    Untyped,
}

/// How a list is merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListShape<'a> {
    /// Merged item by item; otherwise replaced.
    pub(super) associative: bool,
    /// The fields that identify an item; empty for a set.
    pub(super) keys: &'a [String],
    /// The type of the items.
    pub(super) items: Type<'a>,
}

/// How a map or object is merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapShape<'a> {
    /// Replaced as a whole.
    pub(super) atomic: bool,
    fields: Option<&'a BTreeMap<String, Arc<Node>>>,
    preserve: bool,
    others: Type<'a>,
}

impl<'a> MapShape<'a> {
    /// The type of the value at `name`, and whether `name` is a declared field.
    pub(super) fn entry(&self, name: &str) -> (Type<'a>, bool) {
        match self.fields.and_then(|fields| fields.get(name)) {
            Some(node) => (
                Type::Node {
                    node,
                    preserve: self.preserve,
                },
                true,
            ),
            None => (self.others, false),
        }
    }

    /// Whether nothing is known about the map.
    pub(super) fn is_deduced(&self) -> bool {
        self.fields.is_none_or(BTreeMap::is_empty) && matches!(self.others, Type::Deduced)
    }
}

/// What a type allows. More than one is set where nothing was declared.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shapes<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<ListShape<'a>>,
    pub(super) map: Option<MapShape<'a>>,
}

/// The shape that applies to a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    Scalar(Scalar),
    List(ListShape<'a>),
    Map(MapShape<'a>),
}

impl<'a> Type<'a> {
    /// The type of an object of a kind.
    pub(super) fn root(node: &'a Node) -> Self {
        Self::Node {
            node,
            preserve: false,
        }
    }

    /// What the type allows.
    pub(super) fn shapes(self) -> Shapes<'a> {
        let Self::Node { node, preserve } = self else {
            return Shapes::deduced();
        };
        let preserve = preserve || node.preserve_unknown_fields;
        match &node.kind {
            // A quantity is written as a string or as a number.
            NodeKind::String if node.int_or_string || is_quantity(node) => Shapes::scalar(Scalar::Untyped),
            NodeKind::String => Shapes::scalar(Scalar::String),
            NodeKind::Integer | NodeKind::Number => Shapes::scalar(Scalar::Numeric),
            NodeKind::Boolean => Shapes::scalar(Scalar::Boolean),
            NodeKind::Array { items } => Shapes {
                list: Some(ListShape {
                    associative: node.list_type != ListType::Atomic,
                    keys: if node.list_type == ListType::Map {
                        &node.list_map_keys
                    } else {
                        &[]
                    },
                    items: Type::Node {
                        node: items,
                        preserve,
                    },
                }),
                ..Shapes::default()
            },
            NodeKind::Object {
                properties,
                additional,
            } => {
                let others = match additional {
                    Some(node) => Type::Node { node, preserve },
                    // An object that declares nothing is free-form.
                    None if preserve || properties.is_empty() || node.embedded_resource => Type::Deduced,
                    None => Type::Undeclared,
                };
                Shapes {
                    map: Some(MapShape {
                        atomic: node.map_type == MapType::Atomic,
                        fields: Some(properties),
                        preserve,
                        others,
                    }),
                    ..Shapes::default()
                }
            }
            NodeKind::Any => {
                let mut shapes = Shapes::deduced();
                if let Some(map) = &mut shapes.map {
                    map.atomic = node.map_type == MapType::Atomic;
                }
                shapes
            }
        }
    }

    /// The type of the place `element` names below this one, ignoring any value; `None` when a place of this
    /// type has no such place.
    pub(super) fn below(self, element: &PathElement) -> Option<Type<'a>> {
        let shapes = self.shapes();
        match element {
            PathElement::Field(name) => shapes.map.map(|map| map.entry(name).0),
            PathElement::Key(_) => shapes.list.map(|list| list.items),
            PathElement::Value(_) | PathElement::Index(_) => None,
        }
    }

    /// The default of the field `name` of an item of this type, which stands in for an absent key.
    pub(super) fn field_default(self, name: &str) -> Option<&'a Value> {
        match self {
            Self::Node { node, .. } => match &node.kind {
                NodeKind::Object { properties, .. } => properties
                    .get(name)?
                    .default
                    .as_ref()
                    .filter(|value| !value.is_null()),
                _ => None,
            },
            _ => None,
        }
    }
}

impl<'a> Shapes<'a> {
    fn scalar(scalar: Scalar) -> Self {
        Self {
            scalar: Some(scalar),
            ..Self::default()
        }
    }

    fn deduced() -> Self {
        Self {
            scalar: Some(Scalar::Untyped),
            list: Some(ListShape {
                associative: false,
                keys: &[],
                items: Type::Deduced,
            }),
            map: Some(MapShape {
                atomic: false,
                fields: None,
                preserve: true,
                others: Type::Deduced,
            }),
        }
    }

    /// The shape for a value: the one that fits it when it is allowed, else the first that is allowed, so that
    /// a value of the wrong type meets the walk that can say so.
    pub(super) fn of(&self, value: Option<&Value>) -> Shape<'a> {
        match (value, self) {
            (Some(Value::Array(_)), Self { list: Some(list), .. }) => return Shape::List(*list),
            (Some(Value::Object(_)), Self { map: Some(map), .. }) => return Shape::Map(*map),
            (
                Some(Value::String(_) | Value::Number(_) | Value::Bool(_)),
                Self {
                    scalar: Some(scalar), ..
                },
            ) => {
                return Shape::Scalar(*scalar);
            }
            _ => {}
        }
        match self {
            Self { map: Some(map), .. } => Shape::Map(*map),
            Self {
                list: Some(list),
                scalar: None,
                ..
            } => Shape::List(*list),
            Self { scalar, .. } => Shape::Scalar(scalar.unwrap_or(Scalar::Untyped)),
        }
    }

    /// Whether two values of this type have the same shape, so that one walk covers both.
    pub(super) fn alike(&self, left: &Value, right: &Value) -> bool {
        let allowed = usize::from(self.scalar.is_some())
            + usize::from(self.list.is_some())
            + usize::from(self.map.is_some());
        allowed == 1 || class(left) == class(right)
    }
}

fn is_quantity(node: &Node) -> bool {
    node.definition.as_deref() == Some("io.k8s.apimachinery.pkg.api.resource.Quantity")
}

fn class(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Array(_) => 1,
        Value::Object(_) => 2,
        Value::String(_) | Value::Number(_) | Value::Bool(_) => 3,
    }
}

/// The path element of a list item.
///
/// # Errors
/// The reference's text, for an item that cannot be identified.
pub(super) fn item_element(list: &ListShape<'_>, item: &Value) -> Result<PathElement, String> {
    if list.keys.is_empty() {
        return match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            scalar => Ok(PathElement::Value(scalar.clone())),
        };
    }
    let object = match item {
        Value::Object(object) => object,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut fields: Vec<(String, Value)> = list
        .keys
        .iter()
        .filter_map(|name| {
            let value = object.get(name).or_else(|| list.items.field_default(name))?;
            Some((name.clone(), value.clone()))
        })
        .collect();
    if fields.is_empty() {
        let quoted: Vec<String> = list.keys.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            quoted.join(" ")
        ));
    }
    fields.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(PathElement::Key(fields))
}
