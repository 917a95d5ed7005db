//! Cost of one decision with 1, 10 and 100 rules, of which none refuses: the usual case, and the slowest.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mainstay_tools::policy::{DecisionRequest, Deny, Identity, PolicyEngine, PolicySet, PolicySpec, Rule};
use serde_json::json;

fn engine(rules: usize) -> PolicyEngine {
    let expressions = [
        "body.amount > 10000",
        "size(body.note) > 500",
        "headers['X-Tenant'] != 'acme'",
        "body.items.exists(item, item.price > 1000)",
        "!('buyer' in identity.claims.roles)",
        "body.note.matches('^DROP TABLE')",
    ];
    let rules = expressions
        .iter()
        .cycle()
        .take(rules)
        .enumerate()
        .map(|(index, cel)| Rule {
            name: format!("rule-{index}"),
            deny: Some(Deny {
                cel: (*cel).to_owned(),
                message: "refused".to_owned(),
            }),
            permit: None,
        })
        .collect();
    let spec = PolicySpec {
        name: "orders".to_owned(),
        registry: "shop".to_owned(),
        rules,
        ..PolicySpec::default()
    };
    let set = PolicySet::compile(vec![spec]);
    assert!(set.errors().is_empty());
    PolicyEngine::new(set)
}

fn request() -> DecisionRequest {
    DecisionRequest {
        registry: "shop".to_owned(),
        tool: "order".to_owned(),
        handler: "orders".to_owned(),
        body: json!({
            "amount": 120,
            "note": "please deliver in the morning",
            "items": [{"sku": "a", "price": 20}, {"sku": "b", "price": 100}],
        }),
        headers: BTreeMap::from([("X-Tenant".to_owned(), "acme".to_owned())]),
        identity: Identity {
            claims: BTreeMap::from([("roles".to_owned(), json!(["buyer"]))]),
            ..Identity::default()
        },
    }
}

fn decisions(criterion: &mut Criterion) {
    let request = request();
    let mut group = criterion.benchmark_group("policy_decision");
    for rules in [1, 10, 100] {
        let engine = engine(rules);
        assert!(engine.decide(&request).allow);
        group.bench_with_input(
            BenchmarkId::from_parameter(rules),
            &request,
            |bencher, request| {
                bencher.iter(|| engine.decide(black_box(request)));
            },
        );
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
