//! Normalised answers, and the files they are kept in.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context as _;
use serde_json::Value;

/// The answers to the steps of each case of one file, by the case's name.
pub type Answers = BTreeMap<String, Vec<Value>>;

/// What the reference answered when it was asked last: `golden/NAME.json`.
#[derive(Debug)]
pub struct Golden;

impl Golden {
    /// Reads the answers to a file of cases.
    ///
    /// # Errors
    /// The file cannot be read or is not of this form.
    pub fn read(root: &Path, name: &str) -> anyhow::Result<Answers> {
        let path = root.join("golden").join(format!("{name}.json"));
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("cannot parse {}", path.display()))
    }

    /// Writes the answers to a file of cases: one line for each answer.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(root: &Path, name: &str, answers: &Answers) -> anyhow::Result<()> {
        let path = root.join("golden").join(format!("{name}.json"));
        let mut text = String::from("{");
        for (index, (case, steps)) in answers.iter().enumerate() {
            let lines: Vec<String> = steps.iter().map(|step| format!("    {step}")).collect();
            text.push_str(if index == 0 { "\n" } else { ",\n" });
            text.push_str(&format!(
                "  {}: [\n{}\n  ]",
                Value::from(case.as_str()),
                lines.join(",\n")
            ));
        }
        text.push_str("\n}\n");
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
