//! From a prompt's template to the system text of a turn (OM-562, OM-563).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::template::{Tag, tags};
use super::variable::{self, VariableError};
use super::{Pack, Prompt};

/// Passes over the pack's own texts (OM-562).
const PASSES: usize = 10;

/// Longest system text, in bytes. Fragments that repeat each other grow exponentially; this is where that
/// ends.
const MAX_RENDERED_BYTES: usize = 1 << 20;

/// Why a turn cannot start (OM-562). None of these reaches a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A required variable has no value or an empty one.
    #[error("variable `{variable}` is required and has no value; send it in the message's metadata")]
    MissingVariable {
        /// Name of the variable.
        variable: String,
    },
    /// A value does not fit its declaration.
    #[error(transparent)]
    InvalidVariable(#[from] VariableError),
    /// A placeholder has no value at the end of the last pass.
    #[error("placeholder `{{{{{name}}}}}` has no value")]
    PlaceholderLeft {
        /// Name in the placeholder.
        name: String,
    },
    /// The text became too long.
    #[error("the rendered system text exceeds {limit} bytes")]
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
}

/// A stretch of the text and whether it came from the pack. Keeping stretches apart is what keeps a
/// caller's `{{secret}}` from being expanded, even when it is split over two values.
struct Piece {
    text: String,
    from_pack: bool,
}

/// Renders the system text of `prompt` for `model` (OM-559, OM-562).
///
/// `supplied` are the caller's values: metadata and session variables. Only declared names are looked at.
///
/// # Errors
///
/// [`RenderError`]; every variant names the variable or placeholder.
pub fn render(
    pack: &Pack,
    prompt: &Prompt,
    model: &str,
    supplied: &Map<String, Value>,
) -> Result<String, RenderError> {
    let mut values: BTreeMap<&str, Piece> = BTreeMap::new();
    for declared in &prompt.variables {
        let given = supplied
            .get(&declared.name)
            .filter(|value| !variable::is_empty(value));
        if let Some(given) = given {
            let checked = variable::check(declared, given)?;
            values.insert(
                &declared.name,
                Piece {
                    text: variable::text(&checked),
                    from_pack: false,
                },
            );
        } else if let Some(default) = declared.default.as_ref().filter(|value| !value.is_null()) {
            values.insert(
                &declared.name,
                Piece {
                    text: variable::text(default),
                    from_pack: true,
                },
            );
        } else if declared.required {
            return Err(RenderError::MissingVariable {
                variable: declared.name.clone(),
            });
        }
    }
    for (name, text) in &pack.fragments {
        values.entry(name).or_insert_with(|| Piece {
            text: text.clone(),
            from_pack: true,
        });
    }

    let mut pieces = vec![Piece {
        text: template(prompt, model),
        from_pack: true,
    }];
    for _ in 0..PASSES {
        let (next, replaced) = expand(pieces, &values)?;
        pieces = next;
        if !replaced {
            break;
        }
    }
    for piece in pieces.iter().filter(|piece| piece.from_pack) {
        if let Some((_, Tag::Name(name) | Tag::Unsupported(name))) = tags(&piece.text).first() {
            return Err(RenderError::PlaceholderLeft {
                name: (*name).to_owned(),
            });
        }
    }
    Ok(pieces.into_iter().map(|piece| piece.text).collect())
}

/// The template for one model: its override with prefix and suffix around (OM-559).
pub(super) fn template(prompt: &Prompt, model: &str) -> String {
    let Some(over) = prompt.model_overrides.get(model) else {
        return prompt.system_template.clone();
    };
    [
        over.system_template_prefix.as_deref().unwrap_or_default(),
        over.system_template.as_deref().unwrap_or(&prompt.system_template),
        over.system_template_suffix.as_deref().unwrap_or_default(),
    ]
    .concat()
}

/// One pass over all pieces of the pack.
fn expand(pieces: Vec<Piece>, values: &BTreeMap<&str, Piece>) -> Result<(Vec<Piece>, bool), RenderError> {
    let mut next = Vec::with_capacity(pieces.len());
    let mut replaced = false;
    let mut length = 0;
    for piece in pieces {
        if !piece.from_pack {
            length += piece.text.len();
            next.push(piece);
            continue;
        }
        let mut done = 0;
        for (range, tag) in tags(&piece.text) {
            let Tag::Name(name) = tag else { continue };
            let Some(value) = values.get(name) else { continue };
            next.push(Piece {
                text: piece.text[done..range.start].to_owned(),
                from_pack: true,
            });
            next.push(Piece {
                text: value.text.clone(),
                from_pack: value.from_pack,
            });
            length += range.start - done + value.text.len();
            done = range.end;
            replaced = true;
            if length > MAX_RENDERED_BYTES {
                return Err(RenderError::TooLong {
                    limit: MAX_RENDERED_BYTES,
                });
            }
        }
        length += piece.text.len() - done;
        next.push(Piece {
            text: piece.text[done..].to_owned(),
            from_pack: true,
        });
    }
    if length > MAX_RENDERED_BYTES {
        return Err(RenderError::TooLong {
            limit: MAX_RENDERED_BYTES,
        });
    }
    Ok((next, replaced))
}
