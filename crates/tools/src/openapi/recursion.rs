//! Definitions that a validator can follow to an end (D1).
//!
//! A cycle through a property, an item or a map's value is fine: each round consumes a level of the
//! arguments. One through `allOf`, `oneOf` or a bare reference is not, for nothing is consumed and a
//! validator never returns. Neither is a ladder of definitions each of which refers twice to the next:
//! it ends, after a time that doubles with each rung. Such references are cut to `{}`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// References that one level of the arguments may lead through, one after the other.
const MAX_CHAIN: usize = 12;

/// Schemas that one level of the arguments may be checked against.
const MAX_WEIGHT: usize = 4_096;

const PREFIX: &str = "#/$defs/";

/// What following a definition's references in place costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    chain: usize,
    weight: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Open,
    Known(Cost),
}

/// Cuts the references that do not end.
pub(super) fn cut(definitions: &mut Map<String, Value>) {
    let names: Vec<String> = definitions.keys().cloned().collect();
    let mut states = BTreeMap::new();
    for name in names {
        visit(&name, definitions, &mut states);
    }
}

// The depth of the recursion is bounded by the number of definitions, which is small.
fn visit(name: &str, definitions: &mut Map<String, Value>, states: &mut BTreeMap<String, State>) -> Cost {
    states.insert(name.to_owned(), State::Open);
    let mut cost = Cost { chain: 1, weight: 1 };
    // Taken out, so that the other definitions can be changed meanwhile.
    let mut schema = definitions.get_mut(name).map(Value::take).unwrap_or_default();
    in_place(&mut schema, &mut |target| {
        let known = match states.get(target) {
            Some(State::Known(known)) => *known,
            // A circle, or no definition of ours.
            Some(State::Open) => return false,
            None if definitions.contains_key(target) => visit(target, definitions, states),
            None => return false,
        };
        let weight = cost.weight.saturating_add(known.weight);
        if known.chain >= MAX_CHAIN || weight > MAX_WEIGHT {
            return false;
        }
        cost.chain = cost.chain.max(known.chain + 1);
        cost.weight = weight;
        true
    });
    definitions.insert(name.to_owned(), schema);
    states.insert(name.to_owned(), State::Known(cost));
    cost
}

/// Calls `keep` for each reference that is checked against the same value as `schema` itself, and
/// removes those it does not keep.
fn in_place(schema: &mut Value, keep: &mut dyn FnMut(&str) -> bool) {
    let Value::Object(fields) = schema else {
        return;
    };
    let kept = match fields.get("$ref") {
        Some(Value::String(reference)) => reference.strip_prefix(PREFIX).is_some_and(&mut *keep),
        _ => true,
    };
    if !kept {
        fields.remove("$ref");
    }
    for (keyword, value) in fields.iter_mut() {
        match (keyword.as_str(), value) {
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => {
                schemas.iter_mut().for_each(|schema| in_place(schema, keep));
            }
            ("not" | "if" | "then" | "else", schema) => in_place(schema, keep),
            ("dependentSchemas", Value::Object(schemas)) => {
                schemas.values_mut().for_each(|schema| in_place(schema, keep));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    fn cut(definitions: Value) -> Value {
        let Value::Object(mut definitions) = definitions else {
            panic!("definitions are an object");
        };
        super::cut(&mut definitions);
        Value::Object(definitions)
    }

    #[test]
    fn a_cycle_that_consumes_the_arguments_is_kept_d1() {
        let definitions = json!({
            "Node": {"properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}},
            "Tree": {"additionalProperties": {"$ref": "#/$defs/Tree"}},
        });
        assert_eq!(cut(definitions.clone()), definitions);
    }

    #[test]
    fn a_cycle_that_consumes_nothing_is_cut_d1() {
        for (definitions, expected) in [
            (json!({"A": {"$ref": "#/$defs/A"}}), json!({"A": {}})),
            (
                json!({"A": {"allOf": [{"$ref": "#/$defs/A"}, {"type": "object"}]}}),
                json!({"A": {"allOf": [{}, {"type": "object"}]}}),
            ),
            (
                json!({"A": {"oneOf": [{"$ref": "#/$defs/B"}]}, "B": {"not": {"$ref": "#/$defs/A"}}}),
                json!({"A": {"oneOf": [{"$ref": "#/$defs/B"}]}, "B": {"not": {}}}),
            ),
        ] {
            assert_eq!(cut(definitions), expected);
        }
    }

    #[test]
    fn a_ladder_whose_cost_doubles_is_cut_d1() {
        let mut definitions = Map::new();
        for rung in 0..40 {
            let next = json!({"$ref": format!("#/$defs/D{}", rung + 1)});
            definitions.insert(format!("D{rung}"), json!({"anyOf": [next, next]}));
        }
        definitions.insert("D40".to_owned(), json!({"type": "string"}));
        super::cut(&mut definitions);
        let text = Value::Object(definitions).to_string();
        assert!(text.contains("{\"anyOf\":[{},{}]}"), "no rung was cut: {text}");
    }
}
