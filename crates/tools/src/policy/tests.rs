//! Decisions as a whole: each test is one statement of the specification.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn deny(name: &str, cel: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        deny: Some(Deny {
            cel: cel.to_owned(),
            message: format!("{name} says no"),
        }),
        permit: None,
    }
}

fn permit(name: &str, cel: &str) -> Rule {
    Rule {
        name: name.to_owned(),
        deny: None,
        permit: Some(cel.to_owned()),
    }
}

fn inject(header: &str, source: HeaderSource) -> HeaderInjection {
    HeaderInjection {
        header: header.to_owned(),
        source,
    }
}

fn policy(name: &str, rules: Vec<Rule>) -> PolicySpec {
    PolicySpec {
        name: name.to_owned(),
        registry: "agent-tools".to_owned(),
        rules,
        ..PolicySpec::default()
    }
}

fn never(name: &str) -> PolicySpec {
    policy(name, vec![deny("never", "false")])
}

fn request(body: Value) -> DecisionRequest {
    DecisionRequest {
        registry: "agent-tools".to_owned(),
        tool: "calculate".to_owned(),
        handler: "calculator".to_owned(),
        body,
        headers: BTreeMap::from([
            ("x-tenant".to_owned(), "acme".to_owned()),
            ("Authorization".to_owned(), "Bearer sesame".to_owned()),
        ]),
        identity: Identity {
            origin: "token".to_owned(),
            subject: "user-1".to_owned(),
            end_user: "ada".to_owned(),
            workspace: "math".to_owned(),
            agent: "tutor".to_owned(),
            claims: BTreeMap::from([
                ("role".to_owned(), json!(["admin"])),
                ("gone".to_owned(), Value::Null),
            ]),
        },
    }
}

fn decide(policies: Vec<PolicySpec>, body: Value) -> Decision {
    PolicyEngine::new(PolicySet::compile(policies)).decide(&request(body))
}

fn denied_by(decision: &Decision) -> Option<&str> {
    assert!(!decision.allow, "{decision:?}");
    decision.denied_by.as_deref()
}

#[test]
fn om_482_v_70_without_a_policy_for_the_registry_every_call_is_refused() {
    let other = PolicySpec {
        registry: "other".to_owned(),
        ..never("other")
    };
    for policies in [vec![], vec![other]] {
        let decision = decide(policies, json!({}));
        assert_eq!(denied_by(&decision), Some("no-matching-permit"));
        assert_eq!(
            decision.denial_text().as_deref(),
            Some(
                "tool call denied by policy: no ToolPolicy permits tool calculate of registry agent-tools \
                 (rule: no-matching-permit)"
            )
        );
        assert_eq!(decision.deciding_policy(), None);
    }
    assert_eq!(
        denied_by(&PolicyEngine::default().decide(&request(json!({})))),
        Some("no-matching-permit")
    );
}

#[test]
fn om_484_v_71_a_policy_for_other_tools_is_no_permit() {
    let mut other = never("other");
    other.tools = vec!["other".to_owned()];
    assert_eq!(
        denied_by(&decide(vec![other.clone()], json!({}))),
        Some("no-matching-permit")
    );
    other.tools.push("calculate".to_owned());
    assert!(decide(vec![other], json!({})).allow);
}

#[test]
fn om_484_a_compiled_policy_that_selects_the_tool_is_the_permit() {
    let decision = decide(vec![never("calculator")], json!({}));
    assert!(decision.allow && !decision.would_deny);
    assert_eq!(
        (decision.denied_by.as_deref(), decision.mode),
        (None, Mode::Enforce)
    );
    assert_eq!(decision.deciding_policy(), Some("calculator"));
    assert_eq!(decision.denial_text(), None);
}

#[test]
fn om_486_decisions_use_the_registry_and_an_unknown_one_is_refused() {
    let engine = PolicyEngine::new(PolicySet::compile(vec![never("calculator")]));
    let mut unknown = request(json!({}));
    unknown.registry = "calculator".to_owned();
    unknown.handler = "agent-tools".to_owned();
    assert_eq!(denied_by(&engine.decide(&unknown)), Some("no-matching-permit"));
    unknown.registry = String::new();
    assert_eq!(denied_by(&engine.decide(&unknown)), Some("no-matching-permit"));
}

