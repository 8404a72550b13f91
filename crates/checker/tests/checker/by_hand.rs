//! Short histories by hand: those of worker processes, which do not know the rows, and those that are judged only by
//! what is expected of them.

use keylane_checker::{End, Expect, Invariant, Judge, Order, Status, Takeover, Truth, What};
use uuid::Uuid;

use crate::script::{Script, processes};

fn rows() -> Expect {
    Expect { ownership: false, ..Expect::default() }
}

#[test]
fn a_clean_history_is_clean() {
    let report = Script::default().scheduled(2).called(1, "a", 1, 1).called(2, "a", 2, 1).judged(processes());
    assert_eq!(report.expect("clean").judged.get(&Invariant::FirstAttempts), Some(&2));
}

#[test]
fn a_missing_end_is_a_loss() {
    let history = Script::default().scheduled(2).called(1, "a", 1, 1).begin(2, "a", 2, 1);
    assert_eq!(history.caught(), Some(Invariant::NoLoss));
}

#[test]
fn a_later_step_begun_early_is_an_inversion() {
    let early = Script::default().scheduled(2).begin(2, "a", 2, 1);
    assert_eq!(early.caught(), Some(Invariant::FirstAttempts));
}

#[test]
fn a_step_done_twice_needs_a_fault_of_who_did_it_first() {
    let twice = || Script::default().scheduled(1).called(1, "a", 1, 1);
    assert_eq!(twice().called(2, "b", 1, 2).caught(), Some(Invariant::Replays));
    assert_eq!(twice().fault("crash", "b").called(2, "c", 1, 2).caught(), Some(Invariant::Replays));
    assert_eq!(twice().fault("crash", "a").called(2, "b", 1, 2).caught(), None);
}

#[test]
fn calls_overlap_only_if_the_older_instance_had_a_fault() {
    let begun = || Script::default().scheduled(1).begin(1, "a", 1, 1);
    assert_eq!(begun().called(2, "b", 1, 2).caught(), Some(Invariant::Lease));
    assert_eq!(begun().fault("pause", "a").called(2, "b", 1, 2).end(1, End::Ok).caught(), None);
    assert_eq!(begun().fault("latency", "a").called(2, "b", 1, 2).caught(), Some(Invariant::Lease));
}

#[test]
fn calls_overlap_if_a_fault_has_kept_the_evicted_from_handing_over() {
    let instance = || "a".to_owned();
    let evicted = |fault: &str| {
        let joined = Script::default().joined(&["a", "b"]).claim("a", 1).fault(fault, "a");
        let after = joined.then(What::FaultEnded { fault: fault.to_owned(), instance: Some(instance()) });
        after.scheduled(1).begin(1, "a", 1, 1).then(What::Evicted { instance: instance() })
    };
    let judged = |history: Script, handover| {
        let expect = Expect { truth: Truth::Calls, handover, ..Expect::default() };
        history.judged(expect).err().map(|violation| violation.invariant)
    };
    let overlap = |fault| evicted(fault).claim("b", 2).called(2, "b", 1, 2).end(1, End::Ok);
    let goes_on =
        |fault| evicted(fault).end(1, End::Failed).called(2, "a", 1, 1).claim("b", 2).called(3, "b", 1, 2);
    for fault in ["outage", "slow"] {
        assert_eq!(judged(overlap(fault), 1_000), None);
        assert_eq!(judged(overlap(fault), 1), Some(Invariant::Lease), "the {fault} was long before");
        assert_eq!(judged(goes_on(fault), 1_000), None);
        assert_eq!(judged(goes_on(fault), 1), Some(Invariant::Lease), "the {fault} was long before");
    }
    assert_eq!(judged(goes_on("latency"), 1_000), Some(Invariant::Lease));
}

