//! kill -9 in the middle of conversations (contract 7).

use http::Method;
use mainstay_telemetry::random::{Random, SeededRandom};
use serde_json::Value;

use crate::support::{
    backend::Backend,
    conversation::{Conversation, ends_turn, events},
    desk,
    objects::{omnia, reaches},
    server::Server,
    world::World,
};

/// How often the server is killed at a point of chance. Each time in another part of the same conversation.
const KILLS: u64 = 4;
/// Where the points come from.
const SEED: u64 = 0x6d61_696e;

/// When the server is killed.
#[derive(Debug, Clone, Copy)]
enum Point {
    /// After so many frames of the turn.
    Frames(usize),
    /// When the call of this tool is about to be sent, or is on its way.
    Started(&'static str),
}

impl Point {
    fn is_reached(self, seen: &[Value]) -> bool {
        match self {
            Self::Frames(count) => seen.len() >= count,
            Self::Started(tool) => !of_call(&events(seen), "tool.started", tool).is_empty(),
        }
    }
}

/// What became of the call that must not be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The process ended before it was to be sent.
    Never,
    /// Sent once, and its result is stored.
    Once,
    /// It may have been sent; the model was told that nobody knows.
    UnknownAndReported,
}

/// A world with the agent `desk` on the test's own order service.
async fn world_with(backend: &Backend) -> (World, Server) {
    let world = World::new();
    desk::write(&world, backend.address, desk::SCENARIO);
    let server = world.up(&["desk"]);
    reaches(&omnia(&server.client().await, "AgentRuntime"), "desk", "Running").await;
    (world, server)
}

/// Starts the server of `world` again, without manifests: what it knows is what it has stored.
async fn start_again(world: &World) -> Server {
    let server = world.up(&[]);
    // The first to come waits for the agent, which starts anew.
    let ran = world.run(&["chat", "desk", "-m", "hello"]).await.succeeded();
    assert_eq!(ran.stdout, "Hello.\n", "{ran}");
    server
}

/// Kind and name of every object of ours.
async fn objects_of(world: &World) -> Vec<(String, String)> {
    let status = world.run(&["status", "--json"]).await.succeeded().stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let objects = status["objects"].as_array().unwrap().iter();
    objects
        .map(|object| (text(&object["kind"]), text(&object["name"])))
        .collect()
}

fn stored(frames: &[Value]) -> Vec<&Value> {
    events(frames)
        .into_iter()
        .filter(|event| event.get("seq").is_some())
        .collect()
}

fn of_call<'a>(events: &[&'a Value], kind: &str, tool: &str) -> Vec<&'a Value> {
    events
        .iter()
        .copied()
        .filter(|event| event["type"] == kind && event["data"]["tool"] == tool)
        .collect()
}

/// Judges the one call of `ship_order` in the session's events by what the service has counted.
fn fate(events: &[&Value], sent: usize) -> Fate {
    let started = of_call(events, "tool.started", "ship_order");
    let finished = of_call(events, "tool.finished", "ship_order");
    assert!(sent <= 1, "the order was shipped {sent} times: {events:#?}");
    assert!(
        started.len() <= 1 && finished.len() == started.len(),
        "{events:#?}"
    );
    match finished
        .first()
        .map(|event| event["data"]["outcome"].as_str().unwrap())
    {
        None => {
            assert_eq!(sent, 0, "sent without a stored intent");
            Fate::Never
        }
        Some("succeeded") => {
            assert_eq!(sent, 1, "a result without a call");
            Fate::Once
        }
        Some("unknown") => Fate::UnknownAndReported,
        Some(other) => panic!("outcome {other}: {events:#?}"),
    }
}

