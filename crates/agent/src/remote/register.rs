//! Which process has which session: the server's side of claims.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::journal::SessionKey;

/// A claim, by the number of its process and its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ClaimId {
    pub(super) process: u64,
    pub(super) claim: u64,
}

/// The sessions that somebody has or waits for, and how many processes of each agent have ended.
#[derive(Debug, Default)]
pub(super) struct Register {
    // A std mutex: held for a few operations of maps, never across an await.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionKey, Claims>,
    /// The session of each claim that is held or waits.
    claims: HashMap<ClaimId, SessionKey>,
    /// By namespace and name of the agent. An entry is a few bytes, and there are no more than agents that ever ran.
    ends: HashMap<(String, String), watch::Sender<u64>>,
    processes: u64,
}

#[derive(Debug)]
struct Claims {
    /// The process that has the session, by at least one claim.
    owner: u64,
    held: HashSet<u64>,
    /// Writes of the owner that go on. Until they have ended the session stays with it, though it gave its claims back.
    writing: usize,
    waiting: VecDeque<(ClaimId, oneshot::Sender<()>)>,
}

impl Register {
    /// A number for a process.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.state();
        state.processes += 1;
        state.processes
    }

    /// Waits at most `within` until `id.process` has the session; whether it has.
    pub(super) async fn claim(&self, key: &SessionKey, id: ClaimId, within: Duration) -> bool {
        let Some(mut granted) = self.enter(key, id) else {
            return true;
        };
        if tokio::time::timeout(within, &mut granted)
            .await
            .is_ok_and(|granted| granted.is_ok())
        {
            return true;
        }
        let mut state = self.state();
        // Granted this moment, it stays.
        if granted.try_recv().is_ok() {
            return true;
        }
        state.remove(id);
        false
    }

    /// Begins a write of a process that has the session; nobody else gets it before the write has ended. `None` when the
    /// process does not have it.
    pub(super) fn write(self: &Arc<Self>, process: u64, key: &SessionKey) -> Option<Writing> {
        let mut state = self.state();
        let claims = state.sessions.get_mut(key)?;
        if claims.owner != process || claims.held.is_empty() {
            return None;
        }
        claims.writing += 1;
        Some(Writing {
            register: Arc::clone(self),
            key: key.clone(),
        })
    }

    /// Gives a claim back; one that there is not is nothing.
    pub(super) fn release(&self, id: ClaimId) {
        self.state().remove(id);
    }

    /// A process of the agent is gone: it has nothing any more, and the agent's others are told.
    pub(super) fn end(&self, process: u64, agent: (String, String)) {
        let mut state = self.state();
        let all = state.claims.keys().copied();
        let of_process: Vec<ClaimId> = all.filter(|id| id.process == process).collect();
        for id in of_process {
            state.remove(id);
        }
        state
            .ends
            .entry(agent)
            .or_insert_with(|| watch::Sender::new(1))
            .send_modify(|ends| *ends += 1);
    }

    /// Counts the ends of processes of the agent, from 1: who has seen none asks once at least.
    pub(super) fn ends(&self, agent: (String, String)) -> watch::Receiver<u64> {
        let mut state = self.state();
        let ends = state.ends.entry(agent);
        ends.or_insert_with(|| watch::Sender::new(1)).subscribe()
    }

    /// Grants the claim or lets it wait.
    fn enter(&self, key: &SessionKey, id: ClaimId) -> Option<oneshot::Receiver<()>> {
        let mut state = self.state();
        state.claims.insert(id, key.clone());
        let Some(claims) = state.sessions.get_mut(key) else {
            let claims = Claims {
                owner: id.process,
                held: [id.claim].into(),
                writing: 0,
                waiting: VecDeque::new(),
            };
            state.sessions.insert(key.clone(), claims);
            return None;
        };
        if claims.owner == id.process {
            claims.held.insert(id.claim);
            return None;
        }
        let (sender, granted) = oneshot::channel();
        claims.waiting.push_back((id, sender));
        Some(granted)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic inside one of the few operations leaves the maps usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that goes on until this is dropped.
pub(super) struct Writing {
    register: Arc<Register>,
    key: SessionKey,
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut state = self.register.state();
        if let Some(claims) = state.sessions.get_mut(&self.key) {
            claims.writing = claims.writing.saturating_sub(1);
        }
        state.hand_over(&self.key);
    }
}