#[test]
fn a_takeover_is_late_only_while_a_member_with_a_lease_could_have_claimed() {
    let expect = || Expect { takeover: Some(Takeover { bound: 10, settled: 1_000 }), ..rows() };
    let judged = |history: Script| history.judged(expect()).err().map(|violation| violation.invariant);
    let idle = |history: Script, events: u64| {
        (0..events).fold(history, |history, _| history.then(What::Saw { what: "nothing".to_owned() }))
    };
    let lease = |instance: &str| What::LeaseUntil { instance: instance.to_owned(), until: 1_000 };
    let joined = || Script::default().joined(&["a", "b"]);
    assert_eq!(judged(idle(joined(), 8)), None);
    assert_eq!(judged(idle(joined(), 12)), Some(Invariant::Takeover));
    let crashed = || idle(joined(), 8).fault("crash", "b");
    assert_eq!(judged(idle(crashed(), 8)), None, "who has crashed may have been about to claim");
    assert_eq!(judged(idle(crashed(), 12)), Some(Invariant::Takeover));
    assert_eq!(judged(idle(joined().then(lease("c")), 12)), None, "neither has a lease yet");
    let leased = || joined().then(lease("a"));
    assert_eq!(judged(idle(leased(), 12)), Some(Invariant::Takeover));
    assert_eq!(judged(idle(leased().then(lease("c")), 12)), None, "its process is another instance now");
}

#[test]
fn what_a_former_owner_ends_does_not_count() {
    let history = Script::default().scheduled(2).begin(1, "a", 1, 1).fault("pause", "a").begin(2, "b", 1, 2);
    let history = history.end(1, End::Ok).end(2, End::Failed).called(3, "b", 2, 2);
    assert_eq!(history.caught(), Some(Invariant::StopOnFailure));
}

#[test]
fn a_commit_without_a_reply_may_have_happened_or_not() {
    let unknown = || {
        Script::default().scheduling(1).then(What::Committing { tx: 1 }).then(What::CommitUnknown { tx: 1 })
    };
    assert_eq!(unknown().caught(), None);
    assert_eq!(unknown().called(1, "a", 1, 1).caught(), None);
    assert_eq!(unknown().begin(1, "a", 1, 1).caught(), Some(Invariant::NoLoss), "seen, so committed");
}

#[test]
fn transactions_that_cross_have_no_order_but_the_strict_one() {
    let crossed = || {
        let both = Script::default().scheduling(1).scheduling(2).then(What::Committing { tx: 2 }).stored(2);
        both.then(What::Committed { tx: 2 }).then(What::Committing { tx: 1 })
    };
    assert_eq!(crossed().caught(), Some(Invariant::NoGhost), "rows where none are expected");
    let strict = Expect { order: Order::Strict, ..rows() };
    let stored = crossed().stored(1).judged(strict).expect_err("the lower id was committed later");
    assert_eq!(stored.invariant, Invariant::FirstAttempts);
    let lost = crossed().stored(1).judged(rows()).expect_err("nothing is called");
    assert_eq!(lost.invariant, Invariant::NoLoss);
}

#[test]
fn a_failed_record_stays_only_where_that_is_expected() {
    let failed = || {
        let called = Script::default().scheduled(1).begin(1, "a", 1, 1).end(1, End::Permanent);
        called.judged(Expect { may_fail: true, ..processes() })
    };
    assert!(failed().is_ok());
    let history = Script::default().scheduled(1).begin(1, "a", 1, 1).end(1, End::Permanent);
    assert_eq!(history.caught(), Some(Invariant::NoLoss));
}

#[test]
fn a_lane_goes_on_past_failures_where_its_handler_says_so() {
    let passes = Expect { passes_failures: ["worker".to_owned()].into(), ..processes() };
    let history =
        || Script::default().scheduled(2).begin(1, "a", 1, 1).end(1, End::Failed).called(2, "a", 2, 1);
    assert_eq!(history().caught(), Some(Invariant::StopOnFailure));
    let again = Script(history().0).called(3, "a", 1, 1).judged(passes);
    assert!(again.is_ok(), "{again:?}");
}

