//! What is wrong with a source that does not parse, in the words of the reference's parser, which users of Kubernetes
//! know and search for. Of tokens in wrong places the first is told; the reference goes on and may tell more.
//!
//! Nothing is built here: the tokens are walked once, with the grammar's own look-ahead of one token.

use crate::error::CompileError;

/// Nesting that is walked; deeper sources were refused before.
const DEPTH: usize = 400;

/// Most mistakes that are told.
const TOLD: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    End,
    /// An operator, a bracket or a keyword, by its text.
    Sign,
    Identifier,
    EscapedIdentifier,
    Literal,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
    offset: usize,
}

/// The tokens that can begin an expression, in the grammar's order; what else is possible stands between them.
const ORDER: [&str; 25] = [
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
];
const STARTS: [&str; 15] = [
    "'['",
    "'{'",
    "'('",
    "'.'",
    "'-'",
    "'!'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
];

/// The mistakes in the form of a source: everything that cannot be read, and the first thing that cannot stand where it
/// stands. Empty when its form is right.
pub(crate) fn diagnose(source: &str) -> Vec<CompileError> {
    let mut mistakes = Vec::new();
    let tokens = tokens(source, &mut mistakes);
    let mut walker = Walker {
        tokens: &tokens,
        at: 0,
        depth: 0,
    };
    mistakes.extend(walker.whole().err());
    mistakes.sort_by_key(|(offset, _)| *offset);
    mistakes
        .into_iter()
        .map(|(offset, message)| CompileError::at(source, offset, format!("Syntax error: {message}")))
        .collect()
}

type Tokens<'a> = Vec<Token<'a>>;
type Mistake = (usize, String);

/// The tokens; what cannot be read is told and left out.
fn tokens<'a>(source: &'a str, mistakes: &mut Vec<Mistake>) -> Tokens<'a> {
    let mut tokens = Vec::new();
    let mut offset = 0;
    while let Some(first) = source[offset..].chars().next() {
        let rest = &source[offset..];
        if mistakes.len() >= TOLD {
            break;
        }
        if first.is_ascii_whitespace() {
            offset += 1;
            continue;
        }
        if rest.starts_with("//") {
            offset += rest.find('\n').unwrap_or(rest.len());
            continue;
        }
        offset += match token(rest) {
            Ok((kind, length)) => {
                tokens.push(Token {
                    kind,
                    text: &rest[..length],
                    offset,
                });
                length
            }
            Err(length) => {
                let text = &rest[..length];
                mistakes.push((offset, format!("token recognition error at: '{text}'")));
                length
            }
        };
    }
    end(source, &mut tokens);
    tokens
}

fn end<'a>(source: &str, tokens: &mut Tokens<'a>) {
    tokens.push(Token {
        kind: Kind::End,
        text: "<EOF>",
        offset: source.len(),
    });
}

/// The kind and length of the token at the start; an error gives the length of what is no token.
fn token(rest: &str) -> Result<(Kind, usize), usize> {
    for sign in [
        "==", "!=", "<=", ">=", "&&", "||", "<", ">", "[", "]", "{", "}", "(", ")", ",", "-", "!", "?", ":",
        "+", "*", "/", "%",
    ] {
        if rest.starts_with(sign) {
            return Ok((Kind::Sign, sign.len()));
        }
    }
    let first = rest.chars().next().unwrap_or_default();
    let with_next = || first.len_utf8() + rest.chars().nth(1).map_or(0, char::len_utf8);
    match first {
        '=' | '&' | '|' => Err(with_next()),
        '"' | '\'' => quoted(rest, 0, false),
        '`' => match rest[1..].find('`') {
            Some(length) => Ok((Kind::EscapedIdentifier, length + 2)),
            None => Err(rest.len()),
        },
        '0'..='9' => Ok((Kind::Literal, number(rest))),
        '.' if rest[1..].starts_with(|next: char| next.is_ascii_digit()) => Ok((Kind::Literal, number(rest))),
        '.' => Ok((Kind::Sign, 1)),
        'a'..='z' | 'A'..='Z' | '_' => word(rest),
        other => Err(other.len_utf8()),
    }
}

fn number(rest: &str) -> usize {
    let mut length = 0;
    let mut before = ' ';
    for character in rest.chars() {
        let goes_on = character.is_ascii_alphanumeric()
            || character == '.'
            || (matches!(character, '+' | '-') && matches!(before, 'e' | 'E'));
        if !goes_on {
            break;
        }
        length += character.len_utf8();
        before = character;
    }
    length
}

