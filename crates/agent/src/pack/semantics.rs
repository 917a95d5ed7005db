//! What a schema cannot say about a pack: placeholders, circles, references between parts.

use std::collections::{BTreeMap, BTreeSet};

use super::guardrail::{GuardrailError, Guardrails};
use super::schema::escape;
use super::template::{Tag, tags};
use super::variable;
use super::{Finding, Pack, Prompt};

/// Deepest nesting of fragments that rendering resolves (OM-562).
const MAX_DEPTH: usize = 10;

pub(super) fn check(pack: &Pack) -> Vec<Finding> {
    let mut findings = Vec::new();
    engine(pack, &mut findings);
    references(pack, &mut findings);
    for (name, tool) in &pack.tools {
        if tool.name != *name {
            let path = format!("/tools/{}/name", escape(name));
            findings.push(Finding::new(
                path,
                format!("`{}` differs from its key `{name}`", tool.name),
            ));
        }
    }
    for (name, prompt) in &pack.prompts {
        let path = format!("/prompts/{}", escape(name));
        tools(prompt, &path, &mut findings);
        variables(prompt, &path, &mut findings);
        guardrails(prompt, &path, &mut findings);
        templates(pack, name, prompt, &path, &mut findings);
    }
    findings.sort();
    findings.dedup();
    findings
}

fn engine(pack: &Pack, findings: &mut Vec<Finding>) {
    if !pack.template_engine.syntax.contains("{{") {
        findings.push(Finding::new(
            "/template_engine/syntax",
            format!(
                "`{}` is not supported; placeholders are written {{{{variable}}}}",
                pack.template_engine.syntax
            ),
        ));
    }
}

fn references(pack: &Pack, findings: &mut Vec<Finding>) {
    if let Some(workflow) = &pack.workflow {
        if !workflow.states.contains_key(&workflow.entry) {
            let reason = format!("`{}` is not a state of the workflow", workflow.entry);
            findings.push(Finding::new("/workflow/entry", reason));
        }
        for (name, state) in &workflow.states {
            if let Some(task) = &state.prompt_task
                && !pack.prompts.contains_key(task)
            {
                let path = format!("/workflow/states/{}/prompt_task", escape(name));
                findings.push(Finding::new(
                    path,
                    format!("`{task}` is not a prompt of the pack"),
                ));
            }
        }
    }
    if let Some(agents) = &pack.agents {
        if !pack.prompts.contains_key(&agents.entry) {
            findings.push(Finding::new(
                "/agents/entry",
                format!("`{}` is not a prompt of the pack", agents.entry),
            ));
        }
        for name in agents
            .members
            .keys()
            .filter(|name| !pack.prompts.contains_key(*name))
        {
            let path = format!("/agents/members/{}", escape(name));
            findings.push(Finding::new(
                path,
                format!("`{name}` is not a prompt of the pack"),
            ));
        }
    }
}

fn tools(prompt: &Prompt, path: &str, findings: &mut Vec<Finding>) {
    for (index, tool) in prompt.tools.iter().enumerate() {
        let inner = tool.strip_suffix('*').unwrap_or(tool);
        if inner.contains('*') || tool.chars().any(char::is_whitespace) {
            let reason = format!("`{tool}` is not a tool name; `*` may only stand at the end");
            findings.push(Finding::new(format!("{path}/tools/{index}"), reason));
        }
    }
}

fn variables(prompt: &Prompt, path: &str, findings: &mut Vec<Finding>) {
    let mut seen = BTreeSet::new();
    for (index, declared) in prompt.variables.iter().enumerate() {
        let path = format!("{path}/variables/{index}");
        if !seen.insert(&declared.name) {
            findings.push(Finding::new(
                format!("{path}/name"),
                format!("`{}` is declared twice", declared.name),
            ));
        }
        if let Some(pattern) = &declared.validation.pattern
            && let Err(reason) = pattern.compiled()
        {
            findings.push(Finding::new(format!("{path}/validation/pattern"), reason));
            continue;
        }
        // A default with a placeholder is complete only when rendered, so its rules cannot be judged here.
        let complete = |value: &serde_json::Value| value.as_str().is_none_or(|text| tags(text).is_empty());
        if let Some(default) = declared
            .default
            .as_ref()
            .filter(|value| !value.is_null() && complete(value))
            && let Err(error) = variable::check(declared, default)
        {
            findings.push(Finding::new(format!("{path}/default"), error.reason));
        }
    }
}

