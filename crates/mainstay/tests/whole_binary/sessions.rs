//! `session list`, `show`, `export`: with a server, and from the file that it left behind.

use serde_json::Value;

use crate::support::{
    server::Running,
    world::{Ran, World, assert_ran, example},
};

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test]
async fn sessions_are_shown_while_a_server_runs_and_after_it_has_gone() {
    let world = World::new();
    assert_ran!("session_list_nothing", world.run(&["session", "list"]).await);
    let server = world.up(&[&example("helpdesk")]);
    assert_ran!(
        "session_list_empty",
        world.run(&["session", "list"]).await.succeeded()
    );
    let asked = world
        .run(&["chat", "helpdesk", "-m", "Where is order 1017?", "--json"])
        .await
        .succeeded();
    let session = lines(&asked)[0]["session"].as_str().unwrap().to_owned();
    let told: Vec<Value> = lines(&asked)
        .into_iter()
        .filter(|event| event["type"] != "model.delta")
        .collect();
    world
        .run(&["chat", "helpdesk", "-m", "Delete order 1017"])
        .await
        .succeeded();

    let running = all_verbs(&world, &session, &told).await;
    assert!(server.end().success());
    let gone = all_verbs(&world, &session, &told).await;
    assert_eq!(running, gone, "the file holds what the server gave");
}

/// What each verb says of two sessions; the times differ from run to run, so they are looked at apart.
async fn all_verbs(world: &World, session: &str, told: &[Value]) -> Vec<Value> {
    let listed = world.run(&["session", "list", "-o", "json"]).await.succeeded();
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{listed}");
    assert_eq!(sessions[1]["session"], session, "the last used comes first");
    assert_eq!(sessions[1]["agent"], "helpdesk");
    let table = world
        .run(&["session", "list", "--limit", "1"])
        .await
        .succeeded()
        .stdout;
    assert!(table.starts_with("SESSION "), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let none = world
        .run(&["session", "list", "--agent", "nobody"])
        .await
        .succeeded();
    assert_eq!(none.stderr, "no sessions of agent nobody in namespace default\n");

    // Contract 2: what was stored is what was shown.
    let shown = world
        .run(&["session", "show", session, "-o", "json"])
        .await
        .succeeded();
    assert_eq!(lines(&shown), told);
    let text = world.run(&["session", "show", &session[..8]]).await.succeeded();
    for expected in [
        "user: Where is order 1017?",
        "get_order allowed by orders-read",
        "get_order {\"id\":1017}",
        "get_order succeeded (",
        "assistant: Order 1017 is shipped.",
    ] {
        assert!(text.stdout.contains(expected), "{expected:?} is not in {text}");
    }
    let last = world.run(&["session", "show", "LAST"]).await.succeeded();
    assert!(
        last.stdout
            .contains("delete_order denied by never-delete of orders-no-delete: orders are deleted"),
        "{last}"
    );
    let end = world
        .run(&["session", "show", "last", "--limit", "1"])
        .await
        .succeeded();
    assert_eq!(end.stdout.lines().count(), 1, "{end}");
    assert!(end.stdout.contains("turn.done"), "{end}");

    let exported = world.run(&["session", "export", session]).await.succeeded();
    let exported: Value = serde_json::from_str(&exported.stdout).unwrap();
    assert_eq!(exported["format"], "mainstay.dev/session/v1");
    assert_eq!(exported["events"].as_array().unwrap(), told);
    assert_eq!(exported["totals"]["turns"], 1);
    assert_eq!(exported["totals"]["tool_calls"], 1);

    assert_ran!(
        "session_show_unknown",
        world.run(&["session", "show", "nothing"]).await
    );
    vec![listed, exported]
}

#[tokio::test]
async fn the_sessions_of_a_server_are_behind_the_front_doors_rules() {
    let running = Running::shared();
    let (status, body) = running.server.ask("/api/sessions", &[]).await;
    assert_eq!(status, 200, "{body}");
    let (status, _) = running
        .server
        .ask("/api/sessions", &[("host", "evil.example")])
        .await;
    assert_eq!(status, 403);
    let (status, _) = running
        .server
        .ask(
            "/agents/default/helpdesk/tools",
            &[("origin", "https://evil.example")],
        )
        .await;
    assert_eq!(status, 403);
    let (status, body) = running.server.ask("/agents/default/helpdesk/tools", &[]).await;
    assert_eq!(status, 200, "{body}");
}
