//! Parameters: merged, read, and placed (OM-428, OM-430, D2).

use serde_json::{Map, Value, json};

use super::{document::Version, reference, schema::Converter, style::Style};

// A longer list is no interface for a model, and each entry is compared with all before it.
const MAX_PARAMETERS: usize = 256;

// Every operation below a path has copies of its parameters' names.
const MAX_NAME_BYTES: usize = 256;

/// Where a parameter goes. The order is the one in which arguments get their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    Path,
    Query,
    Header,
    Cookie,
}

impl Location {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "path" => Some(Self::Path),
            "query" => Some(Self::Query),
            "header" => Some(Self::Header),
            "cookie" => Some(Self::Cookie),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Path => "path",
            Self::Query => "query",
            Self::Header => "header",
            Self::Cookie => "cookie",
        }
    }
}

/// The parameters of an operation after its own have replaced the path's. Version 2 lists the body and
/// form fields among them.
pub(super) struct Merged<'d> {
    pub(super) fields: Vec<&'d Map<String, Value>>,
}

/// Merges the lists by name and place; the names of headers compare without case (D2).
///
/// # Errors
/// A reference that leads nowhere: without it nobody can tell what the operation needs.
pub(super) fn merge<'d>(
    document: &'d Value,
    item: &'d Map<String, Value>,
    operation: &'d Map<String, Value>,
) -> Result<Merged<'d>, String> {
    let mut keys: Vec<(&str, String)> = Vec::new();
    let mut fields = Vec::new();
    let too_many = || format!("it has more than {MAX_PARAMETERS} parameters");
    for list in [item, operation] {
        let Some(Value::Array(list)) = list.get("parameters") else {
            continue;
        };
        if list.len() > MAX_PARAMETERS {
            return Err(too_many());
        }
        for entry in list {
            let Some(parameter) =
                reference::object(document, entry).map_err(|problem| format!("a parameter: {problem}"))?
            else {
                continue;
            };
            let (Some(place), Some(name)) = (text(parameter, "in"), text(parameter, "name")) else {
                continue;
            };
            if name.len() > MAX_NAME_BYTES {
                return Err(format!(
                    "a parameter's name is longer than {MAX_NAME_BYTES} bytes"
                ));
            }
            let name = match place {
                "header" => name.to_ascii_lowercase(),
                _ => name.to_owned(),
            };
            let key = (place, name);
            match keys.iter().position(|known| *known == key) {
                Some(index) => {
                    if let Some(slot) = fields.get_mut(index) {
                        *slot = parameter;
                    }
                }
                None if keys.len() >= MAX_PARAMETERS => {
                    return Err(too_many());
                }
                None => {
                    keys.push(key);
                    fields.push(parameter);
                }
            }
        }
    }
    Ok(Merged { fields })
}

pub(super) fn text<'d>(fields: &'d Map<String, Value>, key: &str) -> Option<&'d str> {
    fields.get(key).and_then(Value::as_str)
}

pub(super) fn flag(fields: &Map<String, Value>, key: &str) -> Option<bool> {
    fields.get(key).and_then(Value::as_bool)
}

/// A header that describes the request itself, or that only the runtime may set: an argument there
/// would let a model claim an identity. The document's authors list them too; they are no arguments.
pub(super) fn is_reserved_header(name: &str) -> bool {
    [
        "accept",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
    .iter()
    .any(|reserved| name.eq_ignore_ascii_case(reserved))
        || name.to_ascii_lowercase().starts_with("x-omnia-")
        || http::HeaderName::from_bytes(name.as_bytes()).is_err()
}

/// A parameter in path, query, header or cookie.
pub(super) struct Parameter<'d> {
    pub(super) name: &'d str,
    pub(super) location: Location,
    pub(super) required: bool,
    fields: &'d Map<String, Value>,
    schema: Schema<'d>,
    style: Style,
    explode: bool,
    reserved: bool,
}

