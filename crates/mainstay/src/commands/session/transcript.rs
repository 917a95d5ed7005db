//! Events for people: one line each.

use mainstay_agent::event::{CallOutcome, Event, Payload, PolicyDecided};
use mainstay_telemetry::text::escape;

/// The longest shown text of an event, in bytes.
const SHOWN: usize = 400;
/// Characters of the longest type, so that what follows stands in a column.
const TYPE_WIDTH: usize = 21;

/// A time to the second.
pub(super) fn second(time: impl std::fmt::Display) -> String {
    let text = time.to_string();
    match text.split_once('.') {
        Some((whole, _)) => format!("{whole}Z"),
        None => text,
    }
}

/// Number, time, type, and what it says.
pub(super) fn line(event: &Event) -> String {
    let number = event.seq.map(|seq| seq.to_string()).unwrap_or_default();
    let text = format!(
        "{number:>5}  {}  {:<TYPE_WIDTH$}  {}",
        second(event.time),
        escape(&event.kind, TYPE_WIDTH),
        says(event)
    );
    text.trim_end().to_owned()
}

fn says(event: &Event) -> String {
    let cut = |text: &str| escape(text, SHOWN);
    match event.payload() {
        Some(Payload::TurnStarted(started)) => {
            let unused = match started.unused.as_slice() {
                [] => String::new(),
                names => format!(", without effect: {}", names.join(", ")),
            };
            format!(
                "prompt {}, provider {}{unused}",
                cut(&started.prompt),
                cut(&started.provider)
            )
        }
        Some(Payload::Message(message)) => format!("{}: {}", cut(&message.role), cut(&message.content)),
        Some(Payload::ModelStarted(started)) => format!("round {} {}", started.round, cut(&started.model)),
        Some(Payload::ModelDone(done)) => {
            let calls: Vec<String> = done
                .tool_calls
                .iter()
                .map(|call| format!("→ {} {}", call.name, call.arguments))
                .collect();
            cut(format!("{} {}", done.text, calls.join(" ")).trim())
        }
        Some(Payload::ModelFailed(failed)) => format!("{}: {}", cut(&failed.reason), cut(&failed.message)),
        Some(Payload::ModelRestarted(restarted)) => cut(&restarted.reason),
        Some(Payload::ModelCooled(cooled)) => {
            format!(
                "{} until {}: {}",
                cut(&cooled.provider),
                second(cooled.until),
                cut(&cooled.reason)
            )
        }
        Some(Payload::PolicyDecided(decided)) => decision(&decided),
        Some(Payload::ToolStarted(started)) => cut(&format!("{} {}", started.tool, started.arguments)),
        Some(Payload::ToolFinished(finished)) => {
            let outcome = match finished.outcome {
                CallOutcome::Succeeded => "succeeded",
                CallOutcome::Failed => "failed",
                CallOutcome::Denied => "denied",
                CallOutcome::Refused => "refused",
                CallOutcome::Unknown => "outcome unknown",
            };
            cut(&format!(
                "{} {outcome} ({} ms): {}",
                finished.tool, finished.duration_ms, finished.content
            ))
        }
        Some(Payload::ClientToolRequested(requested)) => {
            cut(&format!("{} {}", requested.tool, requested.arguments))
        }
        Some(Payload::Usage(usage)) => {
            format!("{} tokens in, {} out", usage.input_tokens, usage.output_tokens)
        }
        Some(Payload::TurnDone(done)) => format!(
            "{} rounds, {} tool calls",
            done.totals.rounds, done.totals.tool_calls
        ),
        Some(Payload::TurnFailed(failed)) => format!("{}: {}", cut(&failed.reason), cut(&failed.message)),
        Some(Payload::TurnCancelled(cancelled)) => cut(&cancelled.reason),
        // Newer than this program, or not worth words of its own: as it is.
        _ => cut(&event.data.to_string()),
    }
}

fn decision(decided: &PolicyDecided) -> String {
    let by = [decided.denied_by.as_deref(), decided.policy.as_deref()];
    let by: Vec<&str> = by.into_iter().flatten().collect();
    let by = match by.is_empty() {
        true => String::new(),
        false => format!(" by {}", by.join(" of ")),
    };
    let word = match (decided.allow, decided.would_deny) {
        (false, _) => "denied",
        (true, true) => "allowed, would be denied",
        (true, false) => "allowed",
    };
    let message = match decided.message.as_deref() {
        Some(message) if !message.is_empty() => format!(": {message}"),
        _ => String::new(),
    };
    escape(&format!("{} {word}{by}{message}", decided.tool), SHOWN)
}
