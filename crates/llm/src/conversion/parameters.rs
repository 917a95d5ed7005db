//! Makes a tool's schema acceptable to every provider (D4).
//!
//! Authors write what JSON Schema allows; providers take a narrower form and some refuse a whole
//! request for one odd tool. Only what the model is *told* is rewritten: arguments are still checked
//! against the author's schema.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

// Deeper schemas tell a model nothing and cost the walk its bound.
const MAX_DEPTH: usize = 32;

// How far references and combinations at the root are followed.
const MAX_ROOT_DEPTH: usize = 8;

// What providers do not take at the root.
const DISSOLVED: &[&str] = &["$ref", "allOf", "anyOf", "oneOf", "not", "enum"];

/// The schema to send: an object at the root, without `$schema`, `$id` and `$comment`; boolean
/// subschemas as objects; arrays with `items`; objects with `properties`; one type where the author
/// listed several (`null` first of all is dropped, since an optional argument may be left out). At
/// the root, where providers take neither combinations nor references, the properties of all
/// branches are listed together.
pub(crate) fn acceptable(schema: &Value) -> Value {
    let Value::Object(author) = schema else {
        return json!({"type": "object", "properties": {}});
    };
    let mut merged = Merged {
        document: schema,
        root: rewrite_object(author, 0, true),
        seen: HashSet::new(),
    };
    merged.branches(author, true, 0);
    let mut root = merged.root;
    root.insert("type".to_owned(), json!("object"));
    root.entry("properties").or_insert_with(|| json!({}));
    Value::Object(root)
}

/// The root together with what its branches add.
struct Merged<'a> {
    document: &'a Value,
    root: Map<String, Value>,
    // References that were followed, and whether what they require is required. Each is followed once: a
    // second time it adds nothing, and schemas exist whose references form a lattice.
    seen: HashSet<(&'a str, bool)>,
}

impl<'a> Merged<'a> {
    /// Adds what the reference and the combinations of `schema` say. `binds`: what they require is required
    /// whichever branch is meant, which holds for `allOf` and references only.
    fn branches(&mut self, schema: &'a Map<String, Value>, binds: bool, depth: usize) {
        if depth == MAX_ROOT_DEPTH {
            return;
        }
        if let Some(Value::String(reference)) = schema.get("$ref")
            && let Some(pointer) = reference.strip_prefix('#')
            && self.seen.insert((pointer, binds))
            && let Some(Value::Object(target)) = self.document.pointer(pointer)
        {
            self.branch(target, binds, depth);
        }
        for (keyword, all) in [("allOf", true), ("anyOf", false), ("oneOf", false)] {
            let listed = schema.get(keyword).and_then(Value::as_array);
            for branch in listed.into_iter().flatten().filter_map(Value::as_object) {
                self.branch(branch, binds && all, depth);
            }
        }
    }

    fn branch(&mut self, branch: &'a Map<String, Value>, binds: bool, depth: usize) {
        if let Some(Value::Object(found)) = branch.get("properties") {
            let properties = self.root.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(properties) = properties {
                for (name, schema) in found {
                    properties.entry(name).or_insert_with(|| rewrite(schema, 1));
                }
            }
        }
        let required = branch.get("required").filter(|_| binds).and_then(Value::as_array);
        if let Some(found) = required.filter(|names| names.iter().all(Value::is_string)) {
            let required = self.root.entry("required").or_insert_with(|| json!([]));
            if let Value::Array(required) = required {
                for name in found {
                    if !required.contains(name) {
                        required.push(name.clone());
                    }
                }
            }
        }
        if let Some(description) = branch.get("description") {
            self.root
                .entry("description")
                .or_insert_with(|| description.clone());
        }
        self.branches(branch, binds, depth + 1);
    }
}

fn rewrite(schema: &Value, depth: usize) -> Value {
    match schema {
        Value::Object(schema) if depth < MAX_DEPTH => Value::Object(rewrite_object(schema, depth, false)),
        // `true` accepts anything; `false` accepts nothing, which cannot be said in this subset.
        _ => json!({}),
    }
}

