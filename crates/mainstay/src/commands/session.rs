//! `mainstay session`

mod source;
mod transcript;

use mainstay_server::sessions::{SessionExport, SessionSummary};
use mainstay_telemetry::clock;
use serde_json::json;

use self::source::Source;
use crate::{
    arguments::session::{
        SessionArguments, SessionCommand, SessionExportArguments, SessionListArguments, SessionShowArguments,
    },
    terminal,
    terminal::Failure,
};

/// Lists sessions, shows one, or prints one whole.
pub(crate) async fn run(arguments: &SessionArguments) -> Result<(), Failure> {
    match &arguments.command {
        SessionCommand::List(arguments) => list(arguments).await,
        SessionCommand::Show(arguments) => show(arguments).await,
        SessionCommand::Export(arguments) => export(arguments).await,
    }
}

async fn list(arguments: &SessionListArguments) -> Result<(), Failure> {
    let source = Source::open(&arguments.place).await?;
    let sessions = source.list(usize::from(arguments.limit)).await?;
    if arguments.output.is_json() {
        terminal::data(format!("{:#}", json!({ "sessions": sessions })));
        return Ok(());
    }
    if sessions.is_empty() {
        let place = &arguments.place;
        terminal::message(match &place.agent {
            Some(agent) => format!("no sessions of agent {agent} in namespace {}", place.namespace),
            None => format!("no sessions in namespace {}", place.namespace),
        });
        return Ok(());
    }
    let mut rows = vec![
        ["SESSION", "AGENT", "STARTED", "LAST USED", "MESSAGES", "EVENTS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let now = clock::system().now();
    rows.extend(sessions.iter().map(|session| {
        let unused = now.duration_since(session.last_activity).as_secs();
        vec![
            session.session.clone(),
            session.agent.clone(),
            transcript::second(session.started),
            format!("{} ago", age(unused)),
            session.messages.to_string(),
            session.events.to_string(),
        ]
    }));
    terminal::data(terminal::table(&rows));
    Ok(())
}

/// Seconds in the largest unit that has at least two of them, as kubectl shows ages.
fn age(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7200 => format!("{}m", seconds / 60),
        seconds @ 7200..172_800 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

async fn show(arguments: &SessionShowArguments) -> Result<(), Failure> {
    let source = Source::open(&arguments.place).await?;
    let session = source.find(&arguments.session).await?;
    let mut after = match arguments.limit {
        Some(limit) => session.events.saturating_sub(limit),
        None => 0,
    };
    let json = arguments.output.is_json();
    if !json {
        terminal::message(headline(&session));
    }
    // Page by page: a session may be larger than what should be held at once.
    loop {
        let page = source.events(&session, after).await?;
        for event in &page.events {
            terminal::data(if json {
                serde_json::to_string(event)
                    .map_err(|error| Failure::new(format!("an event cannot be written: {error}")))?
            } else {
                transcript::line(event)
            });
        }
        match page.events.last().and_then(|event| event.seq) {
            Some(last) if page.more => after = last,
            _ => return Ok(()),
        }
    }
}

fn headline(session: &SessionSummary) -> String {
    format!(
        "session {} of agent {}, begun {}, last used {}",
        session.session,
        session.agent,
        transcript::second(session.started),
        transcript::second(session.last_activity)
    )
}

async fn export(arguments: &SessionExportArguments) -> Result<(), Failure> {
    let source = Source::open(&arguments.place).await?;
    let session = source.find(&arguments.session).await?;
    let mut events = Vec::new();
    loop {
        let after = events.last().and_then(|event: &mainstay_agent::Event| event.seq);
        let page = source.events(&session, after.unwrap_or(0)).await?;
        let ends = !page.more || page.events.is_empty();
        events.extend(page.events);
        if ends {
            break;
        }
    }
    let document = serde_json::to_string_pretty(&SessionExport::new(session, events))
        .map_err(|error| Failure::new(format!("the session cannot be written: {error}")))?;
    terminal::data(document);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_in_the_largest_unit_that_says_enough() {
        for (seconds, shown) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7199, "119m"),
            (7200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(seconds), shown);
        }
    }
}
