//! A server's list of tools: all its pages, as far as they can be read, and what the filter leaves (OM-081, OM-419).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::McpFailure;
use crate::{config::McpConfig, invocation::FailureReason, toolset::Undiscovered};

// Far above what a model can be offered; they bound what a server's list may cost.
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 1_000;

// Odd tools that are logged one by one.
const LOGGED: usize = 20;

/// A server's tools at one moment.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) tools: Vec<ListedTool>,
    /// Why there may be more.
    pub(super) incomplete: Option<&'static str>,
    /// How often the server had said that its tools changed, before they were listed.
    pub(super) as_of: u64,
}

/// One tool, under the server's name for it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListedTool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
    /// The server says that a repeated call changes nothing further.
    pub(super) is_repeat_safe: bool,
}

/// Reads page after page until there is no next one.
///
/// A cursor that was there before would lead round in a circle: what was read until then is kept (D6). An
/// empty cursor is how some servers say that there is none.
pub(super) async fn walk<P>(mut page: impl FnMut(Option<String>) -> P) -> Result<Listing, McpFailure>
where
    P: Future<Output = Result<Value, McpFailure>>,
{
    let mut listing = Listing::default();
    let mut names = BTreeSet::new();
    let mut cursors = BTreeSet::new();
    let mut cursor = None;
    for _ in 0..MAX_PAGES {
        let read = page(cursor.take()).await?;
        add(&mut listing, &mut names, read.get("tools"))?;
        let next = read.get("nextCursor").and_then(Value::as_str);
        let next = next.filter(|next| !next.is_empty());
        let known = listing.tools.len();
        if known > MAX_TOOLS || (known == MAX_TOOLS && next.is_some()) {
            listing.tools.truncate(MAX_TOOLS);
            listing.incomplete = Some("it has more tools than are read");
            return Ok(listing);
        }
        match next {
            None => return Ok(listing),
            Some(next) if cursors.insert(next.to_owned()) => cursor = Some(next.to_owned()),
            Some(_) => {
                listing.incomplete = Some("its list of tools leads from one page to an earlier one");
                return Ok(listing);
            }
        }
    }
    listing.incomplete = Some("its list of tools has more pages than are read");
    Ok(listing)
}

fn add(listing: &mut Listing, names: &mut BTreeSet<String>, tools: Option<&Value>) -> Result<(), McpFailure> {
    let tools = match tools {
        // D8: no list is an empty one.
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(tools)) => tools,
        Some(_) => {
            return Err(McpFailure::transient(
                FailureReason::ResponseInvalid,
                "the server's list of tools is no list",
            ));
        }
    };
    let mut odd = 0;
    for tool in tools {
        match listed(tool) {
            Some(tool) if names.insert(tool.name.clone()) => listing.tools.push(tool),
            // One odd tool never costs the others (D4).
            _ => {
                odd += 1;
                if odd <= LOGGED {
                    let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
                    tracing::warn!(
                        tool = %mainstay_telemetry::text::escape(name, 64),
                        "an MCP server lists a tool without a name, or one name twice; it is left out"
                    );
                }
            }
        }
    }
    Ok(())
}

fn listed(tool: &Value) -> Option<ListedTool> {
    let name = tool.get("name")?.as_str().filter(|name| !name.is_empty())?;
    let annotations = tool.get("annotations");
    let texts = [
        tool.get("description"),
        tool.get("title"),
        annotations.and_then(|annotations| annotations.get("title")),
    ];
    let description = texts
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .find(|text| !text.is_empty());
    let says =
        |hint: &str| annotations.and_then(|annotations| annotations.get(hint)) == Some(&Value::Bool(true));
    Some(ListedTool {
        name: name.to_owned(),
        description: description.unwrap_or_default().to_owned(),
        input_schema: match tool.get("inputSchema") {
            Some(schema @ Value::Object(_)) => schema.clone(),
            _ => json!({"type": "object"}),
        },
        is_repeat_safe: says("readOnlyHint") || says("idempotentHint"),
    })
}

impl Listing {
    /// The tools that the handler's filter leaves, and the names in its allow list that the server does not
    /// have.
    pub(super) fn filtered<'a>(&'a self, config: &'a McpConfig) -> (Vec<&'a ListedTool>, Vec<&'a str>) {
        let tools = self
            .tools
            .iter()
            .filter(|tool| passes(config, &tool.name))
            .collect();
        let missing = config
            .allowlist
            .iter()
            .filter(|name| !self.has(name))
            .map(String::as_str)
            .collect();
        (tools, missing)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// What is wrong with the list, for people.
    pub(super) fn caveat(&self, handler: &str) -> Option<Undiscovered> {
        self.incomplete.map(|cause| {
            Undiscovered::new(
                "ListingIncomplete",
                format!(
                    "handler `{handler}`: the server's tools may not be all that it has: {cause}; {} are known",
                    self.tools.len()
                ),
            )
        })
    }
}

