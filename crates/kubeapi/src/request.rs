//! What a request asks for: the path taken apart, the verb, and the query options.
//! Requirements KA-004, KA-020, KA-025, KA-026.

mod options;
mod path;

pub(crate) use options::{DryRun, FieldValidation, QueryOptions, ResourceVersionMatch};
pub(crate) use path::{Document, Location, ResourcePath, locate, percent_decoded};

use http::Method;

/// What is to be done with the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// The verb as discovery and authorisation spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The verb of `method` on `path`; `None` for a method that resources do not know.
    pub(crate) fn of(method: &Method, path: &ResourcePath, watch: bool) -> Option<Self> {
        let collection = path.name.is_none();
        match (method.as_str(), collection) {
            ("GET", true) => Some(if watch { Self::Watch } else { Self::List }),
            ("GET", false) => Some(Self::Get),
            ("HEAD", false) if path.is_proxy() => Some(Self::Get),
            ("POST", true) => Some(Self::Create),
            // A POST below an object is the creation of a subresource, as with `pods/NAME/binding`.
            ("POST", false) if !path.subresource.is_empty() => Some(Self::Create),
            ("PUT", false) => Some(Self::Update),
            ("PATCH", false) => Some(Self::Patch),
            ("DELETE", true) => Some(Self::DeleteCollection),
            ("DELETE", false) => Some(Self::Delete),
            _ => None,
        }
    }
}
