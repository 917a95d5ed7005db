//! A `serde` visitor that builds a JSON value and remembers keys that occur twice.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// How many duplicates are reported; a document with more has been understood well enough.
const MAXIMUM_DUPLICATES: usize = 100;

/// Bytes of paths that are rendered for one document. A key can be as long as the document and have a thousand others below
/// it, and each path has it in full.
const MAXIMUM_PATH_BYTES: usize = 4 * 1024 * 1024;

/// Integers up to here are exact as floating point numbers.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// What becomes of a key that occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// Its last value counts.
    LastWins,
    /// Two objects become one; of other values the last counts.
    Merges,
    /// Its last value counts, and the line of each repetition is kept: the document is YAML.
    ByLine,
}

/// Collects what is noticed while a document is read.
pub(super) struct Reader {
    depth: usize,
    repeated: Repeated,
    duplicates: RefCell<Vec<String>>,
    repeated_keys: RefCell<Vec<String>>,
    /// The path of each key, in the document's order, if they are wanted: the first ones, of a document with too long paths.
    keys: Option<RefCell<Vec<String>>>,
    path_bytes: Cell<usize>,
}

impl Reader {
    pub(super) fn new(depth: usize, repeated: Repeated) -> Self {
        Self {
            depth,
            repeated,
            duplicates: RefCell::new(Vec::new()),
            repeated_keys: RefCell::new(Vec::new()),
            keys: None,
            path_bytes: Cell::new(0),
        }
    }

    /// The same, which keeps the path of every key.
    pub(super) fn noting_keys(self) -> Self {
        Self {
            keys: Some(RefCell::default()),
            ..self
        }
    }

    /// The paths of the keys in the order of the document, each as often as it occurs.
    pub(super) fn into_keys(self) -> Vec<String> {
        self.keys.map(RefCell::into_inner).unwrap_or_default()
    }

    /// The paths of the keys that occur more than once, and of YAML what is said of each.
    pub(super) fn into_found(self) -> (Vec<String>, Vec<String>) {
        (self.duplicates.into_inner(), self.repeated_keys.into_inner())
    }

    /// The seed of the whole document.
    pub(super) fn seed(&self) -> ValueSeed<'_> {
        ValueSeed {
            reader: self,
            path: Path::Root,
            depth: self.depth,
        }
    }

    /// The text of a path, as long as there is room for it.
    fn render(&self, path: &Path<'_>) -> Option<String> {
        let rendered = self.path_bytes.get();
        if rendered > MAXIMUM_PATH_BYTES {
            return None;
        }
        let path = path.to_string();
        self.path_bytes.set(rendered.saturating_add(path.len()));
        Some(path)
    }

    fn duplicate(&self, path: &Path<'_>, key: &Key) {
        if let Some(line) = key.line {
            let mut repeated = self.repeated_keys.borrow_mut();
            if repeated.len() < MAXIMUM_DUPLICATES {
                repeated.push(format!("line {line}: key {:?} already set in map", key.text));
            }
        }
        let mut duplicates = self.duplicates.borrow_mut();
        if duplicates.len() < MAXIMUM_DUPLICATES
            && let Some(path) = self.render(path)
            && !duplicates.contains(&path)
        {
            duplicates.push(path);
        }
    }
}

/// Where the reader is; rendered only when there is something to report.
#[derive(Clone, Copy)]
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => formatter.write_str(name),
            Self::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Self::Index(parent, index) => write!(formatter, "{parent}[{index}]"),
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ValueSeed<'a> {
    reader: &'a Reader,
    path: Path<'a>,
    depth: usize,
}

impl ValueSeed<'_> {
    fn descend<E: Error>(&self) -> Result<usize, E> {
        self.depth
            .checked_sub(1)
            .ok_or_else(|| E::custom("exceeded max depth"))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Value::from(value)),
            // The reference has no unsigned integers: what does not fit is a floating point number.
            #[expect(clippy::cast_precision_loss, reason = "the loss is what the reference has")]
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Value::from(value)),
            #[expect(clippy::cast_precision_loss, reason = "the loss is what the reference has")]
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        match i64::try_from(value) {
            Ok(value) => Ok(Value::from(value)),
            #[expect(clippy::cast_precision_loss, reason = "the loss is what the reference has")]
            Err(_) => self.visit_f64(value as f64),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // `1.0` is printed as `1` by the reference, and read back as an integer.
        if value.fract() == 0.0 && value.abs() <= EXACT_INTEGERS {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "checked to be an integer in range"
            )]
            return Ok(Value::from(value as i64));
        }
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let depth = self.descend()?;
        let mut items = Vec::new();
        loop {
            let path = Path::Index(&self.path, items.len());
            match access.next_element_seed(ValueSeed {
                reader: self.reader,
                path,
                depth,
            })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let depth = self.descend()?;
        let mut entries = Map::new();
        let by_line = self.reader.repeated == Repeated::ByLine;
        while let Some(key) = access.next_key_seed(KeySeed { by_line })? {
            let path = Path::Field(&self.path, &key.text);
            if let Some(keys) = &self.reader.keys {
                keys.borrow_mut().extend(self.reader.render(&path));
            }
            if entries.contains_key(&key.text) {
                self.reader.duplicate(&path, &key);
            }
            let value = access.next_value_seed(ValueSeed {
                reader: self.reader,
                path,
                depth,
            })?;
            match entries.get_mut(&key.text) {
                Some(before) if self.reader.repeated == Repeated::Merges => merge(before, value),
                _ => {
                    entries.insert(key.text, value);
                }
            }
        }
        Ok(Value::Object(entries))
    }
}

/// Adds the fields of an object to those that were there; any other value takes the place of what was there.
fn merge(before: &mut Value, value: Value) {
    match (before, value) {
        (Value::Object(before), Value::Object(fields)) => {
            for (name, value) in fields {
                match before.get_mut(&name) {
                    Some(before) => merge(before, value),
                    None => {
                        before.insert(name, value);
                    }
                }
            }
        }
        (before, value) => *before = value,
    }
}

/// A key, with its line in a YAML document.
struct Key {
    text: String,
    line: Option<u64>,
}

/// Reads a key.
#[derive(Clone, Copy)]
struct KeySeed {
    by_line: bool,
}

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Key, D::Error> {
        if !self.by_line {
            let text = deserializer.deserialize_any(KeyText)?;
            return Ok(Key { text, line: None });
        }
        let spanned = serde_saphyr::Spanned::<KeyScalar>::deserialize(deserializer)?;
        Ok(Key {
            text: spanned.value.0,
            line: Some(spanned.defined.line()),
        })
    }
}

struct KeyScalar(String);

impl<'de> Deserialize<'de> for KeyScalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyText).map(Self)
    }
}

/// The text of a key, or a scalar of YAML turned into text.
struct KeyText;

impl Visitor<'_> for KeyText {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a scalar key")
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<String, E> {
        Ok(value)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<String, E> {
        Ok(value.to_string())
    }
}
