//! Granting names. Two definitions of one group cannot serve the same resource or kind; the first one keeps it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{condition, stored_versions, text, texts};
use crate::builtin::Kinds;

/// What becomes of a definition's names.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdNames {
    /// `status.acceptedNames`
    pub accepted: Value,
    /// The condition `NamesAccepted`, without its transition time.
    pub names_accepted: Value,
    /// The condition `Established`, without its transition time.
    pub established: Value,
    /// `status.storedVersions`
    pub stored_versions: Vec<String>,
}

/// Decides the names of `crd` against those accepted for the `others` and the built-in `kinds` of its group. A name that
/// the definition has already stays its own.
pub fn accept_names(crd: &Value, others: &[Value], kinds: &Kinds) -> CrdNames {
    let group = text(crd, "/spec/group");
    let name = text(crd, "/metadata/name");
    let (resources, kind_names) = taken(group, name, others, kinds);
    let empty = json!({});
    let wanted = crd.pointer("/spec/names").unwrap_or(&empty);
    let current = crd.pointer("/status/acceptedNames").unwrap_or(&empty);
    let mut accepted = current.as_object().cloned().unwrap_or_else(Map::new);
    let mut conflict: Option<(&str, String)> = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kind_names),
        ("listKind", "ListKindConflict", &kind_names),
    ] {
        let outcome = if field == "shortNames" {
            check_short_names(wanted, current, used)
        } else {
            check(&text_of(wanted, field), &text_of(current, field), used)
        };
        match outcome {
            Err(message) => conflict = Some((reason, message)),
            Ok(()) => match wanted.get(field) {
                Some(value) => {
                    accepted.insert(field.to_owned(), value.clone());
                }
                None => {
                    accepted.remove(field);
                }
            },
        }
    }
    match wanted.get("categories") {
        Some(categories) => {
            accepted.insert("categories".to_owned(), categories.clone());
        }
        None => {
            accepted.remove("categories");
        }
    }
    let is_accepted = conflict.is_none();
    let names_accepted = match conflict {
        Some((reason, message)) => make("NamesAccepted", false, reason, &message),
        None => make("NamesAccepted", true, "NoConflicts", "no conflicts found"),
    };
    let was_established = condition(crd, "Established").filter(|_| super::is_established(crd));
    let established = match was_established {
        // Once served, a definition stays served under the names that it has.
        Some(condition) => {
            let reason = condition
                .get("reason")
                .and_then(Value::as_str)
                .unwrap_or("InitialNamesAccepted");
            let message = condition
                .get("message")
                .and_then(Value::as_str)
                .unwrap_or_default();
            make("Established", true, reason, message)
        }
        None if is_accepted => make(
            "Established",
            true,
            "InitialNamesAccepted",
            "the initial names have been accepted",
        ),
        None => make("Established", false, "NotAccepted", "not all names are accepted"),
    };
    CrdNames {
        accepted: Value::Object(accepted),
        names_accepted,
        established,
        stored_versions: stored_versions(crd, Some(crd)),
    }
}

fn make(type_: &str, status: bool, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message})
}

fn text_of(names: &Value, field: &str) -> String {
    names
        .get(field)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn check(wanted: &str, current: &str, used: &BTreeSet<String>) -> Result<(), String> {
    if wanted == current || !used.contains(wanted) {
        Ok(())
    } else {
        Err(format!("{wanted:?} is already in use"))
    }
}

fn check_short_names(wanted: &Value, current: &Value, used: &BTreeSet<String>) -> Result<(), String> {
    let own = texts(current, "/shortNames");
    let faults: Vec<String> = texts(wanted, "/shortNames")
        .iter()
        .filter(|name| !own.contains(name))
        .filter_map(|name| check(name, "", used).err())
        .collect();
    match faults.as_slice() {
        [] => Ok(()),
        [only] => Err(only.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// The resource names and the kinds of the group that belong to somebody else.
fn taken(group: &str, own: &str, others: &[Value], kinds: &Kinds) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut resources = BTreeSet::new();
    let mut kind_names = BTreeSet::new();
    for info in kinds
        .all()
        .iter()
        .filter(|info| info.group == group && !info.custom)
    {
        resources.extend([info.plural.clone(), info.singular.clone()]);
        resources.extend(info.short_names.iter().cloned());
        kind_names.extend([info.kind.clone(), info.list_kind.clone()]);
    }
    for other in others {
        if text(other, "/spec/group") != group || text(other, "/metadata/name") == own {
            continue;
        }
        let Some(names) = other.pointer("/status/acceptedNames") else {
            continue;
        };
        resources.extend([text_of(names, "plural"), text_of(names, "singular")]);
        resources.extend(texts(names, "/shortNames"));
        kind_names.extend([text_of(names, "kind"), text_of(names, "listKind")]);
    }
    resources.remove("");
    kind_names.remove("");
    (resources, kind_names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    fn definition(name: &str, kind: &str, short: &[&str]) -> Value {
        json!({"metadata": {"name": format!("{name}.example.com")}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": name, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
                      "shortNames": short},
            "versions": [{"name": "v1", "served": true, "storage": true}]}})
    }

    #[test]
    fn free_names_are_accepted_and_the_definition_is_established() {
        // KA-012
        let names = accept_names(&definition("things", "Thing", &["th"]), &[], &Kinds::builtin());
        assert_eq!(names.accepted["plural"], "things");
        assert_eq!(names.names_accepted["reason"], "NoConflicts");
        assert_eq!(names.established["status"], "True");
        assert_eq!(names.established["reason"], "InitialNamesAccepted");
        assert_eq!(names.stored_versions, ["v1"]);
    }

    #[test]
    fn a_name_that_another_definition_has_is_refused_with_the_reason() {
        // KA-012
        let mut first = definition("things", "Thing", &["th"]);
        first["status"] = json!({"acceptedNames": first["spec"]["names"]});
        let second = definition("thingies", "Thing", &["th"]);
        let names = accept_names(&second, std::slice::from_ref(&first), &Kinds::builtin());
        assert_eq!(names.names_accepted["status"], "False");
        assert_eq!(names.names_accepted["reason"], "ListKindConflict");
        assert_eq!(names.names_accepted["message"], "\"ThingList\" is already in use");
        assert_eq!(names.established["reason"], "NotAccepted");
        assert_eq!(names.accepted["plural"], "thingies");
        assert!(names.accepted.get("kind").is_none());
    }

    #[test]
    fn an_established_definition_stays_so_when_a_new_short_name_is_taken() {
        let mut first = definition("things", "Thing", &[]);
        first["status"] = json!({"acceptedNames": first["spec"]["names"],
            "conditions": [{"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "x"}]});
        first["spec"]["names"]["shortNames"] = json!(["ot"]);
        let mut other = definition("others", "Other", &["ot"]);
        other["status"] = json!({"acceptedNames": other["spec"]["names"]});
        let names = accept_names(&first, &[other], &Kinds::builtin());
        assert_eq!(names.names_accepted["reason"], "ShortNamesConflict");
        assert_eq!(names.established["status"], "True");
    }
}
