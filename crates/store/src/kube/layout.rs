//! The tables of `kube.db`.

use std::borrow::Cow;

use crate::layout::{Layouts, Version};

/// `Main` in ASCII with the last byte counting our files.
const APPLICATION_ID: u32 = 0x4d61_6901;

/// The revision an empty store has. Clients give 0 a meaning of its own ("any"), so no list may carry it.
pub(super) const FIRST_REVISION: u64 = 1;

const CREATE_1: &str = "
CREATE TABLE revisions (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    create_revision INTEGER NOT NULL,
    previous_revision INTEGER NOT NULL, -- 0: this write created the object
    deleted INTEGER NOT NULL,
    written_at INTEGER NOT NULL, -- milliseconds since 1970
    value BLOB NOT NULL
) STRICT;
-- Covers what a list at a revision asks before it reads values.
CREATE INDEX revisions_by_object ON revisions (resource, namespace, name, revision, deleted);
CREATE VIEW current AS
    SELECT max(revision) AS revision, resource, namespace, name, create_revision, deleted
    FROM revisions GROUP BY resource, namespace, name;
-- One row. `compacted` outlives the rows it is about: with it the counter goes on even if every row is gone.
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    compacted INTEGER NOT NULL
) STRICT;
INSERT INTO progress (id, compacted) VALUES (1, 1);
";

pub(super) fn layouts() -> Layouts {
    Layouts {
        application_id: APPLICATION_ID,
        versions: vec![Version {
            number: 1,
            create: Cow::Borrowed(CREATE_1),
            upgrade: Cow::Borrowed(""),
            fingerprint: Cow::Borrowed("963335cc7fdcb14174133371de2a5c376ed0341783915819b6d9b53b9e436df9"),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_278_the_compiled_fingerprints_of_kube_db_are_those_of_its_tables() {
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
