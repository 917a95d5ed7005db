//! The canonical description of a layout and its SHA-256. Requirement OR-278.

use std::fmt::Write;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use sha2::{Digest, Sha256};

/// What a database says about its own layout.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) application_id: u32,
    pub(super) user_version: u32,
    text: String,
}

impl Description {
    /// True for a database nobody has put anything into.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.application_id == 0 && self.user_version == 0
    }

    /// SHA-256 of the canonical text, in hexadecimal.
    pub(super) fn fingerprint(&self) -> String {
        let mut canonical = format!(
            "application_id {}\nuser_version {}\n",
            self.application_id, self.user_version
        );
        canonical.push_str(&self.text);
        format!("{:x}", Sha256::digest(canonical.as_bytes()))
    }
}

/// Describes the schema `connection` sees: every object's text with its white space normalised, and for each table what
/// SQLite made of it. Automatic indexes have generated names, so they count by their origin and uniqueness only.
pub(super) fn describe(connection: &Connection) -> rusqlite::Result<Description> {
    let number = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    // Both are 32-bit fields of the file header that SQLite reports as signed.
    let application_id = number("application_id")? as u32;
    let user_version = number("user_version")? as u32;
    let mut text = String::new();
    let mut tables = Vec::new();
    let mut objects = connection.prepare(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         ORDER BY type, name",
    )?;
    let mut rows = objects.query([])?;
    while let Some(row) = rows.next()? {
        let kind: String = row.get(0)?;
        let name: String = row.get(1)?;
        let table: String = row.get(2)?;
        let sql: Option<String> = row.get(3)?;
        let _ = writeln!(
            text,
            "{kind} {name} on {table}: {}",
            normalise(sql.as_deref().unwrap_or(""))
        );
        // A view is its text; what SQLite derives from it may differ between its releases.
        if kind == "table" {
            tables.push(name);
        }
    }
    for table in tables {
        for (heading, query) in [
            (
                "column",
                "SELECT cid, name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1)",
            ),
            (
                "foreign key",
                "SELECT id, seq, \"table\", \"from\", \"to\", on_update, on_delete, match \
                 FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
            ),
            (
                "index",
                "SELECT CASE WHEN origin = 'c' THEN name ELSE '' END, \"unique\", origin, partial, \
                 (SELECT group_concat(coalesce(c.name, '') || ' ' || c.\"desc\" || ' ' || c.coll, ', ') \
                  FROM pragma_index_xinfo(l.name) c WHERE c.key) \
                 FROM pragma_index_list(?1) l ORDER BY 1, 2, 3, 4, 5",
            ),
        ] {
            let mut statement = connection.prepare(query)?;
            let columns = statement.column_count();
            let mut rows = statement.query([&table])?;
            while let Some(row) = rows.next()? {
                let _ = write!(text, "{table} {heading}:");
                for column in 0..columns {
                    text.push_str(match row.get_ref(column)? {
                        ValueRef::Null => " -",
                        _ => " ",
                    });
                    match row.get_ref(column)? {
                        ValueRef::Integer(value) => {
                            let _ = write!(text, "{value}");
                        }
                        ValueRef::Text(value) => text.push_str(&normalise(&String::from_utf8_lossy(value))),
                        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => {}
                    }
                }
                text.push('\n');
            }
        }
    }
    Ok(Description {
        application_id,
        user_version,
        text,
    })
}

/// Makes every run of white space outside quotes one space. SQLite keeps a statement's text as it was typed.
fn normalise(sql: &str) -> String {
    let mut normal = String::with_capacity(sql.len());
    let mut quote: Option<char> = None;
    let mut space = false;
    for character in sql.chars() {
        match quote {
            Some(open) => {
                normal.push(character);
                if character == open {
                    quote = None;
                }
            }
            None if character.is_whitespace() => space = true,
            None => {
                if space && !normal.is_empty() {
                    normal.push(' ');
                }
                space = false;
                quote = match character {
                    '\'' | '"' | '`' => Some(character),
                    '[' => Some(']'),
                    _ => None,
                };
                normal.push(character);
            }
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::normalise;

    #[test]
    fn white_space_counts_only_inside_quotes() {
        assert_eq!(
            normalise("  CREATE\n TABLE\tt (a  TEXT) "),
            "CREATE TABLE t (a TEXT)"
        );
        assert_eq!(
            normalise("DEFAULT 'two  blanks'   ,\"a  b\""),
            "DEFAULT 'two  blanks' ,\"a  b\""
        );
    }
}