enum Schema<'d> {
    Of(&'d Value),
    /// Version 2 writes it into the parameter.
    Own,
    /// Sent as JSON text.
    Json(Option<&'d Value>),
    None,
}

impl<'d> Parameter<'d> {
    /// The parameter, or `None` for one of version 2's bodies.
    pub(super) fn read(fields: &'d Map<String, Value>, version: Version) -> Option<Self> {
        let location = Location::parse(text(fields, "in")?)?;
        let (style, explode, schema) = if version == Version::V2 {
            let (style, explode) = Style::of_collection(text(fields, "collectionFormat"), location);
            (style, explode, Schema::Own)
        } else {
            let style = Style::parse(text(fields, "style"), location);
            let explode = flag(fields, "explode").unwrap_or(style == Style::Form);
            let schema = match (fields.get("schema"), fields.get("content")) {
                (Some(schema), _) => Schema::Of(schema),
                (None, Some(Value::Object(content))) => {
                    Schema::Json(content.values().next().and_then(|media| media.get("schema")))
                }
                (None, _) => Schema::None,
            };
            (style, explode, schema)
        };
        Some(Self {
            name: text(fields, "name")?,
            location,
            // Whatever the document says: there is no URL without it (D2).
            required: location == Location::Path || flag(fields, "required") == Some(true),
            fields,
            schema,
            style,
            explode,
            reserved: flag(fields, "allowReserved") == Some(true),
        })
    }

    /// What the model is told about it.
    pub(super) fn schema(&self, converter: &mut Converter<'d>) -> Value {
        let mut schema = match &self.schema {
            Schema::Of(schema) | Schema::Json(Some(schema)) => converter.convert(schema),
            Schema::Own => converter.convert_parameter(self.fields),
            Schema::Json(None) => json!({}),
            Schema::None => json!({"type": "string"}),
        };
        if let Some(description) = text(self.fields, "description").filter(|text| !text.is_empty()) {
            if schema == json!(true) {
                schema = json!({});
            }
            if let Value::Object(schema) = &mut schema {
                let description = converter.shortened(description);
                schema.insert("description".to_owned(), Value::String(description));
            }
        }
        schema
    }

    pub(super) fn placed(&self, argument: String) -> Placed {
        Placed {
            argument,
            name: self.name.to_owned(),
            location: self.location,
            style: self.style,
            explode: self.explode,
            reserved: self.reserved,
            json: matches!(self.schema, Schema::Json(_)),
        }
    }
}

/// Where an argument goes and how it is written there.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    /// The argument's name.
    pub(super) argument: String,
    /// The parameter's name.
    pub(super) name: String,
    pub(super) location: Location,
    pub(super) style: Style,
    pub(super) explode: bool,
    /// Whether reserved characters are sent as they are.
    pub(super) reserved: bool,
    /// Whether the value is sent as JSON text.
    pub(super) json: bool,
}

impl Placed {
    /// A placeholder that the document does not declare.
    pub(super) fn path(name: &str, argument: String) -> Self {
        Self {
            argument,
            name: name.to_owned(),
            location: Location::Path,
            style: Style::Simple,
            explode: false,
            reserved: false,
            json: false,
        }
    }
}

/// A piece of a path's template.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'d> {
    Text(&'d str),
    Placeholder(&'d str),
}

/// The pieces of `path`. A brace without its partner is text.
pub(super) fn path_pieces(path: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while let Some(start) = rest.find('{') {
        let Some(length) = rest[start..].find('}') else {
            break;
        };
        if start > 0 {
            pieces.push(Piece::Text(&rest[..start]));
        }
        pieces.push(Piece::Placeholder(&rest[start + 1..start + length]));
        rest = &rest[start + length + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart_at_its_placeholders() {
        use Piece::{Placeholder, Text};
        assert_eq!(
            path_pieces("/a/{b}.{c}/d"),
            [
                Text("/a/"),
                Placeholder("b"),
                Text("."),
                Placeholder("c"),
                Text("/d")
            ]
        );
        assert_eq!(path_pieces("/a/{b"), [Text("/a/{b")]);
        assert_eq!(path_pieces(""), []);
    }
}
