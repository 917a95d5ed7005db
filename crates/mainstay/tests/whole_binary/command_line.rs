//! What the verbs print and how they end.

use crate::support::{
    objects::{omnia, reaches},
    program::Program,
    server::{Endpoints, Running},
    world::{World, assert_ran, example},
};

#[tokio::test]
async fn a_server_in_the_background_is_started_shown_talked_to_and_stopped() {
    let world = World::new();
    let helpdesk = example("helpdesk");
    assert_ran!("up_detach", world.detach(&[&helpdesk]).await);
    let first = Endpoints::read(&world.data()).unwrap();

    // A second `up` hands its manifests to the server that runs.
    assert_ran!("up_second", world.run(&["up", "--detach", &helpdesk]).await);
    assert_ran!("up_second_foreground", world.run(&["up"]).await);
    assert_eq!(
        Endpoints::read(&world.data()),
        Some(first.clone()),
        "nothing was started a second time"
    );

    let client = first.client().await;
    for policy in ["orders-read", "orders-no-delete"] {
        reaches(&omnia(&client, "ToolPolicy"), policy, "Active").await;
    }
    reaches(&omnia(&client, "ToolRegistry"), "helpdesk", "Ready").await;
    assert_ran!("status", world.run(&["status"]).await);
    let status = world.run(&["status", "--json"]).await.succeeded();
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["server"]["pid"], first.pid);
    assert_eq!(status["objects"].as_array().unwrap().len(), 6, "{status}");

    assert_ran!(
        "chat_answer",
        world
            .run(&["chat", "helpdesk", "-m", "Where is order 1017?"])
            .await
    );
    assert_ran!(
        "chat_refusal",
        world.run(&["chat", "helpdesk", "-m", "Delete order 1017"]).await
    );
    assert_ran!(
        "chat_unknown_agent",
        world.run(&["chat", "nobody", "-m", "hello"]).await
    );
    let expired = [
        "chat",
        "helpdesk",
        "-m",
        "x",
        "--session",
        "6f9619ff-8b86-4011-b42d-00c04fc964ff",
    ];
    assert_ran!("chat_unknown_session", world.run(&expired).await);

    world.write(
        "more.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: more\ndata:\n  a: b\n",
    );
    assert_ran!("apply", world.run(&["apply", "-f", "more.yaml"]).await);
    assert_ran!("apply_again", world.run(&["apply", "-f", "more.yaml"]).await);
    assert_ran!(
        "apply_missing_file",
        world.run(&["apply", "-f", "absent.yaml"]).await
    );

    assert_ran!("down", world.run(&["down"]).await);
    assert_ran!("down_again", world.run(&["down"]).await);
    assert_ran!("status_without_server", world.run(&["status"]).await);
    assert_ran!(
        "chat_without_server",
        world.run(&["chat", "helpdesk", "-m", "hello"]).await
    );
    assert_ran!(
        "apply_without_server",
        world.run(&["apply", "-f", "more.yaml"]).await
    );
}

#[tokio::test]
async fn several_that_start_at_once_come_to_one_server() {
    let world = World::new();
    let helpdesk = example("helpdesk");
    let manifests = [helpdesk.as_str()];
    let ran = futures::future::join_all((0..3).map(|_| world.detach(&manifests))).await;
    for ran in ran {
        let ran = ran.succeeded();
        assert!(ran.stderr.contains("agent helpdesk is Running"), "{ran}");
    }
    let log = std::fs::read_to_string(world.data().join("logs/mainstay.log")).unwrap();
    assert_eq!(log.matches(" runs front_door=").count(), 1, "{log}");
    world.run(&["down"]).await.succeeded();
}

#[tokio::test]
async fn restart_drains_the_server_and_starts_it_on_the_same_addresses() {
    let world = World::new();
    world.detach(&[]).await.succeeded();
    let first = Endpoints::read(&world.data()).unwrap();
    assert_ran!("up_restart", world.run(&["up", "--detach", "--restart"]).await);
    let second = Endpoints::read(&world.data()).unwrap();
    assert_ne!(first.pid, second.pid);
    assert_eq!(
        Endpoints {
            pid: first.pid,
            ..second
        },
        first,
        "ports, token and kubeconfig stay"
    );
    world.run(&["down"]).await.succeeded();
}

