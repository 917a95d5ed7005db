//! The paths of a document.

use serde_json::{Map, Value, json};

use super::list_name;
use crate::builtin::{KindInfo, definitions};

const REFERENCE: &str = "#/components/schemas/";

/// The paths of a kind, each with its operations.
pub(super) fn of(info: &KindInfo) -> Vec<(String, Value)> {
    let root = if info.group.is_empty() {
        format!("/api/{}", info.version)
    } else {
        format!("/apis/{}/{}", info.group, info.version)
    };
    let scope = if info.namespaced {
        "/namespaces/{namespace}"
    } else {
        ""
    };
    let collection = format!("{root}{scope}/{}", info.plural);
    let item = format!("{collection}/{{name}}");
    let mut paths = vec![(collection, operations(info, &Place::Collection))];
    // Of reviews, which are asked and answered, there are neither objects nor lists.
    if !does(info, "get") {
        return paths;
    }
    paths.push((item.clone(), operations(info, &Place::Item)));
    if info.namespaced {
        paths.push((
            format!("{root}/{}", info.plural),
            operations(info, &Place::AllNamespaces),
        ));
    }
    if info.status {
        paths.push((
            format!("{item}/status"),
            operations(info, &Place::Sub("status", info.definition.clone())),
        ));
    }
    if info.scale.is_some() {
        let scale = "io.k8s.api.autoscaling.v1.Scale".to_owned();
        paths.push((
            format!("{item}/scale"),
            operations(info, &Place::Sub("scale", scale)),
        ));
    }
    paths
}

fn does(info: &KindInfo, wanted: &str) -> bool {
    info.verbs.iter().any(|verb| verb == wanted)
}

