//! `mainstay demo`

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{
    arguments::{DemoArguments, DemoService},
    roles::orders,
    serve, terminal,
    terminal::Failure,
};

/// Serves a demo service until it is stopped.
pub(crate) async fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    let ended = CancellationToken::new();
    let router = match arguments.service {
        DemoService::Orders => orders::router(&ended),
    };
    let listener = TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| serve::not_bound(arguments.listen, &error, "--listen"))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::new(format!("the address cannot be read: {error}")))?;
    terminal::message(format!("orders at http://{address}/orders; Ctrl-C ends it"));
    axum::serve(listener, router)
        .with_graceful_shutdown(async move {
            serve::stop_signal().await;
            // Streams that are kept open would hold the end up.
            ended.cancel();
        })
        .await
        .map_err(|error| Failure::new(format!("the service ended: {error}")))
}
