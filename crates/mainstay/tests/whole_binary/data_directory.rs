//! What is in the data directory, who may read it, and what a restart keeps (contracts 1 and 4).

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, path::Path};

use crate::support::{
    objects::objects,
    world::{World, example},
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The files below `directory` by name.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn contract_1_the_data_directory_is_private_and_ignored_by_git() {
    let world = World::new();
    let _server = world.up(&[&example("helpdesk")]);
    let data = world.data();
    assert_eq!(mode(&data), 0o700);
    assert_eq!(fs::read_to_string(data.join(".gitignore")).unwrap(), "*\n");
    for folder in ["ca", "keys", "pods", "logs"] {
        assert_eq!(mode(&data.join(folder)), 0o700, "{folder}");
    }
    for file in ["endpoints.json", "kubeconfig", "kube.db", "payload.db"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    for folder in ["ca", "keys"] {
        for name in files(&data.join(folder)).keys() {
            assert_eq!(mode(&data.join(folder).join(name)), 0o600, "{folder}/{name}");
        }
    }
}

#[tokio::test]
async fn contract_4_a_restart_keeps_ports_certificates_token_and_kubeconfig() {
    let world = World::new();
    let server = world.up(&[]);
    let (before, data) = (server.clone(), world.data());
    let kept = |data: &Path| {
        (
            files(&data.join("ca")),
            files(&data.join("keys")),
            fs::read(data.join("kubeconfig")).unwrap(),
        )
    };
    let first = kept(&data);
    // A client that was configured before goes on with what it has.
    let client = before.client().await;
    assert!(server.end().success());

    let server = world.up_again();
    let again = server.clone();
    assert_eq!(
        (&again.http, &again.kubernetes, &again.token),
        (&before.http, &before.kubernetes, &before.token)
    );
    assert!(
        kept(&data) == first,
        "certificates, keys and kubeconfig stay as they are"
    );
    let namespace = objects(&client, "", "v1", "ConfigMap")
        .list(&kube::api::ListParams::default())
        .await;
    namespace.expect("the former client is still let in");
    server.kill();

    let server = world.up_again();
    assert_eq!(server.http, before.http, "a killed server keeps them as well");
    assert!(kept(&data) == first);
}
