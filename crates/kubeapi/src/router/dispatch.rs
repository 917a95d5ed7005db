//! From a resource path to the verb that answers. Requirement KA-020.

use std::sync::Arc;

use axum::extract::Request;
use http::HeaderMap;

use super::options;
use crate::{
    answer::Answer,
    api::Api,
    builtin::KindInfo,
    commit,
    delete::{self, DeleteOptions},
    identity::Identity,
    negotiation::{
        BodyFormat, COLLECTIONS, FORMS, Form, OBJECTS, Rendering, accepted, body_format, check_media_type,
        check_stream,
    },
    present::View,
    read::{ListQuery, Selection, Shape},
    registry::Snapshot,
    request::{QueryOptions, ResourcePath, Verb},
    status::{ApiError, ApiResult, Reason},
    watch::WatchQuery,
};

/// A request for a resource that is served.
pub(super) struct Call {
    pub(super) identity: Identity,
    pub(super) kind: Arc<KindInfo>,
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) path: ResourcePath,
    pub(super) verb: Verb,
    pub(super) options: QueryOptions,
}

impl Call {
    /// The namespace of an object; empty for cluster-scoped kinds.
    pub(super) fn namespace(&self) -> &str {
        self.path.namespace.as_deref().unwrap_or("")
    }

    /// The name in the path; empty for a collection.
    pub(super) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or("")
    }

    pub(super) fn view(&self) -> View {
        View::new(&self.kind, &self.snapshot)
    }

    /// 405 for a verb that a custom resource or its subresource does not have.
    pub(super) fn not_supported(&self, verb: Verb) -> Box<ApiError> {
        let (group, plural) = (&self.kind.group, &self.kind.plural);
        let message = format!(
            "{} is not supported on resources of kind \"{plural}.{group}\"",
            verb.as_str()
        );
        let mut error = ApiError::new(Reason::MethodNotAllowed, message);
        error.group.clone_from(group);
        error.kind.clone_from(plural);
        error
    }

    /// How the client wants the answer written.
    ///
    /// # Errors
    /// 406 when it accepts none of those offered; 400 for rows of a table that are to include what cannot be included.
    pub(super) fn rendering(&self, headers: &HeaderMap, offered: &[Form]) -> ApiResult<Rendering> {
        let rendering = accepted(headers, offered, self.kind.custom)?;
        let form = rendering.form;
        let include = self.options.include_object.as_str();
        if form == Form::Table && !matches!(include, "" | "None" | "Metadata" | "Object") {
            return Err(ApiError::new(
                Reason::BadRequest,
                format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: {include:?}: must be 'Metadata', \
                     'Object', 'None', or empty"
                ),
            ));
        }
        Ok(rendering)
    }

    /// The form that the client wants the answer in.
    ///
    /// # Errors
    /// As of [`Call::rendering`].
    pub(super) fn form(&self, headers: &HeaderMap, offered: &[Form]) -> ApiResult<Form> {
        Ok(self.rendering(headers, offered)?.form)
    }

    /// Refuses a client that accepts no encoding which this resource has. Requirement KA-007.
    fn check_encoding(&self, headers: &HeaderMap) -> ApiResult<()> {
        if self.kind.custom {
            // Of what is not built in the reference says too late that there is no protobuf, and so lists it.
            return accepted(headers, &FORMS, true).map(drop);
        }
        let produced: &[&str] = match (self.verb, self.path.subresource.as_str()) {
            // A log is text, whatever the client says.
            (_, "log") => return Ok(()),
            // What comes of these is no object.
            (_, "portforward" | "exec" | "attach") => return Ok(()),
            _ if self.path.is_proxy() => return Ok(()),
            (Verb::List | Verb::Watch, _) => &COLLECTIONS,
            _ => &OBJECTS,
        };
        check_media_type(headers, produced)
    }

    /// 406 for a form of objects that is asked of a list (`List`), or the other way round (empty).
    fn wrong_number(&self, wanted: &str, list: &str) -> Box<ApiError> {
        let package = match self.kind.group.split('.').next() {
            None | Some("" | "events") => "core",
            Some(package) => package,
        };
        let found = if self.kind.custom {
            format!("unstructured.Unstructured{list}")
        } else {
            format!("{package}.{}{list}", self.kind.kind)
        };
        let what = if list.is_empty() { "not a list" } else { "a list" };
        ApiError::new(
            Reason::NotAcceptable,
            format!("you requested {wanted}, but the requested object is {what} (*{found})"),
        )
    }

    pub(super) fn key(&self) -> mainstay_store::kube::Key {
        commit::key(&self.kind.storage_resource, self.namespace(), self.name())
    }
}

/// 404 for a resource that no served version has.
pub(super) fn no_such_resource() -> Box<ApiError> {
    ApiError::bare(
        Reason::NotFound,
        "the server could not find the requested resource",
    )
}

