//! A value inside an object, with its path.

use serde_json::{Map, Value, json};

use super::{Errors, IMMUTABLE, NOT_NEGATIVE};
use crate::field::{FieldError, FieldErrorKind, FieldPath, shown};

static NOTHING: Value = Value::Null;

/// A value and its path. A field that is absent has a path too, and the value null.
#[derive(Clone, Debug)]
pub(crate) struct Field<'object> {
    pub(crate) value: &'object Value,
    pub(crate) path: FieldPath,
}

impl<'object> Field<'object> {
    pub(crate) fn new(value: &'object Value, path: FieldPath) -> Self {
        Self { value, path }
    }

    /// The field `name` of an object.
    pub(crate) fn of(object: &'object Value, name: &str) -> Self {
        Self::new(object.get(name).unwrap_or(&NOTHING), FieldPath::of(name))
    }

    /// The field `name`.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self::new(self.value.get(name).unwrap_or(&NOTHING), self.path.child(name))
    }

    /// The same value under another path: the reference does not always name the field it judges.
    pub(crate) fn at(&self, path: FieldPath) -> Self {
        Self::new(self.value, path)
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = Field<'object>> + use<'object> {
        let path = self.path.clone();
        let list: &'object [Value] = self.value.as_array().map_or(&[], Vec::as_slice);
        list.iter()
            .enumerate()
            .map(move |(index, item)| Field::new(item, path.index(index)))
    }

    /// The entries of a map.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'object str, Field<'object>)> + use<'object> {
        let path = self.path.clone();
        self.value
            .as_object()
            .into_iter()
            .flatten()
            .map(move |(key, value)| (key.as_str(), Field::new(value, path.key(key))))
    }

    /// How many items a list has.
    pub(crate) fn count(&self) -> usize {
        self.value.as_array().map_or(0, Vec::len)
    }

    /// Whether there is anything.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether the field `name` is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.value.get(name).is_some_and(|value| !value.is_null())
    }

    /// The text, empty where there is none.
    pub(crate) fn text(&self) -> &'object str {
        self.value.as_str().unwrap_or_default()
    }

    /// The text of the field `name`.
    pub(crate) fn text_of(&self, name: &str) -> &'object str {
        self.value.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number, if there is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The number of the field `name`, 0 where there is none.
    pub(crate) fn number_of(&self, name: &str) -> i64 {
        self.value.get(name).and_then(Value::as_i64).unwrap_or_default()
    }

    /// Whether the field `name` is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.value.get(name) == Some(&Value::Bool(true))
    }

    pub(crate) fn required(&self, errors: &mut Errors, detail: &str) {
        errors.push(FieldError::required(&self.path, detail));
    }

    pub(crate) fn forbidden(&self, errors: &mut Errors, detail: impl Into<String>) {
        errors.push(FieldError::forbidden(&self.path, detail));
    }

    /// The value is invalid.
    pub(crate) fn invalid(&self, errors: &mut Errors, detail: impl Into<String>) {
        errors.push(FieldError::invalid(&self.path, self.value.clone(), detail));
    }

    /// The text, which may be the empty one of an absent field, is invalid.
    pub(crate) fn invalid_text(&self, errors: &mut Errors, detail: impl Into<String>) {
        self.invalid_as(errors, json!(self.text()), detail);
    }

    /// The field is invalid, and `shown` is what the reference says it is.
    pub(crate) fn invalid_as(&self, errors: &mut Errors, shown: Value, detail: impl Into<String>) {
        errors.push(FieldError::invalid(&self.path, shown, detail));
    }

    /// The structure is invalid, and the reference shows it as it has it.
    pub(crate) fn invalid_structure(&self, errors: &mut Errors, structure: &str, detail: &str) {
        errors.push(FieldError::shown(&self.path, structure, detail));
    }

    pub(crate) fn duplicate(&self, errors: &mut Errors) {
        errors.push(FieldError::duplicate(&self.path, json!(self.text())));
    }

    pub(crate) fn not_found(&self, errors: &mut Errors, detail: impl Into<String>) {
        errors.push(FieldError {
            kind: FieldErrorKind::NotFound,
            path: self.path.clone(),
            value: Some(json!(self.text())),
            detail: detail.into(),
        });
    }

    pub(crate) fn not_supported(&self, errors: &mut Errors, supported: &[&str]) {
        errors.push(FieldError::not_supported(
            &self.path,
            json!(self.text()),
            supported,
        ));
    }

    pub(crate) fn too_long(&self, errors: &mut Errors, most: usize) {
        errors.push(FieldError::too_long(
            &self.path,
            format!("may not be more than {most} bytes"),
        ));
    }

    /// Whether a list is longer than it may be, which is an error.
    pub(crate) fn too_many(&self, errors: &mut Errors, most: usize) -> bool {
        let count = self.value.as_object().map_or_else(|| self.count(), Map::len);
        if count > most {
            errors.push(FieldError {
                kind: FieldErrorKind::TooMany,
                path: self.path.clone(),
                value: Some(json!(count)),
                detail: format!("must have at most {most} items"),
            });
        }
        count > most
    }

    /// The text is invalid for each of these reasons.
    pub(crate) fn texts(&self, errors: &mut Errors, messages: impl IntoIterator<Item = String>) {
        for message in messages {
            self.invalid_text(errors, message);
        }
    }

    /// A text that must be there; whether it is.
    pub(crate) fn demand(&self, errors: &mut Errors) -> bool {
        let is_there = !self.text().is_empty();
        if !is_there {
            self.required(errors, "");
        }
        is_there
    }

    /// A text that must be there and keep a rule.
    pub(crate) fn demand_as(&self, errors: &mut Errors, rule: impl Fn(&str) -> Vec<String>) {
        if self.demand(errors) {
            self.texts(errors, rule(self.text()));
        }
    }

    /// One of these texts, which may not be left out.
    pub(crate) fn one_of(&self, errors: &mut Errors, supported: &[&str]) {
        match self.text() {
            "" => self.required(errors, ""),
            text if supported.contains(&text) => {}
            _ => self.not_supported(errors, supported),
        }
    }

    /// One of these texts, if it is there.
    pub(crate) fn one_of_if_set(&self, errors: &mut Errors, supported: &[&str]) {
        if self.is_set() && !supported.contains(&self.text()) {
            self.not_supported(errors, supported);
        }
    }

    /// A count that may be 0.
    pub(crate) fn not_negative(&self, errors: &mut Errors) {
        if self.number().is_some_and(|number| number < 0) {
            self.invalid(errors, NOT_NEGATIVE);
        }
    }

    /// A number in a range, which may be left out.
    pub(crate) fn between(&self, errors: &mut Errors, least: i64, most: i64) {
        if self
            .number()
            .is_some_and(|number| !(least..=most).contains(&number))
        {
            self.invalid(errors, format!("must be between {least} and {most}, inclusive"));
        }
    }

    /// The same for a field of which this is declared, whose value the reference does not show.
    pub(crate) fn declared_immutable(&self, old: &Value, errors: &mut Errors) {
        if self.value != old {
            self.invalid_as(errors, Value::Null, IMMUTABLE);
        }
    }

    /// Whether the value is that of `old`; if not, it is refused, and shown as it is.
    pub(crate) fn immutable(&self, old: &Value, errors: &mut Errors) {
        if self.value != old {
            self.invalid(errors, IMMUTABLE);
        }
    }
}

/// A structure as the reference's own types are shown: all fields, in the order of `fields`, under the names of Go, and
/// with the zero value for those that are absent.
pub(crate) fn internal(value: &Value, fields: &[(&str, &str, Value)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(own, go, zero)| format!("{go:?}:{}", shown(value.get(*own).unwrap_or(zero))))
        .collect();
    format!("{{{}}}", fields.join(","))
}
