//! Signals within a process: each waiter has an ear, which rings when the ticket ahead of it has gone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// Tickets that are remembered while a waiter looks; beyond them it looks once more in any case.
const MEANWHILE: usize = 1000;

/// The ears of all waiters of a client.
#[derive(Debug, Default)]
pub struct Ears(Mutex<Vec<Weak<Ear>>>);

/// The ear of one waiter. Spurious rings do no harm: the waiter looks again.
#[derive(Debug, Default)]
pub struct Ear {
    state: Mutex<State>,
    ring: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The ticket directly ahead; unknown while the waiter looks.
    ahead: Option<String>,
    /// Tickets that have gone while the waiter looked.
    meanwhile: Vec<String>,
    /// A ticket that stayed although its signal came.
    deaf_to: Option<String>,
}

impl Ears {
    pub(crate) fn open(&self) -> Arc<Ear> {
        let ear = Arc::default();
        let mut ears = lock(&self.0);
        ears.retain(|ear| ear.strong_count() > 0);
        ears.push(Arc::downgrade(&ear));
        ear
    }

    /// A ticket has gone.
    pub(crate) fn gone(&self, ticket: &str) {
        self.each(|ear| ear.told(ticket));
    }

    /// Wakes all waiters, because signals may have been missed.
    pub(crate) fn ring_all(&self) {
        self.each(|ear| ear.ring.notify_one());
    }

    fn each(&self, tell: impl Fn(&Ear)) {
        lock(&self.0).iter().filter_map(Weak::upgrade).for_each(|ear| tell(&ear));
    }
}

impl Ear {
    /// The waiter is about to look. Tickets that go from now on are remembered.
    pub(crate) fn look(&self) {
        let mut state = lock(&self.state);
        state.ahead = None;
        state.meanwhile.clear();
    }

    /// The waiter has seen this ticket ahead of it.
    pub(crate) fn listen_for(&self, ticket: &str) {
        let mut state = lock(&self.state);
        if state.meanwhile.iter().any(|gone| gone == ticket) {
            self.ring.notify_one();
        }
        state.ahead = Some(ticket.to_owned());
    }

    /// Returns when the ticket has gone, or the time is over.
    pub(crate) async fn rung(&self, longest: Duration) {
        drop(timeout(longest, self.ring.notified()).await);
    }

    pub(crate) fn is_deaf_to(&self, ticket: &str) -> bool {
        lock(&self.state).deaf_to.as_deref() == Some(ticket)
    }

    pub(crate) fn be_deaf_to(&self, ticket: &str) {
        lock(&self.state).deaf_to = Some(ticket.to_owned());
    }

    fn told(&self, ticket: &str) {
        let mut state = lock(&self.state);
        match &state.ahead {
            Some(ahead) if ahead == ticket => self.ring.notify_one(),
            Some(_) => {}
            None if state.meanwhile.len() < MEANWHILE => state.meanwhile.push(ticket.to_owned()),
            None => self.ring.notify_one(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const AT_ONCE: Duration = Duration::ZERO;

    /// Whether the ear has rung by now.
    async fn rang(ear: &Ear) -> bool {
        timeout(AT_ONCE, ear.rung(LONG)).await.is_ok()
    }

    #[tokio::test]
    async fn an_ear_rings_for_the_ticket_ahead_and_no_other() {
        let ears = Ears::default();
        let ear = ears.open();
        ear.look();
        ear.listen_for("ahead");
        ears.gone("another");
        assert!(!rang(&ear).await);
        ears.gone("ahead");
        assert!(rang(&ear).await && !rang(&ear).await);
    }

    #[tokio::test]
    async fn what_goes_while_the_waiter_looks_is_not_missed() {
        let ears = Ears::default();
        let ear = ears.open();
        ear.look();
        ears.gone("another");
        ears.gone("ahead");
        ear.listen_for("ahead");
        assert!(rang(&ear).await);
        ear.look();
        ear.listen_for("ahead");
        assert!(!rang(&ear).await, "a new look begins anew");
    }

    #[test]
    fn ears_that_are_gone_leave_nothing_behind() {
        let ears = Ears::default();
        (0..100).for_each(|_| drop(ears.open()));
        assert!(lock(&ears.0).len() <= 1);
    }
}
