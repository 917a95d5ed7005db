//! Types of conditions, as they appear in `status.conditions[].type`.

/// The object does what it is for (OM-284, OM-335).
pub const READY: &str = "Ready";

/// AgentRuntime: the pack is found and valid (OM-279).
pub const PROMPT_PACK_READY: &str = "PromptPackReady";
/// AgentRuntime: the registry is found (OM-280).
pub const TOOL_REGISTRY_READY: &str = "ToolRegistryReady";
/// AgentRuntime: every provider is usable (OM-281).
pub const PROVIDER_READY: &str = "ProviderReady";
/// AgentRuntime: the workload is written (OM-282).
pub const DEPLOYMENT_READY: &str = "DeploymentReady";
/// AgentRuntime: the Service is written (OM-283).
pub const SERVICE_READY: &str = "ServiceReady";
/// AgentRuntime: sandbox handlers are served (OM-293).
pub const SANDBOX_READY: &str = "SandboxReady";
/// AgentRuntime: every registry tool is listed by a prompt of the pack (OM-294).
pub const TOOLS_ALLOWLISTED: &str = "ToolsAllowlisted";
/// AgentRuntime: every handler of the registry can be served by this version of the runtime.
pub const HANDLERS_SUPPORTED: &str = "HandlersSupported";

/// AgentRuntime: everything in the spec is acted upon. Present only when something is not.
pub const FEATURES_SUPPORTED: &str = "FeaturesSupported";
/// AgentRuntime: the engine that the spec names can be run (OM-290).
pub const FRAMEWORK_READY: &str = "FrameworkReady";

/// PromptPack: the source exists (OM-311).
pub const SOURCE_VALID: &str = "SourceValid";
/// PromptPack: the content conforms to the schema (OM-312).
pub const SCHEMA_VALID: &str = "SchemaValid";
/// PromptPack: how many agents refer to the pack (OM-313).
pub const AGENTS_NOTIFIED: &str = "AgentsNotified";
/// PromptPack: another version serves its channels (OM-314).
pub const SUPERSEDED: &str = "Superseded";
/// PromptPack: the skills are found (OM-315).
pub const SKILLS_RESOLVED: &str = "SkillsResolved";
/// PromptPack: no two skills have one name (OM-316). Absent without skills.
pub const SKILLS_VALID: &str = "SkillsValid";
/// PromptPack: the tools that skills name are tools of the prompt (OM-317). Absent without skills.
pub const SKILL_TOOLS_RESOLVED: &str = "SkillToolsResolved";

/// ToolRegistry: some tools cannot be reached (OM-336).
pub const DEGRADED: &str = "Degraded";
/// ToolRegistry: every handler is valid (OM-337).
pub const HANDLERS_VALID: &str = "HandlersValid";
/// ToolRegistry: the handlers contribute tools (OM-338).
pub const TOOLS_DISCOVERED: &str = "ToolsDiscovered";
/// ToolRegistry: running agents know all that its handlers list. Present only when one of them does not (D6).
pub const TOOLS_LISTED: &str = "ToolsListed";
/// ToolRegistry: a ToolPolicy selects it (OM-339).
pub const POLICY_BOUND: &str = "PolicyBound";
/// ToolRegistry: sandboxes and the handlers on them fit their classes (OM-340).
pub const SANDBOXES_VALID: &str = "SandboxesValid";
/// ToolRegistry: the default connections of sandboxes fit their classes (OM-341).
pub const SANDBOX_CONNECTIONS_VALID: &str = "SandboxConnectionsValid";
/// ToolRegistry: handlers can read the credential of their Connection (OM-342).
pub const HANDLER_CONNECTIONS_VALID: &str = "HandlerConnectionsValid";

/// Provider: the Secret and its key are there (OM-348).
pub const SECRET_FOUND: &str = "SecretFound";
/// Provider: a way to the credential is configured (OM-348).
pub const CREDENTIAL_CONFIGURED: &str = "CredentialConfigured";
/// Provider: the credential can be used (OM-348).
pub const CREDENTIAL_VALID: &str = "CredentialValid";
/// Provider: authentication to the hosting cloud is configured (OM-348).
pub const AUTH_CONFIGURED: &str = "AuthConfigured";
/// Provider: the endpoint answers (OM-348, OM-349).
pub const ENDPOINT_REACHABLE: &str = "EndpointReachable";
/// Provider: the model is named (OM-348).
pub const MODEL_VALID: &str = "ModelValid";

/// ToolPolicy: every expression compiles (OM-351).
pub const COMPILED: &str = "Compiled";
/// ToolPolicy: expressions spell header names as the policy engine does (OM-351).
pub const HEADER_REFS_CANONICAL: &str = "HeaderRefsCanonical";
