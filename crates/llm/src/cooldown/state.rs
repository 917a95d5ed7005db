//! The rules, without waiting: a pure state machine over instants.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{Cooldown, LONGEST_COOLDOWN, duration};
use crate::error::ModelError;

/// Calls that go on trying once a call has failed. More than one, so that a request which a server
/// always chokes on is not the only witness.
pub const PROBERS: usize = 2;

/// Calls a provider takes at once while nobody has had an answer of it lately.
pub const UNPROVEN: usize = 8;

// How long an answer is taken as a sign that the provider is up.
const TRUST: Duration = Duration::from_secs(60);

// A call that has waited this long is slow rather than about to fail, and lets another one go.
const PATIENCE: Duration = Duration::from_secs(2);

// How long a failure keeps other calls back where nothing follows it. Those that go on trying are slow
// then, which is no reason to hold up anybody.
const SUSPICION: Duration = Duration::from_secs(15);

// Wait before the first probe of a cooling provider and, doubling, between further ones.
const FIRST_PROBE: Duration = Duration::from_secs(5);
const LONGEST_PROBE_GAP: Duration = Duration::from_secs(60);

/// The right to make attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Of a provider that is known to be up.
    Free,
    /// One of the first calls of a provider nobody has had an answer of lately.
    Unproven(u64),
    /// One of the calls that go on trying while others wait.
    Prober,
    /// The one attempt at a provider that cools down.
    Probe,
}

/// Whether an attempt may be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Go(Pass),
    /// Something has to change first; at `again` it does so by itself.
    Wait {
        again: Instant,
    },
    Cooling {
        remaining: Duration,
    },
}

/// Whether a cooling provider may be probed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProbeEntry {
    Go(Pass),
    Wait,
    NotYet {
        remaining: Duration,
    },
    /// It cools no longer.
    Over,
}

#[derive(Debug)]
struct Cooling {
    until: Instant,
    probing: bool,
    next_probe: Instant,
    gap: Duration,
}

#[derive(Debug, Default)]
pub(super) struct State {
    failures: u32,
    cooling: Option<Cooling>,
    // The last failure, until an answer comes.
    cause: Option<ModelError>,
    // A call failed, and until then those that go on trying are waited for.
    suspect_until: Option<Instant>,
    trusted_until: Option<Instant>,
    probers: usize,
    unanswered: Vec<(u64, Instant)>,
    calls: u64,
    record: Option<Cooldown>,
}

impl State {
    /// Takes up what an earlier process knew.
    pub(super) fn restore(&mut self, record: Cooldown, now: Instant, wall: Timestamp) {
        self.failures = record.failures;
        let remaining = record.until.duration_since(wall);
        let remaining = Duration::try_from(remaining).unwrap_or_default();
        // A clock that was set back must not make a cooldown of years.
        let remaining = remaining.min(LONGEST_COOLDOWN);
        if !remaining.is_zero() {
            self.cooling = Some(Cooling {
                until: now + remaining,
                probing: false,
                next_probe: now,
                gap: FIRST_PROBE,
            });
        }
        self.record = Some(record);
    }

    pub(super) fn record(&self) -> Option<&Cooldown> {
        self.record.as_ref()
    }

    pub(super) fn cause(&self) -> Option<&ModelError> {
        self.cause.as_ref()
    }

