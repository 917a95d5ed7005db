//! States that an object is waited for to reach (`--for`).

use std::str::FromStr;

use mainstay_kubeapi::table::jsonpath::{JsonPath, print};
use serde_json::Value;

use crate::applying::condition;

/// A state.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Wanted {
    /// A condition has this status. Statuses are compared without regard to case.
    Condition {
        /// Its type.
        name: String,
        /// Its status.
        status: String,
    },
    /// A field has this value, or any.
    Field {
        /// Where the field is.
        path: JsonPath,
        /// As it was written.
        shown: String,
        /// The value as text.
        value: Option<String>,
    },
    /// It is there.
    Created,
    /// It is not there.
    Deleted,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "create" => Ok(Wanted::Created),
            None if text == "delete" => Ok(Wanted::Deleted),
            Some(("condition", rest)) => {
                let (name, status) = rest.split_once('=').unwrap_or((rest, "True"));
                if name.is_empty() || status.is_empty() {
                    return Err("a condition has a name, and a status behind `=`".to_owned());
                }
                Ok(Wanted::Condition {
                    name: name.to_owned(),
                    status: status.to_owned(),
                })
            }
            Some(("jsonpath", rest)) => {
                // A filter holds `=` too: the value stands behind the braces, where there are any.
                let (path, value) = match rest.rfind('}') {
                    Some(end) => {
                        let (path, behind) = rest.split_at(end + 1);
                        match behind.strip_prefix('=') {
                            Some(value) => (path, Some(value)),
                            None if behind.is_empty() => (path, None),
                            None => return Err(format!("`{behind}` behind the path is not `=VALUE`")),
                        }
                    }
                    None => match rest.split_once('=') {
                        Some((path, value)) => (path, Some(value)),
                        None => (rest, None),
                    },
                };
                let parsed = JsonPath::parse(path).map_err(|error| format!("`{path}`: {error}"))?;
                if path.trim_matches(['{', '}', ' ']).is_empty() {
                    return Err("the path is empty".to_owned());
                }
                Ok(Wanted::Field {
                    path: parsed,
                    shown: path.to_owned(),
                    value: value.map(str::to_owned),
                })
            }
            _ => Err("one of condition=NAME[=VALUE], jsonpath=PATH[=VALUE], create and delete".to_owned()),
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::Condition { name, status } => write!(formatter, "condition {name}={status}"),
            Wanted::Field { shown, value, .. } => match value {
                Some(value) => write!(formatter, "{shown}={value}"),
                None => write!(formatter, "{shown}"),
            },
            Wanted::Created => formatter.write_str("creation"),
            Wanted::Deleted => formatter.write_str("deletion"),
        }
    }
}

impl Wanted {
    /// Whether an object is in the state; `None` stands for one that is not there.
    ///
    /// # Errors
    ///
    /// When the path leads to several values.
    pub(crate) fn is_met(&self, object: Option<&Value>) -> Result<bool, String> {
        let Some(object) = object else {
            return Ok(*self == Wanted::Deleted);
        };
        match self {
            Wanted::Created => Ok(true),
            Wanted::Deleted => Ok(false),
            Wanted::Condition { name, status } => {
                let Some(found) = condition(object, name) else {
                    return Ok(false);
                };
                // What was said of a former spec does not count.
                let generation = |value: Option<&Value>| value.and_then(Value::as_i64).unwrap_or_default();
                let current = generation(object.pointer("/metadata/generation"));
                let observed = found
                    .get("observedGeneration")
                    .or_else(|| object.pointer("/status/observedGeneration"));
                if observed.is_some() && generation(observed) < current {
                    return Ok(false);
                }
                let held = found.get("status").and_then(Value::as_str).unwrap_or_default();
                Ok(held.eq_ignore_ascii_case(status))
            }
            Wanted::Field { path, shown, value } => {
                let Ok(found) = path.find(object) else {
                    // What the path needs may come yet.
                    return Ok(false);
                };
                match (found.as_slice(), value) {
                    ([], _) => Ok(false),
                    ([one], Some(value)) => Ok(print(one) == *value),
                    ([one], None) => Ok(!one.is_null() && one.as_str() != Some("")),
                    (several, _) => Err(format!(
                        "{shown} leads to {} values and not to one",
                        several.len()
                    )),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn met(state: &str, object: &Value) -> bool {
        state.parse::<Wanted>().unwrap().is_met(Some(object)).unwrap()
    }

    #[test]
    fn a_state_is_met_by_what_the_object_says() {
        let object = json!({
            "metadata": {"generation": 2},
            "status": {"phase": "Running", "replicas": 3, "empty": "", "conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 2},
                {"type": "Old", "status": "True", "observedGeneration": 1},
            ]},
        });
        for (state, expected) in [
            ("condition=Ready", true),
            ("condition=Ready=true", true),
            ("condition=Ready=False", false),
            ("condition=Old", false),
            ("condition=Absent", false),
            ("jsonpath={.status.phase}=Running", true),
            ("jsonpath=.status.phase=Running", true),
            ("jsonpath={.status.replicas}=3", true),
            ("jsonpath={.status.phase}", true),
            ("jsonpath={.status.empty}", false),
            ("jsonpath={.status.absent}", false),
            (
                "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True",
                true,
            ),
            ("create", true),
            ("delete", false),
        ] {
            assert_eq!(met(state, &object), expected, "{state}");
        }
        assert_eq!(Wanted::Deleted.is_met(None), Ok(true));
        assert_eq!(Wanted::Created.is_met(None), Ok(false));
        let several = "jsonpath={.status.conditions[*].type}=Ready"
            .parse::<Wanted>()
            .unwrap();
        assert!(several.is_met(Some(&object)).unwrap_err().contains("2 values"));
    }

    #[test]
    fn a_state_that_cannot_be_read_says_what_can() {
        for text in [
            "ready",
            "condition=",
            "jsonpath=",
            "jsonpath={}",
            "jsonpath={.a}b",
            "jsonpath={.a[}",
        ] {
            assert!(text.parse::<Wanted>().is_err(), "{text}");
        }
    }
}
