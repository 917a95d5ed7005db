//! The types of `request` and `namespaceObject`, as the reference declares them by hand.

use std::{collections::BTreeMap, sync::Arc};

use mainstay_cel::{Declaration, Shape};

/// Sizes do not matter: no estimate is made of the expressions of policies.
fn of(shape: Shape) -> Arc<Declaration> {
    Arc::new(Declaration::new(shape, 0, 0))
}

fn named(name: &'static str, fields: Vec<(&str, Arc<Declaration>)>) -> Arc<Declaration> {
    let fields: BTreeMap<String, Arc<Declaration>> = fields
        .into_iter()
        .map(|(name, declaration)| (name.to_owned(), declaration))
        .collect();
    of(Shape::Named(name, fields))
}

fn text() -> Arc<Declaration> {
    of(Shape::String)
}

fn texts() -> Arc<Declaration> {
    of(Shape::List(text()))
}

fn time() -> Arc<Declaration> {
    of(Shape::Timestamp)
}

/// Anything.
pub(super) fn dynamic() -> Declaration {
    Declaration::new(Shape::Dyn, 0, 0)
}

/// A type without fields, of a library.
pub(super) fn opaque(name: &'static str) -> Declaration {
    Declaration::new(Shape::Opaque(name), 0, 0)
}

/// The type of the variable through which the others are reached; its fields are added as they are compiled.
pub(super) fn variables() -> Declaration {
    Declaration::new(Shape::Named(VARIABLES, BTreeMap::new()), 0, 0)
}

/// The name of the type of `variables`.
pub(super) const VARIABLES: &str = "kubernetes.variables";

/// `request`.
pub(super) fn request() -> Arc<Declaration> {
    let kind = || {
        named(
            "kubernetes.GroupVersionKind",
            vec![("group", text()), ("version", text()), ("kind", text())],
        )
    };
    let resource = || {
        named(
            "kubernetes.GroupVersionResource",
            vec![("group", text()), ("version", text()), ("resource", text())],
        )
    };
    let user = named(
        "kubernetes.UserInfo",
        vec![
            ("username", text()),
            ("uid", text()),
            ("groups", texts()),
            ("extra", of(Shape::Map(texts()))),
        ],
    );
    named(
        "kubernetes.AdmissionRequest",
        vec![
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", text()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", text()),
            ("name", text()),
            ("namespace", text()),
            ("operation", text()),
            ("userInfo", user),
            ("dryRun", of(Shape::Bool)),
            ("options", of(Shape::Dyn)),
        ],
    )
}

/// `namespaceObject`.
pub(super) fn namespace() -> Arc<Declaration> {
    let metadata = named(
        "kubernetes.NamespaceMetadata",
        vec![
            ("name", text()),
            ("generateName", text()),
            ("namespace", text()),
            ("labels", of(Shape::Map(text()))),
            ("annotations", of(Shape::Map(text()))),
            ("UID", text()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", of(Shape::Int)),
            ("deletionTimestamp", time()),
            ("generation", of(Shape::Int)),
            ("resourceVersion", text()),
            ("finalizers", texts()),
        ],
    );
    let condition = named(
        "kubernetes.NamespaceCondition",
        vec![
            ("status", text()),
            ("type", text()),
            ("lastTransitionTime", time()),
            ("message", text()),
            ("reason", text()),
        ],
    );
    let status = named(
        "kubernetes.NamespaceStatus",
        vec![("conditions", of(Shape::List(condition))), ("phase", text())],
    );
    let spec = named("kubernetes.NamespaceSpec", vec![("finalizers", texts())]);
    named(
        "kubernetes.Namespace",
        vec![("metadata", metadata), ("spec", spec), ("status", status)],
    )
}
