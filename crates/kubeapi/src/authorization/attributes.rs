//! What a request is about, in the terms of authorisation.

use http::Method;

use crate::{
    names::NameRule,
    request::{QueryOptions, ResourcePath},
    selector::FieldSelector,
};

/// What is asked to be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attributes {
    /// A path that leads to no resource, such as `/healthz`.
    Path {
        /// The method in lower case.
        verb: String,
        path: String,
    },
    Resource(ResourceAttributes),
}

/// A verb on a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourceAttributes {
    pub(crate) verb: String,
    /// Empty for the core group.
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    /// Empty for the cluster scope, or for all namespaces.
    pub(crate) namespace: String,
    /// Empty for a collection.
    pub(crate) name: String,
}

impl ResourceAttributes {
    /// `RESOURCE/SUBRESOURCE`, or the resource alone.
    pub(crate) fn combined(&self) -> String {
        if self.subresource.is_empty() {
            self.resource.clone()
        } else {
            format!("{}/{}", self.resource, self.subresource)
        }
    }
}

impl Attributes {
    /// A request for a document.
    pub(crate) fn of_path(method: &Method, path: &str) -> Self {
        Self::Path {
            verb: method.as_str().to_ascii_lowercase(),
            path: path.to_owned(),
        }
    }

    /// A request for a resource, whether that resource is served or not.
    pub(crate) fn of_resource(method: &Method, path: &ResourcePath, options: &QueryOptions) -> Self {
        let mut name = path.name.clone().unwrap_or_default();
        let mut verb = match method.as_str() {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            "PATCH" => "patch",
            "DELETE" => "delete",
            _ => "",
        };
        if path.watch && verb == "get" {
            verb = "watch";
        }
        if name.is_empty() && verb == "get" {
            verb = if options.watch { "watch" } else { "list" };
            // A collection of which one name is chosen is a request for that name.
            if let Some(required) = FieldSelector::named(&options.field_selector)
                && NameRule::PathSegment.check(&required, false).is_empty()
            {
                name = required;
            }
        }
        if name.is_empty() && verb == "delete" {
            verb = "deletecollection";
        }
        // A namespace is in itself.
        let is_namespace = path.group.is_empty() && path.resource == "namespaces";
        let namespace = match &path.namespace {
            Some(namespace) => namespace.clone(),
            None if is_namespace => path.name.clone().unwrap_or_default(),
            None => String::new(),
        };
        Self::Resource(ResourceAttributes {
            verb: verb.to_owned(),
            group: path.group.clone(),
            resource: path.resource.clone(),
            subresource: path.subresource.split('/').next().unwrap_or_default().to_owned(),
            namespace,
            name,
        })
    }

    /// The namespace asked about; empty for none.
    pub(super) fn namespace(&self) -> &str {
        match self {
            Self::Path { .. } => "",
            Self::Resource(resource) => &resource.namespace,
        }
    }

    /// That `user` may not, in the words of the reference.
    pub(super) fn denial(&self, user: &str) -> String {
        match self {
            Self::Path { verb, path } => format!("User {user:?} cannot {verb} path {path:?}"),
            Self::Resource(asked) => {
                let scope = if asked.namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {:?}", asked.namespace)
                };
                format!(
                    "User {user:?} cannot {} resource {:?} in API group {:?} {scope}",
                    asked.verb,
                    asked.combined(),
                    asked.group
                )
            }
        }
    }
}
