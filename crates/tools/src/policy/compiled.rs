//! Policies made ready: every expression compiled once, when the policy changes.

use std::collections::BTreeSet;

use mainstay_cel::{CompileError, CompileOptions, Program, Type, compile};
use mainstay_telemetry::text::escape;
use thiserror::Error;

use super::decision::Mode;
use super::header;
use super::spec::{HeaderSource, OnFailure, PolicySpec, RequiredClaim, Rule};

/// Variables of every expression (OM-487).
pub(super) const VARIABLES: [&str; 3] = ["headers", "body", "identity"];

/// Bytes of a compiler's message that are shown; it may quote the expression.
const MESSAGE_LIMIT: usize = 1024;

/// Why a policy cannot be used (OM-351). `Display` is one line, since it becomes a condition, a table cell and
/// what the model reads of a refusal. It names the rule; for expressions it ends with the compiler's message, which has
/// line and column.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    /// An expression of a rule does not compile.
    #[error("rule {rule}: {}", one_line(source))]
    Rule {
        /// Name of the rule.
        rule: String,
        /// What the compiler says.
        source: CompileError,
    },
    /// An expression of a rule is something other than a condition.
    #[error("rule {rule}: the expression is a {found}, not a bool")]
    NotACondition {
        /// Name of the rule.
        rule: String,
        /// The CEL type of the expression.
        found: &'static str,
    },
    /// A rule has both of `deny` and `permit`, or neither.
    #[error("rule {rule}: exactly one of deny and permit must be set")]
    DenyOrPermit {
        /// Name of the rule.
        rule: String,
    },
    /// Two rules have one name, so a denial could not tell which it was.
    #[error("rule {rule}: the name is used twice")]
    DuplicateRule {
        /// Name of the rules.
        rule: String,
    },
    /// The expression of an injected header does not compile.
    #[error("header {header}: {}", one_line(source))]
    Header {
        /// Name of the header.
        header: String,
        /// What the compiler says.
        source: CompileError,
    },
    /// The expression of an injected header gives something that is no header value.
    #[error("header {header}: the expression is a {found}, which cannot be a header's value")]
    NotAHeaderValue {
        /// Name of the header.
        header: String,
        /// The CEL type of the expression.
        found: &'static str,
    },
    /// An injected header that no policy may set, or that is none.
    #[error("header {header}: {reason}")]
    HeaderRefused {
        /// Name of the header.
        header: String,
        /// Why.
        reason: &'static str,
    },
}

/// The compiler's message without the drawing of the place below it.
fn one_line(error: &CompileError) -> String {
    let message = escape(&error.message, MESSAGE_LIMIT);
    format!("ERROR: <input>:{}:{}: {message}", error.line, error.column)
}

impl PolicyError {
    /// Whether the fault is one of an expression (condition reason `CompileError`) rather than of the
    /// policy's form.
    pub fn is_compile_error(&self) -> bool {
        matches!(
            self,
            PolicyError::Rule { .. } | PolicyError::NotACondition { .. } | PolicyError::Header { .. }
        )
    }
}

/// What [`check`] found in a policy that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// Compiled rules (`status.ruleCount`).
    pub rule_count: usize,
    /// Spellings of headers that can never match (condition `HeaderRefsCanonical`, OM-351).
    pub non_canonical_headers: Vec<NonCanonicalHeader>,
}

/// A header reference that never matches, since `headers` has canonical names only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonCanonicalHeader {
    /// The rule, or `header NAME` for an injected header's expression.
    pub place: String,
    /// The name as written.
    pub written: String,
    /// The name as it must be written.
    pub canonical: String,
}

/// Compiles a policy and tells what its controller reports (OM-351).
///
/// # Errors
/// The first thing that makes the policy unusable.
pub fn check(spec: &PolicySpec) -> Result<Checked, PolicyError> {
    let policy = Policy::compile(spec)?;
    let rules = policy.rules.iter().map(|rule| (rule.name.clone(), &rule.program));
    let headers = policy
        .headers
        .iter()
        .filter_map(|injected| match &injected.source {
            CompiledSource::Cel(program) => Some((format!("header {}", injected.name), program)),
            CompiledSource::Value(_) => None,
        });
    let mut non_canonical_headers = Vec::new();
    for (place, program) in rules.chain(headers) {
        for written in program.index_literals("headers") {
            let canonical = header::canonical_name(&written);
            if canonical != written {
                non_canonical_headers.push(NonCanonicalHeader {
                    place: place.clone(),
                    written,
                    canonical,
                });
            }
        }
    }
    Ok(Checked {
        rule_count: policy.rules.len(),
        non_canonical_headers,
    })
}

/// A policy whose expressions are compiled.
#[derive(Debug)]
pub(super) struct Policy {
    pub(super) name: String,
    pub(super) tools: BTreeSet<String>,
    pub(super) mode: Mode,
    pub(super) on_failure: OnFailure,
    pub(super) required_claims: Vec<RequiredClaim>,
    pub(super) rules: Vec<CompiledRule>,
    pub(super) headers: Vec<CompiledHeader>,
    /// Why it denies everything it selects, when it does.
    pub(super) broken: Option<String>,
}

