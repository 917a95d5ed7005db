//! What is wrong with a pattern, in the words of the reference's parser of regular expressions. Requirement KA-013.

use regex::Regex;

/// A repetition, and repetitions inside it together, may not count further.
const MAXIMUM_COUNT: u32 = 1000;

/// The parser's message for a pattern; `None` when it finds no fault.
pub(super) fn fault(pattern: &str) -> Option<String> {
    let mut parser = Parser {
        pattern,
        rest: pattern,
        groups: vec![Group::default()],
        repeat: None,
    };
    parser
        .run()
        .err()
        .map(|text| format!("error parsing regexp: {text}"))
}

/// What has been read of a group, or of the whole.
#[derive(Default)]
struct Group {
    /// How often the last item may be repeated together with what is in it; none where nothing can be repeated.
    last: Option<u32>,
    /// The most of that among all items.
    most: u32,
}

struct Parser<'a> {
    pattern: &'a str,
    rest: &'a str,
    groups: Vec<Group>,
    /// Where the repetition begins that was read last, if nothing came after it.
    repeat: Option<&'a str>,
}

type Outcome = Result<(), String>;

fn refuse<T>(what: &str, text: &str) -> Result<T, String> {
    Err(format!("{what}: `{text}`"))
}

/// The part of `from` before `to`, which is its end.
fn before<'a>(from: &'a str, to: &str) -> &'a str {
    from.get(..from.len() - to.len()).unwrap_or(from)
}

/// The text without its first character.
fn skip(text: &str) -> &str {
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
}

impl<'a> Parser<'a> {
    fn run(&mut self) -> Outcome {
        while let Some(character) = self.rest.chars().next() {
            let start = self.rest;
            let repeat = self.repeat.take();
            match character {
                '(' => self.open()?,
                ')' => self.close()?,
                '|' => {
                    self.rest = skip(start);
                    self.group().last = None;
                }
                '[' => {
                    self.class()?;
                    self.item(1);
                }
                '*' | '+' | '?' => {
                    self.rest = skip(start);
                    self.repeated(start, repeat, None)?;
                }
                '{' => match counts(start) {
                    Some((least, most, rest)) => {
                        self.rest = rest;
                        let is_valid = least <= MAXIMUM_COUNT
                            && most.is_none_or(|most| most <= MAXIMUM_COUNT && least <= most);
                        if !is_valid {
                            return refuse("invalid repeat count", before(start, rest));
                        }
                        self.repeated(start, repeat, Some(most.unwrap_or(least)))?;
                    }
                    None => {
                        self.rest = skip(start);
                        self.item(1);
                    }
                },
                '\\' => self.escaped()?,
                _ => {
                    self.rest = skip(start);
                    self.item(1);
                }
            }
        }
        if self.groups.len() > 1 {
            return refuse("missing closing )", self.pattern);
        }
        Ok(())
    }

