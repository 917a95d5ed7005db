//! Who the front door lets in (contract 4).

use http::StatusCode;
use tokio_tungstenite::tungstenite::Error;

use crate::support::{
    conversation::connect,
    server::Running,
    world::{World, example},
};

/// The status with which a WebSocket is refused.
async fn refusal(running: &Running, headers: &[(&'static str, &str)]) -> StatusCode {
    match connect(&running.server, "helpdesk", "events=1", headers).await {
        Ok(_) => panic!("let in with {headers:?}"),
        Err(Error::Http(response)) => response.status(),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_open_the_websocket() {
    let running = Running::shared();
    let token = format!("Bearer {}", running.server.token);
    for origin in [
        "https://evil.example",
        "http://127.0.0.1:1",
        "null",
        "http://localhost.evil.example",
    ] {
        assert_eq!(
            refusal(&running, &[("origin", origin)]).await,
            StatusCode::FORBIDDEN,
            "{origin}"
        );
        // Not even with the token: a page that has learned it is still a page of another site.
        let headers = [("origin", origin), ("authorization", &*token)];
        assert_eq!(
            refusal(&running, &headers).await,
            StatusCode::FORBIDDEN,
            "{origin}"
        );
    }
    let own = running.server.http.clone();
    connect(&running.server, "helpdesk", "", &[("origin", &own)])
        .await
        .expect("our own page comes in");
}

#[tokio::test]
async fn a_name_that_was_made_to_lead_here_is_refused() {
    let running = Running::shared();
    let port = running.server.front_door().rsplit(':').next().unwrap().to_owned();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
    ] {
        assert_eq!(
            refusal(&running, &[("host", &host)]).await,
            StatusCode::FORBIDDEN,
            "{host}"
        );
        let (status, body) = running
            .server
            .ask("/agents/default/helpdesk/ws", &[("host", &host)])
            .await;
        assert_eq!(status, 403, "{host}: {body}");
        assert!(body.contains("host_not_allowed"), "{body}");
    }
    connect(
        &running.server,
        "helpdesk",
        "",
        &[("host", &format!("localhost:{port}"))],
    )
    .await
    .expect("our own name");
}

#[tokio::test]
async fn a_wrong_token_is_worse_than_none() {
    let running = Running::shared();
    assert_eq!(
        refusal(&running, &[("authorization", "Bearer wrong")]).await,
        StatusCode::UNAUTHORIZED
    );
    let token = format!("Bearer {}", running.server.token);
    connect(&running.server, "helpdesk", "", &[("authorization", &token)])
        .await
        .expect("the token opens");
    assert_eq!(running.server.ask("/healthz", &[]).await.0, 200);
}

#[tokio::test]
async fn om_505_a_page_whose_origin_is_allowed_comes_in_and_no_other() {
    let world = World::new();
    let origins = [(
        "OMNIA_ALLOWED_ORIGINS",
        "https://desk.example:443, http://tools.example:3000",
    )];
    let server = world.up_with(&[&example("helpdesk")], &origins);
    let running = Running { server, world };
    for origin in ["https://desk.example", "http://tools.example:3000"] {
        connect(&running.server, "helpdesk", "", &[("origin", origin)])
            .await
            .unwrap_or_else(|error| panic!("{origin}: {error}"));
    }
    for origin in [
        "http://desk.example",
        "https://tools.example:3000",
        "https://a.desk.example",
    ] {
        assert_eq!(
            refusal(&running, &[("origin", origin)]).await,
            StatusCode::FORBIDDEN,
            "{origin}"
        );
    }
    // The name of the host is asked about all the same.
    let headers = [("origin", "https://desk.example"), ("host", "desk.example")];
    assert_eq!(refusal(&running, &headers).await, StatusCode::FORBIDDEN);
}
