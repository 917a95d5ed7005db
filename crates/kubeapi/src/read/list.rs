//! Lists. Requirement KA-025.

use std::fmt::Write as _;

use bytes::Bytes;
use http::StatusCode;
use mainstay_store::kube::{HistoryError, Stored};
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Shape, continuation::Continuation, history_failure, parse_version, too_large};
use crate::{
    answer::Answer,
    api::Api,
    builtin::KindInfo,
    negotiation::Form,
    object,
    present::View,
    request::{QueryOptions, ResourceVersionMatch},
    selector::{FieldSelector, LabelSelector},
    status::{ApiError, ApiResult, Reason},
};

/// How many objects are looked at in one step when a selector makes the yield of a step unknown.
const STEP: usize = 500;

/// Which objects of a collection are meant.
pub(crate) struct Selection {
    labels: Option<LabelSelector>,
    /// Where none of a list is in an object's text, its labels need not be read.
    traces: Vec<Vec<Finder<'static>>>,
    fields: Option<FieldSelector>,
}

impl Selection {
    /// Reads the selectors.
    ///
    /// # Errors
    /// 400 for a selector that does not parse or names a field that the kind cannot be selected by.
    pub(crate) fn parse(kind: &KindInfo, options: &QueryOptions) -> ApiResult<Self> {
        let labels = match options.label_selector.as_str() {
            "" => None,
            text => Some(LabelSelector::parse(text)?),
        };
        let fields = match options.field_selector.as_str() {
            "" => None,
            text => Some(FieldSelector::parse(text, kind)?),
        };
        let traces = labels.as_ref().map(LabelSelector::traces).unwrap_or_default();
        Ok(Self {
            labels,
            traces,
            fields,
        })
    }

    /// Whether every object is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }

    /// Whether an object of this name can be meant; cheaper than reading it.
    pub(crate) fn may_match(&self, name: &str) -> bool {
        self.fields
            .as_ref()
            .and_then(FieldSelector::required_name)
            .is_none_or(|required| required == name)
    }

    /// Whether an object stored as `text` can be meant. What this leaves out of a list that is about few objects of many costs
    /// a search for the label's value, and not the reading of each object.
    pub(crate) fn may_match_text(&self, text: &[u8]) -> bool {
        let mut traces = self.traces.iter();
        traces.all(|one_of| one_of.iter().any(|trace| trace.find(text).is_some()))
    }

    /// Whether an object stored as `text` is meant, as far as its labels tell; `None` if they do not, and all of it has to be
    /// read. That is several times dearer, and most objects that a controller's list looks at belong to others.
    fn by_labels(&self, text: &[u8]) -> Option<bool> {
        let selector = self.labels.as_ref()?;
        if !self.may_match_text(text) {
            return Some(false);
        }
        let object = serde_json::from_slice::<Labelled>(text).ok()?;
        let matches = selector.matches(&object.metadata.labels.unwrap_or_default());
        (!matches || self.fields.is_none()).then_some(matches)
    }

    /// Whether this object is meant.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        let labels = || {
            object::metadata(object)
                .and_then(|metadata| metadata.get("labels"))
                .and_then(Value::as_object)
        };
        self.labels
            .as_ref()
            .is_none_or(|selector| selector.matches(labels().unwrap_or(&serde_json::Map::new())))
            && self
                .fields
                .as_ref()
                .is_none_or(|selector| selector.matches(object))
    }
}

/// The labels of an object, without the rest.
#[derive(Deserialize)]
struct Labelled {
    metadata: Labels,
}

#[derive(Deserialize)]
struct Labels {
    #[serde(default)]
    labels: Option<serde_json::Map<String, Value>>,
}

/// A list request.
pub(crate) struct ListQuery<'a> {
    pub(crate) view: &'a View,
    /// `None` for all namespaces, and for cluster-scoped kinds.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) selection: &'a Selection,
    pub(crate) options: &'a QueryOptions,
    pub(crate) form: Form,
}

