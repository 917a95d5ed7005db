//! What in a generated object is not ours. Pure.
//!
//! Server-side apply merges lists by their keys: an edit that changes a key (a port's number, a container's name) leaves
//! the edited element as somebody else's, beside ours. It would be served, or make the object one that no apply can
//! repair. The lists that are rendered in full are therefore ours in full, and so are the data of ConfigMaps and Secrets and the fields of
//! our container: what pods run with is what the agent's spec says. Everything else of an object, its labels and
//! annotations above all, may have parts of others.

use serde_json::{Value, json};

/// A list that is rendered in full.
struct List {
    /// Where, as a JSON pointer below the object or below an element of the list around it.
    path: &'static str,
    /// Fields that tell one element from another.
    keys: &'static [&'static str],
    /// Lists in each element.
    inner: &'static [List],
    /// Fields of an element that the API fills in. Those that are neither these nor ours are not ours. `None` for lists
    /// whose elements are all ours or all not.
    filled_in: Option<&'static [&'static str]>,
}

/// Maps that are rendered in full.
const MAPS: &[&str] = &["/data", "/binaryData"];

const LISTS: &[List] = &[
    List {
        path: "/spec/ports",
        keys: &["port", "protocol"],
        inner: &[],
        filled_in: None,
    },
    List {
        path: "/spec/template/spec/volumes",
        keys: &["name"],
        inner: &[],
        filled_in: None,
    },
    List {
        path: "/spec/template/spec/initContainers",
        keys: &["name"],
        inner: &[],
        filled_in: None,
    },
    List {
        path: "/spec/template/spec/containers",
        keys: &["name"],
        inner: &[
            List {
                path: "/ports",
                keys: &["containerPort", "protocol"],
                inner: &[],
                filled_in: None,
            },
            List {
                path: "/env",
                keys: &["name"],
                inner: &[],
                filled_in: None,
            },
            List {
                path: "/volumeMounts",
                keys: &["mountPath"],
                inner: &[],
                filled_in: None,
            },
        ],
        filled_in: Some(&[
            "imagePullPolicy",
            "terminationMessagePath",
            "terminationMessagePolicy",
        ]),
    },
];

/// The JSON patch that takes out what is not ours, and fails when the object changed since it was read. Empty when there
/// is nothing to take out.
pub(super) fn operations(existing: &Value, ours: &Value) -> Vec<Value> {
    let mut operations = Vec::new();
    for list in LISTS {
        compare(list, "", existing, ours, &mut operations);
    }
    for path in MAPS {
        let found = existing.pointer(path).and_then(Value::as_object);
        let wanted = ours.pointer(path);
        for key in found.into_iter().flat_map(|found| found.keys()) {
            if wanted.is_none_or(|wanted| wanted.get(key).is_none()) {
                operations.push(remove(path, key));
            }
        }
    }
    if !operations.is_empty() {
        operations.insert(
            0,
            json!({
                "op": "test",
                "path": "/metadata/resourceVersion",
                "value": existing.pointer("/metadata/resourceVersion"),
            }),
        );
    }
    operations
}

fn compare(list: &List, base: &str, existing: &Value, ours: &Value, operations: &mut Vec<Value>) {
    let Some(found) = existing.pointer(list.path).and_then(Value::as_array) else {
        return;
    };
    let none = Vec::new();
    let wanted = ours.pointer(list.path).and_then(Value::as_array).unwrap_or(&none);
    let path = format!("{base}{}", list.path);
    let own = |element: &Value| {
        wanted
            .iter()
            .find(|wanted| list.keys.iter().all(|key| wanted.get(key) == element.get(key)))
    };
    let foreign: Vec<usize> = found
        .iter()
        .enumerate()
        .filter_map(|(index, element)| own(element).is_none().then_some(index))
        .collect();
    if foreign.len() == found.len() && !foreign.is_empty() && !wanted.is_empty() {
        // A list that must not be empty cannot lose its last element on the way.
        operations.push(json!({ "op": "replace", "path": path, "value": wanted }));
        return;
    }
    for (index, element) in found.iter().enumerate() {
        let Some(own) = own(element) else { continue };
        for field in element.as_object().into_iter().flat_map(|element| element.keys()) {
            let ours = own.get(field).is_some() || list.inner.iter().any(|inner| inner.path[1..] == **field);
            let empty = element[field].as_object().is_some_and(serde_json::Map::is_empty);
            if let Some(filled_in) = list.filled_in
                && !ours
                && !empty
                && !filled_in.contains(&field.as_str())
            {
                operations.push(remove(&format!("{path}/{index}"), field));
            }
        }
        for inner in list.inner {
            compare(inner, &format!("{path}/{index}"), element, own, operations);
        }
    }
    // From the end, so that the other places stay.
    for index in foreign.into_iter().rev() {
        operations.push(json!({ "op": "remove", "path": format!("{path}/{index}") }));
    }
}