#[test]
fn om_487_v_72_the_first_deny_rule_that_is_true_wins() {
    let rules = vec![
        deny("quiet", "size(body.expression) > 200"),
        deny("short-expressions", "body.expression.size() > 10"),
        deny("later", "true"),
    ];
    let decision = decide(
        vec![policy("calculator-policy", rules)],
        json!({"expression": "1+1+1+1+1+1"}),
    );
    assert_eq!(denied_by(&decision), Some("short-expressions"));
    assert_eq!(decision.message.as_deref(), Some("short-expressions says no"));
    assert_eq!(decision.deciding_policy(), Some("calculator-policy"));
    assert_eq!(
        serde_json::to_value(&decision.trace).unwrap(),
        json!([
            {
                "policy": "calculator-policy", "rule": "quiet", "expression": "size(body.expression) > 200",
                "result": "false", "values": {"body.expression": "1+1+1+1+1+1"},
            },
            {
                "policy": "calculator-policy", "rule": "short-expressions",
                "expression": "body.expression.size() > 10", "result": "true",
                "values": {"body.expression": "1+1+1+1+1+1"},
            },
        ])
    );
}

#[test]
fn om_487_required_claims_come_before_rules() {
    let mut strict = policy("strict", vec![deny("always", "true")]);
    let claim = |name: &str| RequiredClaim {
        claim: name.to_owned(),
        message: format!("{name} is required"),
    };
    strict.required_claims = vec![claim("role"), claim("team")];
    let decision = decide(vec![strict.clone()], json!({}));
    assert_eq!(denied_by(&decision), Some("required-claim:team"));
    assert_eq!(decision.message.as_deref(), Some("team is required"));
    assert_eq!(decision.trace.last().unwrap().result, StepResult::ClaimMissing);

    strict.required_claims = vec![claim("gone")];
    assert_eq!(
        denied_by(&decide(vec![strict.clone()], json!({}))),
        Some("required-claim:gone")
    );

    strict.required_claims = vec![claim("role")];
    assert_eq!(denied_by(&decide(vec![strict], json!({}))), Some("always"));
}

#[test]
fn om_487_expressions_see_headers_body_and_identity() {
    for expression in [
        "headers['X-Tenant'] == 'acme' && !('x-tenant' in headers)",
        "body.a.b[0] == 1",
        "identity.origin == 'token' && identity.subject == 'user-1' && identity.endUser == 'ada'",
        "identity.workspace == 'math' && identity.agent == 'tutor' && 'admin' in identity.claims.role",
        "body.name.lowerAscii().substring(0, 2) == 'ab' && 'a-b'.split('-').join('+') == 'a+b'",
    ] {
        let decision = decide(
            vec![policy("seen", vec![deny("true", expression)])],
            json!({"a": {"b": [1]}, "name": "ABC"}),
        );
        assert_eq!(denied_by(&decision), Some("true"), "{expression}");
    }
}

#[test]
fn om_487_v_73_rules_see_the_sandbox_argument() {
    let rules = vec![deny("no-prod", "body.sandbox == 'prod'")];
    let decision = decide(
        vec![policy("boxes", rules)],
        json!({"sandbox": "prod", "command": "ls"}),
    );
    assert_eq!(denied_by(&decision), Some("no-prod"));
}

#[test]
fn d14_a_number_in_text_is_an_error_that_denies_with_the_reason() {
    let rules = || vec![deny("too-many", "body.count > 5")];
    for count in [json!(6), json!(6.0)] {
        assert_eq!(
            decide(vec![policy("limit", rules())], json!({"count": count}))
                .message
                .as_deref(),
            Some("too-many says no")
        );
    }
    let decision = decide(vec![policy("limit", rules())], json!({"count": "6"}));
    assert_eq!(denied_by(&decision), Some("too-many"));
    assert_eq!(
        decision.denial_text().as_deref(),
        Some(
            "tool call denied by policy: rule too-many could not be evaluated: \
             no such overload: _>_(string, int) (rule: too-many)"
        )
    );
    assert!(decide(vec![policy("limit", rules())], json!({"count": 5})).allow);
}

#[test]
fn om_488_a_rule_that_cannot_be_evaluated_is_skipped_when_on_failure_is_allow() {
    let mut lenient = policy(
        "lenient",
        vec![deny("broken", "body.absent > 5"), deny("later", "body.x == 1")],
    );
    lenient.on_failure = OnFailure::Allow;
    let decision = decide(vec![lenient.clone()], json!({"x": 2}));
    assert!(decision.allow);
    assert_eq!(
        decision.trace[0].result,
        StepResult::Failed("no such key: absent".to_owned())
    );
    assert_eq!(denied_by(&decide(vec![lenient], json!({"x": 1}))), Some("later"));
}

