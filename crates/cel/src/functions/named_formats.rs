//! Formats of texts by name: `format.dns1123Label().validate(text)` tells what is wrong with a text.

use base64::Engine as _;
use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use crate::error::EvaluationError;
use crate::evaluate::Context;
use crate::value::{Extension, Timestamp, Url, Value};

type Evaluated = Result<Value, EvaluationError>;

/// A format of texts.
pub struct NamedFormat {
    /// The name in `format.named`.
    name: &'static str,
    /// Length of the pattern that the cost of a check is reckoned with.
    pub(crate) pattern_length: u64,
    check: fn(&str) -> Vec<String>,
}

impl fmt::Debug for NamedFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("NamedFormat").field(&self.name).finish()
    }
}

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

const fn named(name: &'static str, pattern_length: u64, check: fn(&str) -> Vec<String>) -> NamedFormat {
    NamedFormat {
        name,
        pattern_length,
        check,
    }
}

/// Length of the pattern of a moment that the reference reckons with.
const TIME_LENGTH: u64 = 135;

static FORMATS: [NamedFormat; 13] = [
    named("dns1123Label", 30, |text| label(text, false)),
    named("dns1123Subdomain", 60, |text| subdomain(text, false)),
    named("dns1035Label", 30, |text| label_1035(text, false)),
    named("qualifiedName", 60, qualified_name),
    named("dns1123LabelPrefix", 30, |text| label(text, true)),
    named("dns1123SubdomainPrefix", 60, |text| subdomain(text, true)),
    named("dns1035LabelPrefix", 30, |text| label_1035(text, true)),
    named("labelValue", 40, label_value),
    named("uri", 1103, |text| Url::parse(text).err().into_iter().collect()),
    named("uuid", 69, |text| {
        said(is_uuid(text), "does not match the UUID format")
    }),
    named("byte", 84, |text| said(is_base64(text), "invalid base64")),
    named("date", TIME_LENGTH, |text| said(is_date(text), "invalid date")),
    named("datetime", TIME_LENGTH, |text| {
        said(
            Timestamp::parse(&text.to_ascii_uppercase()).is_some(),
            "invalid datetime",
        )
    }),
];

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const QUALIFIED: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn said(holds: bool, otherwise: &str) -> Vec<String> {
    if holds {
        Vec::new()
    } else {
        vec![otherwise.to_owned()]
    }
}

/// A prefix may end with a dash: a character stands for what follows.
fn completed(text: &str, prefix: bool) -> String {
    match text.strip_suffix('-') {
        Some(stem) if prefix && !stem.is_empty() => format!("{stem}a"),
        _ => text.to_owned(),
    }
}

fn is_label(text: &str) -> bool {
    let outer =
        |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    outer(text.bytes().next())
        && outer(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn limited(text: &str, most: usize, unit: &str) -> Vec<String> {
    if text.len() > most {
        vec![format!("must be no more than {most} {unit}")]
    } else {
        Vec::new()
    }
}

pub(super) fn label(text: &str, prefix: bool) -> Vec<String> {
    let text = completed(text, prefix);
    let mut faults = limited(&text, 63, "characters");
    if !is_label(&text) {
        faults.push(if text.contains('.') && text.split('.').all(is_label) {
            "must not contain dots".to_owned()
        } else {
            LABEL.to_owned()
        });
    }
    faults
}

pub(super) fn subdomain(text: &str, prefix: bool) -> Vec<String> {
    let text = completed(text, prefix);
    let mut faults = limited(&text, 253, "characters");
    if !text.split('.').all(is_label) {
        faults.push(SUBDOMAIN.to_owned());
    }
    faults
}

fn label_1035(text: &str, prefix: bool) -> Vec<String> {
    let text = completed(text, prefix);
    let mut faults = limited(&text, 63, "characters");
    if !is_label(&text) || !text.starts_with(|first: char| first.is_ascii_lowercase()) {
        faults.push(LABEL_1035.to_owned());
    }
    faults
}

fn is_name(text: &str) -> bool {
    let outer = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    outer(text.bytes().next())
        && outer(text.bytes().last())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn qualified_name(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split('/').collect();
    let mut faults = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                let found = subdomain(prefix, false);
                faults.extend(found.into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => return vec![QUALIFIED.to_owned()],
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else {
        let found = limited(name, 63, "bytes");
        faults.extend(found.into_iter().map(|fault| format!("name part {fault}")));
    }
    if !is_name(name) {
        faults.push(NAME_PART.to_owned());
    }
    faults
}

fn label_value(text: &str) -> Vec<String> {
    let mut faults = limited(text, 63, "bytes");
    if !text.is_empty() && !is_name(text) {
        faults.push(LABEL_VALUE.to_owned());
    }
    faults
}

fn is_uuid(text: &str) -> bool {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").ok()
    });
    PATTERN.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

fn is_base64(text: &str) -> bool {
    // Go's decoder skips line ends.
    let compact: String = text
        .chars()
        .filter(|character| !matches!(character, '\r' | '\n'))
        .collect();
    base64::engine::general_purpose::STANDARD.decode(compact).is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn find(name: &str) -> Option<&'static NamedFormat> {
    FORMATS.iter().find(|format| format.name == name)
}

/// `format.named(name)`
pub(super) fn by_name(_: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    match arguments {
        [Value::String(name)] => Ok(find(name).map_or_else(Value::none, |format| {
            Value::some(Value::extension(Extension::Format(format)))
        })),
        _ => Err(EvaluationError::no_overload("format.named", arguments)),
    }
}

macro_rules! constants {
    ($($function:ident = $name:literal),* $(,)?) => {
        $(
            pub(super) fn $function(context: &mut Context<'_>, _: &[Value]) -> Evaluated {
                match by_name(context, &[Value::from($name)])? {
                    Value::Optional(Some(format)) => Ok(Value::clone(&format)),
                    other => Ok(other),
                }
            }
        )*
    };
}

constants! {
    dns1123_label = "dns1123Label",
    dns1123_subdomain = "dns1123Subdomain",
    dns1035_label = "dns1035Label",
    qualified = "qualifiedName",
    dns1123_label_prefix = "dns1123LabelPrefix",
    dns1123_subdomain_prefix = "dns1123SubdomainPrefix",
    dns1035_label_prefix = "dns1035LabelPrefix",
    value_of_label = "labelValue",
    uri = "uri",
    uuid = "uuid",
    byte = "byte",
    date = "date",
    datetime = "datetime",
}

/// `FORMAT.validate(text)`: what is wrong with the text, nothing if nothing is.
pub(super) fn validate(context: &mut Context<'_>, arguments: &[Value]) -> Evaluated {
    if let [Value::Extension(extension), Value::String(text)] = arguments
        && let Extension::Format(format) = &**extension
    {
        context.budget.work_text(text.len())?;
        context.budget.allocate(text.len())?;
        let faults = (format.check)(text);
        if faults.is_empty() {
            return Ok(Value::none());
        }
        return Ok(Value::some(Value::list(
            faults.into_iter().map(Value::from).collect(),
        )));
    }
    Err(EvaluationError::no_overload("validate", arguments))
}
