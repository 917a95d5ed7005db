//! `--isolate process`: a Pod of the own image is a process, and what ends it ends that Pod only (contract "Failure domain").
#![cfg(target_os = "linux")]

use std::time::Instant;

use kube::{
    Api, Client, Config,
    api::{DeleteParams, DynamicObject},
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::support::{
    DEADLINE,
    objects::{becomes, create, objects},
    server::{Running, Server},
    world::{World, example},
};

const PROCESSES: [&str; 2] = ["--isolate", "process"];

/// A Pod of the own image.
fn pod(name: &str, arguments: &[&str], policy: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": policy, "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "mainstay", "args": arguments,
                "ports": [{"name": "http", "containerPort": 8080}],
            }],
        },
    })
}

fn pods(client: &Client) -> Api<DynamicObject> {
    objects(client, "", "v1", "Pod")
}

/// A Service `name` in front of the Pod of that name.
async fn create_service(client: &Client, name: &str) {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]},
    });
    create(&objects(client, "", "v1", "Service"), service).await;
}

/// How the container of a Pod that is not restarted ended.
async fn end_of(client: &Client, name: &str) -> Value {
    let ended = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["terminated"].clone();
    let pod = becomes(&pods(client), name, "terminated", |pod| !ended(pod).is_null()).await;
    ended(&pod)
}

async fn is_ready(client: &Client, name: &str) {
    becomes(&pods(client), name, "ready", |pod| {
        pod["status"]["containerStatuses"][0]["ready"] == true
    })
    .await;
}

/// Waits until the log of a Pod has a line.
async fn says(world: &World, pod: &str, line: &str) {
    let until = Instant::now() + DEADLINE;
    loop {
        let ran = world.run(&["logs", pod]).await;
        if ran.stdout.contains(line) {
            return;
        }
        assert!(Instant::now() < until, "{line:?} is not in {ran}");
    }
}

/// The processes that a server has started and that run.
fn processes(server: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{server}/task")).unwrap();
    let children = tasks.flatten().map(|task| task.path().join("children"));
    children
        .flat_map(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<u32>>()
        })
        .filter(|pid| runs(*pid))
        .collect()
}

/// Whether a process runs: one that ended and was not waited for does not.
fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some(Some('Z' | 'X') | None))
}

#[tokio::test]
async fn failure_domain_a_role_that_ends_its_process_is_its_pods_failure_only() {
    let world = World::new();
    let server = world.up(&PROCESSES);
    let client = server.client().await;
    create_service(&client, "orders").await;
    create(&pods(&client), pod("orders", &["demo", "orders"], "Always")).await;
    let mut hungry = pod("memory", &["demo", "faults", "memory", "512"], "Never");
    hungry["spec"]["containers"][0]["resources"] = json!({"limits": {"memory": "64Mi"}});
    create(&pods(&client), hungry).await;
    for kind in ["stack", "abort", "panic", "error", "spin"] {
        create(&pods(&client), pod(kind, &["demo", "faults", kind], "Never")).await;
    }
    create(
        &pods(&client),
        pod("exit", &["demo", "faults", "exit", "3"], "Never"),
    )
    .await;

    for (name, code, reason, message) in [
        ("stack", 134, "Error", Some("ended by signal 6 (SIGABRT)")),
        ("abort", 134, "Error", Some("ended by signal 6 (SIGABRT)")),
        (
            "memory",
            137,
            "OOMKilled",
            Some("it wanted more memory than its limit of 67108864 bytes"),
        ),
        (
            "panic",
            101,
            "Error",
            Some("panicked: it panics, as it was asked to"),
        ),
        ("error", 1, "Error", Some("it fails, as it was asked to")),
        ("exit", 3, "Error", None),
    ] {
        let ended = end_of(&client, name).await;
        assert_eq!(
            (&ended["exitCode"], &ended["reason"]),
            (&json!(code), &json!(reason)),
            "{name}: {ended}"
        );
        assert_eq!(ended["message"].as_str(), message, "{name}");
    }
    says(&world, "stack", "has overflowed its stack").await;

    // One that keeps its threads busy holds up nobody, and is ended all the same.
    says(&world, "spin", "spinning").await;
    is_ready(&client, "orders").await;
    let probe = ["probe", "http://orders/healthz"];
    create(&pods(&client), pod("probe", &probe, "Never")).await;
    let ended = end_of(&client, "probe").await;
    assert_eq!(ended["exitCode"], 0, "{ended}");
    assert_eq!(server.ask("/healthz", &[]).await.0, 200);
    pods(&client)
        .delete("spin", &DeleteParams::default())
        .await
        .unwrap();
    becomes(&pods(&client), "spin", "gone", Value::is_null).await;

    // What is told to end does so by itself.
    assert_eq!(processes(server.pid).len(), 1, "the orders alone are left");
    assert!(server.end().success());
}

