//! The arguments of a call: from the model's text to a checked object (OM-364).

use std::sync::OnceLock;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

// A schema is compiled once per tool; these bound what its patterns may cost then and in each call.
const PATTERN_SIZE: usize = 1024 * 1024;
const BACKTRACK_LIMIT: usize = 100_000;
const SCHEMA_BYTES: usize = 256 * 1024;

// What the model needs to correct itself; a long list of consequences does not help it.
const MAX_VIOLATIONS: usize = 10;
const MAX_VIOLATION_BYTES: usize = 200;

/// The arguments as a value. No text means none (D11). Text that is not JSON stays text, which the
/// check then refuses, so that one place words the refusal.
pub fn parse(text: &str) -> Value {
    let text = text.trim();
    if text.is_empty() || text == "null" {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Checks the arguments of one tool.
#[derive(Debug)]
pub struct ArgumentCheck {
    rules: Rules,
}

#[derive(Debug)]
enum Rules {
    /// The registry has no schema, and everything is passed on.
    None,
    Compiled(Box<Validator>),
    /// Compiled by the first call: a described service has many operations, of which few are called.
    Deferred {
        schema: Value,
        compiled: OnceLock<Result<Box<Validator>, String>>,
    },
}

impl ArgumentCheck {
    /// Compiles the author's schema. References to other documents are refused: they would be
    /// fetched.
    ///
    /// # Errors
    /// What is wrong with the schema.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        if schema.is_null() {
            return Ok(Self { rules: Rules::None });
        }
        Ok(Self {
            rules: Rules::Compiled(Box::new(compiled(schema)?)),
        })
    }

    /// Keeps the schema and compiles it when the first call is checked. A pattern that cannot be used
    /// here is left out then: it comes from a service's description, which its user cannot change, and
    /// the service checks it anyway.
    pub(crate) fn deferred(schema: Value) -> Self {
        Self {
            rules: Rules::Deferred {
                schema,
                compiled: OnceLock::new(),
            },
        }
    }

    /// The arguments as an object that matches the schema.
    ///
    /// # Errors
    /// A text for the model that names each violation and where it is.
    pub fn check<'a>(&self, arguments: &'a Value) -> Result<&'a Map<String, Value>, String> {
        let Value::Object(object) = arguments else {
            return Err("the arguments are not a JSON object".to_owned());
        };
        self.check_value(arguments)?;
        Ok(object)
    }

    /// As [`ArgumentCheck::check`], for a value of any kind.
    pub(crate) fn check_value(&self, arguments: &Value) -> Result<(), String> {
        let validator = match &self.rules {
            Rules::None => return Ok(()),
            Rules::Compiled(validator) => validator,
            Rules::Deferred { schema, compiled } => compiled
                .get_or_init(|| compile_described(schema).map(Box::new))
                .as_ref()
                .map_err(|problem| format!("the tool's schema cannot be used: {problem}"))?,
        };
        let mut violations: Vec<String> = Vec::new();
        let mut errors = validator.iter_errors(arguments);
        for error in errors.by_ref().take(MAX_VIOLATIONS) {
            let place = error.instance_path().to_string();
            let text = mainstay_telemetry::text::escape(&error.to_string(), MAX_VIOLATION_BYTES);
            violations.push(if place.is_empty() {
                text
            } else {
                format!("{place}: {text}")
            });
        }
        if violations.is_empty() {
            return Ok(());
        }
        if errors.next().is_some() {
            violations.push("…".to_owned());
        }
        Err(format!(
            "the arguments do not match the tool's schema: {}",
            violations.join("; ")
        ))
    }
}

fn compiled(schema: &Value) -> Result<Validator, String> {
    let size = schema.to_string().len();
    if size > SCHEMA_BYTES {
        return Err(format!("it is larger than {SCHEMA_BYTES} bytes"));
    }
    match build(schema) {
        // A dialect of the author's own says nothing that is needed here; without its name the
        // schema is read as the newest published one.
        Err(_) if schema.get("$schema").is_some() => {
            let mut schema = schema.clone();
            if let Value::Object(schema) = &mut schema {
                schema.remove("$schema");
            }
            build(&schema)
        }
        built => built,
    }
}

fn compile_described(schema: &Value) -> Result<Validator, String> {
    compiled(schema).or_else(|problem| {
        tracing::debug!(problem, "a schema is used without its patterns");
        let mut schema = schema.clone();
        remove_patterns(&mut schema);
        compiled(&schema)
    })
}

fn remove_patterns(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // A property that is called `pattern` has a schema, not a text.
            if fields.get("pattern").is_some_and(Value::is_string) {
                fields.remove("pattern");
            }
            if fields.remove("patternProperties").is_some() {
                // It would refuse what the patterns accept.
                fields.remove("additionalProperties");
            }
            fields.values_mut().for_each(remove_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_patterns),
        _ => {}
    }
}

