use mainstay_resources::omnia::{ToolPolicy, tool_policy::Phase};
use serde_json::{Value, json};

use crate::world::{World, condition};

fn policy(cel: &str) -> Value {
    json!({
        "metadata": { "name": "p" },
        "spec": { "selector": { "registry": "r" }, "rules": [{ "name": "short", "deny": { "cel": cel, "message": "no" } }] },
    })
}

fn phase(policy: &ToolPolicy) -> Option<Phase> {
    policy.status.as_ref().and_then(|status| status.phase)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_says_whether_it_compiles_om_351() {
    let world = World::start().await;
    world
        .create::<ToolPolicy>(policy("size(body.expression) > 200"))
        .await;
    let active = world
        .until("p", |policy: &ToolPolicy| phase(policy) == Some(Phase::Active))
        .await;
    assert_eq!(active.status.as_ref().unwrap().rule_count, Some(1));
    let broken = policy("body.expression ==");
    world
        .merge::<ToolPolicy>("p", json!({ "spec": { "rules": broken["spec"]["rules"] } }))
        .await;
    let error = world
        .until("p", |policy: &ToolPolicy| phase(policy) == Some(Phase::Error))
        .await;
    let status = error.status.unwrap();
    assert_eq!(condition(&status.conditions, "Compiled"), "False CompileError");
    assert_eq!(condition(&status.conditions, "Ready"), "False CompileError");
    let reasons: Vec<String> = world
        .events("ToolPolicy", "p", 1)
        .await
        .into_iter()
        .map(|(reason, _)| reason)
        .collect();
    assert_eq!(reasons, ["CompileError"]);
}
