//! Transactional runs: all records of a run in one transaction, fewer after a failure.

use std::{sync::Arc, time::Duration};

use super::{
    attempt::{decide, end_expired},
    context::ExecContext,
    flight::Flight,
    slot::Transacted,
};
use crate::{
    delivery::outcome::Outcome,
    handler::Entry,
    ownership::Ticket,
    record::{Record, RecordId},
    store::{TransactionalRun, Work},
    telemetry::Signal,
};

/// A record of a part. A part is the records that one transaction tries together.
#[derive(Clone)]
struct PartRecord {
    /// The index of its lane in the flight.
    lane: usize,
    record: Arc<Record>,
    ticket: Ticket,
    /// Whether the record was tried before, so that its lane may have a stop. An uncounted attempt leaves no
    /// failure.
    stops_lane: bool,
    /// Its deadline, on the clock.
    expires: Option<Duration>,
}

impl PartRecord {
    fn has_expired(&self, context: &ExecContext) -> bool {
        self.expires.is_some_and(|expires| expires <= context.clock.now())
    }
}

/// Runs the records in as few transactions as possible. A failure rolls back the whole transaction. Then each
/// half is tried by itself, down to the record that fails.
pub(super) async fn run_in_transactions(
    flight: &mut Flight<'_>,
    entry: &Entry,
    call: &Arc<dyn TransactionalRun>,
    context: &ExecContext,
) {
    let mut parts = parts(flight);
    while let Some(mut part) = parts.pop() {
        part.retain(|item| flight.next(item.lane).is_some());
        if let Some(expired) = part.iter().position(|item| item.has_expired(context)) {
            // The record ends at its place in the lane: behind the earlier records, before the later ones.
            let rest = part.split_off(expired + usize::from(expired == 0));
            parts.push(rest);
            if expired == 0 {
                end_expired(flight, entry, part[0].lane, context).await;
                flight.stop(part[0].lane);
                continue;
            }
        }
        let half = part.len() / 2;
        if run_part(flight, entry, call, &part, context).await {
            let second = part.split_off(half);
            parts.extend([second, part]);
        }
    }
}

/// The parts of the flight, the first one last. A record that has failed before is likely to
/// fail again: it is tried by itself, so that its failure rolls back nothing else.
fn parts(flight: &Flight<'_>) -> Vec<Vec<PartRecord>> {
    let mut records = Vec::new();
    for lane in 0..flight.lanes() {
        records.extend(flight.rest(lane).map(|item| PartRecord {
            lane,
            record: Arc::clone(&item.record),
            ticket: item.permit.ticket(),
            stops_lane: item.stops_lane || item.record.failures() > 0,
            expires: item.expires,
        }));
    }
    let parts = records.chunk_by(|one, next| !one.stops_lane && !next.stops_lane);
    let mut parts: Vec<Vec<PartRecord>> = parts.map(<[PartRecord]>::to_vec).collect();
    parts.reverse();
    parts
}