#[test]
fn a_failure_counts_before_the_next_call_unless_a_fault_takes_it_back() {
    let failed = || {
        let stored = Script::default().scheduling(1).then(What::Committing { tx: 1 }).stored(1);
        stored.then(What::Committed { tx: 1 }).begin(1, "a", 1, 1).end(1, End::Permanent)
    };
    let again = failed().called(2, "a", 1, 1).judged(rows()).expect_err("not counted");
    assert_eq!(again.invariant, Invariant::Attempts);
    let gone = What::Changed { id: 1, status: Status::Gone, attempts: 0, by: Some("a".to_owned()) };
    let faulty = failed().fault("outage", "a").called(2, "a", 1, 1).then(gone);
    assert!(faulty.judged(rows()).is_ok());
}

#[test]
fn a_refused_success_counts_if_the_database_has_answered() {
    let refused = || {
        let stored = Script::default().scheduling(1).then(What::Committing { tx: 1 }).stored(1);
        stored.then(What::Committed { tx: 1 }).begin(1, "a", 1, 1).end(1, End::Refused)
    };
    let changed = |status, attempts| What::Changed { id: 1, status, attempts, by: Some("a".to_owned()) };
    let again = refused().called(2, "a", 1, 1).then(changed(Status::Gone, 0));
    assert!(again.judged(rows()).is_ok());
    let counted = |attempts| refused().then(changed(Status::Failed, attempts));
    let expect = || Expect { may_fail: true, ..rows() };
    assert!(counted(1).judged(expect()).is_ok());
    let twice = counted(2).judged(expect()).expect_err("counted twice");
    assert_eq!(twice.invariant, Invariant::Attempts);
    assert!(refused().judged(expect()).is_err(), "neither tried again nor counted");
}

#[test]
fn what_a_handler_commits_by_itself_comes_on_top_of_its_effect() {
    let expect = || Expect { transactional: ["worker".to_owned()].into(), ..processes() };
    let (event, handler) = (Uuid::from_u128(1), "worker".to_owned());
    let effect = || What::Effect { event, handler: handler.clone() };
    let apart = || What::EffectApart { event, handler: handler.clone() };
    let twice = |script: Script| {
        let mut judge = Judge::new(expect());
        let called = script.called(1, "a", 1, 1).then(What::Finished).then(effect()).then(effect());
        called.0.iter().try_for_each(|event| judge.take(event)).and_then(|()| judge.finish().map(drop))
    };
    let caught = twice(Script::default().scheduled(1)).expect_err("two effects of one completion");
    assert_eq!(caught.invariant, Invariant::Effects);
    assert!(twice(Script::default().scheduled(1).then(apart())).is_ok());
}

#[test]
fn who_has_joined_before_a_failover_may_call_and_writes_nothing() {
    let expect = || Expect { forgets: Some(1_000), ..Expect::default() };
    let failed_over = || {
        let begun = Script::default()
            .joined(&["a", "b", "c"])
            .scheduling(1)
            .then(What::Committing { tx: 1 })
            .stored(1);
        let begun = begun.then(What::Committed { tx: 1 }).claim("a", 1);
        let back_to = begun.now();
        let moved = begun.then(What::Unclaimed { partition: 7, generation: 1 }).claim("b", 2);
        moved
            .then(What::FailedOver { back_to })
            .then(What::Evicted { instance: "a".to_owned() })
            .joined(&["d"])
    };
    let gone = |by: &str| What::Changed { id: 1, status: Status::Gone, attempts: 0, by: Some(by.to_owned()) };
    let good = failed_over().claim("d", 2).begin(1, "d", 1, 2).called(2, "b", 1, 2).end(1, End::Ok);
    let good = good.then(gone("d")).judged(expect()).expect("b has not heard of it");
    assert!(good.reached.contains_key("call of a stranger"));
    let other = failed_over().claim("d", 2).begin(1, "d", 1, 2).called(2, "b", 1, 2);
    let unforgiving = Expect { excusing: std::collections::BTreeSet::new(), ..expect() };
    assert!(other.end(1, End::Ok).then(gone("d")).judged(unforgiving).is_ok(), "of b nothing else is known");
    for stranger in ["b", "c"] {
        // The new server may show either instance as the owner.
        let late = failed_over().claim(stranger, 2).called(1, stranger, 1, 2).then(gone(stranger));
        assert_eq!(late.judged(expect()).expect_err(stranger).invariant, Invariant::Fence);
    }
}

