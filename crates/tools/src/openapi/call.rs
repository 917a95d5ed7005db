//! One call of an operation: from arguments to a request (OM-430).

use std::fmt;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value};
use url::Url;

use super::{
    body::{Body, Media},
    document::Operation,
    multipart,
    parameter::{Location, Placed},
    style::{self, Style},
};
use crate::{
    arguments::ArgumentCheck,
    http::{
        shaping::{ShapeError, Shaped, check_segment, encode, parse_url},
        text_form,
    },
};

/// Where an operation's arguments go.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) method: Method,
    pub(super) path: Vec<Part>,
    pub(super) parameters: Vec<Placed>,
    pub(super) body: Option<Body>,
}

/// A part of an operation's path.
#[derive(Debug, Clone)]
pub(super) enum Part {
    Text(String),
    /// Index among the plan's parameters.
    Parameter(usize),
}

/// An operation bound to the URL of its service.
pub(crate) struct Call {
    plan: Plan,
    base: Url,
    body_check: Option<ArgumentCheck>,
}

impl fmt::Debug for Call {
    // A URL is often misused for keys.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Call")
            .field("method", &self.plan.method)
            .field("path", &self.plan.path)
            .field("host", &self.base.host_str())
            .finish_non_exhaustive()
    }
}

impl Call {
    /// Calls of `operation` below `base`.
    pub(crate) fn new(operation: &Operation, base: Url) -> Self {
        let plan = operation.plan.clone();
        let rules = plan.body.as_ref().and_then(|body| body.rules.clone());
        Self {
            plan,
            base,
            body_check: rules.map(ArgumentCheck::deferred),
        }
    }

    /// Checks the body that the arguments make up against the schema that the document has for it,
    /// where the arguments' own schema does not say all of it (D4).
    pub(crate) fn check(&self, arguments: &Map<String, Value>) -> Result<(), String> {
        let (Some(check), Some(body)) = (&self.body_check, &self.plan.body) else {
            return Ok(());
        };
        let mut arguments = arguments.clone();
        for parameter in &self.plan.parameters {
            arguments.remove(&parameter.argument);
        }
        match body.value(&mut arguments) {
            Some(body) => check.check_value(&body),
            None => Ok(()),
        }
    }

    /// The request. It is built once; every attempt sends the same bytes (OM-399).
    pub(crate) fn shape(&self, arguments: &Map<String, Value>) -> Result<Shaped, ShapeError> {
        let mut rest = arguments.clone();
        let values: Vec<Option<Value>> = self
            .plan
            .parameters
            .iter()
            .map(|parameter| {
                let value = rest.remove(&parameter.argument)?;
                Some(if parameter.json {
                    Value::String(value.to_string())
                } else {
                    value
                })
            })
            .collect();
        let mut url = self.url(&values)?;

        let mut query: Vec<String> = url
            .query()
            .filter(|query| !query.is_empty())
            .map(str::to_owned)
            .into_iter()
            .collect();
        let mut headers = Vec::new();
        let mut cookies = Vec::new();
        for (parameter, value) in self.plan.parameters.iter().zip(&values) {
            let Some(value) = value else {
                continue;
            };
            let pairs = |reserved| {
                style::pairs(
                    &parameter.name,
                    value,
                    parameter.style,
                    parameter.explode,
                    reserved,
                )
                .into_iter()
                .map(|(name, value)| format!("{name}={value}"))
            };
            match parameter.location {
                Location::Path => {}
                Location::Query => query.extend(pairs(parameter.reserved)),
                Location::Cookie => cookies.extend(pairs(false)),
                Location::Header => {
                    if let Some(text) = style::in_header(value, parameter.style, parameter.explode) {
                        headers.push(header(parameter, text)?);
                    }
                }
            }
        }
        if !cookies.is_empty() {
            headers.push(("Cookie".to_owned(), cookies.join("; ")));
        }
        url.set_query((!query.is_empty()).then(|| query.join("&")).as_deref());

        let (body, content_type) = match &self.plan.body {
            Some(body) => written(body, &mut rest),
            None => (None, String::new()),
        };
        Ok(Shaped {
            method: self.plan.method.clone(),
            url,
            body,
            content_type,
            headers,
        })
    }

