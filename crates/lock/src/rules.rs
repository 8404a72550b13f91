//! The decisions, as functions of their arguments: who holds a resource, how long to trust a ticket, how long to wait.

use std::time::Duration;

/// The longest sleep of a waiter that no signal can reach.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The same on SQLite, where a query takes microseconds and no network.
pub(crate) const SQLITE_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The longest pause between two tries of a statement that may succeed later.
const LONGEST_BACKOFF: Duration = Duration::from_millis(250);

/// A ticket in the queue of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) token: i64,
    pub(crate) ticket: String,
    pub(crate) client: String,
    /// How long its lease lasts by the database's clock; zero if it has ended.
    pub(crate) left: Duration,
}

/// Where a ticket stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has expired, and another client has deleted it.
    Gone,
    /// No ticket is ahead, and none will be: later tickets have higher tokens.
    First,
    /// This ticket is directly ahead.
    Behind(Ahead),
}

/// The standing of the ticket with this token, by the two highest tickets up to that token, the higher one first.
pub(crate) fn standing(token: i64, mut highest: Vec<Ahead>) -> Standing {
    match (highest.first().is_some_and(|own| own.token == token), highest.len()) {
        (false, _) => Standing::Gone,
        (true, 1) => Standing::First,
        (true, _) => Standing::Behind(highest.swap_remove(1)),
    }
}

/// The standing of a transaction that has drawn a token. A transaction has no ticket.
pub(crate) fn standing_without_ticket(mut highest: Vec<Ahead>) -> Standing {
    match highest.is_empty() {
        true => Standing::First,
        false => Standing::Behind(highest.swap_remove(0)),
    }
}

/// Until when, on the clock that gave `sent_at`, a client may act on a ticket whose renewal was acknowledged.
///
/// Another client may delete the ticket a whole lease after the database wrote it, and the database wrote it after
/// the renewal was sent. One tenth of the lease covers clocks of different rates, and the work between a check and
/// its effect.
pub(crate) fn trusted_until(sent_at: Duration, lease: Duration) -> Duration {
    sent_at.saturating_add(lease - lease / 10)
}

/// The pause between two renewals: two renewals may fail before trust ends.
pub(crate) fn renewal_interval(lease: Duration) -> Duration {
    lease / 3
}

/// Whether a ticket that has become the first must be renewed before its holder begins: a waiter may have been
/// unable to renew it for long.
pub(crate) fn needs_renewal(now: Duration, trusted_until: Duration, lease: Duration) -> bool {
    trusted_until.saturating_sub(now) < lease / 2
}

/// Whether an acknowledged renewal may extend the trust in a ticket. A holder whose trust has ended may have
/// learned of it, so it does not get the lock back.
pub(crate) fn may_extend(is_held: bool, acknowledged_at: Duration, trusted_until: Duration) -> bool {
    !is_held || acknowledged_at < trusted_until
}

/// The pause before the next try, after so many failures. `chance` is in 0..1.
pub(crate) fn backoff(failed: u32, chance: f64) -> Duration {
    let full = Duration::from_millis(1 << failed.clamp(1, 16)).min(LONGEST_BACKOFF);
    full.mul_f64(0.5 + chance.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(token: i64) -> Ahead {
        Ahead { token, ticket: format!("t{token}"), client: "c".to_owned(), left: s(1) }
    }

    #[test]
    fn the_first_of_the_queue_holds() {
        assert_eq!(standing(7, vec![at(7)]), Standing::First);
        assert_eq!(standing(7, vec![at(7), at(5)]), Standing::Behind(at(5)));
        assert_eq!(standing_without_ticket(vec![]), Standing::First);
        assert_eq!(standing_without_ticket(vec![at(6), at(5)]), Standing::Behind(at(6)));
    }

    #[test]
    fn a_ticket_that_is_not_in_the_queue_holds_nothing() {
        assert_eq!(standing(7, vec![]), Standing::Gone);
        assert_eq!(standing(7, vec![at(5)]), Standing::Gone);
        assert_eq!(standing(7, vec![at(6), at(5)]), Standing::Gone);
    }

    #[test]
    fn trust_ends_before_others_may_delete_the_ticket() {
        assert_eq!(trusted_until(s(100), s(30)), s(127));
        // Sent at 100, written at 100 or later, deleted at 130 or later.
        assert!((1..86_400).all(|lease| trusted_until(s(100), s(lease)) < s(100 + lease)));
    }

    #[test]
    fn two_renewals_may_fail() {
        let lease = s(30);
        assert!(renewal_interval(lease) * 2 < trusted_until(Duration::ZERO, lease));
    }

    #[test]
    fn trust_that_has_ended_does_not_come_back_to_a_holder() {
        assert!(may_extend(true, s(126), s(127)));
        assert!(!may_extend(true, s(127), s(127)));
        assert!(may_extend(false, s(500), s(127)), "a waiter has been told nothing");
    }

    #[test]
    fn a_ticket_that_was_not_renewed_for_long_is_renewed_before_its_holder_begins() {
        assert!(!needs_renewal(s(100), s(127), s(30)));
        assert!(needs_renewal(s(113), s(127), s(30)) && needs_renewal(s(200), s(127), s(30)));
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        assert!(backoff(1, 0.0) >= Duration::from_millis(1));
        assert!((1..40).all(|failed| backoff(failed, 1.0) <= LONGEST_BACKOFF));
        assert!((1..40).all(|failed| backoff(failed, 0.5) <= backoff(failed + 1, 0.5)));
    }
}