fn remove(path: &str, key: &str) -> Value {
    let key = key.replace('~', "~0").replace('/', "~1");
    json!({ "op": "remove", "path": format!("{path}/{key}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(existing: &Value, ours: &Value) -> Vec<String> {
        operations(existing, ours)
            .iter()
            .map(|operation| {
                let text = |field: &str| operation[field].as_str().unwrap_or_default().to_owned();
                format!("{} {}", text("op"), text("path"))
            })
            .collect()
    }

    fn service(ports: Value) -> Value {
        json!({ "metadata": { "resourceVersion": "7" }, "spec": { "ports": ports, "clusterIP": "10.0.0.1" } })
    }

    fn deployment(containers: Value, volumes: Value) -> Value {
        json!({
            "metadata": { "resourceVersion": "7" },
            "spec": { "template": { "spec": { "containers": containers, "volumes": volumes } } },
        })
    }

    #[test]
    fn ports_with_another_number_are_taken_out_om_253() {
        let own = json!({ "name": "facade", "port": 8080, "protocol": "TCP" });
        let ours = service(json!([own]));
        let edited = json!({ "name": "facade", "port": 9999, "protocol": "TCP" });
        assert!(operations(&ours, &ours).is_empty());
        assert_eq!(
            paths(&service(json!([edited])), &ours),
            ["test /metadata/resourceVersion", "replace /spec/ports"]
        );
        assert_eq!(
            paths(&service(json!([edited, own, edited])), &ours),
            [
                "test /metadata/resourceVersion",
                "remove /spec/ports/2",
                "remove /spec/ports/0"
            ]
        );
    }

    #[test]
    fn what_was_added_to_the_pods_is_taken_out_and_defaults_stay_om_253() {
        let ours = deployment(
            json!([{ "name": "agent", "env": [{ "name": "A" }], "ports": [{ "containerPort": 8080, "protocol": "TCP" }] }]),
            json!([{ "name": "pack" }]),
        );
        let edited = deployment(
            json!([
                { "name": "side" },
                {
                    "name": "agent", "imagePullPolicy": "Always", "resources": {}, "command": ["sh"],
                    "env": [{ "name": "A" }, { "name": "B" }],
                    "ports": [{ "containerPort": 8080, "protocol": "TCP" }],
                    "volumeMounts": [{ "mountPath": "/x" }],
                },
            ]),
            json!([{ "name": "pack", "configMap": { "defaultMode": 420 } }, { "name": "x" }]),
        );
        assert_eq!(
            paths(&edited, &ours),
            [
                "test /metadata/resourceVersion",
                "remove /spec/template/spec/volumes/1",
                "remove /spec/template/spec/containers/1/command",
                "remove /spec/template/spec/containers/1/env/1",
                "remove /spec/template/spec/containers/1/volumeMounts/0",
                "remove /spec/template/spec/containers/0",
            ]
        );
    }

    #[test]
    fn data_that_was_added_is_taken_out_om_253() {
        let ours = json!({ "data": { "tools.yaml": "a" } });
        let edited = json!({
            "metadata": { "resourceVersion": "7" },
            "data": { "tools.yaml": "b", "e/vil": "x" }, "binaryData": { "more": "eA==" },
        });
        assert_eq!(
            paths(&edited, &ours),
            [
                "test /metadata/resourceVersion",
                "remove /data/e~1vil",
                "remove /binaryData/more"
            ]
        );
    }
}