fn rewrite_object(schema: &Map<String, Value>, depth: usize, is_root: bool) -> Map<String, Value> {
    let mut out = Map::new();
    for (key, value) in schema {
        match key.as_str() {
            key if is_root && DISSOLVED.contains(&key) => {}
            "$schema" | "$id" | "$comment" | "$anchor" | "$vocabulary" | "id"
                if !is_root_property(key, value) => {}
            "type" => {
                if let Some(single) = single_type(value) {
                    out.insert(key.clone(), single);
                }
            }
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas" => {
                let mut children = Map::new();
                for (name, child) in value.as_object().into_iter().flatten() {
                    children.insert(name.clone(), rewrite(child, depth + 1));
                }
                out.insert(key.clone(), Value::Object(children));
            }
            // The older tuple form: providers know one schema for all elements.
            "items" => {
                let items = match value {
                    Value::Array(_) => json!({}),
                    other => rewrite(other, depth + 1),
                };
                out.insert(key.clone(), items);
            }
            "additionalProperties" | "unevaluatedProperties" if value.is_boolean() => {
                out.insert(key.clone(), value.clone());
            }
            "additionalProperties"
            | "unevaluatedProperties"
            | "not"
            | "contains"
            | "if"
            | "then"
            | "else"
            | "propertyNames" => {
                out.insert(key.clone(), rewrite(value, depth + 1));
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                let children: Vec<Value> = value
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|child| rewrite(child, depth + 1))
                    .collect();
                if !children.is_empty() {
                    out.insert(key.clone(), Value::Array(children));
                }
            }
            "required" => {
                if value
                    .as_array()
                    .is_some_and(|names| names.iter().all(Value::is_string))
                {
                    out.insert(key.clone(), value.clone());
                }
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    let kind = out.get("type").and_then(Value::as_str).map(str::to_owned);
    match kind.as_deref() {
        Some("array") => {
            out.entry("items").or_insert_with(|| json!({}));
        }
        Some("object") if !out.contains_key("additionalProperties") || is_root => {
            out.entry("properties").or_insert_with(|| json!({}));
        }
        _ => {}
    }
    out
}

// `id` was the draft 4 spelling of `$id`; anything else under that key is an author's extension.
fn is_root_property(key: &str, value: &Value) -> bool {
    key == "id" && !value.is_string()
}

fn single_type(value: &Value) -> Option<Value> {
    match value {
        Value::String(_) => Some(value.clone()),
        Value::Array(types) => {
            let mut types = types
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| *name != "null");
            let first = types.next();
            match (first, types.next()) {
                // Several real types: leaving the keyword out accepts all of them.
                (Some(_), Some(_)) => None,
                (Some(only), None) => Some(json!(only)),
                (None, _) => Some(json!("null")),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn odd_schemas_become_what_providers_take_d4() {
        for (author, sent) in [
            (json!({}), json!({"type": "object", "properties": {}})),
            (json!(true), json!({"type": "object", "properties": {}})),
            (
                json!({"type": "object"}),
                json!({"type": "object", "properties": {}}),
            ),
            (
                json!({"type": ["object", "null"], "$schema": "https://json-schema.org/draft/2020-12/schema"}),
                json!({"type": "object", "properties": {}}),
            ),
            (
                json!({"properties": {"any": true, "list": {"type": "array"}, "both": {"type": ["string", "integer"]}, "maybe": {"type": ["string", "null"]}}}),
                json!({"type": "object", "properties": {"any": {}, "list": {"type": "array", "items": {}}, "both": {}, "maybe": {"type": "string"}}}),
            ),
            (
                json!({"type": "object", "properties": {"o": {"type": "object"}, "m": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}}}, "additionalProperties": false}),
                json!({"type": "object", "properties": {"o": {"type": "object", "properties": {}}, "m": {"type": "object", "additionalProperties": {"type": "integer"}}}, "additionalProperties": false}),
            ),
            (
                json!({"type": "object", "properties": {"t": {"type": "array", "items": [{"type": "string"}]}}, "required": "t", "anyOf": []}),
                json!({"type": "object", "properties": {"t": {"type": "array", "items": {}}}}),
            ),
        ] {
            assert_eq!(acceptable(&author), sent, "{author}");
        }
    }

    #[test]
    fn combinations_and_references_at_the_root_become_one_object_d4() {
        let author = json!({
            "$ref": "#/$defs/base",
            "$defs": {"base": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
            "allOf": [{"properties": {"a": true}, "required": ["a"]}],
            "oneOf": [
                {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
                {"anyOf": [{"properties": {"c": {"type": "integer"}}}]},
            ],
            "not": {"required": ["d"]},
        });
        assert_eq!(
            acceptable(&author),
            json!({
                "type": "object",
                "$defs": {"base": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
                "properties": {"id": {"type": "string"}, "a": {}, "b": {"type": "string"}, "c": {"type": "integer"}},
                "required": ["id", "a"],
            })
        );
        let cycle = json!({"$ref": "#"});
        assert_eq!(acceptable(&cycle), json!({"type": "object", "properties": {}}));
    }

    #[test]
    fn each_reference_is_followed_once_d4() {
        // Thirty references from every level to every one below it: followed each time they would be 30^8 steps.
        let levels = 12;
        let mut definitions = Map::new();
        for level in 0..levels {
            let below: Vec<Value> = (level + 1..levels)
                .cycle()
                .take(if level + 1 < levels { 30 } else { 0 })
                .map(|next| json!({"$ref": format!("#/$defs/d{next}")}))
                .collect();
            let name = format!("p{level}");
            definitions.insert(
                format!("d{level}"),
                json!({"allOf": below, "anyOf": below, "properties": {name.clone(): true}, "required": [name]}),
            );
        }
        let author = json!({"$ref": "#/$defs/d0", "$defs": definitions});
        let sent = acceptable(&author);
        assert_eq!(sent["properties"].as_object().unwrap().len(), levels);
        assert_eq!(sent["required"].as_array().unwrap().len(), levels);
    }

    #[test]
    fn a_property_may_be_named_like_a_keyword() {
        let author = json!({"type": "object", "properties": {"id": {"type": "string"}, "type": {"type": "string"}, "$schema": {"type": "string"}}});
        assert_eq!(acceptable(&author), author);
    }

    #[test]
    fn a_schema_nested_without_end_is_cut() {
        let mut schema = json!({"type": "string"});
        for _ in 0..1_000 {
            schema = json!({"type": "object", "properties": {"x": schema}});
        }
        let mut node = &acceptable(&schema);
        let mut depth = 0;
        while let Some(next) = node.pointer("/properties/x") {
            node = next;
            depth += 1;
        }
        assert!(depth <= MAX_DEPTH);
        // Dropping a deep value recurses; take it apart first.
        while let Some(inner) = schema.pointer_mut("/properties/x").map(Value::take) {
            schema = inner;
        }
    }

    proptest! {
        #[test]
        fn a_rewritten_schema_is_stable(kind in prop_oneof![Just("array"), Just("object"), Just("string")], nullable: bool) {
            let kind = if nullable { json!([kind, "null"]) } else { json!(kind) };
            let author = json!({"properties": {"x": {"type": kind}}, "$id": "a"});
            let once = acceptable(&author);
            prop_assert_eq!(acceptable(&once), once);
        }
    }
}