/// A broken parameter is a fault of the document. An unknown type is not: the document is valid, but this
/// runtime cannot run it, which the agent reports (OM-565).
fn guardrails(prompt: &Prompt, path: &str, findings: &mut Vec<Finding>) {
    for (index, validator) in prompt.validators.iter().enumerate() {
        if let Err(GuardrailError::InvalidParams { reason, .. }) =
            Guardrails::compile(std::slice::from_ref(validator))
        {
            findings.push(Finding::new(format!("{path}/validators/{index}/params"), reason));
        }
    }
}

/// Every text that can become part of the prompt's system text, followed through fragments and defaults
/// (D16).
fn templates(pack: &Pack, name: &str, prompt: &Prompt, path: &str, findings: &mut Vec<Finding>) {
    let mut known: BTreeMap<&str, Source<'_>> = BTreeMap::new();
    for (fragment, text) in &pack.fragments {
        let path = format!("/fragments/{}", escape(fragment));
        known.insert(
            fragment,
            Source {
                path,
                text: Some(text),
            },
        );
    }
    for (index, declared) in prompt.variables.iter().enumerate() {
        let text = declared.default.as_ref().and_then(serde_json::Value::as_str);
        known.insert(
            &declared.name,
            Source {
                path: format!("{path}/variables/{index}/default"),
                text,
            },
        );
    }
    let mut roots = vec![(format!("{path}/system_template"), prompt.system_template.as_str())];
    for (model, over) in &prompt.model_overrides {
        let path = format!("{path}/model_overrides/{}", escape(model));
        let texts = [
            ("system_template", &over.system_template),
            ("system_template_prefix", &over.system_template_prefix),
            ("system_template_suffix", &over.system_template_suffix),
        ];
        roots.extend(
            texts
                .into_iter()
                .filter_map(|(field, text)| Some((format!("{path}/{field}"), text.as_deref()?))),
        );
    }
    let mut walk = Walk {
        prompt: name,
        known: &known,
        finished: BTreeSet::new(),
        findings,
    };
    for (path, text) in roots {
        walk.visit(&path, text, &mut Vec::new());
    }
}

struct Source<'a> {
    path: String,
    text: Option<&'a str>,
}

struct Walk<'a> {
    prompt: &'a str,
    known: &'a BTreeMap<&'a str, Source<'a>>,
    /// Names whose text was visited to its end: visited once, however often it is used.
    finished: BTreeSet<&'a str>,
    findings: &'a mut Vec<Finding>,
}

impl<'a> Walk<'a> {
    fn visit(&mut self, path: &str, text: &'a str, open: &mut Vec<&'a str>) {
        for (_, tag) in tags(text) {
            let name = match tag {
                Tag::Name(name) => name,
                Tag::Unsupported(inner) => {
                    let reason = format!("`{{{{{inner}}}}}` is not supported; only {{{{variable}}}} is");
                    self.findings.push(Finding::new(path, reason));
                    continue;
                }
            };
            let Some(source) = self.known.get(name) else {
                let reason = format!(
                    "`{{{{{name}}}}}` is neither a variable of prompt `{}` nor a fragment",
                    self.prompt
                );
                self.findings.push(Finding::new(path, reason));
                continue;
            };
            let Some(inner) = source.text else { continue };
            if open.contains(&name) {
                self.findings.push(Finding::new(
                    path,
                    format!("`{{{{{name}}}}}` refers to itself in a circle"),
                ));
            } else if open.len() + 1 >= MAX_DEPTH && !tags(inner).is_empty() {
                let reason = format!("`{{{{{name}}}}}` is nested deeper than {MAX_DEPTH} levels");
                self.findings.push(Finding::new(path, reason));
            } else if !self.finished.contains(name) {
                open.push(name);
                self.visit(&source.path, inner, open);
                open.pop();
                self.finished.insert(name);
            }
        }
    }
}