    fn group(&mut self) -> &mut Group {
        if self.groups.is_empty() {
            self.groups.push(Group::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    fn item(&mut self, count: u32) {
        let group = self.group();
        group.last = Some(count);
        group.most = group.most.max(count);
    }

    /// A repetition that begins at `start` and has been passed; `count` is its bound, if it has one.
    fn repeated(&mut self, start: &'a str, nested: Option<&'a str>, count: Option<u32>) -> Outcome {
        if self.rest.starts_with('?') {
            self.rest = skip(self.rest);
        }
        if let Some(nested) = nested {
            return refuse("invalid nested repetition operator", before(nested, self.rest));
        }
        let text = before(start, self.rest);
        let Some(inner) = self.group().last else {
            return refuse("missing argument to repetition operator", text);
        };
        let together = inner.saturating_mul(count.unwrap_or(1).max(1));
        if together > MAXIMUM_COUNT {
            return refuse("invalid repeat count", text);
        }
        self.item(together);
        self.repeat = Some(start);
        Ok(())
    }

    fn open(&mut self) -> Outcome {
        let start = self.rest;
        let Some(special) = start.strip_prefix("(?") else {
            self.rest = skip(start);
            self.groups.push(Group::default());
            return Ok(());
        };
        let named = special.strip_prefix("P<").or_else(|| special.strip_prefix('<'));
        if let Some(named) = named {
            let Some((name, rest)) = named.split_once('>') else {
                return refuse("invalid named capture", start);
            };
            let is_name = !name.is_empty()
                && name
                    .chars()
                    .all(|character| character == '_' || character.is_ascii_alphanumeric());
            if !is_name {
                return refuse("invalid named capture", before(start, rest));
            }
            self.rest = rest;
            self.groups.push(Group::default());
            return Ok(());
        }
        let (mut rest, mut negative, mut has_flag) = (special, false, false);
        while let Some(character) = rest.chars().next() {
            rest = skip(rest);
            match character {
                'i' | 'm' | 's' | 'U' => has_flag = true,
                '-' if !negative => {
                    negative = true;
                    has_flag = false;
                }
                ':' | ')' if !negative || has_flag => {
                    self.rest = rest;
                    if character == ':' {
                        self.groups.push(Group::default());
                    }
                    return Ok(());
                }
                _ => return refuse("invalid or unsupported Perl syntax", before(start, rest)),
            }
        }
        refuse("invalid or unsupported Perl syntax", before(start, rest))
    }

    fn close(&mut self) -> Outcome {
        if self.groups.len() < 2 {
            return refuse("unexpected )", self.pattern);
        }
        let most = self.groups.pop().map_or(1, |group| group.most.max(1));
        self.rest = skip(self.rest);
        self.item(most);
        Ok(())
    }

    fn escaped(&mut self) -> Outcome {
        let start = self.rest;
        let next = skip(start);
        match next.chars().next() {
            Some('A' | 'b' | 'B' | 'z' | 'd' | 'D' | 's' | 'S' | 'w' | 'W') => self.rest = skip(next),
            Some('C') => return refuse("invalid escape sequence", before(start, skip(next))),
            Some('Q') => {
                let quoted = skip(next);
                self.rest = quoted.split_once("\\E").map_or("", |(_, rest)| rest);
                if quoted.is_empty() || quoted.starts_with("\\E") {
                    return Ok(());
                }
            }
            Some('p' | 'P') => self.rest = unicode_class(start)?,
            _ => self.rest = escape(start)?.1,
        }
        self.item(1);
        Ok(())
    }

    fn class(&mut self) -> Outcome {
        let start = self.rest;
        let mut rest = skip(start);
        rest = rest.strip_prefix('^').unwrap_or(rest);
        let mut first = true;
        while first || !rest.starts_with(']') {
            first = false;
            if let Some(inner) = rest.strip_prefix("[:")
                && let Some((name, behind)) = inner.split_once(":]")
            {
                const NAMES: [&str; 14] = [
                    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
                    "space", "upper", "word", "xdigit",
                ];
                if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return refuse("invalid character class range", before(rest, behind));
                }
                rest = behind;
                continue;
            }
            if rest.starts_with("\\p") || rest.starts_with("\\P") {
                rest = unicode_class(rest)?;
                continue;
            }
            if let Some(behind) = ["\\d", "\\D", "\\s", "\\S", "\\w", "\\W"]
                .iter()
                .find_map(|class| rest.strip_prefix(class))
            {
                rest = behind;
                continue;
            }
            let range = rest;
            let (low, behind) = member(start, rest)?;
            rest = behind;
            if let Some(behind) = rest
                .strip_prefix('-')
                .filter(|behind| !behind.starts_with(']') && !behind.is_empty())
            {
                let (high, behind) = member(start, behind)?;
                rest = behind;
                if high < low {
                    return refuse("invalid character class range", before(range, rest));
                }
            }
        }
        self.rest = skip(rest);
        Ok(())
    }
}

/// A character of a class, with what comes behind it.
fn member<'a>(class: &str, text: &'a str) -> Result<(char, &'a str), String> {
    match text.chars().next() {
        None => refuse("missing closing ]", class),
        Some('\\') => escape(text),
        Some(character) => Ok((character, skip(text))),
    }
}

/// An escaped character, with what comes behind it.
fn escape(text: &str) -> Result<(char, &str), String> {
    let next = skip(text);
    let Some(character) = next.chars().next() else {
        return refuse("trailing backslash at end of expression", "");
    };
    let behind = skip(next);
    let invalid = |behind: &str| refuse("invalid escape sequence", before(text, behind));
    let of_code = |code: u32, behind| match char::from_u32(code) {
        Some(character) => Ok((character, behind)),
        None => refuse("invalid escape sequence", before(text, behind)),
    };
    match character {
        '0'..='7' => {
            let follows = behind.starts_with(|next: char| ('0'..='7').contains(&next));
            if character != '0' && !follows {
                return invalid(behind);
            }
            let length = next
                .chars()
                .take(3)
                .take_while(|digit| ('0'..='7').contains(digit))
                .count();
            let (digits, behind) = next.split_at(length);
            of_code(u32::from_str_radix(digits, 8).unwrap_or(0), behind)
        }
        'x' => match behind.strip_prefix('{') {
            Some(inner) => match inner.split_once('}') {
                Some((digits, behind)) if !digits.is_empty() => match u32::from_str_radix(digits, 16) {
                    Ok(code) => of_code(code, behind),
                    Err(_) => invalid(behind),
                },
                _ => invalid(""),
            },
            None => match behind
                .get(..2)
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            {
                Some(code) => of_code(code, &behind[2..]),
                None => invalid(skip(behind)),
            },
        },
        'a' => Ok(('\x07', behind)),
        'f' => Ok(('\x0c', behind)),
        'n' => Ok(('\n', behind)),
        'r' => Ok(('\r', behind)),
        't' => Ok(('\t', behind)),
        'v' => Ok(('\x0b', behind)),
        other if other.is_ascii() && !other.is_ascii_alphanumeric() => Ok((other, behind)),
        _ => invalid(behind),
    }
}

/// Passes `\pL` or `\p{Greek}`.
fn unicode_class(text: &str) -> Result<&str, String> {
    let name = skip(skip(text));
    let behind = if name.starts_with('{') {
        match name.split_once('}') {
            Some((_, behind)) => behind,
            None => return refuse("invalid character class range", text),
        }
    } else {
        skip(name)
    };
    let class = before(text, behind);
    let known = class.replacen("{^", "{", 1);
    match Regex::new(&known) {
        Ok(_) => Ok(behind),
        Err(_) => refuse("invalid character class range", class),
    }
}

/// The bounds of `{2}`, `{2,}` or `{2,5}`, and what comes behind; none for braces that are no repetition.
fn counts(text: &str) -> Option<(u32, Option<u32>, &str)> {
    let (inner, behind) = text.strip_prefix('{')?.split_once('}')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && (digits == "0" || !digits.starts_with('0'));
        // What is too large to read is too large in any case.
        is_number.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    match inner.split_once(',') {
        None => {
            let count = number(inner)?;
            Some((count, Some(count), behind))
        }
        Some((least, "")) => Some((number(least)?, None, behind)),
        Some((least, most)) => Some((number(least)?, Some(number(most)?), behind)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::fault;

    #[test]
    fn faults_have_the_words_of_the_reference_ka_013() {
        for (pattern, expected) in [
            ("(", "missing closing ): `(`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("[a", "missing closing ]: `[a`"),
            ("a)", "unexpected ): `a)`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            ("a\\", "trailing backslash at end of expression: ``"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("a**", "invalid nested repetition operator: `**`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?z)", "invalid or unsupported Perl syntax: `(?z`"),
            ("a{1,2}{3}", "invalid nested repetition operator: `{1,2}{3}`"),
            ("++", "missing argument to repetition operator: `+`"),
        ] {
            assert_eq!(
                fault(pattern),
                Some(format!("error parsing regexp: {expected}")),
                "{pattern}"
            );
        }
        for pattern in [
            "^[CG][A-Z0-9]+$",
            "(?<n>a)",
            "x{,5}",
            "a*?b+?",
            r"\p{Greek}[[:alpha:]\d\]-]",
            "(?i:a|b){3}",
            r"\Qa*\E+",
            "(a{10}){100}",
            r"\012\x41\x{41}",
            "a|b*",
            "[]a]",
            "[a-]",
        ] {
            assert_eq!(fault(pattern), None, "{pattern}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_judged(pattern in r"[\[\](){}\\?*+|,^\-:<>=Pa-c0-3pQxé]{0,20}") {
            let _judged = fault(&pattern);
        }
    }
}
