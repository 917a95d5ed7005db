//! Manifest files: found, split into documents, read, and remembered with the line of every field, so that a refusal
//! can name where it stands.

mod lines;

use std::path::{Path, PathBuf};

use serde_json::Value;

pub(crate) use lines::LineIndex;

use crate::terminal::Failure;

/// The largest manifest file that is read.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// One object of a manifest file.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// The file.
    pub(crate) file: PathBuf,
    /// Where each field stands.
    pub(crate) lines: LineIndex,
    /// The object.
    pub(crate) object: Value,
}

impl Manifest {
    /// `apiVersion`
    pub(crate) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// `kind`
    pub(crate) fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// `metadata.name`
    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// `metadata.namespace`, where one is given.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.object.pointer("/metadata/namespace").and_then(Value::as_str)
    }

    fn text(&self, pointer: &str) -> &str {
        self.object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// `FILE:LINE` of `field`, or of the nearest field above it that the file holds.
    pub(crate) fn place(&self, field: &str) -> String {
        format!("{}:{}", self.file.display(), self.lines.line(field))
    }

    /// Where the object comes when several are applied: what others live in or are described by comes first.
    fn rank(&self) -> u8 {
        match self.kind() {
            "Namespace" => 0,
            "CustomResourceDefinition" => 1,
            "ServiceAccount" | "Secret" | "ConfigMap" => 2,
            "Provider" | "PromptPack" | "ToolRegistry" | "ToolPolicy" => 3,
            _ => 4,
        }
    }
}

/// What reading the given paths came to. A file or document that cannot be read does not stop the others.
#[derive(Debug, Default)]
pub(crate) struct Read {
    /// The objects, in the order in which they are to be applied.
    pub(crate) manifests: Vec<Manifest>,
    /// What could not be read; each names file and line.
    pub(crate) failures: Vec<Failure>,
}

/// The name that stands for standard input.
const STANDARD_INPUT: &str = "-";

/// Reads every manifest below `paths`; `-` is standard input.
pub(crate) fn read(paths: &[PathBuf]) -> Read {
    let mut read = Read::default();
    for path in paths {
        if path == Path::new(STANDARD_INPUT) {
            let shown = Path::new("standard input");
            take(shown, text_of(std::io::stdin().lock()), &mut read);
            continue;
        }
        match files_below(path) {
            Ok(files) if files.is_empty() => {
                read.failures.push(Failure::new(format!(
                    "{}: no *.yaml, *.yml or *.json file",
                    path.display()
                )));
            }
            Ok(files) => files.iter().for_each(|file| read_file(file, &mut read)),
            Err(failure) => read.failures.push(failure),
        }
    }
    read.manifests.sort_by_key(Manifest::rank);
    read
}

/// The manifest files that a path stands for.
///
/// # Errors
///
/// When the path is not there or cannot be read.
pub(crate) fn files_below(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let unreadable = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    if !path.is_dir() {
        std::fs::metadata(path).map_err(unreadable)?;
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        let known = file.extension().and_then(|extension| extension.to_str());
        if file.is_file() && matches!(known, Some("yaml" | "yml" | "json")) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read_file(file: &Path, read: &mut Read) {
    take(file, std::fs::File::open(file).and_then(text_of), read);
}

/// All of a text, unless it is larger than a manifest file may be.
fn text_of(source: impl std::io::Read) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    source.take(LARGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST_FILE {
        return Err(std::io::Error::other(format!(
            "larger than {} MiB",
            LARGEST_FILE / (1024 * 1024)
        )));
    }
    Ok(text)
}

fn take(file: &Path, text: std::io::Result<String>, read: &mut Read) {
    let text = match text {
        Ok(text) => text,
        Err(error) => {
            read.failures
                .push(Failure::new(format!("{}: {error}", file.display())));
            return;
        }
    };
    for (first_line, document) in documents(&text) {
        match parse(file, first_line, document) {
            Ok(found) => read.manifests.extend(found),
            Err(failure) => read.failures.push(failure),
        }
    }
}

/// The documents of `text` with the number of their first line (from 1), split as kubectl splits them: at lines that
/// begin with `---`.
fn documents(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let (mut start, mut first_line) = (0, 1);
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let separator = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.trim().is_empty() || rest.starts_with(' '));
        if separator {
            found.push((first_line, text.get(start..offset).unwrap_or_default()));
            start = offset + line.len();
            first_line = number + 2;
        }
        offset += line.len();
    }
    found.push((first_line, text.get(start..).unwrap_or_default()));
    found.retain(|(_, document)| {
        document
            .lines()
            .any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    });
    found
}

