//! A request as policies see it.

use std::{cell::OnceCell, sync::Arc};

use mainstay_cel::Value as Cel;
use serde_json::{Value, json};

use crate::{
    builtin::KindInfo, identity::Identity, object, present::View, registry::Snapshot, status::ApiError,
};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
    /// A client is connected with a workload.
    Connect,
}

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// Group, version and name of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

impl Target {
    pub(crate) fn of(kind: &KindInfo) -> Self {
        Self::new(&kind.group, &kind.version, &kind.kind)
    }

    pub(crate) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
        }
    }

    /// As the reference shows it: `apps/v1, Kind=Deployment`.
    pub(super) fn shown(&self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }

    fn value(&self) -> Cel {
        Cel::map([
            ("group", Cel::from(self.group.as_str())),
            ("version", Cel::from(self.version.as_str())),
            ("kind", Cel::from(self.kind.as_str())),
        ])
    }
}

/// A request that is to be admitted.
pub(crate) struct Subject<'a> {
    /// The kind of the resource in the path.
    pub(crate) kind: &'a Arc<KindInfo>,
    pub(crate) snapshot: &'a Snapshot,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
    /// The kind of `object`, which a subresource may have of its own.
    pub(crate) target: Target,
    pub(crate) operation: Operation,
    /// Empty for a cluster-scoped kind.
    pub(crate) namespace: &'a str,
    /// Empty where the request names no object: the deletion of a collection.
    pub(crate) name: &'a str,
    /// Absent in a deletion.
    pub(crate) object: Option<&'a Value>,
    /// Absent in a creation.
    pub(crate) old: Option<&'a Value>,
    pub(crate) author: &'a Identity,
    pub(crate) dry_run: bool,
    /// The request's options, as `CreateOptions` or another kind of options; null for a connection, whose object they are.
    pub(crate) options: Value,
}

impl Subject<'_> {
    /// Whether the resource is that of Namespaces.
    pub(super) fn is_namespace(&self) -> bool {
        self.kind.storage_resource == "/namespaces"
    }

    /// The namespace of the request; a Namespace is in itself.
    pub(super) fn namespace(&self) -> &str {
        if self.is_namespace() {
            self.name
        } else {
            self.namespace
        }
    }

    /// 403 in the form of the reference, which names what the request does not name `Unknown`.
    pub(super) fn forbidden(&self, detail: &str) -> Box<ApiError> {
        let own = self.object.map(object::name).unwrap_or_default();
        let name = [self.name, own, "Unknown"]
            .into_iter()
            .find(|name| !name.is_empty())
            .unwrap_or_default();
        ApiError::forbidden(&self.kind.group, &self.kind.plural, name, detail)
    }
}

/// A request in the version of a resource that a policy asks for: the values of `object`, `oldObject` and `request`, each
/// made when it is first needed.
pub(super) struct Versioned<'a> {
    subject: &'a Subject<'a>,
    /// The resource that was matched: another version of the one in the path, or that one.
    resource: Arc<KindInfo>,
    target: Target,
    object: OnceCell<Cel>,
    old: OnceCell<Cel>,
}

impl<'a> Versioned<'a> {
    /// In the version of `resource`.
    pub(super) fn new(subject: &'a Subject<'a>, resource: &Arc<KindInfo>) -> Self {
        let is_same = Arc::ptr_eq(resource, subject.kind);
        // The kind of a subresource such as `scale` is the same for every version.
        let target = if is_same || subject.target != Target::of(subject.kind) {
            subject.target.clone()
        } else {
            Target::of(resource)
        };
        Self {
            subject,
            resource: Arc::clone(resource),
            target,
            object: OnceCell::new(),
            old: OnceCell::new(),
        }
    }

    pub(super) fn is_in(&self, resource: &Arc<KindInfo>) -> bool {
        Arc::ptr_eq(&self.resource, resource)
    }

    fn value(&self, object: Option<&Value>) -> Cel {
        let Some(object) = object else {
            return Cel::Null;
        };
        if self.target == self.subject.target {
            return Cel::from(object);
        }
        let mut converted = object.clone();
        View::new(&self.resource, self.subject.snapshot).convert(&mut converted);
        Cel::from(converted)
    }

    pub(super) fn object(&self) -> Cel {
        self.object
            .get_or_init(|| self.value(self.subject.object))
            .clone()
    }

    pub(super) fn old(&self) -> Cel {
        self.old.get_or_init(|| self.value(self.subject.old)).clone()
    }

    /// `request`. What the reference leaves out of it when it is empty is left out.
    pub(super) fn request(&self) -> Cel {
        let subject = self.subject;
        let resource = |kind: &KindInfo| {
            Cel::map([
                ("group", Cel::from(kind.group.as_str())),
                ("version", Cel::from(kind.version.as_str())),
                ("resource", Cel::from(kind.plural.as_str())),
            ])
        };
        let mut fields = vec![
            ("kind", self.target.value()),
            ("resource", resource(&self.resource)),
            ("requestKind", subject.target.value()),
            ("requestResource", resource(subject.kind)),
            ("operation", Cel::from(subject.operation.as_str())),
            ("userInfo", Cel::from(subject.author.to_user_info())),
            ("dryRun", Cel::Bool(subject.dry_run)),
            ("options", Cel::from(&subject.options)),
        ];
        let optional = [
            ("subResource", subject.subresource),
            ("requestSubResource", subject.subresource),
            ("name", subject.name),
            ("namespace", subject.namespace()),
        ];
        fields.extend(
            optional
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| (name, Cel::from(text))),
        );
        Cel::map(fields)
    }
}

/// The options of a write, as `request.options` shows them.
pub(super) fn write_options(kind: &str, manager: &str, dry_run: bool, validation: &str) -> Value {
    let mut options = json!({
        "kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": manager, "fieldValidation": validation,
    });
    if let (true, Some(fields)) = (dry_run, options.as_object_mut()) {
        fields.insert("dryRun".to_owned(), json!(["All"]));
    }
    options
}
