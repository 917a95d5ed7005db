//! Finds out where a session ends silently, and hears what the server says unasked.

use std::time::Duration;

use rmcp::{
    Peer, RoleClient, Service,
    model::{ClientRequest, PingRequest, ServerNotification, SubscriptionFilter},
    service::{RunningService, ServiceError},
};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::REQUEST_DEADLINE;

/// How often an idle server of the older era is asked whether it still knows the session.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// Attempts to open the stream of a server's notices, one after the other, before the server counts as gone.
const SUBSCRIPTION_ATTEMPTS: u32 = 3;

/// Waits between them. They grow as long as the streams that are opened end at once.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const SUBSCRIPTION_LASTS: Duration = Duration::from_secs(30);

/// Counts one more change of a server's tools.
pub(super) fn changed(changes: &watch::Sender<u64>) {
    changes.send_modify(|count| *count += 1);
}

/// What is watched of a session.
pub(super) struct Watch {
    pub(super) peer: Peer<RoleClient>,
    pub(super) lost: CancellationToken,
    pub(super) changes: watch::Sender<u64>,
    pub(super) is_modern: bool,
    pub(super) tells_changes: bool,
}

/// Keeps the connection until it ends, and finds out where it ends silently.
pub(super) async fn watch_over<S>(service: RunningService<RoleClient, S>, watch: Watch)
where
    S: Service<RoleClient>,
{
    let lost = watch.lost.clone();
    let observed = async {
        match (watch.is_modern, watch.tells_changes) {
            (false, _) => watch.ping().await,
            (true, true) => watch.subscribe().await,
            // Its requests stand alone: there is nothing to lose and nothing to hear.
            (true, false) => {}
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = service.waiting() => lost.cancel(),
        () = observed => {}
    }
}

impl Watch {
    async fn ping(&self) {
        loop {
            tokio::time::sleep(PING_INTERVAL).await;
            let ping = ClientRequest::PingRequest(PingRequest::default());
            match tokio::time::timeout(REQUEST_DEADLINE, self.peer.send_request(ping)).await {
                // An answer that refuses the question is one too.
                Ok(Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)) => {}
                Ok(Err(_)) | Err(_) => {
                    self.lost.cancel();
                    return;
                }
            }
        }
    }

    async fn subscribe(&self) {
        let mut failures = 0;
        let mut wait = FIRST_WAIT;
        loop {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            match tokio::time::timeout(REQUEST_DEADLINE, self.peer.listen(filter)).await {
                Ok(Ok(mut subscription)) => {
                    failures = 0;
                    let began = Instant::now();
                    while let Ok(Some(notice)) = subscription.next().await {
                        if matches!(notice, ServerNotification::ToolListChangedNotification(_)) {
                            changed(&self.changes);
                        }
                    }
                    if began.elapsed() >= SUBSCRIPTION_LASTS {
                        wait = FIRST_WAIT;
                    }
                    // What is said until the next one begins is not heard.
                    changed(&self.changes);
                }
                // The server has no such notices after all.
                Ok(Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)) => return,
                Ok(Err(_)) | Err(_) => {
                    failures += 1;
                    if failures >= SUBSCRIPTION_ATTEMPTS {
                        self.lost.cancel();
                        return;
                    }
                }
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}
