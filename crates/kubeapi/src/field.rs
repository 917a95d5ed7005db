//! Field paths and field errors, with the texts of the reference API server
//! (`k8s.io/apimachinery/pkg/util/validation/field`). Requirement KA-006, KA-013.

use std::fmt;

use serde_json::Value;

/// A path inside an object, rendered as the reference renders it: `spec.handlers[0].name`,
/// `metadata.annotations[example.com/key]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldPath(String);

impl FieldPath {
    /// The path of the object itself; children of it have no leading dot.
    pub fn root() -> Self {
        Self::default()
    }

    /// A path from text that is already in the rendered form.
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The path of the property `name` below this one.
    pub fn child(&self, name: &str) -> Self {
        if self.0.is_empty() {
            Self(name.to_owned())
        } else {
            Self(format!("{}.{name}", self.0))
        }
    }

    /// The path of the list item at `index` below this one.
    pub fn index(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }

    /// The path of the map entry `key` below this one.
    pub fn key(&self, key: &str) -> Self {
        Self(format!("{}[{key}]", self.0))
    }

    /// The rendered text; empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is the path of the object itself.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The reference prints the path of the whole object as `<nil>`.
        formatter.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

/// Why a field was refused. Each renders with the words of the reference and has the `reason` that
/// appears in `Status.details.causes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldErrorKind {
    /// `Required value`, cause `FieldValueRequired`.
    Required,
    /// `Duplicate value`, cause `FieldValueDuplicate`.
    Duplicate,
    /// `Invalid value`, cause `FieldValueInvalid`.
    Invalid,
    /// `Unsupported value`, cause `FieldValueNotSupported`.
    NotSupported,
    /// `Forbidden`, cause `FieldValueForbidden`.
    Forbidden,
    /// `Too long`, cause `FieldValueTooLong`.
    TooLong,
    /// `Too many`, cause `FieldValueTooMany`.
    TooMany,
    /// `Not found`, cause `FieldValueNotFound`.
    NotFound,
    /// `Invalid value` whose cause is `FieldValueTypeInvalid`.
    TypeInvalid,
    /// `Internal error`, cause `InternalError`.
    Internal,
}

impl FieldErrorKind {
    /// The words the message begins with.
    pub fn label(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
            Self::Internal => "Internal error",
        }
    }

    /// The reason in `Status.details.causes[].reason`.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::NotFound => "FieldValueNotFound",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }
}

/// One refused field.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Why.
    pub kind: FieldErrorKind,
    /// Where.
    pub path: FieldPath,
    /// The value that was refused, when the message shows one. Never a Secret's data.
    pub value: Option<Value>,
    /// What is wrong or what would be right, in the words of the reference; may be empty.
    pub detail: String,
}

impl FieldError {
    /// A value that is invalid and that the reference shows in another form than that of JSON.
    pub(crate) fn shown(path: &FieldPath, shown: &str, detail: &str) -> Self {
        Self {
            kind: FieldErrorKind::Invalid,
            path: path.clone(),
            value: None,
            detail: format!("{shown}: {detail}"),
        }
    }

    /// `path: Invalid value: VALUE: detail`.
    pub fn invalid(path: &FieldPath, value: Value, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Invalid,
            path: path.clone(),
            value: Some(value),
            detail: detail.into(),
        }
    }

    /// `path: Invalid value: "TYPE": detail`, the form of type mismatches.
    pub fn type_invalid(path: &FieldPath, value: Value, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::TypeInvalid,
            path: path.clone(),
            value: Some(value),
            detail: detail.into(),
        }
    }

    /// `path: Required value: detail`.
    pub fn required(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Required,
            path: path.clone(),
            value: None,
            detail: detail.into(),
        }
    }

    /// `path: Forbidden: detail`.
    pub fn forbidden(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::Forbidden,
            path: path.clone(),
            value: None,
            detail: detail.into(),
        }
    }

    /// `path: Duplicate value: VALUE`.
    pub fn duplicate(path: &FieldPath, value: Value) -> Self {
        Self {
            kind: FieldErrorKind::Duplicate,
            path: path.clone(),
            value: Some(value),
            detail: String::new(),
        }
    }

    /// `path: Unsupported value: VALUE: supported values: "a", "b"`.
    pub fn not_supported(path: &FieldPath, value: Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|text| format!("{text:?}")).collect();
        Self {
            kind: FieldErrorKind::NotSupported,
            path: path.clone(),
            value: Some(value),
            detail: format!("supported values: {}", quoted.join(", ")),
        }
    }

    /// `path: Too long: detail`.
    pub fn too_long(path: &FieldPath, detail: impl Into<String>) -> Self {
        Self {
            kind: FieldErrorKind::TooLong,
            path: path.clone(),
            value: None,
            detail: detail.into(),
        }
    }

    /// The message without the path, as it stands in `Status.details.causes[].message`.
    pub fn message(&self) -> String {
        let mut text = self.kind.label().to_owned();
        let shows_value = !matches!(
            self.kind,
            FieldErrorKind::Required
                | FieldErrorKind::Forbidden
                | FieldErrorKind::TooLong
                | FieldErrorKind::Internal
        );
        if let (true, Some(value)) = (shows_value, &self.value) {
            text.push_str(": ");
            // Texts are quoted; structures are shown as Go writes JSON.
            if value.is_object() || value.is_array() {
                text.push_str(&shown(value));
            } else {
                text.push_str(&value.to_string());
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

/// A value as Go writes JSON, which escapes what could be taken for HTML.
pub(crate) fn shown(value: &Value) -> String {
    value
        .to_string()
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.path, self.message())
    }
}
