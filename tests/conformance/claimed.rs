//! Claimed mode: who claims a record, for how long, and whose outcome counts.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use keylane::{
    Completed, Mode, Record, RecordId,
    admin::{InstanceId, Status},
    database::Database,
    inner::{Cancel, ClaimEnd, ClaimOutcome, Claiming, Due, Handlers, Named, Repair, Source, Store},
    partition::Partition,
    rules::claim::Reading,
};

use crate::{
    outbox::{ALL, Outbox, a_moment, due_record, ids, promptly, record},
    target::Target,
};

pub(super) const LONG: Duration = Duration::from_secs(3600);
/// A lease that has ended once anything was read after it.
pub(super) const SHORT: Duration = Duration::from_millis(1);

pub(super) fn of(owner: InstanceId, source: Source, lease: Duration, limit: usize) -> Claiming {
    Claiming { owner, lease, source, handlers: Handlers::Every, limit }
}

pub(super) fn pending() -> Source {
    Source::Pending(Reading::Index { from: Partition::new(0).unwrap() })
}

/// Claims pending records for an hour.
async fn claim(store: &dyn Store, owner: InstanceId) -> Vec<Arc<Record>> {
    store.claim_records(of(owner, pending(), LONG, ALL)).await.unwrap().records
}

/// Claims due records for an hour.
async fn claim_due(store: &dyn Store, owner: InstanceId) -> Vec<Arc<Record>> {
    store.claim_records(of(owner, Source::Due, LONG, ALL)).await.unwrap().records
}

fn token(record: &Record) -> i64 {
    record.delivery.generation.0
}

fn end(record: &Record, end: ClaimEnd) -> ClaimOutcome {
    ClaimOutcome { id: record.delivery.id, token: token(record), end }
}

fn retry(delay: Duration) -> ClaimEnd {
    ClaimEnd::Retry { delay, error: "refused".to_owned(), counted: true }
}

async fn count<T: Target>(outbox: &Outbox<T>, status: Status) -> u64 {
    outbox.store.counts().await.unwrap().of(status)
}

fn keys(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("order-{n}")).collect()
}

pub(super) async fn schedule<T: Target>(outbox: &Outbox<T>, count: usize) -> Vec<RecordId> {
    let keys = keys(count);
    outbox.schedule_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>()).await
}