fn word(rest: &str) -> Result<(Kind, usize), usize> {
    let length = rest
        .find(|character: char| !character.is_ascii_alphanumeric() && character != '_')
        .unwrap_or(rest.len());
    let is_prefix = length <= 2 && rest[length..].starts_with(['"', '\'']);
    let prefix = rest[..length].to_ascii_lowercase();
    if is_prefix && matches!(prefix.as_str(), "r" | "b" | "br" | "rb") {
        return quoted(rest, length, prefix.contains('r'));
    }
    let kind = match &rest[..length] {
        "true" | "false" | "null" => Kind::Literal,
        "in" => Kind::Sign,
        _ => Kind::Identifier,
    };
    Ok((kind, length))
}

/// A text in quotes that begins at `start`.
fn quoted(rest: &str, start: usize, raw: bool) -> Result<(Kind, usize), usize> {
    let body = &rest[start..];
    let quote = &body[..1];
    let triple = quote.repeat(3);
    let (closing, is_long) = if body.starts_with(&triple) {
        (triple.as_str(), true)
    } else {
        (quote, false)
    };
    let mut at = start + closing.len();
    loop {
        let behind = &rest[at..];
        if behind.starts_with(closing) {
            return Ok((Kind::Literal, at + closing.len()));
        }
        let Some(character) = behind.chars().next() else {
            return Err(rest.len());
        };
        at += character.len_utf8();
        if !is_long && matches!(character, '\n' | '\r') {
            return Err(at);
        }
        if character == '\\' && !raw {
            let Some(escaped) = rest[at..].chars().next() else {
                return Err(rest.len());
            };
            at += escaped.len_utf8();
            if !"abfnrtv\"'\\?`xXuU0123".contains(escaped) {
                return Err(at);
            }
        }
    }
}

struct Walker<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    depth: usize,
}

impl<'a> Walker<'a> {
    fn token(&self) -> Token<'a> {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token<'a> {
        self.tokens
            .get(self.at + count)
            .or(self.tokens.last())
            .copied()
            .unwrap_or(Token {
                kind: Kind::End,
                text: "<EOF>",
                offset: 0,
            })
    }

    fn next(&mut self) {
        self.at += 1;
    }

    fn is(&self, sign: &str) -> bool {
        let token = self.token();
        token.kind == Kind::Sign && token.text == sign
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is = self.is(sign);
        if is {
            self.next();
        }
        is
    }

    fn whole(&mut self) -> Result<(), Mistake> {
        self.expression(&[])?;
        let token = self.token();
        if token.kind == Kind::End {
            return Ok(());
        }
        let is_alone = self.ahead(1).kind == Kind::End;
        let how = if is_alone { "extraneous" } else { "mismatched" };
        Err((
            token.offset,
            format!("{how} input '{}' expecting <EOF>", token.text),
        ))
    }

    fn starts(token: Token<'_>) -> bool {
        match token.kind {
            Kind::Literal | Kind::Identifier => true,
            Kind::Sign => matches!(token.text, "[" | "{" | "(" | "." | "-" | "!"),
            _ => false,
        }
    }

    /// Nothing that can begin an expression; `also` is what else could stand here.
    fn no_start(&self, also: &[&str]) -> Mistake {
        let token = self.token();
        let expected: Vec<&str> = ORDER
            .into_iter()
            .filter(|name| STARTS.contains(name) || also.contains(name))
            .collect();
        let next = self.ahead(1);
        let is_expected = Self::starts(next)
            || also
                .iter()
                .any(|name| next.kind == Kind::Sign && name.trim_matches('\'') == next.text);
        let how = if is_expected && token.kind != Kind::End {
            "extraneous"
        } else {
            "mismatched"
        };
        (
            token.offset,
            format!(
                "{how} input '{}' expecting {{{}}}",
                token.text,
                expected.join(", ")
            ),
        )
    }

