#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};
use mainstay_telemetry::{
    clock::{Clock, ManualClock},
    random::SeededRandom,
};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use secrecy::ExposeSecret;

use super::*;

fn start() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn ring(now: Timestamp) -> KeyRing {
    KeyRing::default().tended(now).unwrap().unwrap()
}

fn issuer(clock: &Arc<ManualClock>, keys: KeyRing) -> Issuer {
    Issuer::new("http://127.0.0.1:7480", keys, clock.clone(), SeededRandom::new(1))
}

fn request() -> DelegationRequest {
    DelegationRequest {
        end_user: "ada".to_owned(),
        agent: "helpdesk".to_owned(),
        namespace: "shop".to_owned(),
        session: "s1".to_owned(),
        registry: "shop/orders".to_owned(),
        handler: "get-order".to_owned(),
    }
}

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// The claims, verified as a backend would: the key is found by its name in the published set.
fn verified(token: &SecretString, set: &Value) -> Option<Value> {
    let token = token.expose_secret();
    let (message, signature) = token.rsplit_once('.').unwrap();
    let (header, payload) = message.split_once('.').unwrap();
    let header = decoded(header);
    assert_eq!(header["alg"], "ES256");
    let keys = set["keys"].as_array().unwrap();
    let key = keys.iter().find(|key| key["kid"] == header["kid"])?;
    let mut point = vec![4];
    for coordinate in ["x", "y"] {
        point.extend(URL_SAFE_NO_PAD.decode(key[coordinate].as_str().unwrap()).unwrap());
    }
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
        .verify(message.as_bytes(), &signature)
        .ok()?;
    Some(decoded(payload))
}

fn ids(set: &Value) -> BTreeSet<String> {
    let keys = set["keys"].as_array().unwrap().iter();
    keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_token_names_user_agent_and_handler_and_verifies_against_the_set_om_411_om_412() {
    let clock = ManualClock::at(start());
    let issuer = issuer(&clock, ring(start()));
    let token = issuer.sign(&request()).await.unwrap();
    let claims = verified(&token, &issuer.web_keys()).unwrap();
    let now = start().as_second();
    for (name, value) in [
        ("iss", json!("http://127.0.0.1:7480")),
        ("sub", json!("ada")),
        ("aud", json!("shop/orders/get-order")),
        ("omnia.agent", json!("helpdesk")),
        ("omnia.namespace", json!("shop")),
        ("omnia.session", json!("s1")),
        ("iat", json!(now)),
        ("nbf", json!(now)),
        ("exp", json!(now + 300)),
    ] {
        assert_eq!(claims[name], value, "{name}");
    }
    assert_eq!(claims.get("omnia.workspace"), None);
    let again = issuer.sign(&request()).await.unwrap();
    assert_ne!(
        claims["jti"],
        verified(&again, &issuer.web_keys()).unwrap()["jti"]
    );
    // The set holds nothing private.
    assert!(issuer.web_keys()["keys"][0].get("d").is_none());
    assert!(!format!("{issuer:?}").contains("pkcs8"));
}

#[tokio::test]
async fn without_an_end_user_the_agent_is_the_subject_om_411() {
    let clock = ManualClock::at(start());
    let issuer = issuer(&clock, ring(start()));
    let nobody = DelegationRequest {
        end_user: String::new(),
        ..request()
    };
    let token = issuer.sign(&nobody).await.unwrap();
    let claims = verified(&token, &issuer.web_keys()).unwrap();
    assert_eq!(claims["sub"], "agent:shop/helpdesk");
}

#[tokio::test]
async fn a_token_of_other_keys_does_not_verify() {
    let clock = ManualClock::at(start());
    let (ours, theirs) = (issuer(&clock, ring(start())), issuer(&clock, ring(start())));
    let token = theirs.sign(&request()).await.unwrap();
    assert_eq!(verified(&token, &ours.web_keys()), None);
}

#[tokio::test]
async fn keys_change_with_notice_and_overlap_om_412() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let clock = ManualClock::at(start());
    let issuer = issuer(&clock, ring(start()));
    let first = ids(&issuer.web_keys());
    let mut sets_seen = vec![issuer.web_keys()];
    // A backend remembers the set for up to an hour: a token always verifies against the one of an hour ago.
    for _ in 0..40 * 24 {
        clock.advance(HOUR);
        if let Some(keys) = issuer.keys().tended(Clock::now(&*clock)).unwrap() {
            issuer.set_keys(keys);
        }
        let token = issuer.sign(&request()).await.unwrap();
        assert!(verified(&token, &issuer.web_keys()).is_some());
        let remembered = sets_seen.last().unwrap();
        assert!(verified(&token, remembered).is_some());
        sets_seen.push(issuer.web_keys());
        assert!(ids(&issuer.web_keys()).len() <= 2);
    }
    let last = ids(&issuer.web_keys());
    assert_eq!(last.len(), 1);
    assert!(first.is_disjoint(&last), "a month later another key signs");
    // Both were published for a day.
    let both = sets_seen.iter().filter(|set| ids(set).len() == 2).count();
    assert!((24..=26).contains(&both), "{both}");
}

#[test]
fn keys_are_kept_and_read_again() {
    let keys = ring(start());
    let text = keys.render();
    let read = KeyRing::parse(text.expose_secret()).unwrap();
    assert_eq!(read.web_keys(), keys.web_keys());
    assert!(read.tended(start()).unwrap().is_none());
    for broken in [
        "",
        "[]x",
        "{}",
        r#"[{"madeAt":"2026-11-30T12:00:00Z","pkcs8":"AAAA"}]"#,
    ] {
        assert_eq!(KeyRing::parse(broken).unwrap_err(), KeyRingError::Malformed);
    }
    // Set back by a year, the clock makes a new key, and one only.
    let earlier: Timestamp = "2025-11-30T12:00:00Z".parse().unwrap();
    let tended = keys.tended(earlier).unwrap().unwrap();
    assert_eq!(ids(&tended.web_keys()).len(), 2);
    for minutes in [0, 1, 90, 60 * 24] {
        let later = earlier + SignedDuration::from_mins(minutes);
        assert!(tended.tended(later).unwrap().is_none(), "{minutes}");
    }
}
