//! Schemas of a document as JSON Schema that stands on its own (D1, D4).
//!
//! The three versions of OpenAPI write schemas in three dialects; what comes out is JSON Schema
//! 2020-12. Only known keywords with values of the right kind are taken over, so that one odd schema
//! cannot make a validator, or a provider, refuse the tool.
//!
//! References are written out while that is cheap, since models read one schema better than many.
//! Where a schema contains itself, is nested deeply, or is large, its parts become local definitions.
//! A definition's size is charged once, so the work is bounded by the limits below and not by the
//! number of ways through the document. What exceeds them is cut to `{}`, which accepts anything: the
//! service still checks it. A keyword that would become stricter by such a cut within it is left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use super::{document::Version, recursion, reference};

/// How deep one schema may be nested before it is cut.
const MAX_DEPTH: usize = 32;

/// How deep a reference is still written out.
const INLINE_DEPTH: usize = 12;

/// How many references within references are written out.
const INLINE_REFERENCES: usize = 16;

/// Bytes of one operation's schemas after which references are no longer written out.
const INLINE_BYTES: usize = 32 * 1024;

/// Bytes of one operation's schemas.
const MAX_BYTES: usize = 128 * 1024;

/// Local definitions of one operation.
const MAX_DEFINITIONS: usize = 64;

// What a node costs besides its texts.
const NODE_BYTES: usize = 16;

const DESCRIPTION_CHARACTERS: usize = 1_000;
const DEFAULT_BYTES: usize = 1_024;

/// Converts the schemas of one operation.
pub(super) struct Converter<'d> {
    document: &'d Value,
    version: Version,
    used: usize,
    /// Reference → name of its definition.
    names: BTreeMap<&'d str, String>,
    pending: VecDeque<(String, &'d Value, &'d str)>,
    /// Properties that only answers have, which were left out.
    read_only: BTreeSet<&'d str>,
    /// Counts what accepts more than the author wrote, or may be cut to that later.
    loosened: usize,
}

impl<'d> Converter<'d> {
    pub(super) fn new(document: &'d Value, version: Version) -> Self {
        Self {
            document,
            version,
            used: 0,
            names: BTreeMap::new(),
            pending: VecDeque::new(),
            read_only: BTreeSet::new(),
            loosened: 0,
        }
    }

    /// Bytes that the schemas take, about.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// `schema`; its `#/$defs/…` are given by [`Converter::finish`].
    pub(super) fn convert(&mut self, schema: &'d Value) -> Value {
        self.schema(schema, 0, &mut Vec::new())
    }

    /// The schema that is spread over the fields of a version 2 parameter.
    pub(super) fn convert_parameter(&mut self, fields: &'d Map<String, Value>) -> Value {
        Value::Object(self.object(fields, 0, &mut Vec::new()))
    }

    /// The definitions. Every schema that was converted is completed first.
    pub(super) fn finish(mut self, roots: &mut [&mut Value]) -> Map<String, Value> {
        let mut definitions = Map::new();
        while let Some((name, schema, reference)) = self.pending.pop_front() {
            let mut open = vec![reference];
            let converted = self.schema(schema, 0, &mut open);
            definitions.insert(name, converted);
        }
        recursion::cut(&mut definitions);
        if !self.read_only.is_empty() {
            for root in roots.iter_mut() {
                self.require_no_read_only(root);
            }
            for definition in definitions.values_mut() {
                self.require_no_read_only(definition);
            }
        }
        definitions
    }

    fn schema(&mut self, schema: &'d Value, depth: usize, open: &mut Vec<&'d str>) -> Value {
        let fields = match schema {
            Value::Bool(accepts) => return Value::Bool(*accepts),
            Value::Object(fields) => fields,
            _ => return self.anything(),
        };
        if depth >= MAX_DEPTH || !self.charge(NODE_BYTES) {
            return self.anything();
        }
        match fields.get("$ref") {
            Some(Value::String(reference)) => self.reference(reference, fields, depth, open),
            _ => Value::Object(self.object(fields, depth, open)),
        }
    }

    fn anything(&mut self) -> Value {
        self.loosened += 1;
        json!({})
    }

