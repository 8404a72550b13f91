//! Claimed mode: each record is claimed by itself, for the length of a lease.

use keylane_checker::{CallKind, Called, End, Expect, Invariant, Status, What};
use uuid::Uuid;

use crate::script::Script;

/// The length of a lease.
const LEASE: u64 = 20;

impl Script {
    /// A record that is claimed and called, but has no end.
    fn claimed_and_called(self) -> Self {
        self.scheduled(1).stored(1).claimed("a", 1).begin(1, "a", 1, 1)
    }

    fn claimed(self, instance: &str, token: i64) -> Self {
        let until = self.now() + LEASE;
        self.then(What::RecordClaimed { id: 1, instance: instance.to_owned(), token, until })
    }

    fn written(self, instance: &str, status: Status, attempts: u32) -> Self {
        self.then(What::Changed { id: 1, status, attempts, by: Some(instance.to_owned()) })
    }

    fn unclaimed(self, token: i64) -> Self {
        self.then(What::RecordUnclaimed { id: 1, token })
    }

    fn after_the_lease(self) -> Self {
        (0..LEASE).fold(self, |script, _| script.then(What::Saw { what: "time passes".to_owned() }))
    }

    /// The number under which this history of claims is caught.
    fn caught_by_claim(self) -> Option<Invariant> {
        let expect = Expect { claimed: true, ownership: false, forgets: Some(1_000), ..Expect::default() };
        self.judged(expect).err().map(|violation| violation.invariant)
    }
}

#[test]
fn a_record_is_delivered_under_its_claim() {
    let done = Script::default().claimed_and_called().end(1, End::Ok).written("a", Status::Gone, 0);
    assert_eq!(done.caught_by_claim(), None);
    let not_done = Script::default().claimed_and_called().end(1, End::Ok);
    assert_eq!(not_done.caught_by_claim(), Some(Invariant::NoLoss));
}

#[test]
fn a_claim_holds_until_its_lease_ends_or_its_owner_gives_it_back() {
    let called = || Script::default().claimed_and_called().end(1, End::Failed);
    let done = |script: Script| script.called(2, "b", 1, 2).written("b", Status::Gone, 0).caught_by_claim();
    assert_eq!(done(called().claimed("b", 2)), Some(Invariant::OneOwner));
    assert_eq!(done(called().after_the_lease().claimed("b", 2)), None);
    assert_eq!(done(called().claimed("a", 1).after_the_lease().claimed("b", 2)), None);
    let renewed_late = called().after_the_lease().claimed("a", 1).claimed("b", 2);
    assert_eq!(done(renewed_late), Some(Invariant::OneOwner));
    let given_back = called().written("a", Status::Pending, 0).unclaimed(1);
    assert_eq!(done(given_back.claimed("b", 2)), Some(Invariant::Attempts), "the failure was not counted");
    let skipped = called().after_the_lease().claimed("b", 3);
    assert_eq!(done(skipped), Some(Invariant::OneOwner));
    assert_eq!(called().unclaimed(2).caught_by_claim(), Some(Invariant::OneOwner));
}

#[test]
fn a_call_and_an_outcome_need_the_last_claim() {
    let late = || Script::default().claimed_and_called().end(1, End::Ok).after_the_lease().claimed("b", 2);
    assert_eq!(late().called(2, "a", 1, 1).caught_by_claim(), Some(Invariant::Lease));
    assert_eq!(late().written("a", Status::Gone, 0).caught_by_claim(), Some(Invariant::Fence));
    let redone = late().called(2, "b", 1, 2).written("b", Status::Gone, 0);
    assert_eq!(redone.caught_by_claim(), None);
    let unclaimed = Script::default().scheduled(1).stored(1).begin(1, "a", 1, 1);
    assert_eq!(unclaimed.caught_by_claim(), Some(Invariant::Lease));
}

#[test]
fn two_calls_of_a_record_need_a_fault_of_the_first() {
    let beside = |script: Script| script.after_the_lease().claimed("b", 2).begin(2, "b", 1, 2);
    let called = || Script::default().claimed_and_called();
    assert_eq!(beside(called()).caught_by_claim(), Some(Invariant::Lease));
    let paused = beside(called().fault("pause", "a"));
    let paused = paused.end(2, End::Ok).written("b", Status::Gone, 0).end(1, End::Dropped);
    assert_eq!(paused.caught_by_claim(), None);
}

/// The records of one key have no order.
#[test]
fn a_later_record_of_a_key_goes_first() {
    let called = Called {
        id: 2,
        event: Uuid::from_u128(2),
        handler: "worker".to_owned(),
        key: "key".to_owned(),
        partition: 7,
        generation: 1,
        attempt: 1,
    };
    let (instance, until) = ("a".to_owned(), 1_000);
    let history = Script::default().scheduled(2).stored(1).stored(2);
    let history = history.then(What::RecordClaimed { id: 2, instance: instance.clone(), token: 1, until });
    let kind = CallKind::Single;
    let history =
        history.then(What::CallBegan { call: 9, instance, kind, records: vec![called] }).end(9, End::Ok);
    let by = Some("a".to_owned());
    let history = history.then(What::Changed { id: 2, status: Status::Gone, attempts: 0, by });
    let history = history.claimed("a", 1).called(1, "a", 1, 1).written("a", Status::Gone, 0);
    assert_eq!(history.caught_by_claim(), None);
}

/// A failover takes the claims back that it has lost, and keeps the others.
#[test]
fn what_a_failover_has_lost_is_claimed_anew() {
    let before = || Script::default().scheduled(1).stored(1);
    let back_to = |script: &Script| What::FailedOver { back_to: script.now() };
    let claimed_again = before().claimed("a", 1).then(back_to(&before())).claimed("b", 1);
    assert_eq!(claimed_again.called(1, "b", 1, 1).written("b", Status::Gone, 0).caught_by_claim(), None);
    let stranger = before().claimed("a", 1).then(back_to(&before())).claimed("a", 1);
    assert_eq!(stranger.caught_by_claim(), Some(Invariant::OneOwner), "it belongs to the earlier server");
    let kept = || before().claimed("a", 1).then(back_to(&before().claimed("a", 1)));
    let done = kept().called(1, "a", 1, 1).written("a", Status::Gone, 0);
    assert_eq!(done.caught_by_claim(), None);
    // Its last renewal was lost.
    let beside = kept().after_the_lease().begin(1, "a", 1, 1).claimed("b", 2).called(2, "b", 1, 2);
    let beside = beside.written("b", Status::Gone, 0).end(1, End::Dropped);
    assert_eq!(beside.caught_by_claim(), None);
}
