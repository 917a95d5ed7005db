//! Objects and lists in the form a client asked for. Requirements KA-007, KA-028.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{api::Api, builtin::KindInfo, negotiation::Form, present::View, table};

/// Turns objects into the wanted form.
pub(crate) struct Shape<'a> {
    kind: &'a KindInfo,
    form: Form,
    include_object: &'a str,
    now: Timestamp,
}

impl<'a> Shape<'a> {
    pub(crate) fn new(api: &Api, view: &'a View, form: Form, include_object: &'a str) -> Self {
        Self {
            kind: &view.kind,
            form,
            include_object,
            now: api.clock().now(),
        }
    }

    /// One object.
    pub(crate) fn object(&self, object: &Value) -> Value {
        match self.form {
            Form::Table => {
                let version = crate::object::resource_version(object);
                let metadata = json!({"resourceVersion": version});
                table::table(
                    self.kind,
                    std::iter::once(object),
                    metadata,
                    self.now,
                    self.include_object,
                )
            }
            Form::Metadata | Form::MetadataList => partial_metadata(object),
            Form::Plain | Form::Discovery => object.clone(),
        }
    }

    /// A list of objects.
    pub(crate) fn list(&self, objects: &[Value], metadata: Value) -> Value {
        match self.form {
            Form::Table => table::table(self.kind, objects.iter(), metadata, self.now, self.include_object),
            Form::Metadata | Form::MetadataList => {
                let items: Vec<Value> = objects.iter().map(partial_metadata).collect();
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                    "items": items,
                })
            }
            Form::Plain | Form::Discovery => {
                let mut list = Map::new();
                list.insert("kind".to_owned(), json!(self.kind.list_kind));
                list.insert(
                    "apiVersion".to_owned(),
                    json!(crate::present::api_version(&self.kind.group, &self.kind.version)),
                );
                list.insert("metadata".to_owned(), metadata);
                list.insert("items".to_owned(), Value::Array(objects.to_vec()));
                Value::Object(list)
            }
        }
    }
}

/// `PartialObjectMetadata` of an object.
fn partial_metadata(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
    })
}
