//! The headers of a request, by precedence (OM-375).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::policy::is_framing;

/// Where the headers of one attempt come from, in the order in which a later one wins.
#[derive(Debug, Default)]
pub(crate) struct Sources<'a> {
    /// Set when there is a body (OM-385).
    pub(crate) content_type: Option<&'a str>,
    pub(crate) fixed: Option<&'a BTreeMap<String, String>>,
    pub(crate) secret: Vec<(&'a str, HeaderValue)>,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) propagated: Option<&'a BTreeMap<String, String>>,
    pub(crate) injected: Option<&'a BTreeMap<String, String>>,
    pub(crate) from_arguments: &'a [(String, String)],
}

/// Why the headers cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The name or the value is not one a request can carry.
    #[error("the header `{0}` cannot be sent")]
    NotSendable(String),
    /// An argument may not decide about this header.
    #[error("the header `{0}` may not be set from an argument")]
    Owned(String),
}

const DELEGATION: &str = "x-omnia-delegation";

/// The headers of one attempt.
pub(crate) fn assemble(sources: Sources<'_>) -> Result<HeaderMap, HeaderError> {
    let mut headers = HeaderMap::new();
    if let Some(content_type) = sources.content_type {
        set(&mut headers, "Content-Type", content_type)?;
    }
    for (name, value) in sources.fixed.into_iter().flatten() {
        // Only the runtime may claim a delegation.
        if !name.eq_ignore_ascii_case(DELEGATION) {
            set(&mut headers, name, value)?;
        }
    }
    for (name, value) in sources.secret {
        headers.insert(parse_name(name)?, value);
    }
    let owns_authorization = sources.authorization.is_some();
    if let Some(value) = sources.authorization {
        headers.insert(header::AUTHORIZATION, value);
    }
    for (name, value) in sources.propagated.into_iter().flatten() {
        set(&mut headers, name, value)?;
    }
    for (name, value) in sources.injected.into_iter().flatten() {
        set(&mut headers, name, value)?;
    }
    for (name, value) in sources.from_arguments {
        let owned = name.eq_ignore_ascii_case(DELEGATION)
            || name.eq_ignore_ascii_case("host")
            || (owns_authorization && name.eq_ignore_ascii_case("authorization"));
        if owned {
            return Err(HeaderError::Owned(name.clone()));
        }
        set(&mut headers, name, value)?;
    }
    Ok(headers)
}

fn parse_name(name: &str) -> Result<HeaderName, HeaderError> {
    let refused = || HeaderError::NotSendable(mainstay_telemetry::text::escape(name, 64));
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
    if is_framing(parsed.as_str()) {
        return Err(refused());
    }
    Ok(parsed)
}

fn set(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), HeaderError> {
    let parsed = parse_name(name)?;
    let value = HeaderValue::from_bytes(value.as_bytes())
        .map_err(|_| HeaderError::NotSendable(mainstay_telemetry::text::escape(name, 64)))?;
    headers.insert(parsed, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn argument(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn a_later_source_wins_om_375() {
        let names = ["X-1", "X-2", "X-3", "X-4"];
        let fixed = map(&[
            ("content-type", "text/plain"),
            ("X-1", "fixed"),
            ("X-2", "fixed"),
            ("X-3", "fixed"),
            ("X-4", "fixed"),
            ("Authorization", "fixed"),
            ("X-Omnia-Delegation", "fixed"),
        ]);
        let propagated = map(&[
            ("x-2", "propagated"),
            ("X-3", "propagated"),
            ("X-4", "propagated"),
        ]);
        let injected = map(&[("x-3", "injected"), ("X-4", "injected")]);
        let headers = assemble(Sources {
            content_type: Some("application/json"),
            fixed: Some(&fixed),
            secret: vec![("x-1", HeaderValue::from_static("secret"))],
            authorization: Some(HeaderValue::from_static("Bearer a")),
            propagated: Some(&propagated),
            injected: Some(&injected),
            from_arguments: &argument("x-4", "argument"),
        })
        .unwrap();
        assert_eq!(
            names.map(|name| headers[name].clone()),
            ["secret", "propagated", "injected", "argument"]
        );
        assert_eq!(headers["content-type"], "text/plain");
        assert_eq!(headers["authorization"], "Bearer a");
        assert_eq!(headers.get(DELEGATION), None);
    }

    #[test]
    fn an_argument_cannot_replace_what_the_runtime_owns_om_375() {
        for (name, refused) in [
            ("authorization", true),
            ("X-Omnia-Delegation", true),
            ("Host", true),
            ("X-T", false),
        ] {
            let result = assemble(Sources {
                authorization: Some(HeaderValue::from_static("Bearer a")),
                from_arguments: &argument(name, "x"),
                ..Sources::default()
            });
            assert_eq!(result.is_err(), refused, "{name}");
        }
    }

    #[test]
    fn a_header_that_frames_the_request_or_breaks_the_line_is_refused() {
        let fixed = map(&[("Transfer-Encoding", "chunked")]);
        assert!(
            assemble(Sources {
                fixed: Some(&fixed),
                ..Sources::default()
            })
            .is_err()
        );
        let injected = map(&[("X-A", "a\r\nX-B: b")]);
        let error = assemble(Sources {
            injected: Some(&injected),
            ..Sources::default()
        })
        .unwrap_err();
        assert_eq!(error, HeaderError::NotSendable("X-A".to_owned()));
    }
}