/// Two events of one key, each in a transaction of its own. The second is a duplicate, or not.
fn keyed(between: impl Fn(Script) -> Script, duplicate: bool) -> Option<Invariant> {
    let key = |script: Script, call| script.then(What::Keyed { call, dedup_key: "dedup".to_owned() });
    let first = key(Script::default().scheduling(1), 1).then(What::Scheduled { call: 1 });
    let second = key(between(first).scheduling(2), 2);
    let told = if duplicate { What::Duplicate { call: 2 } } else { What::Scheduled { call: 2 } };
    second.then(told).caught()
}

#[test]
fn a_dedup_key_is_noted_once_and_a_duplicate_is_one_of_something() {
    let committed = |script: Script| script.committed(1).called(1, "a", 1, 1);
    let rolled_back = |script: Script| script.then(What::RolledBack { tx: 1 });
    let unknown =
        |script: Script| script.then(What::Committing { tx: 1 }).then(What::CommitUnknown { tx: 1 });
    assert_eq!(keyed(committed, true), None);
    assert_eq!(keyed(committed, false), Some(Invariant::NoGhost));
    assert_eq!(keyed(rolled_back, true), Some(Invariant::NoLoss));
    assert_eq!(keyed(rolled_back, false), None);
    assert_eq!([true, false].map(|duplicate| keyed(unknown, duplicate)), [None, None]);
    let event = Uuid::from_u128(1);
    let freed = |end: fn(Script) -> Script| {
        move |script: Script| {
            end(script.committed(1).called(1, "a", 1, 1).then(What::Cancelled { tx: 9, event }))
        }
    };
    assert_eq!(keyed(freed(|script| script.committed(9)), true), Some(Invariant::NoLoss));
    assert_eq!(keyed(freed(|script| script.committed(9)), false), None);
    assert_eq!(
        keyed(freed(|script| script.then(What::RolledBack { tx: 9 })), false),
        Some(Invariant::NoGhost)
    );
}

#[test]
fn a_cancelled_event_is_gone_with_the_commit() {
    let cancelled = || {
        let stored = Script::default().scheduling(1).then(What::Committing { tx: 1 }).stored(1);
        stored.then(What::Committed { tx: 1 }).then(What::Cancelled { tx: 2, event: Uuid::from_u128(1) })
    };
    let gone = What::Changed { id: 1, status: Status::Gone, attempts: 0, by: None };
    let caught = |script: Script| script.judged(rows()).err().map(|violation| violation.invariant);
    assert_eq!(caught(cancelled().committed(2)), Some(Invariant::NoGhost));
    assert_eq!(caught(cancelled().then(gone.clone()).committed(2)), None);
    let rolled_back = cancelled().then(What::RolledBack { tx: 2 }).then(gone);
    assert_eq!(caught(rolled_back), Some(Invariant::AtLeastOnce));
}

/// A record is beside a release if it was scheduled before its lane went on, and became visible after that.
#[test]
fn a_new_record_beside_a_release_is_counted() {
    let held = || Script::default().scheduled(2).stored(1).stored(2).changed(2, Status::Held);
    let open = |history: Script| history.scheduling(3).then(What::Scheduled { call: 3 });
    let release = |history: Script| history.changed(2, Status::Pending);
    let counted = |history: Script| {
        let mut judge = Judge::new(rows());
        let history = history.then(What::Committing { tx: 3 }).stored(3).then(What::Committed { tx: 3 });
        history.0.iter().try_for_each(|event| judge.take(event)).expect("good");
        judge.finish().expect("good").reached.contains_key("new record beside a release")
    };
    assert!(counted(release(open(held()))));
    assert!(!counted(open(release(held()))), "scheduled after it");
    assert!(!counted(open(held())), "nothing was released");
}
