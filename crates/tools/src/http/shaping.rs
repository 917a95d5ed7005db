//! From arguments to a request (OM-376…OM-385).
//!
//! The steps run in the order of OM-382; a step that takes an argument consumes it. Credentials and
//! other headers are added elsewhere ([`super::headers`]), so a shaped request holds nothing secret
//! beyond what the registry's author wrote into it.

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value};
use url::Url;

use super::{mapping, text_form::text_form};
use crate::config::HttpConfig;

/// A request without its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shaped {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// Present when there is something to send (OM-385).
    pub(crate) body: Option<Bytes>,
    /// Says what `body` is; not sent without one.
    pub(crate) content_type: String,
    /// Header name and text of each `headerParams` argument.
    pub(crate) headers: Vec<(String, String)>,
}

/// Why no request could be made. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ShapeError {
    /// OM-377.
    #[error("the URL needs the argument `{0}`, which is missing")]
    PlaceholderMissing(String),
    /// A value would change which host or path is called.
    #[error("the argument `{0}` cannot stand in the URL: its value would change the host or leave the path")]
    PlaceholderUnsafe(String),
    /// OM-378.
    #[error(
        "the argument `{argument}` cannot be sent in the header `{header}`: it holds a line break or control character"
    )]
    Header { argument: String, header: String },
    /// The registry's URL cannot be used.
    #[error("the tool's URL cannot be used: {0}")]
    Url(String),
    /// The registry's method cannot be used.
    #[error("the tool's method cannot be used: `{0}`")]
    Method(String),
    /// OM-383.
    #[error("`bodyMapping`: {0}")]
    BodyMapping(mapping::MappingError),
}

/// Builds the request of one call. It is built once; every attempt sends the same bytes (OM-399).
pub(crate) fn shape(config: &HttpConfig, arguments: &Map<String, Value>) -> Result<Shaped, ShapeError> {
    let method = config.method.to_uppercase();
    let method = Method::from_bytes(method.as_bytes())
        .map_err(|_| ShapeError::Method(mainstay_telemetry::text::escape(&method, 32)))?;
    let mut arguments = arguments.clone();

    let mut url = match &config.url_template {
        Some(template) => fill(template, &mut arguments)?,
        None => parse_url(&config.endpoint)?,
    };
    let headers = take_headers(config, &mut arguments)?;

    // Pairs, and not the text of the query, so that a name set twice is replaced and not repeated.
    let mut query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    for (name, value) in &config.static_query {
        set(&mut query, name, value.clone());
    }
    let has_body = matches!(method, Method::POST | Method::PUT | Method::PATCH);
    let mut to_query = |name: &str, value: &Value| {
        // A static parameter is sent with every call; an argument of the same name must not undo it.
        if let Some(text) = text_form(value)
            && !config.static_query.contains_key(name)
        {
            set(&mut query, name, text);
        }
    };
    for name in &config.query_params {
        if let Some(value) = arguments.remove(name) {
            to_query(name, &value);
        }
    }
    if !has_body && config.query_params.is_empty() {
        for (name, value) in &arguments {
            to_query(name, value);
        }
    }
    let body = if has_body {
        build_body(config, arguments)?
    } else {
        None
    };

    if query.is_empty() {
        url.set_query(None);
    } else {
        let encoded: Vec<String> = query
            .iter()
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        url.set_query(Some(&encoded.join("&")));
    }
    Ok(Shaped {
        method,
        url,
        body,
        content_type: config.content_type.clone(),
        headers,
    })
}

fn set(query: &mut Vec<(String, String)>, name: &str, value: String) {
    query.retain(|(known, _)| known != name);
    query.push((name.to_owned(), value));
}