/// 405.
pub(super) fn not_allowed() -> Box<ApiError> {
    ApiError::bare(
        Reason::MethodNotAllowed,
        "the server does not allow this method on the requested resource",
    )
}

impl Api {
    /// Answers a request for a resource; with the verb and resource it is counted as.
    pub(super) async fn resource(
        &self,
        path: ResourcePath,
        identity: Identity,
        request: Request,
    ) -> (&'static str, String, ApiResult<Answer>) {
        let snapshot = self.registry().snapshot();
        let Some(kind) = snapshot.kinds.lookup(&path.group, &path.version, &path.resource) else {
            // Below the group of a definition an unknown resource is a path that leads nowhere.
            let served = snapshot
                .kinds
                .all()
                .iter()
                .any(|kind| kind.group == path.group && !kind.custom);
            let answer = if served {
                Err(no_such_resource())
            } else {
                Ok(Answer::page_not_found())
            };
            return ("", String::new(), answer);
        };
        let resource = kind.plural.clone();
        let parsed = if path.is_proxy() {
            Ok(QueryOptions::default())
        } else {
            options(&request)
        };
        let mut options = match parsed {
            Ok(options) => options,
            Err(error) => return ("", resource, Err(error)),
        };
        let mut path = path;
        if path.watch {
            options.watch = true;
            if let Some(name) = path.name.take() {
                options.field_selector = format!("metadata.name={name}");
            }
        }
        let Some(verb) = Verb::of(request.method(), &path, options.watch) else {
            return ("", resource, Err(not_allowed()));
        };
        let call = Call {
            identity,
            kind,
            snapshot,
            path,
            verb,
            options,
        };
        // Of a custom resource the reference says no more than of a path that leads nowhere.
        if call.kind.custom && check_scope(&call).is_err() {
            return (verb.as_str(), resource, Ok(Answer::page_not_found()));
        }
        let answer = match check_scope(&call) {
            Ok(()) => self.bounded(call, request).await,
            Err(error) => Err(error),
        };
        (verb.as_str(), resource, answer)
    }