    /// The sign that has to stand here; `follows` tells whether a token can stand behind it.
    fn demand(&mut self, sign: &str, follows: impl Fn(Token<'_>) -> bool) -> Result<(), Mistake> {
        if self.takes(sign) {
            return Ok(());
        }
        let token = self.token();
        let next = self.ahead(1);
        let message = if next.kind == Kind::Sign && next.text == sign {
            format!("extraneous input '{}' expecting '{sign}'", token.text)
        } else if follows(token) {
            format!("missing '{sign}' at '{}'", token.text)
        } else {
            format!("mismatched input '{}' expecting '{sign}'", token.text)
        };
        Err((token.offset, message))
    }

    fn expression(&mut self, also: &[&str]) -> Result<(), Mistake> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err((
                self.token().offset,
                "expression recursion limit exceeded".to_owned(),
            ));
        }
        self.operands(also)?;
        if self.takes("?") {
            self.operands(&[])?;
            self.demand(":", Self::starts)?;
            self.expression(&[])?;
        }
        self.depth -= 1;
        Ok(())
    }

    /// Operands with operators between them, whatever binds how.
    fn operands(&mut self, also: &[&str]) -> Result<(), Mistake> {
        self.unary(also)?;
        loop {
            let token = self.token();
            let is_operator = token.kind == Kind::Sign
                && matches!(
                    token.text,
                    "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "&&" | "||" | "+" | "-" | "*" | "/" | "%"
                );
            if !is_operator {
                return Ok(());
            }
            self.next();
            self.unary(&[])?;
        }
    }

    fn unary(&mut self, also: &[&str]) -> Result<(), Mistake> {
        let sign = ["!", "-"].into_iter().find(|sign| self.is(sign));
        if let Some(sign) = sign {
            while self.takes(sign) {}
            if !Self::starts(self.token()) {
                return Err(self.no_start(&[]));
            }
        }
        self.primary(also)?;
        loop {
            if self.is(".") {
                let dot = self.token();
                self.next();
                self.takes("?");
                let name = self.token();
                if !matches!(name.kind, Kind::Identifier | Kind::EscapedIdentifier) {
                    return Err(no_name(dot, name));
                }
                self.next();
                if self.takes("(") {
                    self.arguments()?;
                }
            } else if self.takes("[") {
                self.takes("?");
                self.expression(&[])?;
                self.demand("]", follows_operand)?;
            } else {
                return Ok(());
            }
        }
    }

    fn primary(&mut self, also: &[&str]) -> Result<(), Mistake> {
        let token = self.token();
        if !Self::starts(token) {
            return Err(self.no_start(also));
        }
        self.next();
        match token.text {
            "(" if token.kind == Kind::Sign => {
                self.expression(&[])?;
                self.demand(")", follows_operand)
            }
            "[" if token.kind == Kind::Sign => self.items("]", "']'", false),
            "{" if token.kind == Kind::Sign => self.items("}", "'}'", true),
            "." if token.kind == Kind::Sign => {
                let name = self.token();
                if name.kind != Kind::Identifier {
                    return Err(no_name(token, name));
                }
                self.next();
                self.called()
            }
            _ if token.kind == Kind::Identifier => self.called(),
            _ => Ok(()),
        }
    }

    fn called(&mut self) -> Result<(), Mistake> {
        if self.takes("(") { self.arguments() } else { Ok(()) }
    }

    fn arguments(&mut self) -> Result<(), Mistake> {
        if self.takes(")") {
            return Ok(());
        }
        self.expression(&["')'"])?;
        while self.takes(",") {
            self.expression(&[])?;
        }
        self.demand(")", follows_operand)
    }

    fn items(&mut self, closing: &str, name: &str, is_map: bool) -> Result<(), Mistake> {
        if self.takes(closing) {
            return Ok(());
        }
        if self.takes(",") {
            return self.demand(closing, follows_operand);
        }
        let mut also = vec![name, "','", "'?'"];
        loop {
            self.takes("?");
            self.expression(&also)?;
            if is_map {
                self.demand(":", Self::starts)?;
                self.expression(&[])?;
            }
            if self.takes(closing) {
                return Ok(());
            }
            if !self.takes(",") {
                let token = self.token();
                let message = format!("mismatched input '{}' expecting {{{name}, ','}}", token.text);
                return Err((token.offset, message));
            }
            if self.takes(closing) {
                return Ok(());
            }
            also = vec![name, "'?'"];
        }
    }
}

fn no_name(dot: Token<'_>, name: Token<'_>) -> Mistake {
    if name.kind == Kind::End {
        return (name.offset, "no viable alternative at input '.'".to_owned());
    }
    if matches!(name.text, "true" | "false" | "null") {
        return (
            name.offset,
            format!("mismatched input '{}' expecting IDENTIFIER", name.text),
        );
    }
    (
        name.offset,
        format!("no viable alternative at input '{}{}'", dot.text, name.text),
    )
}

/// What can stand behind an operand.
fn follows_operand(token: Token<'_>) -> bool {
    match token.kind {
        Kind::End => true,
        Kind::Sign => !matches!(token.text, "(" | "{" | "!"),
        _ => false,
    }
}