    fn reference(
        &mut self,
        reference: &'d str,
        fields: &'d Map<String, Value>,
        depth: usize,
        open: &mut Vec<&'d str>,
    ) -> Value {
        let mut schema = match reference::target(self.document, reference) {
            None => self.anything(),
            Some(target) => {
                let write_out = !open.contains(&reference)
                    && !self.names.contains_key(reference)
                    && depth < INLINE_DEPTH
                    && open.len() < INLINE_REFERENCES
                    && self.used < INLINE_BYTES;
                if write_out {
                    open.push(reference);
                    let written = self.schema(target, depth, open);
                    open.pop();
                    written
                } else {
                    self.definition(reference, target)
                }
            }
        };
        if self.version == Version::V31 {
            // What stands beside a reference holds too.
            let mut beside = self.object(fields, depth, open);
            let description = beside.remove("description");
            if !beside.is_empty() {
                beside.insert("allOf".to_owned(), json!([schema]));
                schema = Value::Object(beside);
            }
            describe(&mut schema, description);
        } else {
            // Formally it does not, but it is what the author says about this use of the schema.
            let description = self.description(fields);
            describe(&mut schema, description);
            if is_nullable(fields, self.version) {
                schema = nullable(schema);
            }
        }
        schema
    }

    fn definition(&mut self, reference: &'d str, target: &'d Value) -> Value {
        self.loosened += 1;
        if let Some(name) = self.names.get(reference) {
            return json!({"$ref": format!("#/$defs/{name}")});
        }
        if self.names.len() >= MAX_DEFINITIONS {
            return json!({});
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let mut base: String = last
            .chars()
            .filter(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-'))
            .take(48)
            .collect();
        if base.is_empty() {
            base.push_str("schema");
        }
        let mut name = base.clone();
        let mut number = 2;
        while self.names.values().any(|used| *used == name) {
            name = format!("{base}_{number}");
            number += 1;
        }
        self.names.insert(reference, name.clone());
        let refers = json!({"$ref": format!("#/$defs/{name}")});
        self.pending.push_back((name, target, reference));
        refers
    }

    fn object(
        &mut self,
        fields: &'d Map<String, Value>,
        depth: usize,
        open: &mut Vec<&'d str>,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        let loosened = self.loosened;
        for (key, value) in fields {
            if self.used >= MAX_BYTES {
                self.loosened += 1;
                break;
            }
            let before = self.loosened;
            let converted = match (key.as_str(), value) {
                ("type", _) => types(value),
                ("description", _) => self.description(fields),
                ("enum", Value::Array(_)) if !is_empty(value) => self.literal(value, MAX_BYTES),
                ("const", _) => self.literal(value, MAX_BYTES),
                ("default", _) => self.literal(value, DEFAULT_BYTES),
                ("format" | "pattern", Value::String(text)) => self.charge(text.len()).then(|| value.clone()),
                ("minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum", Value::Number(_)) => {
                    Some(value.clone())
                }
                ("multipleOf", Value::Number(number)) => number
                    .as_f64()
                    .is_some_and(|number| number > 0.0)
                    .then(|| value.clone()),
                (
                    "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
                    | "minContains" | "maxContains",
                    Value::Number(number),
                ) => number.is_u64().then(|| value.clone()),
                ("uniqueItems", Value::Bool(_)) => Some(value.clone()),
                ("required", Value::Array(names)) => self.names_of(names),
                ("properties" | "patternProperties" | "dependentSchemas", Value::Object(schemas)) => {
                    Some(self.schemas(schemas, key == "properties", depth, open))
                }
                // A tuple in the older form.
                ("items", Value::Array(schemas)) => {
                    if let Some(items) = self.list(schemas, depth, open) {
                        out.insert("prefixItems".to_owned(), items);
                    }
                    continue;
                }
                (
                    "items"
                    | "additionalProperties"
                    | "contains"
                    | "propertyNames"
                    | "then"
                    | "else"
                    | "unevaluatedProperties"
                    | "unevaluatedItems",
                    _,
                ) => Some(self.schema(value, depth + 1, open)),
                ("not" | "if", _) => {
                    let schema = self.schema(value, depth + 1, open);
                    (self.loosened == before).then_some(schema)
                }
                ("allOf" | "anyOf" | "prefixItems", Value::Array(schemas)) => self.list(schemas, depth, open),
                ("oneOf", Value::Array(schemas)) => {
                    let choice = self.list(schemas, depth, open);
                    match choice {
                        // Of alternatives that accept more than they should, several match.
                        Some(choice) if self.loosened != before && !fields.contains_key("anyOf") => {
                            out.insert("anyOf".to_owned(), choice);
                            continue;
                        }
                        Some(_) if self.loosened != before => None,
                        choice => choice,
                    }
                }
                _ => continue,
            };
            if let Some(converted) = converted {
                self.charge(key.len());
                out.insert(key.clone(), converted);
            } else {
                self.loosened += 1;
            }
        }
        if self.loosened != loosened {
            // They speak of what the other keywords leave.
            for keyword in ["unevaluatedProperties", "unevaluatedItems"] {
                out.remove(keyword);
            }
            let count = |properties: Option<&Value>| {
                properties
                    .and_then(Value::as_object)
                    .map_or(0, |properties| properties.len())
            };
            let kept = count(out.get("properties")) + count(out.get("patternProperties"));
            let declared = count(fields.get("properties")) + count(fields.get("patternProperties"));
            if kept < declared {
                out.remove("additionalProperties");
            }
        }
        if !out.contains_key("if") {
            out.remove("then");
            out.remove("else");
        }
        self.exclusive_limits(fields, &mut out);
        if let (Some(Value::Object(declared)), Some(Value::Array(required))) =
            (fields.get("properties"), out.get_mut("required"))
        {
            required.retain(|name| {
                let property = name.as_str().and_then(|name| declared.get(name));
                !property.is_some_and(|schema| self.is_read_only(schema))
            });
        }
        if is_nullable(fields, self.version)
            && let Value::Object(accepting) = nullable(Value::Object(out.clone()))
        {
            out = accepting;
        }
        out
    }

    /// Version 2 and 3.0 write an exclusive limit as a mark beside the limit.
    fn exclusive_limits(&self, fields: &Map<String, Value>, out: &mut Map<String, Value>) {
        for (mark, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
            if fields.get(mark) == Some(&Value::Bool(true))
                && let Some(value) = out.remove(limit)
            {
                out.insert(mark.to_owned(), value);
            }
        }
    }

    fn schemas(
        &mut self,
        schemas: &'d Map<String, Value>,
        are_properties: bool,
        depth: usize,
        open: &mut Vec<&'d str>,
    ) -> Value {
        let mut out = Map::new();
        for (name, schema) in schemas {
            if !self.charge(name.len()) {
                break;
            }
            if are_properties && self.is_read_only(schema) {
                self.read_only.insert(name);
                continue;
            }
            let converted = self.schema(schema, depth + 1, open);
            out.insert(name.clone(), converted);
        }
        Value::Object(out)
    }

    fn list(&mut self, schemas: &'d [Value], depth: usize, open: &mut Vec<&'d str>) -> Option<Value> {
        let mut out = Vec::new();
        for schema in schemas {
            // What is left out of a choice must not make it narrower, so the whole choice goes.
            if self.used >= MAX_BYTES {
                return None;
            }
            out.push(self.schema(schema, depth + 1, open));
        }
        (!out.is_empty()).then_some(Value::Array(out))
    }

    fn names_of(&mut self, names: &[Value]) -> Option<Value> {
        let mut out: Vec<Value> = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            let Value::String(text) = name else {
                return None;
            };
            if !self.charge(text.len()) {
                return None;
            }
            if seen.insert(text) {
                out.push(name.clone());
            }
        }
        Some(Value::Array(out))
    }

    fn literal(&mut self, value: &Value, limit: usize) -> Option<Value> {
        let size = size_of(value, limit)?;
        self.charge(size).then(|| value.clone())
    }

    fn description(&mut self, fields: &Map<String, Value>) -> Option<Value> {
        let text = fields.get("description")?.as_str()?;
        let text: String = text.chars().take(DESCRIPTION_CHARACTERS).collect();
        (!text.is_empty() && self.charge(text.len())).then_some(Value::String(text))
    }

    /// Properties that only answers have are no arguments.
    fn is_read_only(&self, schema: &Value) -> bool {
        let marked = |schema: &Value| schema.get("readOnly") == Some(&Value::Bool(true));
        marked(schema)
            || schema
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| reference::target(self.document, reference))
                .is_some_and(marked)
    }

