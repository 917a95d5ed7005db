//! One operation of a document as a tool (OM-427, OM-428).

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Map, Value, json};

use super::{
    body::{self, Body},
    call::{Part, Plan},
    document::{Found, Operation, Version},
    name::ArgumentNames,
    parameter::{self, Location, Merged, Parameter, Piece, Placed},
    schema::{Converter, Detail, FULL_BYTES},
    server,
};

const DESCRIPTION_CHARACTERS: usize = 200;

// A summary is one line; operations may share one that is not.
const SUMMARY_CHARACTERS: usize = 1_024;

const MAX_PLACEHOLDERS: usize = 64;

/// Reads the operations of one document.
pub(super) struct Reader<'d> {
    pub(super) root: &'d Value,
    pub(super) version: Version,
    /// In lower case.
    pub(super) fixed_headers: BTreeSet<String>,
}

impl<'d> Reader<'d> {
    /// The operation, and about the bytes of its schemas.
    ///
    /// # Errors
    /// Why it cannot be a tool.
    pub(super) fn operation(&self, found: &Found<'d>, tool: String) -> Result<(Operation, usize), String> {
        let full = self.read(found, tool.clone(), Detail::Full)?;
        if full.1 <= FULL_BYTES {
            return Ok(full);
        }
        let compact = self.read(found, tool, Detail::Compact)?;
        Ok(if compact.1 < full.1 { compact } else { full })
    }

    fn read(&self, found: &Found<'d>, tool: String, detail: Detail) -> Result<(Operation, usize), String> {
        let method = Method::from_bytes(found.method.to_ascii_uppercase().as_bytes())
            .map_err(|error| error.to_string())?;
        let pieces = parameter::path_pieces(found.path);
        if pieces.len() > 2 * MAX_PLACEHOLDERS {
            return Err(format!("its path has more than {MAX_PLACEHOLDERS} placeholders"));
        }
        let merged = parameter::merge(self.root, found.item, found.fields)?;
        let mut converter = Converter::new(self.root, self.version, detail);
        let mut names = ArgumentNames::default();
        let mut input = Input::default();

        let (path, placed) = self.parameters(pieces, &merged, &mut converter, &mut names, &mut input);
        let described = body::describe(
            self.root,
            self.version,
            &method,
            found.fields,
            &merged,
            &mut converter,
        )?;
        let mut body_schema = described.as_ref().map(|body| body.schema.clone());
        let mut roots: Vec<&mut Value> = input.properties.values_mut().collect();
        roots.extend(body_schema.as_mut());
        let (definitions, bytes) = converter.finish(&mut roots);

        let body = match (described, body_schema) {
            (Some(described), Some(schema)) => {
                Some(described.place(schema, &definitions, &mut names, &mut input))
            }
            // What the document does not describe is still sent (OM-430).
            _ if matches!(method, Method::POST | Method::PUT | Method::PATCH) => Some(Body::undescribed()),
            _ => {
                input.additional = Some(json!(false));
                None
            }
        };
        let operation = Operation {
            id: found.id.clone(),
            tool,
            description: description(&method, found),
            input_schema: input.schema(definitions),
            plan: Plan {
                method: method.clone(),
                path,
                parameters: placed,
                body,
            },
            server: server::first(found.fields).or_else(|| server::first(found.item)),
            method,
            path: found.path.to_owned(),
        };
        Ok((operation, bytes))
    }

    /// The parts of the path and where each argument goes. Arguments are named in the order path, query,
    /// header, cookie, so that a path's keep their names.
    fn parameters(
        &self,
        pieces: Vec<Piece<'d>>,
        merged: &Merged<'d>,
        converter: &mut Converter<'d>,
        names: &mut ArgumentNames,
        input: &mut Input,
    ) -> (Vec<Part>, Vec<Placed>) {
        let mut parameters: Vec<Parameter<'d>> = merged
            .fields
            .iter()
            .filter_map(|fields| Parameter::read(fields, self.version))
            .filter(|parameter| {
                parameter.location != Location::Header
                    || !(parameter::is_reserved_header(parameter.name)
                        || self.fixed_headers.contains(&parameter.name.to_ascii_lowercase()))
            })
            .collect();
        parameters.sort_by_key(|parameter| parameter.location);

        let mut in_path: BTreeMap<&str, usize> = BTreeMap::new();
        let mut placed = Vec::new();
        for piece in &pieces {
            let Piece::Placeholder(name) = piece else {
                continue;
            };
            if in_path.contains_key(name) {
                continue;
            }
            let declared = parameters
                .iter()
                .find(|parameter| parameter.location == Location::Path && parameter.name == *name);
            let argument = names.take(name, Location::Path.word());
            let schema = match declared {
                Some(parameter) => parameter.schema(converter),
                // The path needs it whether or not the document declares it.
                None => json!({"type": "string"}),
            };
            input.require(&argument);
            input.properties.insert(argument.clone(), schema);
            in_path.insert(name, placed.len());
            placed.push(match declared {
                Some(parameter) => parameter.placed(argument),
                None => Placed::path(name, argument),
            });
        }
        for parameter in &parameters {
            // A path parameter that its path does not name has no place.
            if parameter.location == Location::Path {
                continue;
            }
            let argument = names.take(parameter.name, parameter.location.word());
            if parameter.required {
                input.require(&argument);
            }
            let schema = parameter.schema(converter);
            input.properties.insert(argument.clone(), schema);
            placed.push(parameter.placed(argument));
        }
        let path = pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => Part::Text(text.to_owned()),
                Piece::Placeholder(name) => Part::Parameter(in_path.get(name).copied().unwrap_or_default()),
            })
            .collect();
        (path, placed)
    }
}

/// The schema of the arguments while it is put together.
#[derive(Debug, Default)]
pub(super) struct Input {
    pub(super) properties: Map<String, Value>,
    pub(super) additional: Option<Value>,
    required: Vec<String>,
    is_required: BTreeSet<String>,
}

impl Input {
    pub(super) fn require(&mut self, argument: &str) {
        if self.is_required.insert(argument.to_owned()) {
            self.required.push(argument.to_owned());
        }
    }

    fn schema(self, definitions: Map<String, Value>) -> Value {
        let mut schema = json!({"type": "object", "properties": self.properties});
        if !self.required.is_empty() {
            schema["required"] = json!(self.required);
        }
        if let Some(additional) = self.additional {
            schema["additionalProperties"] = additional;
        }
        if !definitions.is_empty() {
            schema["$defs"] = Value::Object(definitions);
        }
        schema
    }
}

/// OM-427.
fn description(method: &Method, found: &Found<'_>) -> String {
    let text = |key: &str| {
        found
            .fields
            .get(key)
            .and_then(Value::as_str)
            .map(str::trim)
            .filter(|text| !text.is_empty())
    };
    if let Some(summary) = text("summary") {
        return summary.chars().take(SUMMARY_CHARACTERS).collect();
    }
    match text("description") {
        Some(description) if description.chars().count() > DESCRIPTION_CHARACTERS => {
            let cut: String = description.chars().take(DESCRIPTION_CHARACTERS - 3).collect();
            format!("{cut}...")
        }
        Some(description) => description.to_owned(),
        None => format!("{method} {}", found.path),
    }
}
