//! The station of claims: the records that this instance has claimed, and what to claim next.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Wanted, outcomes::Outcomes, pace::Pace, queues::Queues, wants::Wants};
use crate::{
    delivery::{
        ERROR_PAUSE,
        config::DeliveryConfig,
        outcome::{Outcome, Run},
        shares::{Shares, Vacancy},
        signals::{crashed, failed},
        work::Item,
    },
    handler::{Entry, Registry},
    instance::InstanceId,
    ownership::Ownership,
    record::{Change, Record, RecordId},
    rules::{
        claim::{Found, claim_size, crashes_of_a_suspect, renew_after},
        crashes::{Care, is_spent},
        pacing::FetchLimits,
    },
    store::{ClaimEnd, ClaimOutcome, Claimed, Handlers, Source},
    telemetry::Signal,
};

/// The pause until a record without a handler in this build may be claimed again, by any instance.
const UNKNOWN_PAUSE: Duration = Duration::from_secs(30);
/// The stored error of such a record.
const UNKNOWN: &str = "the instance that claimed it has no handler for it";

/// A record that this instance has claimed.
struct Held {
    /// The token of the claim.
    token: i64,
    /// The bytes of its payload.
    bytes: usize,
}

/// The claims of one instance.
pub(in crate::delivery) struct Claims {
    /// Claims without a durable outcome. Added by `admit`, removed by `settled` and `remove`.
    held: HashMap<RecordId, Held>,
    /// The payload bytes of the claims. Follows `held`.
    bytes: usize,
    /// The claimed records that wait for their calls.
    waiting: Queues,
    /// Outcomes that wait for a write. Pushed by `land`, `admit` and `stop`, taken by `next_outcomes`.
    outcomes: Outcomes,
    /// What to claim next.
    wants: Wants,
    /// The suspect among the claims. Only one is held, so that the next crash counts against it alone. Set by
    /// `admit`, cleared when the claim ends.
    suspect: Option<RecordId>,
    /// The crashes at which a suspect fails. Never changes.
    max_crashes: u32,
    /// Signals that wait to be emitted. Pushed by `admit` and `land`, taken by `take_signals`.
    signals: Vec<Signal>,
    /// How claims and writes of outcomes alternate. Updated by `admit`.
    pace: Pace,
    /// How many handlers the last claim left out, because they had enough. Set by `next_claim`.
    left_out: usize,
    /// When the leases are renewed. Set by `admit` and `next_renewal`, cleared when nothing is held.
    renew_at: Option<Instant>,
    /// Whether nothing more is claimed or run. Set by `stop`.
    stopping: bool,
    /// The length of a lease. Never changes.
    lease: Duration,
    /// The limits of claims. Never changes.
    limits: FetchLimits,
}

impl Claims {
    pub(in crate::delivery) fn new(
        me: InstanceId,
        config: &DeliveryConfig,
        shares: Shares,
        now: Instant,
    ) -> Self {
        Self {
            held: HashMap::new(),
            bytes: 0,
            waiting: Queues::new(shares, now),
            outcomes: Outcomes::default(),
            wants: Wants::new(me, config.poll_interval, now),
            suspect: None,
            max_crashes: config.max_crashes,
            signals: Vec::new(),
            pace: Pace::default(),
            left_out: 0,
            renew_at: None,
            stopping: false,
            lease: config.claim_lease,
            limits: config.memory(),
        }
    }

    /// There may be pending records.
    pub(in crate::delivery) fn want(&mut self) {
        self.wants.want();
    }

    /// What to claim now, if anything.
    pub(in crate::delivery) fn next_claim(&mut self, entries: usize, now: Instant) -> Option<Wanted> {
        let full = self.waiting.with_enough(self.limits.batch_size);
        if full.len() < self.left_out {
            self.wants.want_all();
            self.left_out = full.len();
        }
        if self.stopping || !self.wants.is_any(now) {
            return None;
        }
        let limit = claim_size(self.limits, self.held.len(), self.bytes, self.waiting.is_shared());
        if limit == 0 {
            // The payloads of a claim were larger than those before it.
            self.waiting.take_excess(self.limits.batch_size).into_iter().for_each(|item| self.release(&item));
        }
        if limit == 0 || full.len() >= entries {
            return None;
        }
        let source = self.wants.next(self.suspect.is_some())?;
        self.left_out = full.len();
        let limit = match source {
            Source::Pending(reading) => reading.limit(limit),
            Source::Due => limit,
            Source::Suspect => 1,
        };
        Some(Wanted { source, handlers: Handlers::Except(full), limit })
    }

