//! Paths of the API.

/// A resource, an object or a subresource that a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    /// The plural name of the resource.
    pub(crate) resource: String,
    /// Set where the path has a namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    /// Empty for the object itself.
    pub(crate) subresource: String,
    /// Whether the path itself asks for a watch, as `/api/v1/watch/…` does.
    pub(crate) watch: bool,
}

impl ResourcePath {
    /// Whether a workload answers: its path and its query are its own.
    pub(crate) fn is_proxy(&self) -> bool {
        self.name.is_some() && self.subresource.split('/').next() == Some("proxy")
    }
}

/// A document about the API itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Document {
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group(String),
    /// `/api/v1` and `/apis/GROUP/VERSION`
    Resources { group: String, version: String },
    /// `/openapi/v2`
    OpenApiTwo,
    /// `/openapi/v3`
    OpenApiThreeIndex,
    /// `/openapi/v3/…`: what follows, for example `apis/apps/v1`
    OpenApiThree(String),
    /// `/.well-known/openid-configuration`
    OpenIdConfiguration,
    /// `/openid/v1/jwks`
    OpenIdKeys,
    /// `/version`
    Version,
    /// `/healthz`, `/livez`, `/readyz` and one check below them
    Health { endpoint: String, check: Option<String> },
    /// `/metrics`
    Metrics,
    /// `/`
    Root,
}

impl Document {
    /// Whether it says which groups, versions and resources there are.
    pub(crate) fn is_discovery(&self) -> bool {
        matches!(
            self,
            Self::CoreVersions | Self::Groups | Self::Group(_) | Self::Resources { .. }
        )
    }
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Document(Document),
    Resource(ResourcePath),
    Nowhere,
}

/// Takes a path apart. Segments are percent-decoded one by one, so that an encoded slash stays inside its segment.
pub(crate) fn locate(path: &str) -> Location {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Location::Document(Document::Root);
    }
    let Some(segments) = trimmed
        .split('/')
        .map(percent_decoded)
        .collect::<Option<Vec<String>>>()
    else {
        return Location::Nowhere;
    };
    let texts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match texts.as_slice() {
        ["api"] => Location::Document(Document::CoreVersions),
        ["apis"] => Location::Document(Document::Groups),
        ["apis", group] => Location::Document(Document::Group((*group).to_owned())),
        ["api", version] => Location::Document(Document::Resources {
            group: String::new(),
            version: (*version).to_owned(),
        }),
        ["apis", group, version] => Location::Document(Document::Resources {
            group: (*group).to_owned(),
            version: (*version).to_owned(),
        }),
        ["api", version, rest @ ..] => resource("", version, rest),
        ["apis", group, version, rest @ ..] => resource(group, version, rest),
        ["openapi", "v2"] => Location::Document(Document::OpenApiTwo),
        ["openapi", "v3"] => Location::Document(Document::OpenApiThreeIndex),
        ["openapi", "v3", rest @ ..] => Location::Document(Document::OpenApiThree(rest.join("/"))),
        [".well-known", "openid-configuration"] => Location::Document(Document::OpenIdConfiguration),
        ["openid", "v1", "jwks"] => Location::Document(Document::OpenIdKeys),
        ["version"] => Location::Document(Document::Version),
        ["metrics"] => Location::Document(Document::Metrics),
        [endpoint @ ("healthz" | "livez" | "readyz")] => Location::Document(Document::Health {
            endpoint: (*endpoint).to_owned(),
            check: None,
        }),
        [endpoint @ ("healthz" | "livez" | "readyz"), check] => Location::Document(Document::Health {
            endpoint: (*endpoint).to_owned(),
            check: Some((*check).to_owned()),
        }),
        _ => Location::Nowhere,
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Location {
    let mut path = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ResourcePath::default()
    };
    if rest.iter().any(|segment| segment.is_empty()) {
        return Location::Nowhere;
    }
    let rest = match rest {
        ["watch", watched @ ..] if !watched.is_empty() => {
            path.watch = true;
            watched
        }
        _ => rest,
    };
    let set = |path: &mut ResourcePath, rest: &[&str]| {
        path.resource = rest.first().map(|text| (*text).to_owned()).unwrap_or_default();
        path.name = rest.get(1).map(|text| (*text).to_owned());
        path.subresource = rest.get(2..).unwrap_or_default().join("/");
    };
    match rest {
        // Below a namespace stands a resource, except for the namespace's own subresources.
        ["namespaces", namespace, below, ..]
            if !(group.is_empty() && matches!(*below, "status" | "finalize")) =>
        {
            path.namespace = Some((*namespace).to_owned());
            set(&mut path, rest.get(2..).unwrap_or_default());
        }
        _ => set(&mut path, rest),
    }
    Location::Resource(path)
}

/// Percent-decodes one segment; `None` when it is malformed or not UTF-8.
pub(crate) fn percent_decoded(segment: &str) -> Option<String> {
    if !segment.contains('%') {
        return Some(segment.to_owned());
    }
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes().iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            let high = char::from(*rest.next()?).to_digit(16)?;
            let low = char::from(*rest.next()?).to_digit(16)?;
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn of(path: &str) -> ResourcePath {
        match locate(path) {
            Location::Resource(path) => path,
            other => panic!("{path} leads to {other:?}"),
        }
    }

    #[test]
    fn a_namespaced_object_is_taken_apart() {
        let path = of("/apis/apps/v1/namespaces/shop/deployments/orders/scale");
        assert_eq!((path.group.as_str(), path.version.as_str()), ("apps", "v1"));
        assert_eq!(path.namespace.as_deref(), Some("shop"));
        assert_eq!(
            (path.resource.as_str(), path.name.as_deref()),
            ("deployments", Some("orders"))
        );
        assert_eq!(path.subresource, "scale");
    }

    #[test]
    fn a_namespace_and_its_subresources_are_objects_and_not_scopes() {
        let path = of("/api/v1/namespaces/shop");
        assert_eq!(
            (path.resource.as_str(), path.name.as_deref(), path.namespace),
            ("namespaces", Some("shop"), None)
        );
        let path = of("/api/v1/namespaces/shop/finalize");
        assert_eq!(
            (path.resource.as_str(), path.name.as_deref()),
            ("namespaces", Some("shop"))
        );
        assert_eq!(path.subresource, "finalize");
    }

    #[test]
    fn an_encoded_slash_stays_inside_its_segment() {
        assert_eq!(of("/api/v1/nodes/a%2Fb").name.as_deref(), Some("a/b"));
        assert_eq!(locate("/api/v1/nodes/a%2"), Location::Nowhere);
    }
}
