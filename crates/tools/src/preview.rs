//! A request as it would be sent, for people who want to see it before it is: secrets are masked.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::{Url, form_urlencoded};

use crate::{
    http::{conceal, conceal_within},
    policy::{is_secret, is_secret_field},
};

/// What stands for a secret.
const MASKED: &str = "[redacted]";
/// Bytes of a body that is no JSON document which are shown.
const TEXT_LIMIT: usize = 4096;

/// A request. Its values are masked when it is made, so that it can be shown, logged and sent on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// The HTTP method; for other protocols the procedure that is called.
    pub method: String,
    /// The whole address.
    pub url: String,
    /// The headers by name.
    pub headers: BTreeMap<String, String>,
    /// The body: a JSON document as it is, anything else as text. `None` when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

impl Preview {
    /// A call of the procedure `procedure` of another protocol, with `message` as it is sent.
    pub(crate) fn of_procedure(
        procedure: &str,
        url: &Url,
        headers: &HeaderMap,
        message: &Value,
        secrets: &[SecretString],
    ) -> Self {
        let body = message.to_string();
        Self {
            method: procedure.to_owned(),
            ..Self::of_http(&Method::POST, url, headers, Some(body.as_bytes()), secrets)
        }
    }

    /// An HTTP request. `secrets` are masked wherever they stand, other credentials by the names of what holds them.
    pub(crate) fn of_http(
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
        body: Option<&[u8]>,
        secrets: &[SecretString],
    ) -> Self {
        Self {
            method: method.to_string(),
            url: conceal(masked_url(url), secrets),
            headers: headers
                .iter()
                .map(|(name, value)| (name.to_string(), conceal(masked_header(name, value), secrets)))
                .collect(),
            body: body.map(|body| masked_body(headers, body, secrets)),
        }
    }
}

fn masked_header(name: &HeaderName, value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes());
    // The session is named so that its call can be found again; it opens nothing.
    let secret = value.is_sensitive()
        || name.as_str() == "x-omnia-delegation"
        || (is_secret(name.as_str()) && name.as_str() != "x-omnia-session-id");
    if !secret {
        return text.into_owned();
    }
    match text.split_once(' ') {
        // Which scheme is used is worth knowing, and no secret.
        Some((scheme @ ("Bearer" | "Basic"), _)) => format!("{scheme} {MASKED}"),
        _ => MASKED.to_owned(),
    }
}

fn masked_url(url: &Url) -> String {
    let mut url = url.clone();
    // Some services take their key as the user's name.
    if !url.username().is_empty() {
        let _ = url.set_username("redacted");
    }
    if url.password().is_some() {
        // A URL that has a password can have another one.
        let _ = url.set_password(Some("redacted"));
    }
    if url.query_pairs().any(|(name, _)| is_secret_field(&name)) {
        let pairs: Vec<(String, String)> = url
            .query_pairs()
            .map(|(name, value)| {
                let value = if is_secret_field(&name) {
                    "redacted"
                } else {
                    &value
                };
                (name.to_string(), value.to_owned())
            })
            .collect();
        url.query_pairs_mut().clear().extend_pairs(pairs);
    }
    url.to_string()
}

fn masked_body(headers: &HeaderMap, body: &[u8], secrets: &[SecretString]) -> Value {
    match serde_json::from_slice(body) {
        Ok(mut value) => {
            mask_fields(&mut value);
            conceal_within(&mut value, secrets);
            value
        }
        Err(_) => {
            let text = masked_form(headers, &String::from_utf8_lossy(body));
            let text = conceal(text, secrets);
            Value::from(mainstay_telemetry::text::escape(&text, TEXT_LIMIT))
        }
    }
}