fn build(schema: &Value) -> Result<Validator, String> {
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(BACKTRACK_LIMIT)
        .size_limit(PATTERN_SIZE)
        .dfa_size_limit(PATTERN_SIZE);
    jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        .build(schema)
        .map_err(|error| mainstay_telemetry::text::escape(&error.to_string(), MAX_VIOLATION_BYTES))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn empty_and_null_arguments_are_an_empty_object_d11() {
        for text in ["", "  ", "null", "{}"] {
            assert_eq!(parse(text), json!({}), "{text:?}");
        }
        assert_eq!(parse("{\"a\": 1}"), json!({"a": 1}));
    }

    #[test]
    fn arguments_that_are_no_object_are_refused_om_364() {
        let check = ArgumentCheck::compile(&Value::Null).unwrap();
        for text in ["[1]", "\"x\"", "5", "{\"a\": "] {
            assert_eq!(
                check.check(&parse(text)).unwrap_err(),
                "the arguments are not a JSON object",
                "{text}"
            );
        }
    }

    #[test]
    fn each_violation_is_named_with_its_place_om_364() {
        let schema = json!({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "integer", "minimum": 1}}});
        let check = ArgumentCheck::compile(&schema).unwrap();
        let error = check.check(&json!({"n": 0})).unwrap_err();
        assert!(error.contains("/n: 0 is less than the minimum of 1"), "{error}");
        assert!(error.contains("\"id\" is a required property"), "{error}");
        assert!(check.check(&json!({"id": "7"})).is_ok());
    }

    #[test]
    fn a_described_schema_is_compiled_by_its_first_call_and_loses_only_unusable_patterns() {
        let check = ArgumentCheck::deferred(
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(unclosed"}, "pattern": {"type": "integer"}}}),
        );
        assert!(check.check(&json!({"a": "x", "pattern": 1})).is_ok());
        assert!(check.check(&json!({"a": 1})).is_err());
        assert!(check.check(&json!({"pattern": "x"})).is_err());
        let broken = ArgumentCheck::deferred(json!({"type": "objekt"}));
        let error = broken.check(&json!({})).unwrap_err();
        assert!(error.starts_with("the tool's schema cannot be used: "), "{error}");
    }

    #[test]
    fn without_a_schema_everything_is_passed_on_om_364() {
        let check = ArgumentCheck::compile(&Value::Null).unwrap();
        assert!(check.check(&json!({"anything": [1, 2]})).is_ok());
    }

    #[test]
    fn arguments_are_checked_against_the_authors_odd_schema_d4() {
        let schema = json!({"type": ["object", "null"], "properties": {"any": true, "list": {"type": "array"}}, "$schema": "http://json-schema.org/draft-07/schema#"});
        let check = ArgumentCheck::compile(&schema).unwrap();
        assert!(check.check(&json!({"any": null, "list": [1, "a"]})).is_ok());
        assert!(check.check(&json!({"list": "a"})).is_err());
    }

    #[test]
    fn every_spelling_of_a_dialect_and_unknown_words_are_taken_d4() {
        for schema in [
            json!({"$schema": "http://json-schema.org/draft-07/schema"}),
            json!({"$schema": "https://json-schema.org/draft-07/schema#"}),
            json!({"$schema": "http://json-schema.org/schema#"}),
            json!({"$schema": "https://example.com/own-dialect"}),
            json!({"$schema": 5}),
            json!({"properties": {"n": {"type": "integer", "format": "int32", "nullable": true, "x-order": 1}}}),
        ] {
            let check = ArgumentCheck::compile(&schema).unwrap();
            assert!(check.check(&json!({"n": 1})).is_ok(), "{schema}");
        }
    }

    #[test]
    fn a_schema_that_does_not_compile_or_reaches_out_is_refused() {
        for schema in [
            json!({"type": "objekt"}),
            json!({"properties": {"a": {"pattern": "("}}}),
            json!({"$ref": "http://127.0.0.1:1/schema.json"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"properties": {"a": {"pattern": "(((a{1000}){1000}){1000})"}}}),
        ] {
            assert!(ArgumentCheck::compile(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_hostile_value_cannot_make_a_pattern_run_away() {
        let check =
            ArgumentCheck::compile(&json!({"properties": {"a": {"pattern": "^(?=(a+)+$)(a+)+$"}}})).unwrap();
        let hostile = format!("{}!", "a".repeat(5_000));
        assert!(check.check(&json!({"a": hostile})).is_err());
    }

    #[test]
    fn a_long_list_of_violations_is_cut() {
        let schema = json!({"additionalProperties": {"type": "string"}});
        let check = ArgumentCheck::compile(&schema).unwrap();
        let arguments: Map<String, Value> =
            (0..50).map(|index| (format!("p{index}"), json!(index))).collect();
        let error = check.check(&Value::Object(arguments)).unwrap_err();
        assert!(error.ends_with("; …"), "{error}");
        assert!(error.len() < 3_000);
    }
}
