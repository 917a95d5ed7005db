//! The headers of a request, by precedence (OM-375).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::{delegation::HEADER as DELEGATION, policy::is_framing};

/// Where the headers of one attempt come from, in the order in which a later one wins.
#[derive(Debug, Default)]
pub(crate) struct Sources<'a> {
    /// Set when there is a body (OM-385).
    pub(crate) content_type: Option<&'a str>,
    pub(crate) fixed: Option<&'a BTreeMap<String, String>>,
    pub(crate) secret: Vec<(&'a str, HeaderValue)>,
    /// The header that `auth` owns, and its value.
    pub(crate) credential: Option<(HeaderName, HeaderValue)>,
    pub(crate) propagated: Option<&'a BTreeMap<String, String>>,
    pub(crate) delegation: Option<HeaderValue>,
    pub(crate) injected: Option<&'a BTreeMap<String, String>>,
    pub(crate) from_arguments: &'a [(String, String)],
}

/// Why the headers cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    /// The name or the value is not one a request can carry.
    #[error("the header `{0}` cannot be sent")]
    NotSendable(String),
    /// Neither an argument nor the registry decides about this header.
    #[error("the header `{0}` belongs to the runtime and may not be set")]
    Owned(String),
}

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
        headers.insert(unowned(name, None)?, value);
    }
    let owner = sources.credential.as_ref().map(|(name, _)| name.clone());
    if let Some((name, value)) = sources.credential {
        headers.insert(name, value);
    }
    for (name, value) in sources.propagated.into_iter().flatten() {
        set(&mut headers, name, value)?;
    }
    if let Some(value) = sources.delegation {
        headers.insert(HeaderName::from_static(DELEGATION), value);
    }
    for (name, value) in sources.injected.into_iter().flatten() {
        unowned(name, None)?;
        set(&mut headers, name, value)?;
    }
    for (name, value) in sources.from_arguments {
        if unowned(name, owner.as_ref())? == header::HOST {
            return Err(HeaderError::Owned(name.clone()));
        }
        set(&mut headers, name, value)?;
    }
    Ok(headers)
}

/// The name of a header that may be set from outside: not the statement of the operator, nor what `auth` owns.
fn unowned(name: &str, owner: Option<&HeaderName>) -> Result<HeaderName, HeaderError> {
    let parsed = parse_name(name)?;
    if parsed == DELEGATION || owner == Some(&parsed) {
        return Err(HeaderError::Owned(name.to_owned()));
    }
    Ok(parsed)
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
            credential: Some((header::AUTHORIZATION, HeaderValue::from_static("Bearer a"))),
            propagated: Some(&propagated),
            delegation: Some(HeaderValue::from_static("signed")),
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
        assert_eq!(headers[DELEGATION], "signed");
    }

    #[test]
    fn an_argument_cannot_replace_what_the_runtime_owns_om_375() {
        for (name, refused) in [
            ("authorization", false),
            ("x-workload-token", true),
            ("X-Omnia-Delegation", true),
            ("Host", true),
            ("X-T", false),
        ] {
            let result = assemble(Sources {
                credential: Some((
                    HeaderName::from_static("x-workload-token"),
                    HeaderValue::from_static("Bearer a"),
                )),
                from_arguments: &argument(name, "x"),
                ..Sources::default()
            });
            assert_eq!(result.is_err(), refused, "{name}");
        }
    }

    #[test]
    fn nobody_but_the_operator_claims_a_delegation_om_410() {
        let claimed = map(&[("x-omnia-delegation", "forged")]);
        let of = |sources: Sources<'_>| assemble(sources);
        let fixed = of(Sources {
            fixed: Some(&claimed),
            ..Sources::default()
        });
        assert_eq!(fixed.unwrap().get(DELEGATION), None);
        for sources in [
            Sources {
                injected: Some(&claimed),
                delegation: Some(HeaderValue::from_static("signed")),
                ..Sources::default()
            },
            Sources {
                secret: vec![("X-Omnia-Delegation", HeaderValue::from_static("forged"))],
                ..Sources::default()
            },
        ] {
            assert!(matches!(of(sources), Err(HeaderError::Owned(_))));
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
