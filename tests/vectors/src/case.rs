//! The format of a file of cases. `cases/README.md` describes it for authors.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::Value;

/// Every file of cases.
#[derive(Debug)]
pub struct Suite {
    /// The files, by name.
    pub files: Vec<CaseFile>,
}

/// Cases that share objects made before them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseFile {
    /// The file's name without `.yaml`.
    #[serde(skip)]
    pub name: String,
    /// Requirement ids that every case covers, for example `KA-013`.
    #[serde(default)]
    pub requirements: Vec<String>,
    /// Where the facts come from.
    #[serde(default)]
    pub source: String,
    /// Sent once, before the cases; compared like a case named `shared`.
    #[serde(default)]
    pub shared: Vec<Step>,
    /// The cases.
    pub cases: Vec<Case>,
}

/// A script of requests in a namespace of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// A sentence that says what holds.
    pub name: String,
    /// Requirement ids beyond those of the file.
    #[serde(default)]
    pub requirements: Vec<String>,
    /// Where this case's fact comes from, when it is not the file's source.
    #[serde(default)]
    pub source: String,
    /// The requests, in order.
    pub steps: Vec<Step>,
}

/// A request, or the events of a watch that an earlier step opened.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// `VERB PATH`, with the query.
    #[serde(default)]
    pub request: String,
    /// Headers beyond `Accept: application/json` and the content type.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// `json` (the default), `yaml`, `merge`, `json-patch`, `strategic`, `apply`, or a media type.
    #[serde(default, rename = "type")]
    pub content: String,
    /// The body, sent as JSON.
    #[serde(default)]
    pub body: Option<Value>,
    /// The body, sent as it is.
    #[serde(default)]
    pub text: Option<String>,
    /// Sent without credentials.
    #[serde(default)]
    pub anonymous: bool,
    /// Repeats the step, with `{each}` replaced by every one of these.
    #[serde(default)]
    pub each: Vec<String>,
    /// Names that later steps use as placeholders, with the JSON pointers of their values in the answer's body.
    #[serde(default)]
    pub capture: BTreeMap<String, String>,
    /// Repeats the request until its answer is like this.
    #[serde(default)]
    pub until: Option<Until>,
    /// Nothing but these JSON pointers of the body is compared. A segment `[key=value]` picks from an array.
    #[serde(default)]
    pub compare: Vec<String>,
    /// These JSON pointers of the body are not compared.
    #[serde(default)]
    pub ignore: Vec<String>,
    /// The order of causes and of the parts of a message is not compared: the reference takes it from a hash map.
    #[serde(default)]
    pub unordered: bool,
    /// Nothing of the answer is compared: the step only prepares.
    #[serde(default)]
    pub silent: bool,
    /// Opens a watch under this name; its events are read by `collect`.
    #[serde(default)]
    pub watch: Option<String>,
    /// Reads from the watch of this name.
    #[serde(default)]
    pub collect: Option<String>,
    /// How many events `collect` reads; without it, up to the end of the stream.
    #[serde(default)]
    pub events: Option<usize>,
}

/// What an answer must be like for the script to go on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// The HTTP status.
    #[serde(default)]
    pub status: Option<u16>,
    /// Values by JSON pointer; `null` stands for an absent one.
    #[serde(default)]
    pub body: IndexMap<String, Value>,
}

impl Suite {
    /// Reads `cases/*.yaml` below `root`, the folder of this crate.
    ///
    /// # Errors
    /// A file that cannot be read, or a case without a name of its own, a requirement or a source.
    pub fn load(root: &Path) -> anyhow::Result<Self> {
        let folder = root.join("cases");
        let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
            .with_context(|| format!("cannot read {}", folder.display()))?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
        paths.sort();
        let files = paths
            .iter()
            .map(|path| CaseFile::load(path))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { files })
    }
}

/// `y` and `on` are texts, as in JSON.
fn yaml_options() -> serde_saphyr::Options {
    serde_saphyr::options! { strict_booleans: true }
}

impl CaseFile {
    fn load(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Self::parse(&name, &text)
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// As for [`Suite::load`].
    pub fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut file: Self = serde_saphyr::from_str_with_options(text, yaml_options())
            .with_context(|| format!("cases/{name}.yaml"))?;
        name.clone_into(&mut file.name);
        let mut names = BTreeSet::from(["shared"]);
        for case in &file.cases {
            let place = format!("cases/{name}.yaml, {:?}", case.name);
            ensure!(names.insert(&case.name), "{place}: the name is taken");
            ensure!(
                !file.requirements.is_empty() || !case.requirements.is_empty(),
                "{place}: covers no requirement"
            );
            ensure!(
                !file.source.is_empty() || !case.source.is_empty(),
                "{place}: names no source"
            );
            ensure!(!case.steps.is_empty(), "{place}: has no steps");
        }
        for step in file.steps() {
            let place = format!("cases/{name}.yaml, step {:?}", step.request);
            ensure!(
                step.request.is_empty() == step.collect.is_some(),
                "{place}: is either a request or a collect"
            );
            ensure!(
                step.body.is_none() || step.text.is_none(),
                "{place}: has two bodies"
            );
        }
        Ok(file)
    }

    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.shared
            .iter()
            .chain(self.cases.iter().flat_map(|case| &case.steps))
    }

    /// The requirement ids of a case.
    pub fn requirements_of<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a str> {
        self.requirements
            .iter()
            .chain(&case.requirements)
            .map(String::as_str)
    }
}