#[tokio::test]
async fn failure_domain_a_process_that_ends_is_restarted_and_speaks_as_its_service_account() {
    let world = World::new();
    let server = world.up(&PROCESSES);
    let client = server.client().await;
    create(
        &pods(&client),
        pod("again", &["demo", "faults", "exit", "4"], "Always"),
    )
    .await;
    let again = becomes(&pods(&client), "again", "restarted", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)
    })
    .await;
    let status = &again["status"]["containerStatuses"][0];
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 4, "{status}");
    assert_eq!(status["lastState"]["terminated"]["reason"], "Error");

    // The files by which it reaches the API are where each client looks for them.
    let uid = again["metadata"]["uid"].as_str().unwrap();
    let folder = world.data().join(format!(
        "pods/{uid}/containers/main/root/var/run/secrets/kubernetes.io/serviceaccount"
    ));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(read("namespace"), "default");
    let mut kubeconfig = Kubeconfig::read_from(&server.kubeconfig).unwrap();
    kubeconfig.auth_infos[0].auth_info = Some(AuthInfo {
        token: Some(read("token").into()),
        ..AuthInfo::default()
    });
    kubeconfig.clusters[0]
        .cluster
        .as_mut()
        .unwrap()
        .certificate_authority_data = None;
    let authority = folder.join("ca.crt").display().to_string();
    kubeconfig.clusters[0]
        .cluster
        .as_mut()
        .unwrap()
        .certificate_authority = Some(authority);
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let pod_client = Client::try_from(config.unwrap()).unwrap();
    let refused = objects(&pod_client, "", "v1", "Secret")
        .get("any")
        .await
        .unwrap_err();
    let kube::Error::Api(status) = refused else {
        panic!("{refused}");
    };
    assert_eq!(status.code, 403);
    assert!(
        status.message.contains("system:serviceaccount:default:default"),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn a_process_sees_its_files_and_says_everything_before_its_end() {
    let world = World::new();
    let server = world.up(&PROCESSES);
    let client = server.client().await;
    create(&pods(&client), pod("count", &["demo", "count", "2000"], "Never")).await;
    let scenario = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scenario"},
        "data": {"scenario.yaml": "turns:\n  - default: true\n    steps: [{text: Hello.}]\n"},
    });
    create(&objects(&client, "", "v1", "ConfigMap"), scenario).await;
    let mut model = pod(
        "model",
        &["mock-model", "--scenario", "/etc/$(FOLDER)/scenario.yaml"],
        "Always",
    );
    let container = &mut model["spec"]["containers"][0];
    container["env"] = json!([{"name": "FOLDER", "value": "model"}]);
    container["volumeMounts"] = json!([{"name": "scenario", "mountPath": "/etc/model"}]);
    model["spec"]["volumes"] = json!([{"name": "scenario", "configMap": {"name": "scenario"}}]);
    create(&pods(&client), model).await;
    is_ready(&client, "model").await;

    assert_eq!(end_of(&client, "count").await["exitCode"], 0);
    let ran = world.run(&["logs", "count"]).await.succeeded();
    let counted: Vec<String> = (1..=2000).map(|number| number.to_string()).collect();
    assert_eq!(ran.stdout.lines().collect::<Vec<_>>(), counted);
    assert!(server.end().success());
}

#[tokio::test]
async fn failure_domain_a_server_that_is_killed_leaves_no_process_and_the_next_one_starts_them_again() {
    let world = World::new();
    let server = world.up(&PROCESSES);
    let client = server.client().await;
    create(&pods(&client), pod("orders", &["demo", "orders"], "Always")).await;
    create(&pods(&client), pod("spin", &["demo", "faults", "spin"], "Always")).await;
    is_ready(&client, "orders").await;
    says(&world, "spin", "spinning").await;
    let children = processes(server.pid);
    assert_eq!(children.len(), 2, "{children:?}");
    server.kill();
    let until = Instant::now() + DEADLINE;
    while children.iter().any(|pid| runs(*pid)) {
        assert!(Instant::now() < until, "a process has outlived its server");
        tokio::task::yield_now().await;
    }

    let server = world.up(&PROCESSES);
    let client = server.client().await;
    becomes(&pods(&client), "orders", "restarted and ready", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["ready"] == true && status["restartCount"] == 1
    })
    .await;
    assert_eq!(orders_are_read(&server, &client).await, 0);
}

/// The exit code of a Pod that asks the orders.
async fn orders_are_read(server: &Server, client: &Client) -> i64 {
    create_service(client, "orders").await;
    let probe = ["probe", "http://orders.default.svc/orders/1017"];
    create(&pods(client), pod("probe", &probe, "Never")).await;
    let ended = end_of(client, "probe").await;
    assert_eq!(server.ask("/healthz", &[]).await.0, 200);
    ended["exitCode"].as_i64().unwrap()
}

#[tokio::test]
async fn failure_domain_an_agent_says_that_it_stays_in_the_server_and_calls_the_tools_of_processes() {
    let running = Running::on(&[&PROCESSES[..], &[example("helpdesk").as_str()]].concat());
    let answer = running
        .chat(&["helpdesk", "-m", "Where is order 1017?"])
        .await
        .succeeded();
    assert!(answer.stdout.contains("1017"), "{answer}");
    let told = running.world.run(&["events"]).await.succeeded();
    let line = told.stdout.lines().find(|line| line.contains("NotIsolated"));
    assert!(
        line.is_some_and(|line| line.contains("the role `agent` shares its state")),
        "{told}"
    );
    assert!(
        !processes(running.server.pid).is_empty(),
        "the orders are a process"
    );
}

#[tokio::test]
async fn a_demo_that_would_end_the_server_is_refused_in_it() {
    let world = World::new();
    let server = world.up(&[]);
    let client = server.client().await;
    create(
        &pods(&client),
        pod("stack", &["demo", "faults", "stack"], "Never"),
    )
    .await;
    let ended = end_of(&client, "stack").await;
    assert_eq!(ended["exitCode"], 1);
    let message = ended["message"].as_str().unwrap();
    assert!(
        message.contains("would take the server along; start it with `--isolate process`"),
        "{message}"
    );
    assert_eq!(server.ask("/healthz", &[]).await.0, 200);
}

#[tokio::test]
async fn the_process_of_a_workload_is_started_by_the_server_only() {
    let world = World::new();
    let ran = world.run(&["workload", "default/a/main"]).await.failed();
    assert!(
        ran.stderr
            .contains("default/a/main: this is started by the server"),
        "{ran}"
    );
}