    /// A composed schema may require in one part what another part declares and only answers have.
    fn require_no_read_only(&self, schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                let own: BTreeSet<String> = fields
                    .get("properties")
                    .and_then(Value::as_object)
                    .map(|properties| properties.keys().cloned().collect())
                    .unwrap_or_default();
                if let Some(Value::Array(required)) = fields.get_mut("required") {
                    required.retain(|name| {
                        let name = name.as_str().unwrap_or_default();
                        own.contains(name) || !self.read_only.contains(name)
                    });
                }
                for (key, value) in fields.iter_mut() {
                    if !matches!(key.as_str(), "enum" | "const" | "default") {
                        self.require_no_read_only(value);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.require_no_read_only(item)),
            _ => {}
        }
    }

    /// Whether there was room for it.
    fn charge(&mut self, bytes: usize) -> bool {
        self.used = self.used.saturating_add(bytes);
        self.used < MAX_BYTES
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

fn describe(schema: &mut Value, description: Option<Value>) {
    if let (Value::Object(fields), Some(description)) = (schema, description) {
        fields.insert("description".to_owned(), description);
    }
}

fn is_nullable(fields: &Map<String, Value>, version: Version) -> bool {
    let mark = match version {
        Version::V2 => "x-nullable",
        Version::V30 => "nullable",
        Version::V31 => return false,
    };
    fields.get(mark) == Some(&Value::Bool(true))
}

/// `schema`, accepting null too.
fn nullable(schema: Value) -> Value {
    let Value::Object(mut fields) = schema else {
        return schema;
    };
    let single = fields.get("type").and_then(Value::as_str).map(str::to_owned);
    let composed = ["$ref", "allOf", "anyOf", "oneOf", "not", "const"]
        .iter()
        .any(|keyword| fields.contains_key(*keyword));
    if composed {
        let description = fields.remove("description");
        let mut either = json!({"anyOf": [Value::Object(fields), {"type": "null"}]});
        describe(&mut either, description);
        return either;
    }
    if let Some(kind) = single {
        fields.insert("type".to_owned(), json!([kind, "null"]));
    }
    if let Some(Value::Array(values)) = fields.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(fields)
}

/// The types of JSON among `value`. A file of version 2 is sent as text.
fn types(value: &Value) -> Option<Value> {
    let known = |name: &str| match name {
        "file" => Some("string"),
        "string" => Some("string"),
        "number" => Some("number"),
        "integer" => Some("integer"),
        "boolean" => Some("boolean"),
        "array" => Some("array"),
        "object" => Some("object"),
        "null" => Some("null"),
        _ => None,
    };
    match value {
        Value::String(name) => known(name).map(Value::from),
        Value::Array(names) => {
            let mut out: Vec<&str> = Vec::new();
            for name in names.iter().filter_map(Value::as_str).filter_map(known) {
                if !out.contains(&name) {
                    out.push(name);
                }
            }
            match out.as_slice() {
                [] => None,
                [only] => Some(json!(only)),
                several => Some(json!(several)),
            }
        }
        _ => None,
    }
}

/// About the bytes of `value` as text, or `None` when they are more than `limit`. The document's own
/// nesting is bounded by its parser.
fn size_of(value: &Value, limit: usize) -> Option<usize> {
    let mut size = match value {
        Value::String(text) => text.len() + 2,
        _ => 8,
    };
    let mut add = |part: usize| {
        size += part;
        (size <= limit).then_some(())
    };
    match value {
        Value::Array(items) => {
            for item in items {
                add(size_of(item, limit)?)?;
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                add(name.len() + size_of(field, limit)?)?;
            }
        }
        _ => add(0)?,
    }
    Some(size)
}
