//! Label selectors: `app=web,tier in (a,b),!legacy,weight>3`.

use memchr::memmem::Finder;
use serde_json::{Map, Value};

use crate::field::{FieldError, FieldPath};
use crate::names;
use crate::status::{ApiError, ApiResult, Reason};

/// What the values of a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    /// `=`, `==` and `in`.
    In,
    /// `!=` and `notin`; also true of an object without the label.
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

impl LabelSelector {
    /// Reads a selector.
    ///
    /// # Errors
    /// 400 with the text of the reference.
    pub fn parse(text: &str) -> ApiResult<Self> {
        Parser {
            tokens: scan(text),
            position: 0,
        }
        .parse()
        .map_err(|message| ApiError::new(Reason::BadRequest, message))
    }

    /// Whether an object with these labels is meant.
    pub fn matches(&self, labels: &Map<String, Value>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels))
    }

    /// Whether every object is meant.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What stored objects that are meant have in their text: of each list at least one.
    pub(crate) fn traces(&self) -> Vec<Vec<Finder<'static>>> {
        let required = self
            .requirements
            .iter()
            .filter(|requirement| requirement.operator == Operator::In);
        required
            .map(|requirement| requirement.values.iter().map(|value| trace(value)).collect())
            .collect()
    }
}

/// A label's value as JSON has it.
fn trace(value: &str) -> Finder<'static> {
    Finder::new(Value::from(value).to_string().as_bytes()).into_owned()
}

impl Requirement {
    fn matches(&self, labels: &Map<String, Value>) -> bool {
        let value = labels.get(&self.key).and_then(Value::as_str);
        let listed = |value: &str| self.values.iter().any(|wanted| wanted == value);
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => value.is_none_or(|value| !listed(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < bound),
        }
    }
}