#[test]
fn om_488_what_the_model_reads_of_a_fault_is_one_line() {
    let mut marked = never("marked");
    marked.broken = Some("rule x: ERROR: <input>:1:1: no\n | y\n | ^".to_owned());
    let typo = policy("typo", vec![deny("typo", "body.x ==\n bdy.y")]);
    let by_key = policy("by-key", vec![deny("by-key", "body[body.key] == 1")]);
    for faulty in [marked, typo, by_key] {
        let decision = decide(vec![faulty], json!({"key": "a\nIgnore this\u{202e}"}));
        let message = decision.message.unwrap();
        assert!(
            !decision.allow && !message.contains(['\n', '\u{202e}']),
            "{message:?}"
        );
    }
}

#[test]
fn om_488_an_expression_without_end_is_cut_off_and_denies() {
    let walk = ["a", "b", "c", "d", "e", "f"]
        .iter()
        .fold("true".to_owned(), |inner, name| {
            format!("body.items.all({name}, {inner})")
        });
    let items: Vec<u32> = (0..100).collect();
    let decision = decide(
        vec![policy("walk", vec![deny("walk", &walk)])],
        json!({"items": items}),
    );
    assert_eq!(denied_by(&decision), Some("walk"));
    assert!(decision.message.unwrap().contains("actual cost limit exceeded"));
}

#[test]
fn om_488_a_policy_in_error_denies_what_it_selects_and_nothing_else() {
    let mut marked = never("marked");
    marked.broken = Some("rule x: no".to_owned());
    let mut audit = policy("does-not-compile", vec![deny("typo", "bdy.x == 1")]);
    audit.mode = Mode::Audit;
    for broken in [marked, audit] {
        let name = broken.name.clone();
        let decision = decide(vec![broken.clone(), never("a-fine-one")], json!({}));
        assert_eq!(
            denied_by(&decision),
            Some(format!("policy-error:{name}").as_str())
        );
        assert_eq!(decision.deciding_policy(), Some(name.as_str()));
        let elsewhere = PolicySpec {
            tools: vec!["other".to_owned()],
            ..broken
        };
        assert!(decide(vec![elsewhere, never("a-fine-one")], json!({})).allow);
    }
    let set = PolicySet::compile(vec![policy("does-not-compile", vec![deny("typo", "bdy.x == 1")])]);
    assert_eq!(set.errors().len(), 1);
    assert_eq!(set.errors()[0].0, "does-not-compile");
}

#[test]
fn om_489_an_audit_policy_permits_and_says_what_it_would_have_done() {
    let mut audit = policy("watch", vec![deny("too-long", "true")]);
    audit.mode = Mode::Audit;
    let decision = decide(vec![audit.clone()], json!({}));
    assert!(decision.allow && decision.would_deny);
    assert_eq!(decision.mode, Mode::Audit);
    assert_eq!(decision.denied_by.as_deref(), Some("too-long"));
    assert_eq!(decision.message.as_deref(), Some("too-long says no"));
    assert_eq!(decision.denial_text(), None);

    // One refusal of an enforcing policy is enough, whatever the order.
    let decision = decide(
        vec![audit.clone(), policy("z-strict", vec![deny("strict", "true")])],
        json!({}),
    );
    assert_eq!(denied_by(&decision), Some("strict"));
    assert!(!decision.would_deny);

    let decision = decide(vec![audit, never("a-strict")], json!({}));
    assert!(decision.allow && decision.would_deny);
    assert_eq!(decision.deciding_policy(), Some("watch"));
}

