//! The tables of `payload.db`. Requirements OR-291, OR-292, OR-306; the others of D.3 come with the parts that use them.

use std::borrow::Cow;

use crate::layout::{Layouts, Version};

/// `Main` in ASCII with the last byte counting our files.
const APPLICATION_ID: u32 = 0x4d61_6902;

const CREATE_1: &str = "
CREATE TABLE sessions (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    session_type TEXT NOT NULL DEFAULT 'task' CHECK (session_type IN ('task', 'chat', 'gateway')),
    owner_type TEXT NOT NULL DEFAULT '',
    owner_ref TEXT NOT NULL DEFAULT '',
    active_task TEXT NOT NULL DEFAULT '',
    active_task_uid TEXT NOT NULL DEFAULT '',
    active_task_expires_at INTEGER,
    control_session_uid TEXT NOT NULL DEFAULT '',
    message_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000000000),
    updated_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000000000),
    retired_at INTEGER, -- ours: set when retention has begun to remove the session
    PRIMARY KEY (namespace, name)
) STRICT;
CREATE INDEX sessions_by_namespace ON sessions (namespace);
CREATE INDEX sessions_retired ON sessions (retired_at) WHERE retired_at IS NOT NULL;
CREATE TABLE session_messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    session_name TEXT NOT NULL,
    message_id TEXT NOT NULL DEFAULT '',
    sort_order INTEGER NOT NULL DEFAULT 0,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    name TEXT,
    input TEXT,
    tool_calls TEXT,
    tool_call_id TEXT,
    source_type TEXT NOT NULL DEFAULT '',
    source_ref TEXT NOT NULL DEFAULT '',
    metadata_json TEXT NOT NULL DEFAULT '{}',
    created_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000000000),
    FOREIGN KEY (namespace, session_name) REFERENCES sessions (namespace, name) ON DELETE CASCADE
) STRICT;
CREATE UNIQUE INDEX session_messages_by_message_id
    ON session_messages (namespace, session_name, message_id) WHERE message_id <> '';
CREATE UNIQUE INDEX session_messages_by_order
    ON session_messages (namespace, session_name, sort_order) WHERE sort_order > 0;
