//! JSON values as YAML, written as the reference's encoder writes them: keys in order, lists not indented, quotes only
//! where a text would be read as something else, lines folded behind column 80. Requirement KA-007.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Behind this column a line is folded at the next space.
const BEST_WIDTH: usize = 80;
/// A longer key is no simple one.
const LONGEST_SIMPLE_KEY: usize = 128;
const INDENT: usize = 2;

/// A document, with the end of its last line.
pub(super) fn encode(value: &Value) -> String {
    let mut emitter = Emitter { out: String::new() };
    match value {
        Value::Object(fields) if !fields.is_empty() => emitter.mapping(fields, 0, false),
        Value::Array(items) if !items.is_empty() => emitter.sequence(items, 0, false),
        scalar => {
            emitter.scalar(scalar, INDENT);
            emitter.out.push('\n');
        }
    }
    emitter.out
}

struct Emitter {
    out: String,
}

impl Emitter {
    /// Each entry on a line of its own; the first one is on the present line when `inline`.
    fn mapping(&mut self, fields: &serde_json::Map<String, Value>, indent: usize, inline: bool) {
        for (index, (key, value)) in fields.iter().enumerate() {
            if index > 0 || !inline {
                self.spaces(indent);
            }
            if key.contains('\n') || key.len() > LONGEST_SIMPLE_KEY {
                self.out.push_str("? ");
                self.text(key, indent + INDENT, false);
                self.out.push('\n');
                self.spaces(indent);
            } else {
                self.text(key, indent + INDENT, true);
            }
            self.out.push(':');
            match value {
                Value::Object(fields) if !fields.is_empty() => {
                    self.out.push('\n');
                    self.mapping(fields, indent + INDENT, false);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.out.push('\n');
                    self.sequence(items, indent, false);
                }
                scalar => {
                    self.out.push(' ');
                    self.scalar(scalar, indent + INDENT);
                    self.out.push('\n');
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, inline: bool) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 || !inline {
                self.spaces(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(fields) if !fields.is_empty() => self.mapping(fields, indent + INDENT, true),
                Value::Array(items) if !items.is_empty() => self.sequence(items, indent + INDENT, true),
                scalar => {
                    self.scalar(scalar, indent + INDENT);
                    self.out.push('\n');
                }
            }
        }
    }

    fn spaces(&mut self, count: usize) {
        self.out.extend(std::iter::repeat_n(' ', count));
    }

    fn scalar(&mut self, value: &Value, indent: usize) {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(flag) => self.out.push_str(if *flag { "true" } else { "false" }),
            Value::Number(number) => self.out.push_str(&number_text(number)),
            Value::String(text) => self.text(text, indent, false),
            Value::Array(_) => self.out.push_str("[]"),
            Value::Object(_) => self.out.push_str("{}"),
        }
    }

    /// A text in the plainest style that keeps it; `indent` is that of its further lines.
    fn text(&mut self, text: &str, indent: usize, is_key: bool) {
        let form = Form::of(text);
        if text.contains('\n') && !is_key {
            match form.block {
                true => self.literal(text, indent),
                false => self.double_quoted(text, indent, !is_key),
            }
        } else if !stays_text(text) {
            self.double_quoted(text, indent, !is_key);
        } else if form.plain {
            self.folded(text, indent, !is_key, 0);
        } else if form.single {
            self.out.push('\'');
            self.folded(&text.replace('\'', "''"), indent, !is_key, 1);
            self.out.push('\'');
        } else {
            self.double_quoted(text, indent, !is_key);
        }
    }

    fn column(&self) -> usize {
        let line = self.out.rfind('\n').map_or(0, |end| end + 1);
        self.out.get(line..).map_or(0, |line| line.chars().count())
    }

    /// Writes a text of one line; `edge` is 1 where its first and last space must stay.
    fn folded(&mut self, text: &str, indent: usize, may_fold: bool, edge: usize) {
        let mut column = self.column();
        let mut after_space = false;
        let mut characters = text.chars().enumerate().peekable();
        let length = text.chars().count();
        while let Some((at, character)) = characters.next() {
            if character != ' ' {
                self.out.push(character);
                column += 1;
                after_space = false;
                continue;
            }
            let before_space = characters.peek().is_some_and(|(_, next)| *next == ' ');
            let inside = edge == 0 || (at > 0 && at + 1 < length);
            if may_fold && !after_space && column > BEST_WIDTH && inside && !before_space {
                self.out.push('\n');
                self.spaces(indent);
                column = indent;
            } else {
                self.out.push(' ');
                column += 1;
            }
            after_space = true;
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, may_fold: bool) {
        self.out.push('"');
        let mut column = self.column();
        let mut after_space = false;
        let length = text.chars().count();
        let mut characters = text.chars().enumerate().peekable();
        while let Some((at, character)) = characters.next() {
            let escaped = escape(character);
            if let Some(escaped) = escaped {
                column += escaped.chars().count();
                self.out.push_str(&escaped);
                after_space = false;
            } else if character == ' ' {
                if may_fold && !after_space && column > BEST_WIDTH && at > 0 && at + 1 < length {
                    self.out.push('\n');
                    self.spaces(indent);
                    column = indent;
                    if characters.peek().is_some_and(|(_, next)| *next == ' ') {
                        self.out.push('\\');
                        column += 1;
                    }
                } else {
                    self.out.push(' ');
                    column += 1;
                }
                after_space = true;
            } else {
                self.out.push(character);
                column += 1;
                after_space = false;
            }
        }
        self.out.push('"');
    }

    /// The lines as they are. A hint says how far they are indented where that cannot be seen, and what becomes of the
    /// line ends behind them.
    fn literal(&mut self, text: &str, indent: usize) {
        self.out.push('|');
        if text.starts_with([' ', '\n']) {
            self.out.push_str(&INDENT.to_string());
        }
        if !text.ends_with('\n') {
            self.out.push('-');
        } else if text == "\n" || text.ends_with("\n\n") {
            self.out.push('+');
        }
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            self.out.push('\n');
            if !line.is_empty() {
                self.spaces(indent);
                self.out.push_str(line);
            }
        }
    }
}

/// The escape of a character inside double quotes; `None` for one that stands for itself.
fn escape(character: char) -> Option<String> {
    Some(match character {
        '\0' => "\\0".to_owned(),
        '\x07' => "\\a".to_owned(),
        '\x08' => "\\b".to_owned(),
        '\t' => "\\t".to_owned(),
        '\n' => "\\n".to_owned(),
        '\x0b' => "\\v".to_owned(),
        '\x0c' => "\\f".to_owned(),
        '\r' => "\\r".to_owned(),
        '\x1b' => "\\e".to_owned(),
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\u{85}' => "\\N".to_owned(),
        '\u{2028}' => "\\L".to_owned(),
        '\u{2029}' => "\\P".to_owned(),
        other if is_printable(other) => return None,
        other => match u32::from(other) {
            code @ 0..=0xff => format!("\\x{code:02X}"),
            code @ 0x100..=0xffff => format!("\\u{code:04X}"),
            code => format!("\\U{code:08X}"),
        },
    })
}

fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn is_break(character: char) -> bool {
    matches!(character, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// The styles that keep a text.
#[derive(Clone, Copy)]
struct Form {
    plain: bool,
    single: bool,
    block: bool,
}

impl Form {
    fn of(text: &str) -> Self {
        let mut form = Self {
            plain: !text.is_empty() && !text.starts_with("---") && !text.starts_with("..."),
            single: true,
            block: !text.is_empty(),
        };
        let characters: Vec<char> = text.chars().collect();
        let blank_at = |at: usize| {
            characters
                .get(at)
                .is_none_or(|next| matches!(next, ' ' | '\t') || is_break(*next))
        };
        for (at, character) in characters.iter().copied().enumerate() {
            let before = at
                .checked_sub(1)
                .and_then(|before| characters.get(before))
                .copied();
            let indicates = match (at, character) {
                (
                    0,
                    '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                    | '`',
                ) => true,
                (0, '?' | ':' | '-') => blank_at(at + 1),
                (_, ':') => blank_at(at + 1),
                (_, '#') => before.is_some_and(|before| matches!(before, ' ' | '\t') || is_break(before)),
                _ => false,
            };
            form.plain &= !indicates;
            if !is_printable(character) {
                form = Self {
                    plain: false,
                    single: false,
                    block: false,
                };
            }
            if is_break(character) {
                form.plain = false;
                if before == Some(' ') {
                    // A space before the end of a line is lost in every style but double quotes.
                    form.single = false;
                    form.block = false;
                }
            }
            if character == ' ' && before.is_some_and(is_break) {
                form.plain = false;
                form.single = false;
            }
        }
        if text.starts_with(' ') || text.ends_with(' ') {
            form.plain = false;
        }
        form.block &= !text.ends_with(' ');
        form
    }
}

/// Texts that would be read as numbers and times.
static NUMBERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        r"|[-+]?0[xX][0-9a-fA-F]+|[-+]?0[oO]?[0-7]+|[-+]?0[bB][01]+",
        r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?",
        r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})?)?)$",
    ))
    .ok()
});

/// Whether a text without quotes is read as this text again.
fn stays_text(text: &str) -> bool {
    const WORDS: [&str; 15] = [
        "", "~", "null", "y", "yes", "true", "on", "n", "no", "false", "off", ".nan", ".inf", "+.inf",
        "-.inf",
    ];
    let is_word = WORDS.iter().any(|word| {
        text == *word
            || text == word.to_uppercase()
            || text == capitalised(word)
            || (*word == ".nan" && text == ".NaN")
    });
    let number = text.replace('_', "");
    let is_number = NUMBERS
        .as_ref()
        .is_none_or(|numbers| numbers.is_match(text) || numbers.is_match(&number));
    !is_word && !is_number
}

fn capitalised(word: &str) -> String {
    let at = word
        .find(|character: char| character.is_ascii_alphabetic())
        .unwrap_or(0);
    let mut capitalised = word.to_owned();
    if let Some(first) = capitalised.get_mut(at..at + 1) {
        first.make_ascii_uppercase();
    }
    capitalised
}

fn number_text(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => {
            let exponent = if float == 0.0 {
                0.0
            } else {
                float.abs().log10().floor()
            };
            if !(-4.0..21.0).contains(&exponent) {
                let text = format!("{float:e}");
                match text.split_once('e') {
                    Some((mantissa, exponent)) => {
                        let (sign, digits) = match exponent.strip_prefix('-') {
                            Some(digits) => ('-', digits),
                            None => ('+', exponent),
                        };
                        format!("{mantissa}e{sign}{digits:0>2}")
                    }
                    None => text,
                }
            } else {
                format!("{float}")
            }
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::encode;
    use crate::strict::{self, Format};

    #[test]
    fn texts_are_quoted_as_the_reference_quotes_them_ka_007() {
        // Each line is what the reference answered for that text.
        for (text, line) in [
            ("1", "\"1\""),
            ("true", "\"true\""),
            ("x: y", "'x: y'"),
            ("a\nb", "|-\n  a\n  b"),
            ("", "\"\""),
            (" x", "' x'"),
            ("it's", "it's"),
            ("\"q\"", "'\"q\"'"),
            ("~", "\"~\""),
            ("null", "\"null\""),
            ("2026-01-02", "\"2026-01-02\""),
            ("2026-01-02T03:04:05Z", "\"2026-01-02T03:04:05Z\""),
            ("0x10", "\"0x10\""),
            ("1.5", "\"1.5\""),
            ("- a", "'- a'"),
            ("#x", "'#x'"),
            ("a #b", "'a #b'"),
            ("ä", "ä"),
            ("a\tb", "\"a\\tb\""),
            ("line\n", "|\n  line"),
            ("*a", "'*a'"),
            ("yes", "\"yes\""),
            ("1_000", "\"1_000\""),
            ("{a}", "'{a}'"),
            ("multi\n\nlines\n  ind\n", "|\n  multi\n\n  lines\n    ind"),
            ("a:", "'a:'"),
            ("=", "="),
            ("<<", "<<"),
            ("a\u{1}b", "\"a\\x01b\""),
            ("trail ", "'trail '"),
            ("\u{1F600}", "\"\\U0001F600\""),
            ("1:30", "\"1:30\""),
            (".5", "\".5\""),
            ("0o7", "\"0o7\""),
            ("1e3", "\"1e3\""),
            (".inf", "\".inf\""),
            ("\n", "|2+\n"),
            (" a\nb", "|2-\n   a\n  b"),
            ("---", "'---'"),
            ("a\\b", "a\\b"),
            ("a,b", "a,b"),
            ("-", "'-'"),
            ("+1", "\"+1\""),
            ("v1", "v1"),
        ] {
            assert_eq!(encode(&json!({"k": text})), format!("k: {line}\n"), "{text:?}");
        }
    }

    #[test]
    fn structures_are_laid_out_as_the_reference_lays_them_out_ka_007() {
        let value = json!({
            "a": [], "b": {}, "items": [{"x": 1, "z": [[1, 2.5], {"q": null}]}, "text"], "n": {"y": {"k": true}},
        });
        let expected = "a: []\nb: {}\nitems:\n- x: 1\n  z:\n  - - 1\n    - 2.5\n  - q: null\n- text\n\"n\":\n  \"y\":\n    k: true\n";
        assert_eq!(encode(&value), expected);
        let message = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(
            encode(&json!({"message": message})),
            "message: 'only the following media types are accepted: application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch'\n"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(
            texts in proptest::collection::vec("[ -~\\n\\täé\u{1F600}]{0,60}", 0..5),
            words in proptest::collection::vec("[a-z:#'\" -]{60,140}", 0..3),
            number in any::<i64>(), float in -1e30..1e30_f64,
        ) {
            let value = json!({"texts": texts, "words": words, "m": {"n": number, "f": float, "y": [{"a": texts}]}});
            let read = strict::decode(encode(&value).as_bytes(), Format::Yaml).unwrap();
            prop_assert_eq!(read.value["texts"].clone(), value["texts"].clone());
            prop_assert_eq!(read.value["words"].clone(), value["words"].clone());
            prop_assert_eq!(read.value["m"]["n"].clone(), value["m"]["n"].clone());
        }
    }
}