    /// A claim has failed: the next one waits.
    pub(in crate::delivery) fn claim_failed(&mut self, wanted: &Wanted, now: Instant) {
        self.wants.failed(wanted.source, now);
    }

    /// Adds claimed records. Their leases began at `began`, on the clock.
    pub(in crate::delivery) fn admit(
        &mut self,
        wanted: &Wanted,
        claimed: Claimed,
        (registry, ownership): (&Registry, &Ownership),
        (began, now): (Duration, Instant),
    ) {
        let Claimed { records, selected, is_full, crashes } = claimed;
        let claimed = records.len();
        if claimed != selected {
            self.signals.push(Signal::ClaimsDiffer { selected, claimed });
        }
        let ids = records.iter().map(|record| record.delivery.id);
        let last = records.iter().map(|record| record.delivery.partition).max();
        let found = Found { ids: ids.clone().min().zip(ids.max()), last, is_full };
        self.pace.claimed(wanted.source, found.ids, claimed, now);
        self.wants.found(wanted.source, found);
        if claimed > 0 {
            self.signals.push(Signal::Fetched { records: claimed });
            self.renew_at.get_or_insert(now + renew_after(self.lease));
        }
        for record in records {
            if wanted.source == Source::Suspect {
                self.suspect = Some(record.delivery.id);
            }
            let entry = registry.entry(&record.delivery.handler, &record.delivery.record_type);
            self.take_in(record, entry, ownership, (began, crashes_of_a_suspect(crashes)));
        }
        if self.stopping {
            self.release_waiting();
        }
    }

    fn take_in(
        &mut self,
        record: Arc<Record>,
        entry: Option<&Arc<Entry>>,
        ownership: &Ownership,
        (began, crashes): (Duration, u32),
    ) {
        let (id, token, bytes) = (record.delivery.id, record.delivery.generation.0, record.payload.len());
        self.bytes += bytes;
        if let Some(before) = self.held.insert(id, Held { token, bytes }) {
            self.bytes = self.bytes.saturating_sub(before.bytes);
        }
        match (entry, ownership.permit(record.delivery.partition)) {
            (Some(entry), Some(_)) if is_spent(crashes, self.max_crashes) => {
                self.give_up(&record, crashes, entry);
            }
            (Some(entry), Some(permit)) => {
                let expires = record.delivery.expires_in.map(|left| began + left);
                let item = Item { record, permit, stops_lane: false, care: Care::Usual, expires };
                self.waiting.push(entry, item);
            }
            _ => {
                let record_type = record.delivery.record_type.to_string();
                self.signals.push(Signal::Unroutable { record: id, lane: record.lane(), record_type });
                self.wait_for_another_build(id, token);
            }
        }
    }

    /// A suspect that has met too many crashes has failed. Its fallback is not called either.
    fn give_up(&mut self, record: &Record, crashes: u32, entry: &Entry) {
        let (id, token, error) = (record.delivery.id, record.delivery.generation.0, crashed(crashes));
        self.signals.push(failed(record, record.delivery.attempt, &error, entry.lane_rules));
        self.end(id, token, ClaimEnd::Fail { error, counted: true });
    }

    /// The next run of a kind.
    pub(in crate::delivery) fn next_run(&mut self, vacancy: Vacancy, now: Instant) -> Option<Run> {
        if self.stopping {
            return None;
        }
        self.waiting.next_run(vacancy, now)
    }

    /// Adds the outcomes of a run.
    pub(in crate::delivery) fn land(&mut self, run: Run, now: Instant) {
        self.waiting.land(&run);
        // From the end, so that records that were not tried keep their places.
        for (item, outcome) in run.lanes.into_iter().rev().flat_map(|lane| lane.items.into_iter().rev()) {
            let (id, token) = (item.id(), item.record.delivery.generation.0);
            match outcome {
                Outcome::Completed => self.end(id, token, ClaimEnd::Complete),
                Outcome::Changed(change) => self.change(id, token, *change, now),
                Outcome::Written | Outcome::Lost => self.remove(id, token),
                Outcome::Untried if self.stopping => self.end(id, token, ClaimEnd::Release),
                // A lapse has removed it.
                Outcome::Untried if !self.holds(id, token) => {}
                Outcome::Untried => self.waiting.put_back(run.entry.number, item),
                Outcome::Aborted(error) => {
                    self.signals.push(Signal::StoreFailed { call: error.call, error: error.chain() });
                    let error = error.chain();
                    let (delay, counted) = (ERROR_PAUSE, false);
                    self.change(id, token, Change::Retry { delay, error, stop: false, counted }, now);
                }
            }
        }
    }

