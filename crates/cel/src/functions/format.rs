//! `"…".format([…])` as in the version of cel-go's string library that Kubernetes enables: `%s %d %f %e %b
//! %x %X %o %%`, precision as in `%.2f`. Parts of lists and maps print as CEL literals; fractions and
//! exponents print as for American English (`1,234.50`, `1.5 × 10⁰³`), which is that library's fixed locale.

use std::fmt::Write as _;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::text;
use crate::value::{Key, Value};

/// Digits after the point when a clause names none.
const DEFAULT_PRECISION: usize = 6;
/// Most digits after the point that a clause may ask for.
const MAX_PRECISION: usize = 1000;

type Formatted = Result<(), EvaluationError>;

pub(super) fn format(context: &mut Context<'_>, arguments: &[Value]) -> Result<Value, EvaluationError> {
    let [Value::String(template), Value::List(values)] = arguments else {
        return Err(EvaluationError::no_overload("format", arguments));
    };
    context.budget.work_text(template.len())?;
    let mut output = Output {
        context,
        text: String::new(),
    };
    let mut next = 0;
    let mut rest: &str = template;
    while let Some(start) = rest.find('%') {
        output.push(&rest[..start])?;
        rest = &rest[start + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            output.push("%")?;
            rest = after;
            continue;
        }
        let Some(value) = values.get(next) else {
            return Err(EvaluationError::argument(format!("index {next} out of range")));
        };
        next += 1;
        if rest.is_empty() {
            return Err(EvaluationError::argument("unexpected end of string"));
        }
        let (clause, after) = Clause::parse(rest).map_err(|reason| {
            EvaluationError::argument(format!("could not parse formatting clause: {reason}"))
        })?;
        rest = after;
        output.clause(&clause, value).map_err(|error| {
            if error.is_limit() {
                error
            } else {
                EvaluationError::argument(format!("error during formatting: {error}"))
            }
        })?;
    }
    output.push(rest)?;
    Ok(Value::from(output.text))
}

enum Clause {
    Text,
    Decimal,
    Fixed(usize),
    Scientific(usize),
    Binary,
    Octal,
    Hexadecimal { upper: bool },
}

impl Clause {
    /// Reads what follows a percent sign; also gives what is left.
    fn parse(rest: &str) -> Result<(Clause, &str), String> {
        let (precision, rest) = match rest.strip_prefix('.') {
            None => (DEFAULT_PRECISION, rest),
            Some(after) => {
                let length = after.bytes().take_while(u8::is_ascii_digit).count();
                if length == after.len() {
                    return Err(
                        "error while parsing precision: could not find end of precision specifier".to_owned(),
                    );
                }
                match after[..length].parse() {
                    Ok(precision) if precision <= MAX_PRECISION => (precision, &after[length..]),
                    _ => {
                        return Err(
                            "error while parsing precision: error while converting precision to integer"
                                .to_owned(),
                        );
                    }
                }
            }
        };
        let mut characters = rest.chars();
        let clause = match characters.next() {
            Some('s') => Clause::Text,
            Some('d') => Clause::Decimal,
            Some('f') => Clause::Fixed(precision),
            Some('e') => Clause::Scientific(precision),
            Some('b') => Clause::Binary,
            Some('o') => Clause::Octal,
            Some('x') => Clause::Hexadecimal { upper: false },
            Some('X') => Clause::Hexadecimal { upper: true },
            Some(other) => return Err(format!("unrecognized formatting clause \"{other}\"")),
            None => return Err("unexpected end of string".to_owned()),
        };
        Ok((clause, characters.as_str()))
    }
}

struct Output<'a, 'b> {
    context: &'a mut Context<'b>,
    text: String,
}

impl Output<'_, '_> {
    /// Values share their parts, so a small list can print as a huge text: each piece is charged.
    fn push(&mut self, piece: &str) -> Formatted {
        self.context.budget.work_text(piece.len())?;
        self.context.budget.allocate(piece.len())?;
        self.text.push_str(piece);
        Ok(())
    }

    fn clause(&mut self, clause: &Clause, value: &Value) -> Formatted {
        match clause {
            Clause::Text => self.plain(value),
            Clause::Decimal => match value {
                Value::Int(value) => self.push(&value.to_string()),
                Value::Uint(value) => self.push(&value.to_string()),
                other => wrong("decimal clause can only be used on integers", other),
            },
            Clause::Fixed(precision) => match fraction(value) {
                Some(number) => self.push(&fixed(number, *precision)),
                None => wrong("fixed-point clause can only be used on doubles", value),
            },
            Clause::Scientific(precision) => match fraction(value) {
                Some(number) => self.push(&scientific(number, *precision)),
                None => wrong("scientific clause can only be used on doubles", value),
            },
            Clause::Binary => match value {
                Value::Int(value) => self.push(&signed(*value, |value| format!("{value:b}"))),
                Value::Uint(value) => self.push(&format!("{value:b}")),
                Value::Bool(value) => self.push(if *value { "1" } else { "0" }),
                other => wrong("only integers and bools can be formatted as binary", other),
            },
            Clause::Octal => match value {
                Value::Int(value) => self.push(&signed(*value, |value| format!("{value:o}"))),
                Value::Uint(value) => self.push(&format!("{value:o}")),
                other => wrong("octal clause can only be used on integers", other),
            },
            Clause::Hexadecimal { upper } => self.hexadecimal(value, *upper),
        }
    }

