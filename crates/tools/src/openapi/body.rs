//! The body of an operation: which form it has, and which arguments make it up (OM-428, OM-430).

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    document::Version,
    flatten::flatten,
    name::ArgumentNames,
    operation::Input,
    parameter::{Location, Merged, flag, text},
    reference,
    schema::Converter,
    style::Style,
};

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data";

// Lists that many operations may share.
const MAX_MEDIA: usize = 64;
const MAX_ENCODINGS: usize = 512;

/// The argument of a body that is not spread over several.
const WHOLE: &str = "body";

/// How a body is written. The order is the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Media {
    Json,
    Form,
    Multipart,
    /// As the model writes it.
    Text,
}

/// The body as the document describes it.
pub(super) struct Described {
    pub(super) schema: Value,
    media: Media,
    content_type: String,
    required: bool,
    encodings: BTreeMap<String, (Style, bool)>,
    files: Vec<String>,
}

/// The body as it is made of arguments.
#[derive(Debug, Clone)]
pub(super) struct Body {
    pub(super) media: Media,
    pub(super) content_type: String,
    /// Whether a body is sent even when no argument is for it.
    pub(super) required: bool,
    pub(super) shape: Shape,
    /// Form fields that are not written the usual way.
    pub(super) encodings: BTreeMap<String, (Style, bool)>,
    /// Form fields that are sent as files.
    pub(super) files: Vec<String>,
    /// What the body is checked against besides the arguments' schema.
    pub(super) rules: Option<Value>,
}

/// Which arguments make up a body.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// One argument is the body.
    Whole { argument: String },
    /// Each argument is a property; arguments that have no other place are further properties.
    Fields { properties: Vec<(String, String)> },
}

impl Body {
    /// The body of an operation that describes none: what is left of the arguments (OM-430).
    pub(super) fn undescribed() -> Self {
        Self {
            media: Media::Json,
            content_type: JSON.to_owned(),
            required: false,
            shape: Shape::Fields {
                properties: Vec::new(),
            },
            encodings: BTreeMap::new(),
            files: Vec::new(),
            rules: None,
        }
    }

    /// The body's value, taken out of `arguments`.
    pub(super) fn value(&self, arguments: &mut Map<String, Value>) -> Option<Value> {
        match &self.shape {
            Shape::Whole { argument } => arguments.remove(argument),
            Shape::Fields { properties } => {
                let mut body = Map::new();
                for (argument, property) in properties {
                    if let Some(value) = arguments.remove(argument) {
                        body.insert(property.clone(), value);
                    }
                }
                for (name, value) in std::mem::take(arguments) {
                    body.entry(name).or_insert(value);
                }
                (self.required || !body.is_empty()).then_some(Value::Object(body))
            }
        }
    }
}

/// The body that `operation` describes. A GET has none, whatever the document says.
///
/// # Errors
/// A reference that leads nowhere.
pub(super) fn describe<'d>(
    document: &'d Value,
    version: Version,
    method: &Method,
    operation: &'d Map<String, Value>,
    merged: &Merged<'d>,
    converter: &mut Converter<'d>,
) -> Result<Option<Described>, String> {
    if *method == Method::GET {
        return Ok(None);
    }
    if version == Version::V2 {
        return Ok(describe_2(document, operation, merged, converter));
    }
    let Some(body) = operation.get("requestBody") else {
        return Ok(None);
    };
    let body = reference::object(document, body).map_err(|problem| format!("`requestBody`: {problem}"))?;
    let Some((body, content)) = body.and_then(|body| Some((body, body.get("content")?.as_object()?))) else {
        return Ok(None);
    };
    let chosen = content
        .iter()
        .take(MAX_MEDIA)
        .map(|(name, media)| (preference(name), name, media))
        .min_by_key(|(preference, _, _)| *preference);
    let Some(((media, _), name, described)) = chosen else {
        return Ok(None);
    };
    let schema = match described.get("schema") {
        _ if media == Media::Text => text_schema(name),
        Some(schema) => converter.convert(schema),
        None => json!({}),
    };
    let encodings = described
        .get("encoding")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .take(MAX_ENCODINGS)
        .filter_map(|(field, encoding)| {
            let encoding = encoding.as_object()?;
            let style = Style::parse(Some(text(encoding, "style")?), Location::Query);
            let explode = flag(encoding, "explode").unwrap_or(style == Style::Form);
            Some((field.clone(), (style, explode)))
        })
        .collect();
    Ok(Some(Described {
        schema: with_description(schema, body, converter),
        media,
        content_type: content_type(media, name),
        required: flag(body, "required") == Some(true),
        encodings,
        files: Vec::new(),
    }))
}

