#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use axum::body::Body;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use mainstay_store::payload::{Durability, NewEvent, PayloadOptions};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn event(kind: &str, data: Value, second: i64) -> NewEvent {
    NewEvent {
        kind: kind.to_owned(),
        turn: Some("t".to_owned()),
        time: at(second),
        data,
        dedupe: None,
        tool_call_id: None,
        tool: None,
    }
}

async fn store() -> PayloadStore {
    let store = PayloadStore::open(PayloadOptions::in_memory()).unwrap();
    for (session, agent, second) in [
        ("aaaa-1", "desk", 10),
        ("aaab-2", "desk", 30),
        ("bbbb-3", "shop", 20),
    ] {
        let key = SessionKey::new("default", agent, session);
        store.create_session(&key, at(second)).await.unwrap();
    }
    let key = SessionKey::new("default", "desk", "aaaa-1");
    let events = vec![
        event(
            "turn.started",
            json!({"pack": {"id": "p", "version": "1", "digest": "d"}, "prompt": "x", "provider": "a", "model": "m", "ceiling_ms": 1}),
            11,
        ),
        event(
            "policy.decided",
            json!({"call_id": "c", "tool": "t", "allow": false, "mode": "enforce"}),
            12,
        ),
        event(
            "usage",
            json!({"attempt": 1, "provider": "a", "model": "m", "input_tokens": 5, "output_tokens": 7, "cached_tokens": 0, "cost_usd": 0.5}),
            13,
        ),
        event("weather", json!({"rain": true}), 14),
    ];
    store
        .append(&key, events, Vec::new(), Durability::Relaxed)
        .await
        .unwrap();
    store
}

async fn ask(path: &str) -> (StatusCode, Value) {
    let router = router(Sessions::new(store().await));
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let answer = router.oneshot(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

fn ids(body: &Value) -> Vec<&str> {
    let sessions = body["sessions"].as_array().unwrap();
    sessions
        .iter()
        .map(|session| session["session"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn sessions_are_listed_the_last_used_first() {
    assert_eq!(ids(&ask("/api/sessions").await.1), ["aaab-2", "bbbb-3", "aaaa-1"]);
    assert_eq!(ids(&ask("/api/sessions?agent=desk&limit=1").await.1), ["aaab-2"]);
    assert_eq!(ids(&ask("/api/sessions?namespace=other").await.1), [""; 0]);
    let (status, body) = ask("/api/sessions?limit=many").await;
    assert_eq!(
        (status, &body["error"]),
        (StatusCode::BAD_REQUEST, &json!("bad_query"))
    );
}

#[tokio::test]
async fn a_session_is_found_by_its_id_the_beginning_of_one_and_as_the_last() {
    for (wanted, found) in [
        ("aaaa-1", "aaaa-1"),
        ("b", "bbbb-3"),
        ("LAST", "aaab-2"),
        ("LAST?agent=shop", "bbbb-3"),
    ] {
        let (status, body) = ask(&format!("/api/sessions/default/{wanted}")).await;
        assert_eq!(
            (status, &body["session"]),
            (StatusCode::OK, &json!(found)),
            "{wanted}"
        );
    }
    for (wanted, status, code) in [
        ("aaa", StatusCode::BAD_REQUEST, "session_ambiguous"),
        ("cccc", StatusCode::NOT_FOUND, "session_not_found"),
        ("bbbb-3?agent=desk", StatusCode::NOT_FOUND, "session_not_found"),
        ("%25", StatusCode::NOT_FOUND, "session_not_found"),
    ] {
        let (got, body) = ask(&format!("/api/sessions/default/{wanted}")).await;
        assert_eq!((got, &body["error"]), (status, &json!(code)), "{wanted}");
    }
    assert_eq!(
        ask("/api/sessions/default/aaaa-1").await.1,
        json!({
            "session": "aaaa-1", "namespace": "default", "agent": "desk", "started": "1970-01-01T00:00:10Z",
            "last_activity": "1970-01-01T00:00:14Z", "messages": 0, "events": 4
        })
    );
}

#[tokio::test]
async fn events_come_in_pages_and_unknown_types_with_them() {
    let (_, first) = ask("/api/sessions/default/aaaa-1/events?limit=3").await;
    assert_eq!(
        (first["events"].as_array().unwrap().len(), &first["more"]),
        (3, &json!(true))
    );
    let (_, rest) = ask("/api/sessions/default/aaaa-1/events?after=3").await;
    assert_eq!(rest["more"], false);
    assert_eq!(
        rest["events"],
        json!([{"seq": 4, "session": "aaaa-1", "turn": "t", "time": "1970-01-01T00:00:14Z", "type": "weather", "data": {"rain": true}}])
    );
}

#[tokio::test]
async fn an_export_has_everything_and_the_sums() {
    let sessions = Sessions::new(store().await);
    let session = sessions.find("default", None, "aaaa-1").await.unwrap();
    let events = sessions.events(&session, 0, PAGE).await.unwrap().events;
    let export = SessionExport::new(session, events);
    assert_eq!(export.format, "mainstay.dev/session/v1");
    assert_eq!(export.events.len(), 4);
    assert_eq!(
        export.totals,
        SessionTotals {
            turns: 1,
            tool_calls: 0,
            denied: 1,
            input_tokens: 5,
            output_tokens: 7,
            cost_usd: Some(0.5),
        }
    );
}

#[tokio::test]
async fn a_page_ends_where_it_is_full() {
    let store = store().await;
    let key = SessionKey::new("default", "shop", "bbbb-3");
    let large = "x".repeat(PAGE_BYTES / 2 + 1);
    let events = (0..3)
        .map(|_| event("message", json!({"content": large}), 40))
        .collect();
    store
        .append(&key, events, Vec::new(), Durability::Relaxed)
        .await
        .unwrap();
    let sessions = Sessions::new(store);
    let session = sessions.find("default", None, "bbbb-3").await.unwrap();
    let page = sessions.events(&session, 0, PAGE).await.unwrap();
    assert_eq!((page.events.len(), page.more), (2, true));
    let rest = sessions.events(&session, 2, PAGE).await.unwrap();
    assert_eq!((rest.events.len(), rest.more), (1, false));
}
