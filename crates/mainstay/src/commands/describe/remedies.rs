//! What mends a condition: the column "to do" of the page of conditions, so that page and program say the same.

use std::{collections::BTreeMap, sync::LazyLock};

/// The page is part of the program.
const PAGE: &str = include_str!("../../../../../docs/reference/conditions.md");

/// By kind, condition and reason.
type Remedies = BTreeMap<(&'static str, &'static str, &'static str), String>;

static REMEDIES: LazyLock<Remedies> = LazyLock::new(|| read(PAGE));

/// What to do about a condition of a kind that has this reason.
pub(super) fn remedy(kind: &str, condition: &str, reason: &str) -> Option<&'static str> {
    REMEDIES
        .iter()
        .find(|((of, named, because), _)| *of == kind && *named == condition && *because == reason)
        .or_else(|| {
            // `Ready` repeats the reason of the condition that blocks.
            REMEDIES
                .iter()
                .find(|((of, _, because), _)| *of == kind && *because == reason)
        })
        .map(|(_, remedy)| remedy.as_str())
}

fn read(page: &'static str) -> Remedies {
    let mut remedies = BTreeMap::new();
    let (mut kind, mut condition) = ("", "");
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            kind = heading.trim();
            continue;
        }
        let Some(row) = line.strip_prefix('|').and_then(|row| row.strip_suffix('|')) else {
            continue;
        };
        let cells: Vec<&str> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let [named, reason, _status, _meaning, remedy] = cells.as_slice() else {
            continue;
        };
        if !named.is_empty() {
            condition = named;
        }
        if !remedy.is_empty() && *reason != "reason" {
            let text = row.rsplit('|').next().unwrap_or_default().trim();
            remedies.insert((kind, condition, *reason), without_links(text));
        }
    }
    remedies
}

/// `[text](address)` as `text`.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        plain.push_str(before);
        match behind.split_once("](") {
            Some((shown, address)) => {
                plain.push_str(shown);
                rest = address.split_once(')').map_or("", |(_, after)| after);
            }
            None => {
                plain.push('[');
                rest = behind;
            }
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_remedy_for_what_blocks_an_agent() {
        for (kind, condition, reason, words) in [
            ("AgentRuntime", "ProviderReady", "ProviderNotFound", "create it"),
            ("AgentRuntime", "Ready", "ProviderNotFound", "create it"),
            (
                "AgentRuntime",
                "ToolRegistryReady",
                "ToolRegistryNotFound",
                "create the registry",
            ),
            (
                "AgentRuntime",
                "HandlersSupported",
                "HandlerTypeNotSupported",
                "what is served",
            ),
        ] {
            assert_eq!(
                remedy(kind, condition, reason),
                Some(words),
                "{kind} {condition} {reason}"
            );
        }
        assert_eq!(remedy("AgentRuntime", "Ready", "RuntimeReady"), None);
        assert_eq!(remedy("Pod", "Ready", "ProviderNotFound"), None);
    }

    #[test]
    fn every_kind_of_the_page_is_read() {
        for kind in [
            "AgentRuntime",
            "PromptPack",
            "Provider",
            "ToolRegistry",
            "ToolPolicy",
        ] {
            let count = REMEDIES.keys().filter(|(of, _, _)| *of == kind).count();
            assert!(count > 0, "{kind}");
        }
    }
}