/// A form whose secret fields are masked; any other text as it is.
fn masked_form(headers: &HeaderMap, text: &str) -> String {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (media_type, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    match media_type.trim().to_ascii_lowercase().as_str() {
        "application/x-www-form-urlencoded" => text
            .split('&')
            .map(|pair| match form_urlencoded::parse(pair.as_bytes()).next() {
                Some((name, _)) if is_secret_field(&name) => {
                    format!("{}={MASKED}", pair.split('=').next().unwrap_or_default())
                }
                _ => pair.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("&"),
        "multipart/form-data" => {
            let boundary = parameters
                .split(';')
                .find_map(|parameter| parameter.trim().strip_prefix("boundary="));
            let delimiter = format!("--{}", boundary.unwrap_or_default().trim_matches('"'));
            text.split(&delimiter)
                .map(masked_part)
                .collect::<Vec<_>>()
                .join(&delimiter)
        }
        _ => text.to_owned(),
    }
}

fn masked_part(part: &str) -> String {
    let Some((head, content)) = part.split_once("\r\n\r\n") else {
        return part.to_owned();
    };
    let name = head
        .split_once("name=\"")
        .and_then(|(_, rest)| rest.split('"').next());
    if content.is_empty() || !name.is_some_and(is_secret_field) {
        return part.to_owned();
    }
    format!("{head}\r\n\r\n{MASKED}\r\n")
}

fn mask_fields(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if is_secret_field(name) && !field.is_null() {
                    *field = Value::from(MASKED);
                } else {
                    mask_fields(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_fields),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_stand_om_590() {
        let mut headers = HeaderMap::new();
        let mut sensitive = HeaderValue::from_static("Bearer hunter2-hunter2");
        sensitive.set_sensitive(true);
        headers.insert("authorization", sensitive);
        headers.insert("x-api-key", HeaderValue::from_static("key-of-the-author"));
        headers.insert("x-omnia-delegation", HeaderValue::from_static("eyJh.eyJz.c2ln"));
        headers.insert("x-omnia-session-id", HeaderValue::from_static("s1"));
        headers.insert("x-echo", HeaderValue::from_static("says hunter2-hunter2"));
        let url = Url::parse("https://key-1:pw@h/a?api_key=k1&q=a%20b&author=me").unwrap();
        let body = json!({"access_token": "t1", "note": "hunter2-hunter2", "hunter2-hunter2": 1, "list": [{"password": "p1", "author": "me"}]});
        let secrets = [SecretString::from("hunter2-hunter2")];
        let preview = Preview::of_http(
            &Method::POST,
            &url,
            &headers,
            Some(body.to_string().as_bytes()),
            &secrets,
        );
        assert_eq!(
            serde_json::to_value(&preview).unwrap(),
            json!({
                "method": "POST",
                "url": "https://redacted:redacted@h/a?api_key=redacted&q=a+b&author=me",
                "headers": {
                    "authorization": "Bearer [redacted]", "x-api-key": "[redacted]", "x-omnia-delegation": "[redacted]",
                    "x-omnia-session-id": "s1", "x-echo": "says [REDACTED]"
                },
                "body": {"access_token": "[redacted]", "note": "[REDACTED]", "[REDACTED]": 1, "list": [{"password": "[redacted]", "author": "me"}]}
            })
        );
    }

    #[test]
    fn the_secret_fields_of_a_form_are_masked_om_590() {
        let url = Url::parse("http://h/a").unwrap();
        let shown = |kind: &'static str, body: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", HeaderValue::from_static(kind));
            Preview::of_http(&Method::POST, &url, &headers, Some(body.as_bytes()), &[])
                .body
                .unwrap()
        };
        let form = "user=ada&pass%77ord=p+1&api_key=k&author=me&empty";
        assert_eq!(
            shown("application/x-www-form-urlencoded; charset=utf-8", form),
            json!("user=ada&pass%77ord=[redacted]&api_key=[redacted]&author=me&empty")
        );
        assert_eq!(shown("text/plain", form), json!(form));
        let part = |name: &str, content: &str| {
            format!("--b1\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{content}\r\n")
        };
        let parts = |secret| format!("{}{}--b1--\r\n", part("client_secret", secret), part("note", "n"));
        assert_eq!(
            shown("multipart/form-data; boundary=b1", &parts("s-1\r\n\r\ns-2")),
            json!(mainstay_telemetry::text::escape(&parts("[redacted]"), TEXT_LIMIT))
        );
    }

    #[test]
    fn what_is_no_secret_is_shown_as_it_is_sent() {
        let url = Url::parse("http://h/a?q=a%20b").unwrap();
        let preview = Preview::of_http(&Method::GET, &url, &HeaderMap::new(), None, &[]);
        assert_eq!(preview.url, "http://h/a?q=a%20b");
        assert_eq!(preview.body, None);
        let text = Preview::of_http(&Method::PUT, &url, &HeaderMap::new(), Some(b"a=1\n"), &[]);
        assert_eq!(text.body, Some(json!("a=1\\n")));
    }
}
