//! `metadata.managedFields`: who owns which fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use super::fields_v1;

/// How many managers with operation `Update` an object keeps; older ones are joined.
const MAXIMUM_UPDATE_MANAGERS: usize = 10;

/// The manager that older updates are joined under.
const OLD_UPDATES: &str = "ancient-changes";

/// What identifies an entry of `managedFields`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) name: String,
    pub(super) applied: bool,
    /// Empty for `Apply`: a manager applies one configuration, in whichever version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl ManagerId {
    pub(super) fn new(name: &str, applied: bool, api_version: &str, subresource: &str) -> Self {
        Self {
            name: if name.is_empty() {
                "unknown".to_owned()
            } else {
                name.to_owned()
            },
            applied,
            api_version: if applied {
                String::new()
            } else {
                api_version.to_owned()
            },
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }

    /// The text the reference keys its managers by, which also decides their order in messages.
    pub(super) fn sort_text(&self) -> String {
        let mut text = format!(
            "{{\"manager\":{},\"operation\":\"{}\"",
            json!(self.name),
            self.operation()
        );
        for (name, value) in [
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ] {
            if !value.is_empty() {
                text.push_str(&format!(",\"{name}\":{}", json!(value)));
            }
        }
        text.push('}');
        text
    }
}

/// What a manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: FieldSet,
    pub(super) api_version: String,
    /// When the manager last changed something; absent when it only ever took what was there.
    pub(super) time: Option<Timestamp>,
}

/// Every manager of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managers(pub(super) BTreeMap<ManagerId, Owned>);

impl Managers {
    /// Reads the entries of an object.
    ///
    /// # Errors
    /// The text of what cannot be read. The reference then falls back or refuses, depending on the verb.
    pub(super) fn decode(entries: &Value) -> Result<Self, String> {
        let mut managers = Self::default();
        if entries.is_null() {
            return Ok(managers);
        }
        let entries = entries
            .as_array()
            .ok_or_else(|| "managedFields must be a list".to_owned())?;
        for (position, entry) in entries.iter().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let applied = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {position}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {position}"
                    ));
                }
            }
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => fields_v1::decode(fields).map_err(|error| {
                    format!("error decoding set of managed fields entry {position}: {error}")
                })?,
            };
            let time = match text("time") {
                "" => None,
                time => Some(time.parse().map_err(|error| {
                    format!("error decoding time of managed fields entry {position}: {error}")
                })?),
            };
            let id = ManagerId {
                name: text("manager").to_owned(),
                applied,
                api_version: if applied {
                    String::new()
                } else {
                    api_version.to_owned()
                },
                subresource: text("subresource").to_owned(),
            };
            managers.0.insert(
                id,
                Owned {
                    set,
                    api_version: api_version.to_owned(),
                    time,
                },
            );
        }
        Ok(managers)
    }

    /// Writes the entries, sorted as the reference sorts them; `None` when nobody owns anything.
    pub(super) fn encode(&self) -> Option<Value> {
        if self.0.is_empty() {
            return None;
        }
        let mut entries: Vec<(&ManagerId, &Owned)> = self.0.iter().collect();
        entries.sort_by_key(|(id, owned)| {
            (
                id.operation(),
                owned.time.map_or(0, Timestamp::as_second),
                id.name.clone(),
                owned.api_version.clone(),
                id.subresource.clone(),
            )
        });
        Some(Value::Array(
            entries
                .into_iter()
                .map(|(id, owned)| encode_entry(id, owned))
                .collect(),
        ))
    }

    /// Gives the manager `set`, keeping the time of an entry that is there. An empty set removes the entry.
    pub(super) fn set(&mut self, id: &ManagerId, set: FieldSet, api_version: &str) {
        if set.is_empty() {
            self.0.remove(id);
            return;
        }
        let time = self.0.get(id).and_then(|owned| owned.time);
        self.0.insert(
            id.clone(),
            Owned {
                set,
                api_version: api_version.to_owned(),
                time,
            },
        );
    }

    /// Takes paths from every manager but `except`, and drops those left with nothing.
    pub(super) fn release(&mut self, paths: &FieldSet, except: Option<&ManagerId>) {
        for (id, owned) in &mut self.0 {
            if Some(id) != except {
                owned.set = owned.set.difference(paths);
            }
        }
        self.0.retain(|_, owned| !owned.set.is_empty());
    }

    /// Joins the oldest `Update` managers of each version into one, so that controllers with ever-changing names
    /// do not grow the object without bound.
    pub(super) fn cap_update_managers(&mut self) {
        let mut updaters: Vec<(i64, String, ManagerId)> = self
            .0
            .iter()
            .filter(|(id, _)| !id.applied)
            .map(|(id, owned)| {
                (
                    owned.time.map_or(0, Timestamp::as_second),
                    id.sort_text(),
                    id.clone(),
                )
            })
            .collect();
        let mut remaining = updaters.len();
        updaters.sort();
        let mut first_of_version: BTreeMap<String, ManagerId> = BTreeMap::new();
        for (_, _, id) in updaters {
            if remaining <= MAXIMUM_UPDATE_MANAGERS {
                return;
            }
            let Some(owned) = self.0.get(&id).cloned() else {
                continue;
            };
            let Some(first) = first_of_version.get(&owned.api_version) else {
                first_of_version.insert(owned.api_version.clone(), id);
                continue;
            };
            let bucket = ManagerId::new(OLD_UPDATES, false, &owned.api_version, "");
            if !self.0.contains_key(&bucket)
                && let Some(first) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), first);
            }
            self.0.remove(&id);
            if let Some(joined) = self.0.get_mut(&bucket) {
                joined.set = joined.set.union(&owned.set);
                joined.time = owned.time;
            } else {
                self.0.insert(bucket, owned);
            }
            remaining -= 1;
        }
    }
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = Map::new();
    if !id.name.is_empty() {
        entry.insert("manager".to_owned(), json!(id.name));
    }
    entry.insert("operation".to_owned(), json!(id.operation()));
    entry.insert("apiVersion".to_owned(), json!(owned.api_version));
    if let Some(time) = owned.time {
        entry.insert(
            "time".to_owned(),
            json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        );
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), fields_v1::encode(&owned.set));
    if !id.subresource.is_empty() {
        entry.insert("subresource".to_owned(), json!(id.subresource));
    }
    Value::Object(entry)
}
