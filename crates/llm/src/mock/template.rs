//! Texts with placeholders: `{{capture}}`, `{{message}}`, `{{tool.NAME.field[0]}}`.

use std::{collections::BTreeMap, fmt};

use serde_json::Value;

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Placeholder {
        reference: Reference,
        filter: Option<Filter>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reference {
    Message,
    Capture(String),
    Tool { name: String, path: Vec<String> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    Number,
    Json,
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// `{{` without `}}`.
    #[error("`{{{{` without `}}}}`")]
    Unclosed,
    /// Not a reference.
    #[error("`{{{{{0}}}}}` is not a placeholder: use a capture's name, `message` or `tool.NAME`")]
    NotAReference(String),
    /// The turn's pattern has no such capture.
    #[error("`{{{{{0}}}}}` names no capture of this turn's `match`")]
    NoSuchCapture(String),
    /// Not a filter.
    #[error("`{0}` is not a filter: use `number` or `json`")]
    NoSuchFilter(String),
}

/// What placeholders stand for while one answer is made.
#[derive(Debug, Default)]
pub struct Scene {
    /// The user's message.
    pub message: String,
    /// What the turn's pattern captured.
    pub captures: BTreeMap<String, String>,
    /// The newest result of each tool in this turn; text that is not JSON is a string.
    pub results: BTreeMap<String, Value>,
}

impl Template {
    /// Reads a template whose turn captures `captures`.
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn parse(text: &str, captures: &[String]) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            let (before, after) = rest.split_at(open);
            let after = &after[2..];
            let close = after.find("}}").ok_or(TemplateError::Unclosed)?;
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(placeholder(after[..close].trim(), captures)?);
            rest = &after[close + 2..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// The text with every placeholder replaced. What cannot be found stays visible as
    /// `[no tool.NAME.field]`, so that a wrong path shows itself.
    pub fn text(&self, scene: &Scene) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Placeholder { reference, filter } => match (scene.find(reference), filter) {
                    (Some(value), Some(Filter::Json)) => out.push_str(&value.to_string()),
                    (Some(Value::String(text)), _) => out.push_str(&text),
                    (Some(value), _) => out.push_str(&value.to_string()),
                    (None, _) => out.push_str(&format!("[no {reference}]")),
                },
            }
        }
        out
    }

    /// The value for an argument: a template that is one placeholder keeps the type of a tool's
    /// field, and `| number` makes a number of a capture; everything else is text.
    pub fn value(&self, scene: &Scene) -> Value {
        let [Piece::Placeholder { reference, filter }] = self.pieces.as_slice() else {
            return Value::String(self.text(scene));
        };
        let Some(value) = scene.find(reference) else {
            return Value::String(self.text(scene));
        };
        match (filter, &value) {
            (Some(Filter::Number | Filter::Json), Value::String(text)) => {
                serde_json::from_str(text.trim()).unwrap_or(value)
            }
            _ => value,
        }
    }
}

impl Scene {
    fn find(&self, reference: &Reference) -> Option<Value> {
        match reference {
            Reference::Message => Some(Value::String(self.message.clone())),
            Reference::Capture(name) => self.captures.get(name).cloned().map(Value::String),
            Reference::Tool { name, path } => {
                let mut value = self.results.get(name)?;
                for part in path {
                    value = match value {
                        Value::Object(fields) => fields.get(part)?,
                        Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
                        _ => return None,
                    };
                }
                Some(value.clone())
            }
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message => formatter.write_str("message"),
            Self::Capture(name) => formatter.write_str(name),
            Self::Tool { name, path } => {
                write!(formatter, "tool.{name}")?;
                path.iter().try_for_each(|part| write!(formatter, ".{part}"))
            }
        }
    }
}