impl State {
    /// Removes a claim that is held or waits.
    fn remove(&mut self, id: ClaimId) {
        let Some(key) = self.claims.remove(&id) else {
            return;
        };
        let Some(claims) = self.sessions.get_mut(&key) else {
            return;
        };
        claims.waiting.retain(|(waiting, _)| *waiting != id);
        if claims.owner == id.process {
            claims.held.remove(&id.claim);
        }
        self.hand_over(&key);
    }

    /// Gives a session that its owner has done with to who waits longest.
    fn hand_over(&mut self, key: &SessionKey) {
        let Some(claims) = self.sessions.get_mut(key) else {
            return;
        };
        if !claims.held.is_empty() || claims.writing > 0 {
            return;
        }
        let Some((first, _)) = claims.waiting.front() else {
            self.sessions.remove(key);
            return;
        };
        claims.owner = first.process;
        for (waiting, granted) in std::mem::take(&mut claims.waiting) {
            if waiting.process == claims.owner {
                claims.held.insert(waiting.claim);
                // Who waits cannot leave without taking its claim out under the lock.
                let _ = granted.send(());
            } else {
                claims.waiting.push_back((waiting, granted));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn key(session: &str) -> SessionKey {
        SessionKey {
            namespace: "default".to_owned(),
            agent: "helpdesk".to_owned(),
            session: session.to_owned(),
        }
    }

    fn id(process: u64, claim: u64) -> ClaimId {
        ClaimId { process, claim }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_one_processs_at_a_time_and_goes_to_who_waits_longest() {
        let register = Arc::new(Register::default());
        let session = key("s");
        assert!(register.claim(&session, id(1, 1), LONG).await);
        assert!(
            register.claim(&session, id(1, 2), LONG).await,
            "its own once more"
        );
        let claim = |process, claim| {
            let (register, session) = (register.clone(), session.clone());
            async move { register.claim(&session, id(process, claim), LONG).await }
        };
        let mut second = Box::pin(claim(2, 1));
        let mut third = Box::pin(claim(3, 1));
        let mut second_again = Box::pin(claim(2, 2));
        for waiting in [&mut second, &mut third, &mut second_again] {
            assert!(futures::poll!(waiting).is_pending());
        }
        register.release(id(1, 1));
        assert!(futures::poll!(&mut second).is_pending());
        let writing = register.write(1, &session).unwrap();
        register.release(id(1, 2));
        assert!(register.write(1, &session).is_none(), "it gave it back");
        assert!(
            futures::poll!(&mut second).is_pending(),
            "the former owner's last write goes on"
        );
        drop(writing);
        assert!(register.write(2, &session).is_some() && register.write(1, &session).is_none());
        assert!(second.await && second_again.await);
        register.release(id(2, 1));
        assert!(futures::poll!(&mut third).is_pending());
        register.end(2, ("default".to_owned(), "helpdesk".to_owned()));
        assert!(third.await);
        register.end(3, ("default".to_owned(), "helpdesk".to_owned()));
        assert!(register.state().sessions.is_empty() && register.state().claims.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waited_too_long_waits_no_more() {
        let register = Arc::new(Register::default());
        let session = key("s");
        assert!(register.claim(&session, id(1, 1), LONG).await);
        assert!(!register.claim(&session, id(2, 1), LONG).await);
        register.release(id(1, 1));
        assert!(register.state().sessions.is_empty());
        // Numbers of claims are a process's own: another's are not given back by them.
        assert!(register.claim(&session, id(1, 7), LONG).await);
        register.release(id(2, 7));
        assert!(register.write(1, &session).is_some());
    }

    #[tokio::test]
    async fn ends_are_counted_for_each_agent() {
        let register = Register::default();
        let agent = |name: &str| ("default".to_owned(), name.to_owned());
        let (first, second) = (register.ends(agent("a")), register.ends(agent("b")));
        register.end(register.begin(), agent("a"));
        assert_eq!((*first.borrow(), *second.borrow()), (2, 1));
    }
}