#[tokio::test]
async fn a_server_in_the_foreground_serves_until_it_is_told_to_end() {
    let mut running = Running::on(&[&example("helpdesk")]);
    let seen = running.server.program().seen().to_owned();
    for line in [
        "agentruntimes.omnia.altairalabs.ai/helpdesk created",
        "agent helpdesk is Running",
    ] {
        assert!(
            seen.iter().any(|seen| seen.starts_with(line)),
            "{line} is not in {seen:#?}"
        );
    }
    let handed_over = running.world.run(&["up", &example("helpdesk")]).await.succeeded();
    assert!(
        handed_over
            .stdout
            .contains("agentruntimes.omnia.altairalabs.ai/helpdesk unchanged"),
        "{handed_over}"
    );
    let Running { mut server, world } = running;
    server.program().signal(rustix::process::Signal::TERM);
    server.program().line("told to end: finishing what runs");
    assert!(server.end().success());
    world.run(&["status"]).await.failed();
}

#[tokio::test]
async fn a_directory_other_than_the_usual_one_is_named_in_what_to_type_next() {
    let world = World::new();
    let command = [
        "up",
        "--data",
        "elsewhere",
        "--listen",
        "127.0.0.1:0",
        "--kube-listen",
        "127.0.0.1:0",
    ];
    let mut program = Program::start(world.command(&command));
    let stop = program.line("  stop     ");
    assert!(stop.ends_with(" down --data elsewhere"), "{stop}");
    assert!(
        program
            .seen()
            .iter()
            .any(|line| line.ends_with(" chat NAME --data elsewhere")),
        "{:#?}",
        program.seen()
    );
}

#[tokio::test]
async fn a_stranger_with_the_pid_of_a_server_that_died_is_left_alone() {
    let world = World::new();
    let server = world.up(&[]);
    let endpoints = server.clone();
    server.kill();
    // A pid is used again sooner or later; here by a program that has nothing to do with the server.
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let file = world.data().join("endpoints.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        text.replace(&endpoints.pid.to_string(), &stranger.id().to_string()),
    )
    .unwrap();

    let down = world.run(&["down"]).await;
    let status = world.run(&["status"]).await;
    let lives = stranger.try_wait().unwrap().is_none();
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert!(lives, "down killed a stranger");
    assert_ran!("down_after_crash", down);
    assert_ran!("status_after_crash", status);
}

#[tokio::test]
async fn verbs_that_need_no_server() {
    let world = World::new();
    assert_ran!("help", world.run(&["--help"]).await);
    // The help shows what is set in the environment.
    let mut help_up = world.command(&["up", "--help"]);
    help_up.env_remove("MAINSTAY_CONTAINER_ENGINE");
    assert_ran!("help_up", world.finish(help_up).await);
    assert_ran!("help_chat", world.run(&["chat", "--help"]).await);
    assert_ran!("help_tool_call", world.run(&["tool", "call", "--help"]).await);
    assert_ran!("help_policy_test", world.run(&["policy", "test", "--help"]).await);
    assert_ran!(
        "help_session_show",
        world.run(&["session", "show", "--help"]).await
    );
    assert_ran!("no_verb", world.run(&[]).await);
    assert_ran!("unknown_verb", world.run(&["dance"]).await);
    assert_ran!("version", world.run(&["version"]).await);
    assert_ran!("version_json", world.run(&["version", "--json"]).await);
    assert_ran!("version_flag", world.run(&["--version"]).await);
    for shell in ["bash", "zsh", "fish"] {
        let script = world.run(&["completion", shell]).await.succeeded().stdout;
        assert!(
            script.contains("mainstay") && script.contains("mock-model"),
            "{shell}: {script}"
        );
    }
    assert_ran!(
        "completion_unknown_shell",
        world.run(&["completion", "cmd"]).await
    );
    assert_ran!(
        "mock_model_missing_file",
        world.run(&["mock-model", "--scenario", "absent.yaml"]).await
    );
    world.write("typo.yaml", "turns:\n  - default: true\n    stpes: []\n");
    assert_ran!(
        "mock_model_bad_scenario",
        world.run(&["mock-model", "--scenario", "typo.yaml"]).await
    );
}

#[tokio::test]
async fn the_printed_definitions_are_those_that_are_checked_in() {
    let world = World::new();
    let printed = world.run(&["crds"]).await.succeeded().stdout;
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crds");
    let mut names = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let body = text.trim_start_matches("---\n").trim_end();
        assert!(
            printed.contains(body),
            "not printed: {}",
            body.lines().take(12).collect::<Vec<_>>().join("\n")
        );
        names += 1;
    }
    assert_eq!(printed.matches("kind: CustomResourceDefinition").count(), names);
}
