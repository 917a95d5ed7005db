#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn wall() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn failure() -> ModelError {
    ModelError::with_status("p", 503, "busy")
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn pass(state: &mut State, now: Instant) -> Pass {
    match state.enter(now) {
        Entry::Go(pass) => pass,
        other => panic!("{other:?}"),
    }
}

/// A provider that cools down for its `failures`-th time, at `now`.
fn cool(state: &mut State, now: Instant) -> Cooldown {
    let pass = pass(state, now);
    state.exhausted(pass, &failure(), now, wall()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_exhausted_call_lengthens_the_next_cooldown_and_success_resets_it_or_222_or_224() {
    let mut state = State::default();
    let mut now = Instant::now();
    for minutes in [1, 5, 25, 60, 60] {
        let record = cool(&mut state, now);
        assert_eq!(record.until.duration_since(wall()).as_secs(), minutes * 60);
        assert_eq!(
            state.enter(now),
            Entry::Cooling {
                remaining: seconds(minutes as u64 * 60)
            }
        );
        now += seconds(minutes as u64 * 60);
    }
    let pass = pass(&mut state, now);
    state.succeeded(pass, now);
    assert_eq!(state.record(), None);
    assert_eq!(cool(&mut state, now).failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_long_retry_after_is_the_cooldown_and_is_capped_d12() {
    for (asked, expected) in [(31, 31), (120, 120), (86_400, 3_600), (30, 60)] {
        let mut state = State::default();
        let now = Instant::now();
        let pass = pass(&mut state, now);
        let mut error = ModelError::with_status("p", 429, "slow down");
        error.retry_after = Some(seconds(asked));
        let record = state.exhausted(pass, &error, now, wall()).unwrap();
        assert_eq!(record.until.duration_since(wall()).as_secs(), expected, "{asked}");
        assert_eq!(record.status, Some(429));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_counts_once_however_many_calls_it_ends_or_225() {
    let mut state = State::default();
    let now = Instant::now();
    let passes: Vec<Pass> = (0..5).map(|_| pass(&mut state, now)).collect();
    let counted: Vec<bool> = passes
        .into_iter()
        .map(|pass| state.exhausted(pass, &failure(), now, wall()).is_some())
        .collect();
    assert_eq!(counted, [true, false, false, false, false]);
    assert_eq!(state.record().unwrap().failures, 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_at_an_unproven_provider_is_let_in_little_by_little() {
    let mut state = State::default();
    let mut now = Instant::now();
    let first: Vec<Pass> = (0..UNPROVEN).map(|_| pass(&mut state, now)).collect();
    assert_eq!(
        state.enter(now),
        Entry::Wait {
            again: now + PATIENCE
        }
    );
    // Slow is not failing.
    now += PATIENCE;
    for _ in 0..UNPROVEN {
        pass(&mut state, now);
    }
    assert!(matches!(state.enter(now), Entry::Wait { .. }));
    // One answer opens it for everybody, for a while.
    assert!(state.succeeded(first[0], now));
    assert_eq!(pass(&mut state, now), Pass::Free);
    now += TRUST;
    assert!(matches!(pass(&mut state, now), Pass::Unproven(_)));
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_few_calls_go_on_and_any_answer_ends_that() {
    let mut state = State::default();
    let now = Instant::now();
    let begun = pass(&mut state, now);
    state.succeeded(begun, now);
    let calls: Vec<Pass> = (0..6).map(|_| pass(&mut state, now)).collect();
    let kept: Vec<Option<Pass>> = calls[..5]
        .iter()
        .map(|pass| state.failed(*pass, &failure(), now))
        .collect();
    assert_eq!(kept.iter().flatten().count(), PROBERS);
    assert_eq!(
        state.enter(now),
        Entry::Wait {
            again: now + SUSPICION
        }
    );
    // A prober that goes away makes room for another.
    state.release(Pass::Prober);
    assert_eq!(pass(&mut state, now), Pass::Prober);
    // A call that was under way all the time is answered.
    assert!(state.succeeded(calls[5], now));
    assert_eq!(pass(&mut state, now), Pass::Free);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_shows_that_the_provider_is_up() {
    let mut state = State::default();
    let now = Instant::now();
    let first = pass(&mut state, now);
    let prober = state.failed(first, &failure(), now).unwrap();
    state.refused(prober);
    assert!(matches!(pass(&mut state, now), Pass::Unproven(_)));
}

#[tokio::test(start_paused = true)]
async fn probes_of_a_cooling_provider_are_single_and_spaced_or_227() {
    let mut state = State::default();
    let start = Instant::now();
    // The fourth time: an hour.
    let mut now = start;
    for _ in 0..3 {
        cool(&mut state, now);
        now += seconds(3_600);
    }
    cool(&mut state, now);
    let cooled_at = now;
    let mut probed = Vec::new();
    while state.remaining(now).is_some() && probed.len() < 7 {
        match state.probe(now) {
            ProbeEntry::Go(pass) => {
                probed.push((now - cooled_at).as_secs());
                assert_eq!(state.probe(now), ProbeEntry::Wait);
                assert_eq!(state.exhausted(pass, &failure(), now, wall()), None);
            }
            ProbeEntry::NotYet { remaining } => now += remaining,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(probed, [5, 15, 35, 75, 135, 195, 255]);
    assert_eq!(state.record().unwrap().failures, 4);
    now = cooled_at + seconds(3_600);
    assert_eq!(state.probe(now), ProbeEntry::Over);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_is_answered_ends_the_cooldown() {
    let mut state = State::default();
    let now = Instant::now();
    cool(&mut state, now);
    let ProbeEntry::Go(pass) = state.probe(now + FIRST_PROBE) else {
        panic!("a probe is due");
    };
    state.succeeded(pass, now + FIRST_PROBE);
    assert_eq!(state.enter(now + FIRST_PROBE), Entry::Go(Pass::Free));
}

#[tokio::test(start_paused = true)]
async fn a_stored_cooldown_goes_on_after_a_restart() {
    let now = Instant::now();
    let record = Cooldown {
        failures: 2,
        until: wall() + seconds(90),
        reason: "ModelServerError".to_owned(),
        status: Some(503),
        message: "busy".to_owned(),
    };
    let mut state = State::default();
    state.restore(record.clone(), now, wall());
    assert_eq!(state.remaining(now), Some(seconds(90)));

    // It is over; the count goes on.
    let mut state = State::default();
    state.restore(record.clone(), now, wall() + seconds(100));
    assert_eq!(state.remaining(now), None);
    assert_eq!(cool(&mut state, now).failures, 3);

    // A clock that was set back by a year.
    let mut state = State::default();
    state.restore(record, now, wall() - seconds(365 * 86_400));
    assert_eq!(state.remaining(now), Some(LONGEST_COOLDOWN));
}

#[tokio::test(start_paused = true)]
async fn one_failure_does_not_hold_up_a_slow_provider_for_long() {
    let mut state = State::default();
    let now = Instant::now();
    let calls: Vec<Pass> = (0..3).map(|_| pass(&mut state, now)).collect();
    for call in calls {
        state.failed(call, &failure(), now);
    }
    assert!(matches!(state.enter(now), Entry::Wait { .. }));
    // Nothing failed since; the two that go on trying are slow.
    let later = now + SUSPICION;
    assert!(matches!(pass(&mut state, later), Pass::Unproven(_)));

    // A provider that asked for a wait is left alone for that long.
    let call = pass(&mut state, later);
    let mut asked = ModelError::with_status("p", 429, "slow down");
    asked.retry_after = Some(seconds(30));
    state.failed(call, &asked, later);
    assert!(matches!(state.enter(later + seconds(30)), Entry::Wait { .. }));
}