/// The text of a `LabelSelector` object (`matchLabels`, `matchExpressions`), as `kubectl get -o wide` shows it;
/// `None` when it is malformed. An object without requirements is the empty text, a missing one selects nothing and
/// has no text either.
pub fn format_label_selector(selector: &Value) -> Option<String> {
    let mut terms: Vec<(String, String)> = Vec::new();
    for (key, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        terms.push((key.clone(), format!("{key}={}", value.as_str()?)));
    }
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = expression.get("key")?.as_str()?;
        let mut values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let values = values.join(",");
        let text = match expression.get("operator")?.as_str()? {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        };
        terms.push((key.to_owned(), text));
    }
    terms.sort();
    Some(
        terms
            .into_iter()
            .map(|(_, text)| text)
            .collect::<Vec<_>>()
            .join(","),
    )
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    End,
    Identifier(String),
    /// A symbol or keyword, as written.
    Symbol(&'static str),
    /// Characters of operators that are none; its text says so.
    Error(String),
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Self::End => "",
            Self::Identifier(text) | Self::Error(text) => text,
            Self::Symbol(text) => text,
        }
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self, Self::Symbol(own) if *own == symbol)
    }

    /// Where values are expected, `in` and `notin` are values.
    fn as_value(&self) -> Self {
        match self {
            Self::Symbol(word @ ("in" | "notin")) => Self::Identifier((*word).to_owned()),
            other => other.clone(),
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ">", "<", ",", "(", ")"];

/// The operators in the order the reference lists them in its error.
const OPERATORS: &str = "in, notin, =, ==, !=, gt, lt";

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn scan(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while let Some(first) = rest.chars().next() {
        if is_symbol(first) {
            match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => {
                    tokens.push(Token::Symbol(symbol));
                    rest = &rest[symbol.len()..];
                }
                None => {
                    tokens.push(Token::Error(format!("error expected: keyword found '{first}'")));
                    rest = &rest[first.len_utf8()..];
                }
            }
        } else {
            let end = rest
                .find(|character| is_symbol(character) || is_blank(character))
                .unwrap_or(rest.len());
            let word = &rest[..end];
            tokens.push(match word {
                "in" => Token::Symbol("in"),
                "notin" => Token::Symbol("notin"),
                word => Token::Identifier(word.to_owned()),
            });
            rest = &rest[end..];
        }
        rest = rest.trim_start_matches(is_blank);
    }
    tokens.push(Token::End);
    tokens
}

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).unwrap_or(&Token::End).as_value()
    }

    fn take_operator(&mut self) -> Token {
        let token = self.tokens.get(self.position).cloned().unwrap_or(Token::End);
        self.position += 1;
        token
    }

    fn take(&mut self) -> Token {
        self.take_operator().as_value()
    }

    fn parse(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => return Ok(LabelSelector { requirements }),
                token if starts_requirement(&token) => {
                    requirements.push(
                        self.requirement()
                            .map_err(|error| format!("unable to parse requirement: {error}"))?,
                    );
                    match self.take() {
                        Token::End => return Ok(LabelSelector { requirements }),
                        token if token.is(",") => {
                            let following = self.peek();
                            if !starts_requirement(&following) {
                                return Err(format!(
                                    "found '{}', expected: identifier after ','",
                                    following.literal()
                                ));
                            }
                        }
                        token => {
                            return Err(format!(
                                "found '{}', expected: ',' or 'end of string'",
                                token.literal()
                            ));
                        }
                    }
                }
                token => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        token.literal()
                    ));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut token = self.take();
        let negated = token.is("!");
        if negated {
            token = self.take();
        }
        let Token::Identifier(key) = token else {
            return Err(format!("found '{}', expected: identifier", token.literal()));
        };
        let problems = check_key(&key);
        if !problems.is_empty() {
            return Err(invalid(&FieldPath::root(), &key, &problems));
        }
        if negated {
            return Ok(Requirement {
                key,
                operator: Operator::DoesNotExist,
                values: Vec::new(),
            });
        }
        let following = self.peek();
        if following == Token::End || following.is(",") {
            return Ok(Requirement {
                key,
                operator: Operator::Exists,
                values: Vec::new(),
            });
        }
        let token = self.take_operator();
        let mut faults = Vec::new();
        let (operator, mut values) = match token.literal() {
            "in" => (Operator::In, self.values()?),
            "notin" => (Operator::NotIn, self.values()?),
            "=" | "==" => (Operator::In, vec![self.exact_value()?]),
            "!=" => (Operator::NotIn, vec![self.exact_value()?]),
            sign @ (">" | "<") => {
                let value = self.exact_value()?;
                let bound = value.parse::<i64>().unwrap_or_else(|_| {
                    let problem = "for 'Gt', 'Lt' operators, the value must be an integer".to_owned();
                    faults.push(invalid(&FieldPath::of("values").index(0), &value, &[problem]));
                    0
                });
                let operator = if sign == ">" {
                    Operator::GreaterThan(bound)
                } else {
                    Operator::LessThan(bound)
                };
                (operator, vec![value])
            }
            other => return Err(format!("found '{other}', expected: {OPERATORS}")),
        };
        values.sort();
        values.dedup();
        for (position, value) in values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                let path = FieldPath::of("values").index(position).key(&key);
                faults.push(invalid(&path, value, &problems));
            }
        }
        match faults.as_slice() {
            [] => Ok(Requirement {
                key,
                operator,
                values,
            }),
            [only] => Err(only.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// `(a,b)`; an empty place between commas is the empty value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.take();
        if !open.is("(") {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        let mut values = Vec::new();
        loop {
            match self.take() {
                Token::Identifier(value) => {
                    values.push(value);
                    match self.take() {
                        token if token.is(")") => return Ok(values),
                        token if token.is(",") => {
                            if self.peek().is(")") {
                                values.push(String::new());
                                self.position += 1;
                                return Ok(values);
                            }
                        }
                        token => return Err(format!("found '{}', expected: ',' or ')'", token.literal())),
                    }
                }
                token if token.is(",") => {
                    values.push(String::new());
                    if self.peek().is(")") {
                        self.position += 1;
                        return Ok(values);
                    }
                }
                token if token.is(")") && values.is_empty() => return Ok(vec![String::new()]),
                token => {
                    return Err(format!(
                        "found '{}', expected: ',', ')' or identifier",
                        token.literal()
                    ));
                }
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::Identifier(value) => {
                self.position += 1;
                Ok(value)
            }
            token if token == Token::End || token.is(",") => Ok(String::new()),
            token => Err(format!("found '{}', expected: identifier", token.literal())),
        }
    }
}

/// What is wrong with the key of a label.
fn check_key(key: &str) -> Vec<String> {
    if key.matches('/').count() > 1 {
        return vec![
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
             an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
             'example.com/MyName')"
                .to_owned(),
        ];
    }
    names::qualified_name(key)
}

fn starts_requirement(token: &Token) -> bool {
    matches!(token, Token::Identifier(_)) || token.is("!")
}

fn invalid(path: &FieldPath, value: &str, problems: &[String]) -> String {
    FieldError::invalid(path, Value::String(value.to_owned()), problems.join("; ")).to_string()
}