pub(crate) fn parse_url(text: &str) -> Result<Url, ShapeError> {
    let mut url = Url::parse(text.trim()).map_err(|error| ShapeError::Url(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(ShapeError::Url(
            "it must start with http:// or https://".to_owned(),
        ));
    }
    url.set_fragment(None);
    Ok(url)
}

fn take_headers(
    config: &HttpConfig,
    arguments: &mut Map<String, Value>,
) -> Result<Vec<(String, String)>, ShapeError> {
    let mut headers = Vec::new();
    for (argument, header) in &config.header_params {
        let Some(text) = arguments.remove(argument).as_ref().and_then(text_form) else {
            continue;
        };
        if text.chars().any(|letter| letter.is_control() && letter != '\t') {
            return Err(ShapeError::Header {
                argument: argument.clone(),
                header: header.clone(),
            });
        }
        headers.push((header.clone(), text));
    }
    Ok(headers)
}

fn build_body(config: &HttpConfig, arguments: Map<String, Value>) -> Result<Option<Bytes>, ShapeError> {
    let mut body = match &config.static_body {
        Some(Value::Object(fields)) => {
            let mut merged = fields.clone();
            merged.extend(arguments);
            Some(Value::Object(merged)).filter(|merged| merged != &Value::Object(Map::new()))
        }
        // Not an object, so nothing can be merged into it.
        Some(other) if arguments.is_empty() => Some(other.clone()),
        _ if arguments.is_empty() => None,
        _ => Some(Value::Object(arguments)),
    };
    if let Some(expression) = &config.body_mapping {
        let input = body.take().unwrap_or_else(|| Value::Object(Map::new()));
        let mapped = mapping::apply(expression, &input).map_err(ShapeError::BodyMapping)?;
        body = Some(mapped).filter(|mapped| !mapped.is_null());
    }
    Ok(body.map(|body| Bytes::from(body.to_string())))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Authority,
    Path,
    Query,
}

/// The URL of a template, its arguments consumed (OM-376).
fn fill(template: &str, arguments: &mut Map<String, Value>) -> Result<Url, ShapeError> {
    let template = template.trim();
    let (scheme, rest) = template
        .split_once("://")
        .ok_or_else(|| ShapeError::Url("it must start with http:// or https://".to_owned()))?;
    let mut url = format!("{scheme}://");
    let mut position = Position::Authority;
    // The path segment being written, and whether an argument is part of it.
    let mut segment = String::new();
    let mut segment_argument: Option<String> = None;
    let mut used: Vec<String> = Vec::new();
    let mut rest = rest;
    while let Some(letter) = rest.chars().next() {
        if letter == '{' {
            let end = rest
                .find('}')
                .ok_or_else(|| ShapeError::Url("`{` without `}` in `urlTemplate`".to_owned()))?;
            let name = &rest[1..end];
            rest = &rest[end + 1..];
            let text = arguments
                .get(name)
                .and_then(text_form)
                .ok_or_else(|| ShapeError::PlaceholderMissing(name.to_owned()))?;
            if !used.iter().any(|known| known == name) {
                used.push(name.to_owned());
            }
            if position == Position::Authority {
                let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '.';
                if text.is_empty() || !text.chars().all(plain) {
                    return Err(ShapeError::PlaceholderUnsafe(name.to_owned()));
                }
                url.push_str(&text);
            } else {
                let encoded = encode(&text);
                segment.push_str(&encoded);
                segment_argument.get_or_insert_with(|| name.to_owned());
                url.push_str(&encoded);
            }
            continue;
        }
        rest = &rest[letter.len_utf8()..];
        match (letter, position) {
            ('/', Position::Authority) => position = Position::Path,
            ('?', Position::Authority) => position = Position::Query,
            ('/' | '?', Position::Path) => {
                check_segment(&segment, segment_argument.take())?;
                segment.clear();
                if letter == '?' {
                    position = Position::Query;
                }
            }
            // Nothing after it is sent.
            ('#', _) => break,
            (letter, Position::Path) => segment.push(letter),
            _ => {}
        }
        url.push(letter);
    }
    if position == Position::Path {
        check_segment(&segment, segment_argument.take())?;
    }
    for name in used {
        arguments.remove(&name);
    }
    parse_url(&url)
}

/// A segment of only dots is resolved away by every URL parser, so an argument could reach another
/// path by being `..`, or by completing a dot of the template.
pub(crate) fn check_segment(segment: &str, argument: Option<String>) -> Result<(), ShapeError> {
    let dots = segment.to_ascii_lowercase().replace("%2e", ".");
    match argument {
        Some(argument) if matches!(dots.as_str(), "." | "..") => Err(ShapeError::PlaceholderUnsafe(argument)),
        _ => Ok(()),
    }
}

/// Percent-encodes everything but the unreserved characters, which is right in a path segment and in
/// a query alike.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write;

    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests;