pub(crate) async fn a_claim_takes_what_is_pending_and_tells_its_token<T: Target>(outbox: &Outbox<T>) {
    let scheduled = schedule(outbox, 3).await;
    outbox.schedule(&[due_record("order-9", Due::After(LONG))]).await;
    let me = InstanceId::generate();
    let claimed = outbox.store.claim_records(of(me, pending(), LONG, ALL)).await.unwrap();
    assert_eq!((ids(&claimed.records), claimed.selected), (scheduled, 3));
    for record in &claimed.records {
        assert_eq!((token(record), record.delivery.attempt), (1, 1));
        assert_eq!(record.payload, br#"{"order":1}"#);
        assert_eq!(record.delivery.partition, Partition::of(&record.delivery.key));
        assert!(record.delivery.age < LONG && record.delivery.expires_in.is_none());
    }
    assert!(outbox.pending().await.is_empty());
    assert!(claim(&*outbox.store, InstanceId::generate()).await.is_empty());
    assert!(claim_due(&*outbox.store, InstanceId::generate()).await.is_empty());
}

pub(crate) async fn claims_go_on_where_the_last_one_ended<T: Target>(outbox: &Outbox<T>) {
    let scheduled: BTreeSet<RecordId> = schedule(outbox, 40).await.into_iter().collect();
    let (me, mut from, mut found) = (InstanceId::generate(), 100, BTreeSet::new());
    loop {
        let source = Source::Pending(Reading::Index { from: Partition::new(from).unwrap() });
        let records = outbox.store.claim_records(of(me, source, LONG, 7)).await.unwrap().records;
        assert!(records.iter().all(|record| i64::from(record.delivery.partition.number()) >= from));
        let last = records.iter().map(|record| i64::from(record.delivery.partition.number())).max();
        found.extend(ids(&records));
        match (records.len(), from) {
            (7, _) => from = last.unwrap(),
            (_, 0) => break,
            _ => from = 0,
        }
    }
    assert_eq!(found, scheduled);
    let later = schedule(outbox, 20).await;
    let source = Source::Pending(Reading::Ids { from: later[5] });
    let records = outbox.store.claim_records(of(me, source, LONG, 7)).await.unwrap().records;
    assert_eq!(ids(&records), later[5..12], "in the order of ids");
    let rest = outbox.store.claim_records(of(me, source, LONG, ALL)).await.unwrap().records;
    assert_eq!(ids(&rest), later[12..]);
    assert_eq!(ids(&claim(&*outbox.store, me).await), later[..5]);
    let other = Handlers::Except(vec!["bookkeeper".into()]);
    schedule(outbox, 1).await;
    let left_out = Claiming { handlers: other, ..of(me, pending(), LONG, ALL) };
    assert!(outbox.store.claim_records(left_out).await.unwrap().records.is_empty());
}

pub(crate) async fn two_claimers_never_hold_one_record<T: Target>(outbox: &Outbox<T>) {
    let scheduled: BTreeSet<RecordId> = schedule(outbox, 600).await.into_iter().collect();
    let claimers = (0..4).map(|n| {
        let store = outbox.store_that(Completed::Delete);
        tokio::spawn(async move {
            let (me, mut found, mut from) = (InstanceId::generate(), Vec::new(), n * 60);
            loop {
                let source = Source::Pending(Reading::Index { from: Partition::new(from).unwrap() });
                let claimed = store.claim_records(of(me, source, LONG, 10)).await.unwrap();
                assert_eq!(claimed.records.len(), claimed.selected);
                match (claimed.selected, from) {
                    (0, 0) => return found,
                    (0, _) => from = 0,
                    _ => found.extend(ids(&claimed.records)),
                }
            }
        })
    });
    let mut found = Vec::new();
    for claimer in claimers.collect::<Vec<_>>() {
        found.extend(promptly(claimer).await.unwrap());
    }
    let all: BTreeSet<RecordId> = found.iter().copied().collect();
    assert_eq!((found.len(), all), (600, scheduled), "each record has one owner");
}

pub(crate) async fn a_claim_comes_again_after_its_lease_under_a_larger_token<T: Target>(outbox: &Outbox<T>) {
    schedule(outbox, 2).await;
    let (one, other) = (InstanceId::generate(), InstanceId::generate());
    outbox.store.claim_records(of(one, pending(), SHORT, ALL)).await.unwrap();
    a_moment().await;
    assert!(claim(&*outbox.store, other).await.is_empty(), "it is not pending");
    let again = claim_due(&*outbox.store, other).await;
    assert_eq!(again.iter().map(|record| token(record)).collect::<Vec<_>>(), [2, 2]);
    assert_eq!(again[0].delivery.attempt, 1, "a lease that ends counts no attempt");
    assert!(claim_due(&*outbox.store, one).await.is_empty());
}

/// Claims what this source names, and lets the lease run out.
async fn run_out<T: Target>(outbox: &Outbox<T>, source: Source, limit: usize) -> (Vec<RecordId>, u32) {
    let claim = of(InstanceId::generate(), source, SHORT, limit);
    let claimed = outbox.store.claim_records(claim).await.unwrap();
    a_moment().await;
    (ids(&claimed.records), claimed.crashes)
}

pub(crate) async fn what_ran_out_twice_is_claimed_as_a_suspect<T: Target>(outbox: &Outbox<T>) {
    let scheduled: BTreeSet<RecordId> = schedule(outbox, 3).await.into_iter().collect();
    for source in [pending(), Source::Due] {
        assert!(run_out(outbox, Source::Suspect, ALL).await.0.is_empty(), "before {source:?}");
        let (found, crashes) = run_out(outbox, source, ALL).await;
        assert_eq!((found.into_iter().collect(), crashes), (scheduled.clone(), 0));
    }
    for crashes in 2..5 {
        assert!(run_out(outbox, Source::Due, ALL).await.0.is_empty(), "they are suspects");
        let (found, told) = run_out(outbox, Source::Suspect, ALL).await;
        assert_eq!((found.len(), told), (3, crashes));
    }
}

/// Whatever is written about a suspect ends the suspicion.
pub(crate) async fn an_outcome_ends_a_suspicion<T: Target>(outbox: &Outbox<T>) {
    let (me, store) = (InstanceId::generate(), &outbox.store);
    let fail = ClaimEnd::Fail { error: "refused".to_owned(), counted: true };
    for written in [ClaimEnd::Release, retry(Duration::ZERO), fail] {
        let scheduled = schedule(outbox, 1).await;
        for source in [pending(), Source::Due] {
            run_out(outbox, source, ALL).await;
        }
        let held = store.claim_records(of(me, Source::Suspect, LONG, 1)).await.unwrap().records;
        assert_eq!(store.settle_claims(me, &[end(&held[0], written.clone())]).await.unwrap(), 1);
        a_moment().await;
        store.repair(scheduled[0], &Repair::Retry).await.unwrap();
        if !matches!(written, ClaimEnd::Retry { .. }) {
            assert_eq!(run_out(outbox, pending(), ALL).await.0, scheduled, "{written:?}");
        }
        assert!(run_out(outbox, Source::Suspect, ALL).await.0.is_empty(), "{written:?}");
        let again = claim_due(&**store, me).await;
        assert_eq!(ids(&again), scheduled, "{written:?}");
        store.settle_claims(me, &[end(&again[0], ClaimEnd::Complete)]).await.unwrap();
    }
}

/// The record of the first owner: a pause past its lease, in which another has claimed it.
pub(crate) async fn a_claim_that_outlived_its_lease_overwrites_nothing<T: Target>(outbox: &Outbox<T>) {
    let (one, other, store) = (InstanceId::generate(), InstanceId::generate(), &outbox.store);
    let ends = [
        ClaimEnd::Complete,
        ClaimEnd::Release,
        retry(LONG),
        ClaimEnd::Fail { error: "refused".to_owned(), counted: true },
    ];
    for stale_end in ends {
        schedule(outbox, 1).await;
        let stale = store.claim_records(of(one, pending(), SHORT, ALL)).await.unwrap().records;
        a_moment().await;
        let held = claim_due(&**store, other).await;
        let stale_end = [end(&stale[0], stale_end)];
        assert_eq!(store.settle_claims(one, &stale_end).await.unwrap(), 0);
        // An owner that has claimed its own record again is held to the new token, too.
        let of_other = [ClaimOutcome { token: token(&stale[0]), ..stale_end[0].clone() }];
        assert_eq!(store.settle_claims(other, &of_other).await.unwrap(), 0);
        assert_eq!(store.settle_claims(other, &[end(&held[0], retry(Duration::ZERO))]).await.unwrap(), 1);
        assert_eq!(store.settle_claims(one, &stale_end).await.unwrap(), 0, "what it wrote stays");
        a_moment().await;
        let next = claim_due(&**store, other).await;
        assert_eq!((next[0].delivery.attempt, token(&next[0])), (2, 3));
        assert_eq!(store.settle_claims(other, &[end(&next[0], ClaimEnd::Complete)]).await.unwrap(), 1);
    }
    assert!(store.counts().await.unwrap().records.is_empty());
}

pub(crate) async fn a_renewed_claim_stays_and_one_that_is_gone_is_told<T: Target>(outbox: &Outbox<T>) {
    let scheduled = schedule(outbox, 3).await;
    let (one, other, store) = (InstanceId::generate(), InstanceId::generate(), &outbox.store);
    let held = store.claim_records(of(one, pending(), SHORT, ALL)).await.unwrap().records;
    assert!(store.renew_claims(one, LONG, &scheduled).await.unwrap().is_empty());
    a_moment().await;
    assert!(claim_due(&**store, other).await.is_empty(), "the leases have begun again");
    assert_eq!(store.renew_claims(other, LONG, &scheduled).await.unwrap(), scheduled);
    store.renew_claims(one, SHORT, &scheduled[..1]).await.unwrap();
    a_moment().await;
    assert_eq!(ids(&claim_due(&**store, other).await), scheduled[..1]);
    store.settle_claims(one, &[end(&held[1], ClaimEnd::Complete)]).await.unwrap();
    assert_eq!(store.renew_claims(one, LONG, &scheduled).await.unwrap(), scheduled[..2]);
}

/// A settle whose reply was lost is repeated.
pub(crate) async fn each_outcome_is_written_once<T: Target>(outbox: &Outbox<T>) {
    schedule(outbox, 4).await;
    let (me, store) = (InstanceId::generate(), &outbox.store);
    let held = claim(&**store, me).await;
    let outcomes = [
        end(&held[0], ClaimEnd::Complete),
        end(&held[1], retry(LONG)),
        end(&held[2], ClaimEnd::Fail { error: "refused".to_owned(), counted: true }),
        end(&held[3], ClaimEnd::Release),
    ];
    assert_eq!(store.settle_claims(me, &outcomes).await.unwrap(), 4);
    assert_eq!(store.settle_claims(me, &outcomes).await.unwrap(), 0);
    for status in [Status::Pending, Status::Delayed, Status::Failed] {
        assert_eq!(count(outbox, status).await, 1, "{status}");
    }
    let released = claim(&**store, me).await;
    assert_eq!((released[0].delivery.attempt, token(&released[0])), (1, 2));
    assert!(store.settle_claims(me, &[]).await.unwrap() == 0);
}

/// Most of the records have neighbouring ids.
pub(crate) async fn claims_and_outcomes_take_what_they_name_and_nothing_between<T: Target>(
    outbox: &Outbox<T>,
) {
    let (one, other, store) = (InstanceId::generate(), InstanceId::generate(), &outbox.store);
    let scheduled = schedule(outbox, 14).await;
    let between = Source::Pending(Reading::Ids { from: scheduled[4] });
    store.claim_records(of(other, between, LONG, 1)).await.unwrap();
    let held = claim(&**store, one).await;
    assert_eq!(held.len(), 13, "all but the one between");
    let ended = |n: &usize| end(&held[*n], ClaimEnd::Complete);
    let outcomes: Vec<_> = [9, 8, 7, 6, 5, 11, 0, 1, 2, 3].iter().map(ended).collect();
    assert_eq!(store.settle_claims(one, &outcomes).await.unwrap(), 10);
    let [left, foreign] = [[10, 12].map(|n: usize| held[n].delivery.id).to_vec(), scheduled[4..5].to_vec()];
    assert!(store.renew_claims(one, LONG, &left).await.unwrap().is_empty());
    assert!(store.renew_claims(other, LONG, &foreign).await.unwrap().is_empty());
    assert_eq!(store.renew_claims(one, LONG, &scheduled).await.unwrap().len(), 14 - 3);
}

pub(crate) async fn completed_claims_are_archived_or_kept_too<T: Target>(outbox: &Outbox<T>) {
    let me = InstanceId::generate();
    for completed in [Completed::Archive, Completed::Keep] {
        let store = outbox.store_that(completed);
        schedule(outbox, 2).await;
        let held = claim(&*store, me).await;
        let outcomes: Vec<_> = held.iter().map(|record| end(record, ClaimEnd::Complete)).collect();
        assert_eq!(store.settle_claims(me, &outcomes).await.unwrap(), 2);
        assert_eq!(store.settle_claims(me, &outcomes).await.unwrap(), 0);
    }
    assert_eq!(count(outbox, Status::Completed).await, 2);
    a_moment().await;
    assert_eq!(outbox.store.purge(Duration::ZERO, LONG).await.unwrap(), 4);
}

pub(crate) async fn a_claimed_record_is_not_cancelled<T: Target>(outbox: &Outbox<T>) {
    let new = record("order-1");
    outbox.schedule(std::slice::from_ref(&new)).await;
    assert_eq!(claim(&*outbox.store, InstanceId::generate()).await.len(), 1);
    let named = Named::Event(new.event_id);
    let cancel = Cancel { partition: new.partition, key: new.key.clone(), named };
    let mut tx = outbox.begin().await;
    assert_eq!(T::Db::cancel(&mut tx, &outbox.producer, &cancel).await.unwrap(), 0);
    outbox.commit(tx).await;
}

pub(crate) async fn tables_in_use_do_not_change_their_mode<T: Target>(outbox: &Outbox<T>) {
    let store = &outbox.store;
    let worker = outbox.join().await;
    assert_eq!(store.enter(Mode::Partitioned).await.unwrap(), Mode::Partitioned);
    assert_eq!(store.enter(Mode::Claimed).await.unwrap(), Mode::Partitioned, "an instance lives");
    store.leave(worker.id).await.unwrap();
    assert_eq!(store.enter(Mode::Claimed).await.unwrap(), Mode::Claimed);
    assert_eq!(store.enter(Mode::Partitioned).await.unwrap(), Mode::Claimed, "nothing changes it back");
}
