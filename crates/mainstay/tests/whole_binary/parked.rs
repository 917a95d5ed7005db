//! What sessions cost while nothing happens in them.
#![cfg(target_os = "linux")]

use crate::support::{conversation::Conversation, desk, server::Server, world::World};

/// Connections that stay open.
const CONNECTED: usize = 200;
/// Sessions that come and go.
const PARKED: usize = 1_000;
/// Those of them until the memory that is used again and again is there.
const WARM: usize = 300;

/// Resident memory of the server, in bytes.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid)).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

async fn spoken(server: &Server) -> Conversation {
    let mut conversation = Conversation::open(server, "desk").await;
    assert_eq!(conversation.answer("hello").await, "Hello.");
    conversation
}

#[tokio::test]
async fn an_idle_session_costs_a_few_kilobytes_and_a_connected_one_a_few_more() {
    let world = World::new();
    desk::write(&world, "127.0.0.1:9".parse().unwrap(), desk::SCENARIO);
    let server = world.up(&["desk"]);
    let mut warm = 0;
    for count in 0..PARKED {
        if count == WARM {
            warm = resident(&server);
        }
        drop(spoken(&server).await);
    }
    let parked = resident(&server);
    let each = parked.saturating_sub(warm) / (PARKED - WARM) as u64;
    assert!(
        each <= 6 * 1024,
        "{each} bytes for each session that nobody is connected to"
    );

    let mut open = Vec::new();
    for _ in 0..CONNECTED {
        open.push(spoken(&server).await);
    }
    let each_connected = resident(&server).saturating_sub(parked) / CONNECTED as u64;
    assert!(
        each_connected <= 96 * 1024,
        "{each_connected} bytes for each connection"
    );
    println!("{each} bytes parked, {each_connected} bytes connected");
}
