//! A port that is taken, a data directory that cannot be used, an address that others reach: a message that names the
//! cause, and nothing left behind.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    os::unix::{fs::PermissionsExt, process::CommandExt},
};

use crate::support::{
    server::Endpoints,
    world::{World, assert_ran},
};

#[tokio::test]
async fn a_port_that_is_taken_is_named_with_the_flag_that_chooses_another() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let front = ["--listen", &address, "--kube-listen", "127.0.0.1:0"];
    let kubernetes = ["--listen", "127.0.0.1:0", "--kube-listen", &address];
    assert_ran!("port_taken", world.run(&[&["up"], &front[..]].concat()).await);
    assert_ran!(
        "port_taken_detached",
        world.run(&[&["up", "--detach"], &front[..]].concat()).await
    );
    assert_ran!(
        "kube_port_taken",
        world.run(&[&["up"], &kubernetes[..]].concat()).await
    );
    assert_ran!(
        "kube_port_taken_detached",
        world.run(&[&["up", "--detach"], &kubernetes[..]].concat()).await
    );
    assert_ran!(
        "mock_model_port_taken",
        world.run(&["mock-model", "--listen", &address]).await
    );
    // A start that failed leaves nothing that hinders the next one.
    world.detach(&[]).await.succeeded();
    world.run(&["down"]).await.succeeded();
}

#[tokio::test]
async fn an_address_that_others_reach_needs_a_flag() {
    let world = World::new();
    assert_ran!(
        "remote_refused",
        world
            .run(&["up", "--listen", "0.0.0.0:0", "--kube-listen", "127.0.0.1:0"])
            .await
    );
    let kubernetes = [
        "up",
        "--detach",
        "--listen",
        "127.0.0.1:0",
        "--kube-listen",
        "[::]:0",
    ];
    assert_ran!("remote_refused_kubernetes", world.run(&kubernetes).await);

    // A restart that would be refused leaves the server that runs alone.
    world.detach(&[]).await.succeeded();
    let before = Endpoints::read(&world.data()).unwrap();
    let restart = ["up", "--detach", "--restart", "--listen", "0.0.0.0:0"];
    assert_ran!("remote_refused_restart", world.run(&restart).await.failed());
    assert_eq!(Endpoints::read(&world.data()), Some(before));
    world.run(&["status"]).await.succeeded();
    world.run(&["down"]).await.succeeded();
}

#[tokio::test]
async fn ka_033_a_data_directory_that_another_process_holds_names_that_process() {
    let world = World::new();
    fs::create_dir(world.data()).unwrap();
    // A process that has the lock and has not written its endpoints: one that is about to start, for example.
    let mut lock = fs::File::create(world.data().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    writeln!(lock, "{}", std::process::id()).unwrap();
    let arguments = ["up", "--listen", "127.0.0.1:0", "--kube-listen", "127.0.0.1:0"];
    let ran = world.run(&arguments).await.failed();
    assert!(
        ran.stderr.contains(&format!("pid {}", std::process::id())),
        "{ran}"
    );
    assert_ran!("directory_in_use", ran);
    // Other verbs wait for it as well, and say for what.
    assert_ran!("status_while_starting", world.run(&["status"]).await.failed());
    assert_ran!(
        "chat_while_starting",
        world.run(&["chat", "helpdesk", "-m", "hello"]).await.failed()
    );
    assert_ran!(
        "directory_in_use_detached",
        world.run(&[&arguments[..], &["--detach"]].concat()).await
    );
    let left: Vec<_> = fs::read_dir(world.data())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["lock"], "the second process has changed nothing");
}

#[tokio::test]
async fn a_data_directory_that_is_none_is_named() {
    let world = World::new();
    world.write("file", "not a directory");
    world.write("home/letter.txt", "somebody's own");
    assert_ran!("directory_is_a_file", world.run(&["up", "--data", "file"]).await);
    assert_ran!(
        "directory_below_a_file",
        world.run(&["up", "--data", "file/below"]).await
    );
    assert_ran!(
        "directory_of_somebody_else",
        world.run(&["up", "--detach", "--data", "home"]).await
    );
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "not a directory");
}

#[tokio::test]
async fn a_data_directory_that_is_not_writable_is_named() {
    let world = World::new();
    let parent = world.path("closed");
    fs::create_dir(&parent).unwrap();
    let mut command = world.command(&["up", "--data", "closed/data"]);
    if rustix::process::geteuid().is_root() {
        // To root every directory is writable; somebody else is asked, who has to get this far.
        fs::set_permissions(world.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        command.uid(65_534).gid(65_534);
        let mut probe = world.command(&["version"]);
        if let Err(error) = probe.uid(65_534).gid(65_534).output() {
            eprintln!("skipped: the tests run as root, and no other user may run the program: {error}");
            return;
        }
    }
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o555)).unwrap();
    assert_ran!("directory_not_writable", world.finish(command).await);
}
