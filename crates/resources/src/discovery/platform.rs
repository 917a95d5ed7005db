//! The fixed tool lists of the platform services.

use serde_json::{Value, json};

use crate::omnia::tool_registry::PlatformService;

/// Name, description and argument schema of each tool of a service. Every argument is a string or a number: the
/// rendered HTTP tools send arguments of GET as query parameters, in which a list would not survive.
pub(super) fn tools(service: PlatformService) -> Vec<(&'static str, &'static str, Value)> {
    match service {
        PlatformService::Discovery => vec![
            (
                "catalog_overview",
                "Counts what the workspace offers, by kind and by group.",
                json!({ "type": "object", "properties": {} }),
            ),
            (
                "catalog_search",
                "Finds entries of the workspace catalog. Without a query it lists them in order of their id.",
                json!({
                    "type": "object",
                    "properties": {
                        "query": { "type": "string", "description": "What is needed" },
                        "kinds": { "type": "string", "description": "Kinds to look in, separated by commas" },
                        "group": { "type": "string", "description": "A group id that catalog_overview returned" },
                        "readyOnly": { "type": "string", "enum": ["true", "false"], "description": "Leave out what is not ready" },
                        "limit": { "type": "number", "description": "Most results, 10 by default and at most 50" },
                        "cursor": { "type": "string", "description": "Where the last page ended" },
                    },
                }),
            ),
            (
                "catalog_get",
                "Gives full detail of entries of the workspace catalog.",
                json!({
                    "type": "object",
                    "properties": {
                        "ids": { "type": "string", "description": "At most 20 ids as catalog_search returned them, separated by commas" },
                    },
                    "required": ["ids"],
                }),
            ),
        ],
        PlatformService::Arena => vec![
            (
                "arena_check_project",
                "Checks the project mounted in the session's sandbox.",
                json!({ "type": "object", "properties": {} }),
            ),
            (
                "arena_start_run",
                "Runs the project mounted in the session's sandbox at its last pushed commit.",
                json!({
                    "type": "object",
                    "properties": {
                        "kind": { "type": "string", "enum": ["evaluation"], "description": "Kind of run" },
                        "scenarios": { "type": "string", "description": "Scenarios to run, separated by commas" },
                        "providers": { "type": "string", "description": "Providers to run on, separated by commas" },
                    },
                    "required": ["kind"],
                }),
            ),
            (
                "arena_get_run",
                "Gives phase, progress and result of a run.",
                json!({
                    "type": "object",
                    "properties": {
                        "runId": { "type": "string", "description": "The run, as arena_start_run named it" },
                        "waitSeconds": { "type": "number", "description": "Seconds to wait for the end, at most 60" },
                    },
                    "required": ["runId"],
                }),
            ),
        ],
    }
}
