//! Pods of images by others, in an engine that a test plays (KA-051).

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod, Secret};
use kube::api::{DeleteParams, ListParams};
use mainstay_localnode::BackOffOptions;
use mainstay_localnode::logs::LogQuery;
use mainstay_workload::{Resolution, ServiceResolver};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::engine::{Engine, FakeContainer};
use super::world::{World, container_status, has_failed, is_ready, waiting_reason};
use crate::{pod, restarts};

fn tool() -> Value {
    json!({ "name": "main", "image": "tool:1", "ports": [{ "name": "http", "containerPort": 8080 }] })
}

async fn world(engine: &Engine) -> World {
    let quick = BackOffOptions {
        initial: Duration::from_millis(5),
        limit: Duration::from_millis(5),
        ..BackOffOptions::default()
    };
    World::start_in_engine(&engine.socket, quick).await
}

async fn event(world: &World, reason: &str, part: &str) {
    world
        .until_list::<Event>(&ListParams::default(), |events| {
            events.iter().any(|event| {
                let message = event.message.as_deref().unwrap_or("");
                event.reason.as_deref() == Some(reason) && message.contains(part)
            })
        })
        .await;
}

async fn log(world: &World, previous: bool) -> String {
    let query = LogQuery {
        namespace: "default".into(),
        pod: "tool".into(),
        container: "main".into(),
        previous,
        ..LogQuery::default()
    };
    let lines: Vec<_> = world
        .handle
        .logs
        .open(query)
        .await
        .unwrap()
        .map(Result::unwrap)
        .collect()
        .await;
    String::from_utf8(lines.concat()).unwrap()
}

#[tokio::test]
async fn a_foreign_pod_runs_serves_is_restarted_and_leaves_nothing_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    engine.start();
    // Stands for the program in the container.
    let program = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = program.local_addr().unwrap();
    engine.with(|engine| engine.published.insert("8080/tcp".to_owned(), address.port()));
    let world = world(&engine).await;
    world.service("tool").await;
    let mut container = tool();
    container["env"] =
        json!([{ "name": "WHO", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
    world.create::<Pod>(pod("tool", container)).await;
    let ready = world.until::<Pod>("tool", is_ready).await;
    let running = engine.running("main").await;
    let status = container_status(&ready);
    assert_eq!(
        status.container_id.as_deref(),
        Some(&*format!("docker://{}", running.id))
    );
    assert_eq!(status.image_id, "sha256:tool:1");
    // What the host lends to agents is not in it.
    assert_eq!(running.body["Env"], json!(["WHO=tool"]));
    let bound = &running.body["HostConfig"]["PortBindings"]["8080/tcp"][0];
    assert_eq!(bound["HostIp"], "127.0.0.1");
    assert_eq!(running.body["Labels"]["dev.mainstay.pod"], "tool");
    let binds = running.body["HostConfig"]["Binds"].to_string();
    assert!(
        binds.contains("/var/run/secrets/kubernetes.io/serviceaccount:ro"),
        "{binds}"
    );
    let resolved = world.handle.services.resolve("tool", 80, "default");
    assert_eq!(resolved, Resolution::Endpoint(address));

    // Its end is a run's end: the log stays, and another container follows.
    engine.with(|engine| engine.containers[0].output = vec!["one".into(), "two".into()]);
    engine.finish("main", 3);
    let again = world
        .until::<Pod>("tool", |pod| restarts(pod) == 1 && is_ready(pod))
        .await;
    let status = container_status(&again);
    let last = status.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert_eq!(log(&world, true).await, "one\ntwo\n");
    assert_ne!(engine.running("main").await.name, running.name);

    let immediately = DeleteParams::default();
    world.api::<Pod>().delete("tool", &immediately).await.unwrap();
    engine
        .until("no container is left", |engine| {
            engine.containers.is_empty().then_some(())
        })
        .await;
    assert_eq!(
        engine.with(|engine| engine.stopped.len()),
        1,
        "it was asked to end"
    );
    world.stop().await;
}

#[tokio::test]
async fn an_image_is_pulled_with_the_words_of_a_kubelet_until_it_comes_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    engine.start();
    engine.with(|engine| engine.pull_error = Some("unauthorized".to_owned()));
    let world = world(&engine).await;
    let auth = json!({ "auths": { "example.com": { "username": "me", "password": "s3cret" } } });
    world
        .create::<Secret>(json!({
            "metadata": { "name": "pull" }, "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": auth.to_string() },
        }))
        .await;
    let mut container = tool();
    container["image"] = json!("example.com/team/tool:2");
    let mut object = pod("tool", container);
    object["spec"]["imagePullSecrets"] = json!([{ "name": "pull" }]);
    world.create::<Pod>(object).await;
    let reason = |wanted: &'static str| {
        move |pod: &Pod| {
            waiting_reason(pod)
                .is_some_and(|(reason, message)| reason == wanted && message.contains("unauthorized"))
        }
    };
    world.until::<Pod>("tool", reason("ImagePullBackOff")).await;
    event(
        &world,
        "Failed",
        "Failed to pull image \"example.com/team/tool:2\": unauthorized",
    )
    .await;
    event(&world, "Failed", "Error: ErrImagePull").await;
    event(
        &world,
        "BackOff",
        "Back-off pulling image \"example.com/team/tool:2\"",
    )
    .await;
    engine.with(|engine| engine.pull_error = None);
    world.until::<Pod>("tool", is_ready).await;
    event(
        &world,
        "Pulled",
        "Successfully pulled image \"example.com/team/tool:2\"",
    )
    .await;
    let (name, credentials) = engine.with(|engine| engine.pulls[0].clone());
    assert_eq!(name, "example.com/team/tool:2");
    assert!(!credentials.is_empty());

    for (name, image, policy, expected) in [
        ("never", "absent:1", "Never", "ErrImageNeverPull"),
        ("invalid", "Not Valid", "IfNotPresent", "InvalidImageName"),
    ] {
        let mut container = tool();
        container["image"] = json!(image);
        container["imagePullPolicy"] = json!(policy);
        world.create::<Pod>(pod(name, container)).await;
        let waits = |pod: &Pod| waiting_reason(pod).is_some_and(|(reason, _)| reason == expected);
        world.until::<Pod>(name, waits).await;
    }
    world.stop().await;
}