/// OM-081: an allow list that is not empty decides alone.
fn passes(config: &McpConfig, name: &str) -> bool {
    let names = |list: &[String]| list.iter().any(|listed| listed == name);
    if config.allowlist.is_empty() {
        !names(&config.blocklist)
    } else {
        names(&config.allowlist)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::{cell::RefCell, collections::BTreeMap};

    use super::*;
    use crate::config::McpTransport;

    /// Answers each cursor with its page, and notes what was asked for.
    async fn walked(pages: &[(&str, Value)]) -> (Listing, Vec<String>) {
        let pages: BTreeMap<&str, Value> = pages.iter().cloned().collect();
        let asked = RefCell::new(Vec::new());
        let listing = walk(|cursor| {
            let cursor = cursor.unwrap_or_default();
            let page = pages[cursor.as_str()].clone();
            asked.borrow_mut().push(cursor);
            async move { Ok(page) }
        });
        let listing = listing.await.unwrap();
        (listing, asked.into_inner())
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    #[tokio::test]
    async fn all_pages_are_read_d6_om_419() {
        let (listing, asked) = walked(&[
            (
                "",
                json!({"tools": [{"name": "a", "inputSchema": {}}], "nextCursor": "2"}),
            ),
            (
                "2",
                json!({"tools": [{"name": "b", "inputSchema": {}}], "nextCursor": "3"}),
            ),
            ("3", json!({"tools": [{"name": "c", "inputSchema": {}}]})),
        ])
        .await;
        assert_eq!(names(&listing), ["a", "b", "c"]);
        assert_eq!(asked, ["", "2", "3"]);
        assert!(listing.caveat("h").is_none());
    }

    #[tokio::test]
    async fn a_cursor_that_comes_again_stops_the_walk_and_shows_d6() {
        let page = |name: &str| json!({"tools": [{"name": name}], "nextCursor": "next"});
        let (listing, asked) = walked(&[("", page("a")), ("next", page("b"))]).await;
        assert_eq!(names(&listing), ["a", "b"]);
        assert_eq!(asked, ["", "next"]);
        let caveat = listing.caveat("code").unwrap();
        assert_eq!(caveat.reason, "ListingIncomplete");
        assert!(
            caveat.message.contains("handler `code`") && caveat.message.contains("earlier one"),
            "{caveat}"
        );
    }

    #[tokio::test]
    async fn an_empty_cursor_is_the_end_d6() {
        let (listing, asked) = walked(&[("", json!({"tools": [{"name": "a"}], "nextCursor": ""}))]).await;
        assert_eq!((names(&listing), asked.len()), (vec!["a"], 1));
        assert!(listing.incomplete.is_none());
    }

    #[tokio::test]
    async fn a_list_without_end_is_read_as_far_as_the_limits_d6() {
        let count = RefCell::new(0);
        let endless = walk(|_| {
            *count.borrow_mut() += 1;
            let count = *count.borrow();
            async move { Ok(json!({"tools": [{"name": format!("t{count}")}], "nextCursor": count.to_string()})) }
        });
        assert_eq!(endless.await.unwrap().tools.len(), MAX_PAGES);
        let many: Vec<Value> = (0..MAX_TOOLS + 5)
            .map(|index| json!({"name": index.to_string()}))
            .collect();
        let (listing, _) = walked(&[("", json!({"tools": &many}))]).await;
        assert_eq!(listing.tools.len(), MAX_TOOLS);
        assert!(listing.incomplete.is_some());
        // As many as the limit, and no more, are all.
        let exactly = &many[..MAX_TOOLS];
        let (listing, _) = walked(&[("", json!({"tools": exactly}))]).await;
        assert_eq!((listing.tools.len(), listing.incomplete), (MAX_TOOLS, None));
        let (listing, _) = walked(&[("", json!({"tools": exactly, "nextCursor": "2"}))]).await;
        assert!(listing.incomplete.is_some());
    }

    #[tokio::test]
    async fn null_is_an_empty_list_and_one_odd_tool_costs_no_other_d4_d8() {
        let (listing, _) = walked(&[("", json!({"tools": null}))]).await;
        assert!(listing.tools.is_empty());
        let (listing, _) = walked(&[(
            "",
            json!({"tools": [
                7, {"description": "no name"}, {"name": ""}, {"name": "a", "title": "An a"}, {"name": "a"},
                {"name": "b", "description": "B", "inputSchema": [], "annotations": {"readOnlyHint": true}},
                {"name": "c", "annotations": {"idempotentHint": true, "title": "C"}},
                {"name": "d", "annotations": {"destructiveHint": false, "readOnlyHint": "yes"}},
            ]}),
        )])
        .await;
        let seen: Vec<(&str, &str, bool)> = listing
            .tools
            .iter()
            .map(|tool| (tool.name.as_str(), tool.description.as_str(), tool.is_repeat_safe))
            .collect();
        assert_eq!(
            seen,
            [
                ("a", "An a", false),
                ("b", "B", true),
                ("c", "C", true),
                ("d", "", false)
            ]
        );
        assert_eq!(listing.tools[1].input_schema, json!({"type": "object"}));
        let refused = walk(|_| async { Ok(json!({"tools": "none"})) }).await;
        assert_eq!(refused.unwrap_err().reason, FailureReason::ResponseInvalid);
    }

    #[tokio::test]
    async fn an_allow_list_decides_alone_and_a_block_list_otherwise_om_081() {
        let (listing, _) = walked(&[(
            "",
            json!({"tools": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}),
        )])
        .await;
        for (allow, block, expected, missing) in [
            (vec![], vec![], vec!["a", "b", "c"], vec![]),
            (vec![], vec!["b"], vec!["a", "c"], vec![]),
            (vec!["a", "x"], vec!["a"], vec!["a"], vec!["x"]),
        ] {
            let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
            let mut config = McpConfig::new(McpTransport::Sse, "http://h/sse");
            config.allowlist = owned(allow);
            config.blocklist = owned(block);
            let (tools, absent) = listing.filtered(&config);
            let names: Vec<&str> = tools.into_iter().map(|tool| tool.name.as_str()).collect();
            assert_eq!((names, absent), (expected, missing));
        }
    }
}