-- An event row names its stream by a number: the names are long and would be repeated in every row and index entry.
CREATE TABLE event_streams (
    id INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    stream_type TEXT NOT NULL,
    stream_id TEXT NOT NULL,
    session_name TEXT NOT NULL DEFAULT '',
    agent_name TEXT NOT NULL DEFAULT '',
    UNIQUE (namespace, stream_type, stream_id)
) STRICT;
CREATE TABLE execution_event_rows (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    stream INTEGER NOT NULL REFERENCES event_streams (id) ON DELETE CASCADE,
    seq INTEGER NOT NULL,
    session_seq INTEGER NOT NULL,
    dedupe_key TEXT,
    type TEXT NOT NULL,
    severity TEXT NOT NULL DEFAULT 'info',
    turn TEXT, -- ours: the envelope's `turn`
    task_name TEXT NOT NULL DEFAULT '',
    tool_name TEXT NOT NULL DEFAULT '',
    tool_call_id TEXT NOT NULL DEFAULT '',
    summary TEXT NOT NULL DEFAULT '',
    content_json TEXT,
    content_text TEXT NOT NULL DEFAULT '',
    truncation_json TEXT,
    created_at INTEGER NOT NULL
) STRICT;
-- The one index an append pays for; the other has entries only for events that carry a key.
CREATE UNIQUE INDEX execution_event_rows_by_seq ON execution_event_rows (stream, seq);
CREATE UNIQUE INDEX execution_event_rows_by_dedupe_key
    ON execution_event_rows (stream, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE VIEW execution_events AS
    SELECT e.id, s.namespace, s.stream_type, s.stream_id, e.seq, e.session_seq, coalesce(e.dedupe_key, '') AS dedupe_key,
        e.type, e.severity, e.task_name, s.session_name, s.agent_name, e.tool_name, e.tool_call_id, e.summary,
        e.content_json, e.content_text, e.truncation_json, e.created_at
    FROM execution_event_rows e JOIN event_streams s ON s.id = e.stream;
CREATE TABLE execution_event_session_sequences (
    namespace TEXT NOT NULL,
    session_name TEXT NOT NULL,
    latest_seq INTEGER NOT NULL,
    PRIMARY KEY (namespace, session_name)
) STRICT, WITHOUT ROWID;
-- Ours: what a crash would leave open. Kept by the append itself, so that a start reads these and no history.
CREATE TABLE open_turns (
    stream INTEGER NOT NULL REFERENCES event_streams (id) ON DELETE CASCADE,
    turn TEXT NOT NULL,
    started_seq INTEGER NOT NULL,
    PRIMARY KEY (stream, turn)
) STRICT, WITHOUT ROWID;
CREATE TABLE open_tool_calls (
    stream INTEGER NOT NULL REFERENCES event_streams (id) ON DELETE CASCADE,
    turn TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    started_seq INTEGER NOT NULL,
    PRIMARY KEY (stream, turn, tool_call_id)
) STRICT, WITHOUT ROWID;
-- Ours: keys of messages a client may send again.
CREATE TABLE accepted_client_keys (
    namespace TEXT NOT NULL,
    session_name TEXT NOT NULL,
    client_key TEXT NOT NULL,
    accepted_at INTEGER NOT NULL,
    PRIMARY KEY (namespace, session_name, client_key),
    FOREIGN KEY (namespace, session_name) REFERENCES sessions (namespace, name) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
";

/// What the second layout adds to the first.
const UPGRADE_2: &str = "
-- Ours: model providers that are left alone for a while, so that a restart does not ask them all again (contract 8).
CREATE TABLE provider_cooldowns (
    namespace TEXT NOT NULL,
    provider TEXT NOT NULL,
    provider_type TEXT NOT NULL,
    failures INTEGER NOT NULL,
    ends_at INTEGER NOT NULL, -- nanoseconds since 1970
    reason TEXT NOT NULL,
    status INTEGER, -- of HTTP
    message TEXT NOT NULL,
    PRIMARY KEY (namespace, provider, provider_type)
) STRICT, WITHOUT ROWID;
";

/// What the third layout adds, and the table that nothing used.
const UPGRADE_3: &str = "
-- Ours: what the agents of a namespace have spent on models in a day or a month (contract 8).
CREATE TABLE budget_spending (
    scope TEXT NOT NULL,
    period TEXT NOT NULL, -- 2026-05-04 or 2026-05
    charged INTEGER NOT NULL, -- billionths of a dollar, leased blocks included
    alerted INTEGER NOT NULL DEFAULT 0, -- percent
    PRIMARY KEY (scope, period)
) STRICT, WITHOUT ROWID;
DROP TABLE accepted_client_keys;
";

pub(super) fn layouts() -> Layouts {
    Layouts {
        application_id: APPLICATION_ID,
        versions: vec![
            Version {
                number: 1,
                create: Cow::Borrowed(CREATE_1),
                upgrade: Cow::Borrowed(""),
                fingerprint: Cow::Borrowed(
                    "82ef46491ad3ed8ffee948d6ee3d68b06dbaa7231011f2339d6cd23477918be5",
                ),
            },
            Version {
                number: 2,
                create: Cow::Owned(format!("{CREATE_1}{UPGRADE_2}")),
                upgrade: Cow::Borrowed(UPGRADE_2),
                fingerprint: Cow::Borrowed(
                    "78223a47f3b3d2725ceb920d4bba26b1c6ad9df643f2080b4fa4f031fafc1f76",
                ),
            },
            Version {
                number: 3,
                create: Cow::Owned(format!("{CREATE_1}{UPGRADE_2}{UPGRADE_3}")),
                upgrade: Cow::Borrowed(UPGRADE_3),
                fingerprint: Cow::Borrowed(
                    "1894800409bac3d8335652e323b8651d82dcb0fc5f4276fd9c3a565c058577aa",
                ),
            },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_278_the_compiled_fingerprints_of_payload_db_are_those_of_its_tables() {
        for version in layouts().versions {
            let computed = crate::layout::tests::computed_fingerprint(&layouts(), version.number);
            assert_eq!(
                version.fingerprint, computed,
                "layout {} changed without a new version",
                version.number
            );
        }
    }
}
