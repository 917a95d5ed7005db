//! Where a service is (OM-429).

use serde_json::{Map, Value};
use url::Url;

use super::document::{Document, Operation, Version};

// A template's variables; a longer list is a trap.
const MAX_VARIABLES: usize = 32;
const MAX_URL_BYTES: usize = 2_048;

/// Why no request can be made of a document's operations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// Neither the handler nor the document names a server.
    #[error("neither `baseURL` nor the document says where the service is; set `baseURL`")]
    Missing,
    /// What one of them names cannot be used.
    #[error("the base URL of the {origin} cannot be used: {problem}")]
    Unusable {
        /// Who names it.
        origin: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// `servers[0].url` of a document, path or operation of version 3, its variables replaced by their
/// defaults.
pub(super) fn first(fields: &Map<String, Value>) -> Option<String> {
    let server = fields.get("servers")?.as_array()?.first()?;
    // One character too long is enough to tell that it is.
    let url = server.get("url")?.as_str()?;
    let mut url: String = url.chars().take(MAX_URL_BYTES + 1).collect();
    let variables = server.get("variables").and_then(Value::as_object);
    for (name, variable) in variables.into_iter().flatten().take(MAX_VARIABLES) {
        if url.len() > MAX_URL_BYTES {
            break;
        }
        if let Some(default) = variable.get("default").and_then(Value::as_str) {
            url = url.replace(&format!("{{{name}}}"), default);
        }
    }
    Some(url)
}

/// The server that the document names. Version 3 without `servers` means the root of the document's own
/// host; version 2 without a `host` names none.
pub(super) fn of_document(root: &Value, version: Version) -> Option<String> {
    if version != Version::V2 {
        let named = root.as_object().and_then(first);
        return Some(named.unwrap_or_else(|| "/".to_owned()));
    }
    let host = root
        .get("host")
        .and_then(Value::as_str)
        .filter(|host| !host.is_empty())?;
    let scheme = root
        .get("schemes")
        .and_then(Value::as_array)
        .and_then(|schemes| schemes.first())
        .and_then(Value::as_str)
        .unwrap_or("https");
    let path = root.get("basePath").and_then(Value::as_str).unwrap_or_default();
    let slash = if path.is_empty() || path.starts_with('/') {
        ""
    } else {
        "/"
    };
    Some(format!("{scheme}://{host}{slash}{path}"))
}

impl Document {
    /// The URL that the paths of `operation` are appended to: `configured`, else the operation's own
    /// server, else the document's; relative ones are resolved against `spec_url`, where the document was
    /// read.
    ///
    /// # Errors
    /// See [`BaseUrlError`].
    pub fn base_url(
        &self,
        operation: &Operation,
        configured: Option<&str>,
        spec_url: &Url,
    ) -> Result<Url, BaseUrlError> {
        if let Some(configured) = configured {
            return absolute("handler", configured);
        }
        let named = operation
            .server
            .as_ref()
            .or(self.server.as_ref())
            .ok_or(BaseUrlError::Missing)?;
        if named.len() > MAX_URL_BYTES {
            return Err(BaseUrlError::Unusable {
                origin: "document",
                problem: format!("it is longer than {MAX_URL_BYTES} bytes"),
            });
        }
        match Url::parse(named) {
            Err(url::ParseError::RelativeUrlWithoutBase) => {
                let resolved = spec_url.join(named).map_err(|error| BaseUrlError::Unusable {
                    origin: "document",
                    problem: error.to_string(),
                })?;
                usable("document", resolved)
            }
            _ => absolute("document", named),
        }
    }
}

fn absolute(origin: &'static str, text: &str) -> Result<Url, BaseUrlError> {
    let url = Url::parse(text.trim()).map_err(|error| BaseUrlError::Unusable {
        origin,
        problem: error.to_string(),
    })?;
    usable(origin, url)
}

fn usable(origin: &'static str, mut url: Url) -> Result<Url, BaseUrlError> {
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(BaseUrlError::Unusable {
            origin,
            problem: "it must start with http:// or https://".to_owned(),
        });
    }
    url.set_fragment(None);
    Ok(url)
}
