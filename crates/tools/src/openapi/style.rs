//! How a value is written into a path, a query, a header or a cookie: the styles of OpenAPI 3 and the
//! `collectionFormat` of version 2.

use serde_json::Value;

use super::parameter::Location;
use crate::http::{shaping::encode, text_form};

/// A style of serialization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Label,
    Matrix,
    Form,
    Space,
    Pipe,
    Tab,
    DeepObject,
}

impl Style {
    /// The style called `word`; without one, or with one that does not exist, the location's default.
    pub(super) fn parse(word: Option<&str>, location: Location) -> Self {
        let default = match location {
            Location::Path | Location::Header => Self::Simple,
            Location::Query | Location::Cookie => Self::Form,
        };
        match (word, location) {
            (Some("label"), Location::Path) => Self::Label,
            (Some("matrix"), Location::Path) => Self::Matrix,
            (Some("spaceDelimited"), Location::Query) => Self::Space,
            (Some("pipeDelimited"), Location::Query) => Self::Pipe,
            (Some("deepObject"), Location::Query) => Self::DeepObject,
            _ => default,
        }
    }

    /// Style and explode of a version 2 parameter.
    pub(super) fn of_collection(format: Option<&str>, location: Location) -> (Self, bool) {
        let default = Self::parse(None, location);
        match format {
            Some("multi") if location == Location::Query => (Self::Form, true),
            Some("ssv") => (Self::Space, false),
            Some("tsv") => (Self::Tab, false),
            Some("pipes") => (Self::Pipe, false),
            _ => (default, false),
        }
    }

    fn separator(self, encoded: bool) -> &'static str {
        match (self, encoded) {
            (Self::Space, true) => "%20",
            (Self::Space, false) => " ",
            (Self::Pipe, true) => "%7C",
            (Self::Pipe, false) => "|",
            (Self::Tab, true) => "%09",
            (Self::Tab, false) => "\t",
            _ => ",",
        }
    }
}

/// The text of a value within an array or object: nested ones as JSON.
fn leaf(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => value.to_string(),
        other => text_form(other).unwrap_or_default(),
    }
}

/// One value in a path, percent-encoded. `None` when there is nothing to write.
pub(super) fn in_path(name: &str, value: &Value, style: Style, explode: bool) -> Option<String> {
    let (start, separator) = match (style, explode) {
        (Style::Label, true) => (".".to_owned(), ".".to_owned()),
        (Style::Label, false) => (".".to_owned(), ",".to_owned()),
        (Style::Matrix, true) => (";".to_owned(), ";".to_owned()),
        (Style::Matrix, false) => (format!(";{}=", encode(name)), ",".to_owned()),
        (style, _) => (String::new(), style.separator(true).to_owned()),
    };
    let each_named = style == Style::Matrix && explode;
    let parts: Vec<String> = match value {
        Value::Null => return None,
        Value::Array(items) => items
            .iter()
            .map(|item| {
                let item = encode(&leaf(item));
                if each_named {
                    format!("{}={item}", encode(name))
                } else {
                    item
                }
            })
            .collect(),
        Value::Object(fields) => members(fields, explode, encode),
        scalar if each_named => vec![format!("{}={}", encode(name), encode(&leaf(scalar)))],
        scalar => vec![encode(&leaf(scalar))],
    };
    let text = parts.join(&separator);
    (!text.is_empty()).then(|| format!("{start}{text}"))
}

/// One value in a header, as it is.
pub(super) fn in_header(value: &Value, style: Style, explode: bool) -> Option<String> {
    let parts = match value {
        Value::Null => return None,
        Value::Array(items) => items.iter().map(leaf).collect(),
        Value::Object(fields) => members(fields, explode, str::to_owned),
        scalar => vec![leaf(scalar)],
    };
    Some(parts.join(style.separator(false)))
}

fn members(
    fields: &serde_json::Map<String, Value>,
    explode: bool,
    write: impl Fn(&str) -> String,
) -> Vec<String> {
    fields
        .iter()
        .flat_map(|(name, value)| {
            let (name, value) = (write(name), write(&leaf(value)));
            if explode {
                vec![format!("{name}={value}")]
            } else {
                vec![name, value]
            }
        })
        .collect()
}

