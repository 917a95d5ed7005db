//! How what a verb found is printed.

use clap::{Args, ValueEnum};

/// The option `-o`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct OutputArguments {
    /// How to print
    #[arg(short, long, value_name = "text|json", default_value = "text")]
    pub(crate) output: OutputForm,
}

impl OutputArguments {
    /// Whether a program is to read it.
    pub(crate) fn is_json(self) -> bool {
        self.output == OutputForm::Json
    }
}

/// The forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    /// For people.
    Text,
    /// For programs.
    Json,
}
