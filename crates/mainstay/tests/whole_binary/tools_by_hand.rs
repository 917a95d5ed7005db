//! `tool list`, `tool call`, `policy test`: who may call what, and why (OM-358…OM-366, OM-482…OM-494).

use serde_json::{Value, json};

use crate::support::{
    DEADLINE,
    backend::Backend,
    desk,
    objects::{edit, omnia},
    server::Running,
    world::{Ran, World, assert_ran, example},
};

fn parsed(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran}"))
}

/// `tool` on the shared help desk.
async fn tool(running: &Running, arguments: &[&str]) -> Ran {
    running.world.run(&[&["tool"], arguments].concat()).await
}

#[tokio::test]
async fn om_358_the_tools_of_an_agent_are_listed_with_what_decides_about_them() {
    let running = Running::shared();
    assert_ran!(
        "tool_list",
        tool(&running, &["list", "helpdesk"]).await.succeeded()
    );
    let listed = parsed(
        &tool(&running, &["list", "helpdesk", "-o", "json"])
            .await
            .succeeded(),
    );
    let first = &listed["tools"][0];
    assert_eq!(
        (
            &first["tool"],
            &first["handler"],
            &first["type"],
            &first["offered"]
        ),
        (
            &json!("delete_order"),
            &json!("delete-order"),
            &json!("http"),
            &json!("yes")
        )
    );
    assert_eq!(first["policies"], json!(["orders-no-delete"]));
    assert_eq!(first["parameters"]["required"], json!(["id"]));
    assert_ran!(
        "tool_list_unknown_agent",
        tool(&running, &["list", "nobody"]).await
    );
}

#[tokio::test]
async fn om_366_a_call_by_hand_takes_the_path_of_the_agents_own() {
    let running = Running::shared();
    let found = tool(&running, &["call", "helpdesk", "get_order", "{\"id\": 1017}"])
        .await
        .succeeded();
    let order: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(
        (&order["id"], &order["status"]),
        (&json!(1017), &json!("shipped"))
    );

    // OM-490: the policy refuses, and nothing is sent.
    let refused = ["call", "helpdesk", "delete_order", "{\"id\": 1017}"];
    assert_ran!("tool_call_denied", tool(&running, &refused).await.failed());
    let as_json = parsed(
        &tool(&running, &[&refused[..], &["-o", "json"]].concat())
            .await
            .failed(),
    );
    assert_eq!(as_json["outcome"], "denied");
    assert_eq!(as_json["attempts"], 0);
    assert_eq!(as_json["decision"]["deniedBy"], "never-delete");
    let still = tool(&running, &["call", "helpdesk", "get_order", "{\"id\": 1017}"]).await;
    still.succeeded();

    // OM-364: the schema; OM-363: the name; and what is no JSON object never leaves this machine.
    assert_ran!(
        "tool_call_schema",
        tool(
            &running,
            &["call", "helpdesk", "list_orders", "{\"status\": \"eaten\"}"]
        )
        .await
    );
    assert_ran!(
        "tool_call_unknown",
        tool(&running, &["call", "helpdesk", "get_ordr", "{}"]).await
    );
    assert_ran!(
        "tool_call_bad_json",
        tool(&running, &["call", "helpdesk", "get_order", "{id: 1017}"]).await
    );
    assert_ran!(
        "tool_call_no_object",
        tool(&running, &["call", "helpdesk", "get_order", "[1017]"]).await
    );
}

#[tokio::test]
async fn a_dry_run_shows_the_request_and_the_decision() {
    let running = Running::shared();
    let call = ["call", "helpdesk", "get_order", "{\"id\":1017}", "--dry-run"];
    let shown = tool(&running, &call).await.succeeded();
    for line in [
        "GET http://orders.default.svc.cluster.local/orders/1017\n",
        "x-omnia-agent-name: helpdesk\n",
        "x-omnia-param-id: 1017\n",
        "allowed by ToolPolicy orders-read\n",
        "real-order-numbers",
        "body.id=1017",
        "not asked: other tools",
    ] {
        assert!(shown.stdout.contains(line), "{line:?} is not in {shown}");
    }
    let shown = parsed(
        &tool(&running, &[&call[..], &["-o", "json"]].concat())
            .await
            .succeeded(),
    );
    assert_eq!(shown["request"]["method"], "GET");
    assert_eq!(shown["dry_run"], true);
    assert_eq!(shown["attempts"], 0);
    let denied = ["call", "helpdesk", "delete_order", "{\"id\":1017}", "--dry-run"];
    let denied = tool(&running, &denied).await.failed();
    assert!(denied.stdout.starts_with("nothing would be sent\n"), "{denied}");
    assert!(
        denied
            .stdout
            .contains("denied by rule never-delete of ToolPolicy orders-no-delete"),
        "{denied}"
    );
}

