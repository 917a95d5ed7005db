//! Where sessions are read: from the server that runs, else from the file it left behind.

use std::path::Path;

use mainstay_server::sessions::{EventPage, LAST, SessionSummary, Sessions, SessionsError};
use mainstay_store::{
    layout::Upgrade,
    payload::{PayloadOptions, PayloadStore},
};
use serde::Deserialize;

use crate::{
    arguments::session::SessionPlace,
    endpoints::{Endpoints, Server},
    front_door_client::{FrontDoorClient, Refused},
    terminal::Failure,
};

/// The sessions of a data directory.
#[derive(Debug)]
pub(super) struct Source {
    namespace: String,
    agent: Option<String>,
    from: From,
}

#[derive(Debug)]
enum From {
    Server(FrontDoorClient),
    File(Sessions),
}

#[derive(Debug, Deserialize)]
struct Listed {
    sessions: Vec<SessionSummary>,
}

impl Source {
    /// Asks the server of the directory, or opens its file where none runs. A file of an older layout is not upgraded.
    pub(super) async fn open(place: &SessionPlace) -> Result<Self, Failure> {
        let data = &place.data.data;
        let from = match Endpoints::settled(data).await? {
            Server::Running(endpoints) => From::Server(FrontDoorClient::new(&endpoints)?),
            Server::Starting { pid } => return Err(Endpoints::still_starting(pid)),
            Server::Absent => From::File(file(data).await?),
        };
        Ok(Self {
            namespace: place.namespace.clone(),
            agent: place.agent.clone(),
            from,
        })
    }

    /// The sessions, the last used first.
    pub(super) async fn list(&self, limit: usize) -> Result<Vec<SessionSummary>, Failure> {
        match &self.from {
            From::File(sessions) => sessions
                .list(&self.namespace, self.agent.as_deref(), limit)
                .await
                .map_err(|error| not_read(&error)),
            From::Server(client) => {
                let mut query = self.query();
                query.extend([
                    ("namespace", self.namespace.clone()),
                    ("limit", limit.to_string()),
                ]);
                let listed: Listed = client.get(&["api", "sessions"], &query).await.map_err(refused)?;
                Ok(listed.sessions)
            }
        }
    }

    /// The session `wanted`: an id, the beginning of one, or `LAST`.
    pub(super) async fn find(&self, wanted: &str) -> Result<SessionSummary, Failure> {
        let wanted = if wanted.eq_ignore_ascii_case(LAST) {
            LAST
        } else {
            wanted
        };
        match &self.from {
            From::File(sessions) => sessions
                .find(&self.namespace, self.agent.as_deref(), wanted)
                .await
                .map_err(|error| not_read(&error)),
            From::Server(client) => client
                .get(&["api", "sessions", &self.namespace, wanted], &self.query())
                .await
                .map_err(refused),
        }
    }

    /// The page of events behind `after`.
    pub(super) async fn events(&self, session: &SessionSummary, after: u64) -> Result<EventPage, Failure> {
        match &self.from {
            From::File(sessions) => sessions
                .events(session, after, mainstay_server::sessions::PAGE)
                .await
                .map_err(|error| not_read(&error)),
            From::Server(client) => {
                let path = ["api", "sessions", &session.namespace, &session.session, "events"];
                client
                    .get(&path, &[("after", after.to_string())])
                    .await
                    .map_err(refused)
            }
        }
    }

    fn query(&self) -> Vec<(&'static str, String)> {
        self.agent.iter().map(|agent| ("agent", agent.clone())).collect()
    }
}

async fn file(data: &Path) -> Result<Sessions, Failure> {
    let path = data.join("payload.db");
    if !path.is_file() {
        return Err(Endpoints::absent(data));
    }
    let shown = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || {
        PayloadStore::open(PayloadOptions {
            upgrade: Upgrade::Refused,
            ..PayloadOptions::file(path)
        })
    });
    let store = opened
        .await
        .map_err(|error| Failure::new(format!("{shown}: {error}")))?
        .map_err(|error| {
            Failure::new(error.to_string()).with_hint(
                "start the server with `mainstay up`, which upgrades an older file and keeps a copy",
            )
        })?;
    Ok(Sessions::new(store))
}

fn hinted(failure: Failure, code: &str) -> Failure {
    match code {
        "session_not_found" => {
            failure.with_hint("`mainstay session list` shows them; `-n` names another namespace")
        }
        "session_ambiguous" => failure.with_hint("type more of its id"),
        _ => failure,
    }
}

fn refused(refused: Refused) -> Failure {
    hinted(refused.failure, &refused.code)
}

fn not_read(error: &SessionsError) -> Failure {
    let code = match error {
        SessionsError::NotFound { .. } => "session_not_found",
        SessionsError::Ambiguous { .. } => "session_ambiguous",
        SessionsError::Store(_) => "",
    };
    let text = match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    hinted(Failure::new(text), code)
}