    fn change(&mut self, id: RecordId, token: i64, change: Change, now: Instant) {
        match change {
            Change::Retry { delay, error, counted, .. } => {
                self.wants.due_in(delay, now);
                self.end(id, token, ClaimEnd::Retry { delay, error, counted });
            }
            Change::Fail { error, counted, .. } => self.end(id, token, ClaimEnd::Fail { error, counted }),
            Change::Unroutable => self.wait_for_another_build(id, token),
            Change::Complete | Change::CompleteAndResume => self.end(id, token, ClaimEnd::Complete),
            // Changes of lanes, of which claimed mode has none.
            Change::Resume | Change::Release | Change::StopRelease { .. } | Change::Hold { .. } => {}
        }
    }

    fn wait_for_another_build(&mut self, id: RecordId, token: i64) {
        let error = UNKNOWN.to_owned();
        self.end(id, token, ClaimEnd::Retry { delay: UNKNOWN_PAUSE, error, counted: false });
    }

    fn end(&mut self, id: RecordId, token: i64, end: ClaimEnd) {
        self.outcomes.push(ClaimOutcome { id, token, end });
    }

    /// The outcomes of the next write, the oldest first. They wait a moment for runs under way.
    pub(in crate::delivery) fn next_outcomes(&mut self, now: Instant) -> Option<Vec<ClaimOutcome>> {
        self.outcomes.next(self.limits.batch_size, self.waiting.is_running(), now)
    }

    /// Whether claims and writes of outcomes take turns. If the database has one writer, the two would only wait
    /// for each other. Beside other instances, records that are claimed ahead make their claims slower.
    pub(in crate::delivery) fn are_in_turn(&self, one_writer: bool) -> bool {
        one_writer || self.pace.meets_others()
    }

    /// Whether what was claimed last still runs and its outcomes may come within a moment.
    pub(in crate::delivery) fn settles_soon(&self, now: Instant) -> bool {
        self.waiting.is_running() && self.pace.settles_by().is_some_and(|by| now < by)
    }

    /// These outcomes are durable or belong to claims that have ended, except those of the refused records.
    pub(in crate::delivery) fn settled(
        &mut self,
        outcomes: Vec<ClaimOutcome>,
        refused: &[RecordId],
        now: Instant,
    ) {
        for outcome in outcomes {
            let (id, token) = (outcome.id, outcome.token);
            match refused.contains(&id) && self.holds(id, token) && !self.stopping {
                true => self.outcomes.refuse(outcome, now),
                false => self.remove(id, token),
            }
        }
    }

    /// The records whose leases are to be renewed now, with the tokens of their claims.
    pub(in crate::delivery) fn next_renewal(&mut self, now: Instant) -> Option<Vec<(RecordId, i64)>> {
        self.renew_at.filter(|at| *at <= now)?;
        self.renew_at = (!self.held.is_empty()).then(|| now + renew_after(self.lease));
        self.renew_at.map(|_| self.held.iter().map(|(id, held)| (*id, held.token)).collect())
    }

    /// The renewal has failed: the next one comes soon.
    pub(in crate::delivery) fn renew_again(&mut self, now: Instant) {
        self.renew_at = self.renew_at.map(|_| now + ERROR_PAUSE);
    }

    /// These claims have ended: they are settled, or have newer owners. Returns how many have newer owners. A record
    /// may have been settled and claimed again by this instance since: that claim has another token, and stays.
    pub(in crate::delivery) fn lost(&mut self, claims: impl Iterator<Item = (RecordId, i64)>) -> usize {
        let held = claims.filter(|(id, token)| self.holds(*id, *token));
        let records: Vec<RecordId> = held.map(|(id, _)| id).collect();
        self.waiting.remove(&records);
        self.suspect = self.suspect.filter(|suspect| !records.contains(suspect));
        let lost = records.iter().filter_map(|id| self.held.remove(id));
        self.bytes = self.bytes.saturating_sub(lost.map(|held| held.bytes).sum());
        records.len()
    }

    /// The lease has lapsed: other instances may have claimed the records. Known outcomes are still written,
    /// unless a newer claim has come.
    pub(in crate::delivery) fn lapse(&mut self) {
        self.waiting.take_all().for_each(drop);
        self.held.clear();
        (self.bytes, self.renew_at, self.suspect) = (0, None, None);
        self.wants.want_all();
    }

