//! Names of generated objects, labels and annotations (OM-173, OM-267 … OM-272).

use std::collections::BTreeMap;

/// Label of CRDs that this product may overwrite; one without it belongs to somebody else.
pub const MANAGED_LABEL: &str = "mainstay.dev/managed";
/// Annotation of a mock Provider that names its scenario, as `CONFIGMAP/KEY`.
pub const SCENARIO_ANNOTATION: &str = "mainstay.dev/scenario";
/// Annotation of a Provider that limits what is spent on it: JSON of the form of OM-204.
pub const COST_CONTROLS_ANNOTATION: &str = "mainstay.dev/cost-controls";
/// Annotation of a Provider that limits how much is asked of it in a minute: JSON of the form of OR-229.
pub const RATE_LIMIT_ANNOTATION: &str = "mainstay.dev/rate-limit";
/// Label of a PromptPack with its `packName` (OM-173).
pub const PROMPT_PACK_LABEL: &str = "omnia.altairalabs.ai/promptpack";
/// Annotation of an agent's pods that changes when they have to be replaced (OM-269).
pub const CONFIG_HASH_ANNOTATION: &str = "omnia.altairalabs.ai/config-hash";
/// Annotation of an agent that replaces its models by the mock (OM-272).
pub const MOCK_PROVIDER_ANNOTATION: &str = "omnia.altairalabs.ai/mock-provider";
/// Finalizer of an AgentRuntime (OM-250).
pub const AGENT_FINALIZER: &str = "agentruntime.omnia.altairalabs.ai/finalizer";
/// Label of generated objects: the part of the product.
pub const COMPONENT_LABEL: &str = "omnia.altairalabs.ai/component";
/// Label of generated objects: `stable` or `canary`.
pub const TRACK_LABEL: &str = "omnia.altairalabs.ai/track";
/// Label of an agent's pods with its `mode`.
pub const MODE_LABEL: &str = "omnia.altairalabs.ai/mode";
/// Label of generated objects: the product's name for agents.
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Label of generated objects: the agent.
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
/// Label of generated objects: who writes them.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";

/// Key of the tools ConfigMap (OM-267).
pub const TOOLS_KEY: &str = "tools.yaml";
/// Component of a ConfigMap in which an agent says what it misses of its registry's tools (D6).
pub const TOOL_REPORT_COMPONENT: &str = "tool-report";
/// Key of such a ConfigMap.
pub const TOOL_REPORT_KEY: &str = "report.json";

/// Environment variable of an agent's container: skills that are active at a time in a session (OM-168).
pub const ACTIVE_SKILLS_VARIABLE: &str = "MAINSTAY_ACTIVE_SKILLS";
/// Key of the providers ConfigMap.
pub const PROVIDERS_KEY: &str = "providers.yaml";

/// Folder of the pack's content in an agent (OM-271).
pub const PACK_DIRECTORY: &str = "/etc/omnia/pack";
/// Folder of the tools configuration in an agent (OM-271).
pub const TOOLS_DIRECTORY: &str = "/etc/omnia/tools";
/// Folder of the providers configuration in an agent.
pub const PROVIDERS_DIRECTORY: &str = "/etc/omnia/providers";
/// Folder of the tools' credentials in an agent (OM-271).
pub const TOOL_SECRETS_DIRECTORY: &str = "/etc/omnia/tool-secrets";
/// Folder of the tools' ServiceAccount tokens in an agent, one file per handler (OM-400).
pub const TOOL_TOKENS_DIRECTORY: &str = "/var/run/secrets/omnia/tool-tokens";
/// Folder of mock scenarios in an agent, one folder per provider entry.
pub const SCENARIOS_DIRECTORY: &str = "/etc/omnia/scenarios";
/// Folder of the providers' credentials in an agent, one folder per provider entry.
pub const PROVIDER_SECRETS_DIRECTORY: &str = "/var/run/secrets/omnia/providers";

/// ConfigMap with an agent's tools configuration (OM-267).
#[must_use]
pub fn tools_config_map(agent: &str) -> String {
    format!("{agent}-tools")
}

/// ConfigMap in which the agent of a Pod says what it misses of its registry's tools.
#[must_use]
pub fn tool_report_config_map(pod: &str) -> String {
    format!("{pod}.tools")
}

/// ConfigMap with an agent's providers configuration.
#[must_use]
pub fn providers_config_map(agent: &str) -> String {
    format!("{agent}-providers")
}

/// Secret with the credentials of an agent's tools (OM-267, OM-275).
#[must_use]
pub fn tool_secrets(agent: &str) -> String {
    format!("{agent}-tool-secrets")
}

/// Labels that select an agent's stable pods. A selector never changes, so `mode` is not part of it.
#[must_use]
pub fn selector_labels(agent: &str) -> BTreeMap<String, String> {
    [
        (NAME_LABEL, "omnia-agent"),
        (INSTANCE_LABEL, agent),
        (COMPONENT_LABEL, "agent"),
        (TRACK_LABEL, "stable"),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect()
}

/// Labels of every object generated for an agent (OM-268).
#[must_use]
pub fn object_labels(agent: &str) -> BTreeMap<String, String> {
    let mut labels = selector_labels(agent);
    labels.insert(MANAGED_BY_LABEL.to_owned(), "omnia-operator".to_owned());
    labels
}

/// Labels of an agent's pods (OM-268).
#[must_use]
pub fn pod_labels(agent: &str, mode: &str) -> BTreeMap<String, String> {
    let mut labels = object_labels(agent);
    labels.insert(MODE_LABEL.to_owned(), mode.to_owned());
    labels
}

/// Key in the tool Secret for one header of a handler that is read from a Secret (OM-275).
///
/// A handler's own name is the key of its auth credential; handler names have no dot, so these keys never collide
/// with one, and neither with each other: the header's case is folded, as HTTP does, and what a Secret key cannot
/// hold is written as `_` and two hexadecimal digits.
#[must_use]
pub fn secret_header_key(handler: &str, header: &str) -> String {
    let mut key = format!("{handler}.");
    for byte in header.to_ascii_lowercase().bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => key.push(char::from(byte)),
            other => key.push_str(&format!("_{other:02x}")),
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secret_headers_never_collide_om_275() {
        assert_eq!(secret_header_key("orders", "X-API-Key"), "orders.x-api-key");
        assert_eq!(secret_header_key("orders", "x_api_key"), "orders.x_5fapi_5fkey");
        assert_ne!(secret_header_key("a", "b_"), secret_header_key("a", "b_5f"));
        assert_ne!(secret_header_key("a", "b"), "a");
    }

    #[test]
    fn generated_objects_carry_the_documented_names_and_labels_om_267_om_268() {
        assert_eq!(tools_config_map("helpdesk"), "helpdesk-tools");
        assert_eq!(tool_secrets("helpdesk"), "helpdesk-tool-secrets");
        let labels = pod_labels("helpdesk", "agent");
        for (name, value) in [
            ("app.kubernetes.io/name", "omnia-agent"),
            ("app.kubernetes.io/instance", "helpdesk"),
            ("app.kubernetes.io/managed-by", "omnia-operator"),
            ("omnia.altairalabs.ai/component", "agent"),
            ("omnia.altairalabs.ai/track", "stable"),
            ("omnia.altairalabs.ai/mode", "agent"),
        ] {
            assert_eq!(labels.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!object_labels("helpdesk").contains_key("omnia.altairalabs.ai/mode"));
    }
}
