//! Which API server a verb talks to. The local one is found by the data directory; another cluster only when it is
//! named in so many words, never by `$KUBECONFIG` alone.

use std::path::Path;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    arguments::{ClusterArguments, DataArguments},
    endpoints::Endpoints,
    terminal::Failure,
};

/// A client for the cluster that the arguments name.
pub(crate) async fn client(arguments: &ClusterArguments) -> Result<Client, Failure> {
    match (&arguments.kubeconfig, &arguments.context) {
        (None, None) => local(&arguments.data).await,
        (Some(file), context) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .map_err(|error| Failure::new(format!("kubeconfig {}: {error}", file.display())))?;
            from_kubeconfig(kubeconfig, context.clone(), &file.display().to_string()).await
        }
        (None, context) => {
            let kubeconfig = Kubeconfig::read()
                .map_err(|error| Failure::new(format!("the kubeconfig cannot be read: {error}")))?;
            from_kubeconfig(kubeconfig, context.clone(), "the kubeconfig").await
        }
    }
}

/// A client for the local server of a data directory.
pub(crate) async fn local(arguments: &DataArguments) -> Result<Client, Failure> {
    let endpoints = Endpoints::once_started(&arguments.data).await?;
    at(&endpoints.kubeconfig).await
}

/// A client for the server that the kubeconfig file names.
pub(crate) async fn at(kubeconfig: &Path) -> Result<Client, Failure> {
    let read = Kubeconfig::read_from(kubeconfig)
        .map_err(|error| Failure::new(format!("kubeconfig {}: {error}", kubeconfig.display())))?;
    from_kubeconfig(read, None, &kubeconfig.display().to_string()).await
}

async fn from_kubeconfig(
    kubeconfig: Kubeconfig,
    context: Option<String>,
    shown: &str,
) -> Result<Client, Failure> {
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    Client::try_from(config).map_err(|error| Failure::new(format!("{shown}: {error}")))
}
