//! The text of an argument in a URL, a query or a header (OM-384).
//!
//! It follows Go's `%v`, which the platform's own tools were written against, except that a null
//! argument is left out and a number is never written with an exponent (DD-9).

use serde_json::{Number, Value};

/// The text of `value`, or `None` for null.
pub(crate) fn text_form(value: &Value) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut out = String::new();
    write(value, &mut out);
    Some(out)
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                write(item, out);
            }
            out.push(']');
        }
        // `serde_json`'s map is sorted by key, as `%v` prints it.
        Value::Object(fields) => {
            out.push_str("map[");
            for (index, (name, field)) in fields.iter().enumerate() {
                if index > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write(field, out);
            }
            out.push(']');
        }
    }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        // Rust writes a double in full, without an exponent and without a superfluous `.0`.
        Some(double) if number.is_f64() => double.to_string(),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_value_has_its_text_om_384() {
        for (text, expected) in [
            ("\"a b\"", "a b"),
            ("\"\"", ""),
            ("true", "true"),
            ("7", "7"),
            ("-12", "-12"),
            ("1000000", "1000000"),
            ("1e6", "1000000"),
            ("18446744073709551615", "18446744073709551615"),
            ("12.50", "12.5"),
            ("1e21", "1000000000000000000000"),
            ("[\"a\", \"b\"]", "[a b]"),
            ("[]", "[]"),
            ("[1, null, [2]]", "[1 <nil> [2]]"),
            ("{\"b\": 1, \"a\": {\"c\": false}}", "map[a:map[c:false] b:1]"),
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(text_form(&value).unwrap(), expected, "{text}");
        }
        assert_eq!(text_form(&json!(null)), None);
    }
}