#[derive(Debug)]
pub(super) struct CompiledRule {
    pub(super) name: String,
    pub(super) effect: Effect,
    pub(super) program: Program,
}

#[derive(Debug)]
pub(super) enum Effect {
    /// Refuses when true, with this message.
    Deny(String),
    /// Permits when true.
    Permit,
}

#[derive(Debug)]
pub(super) struct CompiledHeader {
    /// Canonical name.
    pub(super) name: String,
    pub(super) source: CompiledSource,
}

#[derive(Debug)]
pub(super) enum CompiledSource {
    Value(String),
    Cel(Program),
}

impl Policy {
    /// Compiles all expressions.
    pub(super) fn compile(spec: &PolicySpec) -> Result<Policy, PolicyError> {
        let options = CompileOptions::with_variables(VARIABLES);
        let mut policy = Policy::empty(spec);
        let mut names = BTreeSet::new();
        for rule in &spec.rules {
            if !names.insert(rule.name.as_str()) {
                return Err(PolicyError::DuplicateRule {
                    rule: rule.name.clone(),
                });
            }
            policy.rules.push(compile_rule(rule, &options)?);
        }
        for injected in &spec.header_injection {
            policy.headers.push(CompiledHeader {
                name: injectable(&injected.header)?,
                source: compile_header(&injected.header, &injected.source, &options)?,
            });
        }
        Ok(policy)
    }

    /// A policy that denies what it selects, because of a fault (OM-488).
    pub(super) fn broken(spec: &PolicySpec, reason: &str) -> Policy {
        Policy {
            broken: Some(escape(reason, MESSAGE_LIMIT)),
            ..Policy::empty(spec)
        }
    }

    fn empty(spec: &PolicySpec) -> Policy {
        Policy {
            name: spec.name.clone(),
            tools: spec.tools.iter().cloned().collect(),
            mode: spec.mode,
            on_failure: spec.on_failure,
            required_claims: spec.required_claims.clone(),
            rules: Vec::new(),
            headers: Vec::new(),
            broken: None,
        }
    }

    /// Whether it selects this tool of its registry (OM-188).
    pub(super) fn selects(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.contains(tool)
    }

    /// Whether it has rules of the kind that permits (DD-4).
    pub(super) fn has_permit_rules(&self) -> bool {
        self.rules
            .iter()
            .any(|rule| matches!(rule.effect, Effect::Permit))
    }

    /// Whether one of its expressions reads this variable.
    pub(super) fn uses(&self, variable: &str) -> bool {
        let in_headers = |injected: &CompiledHeader| match &injected.source {
            CompiledSource::Cel(program) => program.uses_variable(variable),
            CompiledSource::Value(_) => false,
        };
        self.rules.iter().any(|rule| rule.program.uses_variable(variable))
            || self.headers.iter().any(in_headers)
    }
}

fn compile_rule(rule: &Rule, options: &CompileOptions) -> Result<CompiledRule, PolicyError> {
    let (source, effect) = match (&rule.deny, &rule.permit) {
        (Some(deny), None) => (&deny.cel, Effect::Deny(deny.message.clone())),
        (None, Some(permit)) => (permit, Effect::Permit),
        _ => {
            return Err(PolicyError::DenyOrPermit {
                rule: rule.name.clone(),
            });
        }
    };
    let program = compile(source, options).map_err(|source| PolicyError::Rule {
        rule: rule.name.clone(),
        source,
    })?;
    match program.result_type() {
        None | Some(Type::Bool) => Ok(CompiledRule {
            name: rule.name.clone(),
            effect,
            program,
        }),
        Some(found) => Err(PolicyError::NotACondition {
            rule: rule.name.clone(),
            found: found.name(),
        }),
    }
}

fn injectable(name: &str) -> Result<String, PolicyError> {
    let refused = |reason| PolicyError::HeaderRefused {
        header: name.to_owned(),
        reason,
    };
    if !header::is_name(name) {
        return Err(refused("not a header name"));
    }
    if !header::is_injectable(name) {
        return Err(refused("a policy may not set a header that frames the request"));
    }
    Ok(header::canonical_name(name))
}

fn compile_header(
    name: &str,
    source: &HeaderSource,
    options: &CompileOptions,
) -> Result<CompiledSource, PolicyError> {
    match source {
        HeaderSource::Value(value) if header::is_value(value) => Ok(CompiledSource::Value(value.clone())),
        HeaderSource::Value(_) => Err(PolicyError::HeaderRefused {
            header: name.to_owned(),
            reason: "the value has characters that no header may have",
        }),
        HeaderSource::Cel(cel) => {
            let program = compile(cel, options).map_err(|source| PolicyError::Header {
                header: name.to_owned(),
                source,
            })?;
            match program.result_type() {
                None | Some(Type::String | Type::Int | Type::Uint | Type::Double | Type::Bool) => {
                    Ok(CompiledSource::Cel(program))
                }
                Some(found) => Err(PolicyError::NotAHeaderValue {
                    header: name.to_owned(),
                    found: found.name(),
                }),
            }
        }
    }
}
