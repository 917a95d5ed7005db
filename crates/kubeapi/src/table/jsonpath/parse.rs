//! The parser.

use serde_json::{Value, json};

use super::{Operator, ParseError, Step};

/// Parses what stands between braces.
pub(super) fn action(text: &str) -> Result<Vec<Step>, ParseError> {
    Parser { rest: text }.action()
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn action(mut self) -> Result<Vec<Step>, ParseError> {
        let mut steps = Vec::new();
        while let Some(first) = self.rest.chars().next() {
            if self.eat("[?(") {
                steps.push(self.filter()?);
            } else if self.eat("..") {
                if steps.last() == Some(&Step::Recursive) {
                    return Err(ParseError::Recursive);
                }
                steps.push(Step::Recursive);
                if self
                    .rest
                    .starts_with(|next: char| next == '_' || next.is_alphanumeric())
                {
                    steps.push(self.field());
                }
            } else if matches!(first, ' ' | '@' | '$') {
                self.skip(first);
            } else if first == '[' {
                self.skip(first);
                self.array(&mut steps)?;
            } else if matches!(first, '"' | '\'') {
                self.skip(first);
                steps.push(Step::Literal(Value::String(self.quoted(first)?)));
            } else if first == '.' {
                self.skip(first);
                steps.push(self.field());
            } else if matches!(first, '+' | '-') || first.is_ascii_digit() {
                steps.push(self.number()?);
            } else if first == '_' || first.is_alphanumeric() {
                steps.push(self.identifier()?);
            } else if matches!(first, '\r' | '\n') {
                return Err(ParseError::UnclosedAction);
            } else {
                return Err(ParseError::Character(first));
            }
        }
        Ok(steps)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip(&mut self, character: char) {
        self.rest = &self.rest[character.len_utf8()..];
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// A field name; a backslash makes the next character part of it.
    fn field(&mut self) -> Step {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((position, character)) = characters.next() {
            if character == '\\' {
                name.extend(characters.next().map(|(_, escaped)| escaped));
            } else if is_terminator(character) {
                end = position;
                break;
            } else {
                name.push(character);
            }
        }
        self.take(end);
        if name == "*" {
            Step::Wildcard
        } else {
            Step::Field(name)
        }
    }

    fn identifier(&mut self) -> Result<Step, ParseError> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(end) {
            "true" => Ok(Step::Literal(Value::Bool(true))),
            "false" => Ok(Step::Literal(Value::Bool(false))),
            other => Err(ParseError::Identifier(other.to_owned())),
        }
    }

    fn number(&mut self) -> Result<Step, ParseError> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = self.rest[sign..]
            .find(|character: char| character != '.' && !character.is_ascii_digit())
            .map_or(self.rest.len(), |end| end + sign);
        let text = self.take(digits);
        if let Ok(integer) = text.parse::<i64>() {
            return Ok(Step::Literal(json!(integer)));
        }
        match text.parse::<f64>() {
            Ok(float) => Ok(Step::Literal(json!(float))),
            Err(_) => Err(ParseError::Number(text.to_owned())),
        }
    }

    /// A text up to the closing quote, with the escapes of Go.
    fn quoted(&mut self, quote: char) -> Result<String, ParseError> {
        let mut text = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((position, character)) = characters.next() {
            match character {
                '\n' => break,
                '\\' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, 'r')) => text.push('\r'),
                    Some((_, escaped @ ('\\' | '\'' | '"'))) => text.push(escaped),
                    _ => break,
                },
                _ if character == quote => {
                    self.take(position + quote.len_utf8());
                    return Ok(text);
                }
                other => text.push(other),
            }
        }
        Err(ParseError::UnterminatedText)
    }

    fn array(&mut self, steps: &mut Vec<Step>) -> Result<(), ParseError> {
        let end = self.rest.find([']', '\n']).ok_or(ParseError::UnterminatedArray)?;
        let text = self.take(end);
        if !self.eat("]") {
            return Err(ParseError::UnterminatedArray);
        }
        if text.contains(',') {
            let parts = text
                .split(',')
                .map(|part| action(&format!("[{}]", part.trim_matches(' '))))
                .collect::<Result<Vec<_>, _>>()?;
            steps.push(Step::Union(parts));
            return Ok(());
        }
        let quoted = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
        if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
            // Dots in a quoted key separate, as they do on the reference, unless they are escaped.
            steps.extend(action(&format!(".{name}"))?);
            return Ok(());
        }
        steps.push(range(text)?);
        Ok(())
    }

    fn filter(&mut self) -> Result<Step, ParseError> {
        let end = filter_end(self.rest).ok_or(ParseError::UnterminatedFilter)?;
        let text = self.take(end);
        self.skip(')');
        if !self.eat("]") {
            return Err(ParseError::UnclosedFilter);
        }
        let is_operator = |character: char| matches!(character, '!' | '<' | '>' | '=');
        let Some(start) = text.find(is_operator).filter(|start| *start > 0) else {
            return Ok(Step::Filter {
                left: action(text)?,
                comparison: None,
            });
        };
        let (left, rest) = text.split_at(start);
        let length = rest
            .find(|character| !is_operator(character))
            .unwrap_or(rest.len());
        let (operator, right) = rest.split_at(length);
        if right.is_empty() {
            return Ok(Step::Filter {
                left: action(text)?,
                comparison: None,
            });
        }
        let operator = match operator {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            other => return Err(ParseError::Operator(other.to_owned())),
        };
        Ok(Step::Filter {
            left: action(left)?,
            comparison: Some((operator, action(right)?)),
        })
    }
}

/// Where the parenthesis of a filter closes: not inside a quoted text.
fn filter_end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (position, character) in text.char_indices() {
        match (quote, character) {
            (_, '\n') => return None,
            (Some(open), _) if character == open && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, ')') => return Some(position),
            _ => {}
        }
        escaped = character == '\\' && !escaped;
    }
    None
}

/// `3`, `-1`, `1:3`, `::2`, `*`.
fn range(text: &str) -> Result<Step, ParseError> {
    if text == "*" {
        return Ok(Step::Range {
            start: None,
            end: None,
            step: None,
            single: false,
        });
    }
    let refuse = || ParseError::Index(text.to_owned());
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > 3 {
        return Err(refuse());
    }
    let bound = |position: usize| match parts.get(position).copied() {
        None | Some("") => Ok(None),
        Some(number) if number.starts_with('+') => Err(refuse()),
        Some(number) => number.parse::<i64>().map(Some).map_err(|_| refuse()),
    };
    let single = parts.len() == 1;
    let start = bound(0)?;
    if single && start.is_none() {
        return Err(refuse());
    }
    Ok(Step::Range {
        start,
        end: bound(1)?,
        step: bound(2)?,
        single,
    })
}

fn is_terminator(character: char) -> bool {
    matches!(
        character,
        ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}'
    )
}