    /// Whether a failure is why calls wait.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspect_until.is_some()
    }

    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        let cooling = self.cooling.as_ref()?;
        Some(cooling.until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    pub(super) fn enter(&mut self, now: Instant) -> Entry {
        if let Some(remaining) = self.remaining(now) {
            return Entry::Cooling { remaining };
        }
        if self.cooling.take().is_some() {
            // It may be up again. A few calls find out.
            self.suspect_until = Some(now + SUSPICION);
        }
        if let Some(until) = self.suspect_until.filter(|until| now < *until) {
            return if self.probers < PROBERS {
                self.probers += 1;
                Entry::Go(Pass::Prober)
            } else {
                Entry::Wait { again: until }
            };
        }
        if self.trusted_until.is_some_and(|until| now < until) {
            return Entry::Go(Pass::Free);
        }
        self.unanswered.retain(|(_, since)| now < *since + PATIENCE);
        match self.unanswered.first() {
            Some((_, oldest)) if self.unanswered.len() >= UNPROVEN => Entry::Wait {
                again: *oldest + PATIENCE,
            },
            _ => {
                self.calls += 1;
                self.unanswered.push((self.calls, now));
                Entry::Go(Pass::Unproven(self.calls))
            }
        }
    }

    pub(super) fn probe(&mut self, now: Instant) -> ProbeEntry {
        if self.remaining(now).is_none() {
            return ProbeEntry::Over;
        }
        match self.cooling.as_mut() {
            Some(cooling) if cooling.probing => ProbeEntry::Wait,
            Some(cooling) if now >= cooling.next_probe => {
                cooling.probing = true;
                ProbeEntry::Go(Pass::Probe)
            }
            Some(cooling) => ProbeEntry::NotYet {
                remaining: cooling.next_probe.min(cooling.until) - now,
            },
            None => ProbeEntry::Over,
        }
    }

    /// Gives the pass back without having learnt anything.
    pub(super) fn release(&mut self, pass: Pass) {
        match pass {
            Pass::Free => {}
            Pass::Unproven(call) => self.unanswered.retain(|(other, _)| *other != call),
            Pass::Prober => self.probers = self.probers.saturating_sub(1),
            Pass::Probe => {
                if let Some(cooling) = &mut self.cooling {
                    cooling.probing = false;
                }
            }
        }
    }

    /// The provider answered: the count starts anew (OR-224). Whether others may wait for this.
    pub(super) fn succeeded(&mut self, pass: Pass, now: Instant) -> bool {
        let news = self.suspect_until.is_some() || self.cooling.is_some() || !self.unanswered.is_empty();
        self.release(pass);
        self.failures = 0;
        self.cooling = None;
        self.cause = None;
        self.suspect_until = None;
        self.trusted_until = Some(now + TRUST);
        self.unanswered.clear();
        self.record = None;
        news
    }

    /// The provider refused this one call, so it is up, but nothing succeeded.
    pub(super) fn refused(&mut self, pass: Pass) {
        self.release(pass);
        self.suspect_until = None;
    }

    /// An attempt failed and could be made again. `None`: others find out already.
    pub(super) fn failed(&mut self, pass: Pass, error: &ModelError, now: Instant) -> Option<Pass> {
        self.cause = Some(error.clone());
        self.trusted_until = None;
        if self.cooling.is_none() {
            // A provider that asks for a wait is not asked again before, by anybody.
            let asked = error.retry_after.unwrap_or_default();
            self.suspect_until = Some(now + SUSPICION.max(asked * 2));
        }
        if pass == Pass::Prober {
            return Some(pass);
        }
        self.release(pass);
        if self.cooling.is_some() {
            return None;
        }
        if self.probers >= PROBERS {
            return None;
        }
        self.probers += 1;
        Some(Pass::Prober)
    }

    /// No further attempt is made. Returns the cooldown that begins or is lengthened by it.
    pub(super) fn exhausted(
        &mut self,
        pass: Pass,
        error: &ModelError,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Cooldown> {
        self.release(pass);
        self.cause = Some(error.clone());
        self.trusted_until = None;
        self.suspect_until = None;
        let asked = error
            .retry_after
            .map(|asked| asked.min(LONGEST_COOLDOWN))
            .filter(|asked| *asked > crate::retry::LONGEST_RETRY_AFTER);
        if let Some(remaining) = self.remaining(now) {
            let cooling = self.cooling.as_mut()?;
            if pass == Pass::Probe {
                cooling.next_probe = now + cooling.gap;
                cooling.gap = (cooling.gap * 2).min(LONGEST_PROBE_GAP);
            }
            // A failure during a cooldown does not count again; only the provider itself may ask
            // for a longer one.
            let asked = asked.filter(|asked| *asked > remaining)?;
            return self.cool(asked, error, now, wall);
        }
        self.failures = self.failures.saturating_add(1);
        let wait = asked.unwrap_or_else(|| duration(self.failures));
        self.cool(wait, error, now, wall)
    }

    fn cool(
        &mut self,
        wait: Duration,
        error: &ModelError,
        now: Instant,
        wall: Timestamp,
    ) -> Option<Cooldown> {
        let (next_probe, gap) = match &self.cooling {
            Some(cooling) if now < cooling.until => (cooling.next_probe, cooling.gap),
            _ => (now + FIRST_PROBE, FIRST_PROBE * 2),
        };
        self.cooling = Some(Cooling {
            until: now + wait,
            probing: false,
            next_probe,
            gap,
        });
        let record = Cooldown {
            failures: self.failures,
            until: wall.checked_add(wait).unwrap_or(Timestamp::MAX),
            reason: error.reason().to_owned(),
            status: error.status,
            message: error.message.clone(),
        };
        self.record = Some(record.clone());
        Some(record)
    }
}

#[cfg(test)]
mod tests;