#[test]
fn dd_4_with_permit_rules_a_policy_permits_only_when_one_is_true() {
    let rules = || {
        vec![
            permit("adds", "body.op == 'add'"),
            permit("admins", "'root' in identity.claims.role"),
        ]
    };
    let decision = decide(vec![policy("listed", rules())], json!({"op": "add"}));
    assert!(decision.allow);
    let decision = decide(vec![policy("listed", rules())], json!({"op": "drop"}));
    assert_eq!(denied_by(&decision), Some("no-matching-permit"));
    assert_eq!(decision.trace.len(), 2);

    // Another policy may permit it; a deny rule beside a true permit still refuses.
    assert!(
        decide(
            vec![policy("listed", rules()), never("open")],
            json!({"op": "drop"})
        )
        .allow
    );
    let mut both = rules();
    both.push(deny("never-add", "body.op == 'add'"));
    assert_eq!(
        denied_by(&decide(vec![policy("listed", both)], json!({"op": "add"}))),
        Some("never-add")
    );

    let mut audit = policy("listed", rules());
    audit.mode = Mode::Audit;
    let decision = decide(vec![audit], json!({"op": "drop"}));
    assert!(decision.allow && decision.would_deny);
    assert_eq!(decision.denied_by.as_deref(), Some("no-matching-permit"));

    let mut lenient = policy("listed", vec![permit("adds", "body.absent == 1")]);
    lenient.on_failure = OnFailure::Allow;
    assert_eq!(
        denied_by(&decide(vec![lenient], json!({}))),
        Some("no-matching-permit")
    );
}

#[test]
fn om_491_headers_are_injected_only_into_allowed_calls() {
    let mut tagged = policy("tagged", vec![deny("drop", "body.op == 'drop'")]);
    tagged.header_injection = vec![
        inject("x-source", HeaderSource::Value("mainstay".to_owned())),
        inject("X-User", HeaderSource::Cel("identity.endUser".to_owned())),
        inject("x-count", HeaderSource::Cel("size(body)".to_owned())),
    ];
    let decision = decide(vec![tagged.clone()], json!({"op": "add"}));
    let expected = [("X-Source", "mainstay"), ("X-User", "ada"), ("X-Count", "1")];
    assert_eq!(
        decision.injected_headers,
        expected
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    );
    // The trace tells that a header is added and how it is computed, and no value of it.
    let injected: Vec<(&str, &str)> = decision
        .trace
        .iter()
        .filter(|step| step.result == StepResult::Injected && step.values.is_empty())
        .map(|step| (step.rule.as_str(), step.expression.as_str()))
        .collect();
    assert_eq!(
        injected,
        [
            ("header-injection:X-Source", ""),
            ("header-injection:X-User", "identity.endUser"),
            ("header-injection:X-Count", "size(body)"),
        ]
    );
    assert_eq!(decision.deciding_policy(), Some("tagged"));
    let decision = decide(vec![tagged], json!({"op": "drop"}));
    assert_eq!(denied_by(&decision), Some("drop"));
    assert!(decision.injected_headers.is_empty());
}

#[test]
fn om_491_a_header_that_cannot_be_computed_follows_on_failure() {
    for (cel, reason) in [
        ("body.absent", "no such key: absent"),
        ("body.lines", "the value has characters that no header may have"),
        ("body.list", "a list cannot be a header's value"),
    ] {
        let mut tagged = never("tagged");
        tagged.header_injection = vec![inject("X-Note", HeaderSource::Cel(cel.to_owned()))];
        let body = json!({"lines": "a\r\nHost: evil", "list": []});
        let decision = decide(vec![tagged.clone()], body.clone());
        assert_eq!(denied_by(&decision), Some("header-injection:X-Note"));
        assert_eq!(
            decision.message.as_deref(),
            Some(format!("header X-Note could not be computed: {reason}").as_str())
        );
        tagged.on_failure = OnFailure::Allow;
        let decision = decide(vec![tagged.clone()], body.clone());
        assert!(decision.allow && decision.injected_headers.is_empty());
        tagged.on_failure = OnFailure::Deny;
        tagged.mode = Mode::Audit;
        let decision = decide(vec![tagged], body);
        assert!(decision.allow && decision.would_deny && decision.injected_headers.is_empty());
    }
}

#[test]
fn om_483_without_an_engine_calls_are_not_evaluated() {
    let engine = PolicyEngine::disabled();
    assert!(!engine.is_enabled());
    let decision = engine.decide(&request(json!({})));
    assert!(decision.allow && decision.trace.is_empty() && decision.denied_by.is_none());

    // The CRD comes, then goes: a clone, as a toolset holds one, sees it.
    let held = engine.clone();
    engine.set(PolicySet::default());
    assert!(held.is_enabled() && !held.decide(&request(json!({}))).allow);
    engine.set(PolicySet::compile(vec![never("calculator")]));
    assert!(held.decide(&request(json!({}))).allow);
    engine.disable();
    assert!(!held.is_enabled());
}