/// Tries some records in one transaction. Returns whether the halves are to be tried instead.
async fn run_part(
    flight: &mut Flight<'_>,
    entry: &Entry,
    call: &Arc<dyn TransactionalRun>,
    part: &[PartRecord],
    context: &ExecContext,
) -> bool {
    let Some((first, rest)) = part.split_first() else { return false };
    let started = context.clock.now();
    let stop = |flight: &mut Flight<'_>| part.iter().for_each(|item| flight.stop(item.lane));
    let Some(mut slot) = flight.lend_slot() else {
        stop(flight);
        return false;
    };
    for of_lane in part.chunk_by(|one, next| one.lane == next.lane) {
        flight.begin(of_lane[0].lane, of_lane.len(), started);
    }
    let records: Vec<&Record> = part.iter().map(|item| &*item.record).collect();
    let stopping = part.iter().filter(|item| item.stops_lane);
    let stopping: Vec<RecordId> = stopping.map(|item| item.record.delivery.id).collect();
    let work = Work {
        records: &records,
        stopping: &stopping,
        states: &context.states,
        timeout: entry.timeout,
        may_start: &|| part.iter().all(|item| item.ticket.may_start() && !item.has_expired(context)),
    };
    let transacted = flight.wait(slot.run(&**call, &work)).await;
    let claimed = slot.is_of_claims();
    flight.take_slot_back(slot);
    match transacted {
        Transacted::Committed => part.iter().for_each(|item| {
            let ended = context.targets.end(item.record.delivery.id, || context.clock.now());
            ended.into_iter().for_each(|signal| context.observers.emit(signal));
            flight.end(item.lane, Outcome::Written);
        }),
        Transacted::Untried => stop(flight),
        Transacted::Aborted(error) => {
            stop(flight);
            flight.end(first.lane, Outcome::Aborted(Box::new(error)));
            // The others are fetched again behind the first. Claimed records have no order, and would only come
            // again once their leases have ended: they are tried without the first.
            if !claimed {
                rest.iter().for_each(|item| flight.end(item.lane, Outcome::Lost));
            }
        }
        Transacted::Unknown(error) => {
            context.observers.emit(Signal::StoreFailed { call: error.call, error: error.chain() });
            part.iter().for_each(|item| flight.end(item.lane, Outcome::Lost));
        }
        Transacted::Lost | Transacted::Failed(_) if !rest.is_empty() => {
            part.iter().for_each(|item| flight.take_back(item.lane));
            return true;
        }
        Transacted::Lost => {
            if claimed {
                context.observers.emit(Signal::ClaimsOutlived { records: 1 });
            }
            flight.end(first.lane, Outcome::Lost);
        }
        Transacted::Failed(error) => {
            let outcome = decide(flight, first.lane, entry, &first.record, Err(error), context).await;
            flight.end(first.lane, outcome);
            // The next transaction of the lane must not be durable before this outcome.
            flight.stop(first.lane);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::mpsc::unbounded_channel;

    use super::*;
    use crate::{
        delivery::{
            execute::slot::SlotPool,
            fixtures,
            outcome::{LaneRun, Run},
            work::{Item, LaneId},
        },
        handler::HandlerError,
        instance::InstanceId,
        memory::MemoryPool,
        ownership::Ownership,
        rules::horizon::Server,
        store::{ErrorClass, FenceRow, NewInstance, StoreError, Transacted as Ran},
        telemetry::{Observer, Observers},
        wake::Wake,
    };

    /// Keeps the records of each transaction, and which of them may have stopped their lanes. A transaction opens
    /// within a millisecond, and `end` ends it.
    struct Trials<F> {
        tried: Mutex<Vec<(Vec<RecordId>, Vec<RecordId>)>>,
        end: F,
    }

    #[async_trait::async_trait]
    impl<F: Fn(&[RecordId]) -> Ran + Send + Sync + 'static> TransactionalRun for Trials<F> {
        async fn run(&self, _: FenceRow, work: &Work<'_>) -> Ran {
            let ids: Vec<RecordId> = work.records.iter().map(|record| record.delivery.id).collect();
            tokio::time::advance(Duration::from_millis(1)).await;
            let ran = if (work.may_start)() { (self.end)(&ids) } else { Ran::Untried };
            self.tried.lock().unwrap().push((ids, work.stopping.to_vec()));
            ran
        }

        async fn run_claimed(&self, owner: InstanceId, work: &Work<'_>) -> Ran {
            self.run(FenceRow::of_settler(owner, Server::default()), work).await
        }
    }

    /// What is told of the database, as words.
    #[derive(Default)]
    struct Signals(Mutex<Vec<&'static str>>);

    impl Observer for Signals {
        fn on(&self, signal: &Signal) {
            match signal {
                Signal::StoreFailed { call, .. } => self.0.lock().unwrap().push(call),
                Signal::ClaimsOutlived { .. } => self.0.lock().unwrap().push("outlived"),
                _ => {}
            }
        }
    }

    /// Runs two claimed records of two keys in transactions that end as `end` says. Returns what is told, too.
    async fn run_claimed(
        end: impl Fn(&[RecordId]) -> Ran + Send + Sync + 'static,
    ) -> (Told, Vec<&'static str>) {
        let (ownership, signals) = (fixtures::owning_all(), Arc::new(Signals::default()));
        let lanes = vec![items(&ownership, "a", &[1]), items(&ownership, "b", &[2])];
        let observers = Observers::new(vec![Arc::<Signals>::clone(&signals)]);
        let context = ExecContext { observers, ..fixtures::context(&ownership) };
        let told = run_that(true, &context, lanes, end).await;
        (told, std::mem::take(&mut *signals.0.lock().unwrap()))
    }

    /// The tried transactions, and the outcomes of the records as words.
    type Told = (Vec<(Vec<RecordId>, Vec<RecordId>)>, Vec<(RecordId, &'static str)>);

    fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Completed => "completed",
            Outcome::Changed(_) => "changed",
            Outcome::Written => "written",
            Outcome::Untried => "untried",
            Outcome::Aborted(_) => "aborted",
            Outcome::Lost => "lost",
        }
    }

    /// Runs lanes of records in transactions that end as `end` says. Each lane has the items of one key.
    async fn run(
        ownership: &Ownership,
        lanes: Vec<Vec<Item>>,
        end: impl Fn(&[RecordId]) -> Ran + Send + Sync + 'static,
    ) -> Told {
        run_that(false, &fixtures::context(ownership), lanes, end).await
    }

    /// As `run`. `claimed`: the tokens of claims take the place of a fence row.
    async fn run_that(
        claimed: bool,
        context: &ExecContext,
        lanes: Vec<Vec<Item>>,
        end: impl Fn(&[RecordId]) -> Ran + Send + Sync + 'static,
    ) -> Told {
        let (store, me) = (fixtures::store(&MemoryPool::new()), InstanceId::generate());
        let (name, version) = (String::new(), String::new());
        store.join(&NewInstance { id: me, name, version, fence_rows: 2 }).await.unwrap();
        let settler = FenceRow::of_settler(me, Server::default());
        let (freed, evicted) = (Wake::default(), Wake::default());
        let slots = SlotPool::new(store, Default::default(), settler, (1, claimed), freed, evicted);
        let done = unbounded_channel().0;
        let lanes = (0..).zip(lanes).map(|(number, items)| LaneRun::new(LaneId(number), items));
        let mut run = Run::new(fixtures::entry(), lanes.collect());
        let mut flight = Flight::new(&mut run, Arc::new(slots).slot(), &done);
        let trials = Arc::new(Trials { tried: Mutex::default(), end });
        let call: Arc<dyn TransactionalRun> = Arc::<Trials<_>>::clone(&trials);
        run_in_transactions(&mut flight, &fixtures::entry(), &call, context).await;
        let items = run.lanes.iter().flat_map(|lane| &lane.items);
        let ended = items.map(|(item, outcome)| (item.id(), word(outcome))).collect();
        let tried = std::mem::take(&mut *trials.tried.lock().unwrap());
        (tried, ended)
    }

    fn items(ownership: &Ownership, key: &str, ids: &[RecordId]) -> Vec<Item> {
        ids.iter().map(|id| fixtures::item(ownership, fixtures::record(*id, key))).collect()
    }

    fn failed() -> Ran {
        Ran::Failed(HandlerError::new("no"))
    }

    #[tokio::test(start_paused = true)]
    async fn the_records_of_all_lanes_are_tried_together() {
        let ownership = fixtures::owning_all();
        let lanes = vec![items(&ownership, "a", &[1, 3]), items(&ownership, "b", &[2])];
        let (tried, ended) = run(&ownership, lanes, |_| Ran::Committed).await;
        assert_eq!(tried, [(vec![1, 3, 2], vec![])]);
        assert_eq!(ended, [(1, "written"), (3, "written"), (2, "written")]);
    }

    #[tokio::test(start_paused = true)]
    async fn halves_are_tried_down_to_the_record_that_fails() {
        let ownership = fixtures::owning_all();
        let lanes = vec![items(&ownership, "a", &[1, 2, 3]), items(&ownership, "b", &[4])];
        let end = |ids: &[RecordId]| if ids.contains(&2) { failed() } else { Ran::Committed };
        let (tried, ended) = run(&ownership, lanes, end).await;
        let tried: Vec<_> = tried.into_iter().map(|(ids, _)| ids).collect();
        assert_eq!(tried, [vec![1, 2, 3, 4], vec![1, 2], vec![1], vec![2], vec![4]]);
        // The outcome of the second one is to be durable before the third is tried.
        assert_eq!(ended, [(1, "written"), (2, "changed"), (3, "untried"), (4, "written")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_failed_before_is_tried_by_itself() {
        let ownership = fixtures::owning_all();
        let mut lane = items(&ownership, "a", &[1, 2, 3, 4]);
        Arc::get_mut(&mut lane[0].record).unwrap().delivery.attempt = 2;
        lane[2].stops_lane = true;
        let (tried, ended) = run(&ownership, vec![lane], |_| Ran::Committed).await;
        let alone = |id| (vec![id], vec![id]);
        assert_eq!(tried, [alone(1), (vec![2], vec![]), alone(3), (vec![4], vec![])]);
        assert!(ended.iter().all(|(_, word)| *word == "written"), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_that_has_expired_fails_at_its_place_and_is_not_tried() {
        let ownership = fixtures::owning_all();
        let mut lane = items(&ownership, "a", &[1, 2, 3]);
        let other = items(&ownership, "b", &[4]);
        lane[1].expires = Some(ownership.clock().now());
        lane[2].expires = Some(ownership.clock().now() + Duration::from_secs(9));
        let (tried, ended) = run(&ownership, vec![lane, other], |_| Ran::Committed).await;
        assert_eq!(tried, [(vec![1], vec![]), (vec![4], vec![])]);
        assert_eq!(ended, [(1, "written"), (2, "changed"), (3, "untried"), (4, "written")]);
    }

    /// The transaction is open, and then the lease is lost or the deadline passes.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_called_that_may_not_start() {
        let ownership = fixtures::owning_all();
        let lane = items(&ownership, "a", &[1, 2]);
        ownership.lose();
        let (tried, ended) = run(&ownership, vec![lane], |_| Ran::Committed).await;
        assert_eq!(tried.len(), 1);
        assert_eq!(ended, [(1, "untried"), (2, "untried")]);
        ownership.renew(ownership.clock().now(), Duration::from_secs(30));
        let mut lane = items(&ownership, "a", &[1, 2]);
        lane[1].expires = Some(ownership.clock().now() + Duration::from_millis(1));
        let (_, ended) = run(&ownership, vec![lane], |_| Ran::Committed).await;
        assert_eq!(ended, [(1, "untried"), (2, "untried")]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_the_database_counts_for_no_record() {
        let ownership = fixtures::owning_all();
        let lanes = vec![items(&ownership, "a", &[1, 2]), items(&ownership, "b", &[3])];
        let aborts = |_: &[RecordId]| Ran::Aborted(StoreError::new("commit", ErrorClass::Reconnect, "no"));
        let (tried, ended) = run(&ownership, lanes, aborts).await;
        assert_eq!(tried.len(), 1, "the database is not asked again");
        assert_eq!(ended, [(1, "aborted"), (2, "lost"), (3, "lost")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_owner_has_settled_is_lost_and_the_others_are_tried_by_themselves() {
        let ownership = fixtures::owning_all();
        let lanes = vec![items(&ownership, "a", &[1]), items(&ownership, "b", &[2])];
        let end = |ids: &[RecordId]| if ids.contains(&2) { Ran::Fenced } else { Ran::Committed };
        let (tried, ended) = run(&ownership, lanes, end).await;
        let tried: Vec<_> = tried.into_iter().map(|(ids, _)| ids).collect();
        assert_eq!(tried, [vec![1, 2], vec![1], vec![2]]);
        assert_eq!(ended, [(1, "written"), (2, "lost")]);
    }

    /// The commit may have happened: a call of a half would be one without a claim.
    #[tokio::test(start_paused = true)]
    async fn claimed_records_whose_commit_is_unknown_are_not_tried_again() {
        let unknown = |_: &[RecordId]| Ran::Unknown(StoreError::new("commit", ErrorClass::Reconnect, "no"));
        let ((tried, ended), told) = run_claimed(unknown).await;
        assert_eq!((tried.len(), ended), (1, vec![(1, "lost"), (2, "lost")]));
        assert_eq!(told, ["commit"]);
    }

    #[tokio::test(start_paused = true)]
    async fn claimed_records_go_on_without_the_one_that_met_a_failure_of_the_database() {
        let aborts = |_: &[RecordId]| Ran::Aborted(StoreError::new("begin", ErrorClass::Reconnect, "no"));
        let ((tried, ended), _) = run_claimed(aborts).await;
        assert_eq!((tried.len(), ended), (1, vec![(1, "aborted"), (2, "untried")]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_has_gone_is_told_and_the_others_are_tried_by_themselves() {
        let end = |ids: &[RecordId]| if ids.contains(&2) { Ran::Fenced } else { Ran::Committed };
        let ((tried, ended), told) = run_claimed(end).await;
        assert_eq!((tried.len(), ended), (3, vec![(1, "written"), (2, "lost")]));
        assert_eq!(told, ["outlived"]);
    }
}
