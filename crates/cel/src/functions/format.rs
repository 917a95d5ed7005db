//! `"…".format([…])` as cel-go: `%s %d %f %e %b %x %X %o %%`, precision as in `%.2f`.

use std::fmt::Write as _;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::text;
use crate::value::Value;

/// Digits after the point when a clause names none.
const DEFAULT_PRECISION: usize = 6;
/// Most digits after the point that a clause may ask for.
const MAX_PRECISION: usize = 1000;

pub(super) fn format(context: &mut Context<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    let [Value::String(template), Value::List(values)] = arguments else {
        return Err(EvaluationError::no_overload("format", arguments));
    };
    context.budget.charge_text(template.len())?;
    let mut output = Output {
        context,
        text: String::new(),
    };
    let mut values = values.iter().enumerate();
    let mut rest: &str = template;
    while let Some(start) = rest.find('%') {
        output.push(&rest[..start])?;
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            output.push("%")?;
            rest = after;
            continue;
        }
        let precision;
        (precision, rest) = precision_of(rest)?;
        let Some(verb) = rest.chars().next() else {
            return Err(EvaluationError::argument(
                "could not parse formatting clause: unexpected end of string",
            ));
        };
        rest = &rest[verb.len_utf8()..];
        if !"sdfebxXo".contains(verb) {
            return Err(EvaluationError::argument(format!(
                "could not parse formatting clause: unrecognized formatting clause \"{verb}\""
            )));
        }
        let Some((index, value)) = values.next() else {
            return Err(EvaluationError::argument(
                "index out of range for format arguments",
            ));
        };
        let result = match verb {
            's' => output.value(value),
            'd' => output.decimal(value),
            'f' => output.fixed(value, precision),
            'e' => output.scientific(value, precision),
            'b' => output.binary(value),
            'x' => output.hexadecimal(value, false),
            'X' => output.hexadecimal(value, true),
            _ => output.octal(value),
        };
        result.map_err(|error| {
            if error.is_limit() {
                error
            } else {
                EvaluationError::argument(format!("error during formatting of argument {index}: {error}"))
            }
        })?;
    }
    output.push(rest)?;
    Ok(Value::from(output.text))
}

fn precision_of(rest: &str) -> Result<(usize, &str), EvaluationError> {
    let Some(after) = rest.strip_prefix('.') else {
        return Ok((DEFAULT_PRECISION, rest));
    };
    let length = after.bytes().take_while(u8::is_ascii_digit).count();
    match after[..length].parse() {
        Ok(precision) if precision <= MAX_PRECISION => Ok((precision, &after[length..])),
        _ => Err(EvaluationError::argument(
            "could not parse formatting clause: invalid precision",
        )),
    }
}

struct Output<'a, 'b> {
    context: &'a mut Context<'b>,
    text: String,
}

impl Output<'_, '_> {
    /// Values share their parts, so a small list can print as a huge text: each piece is charged.
    fn push(&mut self, piece: &str) -> Result<(), EvaluationError> {
        self.context.budget.charge_text(piece.len())?;
        self.context.budget.allocate(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    fn wrong(clause: &str, value: &Value) -> Result<(), EvaluationError> {
        Err(EvaluationError::argument(format!(
            "{clause} clause cannot be used on {}",
            value.type_of().name()
        )))
    }

    fn value(&mut self, value: &Value) -> Result<(), EvaluationError> {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Uint(value) => self.push(&value.to_string()),
            Value::Double(value) => self.push(&double(*value)),
            Value::String(value) => self.push(value),
            Value::Bytes(value) => self.push(&String::from_utf8_lossy(value)),
            Value::Timestamp(value) => self.push(&value.to_string()),
            Value::Duration(value) => self.push(&text::duration(*value)),
            Value::Type(value) => self.push(value.name()),
            Value::List(items) => {
                self.push("[")?;
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.push(", ")?;
                    }
                    self.value(item)?;
                }
                self.push("]")
            }
            Value::Map(map) => {
                self.push("{")?;
                for (index, (key, value)) in map.iter().enumerate() {
                    if index > 0 {
                        self.push(", ")?;
                    }
                    self.push(&key.to_string())?;
                    self.push(": ")?;
                    self.value(value)?;
                }
                self.push("}")
            }
            Value::Optional(_) => Err(EvaluationError::argument(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps, was given optional_type",
            )),
        }
    }

    fn decimal(&mut self, value: &Value) -> Result<(), EvaluationError> {
        match value {
            Value::Int(value) => self.push(&value.to_string()),
            Value::Uint(value) => self.push(&value.to_string()),
            Value::Double(value) if !value.is_finite() => self.push(&double(*value)),
            other => Self::wrong("decimal", other),
        }
    }

    fn number(value: &Value, clause: &str) -> Result<f64, EvaluationError> {
        match value {
            Value::Double(value) => Ok(*value),
            Value::Int(value) => Ok(*value as f64),
            Value::Uint(value) => Ok(*value as f64),
            other => match Self::wrong(clause, other) {
                Ok(()) => Ok(0.0),
                Err(error) => Err(error),
            },
        }
    }

    fn fixed(&mut self, value: &Value, precision: usize) -> Result<(), EvaluationError> {
        let number = Self::number(value, "fixed-point")?;
        if number.is_finite() {
            self.push(&format!("{number:.precision$}"))
        } else {
            self.push(&double(number))
        }
    }

    fn scientific(&mut self, value: &Value, precision: usize) -> Result<(), EvaluationError> {
        let number = Self::number(value, "scientific")?;
        if !number.is_finite() {
            return self.push(&double(number));
        }
        let written = format!("{number:.precision$e}");
        let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        self.push(&format!("{mantissa}e{sign}{exponent:0>2}"))
    }

    fn binary(&mut self, value: &Value) -> Result<(), EvaluationError> {
        match value {
            Value::Int(value) => self.push(&signed(*value, |value| format!("{value:b}"))),
            Value::Uint(value) => self.push(&format!("{value:b}")),
            Value::Bool(value) => self.push(if *value { "1" } else { "0" }),
            other => Self::wrong("binary", other),
        }
    }

    fn octal(&mut self, value: &Value) -> Result<(), EvaluationError> {
        match value {
            Value::Int(value) => self.push(&signed(*value, |value| format!("{value:o}"))),
            Value::Uint(value) => self.push(&format!("{value:o}")),
            other => Self::wrong("octal", other),
        }
    }

    fn hexadecimal(&mut self, value: &Value, upper: bool) -> Result<(), EvaluationError> {
        let digits = match value {
            Value::Int(value) => signed(*value, |value| format!("{value:x}")),
            Value::Uint(value) => format!("{value:x}"),
            Value::String(value) => self.hexadecimal_bytes(value.as_bytes())?,
            Value::Bytes(value) => self.hexadecimal_bytes(value)?,
            other => return Self::wrong("hex", other),
        };
        if upper {
            self.push(&digits.to_ascii_uppercase())
        } else {
            self.push(&digits)
        }
    }

    fn hexadecimal_bytes(&mut self, bytes: &[u8]) -> Result<String, EvaluationError> {
        self.context.budget.charge_text(bytes.len())?;
        self.context.budget.allocate(bytes.len().saturating_mul(2))?;
        let mut digits = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(digits, "{byte:02x}");
        }
        Ok(digits)
    }
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn double(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned()
    } else {
        text::double(value)
    }
}
