//! What is wrong with a text that is no JSON, in the words of the reference's decoder, which clients and people know.

/// The message for `bytes`; `None` when they are well-formed.
pub(super) fn fault(bytes: &[u8]) -> Option<String> {
    let mut scanner = Scanner { bytes, at: 0 };
    scanner.document().err()
}

/// Where a value ends inside its container.
#[derive(Clone, Copy)]
enum Open {
    Object,
    Array,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

const END: &str = "unexpected end of JSON input";

/// A byte as the decoder quotes it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        0x07 => r"'\a'".to_owned(),
        0x08 => r"'\b'".to_owned(),
        0x0b => r"'\v'".to_owned(),
        0x0c => r"'\f'".to_owned(),
        0..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0x9f | 0xad => format!("'\\u00{byte:02x}'"),
        other => format!("'{}'", char::from(other)),
    }
}

impl Scanner<'_> {
    fn space(&mut self) {
        while self
            .bytes
            .get(self.at)
            .is_some_and(|byte| b" \t\r\n".contains(byte))
        {
            self.at += 1;
        }
    }

    /// The next byte that is no space; it is not passed.
    fn peek(&mut self) -> Result<u8, String> {
        self.space();
        self.here()
    }

    fn here(&self) -> Result<u8, String> {
        self.bytes.get(self.at).copied().ok_or_else(|| END.to_owned())
    }

    fn invalid<T>(byte: u8, context: &str) -> Result<T, String> {
        Err(format!("invalid character {} {context}", quoted(byte)))
    }

    fn document(&mut self) -> Result<(), String> {
        // Without recursion: the text may be nested as deep as it likes.
        let mut open: Vec<Open> = Vec::new();
        loop {
            if !self.value(&mut open)? {
                continue;
            }
            loop {
                let Some(container) = open.last().copied() else {
                    self.space();
                    return match self.bytes.get(self.at) {
                        None => Ok(()),
                        Some(byte) => Self::invalid(*byte, "after top-level value"),
                    };
                };
                let byte = self.peek()?;
                self.at += 1;
                match (container, byte) {
                    (Open::Array, b',') => break,
                    (Open::Object, b',') => {
                        self.key()?;
                        break;
                    }
                    (Open::Array, b']') | (Open::Object, b'}') => {
                        open.pop();
                    }
                    (Open::Array, _) => return Self::invalid(byte, "after array element"),
                    (Open::Object, _) => return Self::invalid(byte, "after object key:value pair"),
                }
            }
        }
    }

    /// Passes a value, or the beginning of a container with content; whether the value is complete.
    fn value(&mut self, open: &mut Vec<Open>) -> Result<bool, String> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b'{' => {
                if self.peek()? == b'}' {
                    self.at += 1;
                    return Ok(true);
                }
                open.push(Open::Object);
                self.key()?;
                Ok(false)
            }
            b'[' => {
                if self.peek()? == b']' {
                    self.at += 1;
                    return Ok(true);
                }
                open.push(Open::Array);
                Ok(false)
            }
            b'"' => self.text().map(|()| true),
            b't' => self.literal("true").map(|()| true),
            b'f' => self.literal("false").map(|()| true),
            b'n' => self.literal("null").map(|()| true),
            b'-' | b'0'..=b'9' => self.number(byte).map(|()| true),
            other => Self::invalid(other, "looking for beginning of value"),
        }
    }

    /// Passes a key and its colon.
    fn key(&mut self) -> Result<(), String> {
        let byte = self.peek()?;
        if byte != b'"' {
            return Self::invalid(byte, "looking for beginning of object key string");
        }
        self.at += 1;
        self.text()?;
        let byte = self.peek()?;
        if byte != b':' {
            return Self::invalid(byte, "after object key");
        }
        self.at += 1;
        Ok(())
    }

    /// Passes the rest of a text behind its opening quote.
    fn text(&mut self) -> Result<(), String> {
        loop {
            let byte = self.here()?;
            self.at += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' => {
                    let escape = self.here()?;
                    self.at += 1;
                    match escape {
                        b'u' => {
                            for _digit in 0..4 {
                                let digit = self.here()?;
                                if !digit.is_ascii_hexdigit() {
                                    return Self::invalid(digit, r"in \u hexadecimal character escape");
                                }
                                self.at += 1;
                            }
                        }
                        b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                        other => return Self::invalid(other, "in string escape code"),
                    }
                }
                0..=0x1f => return Self::invalid(byte, "in string literal"),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let byte = self.here()?;
            if byte != expected {
                let context = format!("in literal {word} (expecting {})", quoted(expected));
                return Self::invalid(byte, &context);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let mut first = first;
        if first == b'-' {
            first = self.here()?;
            if !first.is_ascii_digit() {
                return Self::invalid(first, "in numeric literal");
            }
            self.at += 1;
        }
        if first != b'0' {
            self.digits();
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<(), String> {
        let byte = self.here()?;
        if !byte.is_ascii_digit() {
            return Self::invalid(byte, context);
        }
        self.at += 1;
        Ok(())
    }

    fn digits(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::fault;

    #[test]
    fn faults_have_the_words_of_the_reference_ka_006() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("  ", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("[1,", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            (
                "{x",
                "invalid character 'x' looking for beginning of object key string",
            ),
            (
                "{\"a\":1,}",
                "invalid character '}' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{}{}", "invalid character '{' after top-level value"),
            ("nul1", "invalid character '1' in literal null (expecting 'l')"),
            ("-x", "invalid character 'x' in numeric literal"),
            (
                "1.x",
                "invalid character 'x' after decimal point in numeric literal",
            ),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("01", "invalid character '1' after top-level value"),
            ("\"\\q\"", "invalid character 'q' in string escape code"),
            (
                "\"\\u00g\"",
                "invalid character 'g' in \\u hexadecimal character escape",
            ),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            ("'a'", "invalid character '\\'' looking for beginning of value"),
            ("\u{fffd}", "invalid character 'ï' looking for beginning of value"),
        ] {
            assert_eq!(fault(text.as_bytes()).as_deref(), Some(expected), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_well_formed_has_no_fault(text in r#"[\[\]{}",:0-9eE.+\-tru fals\\n]{0,24}"#) {
            let parsed = serde_json::from_str::<serde_json::Value>(&text);
            match parsed {
                Ok(_) => proptest::prop_assert_eq!(fault(text.as_bytes()), None),
                // A number that is too large and half of a surrogate pair are well-formed.
                Err(error) => proptest::prop_assert!(
                    fault(text.as_bytes()).is_some() || error.to_string().contains("out of range")
                        || error.to_string().contains("surrogate"),
                    "{}: {}", text, error
                ),
            }
        }

        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let _judged = fault(&bytes);
        }
    }
}
