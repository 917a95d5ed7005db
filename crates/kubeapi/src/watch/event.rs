//! Events of a watch, as lines of JSON or as frames of protobuf. Requirements KA-007, KA-026.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use mainstay_store::kube::{Event, EventKind, Lagged, Stored, WatchItem};
use serde_json::{Map, Value, json};

use crate::{
    api::Api,
    negotiation::{Encoding, Form, Rendering},
    object,
    present::View,
    protobuf,
    read::{Selection, Shape},
    request::QueryOptions,
    status::{ApiError, ApiResult},
    table,
};

/// Turns events of the store into those of one client.
pub(super) struct Encoder {
    api: Api,
    view: View,
    selection: Selection,
    rendering: Rendering,
    include_object: String,
    headers_sent: AtomicBool,
}

impl Encoder {
    pub(super) fn new(
        api: Api,
        view: View,
        selection: Selection,
        rendering: Rendering,
        options: &QueryOptions,
    ) -> Self {
        let include_object = options.include_object.clone();
        Self {
            api,
            view,
            selection,
            rendering,
            include_object,
            headers_sent: AtomicBool::new(false),
        }
    }

    /// The line of an object that was there when the watch began; `None` when it is not selected.
    pub(super) fn added(&self, stored: &Stored) -> Option<Bytes> {
        if !self.selection.may_match(&stored.key.name) {
            return None;
        }
        self.line_or_error(self.change("ADDED", &stored.value, stored.revision, None))
    }

    /// The line of an event; `None` when the client does not see the object before or after it.
    pub(super) fn event(&self, event: &Event) -> Option<Bytes> {
        if !self.selection.may_match(&event.key.name) {
            return None;
        }
        self.line_or_error(match event.kind {
            EventKind::Added => self.change("ADDED", &event.value, event.revision, None),
            EventKind::Modified => {
                self.change("MODIFIED", &event.value, event.revision, event.previous.as_ref())
            }
            EventKind::Deleted => {
                self.change("DELETED", &event.value, event.revision, event.previous.as_ref())
            }
        })
    }

    /// The line of what a watch came upon that moved on before a bookmark: of an event that it met there, else none. That it
    /// lags it hears again.
    pub(super) fn passed(&self, item: Result<Option<WatchItem>, Lagged>) -> Option<Bytes> {
        match item {
            Ok(Some(WatchItem::Event(event))) => self.event(&event),
            Ok(Some(WatchItem::Progress(_)) | None) | Err(Lagged { .. }) => None,
        }
    }

    /// An object that cannot be shown is an ERROR event, not a silent gap.
    fn line_or_error(&self, line: ApiResult<Option<Bytes>>) -> Option<Bytes> {
        match line {
            Ok(line) => line,
            Err(error) => Some(self.error(&error)),
        }
    }

    fn change(
        &self,
        kind: &'static str,
        value: &Bytes,
        revision: u64,
        previous: Option<&Bytes>,
    ) -> ApiResult<Option<Bytes>> {
        let as_stored = self.rendering.form == Form::Plain && self.rendering.encoding == Encoding::Json;
        if self.selection.is_everything() && as_stored {
            return Ok(Some(raw_line(kind, &self.view.bytes(value, revision)?)));
        }
        let others = |bytes: &Bytes| !self.selection.may_match_text(bytes);
        if others(value) && previous.is_none_or(others) {
            return Ok(None);
        }
        let now = self.view.value(value, revision)?;
        if self.selection.is_everything() {
            return Ok(Some(self.line(kind, &now)));
        }
        let selected = self.selection.matches(&now);
        if kind == "ADDED" {
            return Ok(selected.then(|| self.line("ADDED", &now)));
        }
        let before = previous
            .map(|bytes| self.view.value(bytes, revision))
            .transpose()?;
        let was_selected = before
            .as_ref()
            .is_some_and(|before| self.selection.matches(before));
        if kind == "DELETED" {
            return Ok((was_selected || selected).then(|| self.line("DELETED", &now)));
        }
        Ok(match (was_selected, selected, before) {
            (true, true, _) => Some(self.line("MODIFIED", &now)),
            (false, true, _) => Some(self.line("ADDED", &now)),
            // It leaves the selection: its old state, with the version at which it left.
            (true, false, Some(mut before)) => {
                object::set_meta(&mut before, "resourceVersion", Some(json!(revision.to_string())));
                Some(self.line("DELETED", &before))
            }
            _ => None,
        })
    }

    fn line(&self, kind: &str, object: &Value) -> Bytes {
        let form = self.rendering.form;
        if form == Form::Plain {
            return self.written(kind, object);
        }
        let shape = Shape::new(&self.api, &self.view, form, &self.include_object);
        let mut shaped = shape.object(object);
        // Only the first table of a watch describes its columns.
        if form == Form::Table && self.headers_sent.swap(true, Ordering::Relaxed) {
            shaped = table::without_headers(shaped);
        }
        self.written(kind, &self.rendering.version(&shaped))
    }

    /// The event in the watch's encoding.
    fn written(&self, kind: &str, object: &Value) -> Bytes {
        if self.rendering.encoding != Encoding::Protobuf {
            return raw_line(kind, object.to_string().as_bytes());
        }
        Bytes::from(protobuf::event(kind, object))
    }

    /// A bookmark: nothing but the version, and for the first one the mark that the current state is complete.
    pub(super) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
        if initial_events_end {
            metadata.insert(
                "annotations".to_owned(),
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        // An object like any other, and so a row of a table.
        self.line(
            "BOOKMARK",
            &json!({"kind": self.view.kind.kind, "apiVersion": self.view.api_version(), "metadata": metadata}),
        )
    }

    /// The ERROR event that ends a watch.
    pub(super) fn error(&self, error: &ApiError) -> Bytes {
        self.written("ERROR", &error.to_status())
    }
}

fn raw_line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 32);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    Bytes::from(line)
}
