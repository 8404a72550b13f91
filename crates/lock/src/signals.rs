//! Notifications within a process: each waiter wakes when the ticket ahead of it has gone.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

/// The most tickets that are kept while a waiter reads the queue. If more have gone, the waiter reads again.
const MEANWHILE: usize = 1000;

/// All waiters of a client.
#[derive(Debug, Default)]
pub struct Waiters(Mutex<Vec<Weak<Waiter>>>);

/// Wakes one waiter. A notification too many does no harm: the waiter reads the queue again.
#[derive(Debug, Default)]
pub struct Waiter {
    state: Mutex<State>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The ticket directly ahead. Unknown while the waiter reads the queue.
    ahead: Option<String>,
    /// Tickets that have gone while the waiter read the queue.
    meanwhile: Vec<String>,
    /// A ticket that stayed although its name was free. No notification comes for it.
    ignored: Option<String>,
}

impl Waiters {
    pub(crate) fn open(&self) -> Arc<Waiter> {
        let waiter = Arc::default();
        let mut waiters = lock(&self.0);
        waiters.retain(|waiter| waiter.strong_count() > 0);
        waiters.push(Arc::downgrade(&waiter));
        waiter
    }

    /// A ticket has gone.
    pub(crate) fn gone(&self, ticket: &str) {
        self.each(|waiter| waiter.gone(ticket));
    }

    /// Wakes all waiters, because signals may have been missed.
    pub(crate) fn notify_all(&self) {
        self.each(|waiter| waiter.notify.notify_one());
    }

    fn each(&self, tell: impl Fn(&Waiter)) {
        lock(&self.0).iter().filter_map(Weak::upgrade).for_each(|waiter| tell(&waiter));
    }
}

impl Waiter {
    /// The waiter is about to read the queue. Tickets that go from now on are kept.
    pub(crate) fn read_begins(&self) {
        let mut state = lock(&self.state);
        state.ahead = None;
        state.meanwhile.clear();
    }

    /// The waiter has found this ticket ahead of it.
    pub(crate) fn wait_for(&self, ticket: &str) {
        let mut state = lock(&self.state);
        if state.meanwhile.iter().any(|gone| gone == ticket) {
            self.notify.notify_one();
        }
        state.ahead = Some(ticket.to_owned());
    }

    /// Returns when the ticket has gone, or the time is over.
    pub(crate) async fn notified(&self, longest: Duration) {
        drop(timeout(longest, self.notify.notified()).await);
    }

    pub(crate) fn ignores(&self, ticket: &str) -> bool {
        lock(&self.state).ignored.as_deref() == Some(ticket)
    }

    pub(crate) fn ignore(&self, ticket: &str) {
        lock(&self.state).ignored = Some(ticket.to_owned());
    }

    fn gone(&self, ticket: &str) {
        let mut state = lock(&self.state);
        match &state.ahead {
            Some(ahead) if ahead == ticket => self.notify.notify_one(),
            Some(_) => {}
            None if state.meanwhile.len() < MEANWHILE => state.meanwhile.push(ticket.to_owned()),
            None => self.notify.notify_one(),
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

    /// Whether the waiter was notified by now.
    async fn woke(waiter: &Waiter) -> bool {
        timeout(AT_ONCE, waiter.notified(LONG)).await.is_ok()
    }

    #[tokio::test]
    async fn a_waiter_wakes_for_the_ticket_ahead_and_no_other() {
        let waiters = Waiters::default();
        let waiter = waiters.open();
        waiter.read_begins();
        waiter.wait_for("ahead");
        waiters.gone("another");
        assert!(!woke(&waiter).await);
        waiters.gone("ahead");
        assert!(woke(&waiter).await && !woke(&waiter).await);
    }

    #[tokio::test]
    async fn a_ticket_that_goes_while_the_waiter_reads_is_not_missed() {
        let waiters = Waiters::default();
        let waiter = waiters.open();
        waiter.read_begins();
        waiters.gone("another");
        waiters.gone("ahead");
        waiter.wait_for("ahead");
        assert!(woke(&waiter).await);
        waiter.read_begins();
        waiter.wait_for("ahead");
        assert!(!woke(&waiter).await, "a new read starts afresh");
    }

    #[test]
    fn waiters_that_are_gone_leave_nothing_behind() {
        let waiters = Waiters::default();
        (0..100).for_each(|_| drop(waiters.open()));
        assert!(lock(&waiters.0).len() <= 1);
    }
}
