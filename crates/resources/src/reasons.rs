//! Reasons: the cause of a condition or an event as one word. They are part of the contract; programs match on
//! them, never on messages.

macro_rules! reasons {
    ($($(#[$meta:meta])* $name:ident = $text:literal;)+) => {
        $($(#[$meta])* pub const $name: &str = $text;)+
    };
}

// AgentRuntime (OM-257, OM-279 … OM-294).
reasons! {
    /// The pack is found and valid.
    PROMPT_PACK_FOUND = "PromptPackFound";
    /// No PromptPack has the name, version or channel.
    PROMPT_PACK_NOT_FOUND = "PromptPackNotFound";
    /// The reference contradicts itself or the packs it names.
    PROMPT_PACK_REF_INVALID = "PromptPackRefInvalid";
    /// The pack failed its validation.
    PROMPT_PACK_INVALID = "PromptPackInvalid";
    /// The pack has not been validated yet.
    PROMPT_PACK_NOT_READY = "PromptPackNotReady";
    /// None of the pack's prompts is the one to use.
    PROMPT_AMBIGUOUS = "PromptAmbiguous";
    /// A validator of the pack is of a type that is not known.
    GUARDRAIL_NOT_SUPPORTED = "GuardrailNotSupported";
    /// The registry is found.
    TOOL_REGISTRY_FOUND = "ToolRegistryFound";
    /// The registry does not exist.
    TOOL_REGISTRY_NOT_FOUND = "ToolRegistryNotFound";
    /// The registry is in another namespace.
    TOOL_REGISTRY_CROSS_NAMESPACE = "ToolRegistryCrossNamespace";
    /// Every provider is usable.
    PROVIDER_FOUND = "ProviderFound";
    /// A provider does not exist.
    PROVIDER_NOT_FOUND = "ProviderNotFound";
    /// A provider is in another namespace.
    PROVIDER_CROSS_NAMESPACE = "ProviderCrossNamespace";
    /// A provider's role is not the entry's.
    ROLE_MISMATCH = "RoleMismatch";
    /// A provider is not Ready.
    PROVIDER_NOT_READY = "ProviderNotReady";
    /// A provider lacks a capability that the entry requires.
    CAPABILITY_MISMATCH = "CapabilityMismatch";
    /// No provider is named, and a facade needs one.
    NO_PROVIDER_CONFIGURED = "NoProviderConfigured";
    /// The workload is written.
    DEPLOYMENT_CREATED = "DeploymentCreated";
    /// The workload could not be written.
    DEPLOYMENT_FAILED = "DeploymentFailed";
    /// A handler's credential is missing, or its kind of authentication does not fit its type.
    TOOL_AUTH_UNSUPPORTED = "ToolAuthUnsupported";
    /// The Service is written.
    SERVICE_CREATED = "ServiceCreated";
    /// The Service could not be written.
    SERVICE_FAILED = "ServiceFailed";
    /// At least one pod is ready.
    RUNTIME_READY = "RuntimeReady";
    /// No pod is ready.
    RUNTIME_NOT_READY = "RuntimeNotReady";
    /// Sandbox handlers are served.
    SANDBOX_READY = "SandboxReady";
    /// The agent has not enabled sandboxes.
    SANDBOX_NOT_ENABLED = "SandboxNotEnabled";
    /// Every registry tool is listed.
    ALL_TOOLS_LISTED = "AllToolsListed";
    /// Some registry tools are listed by no prompt.
    TOOLS_NOT_LISTED = "ToolsNotListed";
    /// Every handler can be served.
    ALL_HANDLERS_SUPPORTED = "AllHandlersSupported";
    /// Some handlers have a type or a form of authentication that is not served by this version.
    HANDLER_TYPE_NOT_SUPPORTED = "HandlerTypeNotSupported";
    /// The spec breaks a rule that admission would have refused.
    INVALID_SPEC = "InvalidSpec";
    /// Fields of the spec have no effect in this version.
    FEATURE_NOT_SUPPORTED = "FeatureNotSupported";
    /// None of the agent's facades is served by this version.
    FACADE_NOT_SUPPORTED = "FacadeNotSupported";
    /// The engine that the spec names cannot be run.
    FRAMEWORK_IMAGE_UNAVAILABLE = "FrameworkImageUnavailable";
    /// A provider's type is not served by this version.
    PROVIDER_TYPE_NOT_SUPPORTED = "ProviderTypeNotSupported";
    /// Sandboxes are not served by this version.
    SANDBOX_NOT_SUPPORTED = "SandboxNotSupported";
}

// PromptPack (OM-300 … OM-318).
reasons! {
    /// The source exists.
    SOURCE_VALID = "SourceValid";
    /// The source is missing or incomplete.
    SOURCE_VALIDATION_FAILED = "SourceValidationFailed";
    /// The content conforms to the schema.
    SCHEMA_VALID = "SchemaValid";
    /// The content does not conform to the schema.
    SCHEMA_VALIDATION_FAILED = "SchemaValidationFailed";
    /// There is no content to validate.
    SOURCE_INVALID = "SourceInvalid";
    /// Agents refer to the pack.
    AGENTS_NOTIFIED = "AgentsNotified";
    /// No agent refers to the pack.
    NO_AGENTS_TO_NOTIFY = "NoAgentsToNotify";
    /// A newer version serves the channel.
    NEWER_VERSION_PUBLISHED = "NewerVersionPublished";
    /// Another object with the same version serves the channel.
    DUPLICATE_VERSION = "DuplicateVersion";
    /// The version serves a channel.
    IS_CHANNEL_MAX = "IsChannelMax";
    /// The pack has no skills.
    NO_SKILLS = "NoSkills";
    /// Every skill stands in the pack.
    ALL_SKILLS_RESOLVED = "AllSkillsResolved";
    /// Each skill has a name of its own.
    NO_COLLISIONS = "NoCollisions";
    /// Several skills have one name.
    NAME_COLLISION = "NameCollision";
    /// No skill names a tool that the prompt does not.
    ALL_TOOLS_RESOLVED = "AllToolsResolved";
    /// Skills are named, and SkillSources are not served by this version.
    SKILL_SOURCES_NOT_SERVED = "SkillSourcesNotServed";
    /// New content was found valid.
    VALIDATION_SUCCEEDED = "ValidationSucceeded";
}

// ToolRegistry (OM-335 … OM-346).
reasons! {
    /// Handlers contribute tools.
    TOOLS_DISCOVERED = "ToolsDiscovered";
    /// A handler is invalid.
    VALIDATION_FAILED = "ValidationFailed";
    /// No tool is available.
    NO_TOOLS_AVAILABLE = "NoToolsAvailable";
    /// No handler contributes a tool.
    NO_TOOLS_DISCOVERED = "NoToolsDiscovered";
    /// A running agent does not know all tools that a handler's backend lists.
    TOOLS_MISSING = "ToolsMissing";
    /// Some tools cannot be reached.
    SOME_TOOLS_UNAVAILABLE = "SomeToolsUnavailable";
    /// The phase is another than Degraded.
    ALL_TOOLS_AVAILABLE = "AllToolsAvailable";
    /// Every handler is valid.
    HANDLERS_VALID = "HandlersValid";
    /// A ToolPolicy selects the registry.
    POLICY_SELECTS_REGISTRY = "PolicySelectsRegistry";
    /// No ToolPolicy selects the registry.
    NO_POLICY_SELECTS_REGISTRY = "NoPolicySelectsRegistry";
    /// A handler names a sandbox that the registry does not declare.
    SANDBOX_NOT_DECLARED = "SandboxNotDeclared";
    /// The class of a sandbox does not exist.
    CLASS_NOT_FOUND = "ClassNotFound";
    /// The Connection does not exist.
    CONNECTION_NOT_FOUND = "ConnectionNotFound";
}

// Provider (OM-348).
reasons! {
    /// The Secret and its key are there.
    SECRET_FOUND = "SecretFound";
    /// The Secret does not exist.
    SECRET_NOT_FOUND = "SecretNotFound";
    /// The Secret has no such key.
    SECRET_KEY_MISSING = "SecretKeyMissing";
    /// No Secret is needed.
    NO_SECRET_REQUIRED = "NoSecretRequired";
    /// The credential is in an environment variable.
    ENV_VAR_CONFIGURED = "EnvVarConfigured";
    /// The variable of the credential is not among those that agents are given.
    ENV_VAR_NOT_SET = "EnvVarNotSet";
    /// The credential is in a file.
    FILE_PATH_CONFIGURED = "FilePathConfigured";
    /// No credential is needed.
    NO_CREDENTIAL_REQUIRED = "NoCredentialRequired";
    /// The type needs a credential and none is configured.
    CREDENTIAL_REQUIRED = "CredentialRequired";
    /// The credential block names none of its forms.
    NO_STRATEGY_SPECIFIED = "NoStrategySpecified";
    /// The credential block names more than one of its forms.
    MULTIPLE_STRATEGIES = "MultipleStrategies";
    /// The credential is an example value.
    PLACEHOLDER_CREDENTIAL = "PlaceholderCredential";
    /// The environment variable has no valid name.
    INVALID_ENV_VAR = "InvalidEnvVar";
    /// The file has no absolute path.
    INVALID_FILE_PATH = "InvalidFilePath";
    /// The credential can be used.
    CREDENTIAL_VALID = "CredentialValid";
    /// The credential cannot be used.
    CREDENTIAL_INVALID = "CredentialInvalid";
    /// Authentication to the hosting cloud is configured.
    AUTH_CONFIGURED = "AuthConfigured";
    /// The provider is not hosted.
    AUTH_NOT_REQUIRED = "AuthNotRequired";
    /// The endpoint answers.
    ENDPOINT_REACHABLE = "EndpointReachable";
    /// The endpoint does not answer.
    ENDPOINT_UNREACHABLE = "EndpointUnreachable";
    /// The model is named.
    MODEL_SET = "ModelSet";
    /// No model is needed.
    MODEL_NOT_REQUIRED = "ModelNotRequired";
    /// The model is not named.
    MODEL_MISSING = "ModelMissing";
    /// The annotation with the provider's budget cannot be used.
    COST_CONTROLS_INVALID = "CostControlsInvalid";
    /// The annotation with the provider's rate limit cannot be used.
    RATE_LIMIT_INVALID = "RateLimitInvalid";
    /// The scenario of a mock is missing or wrong.
    SCENARIO_INVALID = "ScenarioInvalid";
    /// The provider is hosted by a cloud platform, which is not served by this version.
    HOSTING_NOT_SERVED = "HostingNotServed";
}

// ToolPolicy (OM-351).
reasons! {
    /// Every expression compiles.
    POLICY_COMPILED = "PolicyCompiled";
    /// An expression does not compile.
    COMPILE_ERROR = "CompileError";
    /// Header names are spelled canonically.
    HEADER_REFS_CANONICAL = "HeaderRefsCanonical";
    /// An expression spells a header name in another way than the engine's map does.
    NON_CANONICAL_HEADER_REF = "NonCanonicalHeaderRef";
}
