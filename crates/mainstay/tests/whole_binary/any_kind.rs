//! The verbs that work on objects of any kind.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{
    objects::{becomes, objects, omnia, reaches},
    program::Program,
    server::Running,
    world::{Ran, World, example},
};

const AGENT: &str = "agentruntimes.omnia.altairalabs.ai/helpdesk";

/// Another family's kind whose plural is that of Omnia's providers.
const OTHER_PROVIDERS: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: providers.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Provider, plural: providers, singular: provider}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn config(name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, labels: {{made: here}}}}\ndata: {{a: \"{value}\"}}\n"
    )
}

async fn ran(running: &Running, arguments: &[&str]) -> Ran {
    running.world.run(arguments).await.succeeded()
}

/// Runs the program with a text on its standard input.
fn told(world: &World, arguments: &[&str], text: &str) -> (bool, String) {
    use std::io::Write;
    let mut command: Command = world.command(arguments);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].map(|part| String::from_utf8(part).unwrap());
    (output.status.success(), said.concat())
}

#[tokio::test]
async fn get_prints_the_servers_columns_and_every_form() {
    let running = Running::shared();
    reaches(
        &omnia(&running.server.client().await, "AgentRuntime"),
        "helpdesk",
        "Running",
    )
    .await;
    let table = ran(&running, &["get", "ar"]).await.stdout;
    let lines: Vec<&str> = table.lines().collect();
    assert!(
        lines[0].starts_with("NAME       PHASE     READY") && lines[1].starts_with("helpdesk   Running   1"),
        "{table}"
    );
    let wide = ran(&running, &["get", "deploy", "orders", "-o", "wide"])
        .await
        .stdout;
    assert!(wide.contains("SELECTOR") && wide.contains("app=orders"), "{wide}");
    let all = ran(&running, &["get", "-A", "cm,deploy"]).await.stdout;
    assert!(all.starts_with("NAMESPACE"), "{all}");
    assert!(
        all.contains("configmaps/helpdesk-pack") && all.contains("deployments.apps/orders"),
        "{all}"
    );

    assert_eq!(
        ran(&running, &["get", AGENT, "-o", "name"]).await.stdout,
        format!("{AGENT}\n")
    );
    let phase = ran(&running, &["get", AGENT, "-o", "jsonpath={.status.phase}"]).await;
    assert_eq!(phase.stdout, "Running");
    let names = ran(
        &running,
        &[
            "get",
            "tp",
            "-o",
            "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}",
        ],
    )
    .await;
    assert_eq!(names.stdout, "orders-no-delete\norders-read\n");
    let object: Value =
        serde_json::from_str(&ran(&running, &["get", AGENT, "-o", "json"]).await.stdout).unwrap();
    assert_eq!(object["kind"], "AgentRuntime");
    assert!(object["metadata"].get("managedFields").is_none());
    let list: Value =
        serde_json::from_str(&ran(&running, &["get", "tp", "-o", "json"]).await.stdout).unwrap();
    assert_eq!(
        (list["kind"].as_str(), list["items"][0]["kind"].as_str()),
        (Some("List"), Some("ToolPolicy"))
    );
    let yaml = ran(&running, &["get", AGENT, "-o", "yaml", "--show-managed-fields"])
        .await
        .stdout;
    assert!(
        yaml.contains("kind: AgentRuntime") && yaml.contains("managedFields:"),
        "{yaml}"
    );

    let labelled = ran(&running, &["get", "pods", "-l", "app=orders", "-o", "name"])
        .await
        .stdout;
    assert_eq!(labelled.lines().count(), 1, "{labelled}");
    let none = ran(&running, &["get", "pods", "-n", "nowhere"]).await;
    assert_eq!(
        (none.stdout.as_str(), none.stderr.as_str()),
        ("", "no pods in namespace nowhere\n")
    );
    let missing = running
        .world
        .run(&["get", "cm", "absent", "helpdesk-pack"])
        .await
        .failed();
    assert!(
        missing.stdout.contains("helpdesk-pack"),
        "the others are shown: {missing}"
    );
    assert_eq!(missing.stderr, "error: configmaps \"absent\" not found\n");
    let unknown = running.world.run(&["get", "agentruntme"]).await.failed();
    assert!(
        unknown.stderr.contains("agentruntimes.omnia.altairalabs.ai"),
        "{unknown}"
    );
}

