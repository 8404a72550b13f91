//! The trust of a client in one of its tickets: until when the client may act on the ticket.

use std::{
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{clock, rules};

/// The trust in a ticket. Trust ends by itself unless renewals are acknowledged.
#[derive(Debug)]
pub(crate) struct Trust {
    lease: Duration,
    state: Mutex<State>,
    lost: Notify,
}

#[derive(Debug)]
struct State {
    until: Duration,
    is_held: bool,
    is_lost: bool,
}

impl Trust {
    /// The trust in a ticket whose insert was sent at that time.
    pub(crate) fn since(sent_at: Duration, lease: Duration) -> Self {
        let until = rules::trusted_until(sent_at, lease);
        let state = Mutex::new(State { until, is_held: false, is_lost: false });
        Self { lease, state, lost: Notify::new() }
    }

    /// A renewal that was sent at that time has been acknowledged.
    pub(crate) fn renewed(&self, sent_at: Duration) {
        let mut state = self.state();
        if rules::may_extend(state.is_held, clock::now(), state.until) {
            state.until = state.until.max(rules::trusted_until(sent_at, self.lease));
        }
    }

    pub(crate) fn needs_renewal(&self) -> bool {
        rules::needs_renewal(clock::now(), self.state().until, self.lease)
    }

    /// The ticket is the first of its queue. `false` if the trust in it has ended.
    pub(crate) fn hold(&self) -> bool {
        let mut state = self.state();
        state.is_held = !state.is_lost && clock::now() < state.until;
        state.is_held
    }

    /// Whether the holder may act.
    pub(crate) fn is_held(&self) -> bool {
        let state = self.state();
        state.is_held && !state.is_lost && clock::now() < state.until
    }

    /// The ticket has gone, or has been left.
    pub(crate) fn lose(&self) {
        self.state().is_lost = true;
        self.lost.notify_waiters();
    }

    /// Returns when the holder may not act any more.
    pub(crate) async fn lost(&self) {
        loop {
            let mut lost = pin!(self.lost.notified());
            lost.as_mut().enable();
            let left = {
                let state = self.state();
                if state.is_lost { Duration::ZERO } else { state.until.saturating_sub(clock::now()) }
            };
            if left.is_zero() {
                return;
            }
            drop(tokio::time::timeout(left, lost).await);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn trust_ends_by_itself_and_does_not_come_back() {
        let trust = Trust::since(clock::now(), LEASE);
        assert!(!trust.is_held() && trust.hold() && trust.is_held());
        trust.lost().await;
        assert!(!trust.is_held());
        trust.renewed(clock::now());
        assert!(!trust.is_held(), "the holder was told that it is lost");
    }

    #[tokio::test]
    async fn a_renewal_counts_from_when_it_was_sent() {
        let sent_at = clock::now();
        let trust = Trust::since(sent_at, LEASE);
        assert!(trust.hold());
        trust.renewed(sent_at + LEASE * 100);
        assert!(tokio::time::timeout(LEASE * 2, trust.lost()).await.is_err() && trust.is_held());
        trust.lose();
        trust.lost().await;
        assert!(!trust.is_held());
    }

    #[test]
    fn a_waiter_whose_trust_has_ended_may_be_renewed_and_cannot_hold_before() {
        let trust = Trust::since(clock::now().saturating_sub(LEASE), LEASE);
        assert!(trust.needs_renewal() && !trust.hold());
        trust.renewed(clock::now());
        assert!(!trust.needs_renewal() && trust.hold());
    }
}
