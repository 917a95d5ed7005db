//! The forms in which objects are printed (`-o`).

use std::str::FromStr;

use serde_json::{Value, json};

use crate::{
    kinds::Served,
    template::Template,
    terminal::{self, Failure},
};

/// How objects are printed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    /// The server's columns; all of them when `wide`.
    Table {
        /// With the columns that are shown on demand.
        wide: bool,
    },
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// `plural.group/name`
    Name,
    /// What a template makes of them.
    Template(Template),
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wide" => Ok(Output::Table { wide: true }),
            "json" => Ok(Output::Json),
            "yaml" => Ok(Output::Yaml),
            "name" => Ok(Output::Name),
            _ => match text.strip_prefix("jsonpath=") {
                Some(template) => Template::parse(template).map(Output::Template),
                None => Err("one of wide, json, yaml, name and jsonpath=TEMPLATE".to_owned()),
            },
        }
    }
}

/// Prints objects, not as a table. A single one is printed as itself, several as a list.
///
/// # Errors
///
/// When the template cannot be followed.
pub(crate) fn print_objects(
    output: &Output,
    mut objects: Vec<(Served, Value)>,
    single: bool,
    managed_fields: bool,
) -> Result<(), Failure> {
    if *output == Output::Name {
        for (kind, object) in &objects {
            let name = object.pointer("/metadata/name").and_then(Value::as_str);
            terminal::data(format!("{}/{}", kind.title(), name.unwrap_or_default()));
        }
        return Ok(());
    }
    if !managed_fields {
        for (_, object) in &mut objects {
            hide_managed_fields(object);
        }
    }
    let mut objects: Vec<Value> = objects.into_iter().map(|(_, object)| object).collect();
    let value = match (single, objects.len()) {
        (true, 1) => objects.swap_remove(0),
        _ => json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects }),
    };
    match output {
        Output::Json => terminal::data(format!("{value:#}")),
        Output::Template(template) => {
            // No line is ended here: the template says where lines end.
            terminal::stream(&template.render(&value).map_err(Failure::new)?);
        }
        Output::Yaml | Output::Table { .. } | Output::Name => terminal::data(yaml(&value)?.trim_end()),
    }
    Ok(())
}

fn hide_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// A value as YAML.
///
/// # Errors
///
/// When it cannot be written so.
pub(crate) fn yaml(value: &Value) -> Result<String, Failure> {
    serde_saphyr::to_string(value)
        .map_err(|error| Failure::new(format!("the object cannot be written as YAML: {error}")))
}

/// The rows of tables as the server makes them, put out below one heading.
#[derive(Debug)]
pub(crate) struct Rows {
    wide: bool,
    with_namespace: bool,
    /// Put before each name: the kind, where several are printed.
    prefix: String,
    /// Of the columns shown: position in the row, and heading.
    columns: Vec<(usize, String)>,
    widths: Vec<usize>,
    headed: bool,
}

impl Rows {
    /// Rows of one kind.
    pub(crate) fn new(wide: bool, with_namespace: bool, prefix: String) -> Rows {
        Rows {
            wide,
            with_namespace,
            prefix,
            columns: Vec::new(),
            widths: Vec::new(),
            headed: false,
        }
    }

    /// Puts out tables, below a heading if there was none yet. Gives how many rows there were.
    pub(crate) fn put(&mut self, tables: &[Value]) -> usize {
        for table in tables {
            self.learn(table);
        }
        let mut rows: Vec<Vec<String>> = tables
            .iter()
            .filter_map(|table| table.get("rows").and_then(Value::as_array))
            .flatten()
            .map(|row| self.cells(row))
            .collect();
        let count = rows.len();
        if count == 0 {
            return 0;
        }
        if !self.headed {
            self.headed = true;
            let mut heading: Vec<String> = self.columns.iter().map(|(_, name)| name.to_uppercase()).collect();
            if self.with_namespace {
                heading.insert(0, "NAMESPACE".to_owned());
            }
            rows.insert(0, heading);
        }
        self.widen(&rows);
        for row in rows {
            terminal::data(terminal::printable(&self.line(&row)));
        }
        count
    }

    fn learn(&mut self, table: &Value) {
        let Some(definitions) = table.get("columnDefinitions").and_then(Value::as_array) else {
            return;
        };
        self.columns = definitions
            .iter()
            .enumerate()
            .filter(|(_, column)| {
                self.wide || column.get("priority").and_then(Value::as_i64).unwrap_or_default() == 0
            })
            .map(|(position, column)| {
                let name = column.get("name").and_then(Value::as_str).unwrap_or_default();
                (position, name.to_owned())
            })
            .collect();
    }

    fn cells(&self, row: &Value) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let held = row.get("cells").and_then(Value::as_array);
        let mut cells: Vec<String> = self
            .columns
            .iter()
            .map(|(position, _)| {
                held.and_then(|cells| cells.get(*position))
                    .map(text)
                    .unwrap_or_default()
            })
            .collect();
        if let Some(name) = cells.first_mut() {
            name.insert_str(0, &self.prefix);
        }
        if self.with_namespace {
            let namespace = row.pointer("/object/metadata/namespace").and_then(Value::as_str);
            cells.insert(0, namespace.unwrap_or_default().to_owned());
        }
        cells
    }

    fn widen(&mut self, rows: &[Vec<String>]) {
        for row in rows {
            for (column, cell) in row.iter().enumerate() {
                let width = cell.chars().count();
                match self.widths.get_mut(column) {
                    Some(held) => *held = (*held).max(width),
                    None => self.widths.push(width),
                }
            }
        }
    }

    fn line(&self, row: &[String]) -> String {
        let cells: Vec<String> = row
            .iter()
            .zip(&self.widths)
            .map(|(cell, width)| format!("{cell:<width$}", width = *width))
            .collect();
        cells.join("   ").trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn table() -> Value {
        json!({
            "columnDefinitions": [
                {"name": "Name", "priority": 0}, {"name": "Phase", "priority": 0}, {"name": "Node", "priority": 1},
            ],
            "rows": [
                {"cells": ["helpdesk", "Running", "one"], "object": {"metadata": {"namespace": "a"}}},
                {"cells": ["b", null, 5], "object": {"metadata": {"namespace": "default"}}},
            ],
        })
    }

    fn lines(wide: bool, with_namespace: bool, prefix: &str) -> Vec<String> {
        let mut rows = Rows::new(wide, with_namespace, prefix.to_owned());
        let table = table();
        rows.learn(&table);
        let cells: Vec<Vec<String>> = table["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| rows.cells(row))
            .collect();
        rows.widen(&cells);
        cells.iter().map(|row| rows.line(row)).collect()
    }

    #[test]
    fn the_columns_are_those_that_are_asked_for() {
        assert_eq!(lines(false, false, ""), ["helpdesk   Running", "b"]);
        assert_eq!(
            lines(true, false, ""),
            ["helpdesk   Running   one", "b                    5"]
        );
        assert_eq!(
            lines(false, true, "pods/"),
            ["a         pods/helpdesk   Running", "default   pods/b"]
        );
    }

    #[test]
    fn a_form_is_read_or_the_choices_are_named() {
        assert_eq!("wide".parse(), Ok(Output::Table { wide: true }));
        assert!(matches!("jsonpath={.a}".parse(), Ok(Output::Template(_))));
        assert!(
            "jsonpath={.a"
                .parse::<Output>()
                .unwrap_err()
                .contains("not closed")
        );
        assert!("xml".parse::<Output>().unwrap_err().starts_with("one of wide"));
    }
}
