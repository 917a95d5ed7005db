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

mod keyword;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value, json};

use self::keyword::{describe, is_empty, is_nullable, nullable, size_of, types};
use super::{document::Version, recursion, reference};

/// How deep one schema may be nested before it is cut.
const MAX_DEPTH: usize = 32;

/// How deep a reference is still written out.
const INLINE_DEPTH: usize = 12;

/// How many references within references are written out.
const INLINE_REFERENCES: usize = 16;

/// Bytes of one operation's schemas up to which they are written in full.
pub(super) const FULL_BYTES: usize = 32 * 1024;

/// Bytes of one operation's schemas.
const MAX_BYTES: usize = 128 * 1024;

/// Local definitions of one operation.
const MAX_DEFINITIONS: usize = 128;

// What a node costs besides its texts.
const NODE_BYTES: usize = 16;

const FULL_DESCRIPTION: usize = 1_000;
const COMPACT_DESCRIPTION: usize = 80;
const DEFAULT_BYTES: usize = 1_024;

/// How much is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// References are written out where that is cheap.
    Full,
    /// Every reference becomes a definition and descriptions are cut: for operations whose schemas would
    /// fill a model's context.
    Compact,
}

/// Converts the schemas of one operation.
pub(super) struct Converter<'d> {
    document: &'d Value,
    version: Version,
    detail: Detail,
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
    pub(super) fn new(document: &'d Value, version: Version, detail: Detail) -> Self {
        Self {
            document,
            version,
            detail,
            used: 0,
            names: BTreeMap::new(),
            pending: VecDeque::new(),
            read_only: BTreeSet::new(),
            loosened: 0,
        }
    }

    /// `text` as far as a description may go.
    pub(super) fn shortened(&self, text: &str) -> String {
        let limit = match self.detail {
            Detail::Full => FULL_DESCRIPTION,
            Detail::Compact => COMPACT_DESCRIPTION,
        };
        match text.char_indices().nth(limit) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text.to_owned(),
        }
    }

    /// `schema`; its `#/$defs/…` are given by [`Converter::finish`].
    pub(super) fn convert(&mut self, schema: &'d Value) -> Value {
        self.schema(schema, 0, &mut Vec::new())
    }

    /// The schema that is spread over the fields of a version 2 parameter.
    pub(super) fn convert_parameter(&mut self, fields: &'d Map<String, Value>) -> Value {
        Value::Object(self.object(fields, 0, &mut Vec::new()))
    }

    /// The definitions, and about the bytes of everything. `roots` are the schemas that were converted;
    /// they are completed.
    pub(super) fn finish(mut self, roots: &mut [&mut Value]) -> (Map<String, Value>, usize) {
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
        (definitions, self.used)
    }

    fn schema(&mut self, schema: &'d Value, depth: usize, open: &mut Vec<&'d str>) -> Value {
        if depth >= MAX_DEPTH || !self.charge(NODE_BYTES) {
            return self.anything();
        }
        let fields = match schema {
            Value::Bool(accepts) => return Value::Bool(*accepts),
            Value::Object(fields) => fields,
            _ => return self.anything(),
        };
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
                let write_out = self.detail == Detail::Full
                    && !open.contains(&reference)
                    && !self.names.contains_key(reference)
                    && depth < INLINE_DEPTH
                    && open.len() < INLINE_REFERENCES
                    && self.used < FULL_BYTES;
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
                ("type", _) => {
                    self.charge(value.as_array().map_or(1, Vec::len));
                    types(value)
                }
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
                // Charged all the same: a schema is visited once for each reference to it.
                _ => {
                    self.charge(1);
                    continue;
                }
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
            if !self.charge(text.len() + 1) {
                return None;
            }
            if seen.insert(text) {
                out.push(name.clone());
            }
        }
        Some(Value::Array(out))
    }

    fn literal(&mut self, value: &Value, limit: usize) -> Option<Value> {
        let Some(size) = size_of(value, limit) else {
            // Finding out took its time.
            self.charge(limit / 8);
            return None;
        };
        self.charge(size).then(|| value.clone())
    }

    fn description(&mut self, fields: &Map<String, Value>) -> Option<Value> {
        let text = fields.get("description")?.as_str()?;
        let text = self.shortened(text);
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