#[tokio::test]
async fn logs_events_and_waits_follow_an_agent() {
    let running = Running::shared();
    let waited = ran(
        &running,
        &["wait", AGENT, "--for", "condition=Ready", "--timeout", "60s"],
    )
    .await;
    assert_eq!(waited.stdout, format!("{AGENT} condition met\n"));
    ran(
        &running,
        &[
            "wait",
            "pod",
            "-l",
            "app=orders",
            "--for",
            "jsonpath={.status.phase}=Running",
        ],
    )
    .await;
    let late = running
        .world
        .run(&[
            "wait",
            AGENT,
            "--for",
            "jsonpath={.status.phase}=Failed",
            "--timeout",
            "200ms",
        ])
        .await
        .failed();
    assert_eq!(
        late.stderr,
        format!("error: {AGENT} did not reach {{.status.phase}}=Failed in time\nhint: it is Running\n")
    );
    let lines = ran(&running, &["logs", "deploy/orders"]).await.stdout;
    assert!(lines.contains("the order service is ready"), "{lines}");
    let of_agent = ran(&running, &["logs", AGENT, "--tail", "50"]).await.stdout;
    assert!(!of_agent.is_empty());
    let nobody = running.world.run(&["logs", "cm/helpdesk-pack"]).await.failed();
    assert!(nobody.stderr.contains("has no Pods"), "{nobody}");
    let events = ran(&running, &["events", "--for", "deploy/orders"]).await.stdout;
    assert!(
        events.starts_with("LAST SEEN") && events.contains("deployment/orders"),
        "{events}"
    );
    let none = ran(&running, &["events", "-n", "nowhere"]).await;
    assert_eq!(none.stderr, "no events in namespace nowhere\n");
}

#[tokio::test]
async fn describe_says_what_blocks_and_what_would_mend_it() {
    let world = World::new();
    let server = world.up(&[&example("helpdesk")]);
    let client = server.client().await;
    reaches(&omnia(&client, "AgentRuntime"), "helpdesk", "Running").await;
    let well = world
        .run(&["describe", "agentruntime", "helpdesk"])
        .await
        .succeeded()
        .stdout;
    for words in [
        "AgentRuntime helpdesk in namespace default",
        "State\n  Running",
        "providers.omnia.altairalabs.ai/helpdesk-model",
        "deployments.apps/helpdesk",
        "1 of 1 ready",
        "pods/helpdesk-",
    ] {
        assert!(well.contains(words), "no {words:?} in\n{well}");
    }

    let deleted = world.run(&["delete", "prov", "helpdesk-model"]).await.succeeded();
    assert_eq!(
        deleted.stdout,
        "providers.omnia.altairalabs.ai/helpdesk-model deleted\n"
    );
    reaches(&omnia(&client, "AgentRuntime"), "helpdesk", "Failed").await;
    let blocked = world.run(&["describe", AGENT]).await.succeeded().stdout;
    for words in [
        "Failed: ProviderReady is False (ProviderNotFound): entry \"default\": Provider \"helpdesk-model\" does not exist",
        "to do about ProviderReady (ProviderNotFound): create it",
        "✗ does not exist",
        "Warning  ProviderNotFound",
    ] {
        assert!(blocked.contains(words), "no {words:?} in\n{blocked}");
    }
    let pack = world
        .run(&["describe", "cm", "helpdesk-pack"])
        .await
        .succeeded()
        .stdout;
    assert!(
        pack.contains("pack.json") && pack.contains("bytes as stored"),
        "{pack}"
    );
    assert!(!pack.contains("prompts"), "values are not shown: {pack}");
}

