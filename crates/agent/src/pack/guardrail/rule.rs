//! The single rules as pure functions of a text.

use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::super::variable::compile;

/// Names a pack may use; several rules have two.
pub(super) const KNOWN: &[&str] = &[
    "banned_words",
    "content_excludes",
    "max_length",
    "length",
    "min_length",
    "regex",
    "contains",
    "contains_any",
    "sentence_count",
    "max_sentences",
    "required_fields",
    "field_presence",
    "json_schema",
];

/// A compiled rule.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    Excludes {
        expression: Regex,
    },
    MaxLength {
        characters: Option<usize>,
        tokens: Option<usize>,
    },
    MinLength {
        characters: Option<usize>,
        tokens: Option<usize>,
    },
    Matches {
        expression: Regex,
        wanted: bool,
    },
    ContainsAll {
        words: Vec<String>,
    },
    ContainsAny {
        words: Vec<String>,
    },
    Sentences {
        most: usize,
    },
    Fields {
        names: Vec<String>,
    },
    Schema {
        validator: Arc<jsonschema::Validator>,
        author: Arc<Value>,
    },
}

/// How a text breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) reason: String,
    /// The longest beginning of the text that keeps the rule; `None` for content rules.
    pub(super) shortened: Option<String>,
}

impl Rule {
    /// `None` for an unknown type; the inner error says what is wrong with the parameters.
    pub(super) fn compile(kind: &str, params: &Map<String, Value>) -> Option<Result<Self, String>> {
        Some(match kind {
            "banned_words" => excludes(params, true),
            "content_excludes" => excludes(params, false),
            "max_length" | "length" => limits(params, &["max_characters", "max_length", "max", "limit"])
                .map(|(characters, tokens)| Rule::MaxLength { characters, tokens }),
            "min_length" => limits(params, &["min_characters", "min_length", "min", "limit"])
                .map(|(characters, tokens)| Rule::MinLength { characters, tokens }),
            "regex" => matches(params),
            "contains" => words(params).map(|words| Rule::ContainsAll { words }),
            "contains_any" => words(params).map(|words| Rule::ContainsAny { words }),
            "sentence_count" | "max_sentences" => number(params, &["max_sentences", "max", "limit"])
                .and_then(|most| most.ok_or_else(|| "needs `max_sentences`".to_owned()))
                .map(|most| Rule::Sentences { most }),
            "required_fields" | "field_presence" => {
                list(params, &["fields", "required_fields"]).map(|names| Rule::Fields { names })
            }
            "json_schema" => schema(params),
            _ => return None,
        })
    }

    /// The schema that a text has to conform to.
    pub(super) fn schema(&self) -> Option<&Arc<Value>> {
        match self {
            Rule::Schema { author, .. } => Some(author),
            _ => None,
        }
    }

    pub(super) fn is_length(&self) -> bool {
        matches!(self, Rule::MaxLength { .. } | Rule::Sentences { .. })
    }

    /// `None` when the text keeps the rule.
    pub(super) fn broken_by(&self, text: &str) -> Option<Broken> {
        let content = |reason: String| {
            Some(Broken {
                reason,
                shortened: None,
            })
        };
        match self {
            Rule::Excludes { expression } => match expression.is_match(text) {
                true => content("contains an excluded word".to_owned()),
                false => None,
            },
            Rule::MaxLength { characters, tokens } => {
                let end = [
                    characters.map(|most| at_character(text, most)),
                    tokens.map(|most| at_token(text, most)),
                ]
                .into_iter()
                .flatten()
                .min()
                .filter(|end| *end < text.len())?;
                Some(Broken {
                    reason: "is too long".to_owned(),
                    shortened: Some(text[..end].to_owned()),
                })
            }
            Rule::MinLength { characters, tokens } => {
                let short = characters.is_some_and(|least| text.chars().count() < least)
                    || tokens.is_some_and(|least| estimate_tokens(text) < least);
                if short {
                    content("is too short".to_owned())
                } else {
                    None
                }
            }
            Rule::Matches { expression, wanted } => match expression.is_match(text) == *wanted {
                true => None,
                false if *wanted => content("does not match the pattern".to_owned()),
                false => content("matches a forbidden pattern".to_owned()),
            },
            Rule::ContainsAll { words } => {
                let lower = text.to_lowercase();
                let missing = words.iter().filter(|word| !lower.contains(word.as_str())).count();
                if missing == 0 {
                    None
                } else {
                    content(format!("lacks {missing} of {} texts", words.len()))
                }
            }
            Rule::ContainsAny { words } => {
                let lower = text.to_lowercase();
                match words.iter().any(|word| lower.contains(word.as_str())) {
                    true => None,
                    false => content(format!("has none of {} texts", words.len())),
                }
            }
            Rule::Sentences { most } => {
                let end = end_of_sentence(text, *most)?;
                Some(Broken {
                    reason: format!("has more than {most} sentences"),
                    shortened: Some(text[..end].to_owned()),
                })
            }
            Rule::Fields { names } => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(object)) => {
                    let missing: Vec<&str> = names
                        .iter()
                        .map(String::as_str)
                        .filter(|name| !object.contains_key(*name))
                        .collect();
                    if missing.is_empty() {
                        None
                    } else {
                        content(format!("lacks {}", missing.join(", ")))
                    }
                }
                _ => content("is not a JSON object".to_owned()),
            },
            Rule::Schema { validator, .. } => match serde_json::from_str::<Value>(text) {
                Ok(value) => match validator.validate(&value) {
                    Ok(()) => None,
                    Err(error) => content(format!("does not fit the schema at `{}`", error.instance_path())),
                },
                Err(_) => content("is not JSON".to_owned()),
            },
        }
    }
}

