//! The machine's clock is set back by an hour, while the server runs and between two starts: nobody is locked out by
//! certificates and tokens of the future, sessions go on with their events in order, and what is written is there.

use std::{fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::support::{
    backend::Backend,
    conversation::{Conversation, ends_turn, events},
    desk,
    objects::{objects, omnia, reaches},
    world::{Ran, World},
};

/// A wall clock that programs of a world have.
struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn of(world: &World) -> Self {
        let source = world.write("clock/clock.c", include_str!("clock_set_back.c"));
        let clock = Self {
            library: world.path("clock/clock.so"),
            offset: world.path("clock/offset"),
        };
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&clock.library, &source])
            .output()
            .expect("the C compiler, which the build needs too");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        clock.set(0);
        clock
    }

    /// Seconds by which it is ahead of the machine's.
    fn set(&self, seconds: i64) {
        // In place: the programs have the file open.
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.offset)
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &seconds.to_ne_bytes(), 0).unwrap();
    }

    fn environment(&self) -> [(&str, &str); 2] {
        [
            ("LD_PRELOAD", self.library.to_str().unwrap()),
            ("CLOCK_OFFSET", self.offset.to_str().unwrap()),
        ]
    }

    /// Runs a verb of the program under this clock.
    async fn run(&self, world: &World, arguments: &[&str]) -> Ran {
        let mut command = world.command(arguments);
        command.envs(self.environment());
        world.finish(command).await
    }
}

const HOUR: i64 = 3600;

fn config_map(world: &World, name: &str) -> String {
    let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{a: b}}\n");
    world.write(&format!("{name}.yaml"), &text);
    format!("{name}.yaml")
}

#[tokio::test]
async fn a_clock_that_is_set_back_by_an_hour_locks_nobody_out_and_loses_nothing() {
    let backend = Backend::start(200);
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    let clock = Clock::of(&world);
    let server = world.up_with(&["desk"], &clock.environment());
    reaches(&omnia(&server.client().await, "AgentRuntime"), "desk", "Running").await;
    let mut conversation = Conversation::open(&server, "desk").await;
    let session = conversation.session.clone();
    conversation.turn("ship 1").await;

    // While it runs, with a conversation that is open.
    clock.set(-HOUR);
    conversation.turn("ship 2").await;
    clock
        .run(&world, &["apply", "-f", &config_map(&world, "during")])
        .await
        .succeeded();
    clock.run(&world, &["status"]).await.succeeded();
    let ran = clock
        .run(&world, &["chat", "desk", "-m", "hello"])
        .await
        .succeeded();
    assert_eq!(ran.stdout, "Hello.\n");
    assert!(server.end().success());

    // Between two starts: whatever was made in the first is from the future.
    let server = world.up_with(&[], &clock.environment());
    let ran = clock
        .run(&world, &["chat", "desk", "-m", "hello"])
        .await
        .succeeded();
    assert_eq!(ran.stdout, "Hello.\n");
    clock
        .run(&world, &["apply", "-f", &config_map(&world, "after")])
        .await
        .succeeded();
    let mut resumed = Conversation::resume(&server, "desk", &session).await;
    let mut stored: Vec<Value> = Vec::new();
    for _turn in 0..2 {
        let replayed = resumed.until(ends_turn).await;
        stored.extend(events(&replayed).into_iter().cloned());
    }
    resumed.turn("ship 3").await;
    stored.retain(|event| event.get("seq").is_some());
    for (index, event) in stored.iter().enumerate() {
        assert_eq!(
            event["seq"],
            index as u64 + 1,
            "no event is lost or twice: {stored:#?}"
        );
    }
    for order in 1..=3 {
        assert_eq!(
            backend.count(http::Method::POST, &format!("/orders/{order}/ship")),
            1
        );
    }

    // The clock that the server had was another one.
    let client = server.client().await;
    let config_maps = objects(&client, "", "v1", "ConfigMap");
    let mut made = Vec::new();
    for name in ["during", "desk-pack"] {
        let object = config_maps.get(name).await.unwrap();
        made.push(object.metadata.creation_timestamp.unwrap().0.as_second());
    }
    assert!(made[0] < made[1] - HOUR / 2, "{made:?}");
    assert!(server.end().success());

    // And set right again.
    clock.set(0);
    let server = world.up_with(&[], &clock.environment());
    // The first to come waits for the agent, which starts anew.
    clock
        .run(&world, &["chat", "desk", "-m", "hello"])
        .await
        .succeeded();
    for name in ["during", "after"] {
        clock.run(&world, &["get", "configmaps", name]).await.succeeded();
    }
    let mut resumed = Conversation::resume(&server, "desk", &session).await;
    for _turn in 0..3 {
        resumed.until(ends_turn).await;
    }
    assert!(server.end().success());
}