/// Namespace and name of the last object that was sent.
type After = (String, String);

/// A page of stored objects.
struct Page {
    revision: u64,
    items: Vec<Stored>,
    /// The token of the next page, and how many objects are beyond this one if that is known.
    next: Option<(String, Option<usize>)>,
}

impl Api {
    /// Answers a list.
    pub(crate) async fn list(&self, query: &ListQuery<'_>) -> ApiResult<Answer> {
        let page = self.page(query).await?;
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        // Lists of custom resources have the field in any case: on the reference they are lists of no known type.
        if let (true, Some(fields)) = (
            query.view.kind.custom && query.form == Form::Plain,
            metadata.as_object_mut(),
        ) {
            fields.insert("continue".to_owned(), json!(""));
        }
        if let (Some((token, remaining)), Some(fields)) = (&page.next, metadata.as_object_mut()) {
            fields.insert("continue".to_owned(), json!(token));
            if let Some(remaining) = remaining {
                fields.insert("remainingItemCount".to_owned(), json!(remaining));
            }
        }
        if query.form == Form::Plain {
            return Ok(Answer::encoded(
                StatusCode::OK,
                concatenate(query.view, &page.items, &metadata)?,
            ));
        }
        let objects = page
            .items
            .iter()
            .map(|stored| query.view.value(&stored.value, stored.revision))
            .collect::<ApiResult<Vec<Value>>>()?;
        let shape = Shape::new(self, query.view, query.form, &query.options.include_object);
        Ok(Answer::encoded(
            StatusCode::OK,
            Bytes::from(shape.list(&objects, metadata).to_string()),
        )
        .in_form(query.form))
    }

    /// The objects that a list or a deletion of a collection means.
    pub(crate) async fn selected(&self, query: &ListQuery<'_>) -> ApiResult<(u64, Vec<Stored>)> {
        let page = self.page(query).await?;
        Ok((page.revision, page.items))
    }

    async fn page(&self, query: &ListQuery<'_>) -> ApiResult<Page> {
        let options = query.options;
        let resource = query.view.kind.storage_resource.as_str();
        let (revision, after) = self.position(query)?;
        if options.limit == 0 && after.is_none() && revision.is_none() {
            let snapshot = self.store().list(resource, query.namespace);
            let items = select(query, snapshot.items)?;
            return Ok(Page {
                revision: snapshot.revision,
                items,
                next: None,
            });
        }
        let revision = revision.unwrap_or_else(|| self.store().revision());
        let limit = if options.limit == 0 {
            usize::MAX
        } else {
            options.limit
        };
        let mut after = after;
        let mut items: Vec<Stored> = Vec::new();
        loop {
            let step = if query.selection.is_everything() {
                limit
            } else {
                limit.max(STEP)
            };
            let page = self
                .store()
                .list_at(
                    resource,
                    query.namespace,
                    revision,
                    after
                        .as_ref()
                        .map(|(namespace, name)| (namespace.as_str(), name.as_str())),
                    step,
                )
                .await
                .map_err(|error| page_failure(&error, after.as_ref()))?;
            let last = page
                .items
                .last()
                .map(|stored| (stored.key.namespace.to_string(), stored.key.name.to_string()));
            let more = page.remaining > 0;
            items.extend(select(query, page.items)?);
            if items.len() >= limit && (more || items.len() > limit) {
                items.truncate(limit);
                let Some(cut) = items.last() else { break };
                let token = Continuation::after(revision, &cut.key.namespace, &cut.key.name).encode()?;
                // Behind a selector the number that is left is not known without looking at all of it.
                let remaining = query.selection.is_everything().then_some(page.remaining);
                return Ok(Page {
                    revision,
                    items,
                    next: Some((token, remaining)),
                });
            }
            match last {
                Some(last) if more => after = Some(last),
                _ => break,
            }
        }
        Ok(Page {
            revision,
            items,
            next: None,
        })
    }