#[tokio::test]
async fn a_pod_waits_for_an_engine_and_what_a_former_process_left_is_removed_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    let world = world(&engine).await;
    world.create::<Pod>(pod("tool", tool())).await;
    let waits = |pod: &Pod| {
        waiting_reason(pod).is_some_and(|(reason, message)| {
            reason == "NoContainerEngine"
                && message.contains("no container engine answers")
                && message.contains("engine.sock")
        })
    };
    let pending = world.until::<Pod>("tool", waits).await;
    assert_eq!(pending.status.unwrap().phase.as_deref(), Some("Pending"));
    let left = |name: &str, owner: &str| FakeContainer {
        id: name.to_owned(),
        name: name.to_owned(),
        body: json!({ "Labels": { "dev.mainstay.data-directory": owner } }),
        status: "running",
        exit_code: 0,
        oom_killed: false,
        output: Vec::new(),
    };
    let own = world.folder().join("pods").display().to_string();
    engine.with(|engine| {
        engine.containers.push(left("left", &own));
        engine
            .containers
            .push(left("of-another-directory", "/elsewhere/pods"));
        let mut stranger = left("stranger", "");
        stranger.body = json!({});
        engine.containers.push(stranger);
    });
    engine.start();
    world.until::<Pod>("tool", is_ready).await;
    engine
        .until("what was left is removed", |engine| {
            (engine.removed == ["left"]).then_some(())
        })
        .await;
    // The end of the process ends its containers, and no others.
    world.stop().await;
    let names: Vec<String> = engine.with(|engine| {
        engine
            .containers
            .iter()
            .map(|container| container.name.clone())
            .collect()
    });
    assert_eq!(names, ["of-another-directory", "stranger"]);
}

