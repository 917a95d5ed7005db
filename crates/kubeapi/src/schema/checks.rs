//! The value checks of one schema node, read once from the schema document.

use std::{collections::BTreeMap, sync::Arc};

use regex::Regex;
use serde_json::Value;

use super::{
    formats::{self, Format},
    pattern::compile_pattern,
};
use crate::field::{FieldError, FieldPath};

/// `pattern` with its original text, which messages show.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The text in the schema.
    pub text: String,
    /// The compiled expression.
    pub regex: Regex,
}

/// One entry of `x-kubernetes-validations`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ValidationRule {
    /// The CEL expression; true means valid.
    pub rule: String,
    /// What to say when it is false.
    pub message: String,
    /// An expression that gives what to say.
    pub message_expression: String,
    /// The reason in `Status.details.causes`.
    pub reason: Option<String>,
    /// The field below the rule's place that is at fault.
    pub field_path: String,
    /// Whether `oldSelf` is an optional, so that the rule also runs where there is no old value.
    pub optional_old_self: Option<bool>,
}

/// What a schema demands of a value beyond its structure. The nested schemas of the logical junctors are `Checks` too:
/// a structural schema has no structure below them, only further demands on declared fields.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// `type` of a schema below a junctor (only `x-kubernetes-int-or-string` allows one there).
    pub types: Vec<String>,
    /// `format`, where the reference knows it.
    pub format: Option<Format>,
    /// `enum`
    pub enumeration: Vec<Value>,
    /// `pattern`
    pub pattern: Option<Pattern>,
    /// `minLength`, in characters
    pub min_length: Option<u64>,
    /// `maxLength`, in characters
    pub max_length: Option<u64>,
    /// `minimum`
    pub minimum: Option<f64>,
    /// `exclusiveMinimum`
    pub exclusive_minimum: bool,
    /// `maximum`
    pub maximum: Option<f64>,
    /// `exclusiveMaximum`
    pub exclusive_maximum: bool,
    /// `multipleOf`
    pub multiple_of: Option<f64>,
    /// `minItems`
    pub min_items: Option<u64>,
    /// `maxItems`
    pub max_items: Option<u64>,
    /// `uniqueItems`
    pub unique_items: bool,
    /// `minProperties`
    pub min_properties: Option<u64>,
    /// `maxProperties`
    pub max_properties: Option<u64>,
    /// `required`
    pub required: Vec<String>,
    /// `allOf`
    pub all_of: Vec<Arc<Checks>>,
    /// `anyOf`
    pub any_of: Vec<Arc<Checks>>,
    /// `oneOf`
    pub one_of: Vec<Arc<Checks>>,
    /// `not`
    pub not: Option<Arc<Checks>>,
    /// `properties` of a schema below a junctor.
    pub properties: BTreeMap<String, Arc<Checks>>,
    /// `items` of a schema below a junctor.
    pub items: Option<Arc<Checks>>,
    /// `x-kubernetes-validations`
    pub validations: Vec<ValidationRule>,
    /// `nullable`; below a junctor a null passes a type check only with it.
    pub nullable: bool,
}

impl Checks {
    /// Reads the checks of the node at `path`. Structure (`type`, `properties`, `items`) belongs to the node itself and
    /// is read only below junctors. Returns `None` if the schema demands nothing.
    pub(crate) fn read(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Option<Arc<Self>> {
        let checks = Self::read_demands(schema, path, errors);
        if checks.is_empty() {
            None
        } else {
            Some(Arc::new(checks))
        }
    }

    fn read_demands(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Self {
        let count = |name: &str| schema.get(name).and_then(Value::as_u64);
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
        let pattern = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|text| !text.is_empty())
            .and_then(|text| match compile_pattern(text) {
                Ok(regex) => Some(Pattern {
                    text: text.to_owned(),
                    regex,
                }),
                Err(error) => {
                    errors.push(FieldError::invalid(
                        &path.child("pattern"),
                        Value::from(text),
                        format!("must be a valid regular expression, but isn't: {error}"),
                    ));
                    None
                }
            });
        let mut junctor = |name: &str| -> Vec<Arc<Self>> {
            let Some(list) = schema.get(name).and_then(Value::as_array) else {
                return Vec::new();
            };
            let at = path.child(name);
            list.iter()
                .enumerate()
                .map(|(index, nested)| Arc::new(Self::read_nested(nested, &at.index(index), errors)))
                .collect()
        };
        let (all_of, any_of, one_of) = (junctor("allOf"), junctor("anyOf"), junctor("oneOf"));
        let not = schema
            .get("not")
            .filter(|nested| nested.is_object())
            .map(|nested| Arc::new(Self::read_nested(nested, &path.child("not"), errors)));
        Self {
            format: schema
                .get("format")
                .and_then(Value::as_str)
                .and_then(formats::by_name),
            enumeration: schema
                .get("enum")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            pattern,
            min_length: count("minLength"),
            max_length: count("maxLength"),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts(schema.get("required")),
            all_of,
            any_of,
            one_of,
            not,
            validations: schema
                .get("x-kubernetes-validations")
                .and_then(|rules| serde_json::from_value(rules.clone()).ok())
                .unwrap_or_default(),
            ..Self::default()
        }
    }

    fn read_nested(schema: &Value, path: &FieldPath, errors: &mut Vec<FieldError>) -> Self {
        let mut checks = Self::read_demands(schema, path, errors);
        checks.types = match schema.get("type") {
            Some(Value::String(name)) if !name.is_empty() => vec![name.clone()],
            _ if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) => {
                vec!["integer".to_owned(), "string".to_owned()]
            }
            _ => Vec::new(),
        };
        checks.nullable = schema.get("nullable") == Some(&Value::Bool(true));
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            let at = path.child("properties");
            for (name, nested) in properties {
                let nested = Self::read_nested(nested, &at.key(name), errors);
                checks.properties.insert(name.clone(), Arc::new(nested));
            }
        }
        if let Some(items) = schema.get("items").filter(|items| items.is_object()) {
            checks.items = Some(Arc::new(Self::read_nested(items, &path.child("items"), errors)));
        }
        checks
    }

    fn is_empty(&self) -> bool {
        self.format.is_none()
            && self.enumeration.is_empty()
            && self.pattern.is_none()
            && self.minimum.is_none()
            && self.maximum.is_none()
            && self.multiple_of.is_none()
            && !self.unique_items
            && [
                self.min_length,
                self.max_length,
                self.min_items,
                self.max_items,
                self.min_properties,
                self.max_properties,
            ]
            .iter()
            .all(Option::is_none)
            && self.required.is_empty()
            && self.all_of.is_empty()
            && self.any_of.is_empty()
            && self.one_of.is_empty()
            && self.not.is_none()
            && self.validations.is_empty()
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}