    /// The version to list at (`None` for the newest) and the object to begin behind.
    fn position(&self, query: &ListQuery<'_>) -> ApiResult<(Option<u64>, Option<After>)> {
        let options = query.options;
        options.check_list(false)?;
        if !options.continuation.is_empty() {
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(ApiError::new(
                    Reason::BadRequest,
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let token = Continuation::decode(&options.continuation)?;
            let revision = (token.rv != 0).then_some(token.rv);
            return Ok((revision, Some(token.last())));
        }
        let wanted = parse_version(&options.resource_version).map_err(|error| {
            ApiError::new(
                Reason::BadRequest,
                format!("invalid resource version: {}", error.message),
            )
        })?;
        let current = self.store().revision();
        match (wanted, options.resource_version_match) {
            (Some(wanted), _) if wanted > current => Err(too_large(wanted, current)),
            (Some(wanted), Some(ResourceVersionMatch::Exact)) => Ok((Some(wanted), None)),
            // A limited list at a version means that very version, unless the client says otherwise.
            (Some(wanted), None) if options.limit > 0 && wanted != 0 => Ok((Some(wanted), None)),
            _ => Ok((None, None)),
        }
    }
}

fn select(query: &ListQuery<'_>, items: Vec<Stored>) -> ApiResult<Vec<Stored>> {
    if query.selection.is_everything() {
        return Ok(items);
    }
    let mut selected = Vec::new();
    for stored in items {
        if !query.selection.may_match(&stored.key.name) {
            continue;
        }
        let is_meant = match query.selection.by_labels(&stored.value) {
            Some(is_meant) => is_meant,
            None => query
                .selection
                .matches(&query.view.value(&stored.value, stored.revision)?),
        };
        if is_meant {
            selected.push(stored);
        }
    }
    Ok(selected)
}

/// The list as text: the stored bytes of each object between two constant parts.
fn concatenate(view: &View, items: &[Stored], metadata: &Value) -> ApiResult<Bytes> {
    let size: usize = items.iter().map(|stored| stored.value.len() + 1).sum();
    let mut text = String::with_capacity(256);
    let _infallible = write!(
        text,
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
        json!(view.kind.list_kind),
        json!(view.api_version())
    );
    let mut bytes = Vec::with_capacity(text.len() + size + 2);
    bytes.extend_from_slice(text.as_bytes());
    for (index, stored) in items.iter().enumerate() {
        if index > 0 {
            bytes.push(b',');
        }
        let object = view.bytes(&stored.value, stored.revision)?;
        if view.kind.custom {
            bytes.extend_from_slice(&object);
        } else {
            object::write_without_type(&object, &mut bytes);
        }
    }
    bytes.extend_from_slice(b"]}");
    Ok(Bytes::from(bytes))
}

/// What a client hears whose snapshot cannot be read. For one that is forgotten that is a 410; with a token the client is
/// offered one that goes on, inconsistently, from where it was.
fn page_failure(error: &HistoryError, after: Option<&After>) -> Box<ApiError> {
    if !matches!(error, HistoryError::Compacted { .. }) {
        return history_failure(error);
    }
    let Some((namespace, name)) = after else {
        return ApiError::new(
            Reason::Expired,
            "The resourceVersion for the provided list is too old.",
        );
    };
    match Continuation::after(0, namespace, name).encode() {
        Ok(token) => {
            let mut error = ApiError::new(
                Reason::Expired,
                "The provided continue parameter is too old to display a consistent list result. You can start \
                 a new list without the continue parameter, or use the continue token in this response to \
                 retrieve the remainder of the results. Continuing with the provided token results in an \
                 inconsistent list - objects that were created, modified, or deleted between the time the \
                 first chunk was returned and now may show up in the list.",
            );
            error.continuation = Some(token);
            error
        }
        Err(error) => error,
    }
}
