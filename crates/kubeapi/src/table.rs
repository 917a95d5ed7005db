//! Tables: what `kubectl get` shows, computed here so that every client shows the same. Requirements KA-007, KA-028,
//! OM-011.
//!
//! [`table`] makes a `meta.k8s.io/v1` Table of objects of one kind. The columns come with the kind; a cell comes from
//! a JSON path (custom resources) or from a function of the built-in kind.

mod builtin;
mod cell;
mod duration;
pub mod jsonpath;
mod object;

#[cfg(test)]
mod tests;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::builtin::{Column, ColumnSource, KindInfo};
pub use duration::human_duration;
use jsonpath::JsonPath;

/// What a table is made of.
struct Layout<'a> {
    group: &'a str,
    kind: &'a str,
    columns: &'a [Column],
    /// The parsed paths, one per column; `None` for a built-in cell and for a path that does not parse.
    paths: Vec<Option<JsonPath>>,
    now: Timestamp,
}

/// A table of objects.
///
/// `metadata` becomes the list's metadata (`resourceVersion`, `continue`, `remainingItemCount`). `include_object` is
/// the parameter of that name: with each row goes nothing (`None`), the whole object (`Object`), or by default its
/// metadata.
pub fn table<'a>(
    kind: &KindInfo,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    now: Timestamp,
    include_object: &str,
) -> Value {
    let layout = Layout::new(&kind.group, &kind.kind, &kind.columns, now);
    render(&layout, objects, metadata, include_object)
}

/// Takes the column definitions out of a table: after the first event of a watch they are known.
pub fn without_headers(mut table: Value) -> Value {
    if let Some(fields) = table.as_object_mut() {
        fields.insert("columnDefinitions".to_owned(), Value::Null);
    }
    table
}

fn render<'a>(
    layout: &Layout<'_>,
    objects: impl IntoIterator<Item = &'a Value>,
    metadata: Value,
    include_object: &str,
) -> Value {
    let rows: Vec<Value> = objects
        .into_iter()
        .map(|object| layout.row(object, include_object))
        .collect();
    let columns: Vec<Value> = layout.columns.iter().map(definition).collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.type_,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

impl<'a> Layout<'a> {
    fn new(group: &'a str, kind: &'a str, columns: &'a [Column], now: Timestamp) -> Self {
        let paths = columns
            .iter()
            .map(|column| match &column.source {
                ColumnSource::JsonPath(path) => JsonPath::parse(path).ok(),
                ColumnSource::Builtin => None,
            })
            .collect();
        Self {
            group,
            kind,
            columns,
            paths,
            now,
        }
    }

    fn row(&self, object: &Value, include_object: &str) -> Value {
        let mut row = Map::new();
        row.insert("cells".to_owned(), Value::Array(self.cells(object)));
        if let Some(conditions) = builtin::conditions(self.group, self.kind, object) {
            row.insert("conditions".to_owned(), conditions);
        }
        let with_row = match include_object {
            "None" => Value::Null,
            "Object" => object.clone(),
            _ => json!({
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": object.get("metadata").cloned().unwrap_or_else(|| json!({})),
            }),
        };
        row.insert("object".to_owned(), with_row);
        Value::Object(row)
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        // The functions of the built-in kinds make all cells at once, in the order of the reference's columns.
        let built_in = builtin::cells(self.group, self.kind, object, self.now)
            .filter(|cells| cells.len() == self.columns.len());
        self.columns
            .iter()
            .zip(&self.paths)
            .enumerate()
            .map(|(position, (column, path))| match (&column.source, path) {
                (ColumnSource::JsonPath(_), Some(path)) => {
                    cell::of_path(path, &column.type_, object, self.now)
                }
                (ColumnSource::JsonPath(_), None) => Value::Null,
                (ColumnSource::Builtin, _) => built_in
                    .as_ref()
                    .and_then(|cells| cells.get(position).cloned())
                    .unwrap_or_else(|| cell::common(&column.name, object, self.now)),
            })
            .collect()
    }
}
