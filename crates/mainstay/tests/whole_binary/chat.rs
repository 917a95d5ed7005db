//! `chat`: tools that run in the client, Ctrl-C, a connection that breaks, values without effect (OM-432…OM-434, contract 9).

use rustix::process::Signal;

use crate::support::{
    backend::Backend,
    desk,
    program::Program,
    server::Running,
    world::{Ran, World},
};

const SCENARIO: &str = r#"
turns:
  - match: '^where'
    steps:
      - calls: [{tool: locate, arguments: {precision: 1}}]
        onError: [{text: "Not told: {{tool.locate}}"}]
      - text: "You are in {{tool.locate}}."
  - match: '^wait for (?P<id>\d+)'
    steps:
      - calls: [{tool: silent_order, arguments: {id: "{{id | number}}"}}]
        onError: [{text: "Order {{id}}: {{tool.silent_order}}"}]
      - text: "There it is."
  - default: true
    steps: [{text: "Hello."}]
"#;

/// The desk with a tool that runs in the client, and a tool that stays silent for as long as a test takes.
fn desk_with_client_tool(world: &World, backend: &Backend) {
    desk::write(world, backend.address, SCENARIO);
    let file = "desk/desk.yaml";
    let text = std::fs::read_to_string(world.path(file)).unwrap();
    let text = text
        .replace("\"silent_order\"]", "\"silent_order\", \"locate\"]")
        .replace("body.id < 1", "has(body.id) && body.id < 1")
        .replace("timeout: 300ms", "timeout: 5m");
    assert!(text.contains("\"locate\"]") && text.contains("timeout: 5m"));
    let client = "    - name: browser
      type: client
      clientConfig: {consentMessage: May I know where you are?, categories: [location]}
      tool: {name: locate, description: Says where the user is., inputSchema: {type: object}}
";
    world.write(file, &format!("{text}{client}"));
}

fn running() -> (Backend, Running) {
    let backend = Backend::start(200);
    let world = World::new();
    desk_with_client_tool(&world, &backend);
    let server = world.up(&["desk"]);
    (backend, Running { server, world })
}

/// `chat` with `arguments` and `input` on its standard input.
async fn chat(running: &Running, arguments: &[&str], input: &str) -> Ran {
    let command = running.world.command(&[&["chat", "desk"], arguments].concat());
    running.world.finish_with(command, input).await
}

#[tokio::test]
async fn om_433_the_user_is_asked_before_a_tool_runs_in_the_client() {
    let (_backend, running) = running();
    let where_am_i = ["-m", "where am I?"];
    let agreed = chat(&running, &where_am_i, "y\nUlm\n").await.succeeded();
    assert!(agreed.stdout.contains("You are in Ulm."), "{agreed}");
    for shown in [
        "? locate {\"precision\":1}\n  May I know where you are?\n  it touches: location\n",
        "run it? [y/N] its result, JSON or text: ",
        "← locate Ulm",
    ] {
        assert!(agreed.stderr.contains(shown), "{shown:?} is not in {agreed}");
    }
    for (input, why) in [
        ("n\n", "the user does not agree to it"),
        ("\n", "the user does not agree to it"),
        ("", "nobody is there to agree to it"),
    ] {
        let refused = chat(&running, &where_am_i, input).await.succeeded();
        assert!(refused.stdout.contains("Not told: "), "{refused}");
        assert!(refused.stdout.contains(why), "{refused}");
    }
    // A program of the user's answers instead, with and without a question.
    let program = ["--client-tool", "locate=cat >/dev/null; echo '\"Bern\"'"];
    let ran = chat(&running, &[&where_am_i[..], &program].concat(), "yes\n")
        .await
        .succeeded();
    assert!(ran.stdout.contains("You are in Bern."), "{ran}");
    assert!(ran.stderr.contains("it runs here: cat >/dev/null"), "{ran}");
    let unasked = chat(&running, &[&where_am_i[..], &program, &["--yes"]].concat(), "")
        .await
        .succeeded();
    assert!(unasked.stdout.contains("You are in Bern."), "{unasked}");
    assert!(!unasked.stderr.contains("run it?"), "{unasked}");
    let failing = [
        &where_am_i[..],
        &["--client-tool", "locate=echo no fix >&2; exit 3", "--yes"],
    ]
    .concat();
    let failed = chat(&running, &failing, "").await.succeeded();
    assert!(failed.stdout.contains("no fix"), "{failed}");
    // Line by line, the next line is the answer to the question.
    let lines = chat(&running, &[], "where am I?\ny\nUlm\nhello\n")
        .await
        .succeeded();
    assert!(lines.stdout.ends_with("You are in Ulm.\nHello.\n"), "{lines}");
}

#[tokio::test]
async fn a_value_that_no_variable_takes_is_told_of() {
    let (_backend, running) = running();
    let ran = chat(&running, &["-m", "hi", "--set", "tone=kind"], "")
        .await
        .succeeded();
    assert!(
        ran.stderr
            .contains("warning: `--set tone=…` has no effect: the prompt declares no variable `tone`"),
        "{ran}"
    );
}

#[tokio::test]
async fn ctrl_c_cancels_the_turn_and_a_second_one_ends_the_program() {
    let (_backend, mut running) = running();
    let one = ["chat", "desk", "-m", "wait for 7"];
    let mut program = Program::start(running.world.command(&one));
    program.line("→ silent_order");
    program.signal(Signal::INT);
    program.line("(cancelling the turn; Ctrl-C again ends the program)");
    program.line("error: the turn was cancelled");
    assert_eq!(program.ended().code(), Some(1));

    // A conversation goes on behind a cancelled turn.
    let command = running.world.command(&["chat", "desk"]);
    let (mut program, mut input) = Program::talking(command);
    use std::io::Write;
    input.write_all(b"wait for 8\n").unwrap();
    program.line("→ silent_order");
    program.signal(Signal::INT);
    program.line("(the turn was cancelled)");
    input.write_all(b"hello\n").unwrap();
    program.line("Hello.");
    drop(input);
    assert!(program.ended().success());

    // A server that does not hear of it holds nobody.
    let mut program = Program::start(running.world.command(&one));
    program.line("→ silent_order");
    running.server.program().signal(Signal::STOP);
    program.signal(Signal::INT);
    program.line("(cancelling the turn");
    program.signal(Signal::INT);
    program.line("error: interrupted; a turn that runs goes on and is kept");
    running.server.program().signal(Signal::CONT);
    assert_eq!(program.ended().code(), Some(1));
}

#[tokio::test]
async fn contract_9_a_connection_that_breaks_is_sought_again_and_nothing_is_missed() {
    let (backend, running) = running();
    let Running { server, world } = running;
    let mut program = Program::start(world.command(&["chat", "desk", "-m", "wait for 7"]));
    program.line("→ silent_order");
    // The event is told before the request is on its way.
    backend.receives(axum::http::Method::POST, "/silent/7").await;
    server.kill();
    program.line("connecting again)");
    let _server = world.up_again();
    // The call had no result when the server died: its outcome is unknown, and the turn goes on (contract 7).
    let answer = program.line("Order 7: ");
    assert!(answer.contains("unknown"), "{answer}");
    assert!(program.ended().success());
    assert_eq!(backend.count(axum::http::Method::POST, "/silent/7"), 1);
}