fn parse(file: &Path, first_line: usize, document: &str) -> Result<Vec<Manifest>, Failure> {
    let lines = LineIndex::of(document, first_line)
        .map_err(|error| Failure::new(format!("{}:{}: {}", file.display(), error.line, error.reason)))?;
    let object: Value = serde_saphyr::from_str(document).map_err(|error| {
        let line = error
            .location()
            .map_or(first_line, |place| first_line + place.line() as usize - 1);
        Failure::new(format!(
            "{}:{line}: {}",
            file.display(),
            one_line(&error.to_string())
        ))
    })?;
    if let Some(key) = lines.duplicate() {
        return Err(Failure::new(format!(
            "{}:{}: field `{}` stands twice",
            file.display(),
            key.line,
            key.field
        )));
    }
    if object.get("kind").and_then(Value::as_str) == Some("List") {
        let items = object
            .get("items")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        return items
            .into_iter()
            .enumerate()
            .map(|(index, item)| identified(file, lines.below(&format!("items[{index}]")), item))
            .collect();
    }
    identified(file, lines, object).map(|manifest| vec![manifest])
}

fn identified(file: &Path, lines: LineIndex, object: Value) -> Result<Manifest, Failure> {
    let manifest = Manifest {
        file: file.to_owned(),
        lines,
        object,
    };
    if !manifest.object.is_object() {
        return Err(Failure::new(format!("{}: not an object", manifest.place(""))));
    }
    for (field, text) in [
        ("apiVersion", manifest.api_version()),
        ("kind", manifest.kind()),
        ("metadata.name", manifest.name()),
    ] {
        if text.is_empty() {
            return Err(Failure::new(format!(
                "{}: `{field}` is missing or not a text",
                manifest.place(field)
            )));
        }
    }
    Ok(manifest)
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read_text(text: &str) -> Read {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.yaml");
        std::fs::write(&file, text).unwrap();
        let mut read = super::read(std::slice::from_ref(&file));
        for failure in &mut read.failures {
            failure.text = failure.text.replace(&*file.to_string_lossy(), "a.yaml");
        }
        read
    }

    #[test]
    fn a_broken_document_names_its_line_and_the_others_are_read() {
        let read = read_text(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n---\n# comment only\n---\nkind: [\n---\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: two\n",
        );
        let names: Vec<&str> = read.manifests.iter().map(Manifest::name).collect();
        assert_eq!(names, ["two", "one"], "namespaces come first");
        assert_eq!(read.failures.len(), 1);
        assert!(
            read.failures[0].text.starts_with("a.yaml:7:") || read.failures[0].text.starts_with("a.yaml:8:"),
            "{}",
            read.failures[0].text
        );
    }

    #[test]
    fn a_field_is_found_at_its_line() {
        let read = read_text(
            "kind: A\napiVersion: v1\nmetadata:\n  name: x\nspec:\n  handlers:\n    - name: a\n    - name: b\n      endpoint: y\n",
        );
        let manifest = &read.manifests[0];
        assert!(manifest.place("spec.handlers[1].endpoint").ends_with(":9"));
        assert!(manifest.place("spec.handlers[1].absent").ends_with(":8"));
        assert!(manifest.place("").ends_with(":1"));
    }

    #[test]
    fn a_missing_name_and_a_repeated_field_are_refused() {
        let read = read_text(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n---\napiVersion: v1\nkind: ConfigMap\nkind: Secret\nmetadata: {name: a}\n",
        );
        let texts: Vec<&str> = read
            .failures
            .iter()
            .map(|failure| failure.text.as_str())
            .collect();
        assert_eq!(texts[0], "a.yaml:3: `metadata.name` is missing or not a text");
        assert!(texts[1].starts_with("a.yaml:7: "), "{}", texts[1]);
    }

    #[test]
    fn the_items_of_a_list_are_objects_of_their_own() {
        let read = read_text(
            "kind: List\napiVersion: v1\nitems:\n  - apiVersion: v1\n    kind: ConfigMap\n    metadata:\n      name: a\n",
        );
        assert_eq!(read.manifests[0].name(), "a");
        assert!(read.manifests[0].place("metadata.name").ends_with(":7"));
    }
}
