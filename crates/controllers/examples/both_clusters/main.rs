//! Our controllers, and the watcher and the Controller of kube-rs that they are built on, over two clusters at once: the same
//! manifests have to become the same objects on both. `make test-cluster` runs it with a real API server and the embedded API,
//! of which neither runs Pods.
//!
//! `both_clusters KUBECONFIG KUBECONFIG FOLDER…`: applies the manifests of the folders. Prints one line for each check and ends
//! with 1 at the first that fails.

mod cluster;
mod kube_runtime;

use std::{error::Error, path::PathBuf, time::Duration};

use cluster::{Cluster, Objects};
use mainstay_telemetry::{clock, task};
use tokio_util::sync::CancellationToken;

pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// How long the clusters may take until they agree.
const AGREED_WITHIN: Duration = Duration::from_secs(60);

#[tokio::main]
#[allow(clippy::print_stdout, reason = "its output is what it is for")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(reference), Some(embedded)) = (arguments.next(), arguments.next()) else {
        return Err("usage: both_clusters KUBECONFIG KUBECONFIG FOLDER…".into());
    };
    let folders: Vec<PathBuf> = arguments.collect();
    let clusters = [
        Cluster::open("reference", &reference).await?,
        Cluster::open("embedded", &embedded).await?,
    ];
    for cluster in &clusters {
        kube_runtime::check(&cluster.client)
            .await
            .map_err(|failure| format!("{}: {failure}", cluster.name))?;
        println!(
            "ok      {}: kube-rs's watcher follows with both strategies, and its Controller reconciles",
            cluster.name
        );
    }

    let cancellation = CancellationToken::new();
    let mut controllers = Vec::new();
    for cluster in &clusters {
        cluster.install_definitions().await?;
        controllers.push(task::spawn("controllers", cluster.control(cancellation.clone())?));
    }
    let mut applied = Vec::new();
    for folder in &folders {
        let manifests = cluster::manifests(folder)?;
        for cluster in &clusters {
            cluster.apply(&manifests).await?;
        }
        applied.extend(manifests);
    }
    let objects = agreed(&clusters, |objects| objects.unsettled()).await?;
    println!(
        "ok      {} manifests became the same {} objects on both, of {} kinds",
        applied.len(),
        objects.len(),
        objects.kinds()
    );

    for cluster in &clusters {
        cluster.delete(&applied).await?;
    }
    agreed(&clusters, |objects| objects.left_behind()).await?;
    println!("ok      with the manifests' objects, all that the controllers made is gone from both");
    cancellation.cancel();
    for controller in controllers {
        controller.await?;
    }
    Ok(())
}

/// Waits until the clusters have the same objects and `unfinished` names none of them. Looks again with every change.
async fn agreed(
    clusters: &[Cluster; 2],
    unfinished: impl Fn(&Objects) -> Option<String>,
) -> Result<Objects, Failure> {
    let [reference, embedded] = clusters;
    let mut changes = cluster::changes(clusters);
    let ends = clock::system().now() + AGREED_WITHIN;
    loop {
        let (here, there) = tokio::try_join!(embedded.objects(), reference.objects())?;
        let difference = unfinished(&there)
            .map(|which| format!("reference: {which}"))
            .or_else(|| unfinished(&here).map(|which| format!("embedded: {which}")))
            .or_else(|| there.difference(&here));
        let Some(difference) = difference else {
            return Ok(there);
        };
        let left = ends.duration_since(clock::system().now()).unsigned_abs();
        if clock::system().now() >= ends || tokio::time::timeout(left, changes.next_change()).await.is_err() {
            return Err(difference.into());
        }
    }
}