    fn url(&self, values: &[Option<Value>]) -> Result<Url, ShapeError> {
        let mut base = self.base.clone();
        let base_query = base.query().unwrap_or_default().to_owned();
        base.set_query(None);
        let mut text = base.as_str().trim_end_matches('/').to_owned();

        // The path segment being written, and whether an argument is part of it.
        let mut segment = String::new();
        let mut argument: Option<String> = None;
        let mut is_first = true;
        for part in &self.plan.path {
            match part {
                Part::Text(literal) => {
                    if is_first && !literal.starts_with('/') {
                        text.push('/');
                    }
                    text.push_str(literal);
                    for letter in literal.chars() {
                        if matches!(letter, '/' | '?' | '#') {
                            check_segment(&segment, argument.take())?;
                            segment.clear();
                        } else {
                            segment.push(letter);
                        }
                    }
                }
                Part::Parameter(index) => {
                    let (Some(parameter), Some(value)) =
                        (self.plan.parameters.get(*index), values.get(*index))
                    else {
                        continue;
                    };
                    if is_first {
                        text.push('/');
                    }
                    // An empty one would call another path: the collection, in place of its element.
                    let written = value
                        .as_ref()
                        .and_then(|value| {
                            style::in_path(&parameter.name, value, parameter.style, parameter.explode)
                        })
                        .ok_or_else(|| ShapeError::PlaceholderMissing(parameter.argument.clone()))?;
                    text.push_str(&written);
                    segment.push_str(&written);
                    argument.get_or_insert_with(|| parameter.argument.clone());
                }
            }
            is_first = false;
        }
        check_segment(&segment, argument)?;
        let mut url = parse_url(&text)?;
        if !base_query.is_empty() {
            let own = url.query().map(|own| format!("&{own}")).unwrap_or_default();
            url.set_query(Some(&format!("{base_query}{own}")));
        }
        Ok(url)
    }
}

fn header(parameter: &Placed, text: String) -> Result<(String, String), ShapeError> {
    if text.chars().any(|letter| letter.is_control() && letter != '\t') {
        return Err(ShapeError::Header {
            argument: parameter.argument.clone(),
            header: parameter.name.clone(),
        });
    }
    Ok((parameter.name.clone(), text))
}

fn written(body: &Body, rest: &mut Map<String, Value>) -> (Option<Bytes>, String) {
    let content_type = body.content_type.clone();
    let Some(value) = body.value(rest) else {
        return (None, content_type);
    };
    match (body.media, &value) {
        (Media::Json, value) => (Some(Bytes::from(value.to_string())), content_type),
        (Media::Form, Value::Object(fields)) => (Some(Bytes::from(form(body, fields))), content_type),
        (Media::Multipart, Value::Object(fields)) => {
            let (bytes, content_type) = multipart::write(fields, &body.files);
            (Some(Bytes::from(bytes)), content_type)
        }
        (_, Value::String(text)) => (Some(Bytes::from(text.clone())), content_type),
        (_, value) => (Some(Bytes::from(value.to_string())), content_type),
    }
}

/// Lists are repeated; an object is JSON text unless the document says otherwise.
fn form(body: &Body, fields: &Map<String, Value>) -> String {
    let pairs = fields
        .iter()
        .flat_map(|(name, value)| match (body.encodings.get(name), value) {
            (Some((style, explode)), value) => style::pairs(name, value, *style, *explode, false),
            (None, Value::Object(_)) => vec![(encode(name), encode(&value.to_string()))],
            (None, Value::Array(_)) => style::pairs(name, value, Style::Form, true, false),
            (None, scalar) => text_form(scalar)
                .map(|text| (encode(name), encode(&text)))
                .into_iter()
                .collect(),
        });
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}