/// The estimate used wherever a text is measured without a provider's tokenizer: a quarter of its bytes,
/// rounded up (OR-260).
fn estimate_tokens(text: &str) -> usize {
    text.len().div_ceil(4)
}

fn at_character(text: &str, most: usize) -> usize {
    text.char_indices().nth(most).map_or(text.len(), |(at, _)| at)
}

fn at_token(text: &str, most: usize) -> usize {
    text.floor_char_boundary(most.saturating_mul(4))
}

/// The byte after sentence number `most`, if another sentence follows it. A sentence ends at `.`, `!` or `?`
/// before white space; `3.14` is not an end.
fn end_of_sentence(text: &str, most: usize) -> Option<usize> {
    let mut count = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let ends = matches!(character, '.' | '!' | '?')
            && characters.peek().is_some_and(|(_, next)| next.is_whitespace());
        if ends {
            count += 1;
            let end = at + character.len_utf8();
            if count == most {
                return (!text[end..].trim().is_empty()).then_some(end);
            }
        }
    }
    None
}

fn excludes(params: &Map<String, Value>, by_default: bool) -> Result<Rule, String> {
    let words = list(params, &["words", "patterns", "banned_words"])?;
    let whole_words = match (
        params.get("word_boundary"),
        params.get("match_mode").and_then(Value::as_str),
    ) {
        (Some(Value::Bool(whole)), _) => *whole,
        (Some(_), _) => return Err("has a `word_boundary` that is not a boolean".to_owned()),
        (None, Some("word_boundary")) => true,
        (None, Some("substring")) => false,
        (None, Some(other)) => return Err(format!("has the unknown match_mode `{other}`")),
        (None, None) => by_default,
    };
    let edge = if whole_words { r"\b" } else { "" };
    let alternatives: Vec<String> = words
        .iter()
        .map(|word| format!("{edge}{}{edge}", regex::escape(word)))
        .collect();
    RegexBuilder::new(&alternatives.join("|"))
        .case_insensitive(true)
        .size_limit(8 << 20)
        .build()
        .map(|expression| Rule::Excludes { expression })
        .map_err(|_| "has more words than can be compiled".to_owned())
}

fn matches(params: &Map<String, Value>) -> Result<Rule, String> {
    let pattern = params
        .get("pattern")
        .and_then(Value::as_str)
        .ok_or("needs `pattern`")?;
    let forbidden = params.get("must_match") == Some(&Value::Bool(false))
        || params.get("negate") == Some(&Value::Bool(true));
    let expression = compile(pattern).map_err(|reason| format!("has a broken pattern: {reason}"))?;
    Ok(Rule::Matches {
        expression,
        wanted: !forbidden,
    })
}

fn schema(params: &Map<String, Value>) -> Result<Rule, String> {
    let schema = params.get("schema").ok_or("needs `schema`")?;
    jsonschema::validator_for(schema)
        .map(|validator| Rule::Schema {
            validator: Arc::new(validator),
            author: Arc::new(schema.clone()),
        })
        .map_err(|error| format!("has a broken schema: {}", error.masked()))
}

fn words(params: &Map<String, Value>) -> Result<Vec<String>, String> {
    let words = list(params, &["patterns", "words", "values", "text"])?;
    Ok(words.into_iter().map(|word| word.to_lowercase()).collect())
}

fn limits(params: &Map<String, Value>, names: &[&str]) -> Result<(Option<usize>, Option<usize>), String> {
    let characters = number(params, names)?;
    let tokens = number(params, &["max_tokens", "min_tokens"])?;
    match (characters, tokens) {
        (None, None) => Err(format!("needs `{}` or a number of tokens", names[0])),
        both => Ok(both),
    }
}

fn number(params: &Map<String, Value>, names: &[&str]) -> Result<Option<usize>, String> {
    let Some((name, value)) = names.iter().find_map(|name| Some((name, params.get(*name)?))) else {
        return Ok(None);
    };
    value
        .as_u64()
        .and_then(|number| usize::try_from(number).ok())
        .filter(|number| *number > 0)
        .map(Some)
        .ok_or_else(|| format!("has a `{name}` that is not a positive whole number"))
}

fn list(params: &Map<String, Value>, names: &[&str]) -> Result<Vec<String>, String> {
    let needs = || format!("needs `{}`, a list of texts that is not empty", names[0]);
    let value = names
        .iter()
        .find_map(|name| params.get(*name))
        .ok_or_else(needs)?;
    let listed: Option<Vec<String>> = match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(values) => values
            .iter()
            .map(|value| value.as_str().map(str::to_owned))
            .collect(),
        _ => None,
    };
    listed
        .filter(|list| !list.is_empty() && list.iter().all(|text| !text.is_empty()))
        .ok_or_else(needs)
}