#[test]
fn om_485_the_json_form_of_a_decision() {
    let mut audit = policy("watch", vec![deny("too-long", "body.n > 1")]);
    audit.mode = Mode::Audit;
    audit.header_injection = vec![inject("x-a", HeaderSource::Value("b".to_owned()))];
    let decision = decide(vec![audit], json!({"n": 2}));
    let json = serde_json::to_value(&decision).unwrap();
    assert_eq!(
        json,
        json!({
            "allow": true, "deniedBy": "too-long", "message": "too-long says no", "mode": "audit",
            "wouldDeny": true, "injectedHeaders": {"X-A": "b"},
            "trace": [{
                "policy": "watch", "rule": "too-long", "expression": "body.n > 1", "result": "true",
                "values": {"body.n": 2},
            }, {
                "policy": "watch", "rule": "header-injection:X-A", "expression": "", "result": "injected",
            }],
        })
    );
    assert_eq!(serde_json::from_value::<Decision>(json).unwrap(), decision);
}

fn findings(policies: Vec<PolicySpec>, body: Value) -> Vec<(String, Finding)> {
    let engine = PolicyEngine::new(PolicySet::compile(policies));
    let explained = engine.explain(&request(body.clone()));
    assert!(explained.judged);
    assert_eq!(
        explained.decision,
        engine.decide(&request(body)),
        "the explanation explains the decision that is made"
    );
    let policies = explained.policies.into_iter();
    policies.map(|found| (found.policy, found.finding)).collect()
}

#[test]
fn om_482_to_om_491_an_explanation_says_what_every_policy_has_to_do_with_the_call() {
    let elsewhere = PolicySpec {
        registry: "other".to_owned(),
        ..never("a-elsewhere")
    };
    let others = PolicySpec {
        tools: vec!["plot".to_owned()],
        ..never("b-others")
    };
    let mut watch = policy("d-watch", vec![deny("long", "body.n > 1")]);
    watch.mode = Mode::Audit;
    let claim = PolicySpec {
        required_claims: vec![RequiredClaim {
            claim: "gone".to_owned(),
            message: "no claim".to_owned(),
        }],
        ..never("f-claim")
    };
    let all = vec![
        elsewhere.clone(),
        others.clone(),
        never("c-permits"),
        watch.clone(),
        policy("e-narrow", vec![permit("only-zero", "body.n == 0")]),
        claim,
        never("g-late"),
    ];
    let named = |found: &[(&str, Finding)]| -> Vec<(String, Finding)> {
        found
            .iter()
            .map(|(policy, finding)| ((*policy).to_owned(), finding.clone()))
            .collect()
    };
    let by = str::to_owned;
    assert_eq!(
        findings(all, json!({"n": 2})),
        named(&[
            ("a-elsewhere", Finding::OtherRegistry),
            ("b-others", Finding::OtherTools),
            ("c-permits", Finding::Permits),
            ("d-watch", Finding::WouldDeny { by: by("long") }),
            ("e-narrow", Finding::NoPermitRuleHolds),
            (
                "f-claim",
                Finding::Denies {
                    by: by("required-claim:gone")
                }
            ),
            ("g-late", Finding::NotReached),
        ])
    );
    // Without a permit: default deny, and why nothing permits it.
    assert_eq!(
        findings(vec![elsewhere, others], json!({})),
        named(&[
            ("a-elsewhere", Finding::OtherRegistry),
            ("b-others", Finding::OtherTools)
        ])
    );
    // A header that cannot be computed takes the permit back.
    let mut tagged = never("tagged");
    tagged.header_injection = vec![inject("X-Note", HeaderSource::Cel("body.absent".to_owned()))];
    assert_eq!(
        findings(vec![tagged], json!({})),
        named(&[(
            "tagged",
            Finding::Denies {
                by: by("header-injection:X-Note")
            }
        )])
    );
    let mut broken = never("broken");
    broken.mode = Mode::Audit;
    broken.broken = Some("spec.rules is empty".to_owned());
    assert_eq!(
        findings(vec![broken], json!({})),
        named(&[(
            "broken",
            Finding::Denies {
                by: by("policy-error:broken")
            }
        )])
    );
    let off = PolicyEngine::disabled().explain(&request(json!({})));
    assert!(!off.judged && off.decision.allow && off.policies.is_empty());
}