fn describe_2<'d>(
    document: &'d Value,
    operation: &'d Map<String, Value>,
    merged: &Merged<'d>,
    converter: &mut Converter<'d>,
) -> Option<Described> {
    let consumes: Vec<&str> = operation
        .get("consumes")
        .or_else(|| document.get("consumes"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .take(MAX_MEDIA)
        .filter_map(Value::as_str)
        .collect();
    let at = |place: &'static str| {
        merged
            .fields
            .iter()
            .copied()
            .filter(move |parameter| text(parameter, "in") == Some(place))
    };
    if let Some(body) = at("body").next() {
        // Forms have no `in: body`, so what is neither JSON nor text of some kind is taken for JSON.
        let name = consumes
            .iter()
            .copied()
            .filter(|name| matches!(preference(name).0, Media::Json | Media::Text))
            .min_by_key(|name| preference(name))
            .unwrap_or(JSON);
        let (media, _) = preference(name);
        let schema = match body.get("schema") {
            _ if media == Media::Text => text_schema(name),
            Some(schema) => converter.convert(schema),
            None => json!({}),
        };
        return Some(Described {
            schema: with_description(schema, body, converter),
            media,
            content_type: content_type(media, name),
            required: flag(body, "required") == Some(true),
            encodings: BTreeMap::new(),
            files: Vec::new(),
        });
    }
    let fields: Vec<&'d Map<String, Value>> = at("formData").collect();
    if fields.is_empty() {
        return None;
    }
    let mut properties = Map::new();
    let mut required = Vec::new();
    let mut encodings = BTreeMap::new();
    let mut files = Vec::new();
    for field in fields {
        let Some(name) = text(field, "name") else {
            continue;
        };
        properties.insert(name.to_owned(), converter.convert_parameter(field));
        if flag(field, "required") == Some(true) {
            required.push(name);
        }
        if text(field, "type") == Some("file") {
            files.push(name.to_owned());
        }
        // `multi` is allowed in forms as in queries.
        let encoding = Style::of_collection(text(field, "collectionFormat"), Location::Query);
        encodings.insert(name.to_owned(), encoding);
    }
    let is_multipart = !files.is_empty()
        || (consumes.iter().any(|name| essence(name) == MULTIPART)
            && !consumes.iter().any(|name| essence(name) == FORM));
    let (media, name) = if is_multipart {
        (Media::Multipart, MULTIPART)
    } else {
        (Media::Form, FORM)
    };
    Some(Described {
        schema: json!({"type": "object", "properties": properties, "required": required}),
        media,
        content_type: name.to_owned(),
        required: false,
        encodings,
        files,
    })
}

impl Described {
    /// Gives the body its arguments. `schema` is the described one, completed.
    pub(super) fn place(
        self,
        mut schema: Value,
        definitions: &Map<String, Value>,
        names: &mut ArgumentNames,
        input: &mut Input,
    ) -> Body {
        let flat = match self.media {
            Media::Text => None,
            _ => flatten(&schema, definitions),
        };
        let mut body = Body {
            media: self.media,
            content_type: self.content_type,
            required: self.required,
            shape: Shape::Fields {
                properties: Vec::new(),
            },
            encodings: self.encodings,
            files: self.files,
            rules: None,
        };
        let Some(flat) = flat else {
            let argument = names.take(WHOLE, "request");
            if self.required {
                input.require(&argument);
            }
            input.properties.insert(argument.clone(), schema);
            input.additional = Some(json!(false));
            body.shape = Shape::Whole { argument };
            return body;
        };
        let mut properties = Vec::new();
        let undeclared: Vec<&String> = flat
            .required
            .iter()
            .filter(|name| !flat.properties.contains_key(*name))
            .collect();
        for (property, declared) in flat.properties {
            let argument = names.take(&property, WHOLE);
            if flat.required.contains(&property) {
                input.require(&argument);
            }
            if body.media == Media::Multipart && is_binary(&declared) {
                body.files.push(property.clone());
            }
            input.properties.insert(argument.clone(), declared);
            properties.push((argument, property));
        }
        // A name that is required and declared nowhere is a further property.
        for name in undeclared {
            let argument = names.take(name, WHOLE);
            input.require(&argument);
            input.properties.insert(argument.clone(), json!({}));
            properties.push((argument, name.clone()));
        }
        input.additional = flat.additional;
        if !flat.exact {
            if let Value::Object(fields) = &mut schema
                && !definitions.is_empty()
            {
                fields.insert("$defs".to_owned(), Value::Object(definitions.clone()));
            }
            body.rules = Some(schema);
        }
        body.shape = Shape::Fields { properties };
        body
    }
}

/// The type's name without its parameters, in lower case.
fn essence(name: &str) -> String {
    let name = name.split(';').next().unwrap_or_default();
    name.trim().to_ascii_lowercase()
}

/// How a body of this type is written, and which type is preferred among those written alike.
fn preference(name: &str) -> (Media, u8) {
    match essence(name).as_str() {
        JSON => (Media::Json, 0),
        name if name.ends_with("+json") || name.ends_with("/json") => (Media::Json, 1),
        "*/*" | "application/*" => (Media::Json, 2),
        FORM => (Media::Form, 0),
        MULTIPART => (Media::Multipart, 0),
        "text/plain" => (Media::Text, 0),
        name if name.starts_with("text/") => (Media::Text, 1),
        _ => (Media::Text, 2),
    }
}

fn content_type(media: Media, name: &str) -> String {
    let is_sendable = http::HeaderValue::from_str(name).is_ok();
    match media {
        Media::Json if name.contains('*') || !is_sendable => JSON.to_owned(),
        Media::Text if name.contains('*') || !is_sendable => "application/octet-stream".to_owned(),
        // Its boundary is added when it is written.
        Media::Multipart => MULTIPART.to_owned(),
        _ => name.trim().to_owned(),
    }
}

fn text_schema(name: &str) -> Value {
    let name = mainstay_telemetry::text::escape(name, 64);
    json!({"type": "string", "description": format!("The request body as {name}")})
}

fn with_description(mut schema: Value, fields: &Map<String, Value>, converter: &Converter<'_>) -> Value {
    if let (Value::Object(schema), Some(description)) = (&mut schema, text(fields, "description")) {
        schema
            .entry("description")
            .or_insert_with(|| Value::String(converter.shortened(description)));
    }
    schema
}

fn is_binary(schema: &Value) -> bool {
    let schema = schema.get("items").unwrap_or(schema);
    schema.get("format").and_then(Value::as_str) == Some("binary")
}