/// The desk, whose handler `get` has a credential and other secrets.
fn desk_with_secrets(world: &World, backend: &Backend) {
    desk::write(world, backend.address, desk::SCENARIO);
    let file = "desk/desk.yaml";
    let manifests = std::fs::read_to_string(world.path(file)).unwrap();
    let handler = "    - name: get\n      type: http\n";
    assert!(manifests.contains(handler));
    let with =
        format!("{handler}      auth: {{type: bearer, secretRef: {{name: desk-secrets, key: token}}}}\n");
    let secret = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: desk-secrets}\nstringData: {token: sesame-sesame}\n";
    world.write(file, &format!("{}{secret}", manifests.replace(handler, &with)));
}

#[tokio::test]
async fn om_590_secrets_are_in_no_request_that_is_shown_and_no_session_that_is_exported() {
    let backend = Backend::start(200);
    let world = World::new();
    desk_with_secrets(&world, &backend);
    let _server = world.up(&["desk"]);
    let dry = world
        .run(&["tool", "call", "desk", "get_order", "{\"id\":7}", "--dry-run"])
        .await
        .succeeded();
    assert!(dry.stdout.contains("authorization: Bearer [redacted]\n"), "{dry}");
    assert_eq!(
        backend.count(http::Method::GET, "/orders/7"),
        0,
        "a dry run sends nothing"
    );
    world
        .run(&["tool", "call", "desk", "get_order", "{\"id\":7}"])
        .await
        .succeeded();
    assert_eq!(backend.count(http::Method::GET, "/orders/7"), 1);
    world.run(&["chat", "desk", "-m", "ship 7"]).await.succeeded();
    let exported = world.run(&["session", "export", "LAST"]).await.succeeded();
    assert!(exported.stdout.contains("get_order"), "{exported}");
    for shown in [&dry, &exported] {
        assert!(!shown.to_string().contains("sesame-sesame"), "{shown}");
    }
}

#[tokio::test]
async fn om_482_a_changed_policy_decides_about_the_next_call_without_a_restart() {
    let backend = Backend::start(200);
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    let server = world.up(&["desk"]);
    let call = ["tool", "call", "desk", "get_order", "{\"id\":7}"];
    world.run(&call).await.succeeded();
    let policies = omnia(&server.client().await, "ToolPolicy");
    for (cel, allowed) in [("body.id == 7", false), ("body.id == 8", true)] {
        let rules = json!([{"name": "not-this", "deny": {"cel": cel, "message": "not this one"}}]);
        edit(&policies, "desk", json!({ "spec": { "rules": rules } })).await;
        // The watch brings it in a moment; the agent's Pod stays.
        let ends = tokio::time::Instant::now() + DEADLINE;
        loop {
            let ran = world.run(&call).await;
            if ran.code == Some(if allowed { 0 } else { 1 }) {
                assert_eq!(
                    ran.stderr.contains("not this one (rule: not-this)"),
                    !allowed,
                    "{ran}"
                );
                break;
            }
            assert!(
                tokio::time::Instant::now() < ends,
                "the policy does not take effect: {ran}"
            );
        }
        let asked = [
            "policy",
            "test",
            "--agent",
            "desk",
            "--tool",
            "get_order",
            "--args",
            "{\"id\":7}",
        ];
        assert_eq!(world.run(&asked).await.code, Some(if allowed { 0 } else { 1 }));
    }
}