    /// Nothing more begins: records that wait are released.
    pub(in crate::delivery) fn stop(&mut self) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.release_waiting();
            // The last try: if an outcome is refused again, its record comes again after the lease.
            self.outcomes.retry_all();
        }
    }

    fn release_waiting(&mut self) {
        let waiting: Vec<Item> = self.waiting.take_all().collect();
        waiting.iter().for_each(|item| self.release(item));
    }

    fn release(&mut self, item: &Item) {
        self.end(item.id(), item.record.delivery.generation.0, ClaimEnd::Release);
    }

    /// Whether nothing is held and nothing is to be written.
    pub(in crate::delivery) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.outcomes.is_empty()
    }

    /// The records in memory.
    pub(in crate::delivery) fn held(&self) -> usize {
        self.held.len()
    }

    pub(in crate::delivery) fn take_signals(&mut self) -> Vec<Signal> {
        std::mem::take(&mut self.signals)
    }

    /// When to call `fire`.
    pub(in crate::delivery) fn next_timer(&self, now: Instant) -> Instant {
        // A run whose time has come waits for the end of another run.
        let start = self.waiting.next_start().filter(|at| *at > now);
        let write = self.outcomes.next_write(self.limits.batch_size).filter(|at| *at > now);
        let settled = self.pace.settles_by().filter(|at| *at > now);
        // A renewal whose time has come waits for the end of the one under way.
        let renew = self.renew_at.filter(|at| *at > now);
        let others = [renew, start, self.outcomes.next_retry(), write, settled].into_iter().flatten();
        others.fold(self.wants.next_timer(now), Instant::min)
    }

    /// Takes the timers whose time has come.
    pub(in crate::delivery) fn fire(&mut self, now: Instant) {
        self.wants.fire(now);
        let held = &self.held;
        let holds = |id, token| held.get(&id).is_some_and(|held| held.token == token);
        self.outcomes.retry(now, |outcome| holds(outcome.id, outcome.token));
    }

    fn holds(&self, id: RecordId, token: i64) -> bool {
        self.held.get(&id).is_some_and(|held| held.token == token)
    }

    fn remove(&mut self, id: RecordId, token: i64) {
        if self.holds(id, token)
            && let Some(held) = self.held.remove(&id)
        {
            self.bytes = self.bytes.saturating_sub(held.bytes);
            self.outcomes.end(id);
            if self.suspect.take_if(|suspect| *suspect == id).is_some() {
                self.wants.want_suspect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{delivery::fixtures, instance::Generation, rules::claim::Reading};

    fn claims(config: &DeliveryConfig) -> Claims {
        Claims::new(InstanceId::generate(), config, fixtures::shares(), Instant::now())
    }

    /// The answer of a database with these pending records.
    fn answer(wanted: &Wanted, pending: &mut Vec<Record>) -> Claimed {
        let is_read = |record: &Record| match wanted.source {
            Source::Due | Source::Suspect => false,
            Source::Pending(Reading::Index { from }) => record.delivery.partition >= from,
            Source::Pending(Reading::Ids { from }) => record.delivery.id >= from,
        };
        let (mut found, mut rest): (Vec<_>, Vec<_>) = pending.drain(..).partition(is_read);
        match wanted.source {
            Source::Pending(Reading::Index { .. }) => {
                found.sort_by_key(|record| (record.delivery.partition, record.delivery.id));
            }
            _ => found.sort_by_key(|record| record.delivery.id),
        }
        rest.extend(found.split_off(found.len().min(wanted.limit)));
        *pending = rest;
        found.iter_mut().for_each(|record| record.delivery.generation = Generation(1));
        let (selected, is_full) = (found.len(), found.len() >= wanted.limit);
        Claimed { selected, is_full, crashes: 0, records: found.into_iter().map(Arc::new).collect() }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

        /// Every record is claimed, run and given back or completed, once, within the limits of memory.
        #[test]
        fn every_record_is_claimed_and_ends_once(
            count in 0_i64..300,
            batch in 1_usize..40,
            stops_after in 0_usize..60,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
            runtime.unwrap().block_on(async {
                let config =
                    DeliveryConfig { batch_size: batch, max_in_flight: 2 * batch, ..DeliveryConfig::default() };
                let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
                let mut pending: Vec<Record> =
                    (1..=count).map(|id| fixtures::record(id, &format!("key-{}", id % 50))).collect();
                let (mut claims, mut ended) = (claims(&config), BTreeSet::new());
                for turn in 0.. {
                    let now = Instant::now();
                    if turn == stops_after {
                        claims.stop();
                    }
                    let wanted = claims.next_claim(1, now);
                    if let Some(wanted) = &wanted {
                        let claimed = answer(wanted, &mut pending);
                        claims.admit(wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
                    }
                    prop_assert!(claims.held() <= 2 * batch);
                    while let Some(mut run) = claims.next_run(fixtures::PLAIN, now) {
                        run.lanes.iter_mut().for_each(|lane| {
                            lane.end(Outcome::Completed);
                        });
                        claims.land(Run { goes_on: false, ..run }, now);
                    }
                    let outcomes = claims.next_outcomes(now);
                    let wrote = outcomes.is_some();
                    for outcome in outcomes.iter().flatten() {
                        prop_assert!(ended.insert(outcome.id), "{} has ended before", outcome.id);
                    }
                    claims.settled(outcomes.unwrap_or_default(), &[], now);
                    if wanted.is_none() && !wrote {
                        break;
                    }
                }
                prop_assert!(claims.is_empty());
                prop_assert_eq!(ended.len() + pending.len(), count as usize);
                prop_assert!(claims.stopping || pending.is_empty());
                prop_assert_eq!(ownership.permits_out(), 0);
                Ok(())
            })?;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_found_more_than_it_updated_is_told() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        let mut differ = |selected| {
            claims.want();
            let wanted = claims.next_claim(1, now).unwrap();
            let records = vec![fixtures::record(1, "a").into(), fixtures::record(2, "b").into()];
            let claimed = Claimed { records, selected, is_full: false, crashes: 0 };
            claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
            claims.take_signals().into_iter().find_map(|signal| match signal {
                Signal::ClaimsDiffer { selected, claimed } => Some((selected, claimed)),
                _ => None,
            })
        };
        assert_eq!((differ(2), differ(3)), (None, Some((3, 2))));
    }

    /// A commit after the claim was sent is not in its answer.
    #[tokio::test(start_paused = true)]
    async fn what_is_wanted_while_a_claim_is_under_way_is_claimed_after_it() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        let claim = |claims: &mut Claims, woken: bool| {
            let wanted = claims.next_claim(1, now)?;
            if woken {
                claims.want();
            }
            claims.admit(&wanted, Claimed::default(), (&registry, &ownership), (Duration::ZERO, now));
            Some(())
        };
        while claim(&mut claims, false).is_some() {}
        claims.want();
        assert!(claim(&mut claims, true).is_some());
        assert!(claim(&mut claims, false).is_some(), "it was woken meanwhile");
        assert!(claim(&mut claims, false).is_none());
    }

    /// What another owner has is not called, and takes no memory. Its suspicion is that owner's concern.
    /// In turns, the next claim waits for the outcomes of what runs, but not for long.
    #[tokio::test(start_paused = true)]
    async fn outcomes_that_come_soon_are_written_before_the_next_claim() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        assert!(claims.are_in_turn(true) && !claims.are_in_turn(false) && !claims.settles_soon(now));
        let mut pending = vec![fixtures::record(5, "a"), fixtures::record(9, "b")];
        let mut wanted = claims.next_claim(1, now).unwrap();
        wanted.source = Source::Pending(Reading::Ids { from: 5 });
        let claimed = answer(&wanted, &mut pending);
        claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
        assert!(claims.are_in_turn(false), "others have claimed what is between");
        let (one, two) =
            (claims.next_run(fixtures::PLAIN, now).unwrap(), claims.next_run(fixtures::PLAIN, now).unwrap());
        let land = |claims: &mut Claims, mut run: Run| {
            run.lanes.iter_mut().for_each(|lane| {
                lane.end(Outcome::Completed);
            });
            claims.land(Run { goes_on: false, ..run }, now);
        };
        land(&mut claims, one);
        assert!(claims.settles_soon(now) && claims.next_outcomes(now).is_none(), "the other one still runs");
        let later = now + Duration::from_millis(2);
        assert!(claims.next_timer(now) <= later && !claims.settles_soon(later));
        land(&mut claims, two);
        assert!(!claims.settles_soon(now));
        assert_eq!(claims.next_outcomes(now).map(|outcomes| outcomes.len()), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_renewal_has_lost_is_not_called() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        let wanted = claims.next_claim(1, now).unwrap();
        let records = vec![fixtures::record(1, "a").into(), fixtures::record(2, "a").into()];
        let claimed = Claimed { selected: 2, records, ..Claimed::default() };
        claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
        let token = fixtures::record(1, "a").delivery.generation.0;
        assert_eq!(claims.lost([(1, token - 1)].into_iter()), 0, "a claim before this one has ended");
        assert_eq!(claims.lost([(1, token), (7, token)].into_iter()), 1);
        assert_eq!(claims.held(), 1);
        let left = claims.next_run(fixtures::PLAIN, now).unwrap();
        assert_eq!(left.lanes[0].items[0].0.id(), 2);
        assert!(claims.next_run(fixtures::PLAIN, now).is_none());
    }

    /// A timer that had passed would fire again and again until the database has answered.
    #[tokio::test(start_paused = true)]
    async fn the_next_renewal_waits_for_the_one_under_way() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let config = DeliveryConfig { poll_interval: Duration::from_secs(60), ..DeliveryConfig::default() };
        let (mut claims, now) = (claims(&config), Instant::now());
        claims.fire(now);
        let wanted = claims.next_claim(1, now).unwrap();
        let claimed =
            Claimed { selected: 1, records: vec![fixtures::record(1, "a").into()], ..Claimed::default() };
        claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
        let renewal = now + renew_after(config.claim_lease);
        assert_eq!(claims.next_timer(now + Duration::from_secs(1)), renewal);
        let token = fixtures::record(1, "a").delivery.generation.0;
        assert_eq!(claims.next_renewal(renewal), Some(vec![(1, token)]));
        let next = renewal + renew_after(config.claim_lease);
        assert_eq!(claims.next_timer(renewal), next);
        assert!(claims.next_timer(next) > next, "it is still under way");
        assert_eq!(claims.next_renewal(next), Some(vec![(1, token)]), "it has ended");
    }

    /// One suspect is held at a time, and one that is spent is not called.
    #[tokio::test(start_paused = true)]
    async fn a_suspect_is_alone_and_is_given_up_in_time() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        claims.fire(now);
        for crashes in [4, 5] {
            let mut sources = Vec::new();
            while let Some(wanted) = claims.next_claim(1, now) {
                sources.push(wanted.source);
                let records = match wanted.source {
                    Source::Suspect => vec![fixtures::record(i64::from(crashes), "a").into()],
                    _ => Vec::new(),
                };
                let claimed = Claimed { selected: records.len(), records, is_full: false, crashes };
                claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
                claims.wants.want_suspect();
                if claims.suspect.is_some() {
                    break;
                }
            }
            assert!(sources.contains(&Source::Suspect));
            assert!(claims.next_claim(1, now).is_none_or(|wanted| wanted.source != Source::Suspect));
            assert_eq!(claims.next_run(fixtures::PLAIN, now).is_some(), crashes == 4);
            let id = i64::from(crashes);
            match claims.next_outcomes(now) {
                None => claims.remove(id, fixtures::record(id, "a").delivery.generation.0),
                Some(outcomes) => {
                    assert!(matches!(outcomes[0].end, ClaimEnd::Fail { counted: true, .. }));
                    claims.settled(outcomes, &[], now);
                }
            }
            assert_eq!(claims.suspect, None);
        }
    }

    /// A lapse clears the claims. What has ended before is written nevertheless.
    #[tokio::test(start_paused = true)]
    async fn a_lapse_clears_what_was_claimed() {
        let (registry, ownership) = (fixtures::registry(|_| Ok(())), fixtures::owning_all());
        let (mut claims, now) = (claims(&DeliveryConfig::default()), Instant::now());
        let wanted = claims.next_claim(1, now).unwrap();
        let records = (1..=3).map(|id| Arc::new(fixtures::record(id, "a"))).collect();
        let claimed = Claimed { selected: 3, is_full: false, crashes: 0, records };
        claims.admit(&wanted, claimed, (&registry, &ownership), (Duration::ZERO, now));
        let [done, untried] = [0, 1].map(|_| claims.next_run(fixtures::PLAIN, now).unwrap());
        claims.lapse();
        assert_eq!((claims.held(), claims.next_run(fixtures::PLAIN, now).is_none()), (0, true));
        for (mut run, outcome) in [(done, Outcome::Completed), (untried, Outcome::Untried)] {
            run.lanes[0].items[0].1 = outcome;
            claims.land(Run { goes_on: false, ..run }, now);
        }
        assert_eq!(claims.next_outcomes(now).map(|outcomes| outcomes.len()), Some(1));
        assert!(
            claims.next_run(fixtures::PLAIN, now).is_none(),
            "what was not tried is not run without a claim"
        );
    }
}
