//! The requests that policies are asked about: planned writes, deletions, subresources that create, and connections.

use std::sync::Arc;

use mainstay_store::kube::Key;
use serde_json::{Value, json};

use super::subject::{self, Operation, Subject, Target};
use crate::{
    api::Api,
    builtin::KindInfo,
    delete::DeleteOptions,
    identity::Identity,
    present::{View, api_version},
    registry::Snapshot,
    request::FieldValidation,
    router,
    status::ApiResult,
    write::{Intention, Part, WriteRequest},
};

impl Api {
    /// Asks the policies about a planned write.
    ///
    /// # Errors
    /// As [`Api::admit`]; the warnings are in `warnings` either way.
    pub(crate) fn admit_write(
        &self,
        request: &WriteRequest,
        name: &str,
        prior: Option<&Value>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> ApiResult<()> {
        let Some(author) = &request.author else {
            return Ok(());
        };
        if request.part == Part::Whole || !self.has_policies() {
            return Ok(());
        }
        let kind = &request.kind;
        // A creation of what is there is judged as a creation too.
        let old = prior.filter(|_| !matches!(request.intention, Intention::Create(_)));
        let scale = |object: &Value| {
            kind.scale
                .as_ref()
                .map(|paths| router::scale_of(object, paths))
                .unwrap_or_default()
        };
        let is_scale = request.part == Part::Scale;
        let (scaled, scaled_before) = if is_scale {
            (Some(scale(object)), old.map(scale))
        } else {
            (None, None)
        };
        let target = if is_scale {
            Target::new("autoscaling", "v1", "Scale")
        } else {
            Target::of(kind)
        };
        let operation = if old.is_some() {
            Operation::Update
        } else {
            Operation::Create
        };
        let options = match (&request.intention, operation) {
            (Intention::Create(_), _) | (_, Operation::Create) => "CreateOptions",
            (Intention::Replace(_), _) => "UpdateOptions",
            _ => "PatchOptions",
        };
        let subject = Subject {
            kind,
            snapshot: &request.snapshot,
            subresource: request.part.subresource(),
            target,
            operation,
            namespace: &request.namespace,
            name,
            object: Some(scaled.as_ref().unwrap_or(object)),
            old: scaled_before.as_ref().or(old),
            author,
            dry_run: request.dry_run,
            options: subject::write_options(
                options,
                &request.manager,
                request.dry_run,
                match request.field_validation {
                    FieldValidation::Ignore => "Ignore",
                    FieldValidation::Warn => "Warn",
                    FieldValidation::Strict => "Strict",
                },
            ),
        };
        match self.admit(&subject) {
            Ok(found) => {
                warnings.extend(found);
                Ok(())
            }
            Err(mut error) => {
                warnings.append(&mut error.warnings);
                Err(error)
            }
        }
    }

    /// Asks the policies about a deletion; `object` gives the object in the client's version. With what is to be warned of.
    ///
    /// # Errors
    /// As [`Api::admit`].
    pub(crate) fn admit_deletion(
        &self,
        view: &View,
        key: &Key,
        options: &DeleteOptions,
        object: impl FnOnce() -> Value,
    ) -> ApiResult<Vec<String>> {
        let Some(author) = &options.author else {
            return Ok(Vec::new());
        };
        if !self.has_policies() {
            return Ok(Vec::new());
        }
        let old = object();
        let subject = Subject {
            kind: &view.kind,
            snapshot: &self.registry().snapshot(),
            subresource: "",
            target: Target::of(&view.kind),
            operation: Operation::Delete,
            namespace: &key.namespace,
            name: if options.of_collection { "" } else { &key.name },
            object: None,
            old: Some(&old),
            author,
            dry_run: options.dry_run,
            options: options.to_value(),
        };
        self.admit(&subject)
    }

    /// Asks the policies about the creation of a subresource that is not stored itself: a binding, an eviction, a token. With
    /// what is to be warned of.
    ///
    /// # Errors
    /// As [`Api::admit`].
    pub(crate) fn admit_subresource(
        &self,
        call: Creation<'_>,
        target: Target,
        object: &Value,
    ) -> ApiResult<Vec<String>> {
        if !self.has_policies() {
            return Ok(Vec::new());
        }
        let mut object = object.clone();
        if let Some(fields) = object.as_object_mut() {
            let api_version = api_version(&target.group, &target.version);
            fields.insert("apiVersion".to_owned(), json!(api_version));
            fields.insert("kind".to_owned(), json!(target.kind));
        }
        let options = subject::write_options("CreateOptions", call.manager, call.dry_run, "Warn");
        self.admit(&call.subject(target, Operation::Create, &object, options))
    }

    /// Asks the policies about a connection with a workload, of which `object` says what is asked for. With what is to be
    /// warned of.
    ///
    /// # Errors
    /// As [`Api::admit`].
    pub(crate) fn admit_connection(
        &self,
        call: Creation<'_>,
        target: Target,
        object: &Value,
    ) -> ApiResult<Vec<String>> {
        if !self.has_policies() {
            return Ok(Vec::new());
        }
        self.admit(&call.subject(target, Operation::Connect, object, Value::Null))
    }
}

/// The creation of a subresource, or a connection through one.
pub(crate) struct Creation<'a> {
    pub(crate) kind: &'a Arc<KindInfo>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) author: &'a Identity,
    pub(crate) manager: &'a str,
    pub(crate) dry_run: bool,
}

impl<'a> Creation<'a> {
    fn subject(self, target: Target, operation: Operation, object: &'a Value, options: Value) -> Subject<'a> {
        Subject {
            kind: self.kind,
            snapshot: self.snapshot,
            subresource: self.subresource,
            target,
            operation,
            namespace: self.namespace,
            name: self.name,
            object: Some(object),
            old: None,
            author: self.author,
            dry_run: self.dry_run,
            options,
        }
    }
}
