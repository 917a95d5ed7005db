//! What differs between two runs of the same script although the behaviour is the same: identifiers, versions, times,
//! addresses and ports. Equal values stay equal and different ones different, where a script can see that.

use std::{collections::BTreeMap, sync::LazyLock};

use jiff::{Timestamp, ToSpan as _};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// Patterns that hold for every server.
struct Patterns {
    uuid: Regex,
    time: Regex,
    version_in_text: Regex,
    oldest_in_text: Regex,
    schema_hash: Regex,
}

static PATTERNS: LazyLock<Option<Patterns>> = LazyLock::new(|| {
    Some(Patterns {
        uuid: Regex::new("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}").ok()?,
        time: Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").ok()?,
        version_in_text: Regex::new(
            r#"(esource version: |resourceVersion: "?|resourceVersion\\?":\s?\\?"|current: |ResourceVersion in precondition: |in object meta: |ResourceVersion in record \()[1-9]\d*\b"#,
        )
        .ok()?,
        oldest_in_text: Regex::new(r"(too old resource version: <number> \()\d+").ok()?,
        schema_hash: Regex::new("hash=[0-9A-Za-z]+").ok()?,
    })
});

/// The values one script has seen on one server.
#[derive(Debug)]
pub(crate) struct Normaliser {
    /// The script's names with what stands for them, longest first.
    names: Vec<(String, String)>,
    now: Timestamp,
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
}

impl Normaliser {
    pub(crate) fn new(names: Vec<(String, String)>, now: Timestamp) -> Self {
        Self {
            names,
            now,
            uids: BTreeMap::new(),
            versions: BTreeMap::new(),
        }
    }

    /// Later occurrences of `value` are written as `stands_for`: a generated name, for example.
    pub(crate) fn learn(&mut self, value: &str, stands_for: &str) {
        if value.len() > 3
            && !PATTERNS
                .as_ref()
                .is_some_and(|patterns| patterns.uuid.is_match(value))
        {
            self.names
                .insert(0, (value.to_owned(), format!("{{{stands_for}}}")));
        }
    }

    pub(crate) fn value(&mut self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(&text)),
            Value::Array(elements) => elements.into_iter().map(|element| self.value(element)).collect(),
            Value::Object(members) => self.object(members),
            other => other,
        }
    }

    fn object(&mut self, mut members: Map<String, Value>) -> Value {
        // The version of a list and of a bookmark is that of the whole store, which other scripts move.
        let is_list = members.contains_key("items") || members.contains_key("rows");
        let is_bookmark = members.get("type").is_some_and(|kind| kind == "BOOKMARK");
        let metadata = if is_list {
            members.get_mut("metadata")
        } else if is_bookmark {
            members
                .get_mut("object")
                .and_then(|object| object.get_mut("metadata"))
        } else {
            None
        };
        if let Some(version) = metadata.and_then(|metadata| metadata.get_mut("resourceVersion"))
            && version.as_str().is_some_and(|version| !version.is_empty())
        {
            *version = Value::from("<store version>");
        }
        if members.get("kind").is_some_and(|kind| kind == "Table") {
            hide_ages(&mut members);
        }
        members
            .into_iter()
            .map(|(key, member)| {
                let member = self.member(&key, member);
                (self.text(&key), member)
            })
            .collect()
    }

    fn member(&mut self, key: &str, member: Value) -> Value {
        // What a case picks by pointer is keyed by the pointer.
        let name = key.rsplit('/').next().unwrap_or(key);
        match (name, &member) {
            ("resourceVersion", Value::String(version)) if version.parse::<u64>().is_ok_and(|n| n > 0) => {
                let next = self.versions.len() + 1;
                let number = *self.versions.entry(version.clone()).or_insert(next);
                Value::String(format!("<version {number}>"))
            }
            ("storageVersionHash", Value::String(_)) => Value::from("<hash>"),
            ("continue", Value::String(token)) if !token.is_empty() => Value::from("<continue>"),
            ("clusterIP", Value::String(address)) if address.parse::<std::net::IpAddr>().is_ok() => {
                Value::from("<address>")
            }
            ("clusterIPs", Value::Array(addresses)) => addresses
                .iter()
                .map(|address| match address.as_str() {
                    Some(text) if text.parse::<std::net::IpAddr>().is_ok() => Value::from("<address>"),
                    _ => address.clone(),
                })
                .collect(),
            ("nodePort" | "healthCheckNodePort", Value::Number(_)) => Value::from("<port>"),
            ("managedFields", Value::Array(entries)) => {
                // Sorted by time on a server; two entries of one second or of two are the same behaviour.
                let mut entries: Vec<Value> = entries.iter().map(|entry| self.value(entry.clone())).collect();
                entries.sort_by_key(|entry| {
                    ["operation", "manager", "subresource", "apiVersion"].map(|key| entry[key].to_string())
                });
                Value::Array(entries)
            }
            _ => self.value(member),
        }
    }

    fn text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, stands_for) in &self.names {
            if text.contains(name.as_str()) {
                text = text.replace(name, stands_for);
            }
        }
        let Some(patterns) = PATTERNS.as_ref() else {
            return text;
        };
        let uids = &mut self.uids;
        let text = patterns.uuid.replace_all(&text, |found: &Captures<'_>| {
            let next = uids.len() + 1;
            let number = *uids.entry(found[0].to_owned()).or_insert(next);
            format!("<uid {number}>")
        });
        let now = self.now;
        let text = patterns.time.replace_all(&text, |found: &Captures<'_>| {
            let near = found[0]
                .parse::<Timestamp>()
                .is_ok_and(|time| time > now - 24.hours() && time < now + 24.hours());
            match (near, found.get(1)) {
                (true, None) => "<time>".to_owned(),
                (true, Some(_)) => "<precise time>".to_owned(),
                (false, _) => found[0].to_owned(),
            }
        });
        let text = patterns.version_in_text.replace_all(&text, "$1<number>");
        let text = patterns.oldest_in_text.replace_all(&text, "$1<number>");
        patterns
            .schema_hash
            .replace_all(&text, "hash=<hash>")
            .into_owned()
    }
}