    /// Keeps the number and the length of requests in bounds. Watches and logs are bounded where they are opened.
    async fn bounded(&self, call: Call, request: Request) -> ApiResult<Answer> {
        let limits = self.limits();
        let permit = match tokio::time::timeout(limits.queue, self.requests().acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) | Err(_) => {
                let mut error = ApiError::new(
                    Reason::TooManyRequests,
                    "too many requests, please try again later",
                );
                error.retry_after_seconds = Some(1);
                return Err(error);
            }
        };
        let asked = call.options.timeout.unwrap_or(limits.request);
        let longest = limits.request.min(asked);
        let answer = match tokio::time::timeout(longest, self.perform(&call, request)).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(ApiError::new(
                Reason::Timeout,
                format!(
                    "request did not complete within the allotted timeout of {} s",
                    longest.as_secs()
                ),
            )),
        };
        drop(permit);
        let deprecation = call.kind.deprecation_warning.clone();
        match answer {
            Ok(mut answer) => {
                answer.warnings.extend(deprecation);
                Ok(answer)
            }
            Err(mut error) => {
                error.warnings.extend(deprecation);
                Err(error)
            }
        }
    }

    async fn perform(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        call.check_encoding(request.headers())?;
        call.options.check_write(call.verb)?;
        if !call.path.subresource.is_empty() {
            return self.subresource(call, request).await;
        }
        if !call.kind.verbs.iter().any(|verb| verb == call.verb.as_str()) {
            return Err(not_allowed());
        }
        if super::reviews::is_review(&call.kind.storage_resource) {
            return self.review(call, request).await;
        }
        let headers = request.headers();
        match call.verb {
            Verb::Get => {
                let offered = [Form::Plain, Form::Table, Form::Metadata, Form::MetadataList];
                let form = call.form(headers, &offered)?;
                if form == Form::MetadataList {
                    return Err(call.wrong_number("PartialObjectMetadataList", ""));
                }
                self.get(&call.view(), &call.key(), form, &call.options)
            }
            Verb::List => {
                let offered = [Form::Plain, Form::Table, Form::MetadataList, Form::Metadata];
                let form = call.form(headers, &offered)?;
                if form == Form::Metadata {
                    return Err(call.wrong_number("PartialObjectMetadata", "List"));
                }
                let view = call.view();
                let selection = Selection::parse(&call.kind, &call.options)?;
                let query = ListQuery {
                    view: &view,
                    namespace: call.path.namespace.as_deref(),
                    selection: &selection,
                    options: &call.options,
                    form,
                };
                self.list(&query).await
            }
            Verb::Watch => {
                let rendering = call.rendering(headers, &[Form::Plain, Form::Table, Form::Metadata])?;
                check_stream(rendering)?;
                self.watch(WatchQuery {
                    view: call.view(),
                    namespace: call.path.namespace.clone(),
                    selection: Selection::parse(&call.kind, &call.options)?,
                    options: call.options.clone(),
                    rendering,
                    served: call.snapshot.served(&call.kind),
                })
            }
            Verb::Create | Verb::Update | Verb::Patch => self.write_object(call, request).await,
            Verb::Delete => self.delete_named(call, request).await,
            Verb::DeleteCollection => self.delete_collection(call, request).await,
        }
    }

    async fn delete_named(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let form = call.form(request.headers(), &[Form::Plain, Form::Table, Form::Metadata])?;
        let options = self.delete_options(call, request).await?;
        let mut warnings: Vec<String> = options.warning(&call.kind).into_iter().collect();
        let mut deleted = self
            .delete(&call.view(), &call.key(), &options)
            .await
            .map_err(|mut error| {
                error.warnings.extend(warnings.clone());
                error
            })?;
        warnings.append(&mut deleted.warnings);
        let (status, document) = delete::answer(&call.kind, deleted, &options);
        let answer = if form == Form::Plain || document["kind"] == "Status" {
            Answer::json(status, &document)
        } else {
            let view = call.view();
            let shape = Shape::new(self, &view, form, &call.options.include_object);
            Answer::json(status, &shape.object(&document))
        };
        Ok(answer.in_form(form).with_warnings(warnings))
    }

    /// Deletes what a list would show, and answers with that list.
    async fn delete_collection(&self, call: &Call, request: Request) -> ApiResult<Answer> {
        let offered = [Form::Plain, Form::Table, Form::MetadataList, Form::Metadata];
        let form = call.form(request.headers(), &offered)?;
        let mut options = self.delete_options(call, request).await?;
        options.of_collection = true;
        let view = call.view();
        let selection = Selection::parse(&call.kind, &call.options)?;
        let query = ListQuery {
            view: &view,
            namespace: call.path.namespace.as_deref(),
            selection: &selection,
            options: &call.options,
            form: Form::Plain,
        };
        let (revision, items) = self.selected(&query).await?;
        // The answer is what was found, not what became of it.
        let mut objects = items
            .iter()
            .map(|stored| view.value(&stored.value, stored.revision))
            .collect::<ApiResult<Vec<serde_json::Value>>>()?;
        let keys = items.into_iter().map(|stored| stored.key).collect();
        let mut warnings: Vec<String> = options.warning(&call.kind).into_iter().collect();
        warnings.append(&mut self.delete_all(&view, keys, &options).await?);
        let mut metadata = serde_json::json!({"resourceVersion": revision.to_string()});
        if form == Form::Metadata {
            return Err(call.wrong_number("PartialObjectMetadata", "List"));
        }
        if form != Form::Plain {
            let shape = Shape::new(self, &view, form, &call.options.include_object);
            return Ok(Answer::ok(&shape.list(&objects, metadata))
                .in_form(form)
                .with_warnings(warnings));
        }
        if call.kind.custom {
            metadata["continue"] = serde_json::json!("");
        } else {
            // As in a list, whose items are of the list's type.
            for object in objects.iter_mut().filter_map(serde_json::Value::as_object_mut) {
                object.remove("apiVersion");
                object.remove("kind");
            }
        }
        Ok(Answer::ok(&serde_json::json!({
            "kind": call.kind.list_kind, "apiVersion": view.api_version(),
            "metadata": metadata, "items": objects,
        }))
        .with_warnings(warnings))
    }

    async fn delete_options(&self, call: &Call, request: Request) -> ApiResult<DeleteOptions> {
        // The options are of a built-in kind, whatever is deleted.
        let format = body_format(request.headers(), false)?;
        let body = super::read_body(self, request).await?;
        let body = match body.is_empty() {
            true => None,
            false => Some(
                super::writes::decode(&body, format)
                    .map_err(|mut error| {
                        if format == BodyFormat::Json {
                            error.message =
                                format!("couldn't get version/kind; json parse error: {}", error.message);
                        }
                        error
                    })?
                    .value,
            ),
        };
        let mut options = DeleteOptions::parse(&call.options, body.as_ref())?;
        options.author = Some(call.identity.clone());
        Ok(options)
    }
}

/// A namespaced object is found only below a namespace, a cluster-scoped one only outside.
fn check_scope(call: &Call) -> ApiResult<()> {
    let below_namespace = call.path.namespace.is_some();
    if !call.kind.namespaced && below_namespace {
        return Err(no_such_resource());
    }
    if call.kind.namespaced && !below_namespace {
        if call.path.name.is_some() {
            return Err(no_such_resource());
        }
        if !matches!(call.verb, Verb::List | Verb::Watch) {
            return Err(not_allowed());
        }
    }
    Ok(())
}
