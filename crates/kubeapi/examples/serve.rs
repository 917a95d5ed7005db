//! Serves an empty API on a free loopback port until Ctrl-C: `cargo run -p mainstay-kubeapi --example serve [DIRECTORY]`.
//! Prints the kubeconfig to use.

use std::{net::SocketAddr, path::PathBuf};

use mainstay_kubeapi::{Api, ApiOptions, ServeOptions};
use mainstay_store::kube::{KubeOptions, KubeStore};
use mainstay_telemetry::{clock, random, task};
use tokio_util::sync::CancellationToken;

#[tokio::main]
#[allow(clippy::print_stdout, reason = "an example talks to its reader")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join("kubeapi"), PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let store = KubeStore::open(KubeOptions::file(directory.join("kube.db")))?;
    let api = Api::open(ApiOptions::new(store, clock::system(), random::system())).await?;
    let cancellation = CancellationToken::new();
    let background = task::spawn("kubeapi", {
        let (api, cancellation) = (api.clone(), cancellation.clone());
        async move { api.run(cancellation).await }
    });
    let options = ServeOptions {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        directory: directory.join("ca"),
        kubeconfig: directory.join("kubeconfig"),
    };
    let serving = api.serve_tls(options, cancellation.clone()).await?;
    println!("export KUBECONFIG={}", serving.kubeconfig.display());
    tokio::signal::ctrl_c().await?;
    cancellation.cancel();
    serving.task.await??;
    background.await?;
    Ok(())
}
