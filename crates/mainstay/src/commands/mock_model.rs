//! `mainstay mock-model`

use axum::serve::ListenerExt;
use mainstay_llm::mock;
use mainstay_telemetry::clock;
use tokio::net::TcpListener;

use crate::{arguments::MockModelArguments, roles::mock_model, serve, terminal, terminal::Failure};

/// Serves a scenario until it is stopped.
pub(crate) async fn run(arguments: &MockModelArguments) -> Result<(), Failure> {
    let text = match &arguments.scenario {
        None => None,
        Some(file) => Some(
            std::fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?,
        ),
    };
    let model = mock_model::model(text.as_deref()).map_err(|error| {
        let file = arguments
            .scenario
            .as_deref()
            .unwrap_or(std::path::Path::new("the scenario"));
        Failure::new(format!("{}: {error}", file.display()))
            .with_hint("docs/reference/scenario.md describes the form of a scenario")
    })?;
    let listener = TcpListener::bind(arguments.listen)
        .await
        .map_err(|error| serve::not_bound(arguments.listen, &error, "--listen"))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::new(format!("the address cannot be read: {error}")))?;
    terminal::message(format!("model at http://{address}/v1; Ctrl-C ends it"));
    axum::serve(
        listener.tap_io(serve::send_at_once),
        mock::router(model, clock::system()),
    )
    .with_graceful_shutdown(async {
        serve::stop_signal().await;
    })
    .await
    .map_err(|error| Failure::new(format!("the mock model ended: {error}")))
}