#[tokio::test]
async fn objects_are_applied_from_standard_input_watched_and_deleted() {
    let world = World::new();
    let _server = world.up(&[]);
    let (applied, said) = told(&world, &["apply", "-f", "-"], &config("one", "1"));
    assert!(applied && said == "configmaps/one created\n", "{said}");
    let (refused, said) = told(&world, &["apply", "-f", "-"], "kind: ConfigMap\n");
    assert!(
        !refused && said.starts_with("error: standard input:1: "),
        "{said}"
    );

    let mut watch = Program::start(world.command(&["get", "cm", "-l", "made=here", "-w"]));
    watch.line("one");
    world.write("two.yaml", &config("two", "2"));
    world.run(&["apply", "-f", "two.yaml"]).await.succeeded();
    watch.line("two");
    drop(watch);

    let nothing = world.run(&["delete", "cm"]).await.failed();
    assert!(
        nothing.stderr.contains("choose them with `-l LABELS` or `--all`"),
        "{nothing}"
    );
    let deleted = world.run(&["delete", "-f", "two.yaml"]).await.succeeded();
    assert_eq!(deleted.stdout, "configmaps/two deleted\n");
    let again = world.run(&["delete", "-f", "two.yaml"]).await.failed();
    assert_eq!(again.stderr, "error: configmaps \"two\" not found\n");
    world
        .run(&["delete", "-f", "two.yaml", "--ignore-not-found"])
        .await
        .succeeded();
    world.run(&["delete", "cm", "-l", "made=here"]).await.succeeded();
    world
        .run(&["wait", "cm/one", "--for", "delete"])
        .await
        .succeeded();

    // A finalizer that nobody removes is named.
    let held = config("held", "3").replace("name: held,", "name: held, finalizers: [example.com/hold],");
    let (applied, said) = told(&world, &["apply", "-f", "-"], &held);
    assert!(applied, "{said}");
    let stuck = world
        .run(&["delete", "cm/held", "--timeout", "200ms"])
        .await
        .failed();
    assert!(
        stuck.stderr.contains("removes its finalizers: example.com/hold"),
        "{stuck}"
    );
    let described = world.run(&["describe", "cm/held"]).await.succeeded().stdout;
    assert!(
        described.contains("waits for whoever removes example.com/hold"),
        "{described}"
    );

    // Another family with the same word: which one is meant has to be said.
    let (applied, said) = told(&world, &["apply", "-f", "-"], OTHER_PROVIDERS);
    assert!(applied, "{said}");
    world
        .run(&[
            "wait",
            "crd/providers.example.com",
            "--for",
            "condition=Established",
        ])
        .await
        .succeeded();
    let ambiguous = world.run(&["get", "providers"]).await.failed();
    assert!(
        ambiguous.stderr.contains("is the name of 2 kinds: ")
            && ambiguous.stderr.contains("providers.example.com")
            && ambiguous.stderr.contains("providers.omnia.altairalabs.ai"),
        "{ambiguous}"
    );
    world.run(&["get", "providers.example.com"]).await.succeeded();
}

#[tokio::test]
async fn another_cluster_is_reached_only_when_it_is_named() {
    let there = Running::on(&[]);
    let here = World::new();
    let kubeconfig = there.server.kubeconfig.display().to_string();
    let mut command = here.command(&["get", "ns"]);
    command.env("KUBECONFIG", &kubeconfig);
    let refused = here.finish(command).await.failed();
    assert!(
        refused.stderr.contains("no server runs on data directory"),
        "{refused}"
    );
    let named = here
        .run(&["get", "ns", "default", "--kubeconfig", &kubeconfig])
        .await
        .succeeded();
    assert!(named.stdout.contains("default   Active"), "{named}");
    let mut command = here.command(&["get", "ns", "default", "-o", "name", "--context", "absent"]);
    command.env("KUBECONFIG", &kubeconfig);
    here.finish(command).await.failed();
}

#[tokio::test]
async fn a_manifest_that_is_saved_is_applied_again() {
    let world = World::new();
    world.write("manifests/one.yaml", &config("one", "first"));
    let mut server = world.up(&["--watch", "manifests"]);
    let maps = objects(&server.client().await, "", "v1", "ConfigMap");
    let holds = |value: &'static str| move |object: &Value| object["data"]["a"] == value;
    becomes(&maps, "one", "first", holds("first")).await;
    server.program().line("watching the manifests");

    world.write("manifests/one.yaml", &config("one", "second"));
    server.program().line("configmaps/one configured");
    becomes(&maps, "one", "second", holds("second")).await;
    // A mistake is named, and the next save mends it.
    world.write("manifests/one.yaml", "kind: [\n");
    server.program().line("one.yaml:");
    world.write("manifests/one.yaml", &config("one", "third"));
    becomes(&maps, "one", "third", holds("third")).await;
    world.write("manifests/two.yaml", &config("two", "new"));
    server.program().line("configmaps/two created");
    std::fs::remove_file(world.path("manifests/two.yaml")).unwrap();
    server.program().line("two.yaml is gone; what it held stays");
    becomes(&maps, "two", "kept", holds("new")).await;
    assert!(server.end().success());

    let both = world.run(&["up", "--watch", "--detach", "manifests"]).await;
    assert_eq!(both.code, Some(2), "{both}");
}