#[tokio::test]
async fn contract_7_no_call_is_repeated_whenever_the_process_is_killed() {
    let backend = Backend::start(200);
    let (world, mut server) = world_with(&backend).await;
    // One conversation without a fault says how many frames there are.
    let mut conversation = Conversation::open(&server, "desk").await;
    let whole = conversation.turn("ship 1000").await.len() as u64;
    let random = SeededRandom::new(SEED);
    let slice = whole / KILLS;
    let by_chance = (0..KILLS).map(|part| part * slice + random.bits() % slice + 1);
    let points: Vec<Point> = by_chance
        .map(|count| Point::Frames(usize::try_from(count).unwrap()))
        .chain([Point::Started("get_order"), Point::Started("ship_order")])
        .collect();
    let mut fates = Vec::new();
    for (order, point) in (2000..).zip(&points) {
        let mut conversation = Conversation::open(&server, "desk").await;
        conversation.say(&format!("ship {order}")).await;
        let mut seen = vec![conversation.frame().await];
        while !point.is_reached(&seen) && seen.last().unwrap()["type"] != "done" {
            seen.push(conversation.frame().await);
        }
        server.kill();

        server = start_again(&world).await;
        let mut resumed = Conversation::resume(&server, "desk", &conversation.session).await;
        let replayed = resumed.until(ends_turn).await;
        let after = stored(&replayed);
        for event in stored(&seen) {
            assert!(
                after.contains(&event),
                "shown before the kill and gone after it: {event}"
            );
        }
        for (index, event) in after.iter().enumerate() {
            assert_eq!(event["seq"], index as u64 + 1, "no event is lost or twice");
        }
        let last = after.last().unwrap();
        assert_eq!(
            last["type"], "turn.done",
            "{point:?}: the turn is brought to its end: {last}"
        );
        fates.push(fate(
            &after,
            backend.count(Method::POST, &format!("/orders/{order}/ship")),
        ));
        // What may be repeated is repeated at most once for each time it was begun.
        let read = backend.count(Method::GET, &format!("/orders/{order}"));
        assert!(
            read <= of_call(&after, "tool.started", "get_order").len(),
            "{after:#?}"
        );

        // The conversation goes on where it was.
        let again = world
            .run(&["chat", "desk", "--session", &conversation.session, "-m", "again"])
            .await
            .succeeded();
        assert_eq!(again.stdout, "This is your second message.\n", "{again}");
    }
    println!("{points:?} of {whole} frames, seed {SEED:#x}: {fates:?}, repeated 0");
}

#[tokio::test]
async fn contract_7_a_call_in_flight_when_the_process_dies_is_reported_and_not_sent_again() {
    let backend = Backend::start(200);
    let world = World::new();
    // The service never answers, and the handler has all the time in the world.
    desk::write(&world, backend.address, desk::SCENARIO);
    let patient = std::fs::read_to_string(world.path("desk/desk.yaml"))
        .unwrap()
        .replace("timeout: 300ms", "timeout: 60s");
    world.write("desk/desk.yaml", &patient);
    let server = world.up(&["desk"]);
    let mut conversation = Conversation::open(&server, "desk").await;
    let session = conversation.session.clone();
    conversation.say("wait for 7").await;
    backend.receives(Method::POST, "/silent/7").await;
    server.kill();

    let server = start_again(&world).await;
    let mut resumed = Conversation::resume(&server, "desk", &session).await;
    let replayed = resumed.until(ends_turn).await;
    let after = stored(&replayed);
    let finished = of_call(&after, "tool.finished", "silent_order");
    assert_eq!(finished.len(), 1, "{after:#?}");
    assert_eq!(finished[0]["data"]["outcome"], "unknown");
    assert_eq!(finished[0]["data"]["is_error"], true);
    assert_eq!(
        after.last().unwrap()["type"],
        "turn.done",
        "the model was told and has answered"
    );
    assert_eq!(
        backend.count(Method::POST, "/silent/7"),
        1,
        "it is not sent again"
    );
}

#[tokio::test]
async fn finished_conversations_and_objects_are_there_after_a_kill() {
    let backend = Backend::start(200);
    let (world, server) = world_with(&backend).await;
    let mut conversation = Conversation::open(&server, "desk").await;
    let before = conversation.turn("ship 42").await;
    let objects = objects_of(&world).await;
    assert_eq!(objects.len(), 5, "{objects:?}");
    server.kill();

    let server = start_again(&world).await;
    assert_eq!(objects_of(&world).await, objects);
    let mut resumed = Conversation::resume(&server, "desk", &conversation.session).await;
    let replayed = resumed.until(ends_turn).await;
    assert_eq!(stored(&before), stored(&replayed));
    assert_eq!(backend.count(Method::POST, "/orders/42/ship"), 1);
    assert_eq!(
        backend.count(Method::GET, "/orders/42"),
        1,
        "a call with a result is not sent again"
    );
    assert_eq!(resumed.answer("again").await, "This is your second message.");
}
