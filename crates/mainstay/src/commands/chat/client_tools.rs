//! Tools that run here and not in the agent (OM-432…OM-434): a program of the user's, or the user.

use std::{collections::BTreeMap, process::Stdio};

use futures::future::BoxFuture;
use mainstay_agent::event::ClientToolRequested;
use mainstay_telemetry::text::escape;
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::Command,
};

use crate::terminal::Failure;

/// The longest shown arguments, in bytes.
const SHOWN: usize = 400;
/// The largest result of a program, in bytes.
const LARGEST_RESULT: u64 = 1 << 20;
/// How much a program may say about its failure, in bytes.
const LARGEST_COMPLAINT: u64 = 1 << 10;

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The result.
    Result(Value),
    /// It ran and failed.
    Failed(String),
    /// It is not run.
    Rejected(String),
}

/// The programs that the user named for tools.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientTools {
    programs: BTreeMap<String, String>,
    unasked: bool,
}

impl ClientTools {
    /// Reads `--client-tool NAME=COMMAND`; `unasked` runs them without a question.
    pub(super) fn read(given: &[String], unasked: bool) -> Result<Self, Failure> {
        let programs = given
            .iter()
            .map(|text| match text.split_once('=') {
                Some((name, command)) if !name.is_empty() && !command.trim().is_empty() => {
                    Ok((name.to_owned(), command.to_owned()))
                }
                _ => Err(Failure::new(format!(
                    "`--client-tool {text}` is not of the form NAME=COMMAND"
                ))),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { programs, unasked })
    }

    /// Whether there is a program for the tool.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.programs.contains_key(tool)
    }

    /// Whether the tool runs without a question.
    pub(super) fn runs_unasked(&self, tool: &str) -> bool {
        self.unasked && self.has(tool)
    }

    /// What the user is asked: the tool, why (OM-433), what it touches, and with which arguments.
    pub(super) fn question(&self, call: &ClientToolRequested) -> String {
        let mut text = format!("? {} {}", call.tool, escape(&call.arguments.to_string(), SHOWN));
        if let Some(message) = &call.consent_message {
            text.push_str(&format!("\n  {}", escape(message, SHOWN)));
        }
        if !call.categories.is_empty() {
            text.push_str(&format!(
                "\n  it touches: {}",
                escape(&call.categories.join(", "), SHOWN)
            ));
        }
        match self.programs.get(&call.tool) {
            Some(program) => text.push_str(&format!("\n  it runs here: {}", escape(program, SHOWN))),
            None => text.push_str("\n  it is to run here, by you"),
        }
        text
    }

    /// A result that the user typed.
    pub(super) fn typed(text: &str) -> Answer {
        Answer::Result(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)))
    }

    /// Runs the tool's program: the arguments on its standard input as JSON, the result from its standard output. It ends
    /// with the future.
    pub(super) fn run(&self, call: &ClientToolRequested) -> BoxFuture<'static, (String, Answer)> {
        let program = self.programs.get(&call.tool).cloned().unwrap_or_default();
        let arguments = call.arguments.to_string();
        let call_id = call.call_id.clone();
        Box::pin(async move {
            let answer = match output(&program, &arguments).await {
                Ok(text) => Self::typed(text.trim()),
                Err(why) => Answer::Failed(why),
            };
            (call_id, answer)
        })
    }
}

async fn output(program: &str, arguments: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the program cannot be run: {error}");
    let mut child = Command::new("sh")
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let (Some(mut input), Some(out), Some(complaint)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("the program's input and output cannot be used".to_owned());
    };
    let feeding = async move {
        // A program that does not read its arguments closes its input; that is its own affair.
        let _ = input.write_all(arguments.as_bytes()).await;
    };
    let (mut text, mut said) = (Vec::new(), Vec::new());
    let reading = async {
        // Dropped when it is full: a program that says more is told so by the system and ends.
        let mut out = out.take(LARGEST_RESULT + 1);
        out.read_to_end(&mut text).await
    };
    let listening = async {
        let mut complaint = complaint.take(LARGEST_COMPLAINT);
        complaint.read_to_end(&mut said).await?;
        // The rest is read too, so that nothing holds the program up.
        tokio::io::copy(&mut complaint.into_inner(), &mut tokio::io::sink()).await
    };
    let ((), read, listened) = tokio::join!(feeding, reading, listening);
    read.and(listened.map(|_| 0)).map_err(failed)?;
    if text.len() as u64 > LARGEST_RESULT {
        return Err(format!("the result is larger than {LARGEST_RESULT} bytes"));
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&text).into_owned());
    }
    let said = String::from_utf8_lossy(&said);
    Err(match said.trim() {
        "" => format!("the program ended with {status}"),
        said => format!("the program ended with {status}: {said}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn call(tool: &str) -> ClientToolRequested {
        ClientToolRequested {
            call_id: "c1".to_owned(),
            tool: tool.to_owned(),
            arguments: json!({"near": "a\u{1b}[2J"}),
            consent_message: Some("May I know where you are?".to_owned()),
            categories: vec!["location".to_owned()],
        }
    }

    fn tools(program: &str) -> ClientTools {
        ClientTools::read(&[format!("locate={program}")], false).unwrap()
    }

    #[test]
    fn om_433_the_question_names_tool_reason_categories_and_what_would_run() {
        assert_eq!(
            tools("./locate").question(&call("locate")),
            "? locate {\"near\":\"a\\u001b[2J\"}\n  May I know where you are?\n  it touches: location\n  it runs here: ./locate"
        );
        assert!(
            ClientTools::default()
                .question(&call("locate"))
                .ends_with("it is to run here, by you")
        );
    }

    #[tokio::test]
    async fn om_432_a_program_gets_the_arguments_and_gives_the_result() {
        for (program, answer) in [
            ("cat", Answer::Result(json!({"near": "a\u{1b}[2J"}))),
            ("echo here", Answer::Result(json!("here"))),
            ("true", Answer::Result(json!(""))),
            (
                "echo no fix >&2; exit 3",
                Answer::Failed("the program ended with exit status: 3: no fix".to_owned()),
            ),
            (
                "head -c 2000000 /dev/zero",
                Answer::Failed("the result is larger than 1048576 bytes".to_owned()),
            ),
        ] {
            assert_eq!(
                tools(program).run(&call("locate")).await,
                ("c1".to_owned(), answer),
                "{program}"
            );
        }
    }

    #[test]
    fn what_is_no_client_tool_is_refused() {
        for given in ["locate", "=x", "locate= "] {
            assert!(ClientTools::read(&[given.to_owned()], true).is_err(), "{given}");
        }
    }
}