/// The pairs of one value in a query or form, percent-encoded.
pub(super) fn pairs(
    name: &str,
    value: &Value,
    style: Style,
    explode: bool,
    reserved: bool,
) -> Vec<(String, String)> {
    let write = |text: &str| {
        if reserved {
            encode_but_reserved(text)
        } else {
            encode(text)
        }
    };
    match value {
        Value::Null => Vec::new(),
        Value::Array(_) | Value::Object(_) if style == Style::DeepObject => {
            let mut out = Vec::new();
            deep(name.to_owned(), value, &write, &mut out);
            out
        }
        // Nothing can be told from a name without a value.
        Value::Array(items) if items.is_empty() => Vec::new(),
        Value::Array(items) if explode => items
            .iter()
            .map(|item| (encode(name), write(&leaf(item))))
            .collect(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| write(&leaf(item))).collect();
            vec![(encode(name), items.join(style.separator(true)))]
        }
        Value::Object(fields) if fields.is_empty() => Vec::new(),
        Value::Object(fields) if explode => fields
            .iter()
            .map(|(name, field)| (encode(name), write(&leaf(field))))
            .collect(),
        Value::Object(fields) => vec![(
            encode(name),
            members(fields, false, write).join(style.separator(true)),
        )],
        scalar => vec![(encode(name), write(&leaf(scalar)))],
    }
}

/// `name[field]=value`. Deeper levels have no standard; this is what the services that use them expect.
fn deep(name: String, value: &Value, write: &impl Fn(&str) -> String, out: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, value) in fields {
                deep(format!("{name}[{field}]"), value, write, out);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                deep(format!("{name}[{index}]"), item, write, out);
            }
        }
        scalar => out.push((encode(&name), write(&leaf(scalar)))),
    }
}

/// Leaves what `allowReserved` allows, but for what would end the value.
fn encode_but_reserved(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(
            letter,
            ':' | '/' | '?' | '@' | '!' | '$' | '\'' | '(' | ')' | '*' | ',' | ';'
        ) {
            out.push(letter);
        } else {
            out.push_str(&encode(letter.encode_utf8(&mut [0; 4])));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn values_in_a_path_om_430() {
        let (list, map) = (json!(["a b", 4]), json!({"r": 1, "g": 2}));
        for (value, style, explode, expected) in [
            (&json!("a/b"), Style::Simple, false, "a%2Fb"),
            (&list, Style::Simple, false, "a%20b,4"),
            (&map, Style::Simple, false, "g,2,r,1"),
            (&map, Style::Simple, true, "g=2,r=1"),
            (&list, Style::Label, true, ".a%20b.4"),
            (&list, Style::Matrix, false, ";id=a%20b,4"),
            (&list, Style::Matrix, true, ";id=a%20b;id=4"),
            (&json!(7), Style::Matrix, true, ";id=7"),
            (&list, Style::Pipe, false, "a%20b%7C4"),
        ] {
            assert_eq!(in_path("id", value, style, explode).unwrap(), expected);
        }
        for nothing in [json!(null), json!(""), json!([])] {
            assert_eq!(in_path("id", &nothing, Style::Simple, false), None, "{nothing}");
        }
    }

    #[test]
    fn values_in_a_query_om_430() {
        let (list, map) = (json!(["a&b", 4]), json!({"r": 1, "g": [2]}));
        let text = |value: &Value, style, explode| {
            let pairs = pairs("p", value, style, explode, false);
            let pairs: Vec<String> = pairs
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            pairs.join("&")
        };
        for (value, style, explode, expected) in [
            (&list, Style::Form, true, "p=a%26b&p=4"),
            (&list, Style::Form, false, "p=a%26b,4"),
            (&list, Style::Space, false, "p=a%26b%204"),
            (&list, Style::Pipe, false, "p=a%26b%7C4"),
            (&list, Style::Tab, false, "p=a%26b%094"),
            (&map, Style::Form, true, "g=%5B2%5D&r=1"),
            (&map, Style::DeepObject, true, "p%5Bg%5D%5B0%5D=2&p%5Br%5D=1"),
            (&json!(1_000_000), Style::Form, true, "p=1000000"),
            (&json!(true), Style::Form, true, "p=true"),
            (&json!(null), Style::Form, true, ""),
            (&json!([]), Style::Form, true, ""),
        ] {
            assert_eq!(text(value, style, explode), expected);
        }
        assert_eq!(
            pairs("p", &json!("a/b?c&d=e#f"), Style::Form, true, true)[0].1,
            "a/b?c%26d%3De%23f"
        );
    }

    #[test]
    fn values_in_a_header_om_430() {
        assert_eq!(
            in_header(&json!(["a b", 2]), Style::Simple, false).unwrap(),
            "a b,2"
        );
        assert_eq!(in_header(&json!({"a": 1}), Style::Simple, true).unwrap(), "a=1");
        assert_eq!(in_header(&json!(null), Style::Simple, false), None);
    }

    #[test]
    fn a_style_that_its_place_does_not_have_is_the_default_one() {
        assert_eq!(Style::parse(Some("deepObject"), Location::Path), Style::Simple);
        assert_eq!(Style::parse(None, Location::Query), Style::Form);
        assert_eq!(
            Style::of_collection(Some("multi"), Location::Query),
            (Style::Form, true)
        );
        assert_eq!(
            Style::of_collection(None, Location::Header),
            (Style::Simple, false)
        );
    }
}