#[test]
fn an_explanation_can_be_shown_without_the_headers_that_are_credentials() {
    let mut tagged = never("tagged");
    tagged.header_injection = vec![
        inject("X-Api-Key", HeaderSource::Value("hunter2".to_owned())),
        inject("X-Zone", HeaderSource::Value("eu".to_owned())),
    ];
    let explained = PolicyEngine::new(PolicySet::compile(vec![tagged])).explain(&request(json!({})));
    assert_eq!(explained.decision.injected_headers["X-Api-Key"], "hunter2");
    let shown = serde_json::to_value(explained.masked()).unwrap();
    assert_eq!(
        shown["decision"]["injectedHeaders"],
        json!({"X-Api-Key": "[redacted]", "X-Zone": "eu"})
    );
    assert_eq!(
        shown["policies"],
        json!([{"policy": "tagged", "registry": "agent-tools", "tools": [], "mode": "enforce", "finding": "permits"}])
    );
}

#[test]
fn om_590_a_trace_never_holds_a_credential() {
    let rules = vec![
        deny(
            "literal",
            "headers['Authorization'] == 'x' || headers.Authorization == 'y'",
        ),
        deny("dynamic", "headers[body.name] == 'x'"),
        deny("walk", "headers.exists(name, headers[name] == 'x')"),
        deny("key", "{'a': 1}[headers[body.name]] == 1"),
    ];
    let mut leaky = policy("leaky", rules);
    leaky.on_failure = OnFailure::Allow;
    leaky.header_injection = vec![inject(
        "X-Zone",
        HeaderSource::Cel("timestamp(0).getHours(headers.Authorization)".to_owned()),
    )];
    let decision = decide(vec![leaky], json!({"name": "Authorization"}));
    assert_eq!(decision.trace.len(), 5);
    let written = serde_json::to_string(&decision).unwrap();
    assert!(!written.contains("sesame"), "{written}");
    assert!(written.contains("[redacted]") && written.contains("acme"));
}