enum Place {
    Collection,
    AllNamespaces,
    Item,
    Sub(&'static str, String),
}

fn operations(info: &KindInfo, place: &Place) -> Value {
    let list = list_name(&info.definition);
    let mut operations = Map::new();
    let mut add = |method: &str, verb: &str, action: &str, body: Option<&str>, answer: &str| {
        operations.insert(
            method.to_owned(),
            operation(info, place, verb, action, body, answer),
        );
    };
    let definition = info.definition.as_str();
    let status = definitions::meta("Status");
    let options = definitions::meta("DeleteOptions");
    match place {
        Place::AllNamespaces => add("get", "list", "list", None, &list),
        Place::Collection => {
            if does(info, "list") {
                add("get", "list", "list", None, &list);
            }
            add("post", "create", "post", Some(definition), definition);
            if does(info, "deletecollection") {
                add(
                    "delete",
                    "deleteCollection",
                    "deletecollection",
                    Some(&options),
                    &status,
                );
            }
        }
        Place::Item => {
            add("get", "read", "get", None, definition);
            add("put", "replace", "put", Some(definition), definition);
            add(
                "patch",
                "patch",
                "patch",
                Some(&definitions::meta("Patch")),
                definition,
            );
            add("delete", "delete", "delete", Some(&options), &status);
        }
        Place::Sub(_, definition) => {
            add("get", "read", "get", None, definition);
            add("put", "replace", "put", Some(definition), definition);
            add(
                "patch",
                "patch",
                "patch",
                Some(&definitions::meta("Patch")),
                definition,
            );
        }
    }
    let mut parameters = Vec::new();
    if matches!(place, Place::Item | Place::Sub(..)) {
        parameters.push(in_path("name", &format!("name of the {}", info.kind)));
    }
    if info.namespaced && !matches!(place, Place::AllNamespaces) {
        parameters.push(in_path(
            "namespace",
            "object name and auth scope, such as for teams and projects",
        ));
    }
    parameters.push(query(
        "pretty",
        "string",
        "If 'true', then the output is pretty printed.",
    ));
    operations.insert("parameters".to_owned(), Value::Array(parameters));
    Value::Object(operations)
}

fn operation(
    info: &KindInfo,
    place: &Place,
    verb: &str,
    action: &str,
    body: Option<&str>,
    answer: &str,
) -> Value {
    let (group, version, kind) = match place {
        Place::Sub("scale", _) => ("autoscaling", "v1", "Scale"),
        _ => (info.group.as_str(), info.version.as_str(), info.kind.as_str()),
    };
    let mut operation = json!({
        "operationId": operation_id(info, place, verb),
        "tags": [tag(info)],
        "responses": {
            "200": {"description": "OK", "content": content(&["application/json"], answer)},
            "401": {"description": "Unauthorized"},
        },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    let parameters = parameters(action);
    // What reads the document and writes it again leaves an empty list out.
    if let (false, Some(fields)) = (parameters.is_empty(), operation.as_object_mut()) {
        fields.insert("parameters".to_owned(), Value::Array(parameters));
    }
    if let (Some(body), Some(fields)) = (body, operation.as_object_mut()) {
        let mut types = match action {
            "patch" => vec![
                "application/apply-patch+yaml",
                "application/json-patch+json",
                "application/merge-patch+json",
            ],
            _ => vec!["*/*"],
        };
        // Only built-in kinds state how their lists are merged.
        if action == "patch" && !info.custom {
            types.push("application/strategic-merge-patch+json");
        }
        let required = action != "delete" && action != "deletecollection";
        fields.insert(
            "requestBody".to_owned(),
            json!({"content": content(&types, body), "required": required}),
        );
    }
    operation
}

fn content(types: &[&str], definition: &str) -> Value {
    let schema = json!({"schema": {"$ref": format!("{REFERENCE}{definition}")}});
    types
        .iter()
        .map(|&media| (media.to_owned(), schema.clone()))
        .collect::<Map<_, _>>()
        .into()
}

fn parameters(action: &str) -> Vec<Value> {
    let field_validation = || {
        query(
            "fieldValidation",
            "string",
            "What to do with unknown and duplicate fields of the object: Ignore drops them silently, Warn (the default) \
             drops them and says so in Warning headers, Strict refuses the request.",
        )
    };
    let dry_run = || {
        query(
            "dryRun",
            "string",
            "With the value All everything is done but the change is not kept.",
        )
    };
    let manager = || {
        query(
            "fieldManager",
            "string",
            "A name for whoever makes the change; required for apply.",
        )
    };
    match action {
        "post" | "put" => vec![dry_run(), manager(), field_validation()],
        "patch" => vec![
            dry_run(),
            manager(),
            field_validation(),
            query(
                "force",
                "boolean",
                "Whether an apply takes over fields that belong to another manager.",
            ),
        ],
        "list" => vec![
            query(
                "allowWatchBookmarks",
                "boolean",
                "Whether a watch may send bookmarks.",
            ),
            query(
                "continue",
                "string",
                "Where the last answer to a limited list ended.",
            ),
            query(
                "fieldSelector",
                "string",
                "Restricts the objects by their fields.",
            ),
            query(
                "labelSelector",
                "string",
                "Restricts the objects by their labels.",
            ),
            query("limit", "integer", "The most objects of one answer."),
            query(
                "resourceVersion",
                "string",
                "The version to list or to watch from.",
            ),
            query(
                "resourceVersionMatch",
                "string",
                "How resourceVersion is meant: Exact or NotOlderThan.",
            ),
            query(
                "sendInitialEvents",
                "boolean",
                "Whether a watch begins with the objects that are there.",
            ),
            query("timeoutSeconds", "integer", "When the answer ends."),
            query("watch", "boolean", "Whether to stream changes."),
        ],
        "delete" | "deletecollection" => vec![
            dry_run(),
            query(
                "gracePeriodSeconds",
                "integer",
                "How long the object may take to end.",
            ),
            query("orphanDependents", "boolean", "Superseded by propagationPolicy."),
            query(
                "propagationPolicy",
                "string",
                "What becomes of dependents: Orphan, Background or Foreground.",
            ),
        ],
        _ => Vec::new(),
    }
}

fn query(name: &str, type_: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": {"type": type_, "uniqueItems": true}})
}

fn in_path(name: &str, description: &str) -> Value {
    json!({
        "name": name, "in": "path", "required": true, "description": description,
        "schema": {"type": "string", "uniqueItems": true},
    })
}

fn tag(info: &KindInfo) -> String {
    let group = if info.group.is_empty() {
        "core"
    } else {
        info.group.trim_end_matches(".k8s.io")
    };
    format!("{}_{}", group.replace(['.', '-'], "_"), info.version)
}

/// Such as `patchAppsV1NamespacedDeploymentStatus`.
fn operation_id(info: &KindInfo, place: &Place, verb: &str) -> String {
    let group = if info.group.is_empty() {
        "core"
    } else {
        info.group.trim_end_matches(".k8s.io")
    };
    let group: String = group.split(['.', '-']).map(capitalized).collect();
    let scope = if info.namespaced && !matches!(place, Place::AllNamespaces) {
        "Namespaced"
    } else {
        ""
    };
    let tail = match place {
        Place::AllNamespaces => "ForAllNamespaces".to_owned(),
        Place::Sub(name, _) => capitalized(name),
        Place::Collection | Place::Item => String::new(),
    };
    let verb = if verb == "deleteCollection" {
        ("delete", "Collection")
    } else {
        (verb, "")
    };
    format!(
        "{}{group}{}{}{scope}{}{tail}",
        verb.0,
        capitalized(&info.version),
        verb.1,
        info.kind
    )
}

fn capitalized(word: &str) -> String {
    let mut characters = word.chars();
    characters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(characters).collect()
    })
}
