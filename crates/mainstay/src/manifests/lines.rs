//! The line on which each field of a YAML or JSON document stands.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser};

/// The deepest nesting that is looked into; the reader of the values has its own limit and reports it.
const DEEPEST: usize = 128;

/// Lines by field path (`spec.handlers[0].name`), counted from 1 in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct LineIndex {
    lines: BTreeMap<String, usize>,
    first_line: usize,
    duplicate: Option<Place>,
}

/// A field and its line.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The path.
    pub(crate) field: String,
    /// The line.
    pub(crate) line: usize,
}

/// A document that is not well-formed.
#[derive(Debug)]
pub(crate) struct Malformed {
    /// The line.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) reason: String,
}

/// Where the walk stands inside one mapping or sequence.
enum Frame {
    Mapping { path: String, key: Option<String> },
    Sequence { path: String, next: usize },
}

impl LineIndex {
    /// Reads `document`, whose first line is `first_line` of its file.
    pub(crate) fn of(document: &str, first_line: usize) -> Result<Self, Malformed> {
        let mut index = Self {
            lines: BTreeMap::new(),
            first_line,
            duplicate: None,
        };
        let mut stack: Vec<Frame> = Vec::new();
        for event in Parser::new_from_str(document) {
            let (event, span) = event.map_err(|error| Malformed {
                line: first_line + error.marker().line().saturating_sub(1),
                reason: error.info().to_owned(),
            })?;
            let line = first_line + span.start.line().saturating_sub(1);
            match event {
                Event::MappingStart(..) | Event::SequenceStart(..) => {
                    if stack.len() >= DEEPEST {
                        return Err(Malformed {
                            line,
                            reason: format!("nested deeper than {DEEPEST} levels"),
                        });
                    }
                    let mapping = matches!(event, Event::MappingStart(..));
                    let path = index.enter(&mut stack, line);
                    stack.push(if mapping {
                        Frame::Mapping { path, key: None }
                    } else {
                        Frame::Sequence { path, next: 0 }
                    });
                }
                Event::MappingEnd | Event::SequenceEnd => {
                    stack.pop();
                    leave(&mut stack);
                }
                Event::Scalar(text, ..) => match stack.last_mut() {
                    Some(Frame::Mapping {
                        path,
                        key: key @ None,
                    }) => {
                        let field = join(path, &text);
                        if index.lines.insert(field.clone(), line).is_some() && index.duplicate.is_none() {
                            index.duplicate = Some(Place { field, line });
                        }
                        *key = Some(text.into_owned());
                    }
                    _ => {
                        index.enter(&mut stack, line);
                        leave(&mut stack);
                    }
                },
                Event::Alias(..) => {
                    index.enter(&mut stack, line);
                    leave(&mut stack);
                }
                _ => {}
            }
        }
        Ok(index)
    }

    /// Notes the node that begins at `line` and gives its path. A mapping's value keeps the line of its key.
    fn enter(&mut self, stack: &mut [Frame], line: usize) -> String {
        match stack.last_mut() {
            None => {
                self.lines.entry(String::new()).or_insert(line);
                String::new()
            }
            Some(Frame::Mapping { path, key }) => join(path, key.as_deref().unwrap_or_default()),
            Some(Frame::Sequence { path, next }) => {
                let item = format!("{path}[{next}]");
                *next += 1;
                self.lines.insert(item.clone(), line);
                item
            }
        }
    }

    /// The line of `field`, or of the nearest field above it.
    pub(crate) fn line(&self, field: &str) -> usize {
        let mut field = field;
        loop {
            if let Some(line) = self.lines.get(field) {
                return *line;
            }
            match field.rfind(['.', '[']) {
                Some(end) => field = field.get(..end).unwrap_or_default(),
                None => return self.lines.get("").copied().unwrap_or(self.first_line),
            }
        }
    }

    /// The first key that stands twice in its mapping.
    pub(crate) fn duplicate(&self) -> Option<&Place> {
        self.duplicate.as_ref()
    }

    /// The lines of what is below `prefix`, as an index of its own.
    pub(crate) fn below(&self, prefix: &str) -> Self {
        let mut lines: BTreeMap<String, usize> = self
            .lines
            .range(prefix.to_owned()..)
            .filter_map(|(field, line)| {
                let rest = field.strip_prefix(prefix)?;
                rest.strip_prefix('.').map(|rest| (rest.to_owned(), *line))
            })
            .collect();
        let first = self.line(prefix);
        lines.insert(String::new(), first);
        Self {
            lines,
            first_line: first,
            duplicate: None,
        }
    }
}

/// After a value the mapping around it expects a key again.
fn leave(stack: &mut [Frame]) {
    if let Some(Frame::Mapping { key, .. }) = stack.last_mut() {
        *key = None;
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