#[test]
fn om_351_check_counts_rules_and_finds_spellings_that_never_match() {
    let mut spec = policy(
        "spelled",
        vec![
            deny("a", "headers['x-tenant'] == 'a' && headers['X-Tenant'] == 'a'"),
            permit("b", "'X-TENANT-ID' in headers || has(headers.etag)"),
        ],
    );
    spec.header_injection = vec![inject(
        "X-Copy",
        HeaderSource::Cel("headers[?'x-user'].orValue('')".to_owned()),
    )];
    let checked = check(&spec).unwrap();
    assert_eq!(checked.rule_count, 2);
    let found: Vec<(&str, &str, &str)> = checked
        .non_canonical_headers
        .iter()
        .map(|found| {
            (
                found.place.as_str(),
                found.written.as_str(),
                found.canonical.as_str(),
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("a", "x-tenant", "X-Tenant"),
            ("b", "X-TENANT-ID", "X-Tenant-Id"),
            ("b", "etag", "Etag"),
            ("header X-Copy", "x-user", "X-User"),
        ]
    );
}

#[test]
fn om_351_check_names_the_rule_and_the_compilers_message() {
    let refused = |spec: PolicySpec| check(&spec).unwrap_err();
    let error = refused(policy("p", vec![deny("ok", "true"), deny("typo", "bdy.x == 1")]));
    assert_eq!(
        error.to_string(),
        "rule typo: ERROR: <input>:1:1: undeclared reference to 'bdy' (in container '')"
    );
    assert!(error.is_compile_error());
    for expression in ["body.id ==", "body.x\n  == 1 &&\n  bdy.y", "no\u{7}"] {
        let error = refused(policy("p", vec![deny("lines", expression)])).to_string();
        assert!(!error.contains(char::is_control), "{expression:?}: {error:?}");
    }
    let error = refused(policy("p", vec![deny("number", "size(body)")]));
    assert_eq!(
        error.to_string(),
        "rule number: the expression is a int, not a bool"
    );
    let error = refused(policy("p", vec![deny("same", "true"), permit("same", "true")]));
    assert_eq!(
        error,
        PolicyError::DuplicateRule {
            rule: "same".to_owned()
        }
    );
    assert!(!error.is_compile_error());
    let error = refused(policy(
        "p",
        vec![Rule {
            name: "neither".to_owned(),
            ..Rule::default()
        }],
    ));
    assert_eq!(
        error,
        PolicyError::DenyOrPermit {
            rule: "neither".to_owned()
        }
    );

    let header = |name: &str, source: HeaderSource| {
        let mut spec = never("p");
        spec.header_injection = vec![inject(name, source)];
        check(&spec).unwrap_err().to_string()
    };
    assert!(
        header("X-A", HeaderSource::Cel("nope".to_owned())).starts_with("header X-A: ERROR: <input>:1:1:")
    );
    assert!(header("X-A", HeaderSource::Cel("[1]".to_owned())).contains("cannot be a header's value"));
    assert!(header("X A", HeaderSource::Value("v".to_owned())).contains("not a header name"));
    assert!(header("X-A", HeaderSource::Value("a\nb".to_owned())).contains("no header may have"));
    for framing in ["host", "Content-Length", "transfer-encoding", "CONNECTION"] {
        assert!(header(framing, HeaderSource::Value("v".to_owned())).contains("frames the request"));
    }
}

#[test]
fn a_policy_survives_its_own_json_form() {
    let mut spec = policy("p", vec![deny("a", "true"), permit("b", "true")]);
    spec.header_injection = vec![
        inject("X-A", HeaderSource::Cel("identity.agent".to_owned())),
        inject("X-B", HeaderSource::Value("b".to_owned())),
    ];
    let json = serde_json::to_value(&spec).unwrap();
    assert_eq!(
        json["headerInjection"][0],
        json!({"header": "X-A", "cel": "identity.agent"})
    );
    assert_eq!(serde_json::from_value::<PolicySpec>(json).unwrap(), spec);
}

/// What a policy can do, without expressions: what it says is known beforehand.
#[derive(Debug, Clone)]
enum Stance {
    Permit,
    NoPermit,
    Deny,
    Broken,
}

fn stances() -> impl Strategy<Value = Vec<(Stance, bool)>> {
    let stance = prop::sample::select(vec![
        Stance::Permit,
        Stance::NoPermit,
        Stance::Deny,
        Stance::Broken,
    ]);
    prop::collection::vec((stance, any::<bool>()), 0..6)
}

proptest! {
    /// OM-482, OM-484, OM-488, OM-489: whatever the policies and their order, a call is allowed exactly when none that
    /// enforces refuses it and one permits it.
    #[test]
    fn a_call_is_allowed_exactly_when_one_permits_and_none_refuses(stances in stances()) {
        let policies = stances.iter().enumerate().map(|(index, (stance, audit))| {
            let rules = match stance {
                Stance::Permit => vec![deny("no", "false")],
                Stance::NoPermit => vec![permit("no", "false")],
                Stance::Deny => vec![deny("no", "true")],
                Stance::Broken => vec![deny("no", "unknown")],
            };
            PolicySpec { mode: if *audit { Mode::Audit } else { Mode::Enforce }, ..policy(&format!("p{index}"), rules) }
        });
        let decision = decide(policies.collect(), json!({}));
        let refused = stances.iter().any(|(stance, audit)| match stance {
            Stance::Broken => true,
            Stance::Deny => !audit,
            _ => false,
        });
        let permitted = stances.iter().any(|(stance, audit)| *audit || matches!(stance, Stance::Permit));
        let noted = stances.iter().any(|(stance, audit)| *audit && matches!(stance, Stance::Deny | Stance::NoPermit));
        prop_assert_eq!(decision.allow, permitted && !refused);
        prop_assert_eq!(decision.would_deny, decision.allow && noted);
        prop_assert_eq!(decision.denied_by.is_some(), !decision.allow || noted);
    }

    /// Any body gives a decision, and a rule that fails on it denies.
    #[test]
    fn any_arguments_get_a_decision(text in ".*", number in any::<f64>(), depth in 0_usize..40) {
        let nested = (0..depth).fold(json!(text), |inner, _| json!({ "inner": [inner] }));
        let rules = vec![deny("reads", "body.text.matches('^[a-z]*$') && body.number > 0.5 && body.nested.inner[0] != null")];
        let decision = decide(vec![policy("p", rules)], json!({"text": text, "number": number, "nested": nested}));
        prop_assert_eq!(decision.allow, decision.denied_by.is_none());
        prop_assert_eq!(decision.trace.len(), 1);
    }
}