/// Ages in the cells of a table.
fn hide_ages(table: &mut Map<String, Value>) {
    // A watch sends the columns with its first event only; after that an age is told by its form.
    let columns: Option<Vec<usize>> =
        table
            .get("columnDefinitions")
            .and_then(Value::as_array)
            .map(|columns| {
                columns
                    .iter()
                    .enumerate()
                    .filter(|(_, column)| is_time(column))
                    .map(|(index, _)| index)
                    .collect()
            });
    for row in table
        .get_mut("rows")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        for (index, cell) in row
            .get_mut("cells")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
            .enumerate()
        {
            let may_be_age = columns.as_ref().is_none_or(|columns| columns.contains(&index));
            if may_be_age && cell.as_str().is_some_and(is_age) {
                *cell = Value::from("<age>");
            } else if let Some(hidden) = cell.as_str().and_then(without_age) {
                *cell = Value::from(hidden);
            }
        }
    }
}

/// Whether the cells of a column are times.
fn is_time(column: &Value) -> bool {
    column["type"] == "date"
        || matches!(
            column["name"].as_str(),
            Some("Age" | "Last Seen" | "First Seen" | "Duration")
        )
}

/// `3 (5m ago)` with the age hidden: some cells tell one behind a number.
fn without_age(text: &str) -> Option<String> {
    let (before, rest) = text.split_once(" (")?;
    rest.strip_suffix(" ago)")
        .filter(|age| is_age(age))
        .map(|_age| format!("{before} (<age> ago)"))
}

/// `0s`, `3m12s`, `2d`.
fn is_age(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(|last: char| last.is_ascii_lowercase())
        && text
            .chars()
            .all(|character| character.is_ascii_digit() || "smhdy".contains(character))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Normaliser;

    fn normaliser() -> Normaliser {
        Normaliser::new(
            vec![("vabc-001".to_owned(), "{id}".to_owned())],
            "2026-05-01T12:00:00Z".parse().unwrap(),
        )
    }

    #[test]
    fn equal_values_stay_equal_and_different_ones_different() {
        let mut normaliser = normaliser();
        let object = |version: &str| {
            json!({"metadata": {
                "uid": "0d5b4c1e-3c3f-4f0f-9d5b-111111111111", "resourceVersion": version, "namespace": "vabc-001",
                "creationTimestamp": "2026-05-01T12:00:01Z",
            }})
        };
        let expected = |version: &str| {
            json!({"metadata": {
                "uid": "<uid 1>", "resourceVersion": version, "namespace": "{id}", "creationTimestamp": "<time>",
            }})
        };
        assert_eq!(normaliser.value(object("17")), expected("<version 1>"));
        assert_eq!(normaliser.value(object("19")), expected("<version 2>"));
        assert_eq!(normaliser.value(object("17")), expected("<version 1>"));
    }

    #[test]
    fn a_time_that_a_script_wrote_stays() {
        let value = json!({"spec": {"at": "2020-01-01T00:00:00Z"}});
        assert_eq!(normaliser().value(value.clone()), value);
    }

    #[test]
    fn the_versions_of_lists_and_bookmarks_are_those_of_the_store() {
        let list = json!({"items": [], "metadata": {"resourceVersion": "5", "continue": "abc"}});
        assert_eq!(
            normaliser().value(list),
            json!({"items": [], "metadata": {"resourceVersion": "<store version>", "continue": "<continue>"}})
        );
        let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}});
        assert_eq!(
            normaliser().value(bookmark),
            json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "<store version>"}}})
        );
    }

    #[test]
    fn ages_of_a_table_are_hidden_and_other_cells_are_not() {
        let table = json!({
            "kind": "Table",
            "columnDefinitions": [{"name": "Name", "type": "string"}, {"name": "Age", "type": "string"}],
            "rows": [{"cells": ["5s", "5s"]}, {"cells": ["x", "<unknown>"]}, {"cells": ["3 (6y335d ago)", "2 (long ago)"]}],
        });
        assert_eq!(
            normaliser().value(table)["rows"],
            json!([
                {"cells": ["5s", "<age>"]}, {"cells": ["x", "<unknown>"]}, {"cells": ["3 (<age> ago)", "2 (long ago)"]}
            ])
        );
    }
}