#[tokio::test]
async fn an_engine_that_goes_away_and_comes_back_is_told_and_an_end_meanwhile_is_found_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    engine.start();
    let world = world(&engine).await;
    let mut object = pod("tool", tool());
    object["spec"]["restartPolicy"] = json!("Never");
    world.create::<Pod>(object).await;
    world.until::<Pod>("tool", is_ready).await;
    engine.stop().await;
    world
        .until::<Pod>("tool", |pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|condition| {
                condition.type_ == "Ready"
                    && condition.status == "False"
                    && condition
                        .message
                        .as_deref()
                        .unwrap_or("")
                        .contains("the container engine does not answer")
            })
        })
        .await;
    event(&world, "ContainerEngineLost", "container main is taken to go on").await;
    engine.with(|engine| engine.garbage = false);
    engine.start();
    world.until::<Pod>("tool", is_ready).await;
    event(&world, "ContainerEngineBack", "container main").await;
    engine.stop().await;
    engine.with(|engine| engine.containers[0].oom_killed = true);
    engine.finish("main", 137);
    engine.with(|engine| engine.garbage = false);
    engine.start();
    let failed = world.until::<Pod>("tool", has_failed).await;
    let status = container_status(&failed);
    let ended = status.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (137, Some("OOMKilled"))
    );
    world.stop().await;
}

#[tokio::test]
async fn a_container_that_cannot_start_says_why_and_counts_as_a_failure_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    engine.start();
    engine.with(|engine| engine.start_error = Some("exec: \"nothing\": not found".to_owned()));
    let world = world(&engine).await;
    let mut object = pod("tool", tool());
    object["spec"]["restartPolicy"] = json!("Never");
    world.create::<Pod>(object).await;
    let failed = world.until::<Pod>("tool", has_failed).await;
    let status = container_status(&failed);
    let ended = status.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref()),
        (128, Some("StartError"))
    );
    assert!(ended.message.as_ref().unwrap().contains("not found"));

    let mut privileged = tool();
    privileged["securityContext"] = json!({ "privileged": true });
    world.create::<Pod>(pod("privileged", privileged)).await;
    world
        .until::<Pod>("privileged", |pod| {
            waiting_reason(pod).is_some_and(|(reason, message)| {
                reason == "CreateContainerConfigError" && message.contains("securityContext.privileged")
            })
        })
        .await;
    world.stop().await;
}

/// Answers each request with what `status` says at the time.
async fn answers(listener: TcpListener, status: tokio::sync::watch::Receiver<&'static str>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        if stream.read(&mut head).await.unwrap() > 0 {
            let answer = format!(
                "HTTP/1.1 {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                *status.borrow()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn probes_decide_whether_a_container_serves_and_whether_it_goes_on_ka_051() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = Engine::new(folder.path());
    engine.start();
    let program = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = program.local_addr().unwrap().port();
    engine.with(|engine| engine.published.insert("8080/tcp".to_owned(), port));
    let (says, status) = tokio::sync::watch::channel("503 No");
    let answering = mainstay_telemetry::task::spawn("program", answers(program, status));
    let world = world(&engine).await;
    let mut container = tool();
    container["readinessProbe"] =
        json!({ "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 1 });
    world.create::<Pod>(pod("tool", container)).await;
    event(
        &world,
        "Unhealthy",
        "Readiness probe failed: HTTP probe failed with statuscode: 503",
    )
    .await;
    says.send_replace("200 OK");
    world.until::<Pod>("tool", is_ready).await;
    let mut container = tool();
    container["livenessProbe"] =
        json!({ "httpGet": { "path": "/", "port": 8080 }, "periodSeconds": 1, "failureThreshold": 1 });
    says.send_replace("500 No");
    world.create::<Pod>(pod("ill", container)).await;
    event(
        &world,
        "Killing",
        "Container main failed liveness probe, will be restarted",
    )
    .await;
    world.until::<Pod>("ill", |pod| restarts(pod) >= 1).await;
    world.stop().await;
    answering.abort();
}
