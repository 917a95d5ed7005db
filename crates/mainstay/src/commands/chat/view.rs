//! Shows a turn: the answer on standard output as it streams, tool calls and refusals on standard error.

use mainstay_agent::event::{CallOutcome, Event, Payload};
use mainstay_telemetry::text::escape;

use crate::terminal;

/// The longest shown piece of arguments or result, in bytes.
const SHOWN: usize = 240;

/// What has been shown so far.
#[derive(Debug)]
pub(super) struct View {
    json: bool,
    /// Bytes of the running attempt's text that were shown.
    shown: u64,
    /// Whether the cursor stands behind text.
    in_line: bool,
}

impl View {
    /// A view that prints events as they are where `json` is set.
    pub(super) fn new(json: bool) -> Self {
        Self {
            json,
            shown: 0,
            in_line: false,
        }
    }

    /// Ends a line that was begun.
    pub(super) fn break_line(&mut self) {
        if self.in_line {
            terminal::data("");
            self.in_line = false;
        }
    }

    /// Shows `event`, whose text is `raw`.
    pub(super) fn show(&mut self, event: &Event, raw: &str) {
        if self.json {
            terminal::data(raw);
            return;
        }
        match event.payload() {
            Some(Payload::ModelStarted(_)) => self.shown = 0,
            Some(Payload::ModelDelta(delta)) => self.text(delta.offset, &delta.text),
            Some(Payload::ModelDone(done)) => {
                // What no delta brought: a reader that came late, or a guardrail that changed the text.
                self.text(0, &done.text);
                self.break_line();
                self.shown = 0;
            }
            Some(Payload::ModelRestarted(restarted)) => {
                self.break_line();
                self.shown = 0;
                terminal::message(format!(
                    "(the model begins again: {})",
                    escape(&restarted.reason, SHOWN)
                ));
            }
            Some(Payload::ModelCooled(cooled)) => {
                self.break_line();
                terminal::message(format!(
                    "(the provider {} is left alone until {}: {})",
                    escape(&cooled.provider, SHOWN),
                    cooled.until,
                    escape(&cooled.reason, SHOWN)
                ));
            }
            // The turn's own failure says why; here the text that was shown is void.
            Some(Payload::ModelFailed(_)) => {
                self.break_line();
                self.shown = 0;
            }
            Some(Payload::ToolStarted(started)) => {
                self.break_line();
                let again = if started.repeated {
                    " (again, after an unknown outcome)"
                } else {
                    ""
                };
                let arguments = escape(&started.arguments.to_string(), SHOWN);
                terminal::message(format!("→ {} {arguments}{again}", escape(&started.tool, SHOWN)));
            }
            Some(Payload::ToolFinished(finished)) => {
                self.break_line();
                let (tool, content) = (escape(&finished.tool, SHOWN), escape(&finished.content, SHOWN));
                terminal::message(match finished.outcome {
                    CallOutcome::Succeeded => format!("← {tool} {content} ({} ms)", finished.duration_ms),
                    CallOutcome::Denied | CallOutcome::Refused => format!("✗ {tool} {content}"),
                    CallOutcome::Failed => format!("✗ {tool} failed: {content}"),
                    CallOutcome::Unknown => format!("? {tool} {content}"),
                });
            }
            _ => {}
        }
    }

    /// Shows the part of `text`, which begins at `offset` of its attempt, that was not shown yet.
    fn text(&mut self, offset: u64, text: &str) {
        let end = offset + text.len() as u64;
        if end <= self.shown {
            return;
        }
        let known = usize::try_from(self.shown.saturating_sub(offset)).unwrap_or(usize::MAX);
        let fresh = text.get(known..).unwrap_or(text);
        terminal::stream(&terminal::printable(fresh));
        self.shown = end;
        self.in_line = !fresh.ends_with('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_deltas_brought_is_not_shown_again() {
        let mut view = View::new(false);
        view.text(0, "Order ");
        view.text(6, "1017");
        assert_eq!(view.shown, 10);
        view.text(0, "Order 1017");
        assert_eq!(view.shown, 10);
    }
}