fn placeholder(text: &str, captures: &[String]) -> Result<Piece, TemplateError> {
    let (reference, filter) = match text.split_once('|') {
        None => (text, None),
        Some((reference, filter)) => {
            let filter = match filter.trim() {
                "number" => Filter::Number,
                "json" => Filter::Json,
                other => return Err(TemplateError::NoSuchFilter(other.to_owned())),
            };
            (reference.trim(), Some(filter))
        }
    };
    let not_a_reference = || TemplateError::NotAReference(text.to_owned());
    let reference = if let Some(rest) = reference.strip_prefix("tool.") {
        let end = rest.find(['.', '[', '/']).unwrap_or(rest.len());
        let (name, path) = rest.split_at(end);
        if name.is_empty() {
            return Err(not_a_reference());
        }
        Reference::Tool {
            name: name.to_owned(),
            path: path_parts(path).ok_or_else(not_a_reference)?,
        }
    } else if reference == "message" {
        Reference::Message
    } else if reference.is_empty()
        || !reference
            .chars()
            .all(|letter| letter.is_alphanumeric() || letter == '_')
    {
        return Err(not_a_reference());
    } else if captures.iter().any(|capture| capture == reference) {
        Reference::Capture(reference.to_owned())
    } else {
        return Err(TemplateError::NoSuchCapture(reference.to_owned()));
    };
    Ok(Piece::Placeholder { reference, filter })
}

/// The steps of `.a.b[0]` or of the JSON pointer `/a/b/0`.
fn path_parts(path: &str) -> Option<Vec<String>> {
    if let Some(pointer) = path.strip_prefix('/') {
        let parts = pointer.split('/');
        return Some(
            parts
                .map(|part| part.replace("~1", "/").replace("~0", "~"))
                .collect(),
        );
    }
    let mut parts = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (part, after) = if let Some(inside) = rest.strip_prefix('[') {
            inside.split_once(']')?
        } else {
            let name = rest.strip_prefix('.')?;
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        };
        if part.is_empty() {
            return None;
        }
        parts.push(part.to_owned());
        rest = after;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn scene() -> Scene {
        Scene {
            message: "Where is order 1017?".to_owned(),
            captures: BTreeMap::from([("id".to_owned(), "1017".to_owned())]),
            results: BTreeMap::from([
                (
                    "get_order".to_owned(),
                    json!({"status": "shipped", "total": 12.5, "items": [{"name": "lamp"}], "a/b": 1}),
                ),
                ("ping".to_owned(), json!("pong")),
            ]),
        }
    }

    fn parse(text: &str) -> Result<Template, TemplateError> {
        Template::parse(text, &["id".to_owned()])
    }

    #[test]
    fn placeholders_are_replaced() {
        for (text, expected) in [
            ("Order {{id}}.", "Order 1017."),
            ("{{ message }}", "Where is order 1017?"),
            ("{{tool.get_order.status}}", "shipped"),
            ("{{tool.get_order.items[0].name}}!", "lamp!"),
            ("{{tool.get_order/items/0/name}}", "lamp"),
            ("{{tool.get_order/a~1b}}", "1"),
            ("{{tool.get_order.total}}", "12.5"),
            ("{{tool.ping}}", "pong"),
            ("{{tool.ping | json}}", "\"pong\""),
            ("{{tool.get_order.nothing}}", "[no tool.get_order.nothing]"),
            ("{{tool.other}}", "[no tool.other]"),
            ("no placeholder", "no placeholder"),
        ] {
            assert_eq!(parse(text).unwrap().text(&scene()), expected, "{text}");
        }
    }

    #[test]
    fn an_argument_keeps_the_type_it_is_asked_for() {
        for (text, expected) in [
            ("{{id}}", json!("1017")),
            ("{{id | number}}", json!(1017)),
            ("{{tool.get_order.total}}", json!(12.5)),
            ("{{tool.get_order.items}}", json!([{"name": "lamp"}])),
            ("id-{{id}}", json!("id-1017")),
            ("{{message | number}}", json!("Where is order 1017?")),
        ] {
            assert_eq!(parse(text).unwrap().value(&scene()), expected, "{text}");
        }
    }

    #[test]
    fn mistakes_are_found_when_the_template_is_read() {
        for (text, error) in [
            ("{{id", TemplateError::Unclosed),
            ("{{order}}", TemplateError::NoSuchCapture("order".to_owned())),
            ("{{id | upper}}", TemplateError::NoSuchFilter("upper".to_owned())),
            ("{{}}", TemplateError::NotAReference(String::new())),
            ("{{tool.}}", TemplateError::NotAReference("tool.".to_owned())),
            (
                "{{tool.a..b}}",
                TemplateError::NotAReference("tool.a..b".to_owned()),
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{text}");
        }
    }

    proptest! {
        #[test]
        fn reading_never_panics(text in "[{}a-z.|\\[\\]/ ö]{0,40}") {
            if let Ok(template) = parse(&text) {
                let _ = template.text(&scene());
            }
        }
    }
}