    /// `%s` itself: texts without quotes.
    fn plain(&mut self, value: &Value) -> Formatted {
        match value {
            Value::String(value) => self.push(value),
            Value::Bytes(value) => match std::str::from_utf8(value) {
                Ok(text) => self.push(text),
                Err(_) => Err(EvaluationError::argument(
                    "could not convert argument to string: invalid UTF-8 in bytes",
                )),
            },
            Value::Double(value) => self.push(&text::double(*value)),
            Value::Timestamp(value) => self.push(&value.to_string()),
            Value::Duration(value) => self.push(&text::duration(*value)),
            other => self.literal(other),
        }
    }

    /// A part of a list or map: as it would stand in an expression.
    fn literal(&mut self, value: &Value) -> Formatted {
        match value {
            Value::Null => self.push("null"),
            Value::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Value::Int(value) => self.push(&value.to_string()),
            Value::Uint(value) => self.push(&value.to_string()),
            Value::Double(value) if value.is_finite() => self.push(&format!("{value:.DEFAULT_PRECISION$}")),
            Value::Double(value) => self.push(&format!("\"{}\"", text::double(*value))),
            Value::String(value) => self.quoted("", value),
            Value::Bytes(value) => self.quoted("b", &String::from_utf8_lossy(value)),
            Value::Timestamp(value) => self.push(&format!("timestamp(\"{value}\")")),
            Value::Duration(value) => self.push(&format!("duration(\"{}\")", text::duration(*value))),
            Value::Type(value) => self.push(value.name()),
            Value::List(items) => {
                self.push("[")?;
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        self.push(", ")?;
                    }
                    self.literal(item)?;
                }
                self.push("]")
            }
            Value::Map(map) => {
                self.push("{")?;
                for (index, (key, value)) in map.iter().enumerate() {
                    if index > 0 {
                        self.push(", ")?;
                    }
                    match key {
                        Key::String(key) => self.quoted("", key)?,
                        other => self.push(&other.to_string())?,
                    }
                    self.push(":")?;
                    self.literal(value)?;
                }
                self.push("}")
            }
            Value::Optional(_) | Value::Extension(_) => wrong(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, \
                 durations, and timestamps",
                value,
            ),
        }
    }

    fn quoted(&mut self, prefix: &str, text: &str) -> Formatted {
        self.push(prefix)?;
        self.context.budget.work_text(text.len())?;
        self.push(&super::strings::quoted(text))
    }

    fn hexadecimal(&mut self, value: &Value, upper: bool) -> Formatted {
        let digits = match value {
            Value::Int(value) => signed(*value, |value| format!("{value:x}")),
            Value::Uint(value) => format!("{value:x}"),
            Value::String(value) => self.hexadecimal_bytes(value.as_bytes())?,
            Value::Bytes(value) => self.hexadecimal_bytes(value)?,
            other => {
                return wrong(
                    "only integers, byte buffers, and strings can be formatted as hex",
                    other,
                );
            }
        };
        if upper {
            self.push(&digits.to_ascii_uppercase())
        } else {
            self.push(&digits)
        }
    }

    fn hexadecimal_bytes(&mut self, bytes: &[u8]) -> Result<String, EvaluationError> {
        self.context.budget.work_text(bytes.len())?;
        self.context.budget.allocate(bytes.len().saturating_mul(2))?;
        let mut digits = String::with_capacity(bytes.len() * 2);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(digits, "{byte:02x}");
        }
        Ok(digits)
    }
}

fn wrong(rule: &str, value: &Value) -> Formatted {
    Err(EvaluationError::argument(format!(
        "{rule}, was given {}",
        value.type_of().name()
    )))
}

/// The number of a clause for doubles; the three that have no literal may come as text.
fn fraction(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", digits(value.unsigned_abs()))
}

fn not_finite(number: f64) -> &'static str {
    if number.is_nan() {
        "NaN"
    } else if number > 0.0 {
        "∞"
    } else {
        "-∞"
    }
}

fn fixed(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return not_finite(number).to_owned();
    }
    let written = format!("{:.precision$}", number.abs());
    let (whole, fraction) = match written.split_once('.') {
        Some((whole, _)) => written.split_at(whole.len()),
        None => (written.as_str(), ""),
    };
    let mut grouped = String::new();
    if number.is_sign_negative() {
        grouped.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

fn scientific(number: f64, precision: usize) -> String {
    if !number.is_finite() {
        return not_finite(number).to_owned();
    }
    let written = format!("{number:.precision$e}");
    let (mantissa, exponent) = written.split_once('e').unwrap_or((&written, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised: String = format!("{exponent:0>2}")
        .bytes()
        .filter_map(|digit| {
            ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'].get(usize::from(digit.wrapping_sub(b'0')))
        })
        .collect();
    format!("{mantissa}\u{202f}×\u{202f}10{sign}{raised}")
}