#[tokio::test]
async fn om_487_policies_are_tried_out_from_their_files() {
    let world = World::new();
    let policies = format!("{}/policies.yaml", example("helpdesk"));
    let test = |arguments: &'static [&'static str]| {
        let fixed = ["policy", "test", "-f", &policies];
        let command = world.command(&[&fixed[..], arguments].concat());
        world.finish(command)
    };
    assert_ran!(
        "policy_test_denied",
        test(&["--tool", "delete_order", "--args", "{\"id\":1017}"])
            .await
            .failed()
    );
    assert_ran!(
        "policy_test_allowed",
        test(&["--tool", "get_order", "--args", "{\"id\":1017}"])
            .await
            .succeeded()
    );
    assert_ran!(
        "policy_test_no_permit",
        test(&["--tool", "create_order"]).await.failed()
    );
    let json = test(&["--tool", "get_order", "--args", "{\"id\":12}", "-o", "json"])
        .await
        .failed();
    let json = parsed(&json);
    assert_eq!(json["decision"]["deniedBy"], "real-order-numbers");
    assert_eq!(json["decision"]["trace"][0]["values"]["body.id"], 12);
    assert_eq!(
        json["policies"],
        json!([
            {"policy": "orders-no-delete", "registry": "helpdesk", "tools": ["delete_order"], "mode": "enforce", "finding": "otherTools"},
            {"policy": "orders-read", "registry": "helpdesk", "tools": ["get_order", "list_orders"], "mode": "enforce",
             "finding": "denies", "by": "real-order-numbers"}
        ])
    );
    assert_eq!(json["call"]["registry"], "helpdesk");
}

const CLAIMS: &str = r#"
apiVersion: omnia.altairalabs.ai/v1alpha1
kind: ToolPolicy
metadata: {name: desk-only}
spec:
  selector: {registry: shop}
  requiredClaims: [{claim: team, message: only people of a team}]
  rules:
    - name: tenant
      permit: {cel: "headers['X-Tenant'] == identity.claims.team && headers['X-Omnia-Param-Id'] == '7'"}
  headerInjection:
    - {header: X-Api-Key, value: hunter2}
    - {header: X-By, cel: identity.endUser}
"#;

#[tokio::test]
async fn om_491_and_om_502_claims_headers_and_injected_headers_are_part_of_the_decision() {
    let world = World::new();
    world.write("policy.yaml", CLAIMS);
    let base = [
        "policy",
        "test",
        "-f",
        "policy.yaml",
        "--tool",
        "buy",
        "--args",
        "{\"id\":7}",
    ];
    let test =
        |arguments: &'static [&'static str]| world.finish(world.command(&[&base[..], arguments].concat()));
    assert_ran!("policy_test_claim_missing", test(&[]).await.failed());
    let allowed = test(&[
        "--identity",
        "claims.team=desk",
        "--identity",
        "endUser=ada",
        "--header",
        "x-tenant=desk",
    ])
    .await
    .succeeded();
    assert!(!allowed.stdout.contains("hunter2"), "{allowed}");
    assert_ran!("policy_test_injected", allowed);
    let other = test(&[
        "--identity",
        "{\"claims\": {\"team\": \"desk\"}}",
        "--header",
        "X-Tenant=shop",
    ])
    .await;
    assert!(other.failed().stdout.contains("no-matching-permit"));
}

#[tokio::test]
async fn what_cannot_be_decided_is_no_denial() {
    let world = World::new();
    world.write("typo.yaml", &CLAIMS.replace("requiredClaims", "requiredClaim"));
    world.write(
        "none.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
    );
    world.write(
        "two.yaml",
        &format!(
            "{CLAIMS}---{}",
            CLAIMS
                .replace("registry: shop", "registry: other")
                .replace("desk-only", "b")
        ),
    );
    world.write(
        "broken.yaml",
        &CLAIMS.replace("headers['X-Tenant'] ==", "headers['X-Tenant' =="),
    );
    for (name, arguments) in [
        ("policy_test_typo", &["-f", "typo.yaml", "--tool", "buy"][..]),
        ("policy_test_no_policies", &["-f", "none.yaml", "--tool", "buy"]),
        ("policy_test_two_registries", &["-f", "two.yaml", "--tool", "buy"]),
        (
            "policy_test_bad_json",
            &["-f", "two.yaml", "--tool", "buy", "--args", "{"],
        ),
        (
            "policy_test_bad_identity",
            &["-f", "two.yaml", "--tool", "buy", "--identity", "user=ada"],
        ),
        ("policy_test_no_server", &["--agent", "desk", "--tool", "buy"]),
    ] {
        let ran = world.run(&[&["policy", "test"], arguments].concat()).await;
        assert_eq!(ran.code, Some(2), "{name}: {ran}");
        insta::with_settings!({ filters => crate::support::world::filters() }, {
            insta::assert_snapshot!(name, ran.to_string());
        });
    }
    // A policy that does not compile denies what it selects (OM-488), which is a decision.
    let broken = ["policy", "test", "-f", "broken.yaml", "--tool", "buy"];
    assert_ran!("policy_test_broken", world.run(&broken).await.failed());
}
