//! Ownership: the seam between the wings. The cluster wing grants and drains partitions; the delivery wing
//! takes permits.
//!
//! A permit goes with a record from the fetch until its outcome is durable: a partition is drained exactly
//! when it has no permits. The lease is one deadline for all partitions. When it passes, every permit becomes
//! invalid without a message.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use crossbeam_utils::CachePadded;
use tokio::sync::{Notify, watch};

use crate::{
    clock::Clock,
    instance::Generation,
    partition::{PARTITION_COUNT, Partition, PartitionSet},
    rules::lease,
    vitals::Vitals,
    wake::Wake,
};

/// The largest lead of the wall clock over the monotonic clock since a heartbeat. With a larger lead, the
/// process was stopped meanwhile.
const JUMP_TOLERANCE: Duration = Duration::from_millis(500);

/// The partitions and the lease of this instance.
#[derive(Clone)]
pub(crate) struct Ownership(Arc<Shared>);

/// The parts are padded: tasks on all threads read the lease and the owners before each call, while the
/// dispatcher counts permits for each record.
struct Shared {
    clock: Clock,
    lease: CachePadded<Lease>,
    slots: CachePadded<[Slot; PARTITION_COUNT]>,
    /// The number of permits per partition. Raised by `permit`, lowered when a permit is dropped.
    permits: CachePadded<[AtomicU32; PARTITION_COUNT]>,
    returned: Notify,
    changed: Wake,
    /// The count of the cluster's changes at the last poll. Set by `publish_changes`.
    changes: watch::Sender<i64>,
    /// The time of the delivery wing's last poll, in microseconds on the clock. Set by `publish_changes`.
    polled_at: AtomicU64,
    vitals: Vitals,
}

#[derive(Default)]
struct Lease {
    /// The end of the lease, in microseconds on the clock; 0 without a lease. Set by `renew` and `lose`.
    trusted_until: AtomicU64,
    /// Both clocks at the last renewal, in microseconds. Set by `renew`.
    wall_at: AtomicU64,
    clock_at: AtomicU64,
}

#[derive(Default)]
struct Slot {
    /// The generation of the claim, at least 1; 0 if the partition is not owned. Set by `grant` and `clear`.
    generation: AtomicI64,
    draining: AtomicBool,
}

impl Ownership {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            clock,
            lease: CachePadded::new(Lease {
                trusted_until: AtomicU64::new(0),
                wall_at: AtomicU64::new(clock.wall().as_micros() as u64),
                clock_at: AtomicU64::new(clock.now().as_micros() as u64),
            }),
            slots: CachePadded::new(std::array::from_fn(|_| Slot::default())),
            permits: CachePadded::new(std::array::from_fn(|_| AtomicU32::new(0))),
            returned: Notify::new(),
            changed: Wake::default(),
            changes: watch::Sender::new(0),
            polled_at: AtomicU64::new(0),
            vitals: Vitals::default(),
        }))
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The health of both wings, written by them.
    pub(crate) fn vitals(&self) -> &Vitals {
        &self.0.vitals
    }

    /// Wakes when partitions were granted, drained or cleared, or the lease was renewed after a lapse or
    /// lost.
    pub(crate) fn changed(&self) -> &Wake {
        &self.0.changed
    }

    /// Publishes the count of the cluster's changes, which a poll of the delivery wing has read.
    pub(crate) fn publish_changes(&self, changes: i64) {
        self.0.polled_at.store(self.0.clock.now().as_micros() as u64, SeqCst);
        self.0.changes.send_if_modified(|seen| std::mem::replace(seen, changes) != changes);
    }

    /// The count of the cluster's changes. The receiver wakes when it changes.
    pub(crate) fn changes(&self) -> watch::Receiver<i64> {
        self.0.changes.subscribe()
    }

    /// Whether the delivery wing has polled since this time of the clock.
    pub(crate) fn has_polled_since(&self, time: Duration) -> bool {
        Duration::from_micros(self.0.polled_at.load(SeqCst)) >= time
    }

    /// Renews the lease after a heartbeat that was sent at `sent_at`.
    pub(crate) fn renew(&self, sent_at: Duration, stale_timeout: Duration) {
        let held = self.lease_holds();
        let until = lease::trusted_until(sent_at, stale_timeout).as_micros() as u64;
        // The wall clock is stored first: a reader between the two stores sees less wall time, not more.
        self.0.lease.wall_at.store(self.0.clock.wall().as_micros() as u64, SeqCst);
        self.0.lease.clock_at.store(self.0.clock.now().as_micros() as u64, SeqCst);
        self.0.lease.trusted_until.fetch_max(until, SeqCst);
        if !held {
            self.0.changed.nudge();
        }
    }

    /// Ends the lease, because this instance was evicted or stops.
    pub(crate) fn lose(&self) {
        self.0.lease.trusted_until.store(0, SeqCst);
        self.0.changed.nudge();
    }

    /// The time until the end of the lease.
    pub(crate) fn lease_left(&self) -> Duration {
        let until = Duration::from_micros(self.0.lease.trusted_until.load(SeqCst));
        until.saturating_sub(self.0.clock.now())
    }

    /// The time since the end of the lease.
    pub(crate) fn lapsed_for(&self) -> Duration {
        let until = Duration::from_micros(self.0.lease.trusted_until.load(SeqCst));
        self.0.clock.now().saturating_sub(until)
    }

    pub(crate) fn lease_holds(&self) -> bool {
        self.0.trusted_now().is_some()
    }

    /// Takes over the claims of this instance from the database. Returns the partitions whose claim is new.
    pub(crate) fn grant(&self, owned: &[(Partition, Generation)]) -> PartitionSet {
        let mut granted = PartitionSet::EMPTY;
        for (partition, generation) in owned {
            let slot = &self.0.slots[partition.index()];
            if slot.generation.swap(generation.0, SeqCst) != generation.0 {
                slot.draining.store(false, SeqCst);
                granted.insert(*partition);
            }
        }
        if !granted.is_empty() {
            self.0.changed.nudge();
        }
        granted
    }

    /// Drains partitions: no permit is given for them, and no new call starts under an old permit.
    pub(crate) fn drain(&self, partitions: PartitionSet) {
        for partition in partitions.iter() {
            self.0.slots[partition.index()].draining.store(true, SeqCst);
        }
        self.0.changed.nudge();
    }

    /// The draining partitions without permits.
    pub(crate) fn drained(&self) -> PartitionSet {
        let idle = |partition: &Partition| {
            let slot = &self.0.slots[partition.index()];
            let draining = slot.generation.load(SeqCst) != 0 && slot.draining.load(SeqCst);
            draining && self.permits(*partition) == 0
        };
        Partition::all().filter(idle).collect()
    }

    /// Clears partitions after their release.
    pub(crate) fn clear(&self, partitions: PartitionSet) {
        for partition in partitions.iter() {
            let slot = &self.0.slots[partition.index()];
            slot.generation.store(0, SeqCst);
            slot.draining.store(false, SeqCst);
        }
        // A view of the cluster that changes nothing is no reason to fetch.
        if !partitions.is_empty() {
            self.0.changed.nudge();
        }
    }

    /// The owned partitions, draining or not, with or without a valid lease.
    pub(crate) fn held(&self) -> PartitionSet {
        Partition::all().filter(|partition| self.generation(*partition).is_some()).collect()
    }

    /// The partitions that may be worked on now: owned, not draining, and the lease holds.
    pub(crate) fn owned(&self) -> PartitionSet {
        if !self.lease_holds() {
            return PartitionSet::EMPTY;
        }
        Partition::all().filter(|partition| self.is_open(*partition)).collect()
    }

    /// The partitions that may be worked on now and have no permits.
    pub(crate) fn idle(&self) -> PartitionSet {
        self.owned().iter().filter(|partition| self.permits(*partition) == 0).collect()
    }

    pub(crate) fn is_open(&self, partition: Partition) -> bool {
        let slot = &self.0.slots[partition.index()];
        slot.generation.load(SeqCst) != 0 && !slot.draining.load(SeqCst)
    }

    pub(crate) fn generation(&self, partition: Partition) -> Option<Generation> {
        let generation = self.0.slots[partition.index()].generation.load(SeqCst);
        (generation != 0).then_some(Generation(generation))
    }

    /// A permit to work on one record of the partition. The lease is not checked here, but before each call.
    pub(crate) fn permit(&self, partition: Partition) -> Option<Permit> {
        let slot = &self.0.slots[partition.index()];
        self.0.permits[partition.index()].fetch_add(1, SeqCst);
        let generation = Generation(slot.generation.load(SeqCst));
        let permit = Permit(Ticket { shared: Arc::clone(&self.0), partition, generation });
        // The permit is counted before the partition is checked, so that either a drain sees the permit or
        // the permit sees the drain.
        (generation.0 != 0 && !slot.draining.load(SeqCst)).then_some(permit)
    }

    /// The number of permits of this partition.
    pub(crate) fn permits(&self, partition: Partition) -> usize {
        self.0.permits[partition.index()].load(SeqCst) as usize
    }

    /// The number of permits of all partitions.
    pub(crate) fn permits_out(&self) -> usize {
        self.0.permits.iter().map(|permits| permits.load(SeqCst) as usize).sum()
    }

    /// Returns after a permit was dropped. Cancel safe.
    pub(crate) async fn permit_returned(&self) {
        self.0.returned.notified().await;
    }
}

impl Shared {
    /// The time on the clock, if the lease holds now.
    fn trusted_now(&self) -> Option<Duration> {
        let before =
            [&self.lease.wall_at, &self.lease.clock_at].map(|at| Duration::from_micros(at.load(SeqCst)));
        let now = self.clock.now();
        let until = Duration::from_micros(self.lease.trusted_until.load(SeqCst));
        let after = (self.clock.wall(), now);
        let holds = now < until && !lease::clocks_jumped((before[0], before[1]), after, JUMP_TOLERANCE);
        holds.then_some(now)
    }
}

/// The right to work on one record, as long as it lives.
pub(crate) struct Permit(Ticket);

impl Permit {
    pub(crate) fn partition(&self) -> Partition {
        self.0.partition
    }

    pub(crate) fn generation(&self) -> Generation {
        self.0.generation
    }

    /// The time on the clock, if a handler call may start now: the claim is the same, the partition is not
    /// draining, and the lease holds.
    pub(crate) fn starts_at(&self) -> Option<Duration> {
        self.0.is_current().then(|| self.0.shared.trusted_now()).flatten()
    }

    /// Whether a handler call may start now.
    pub(crate) fn may_start(&self) -> bool {
        self.starts_at().is_some()
    }

    /// Whether work that has begun may go on: the claim is the same, draining or not, and the lease holds.
    pub(crate) fn may_go_on(&self) -> bool {
        self.0.is_owned() && self.0.shared.trusted_now().is_some()
    }

    /// Whether the claim is the same as when the permit was given, and the partition is not draining.
    pub(crate) fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// A ticket that answers the same question later, without the right.
    pub(crate) fn ticket(&self) -> Ticket {
        self.0.clone()
    }
}

/// The claim of a permit. A ticket does not keep the partition from being handed over.
#[derive(Clone)]
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    partition: Partition,
    generation: Generation,
}

impl Ticket {
    /// Whether a handler call may start now, as [`Permit::may_start`] does.
    pub(crate) fn may_start(&self) -> bool {
        self.is_current() && self.shared.trusted_now().is_some()
    }

    fn is_owned(&self) -> bool {
        self.shared.slots[self.partition.index()].generation.load(SeqCst) == self.generation.0
    }

    fn is_current(&self) -> bool {
        self.is_owned() && !self.shared.slots[self.partition.index()].draining.load(SeqCst)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Ticket { shared, partition, .. } = &self.0;
        let before = shared.permits[partition.index()].fetch_sub(1, SeqCst);
        if before == 1 && shared.slots[partition.index()].draining.load(SeqCst) {
            shared.returned.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::clock::SetClock;

    const STALE: Duration = Duration::from_secs(10);

    fn owning_one() -> (Ownership, Partition) {
        owning_one_by(Clock::pausable())
    }

    fn owning_one_by(clock: Clock) -> (Ownership, Partition) {
        let ownership = Ownership::new(clock);
        let partition = Partition::of("a");
        ownership.grant(&[(partition, Generation(7))]);
        ownership.renew(ownership.clock().now(), STALE);
        (ownership, partition)
    }

    /// Whether calls may start after so much time on the clock and on the wall clock, in milliseconds.
    fn trusts_after(clock: u64, wall: i64) -> bool {
        const HOUR: Duration = Duration::from_secs(3_600);
        let set = Box::leak(Box::new(SetClock { wall: Mutex::new(HOUR), ..SetClock::default() }));
        let (ownership, partition) = owning_one_by(Clock::Set(set));
        let permit = ownership.permit(partition).unwrap();
        *set.now.lock().unwrap() += Duration::from_millis(clock);
        *set.wall.lock().unwrap() =
            Duration::from_millis(3_600_000_u64.checked_add_signed(wall).unwrap_or_default());
        permit.may_start()
    }

    #[test]
    fn a_wall_clock_that_is_set_back_prolongs_no_trust() {
        assert!(trusts_after(8_999, -3_000_000));
        assert!(!trusts_after(9_000, -3_000_000));
    }

    #[test]
    fn a_process_that_stood_still_trusts_nothing_though_its_clock_did_too() {
        assert!(trusts_after(1_000, 1_500));
        assert!(!trusts_after(1_000, 1_501));
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_lapses_by_itself_and_a_heartbeat_renews_it() {
        let (ownership, partition) = owning_one();
        let permit = ownership.permit(partition).unwrap();
        assert!(permit.may_start());
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!permit.may_start(), "a tenth before the others may evict");
        assert!(ownership.owned().is_empty());
        ownership.renew(ownership.clock().now(), STALE);
        assert!(permit.may_start());
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_to_an_early_heartbeat_does_not_prolong_trust() {
        let (ownership, partition) = owning_one();
        let sent_at = ownership.clock().now();
        tokio::time::advance(Duration::from_secs(8)).await;
        ownership.renew(sent_at, STALE);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!ownership.permit(partition).unwrap().may_start());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_waits_for_the_permits_and_gives_no_new_ones() {
        let (ownership, partition) = owning_one();
        let permit = ownership.permit(partition).unwrap();
        ownership.drain(PartitionSet::from_iter([partition]));
        assert!(ownership.permit(partition).is_none());
        assert!(!permit.may_start());
        assert!(ownership.drained().is_empty());
        drop(permit);
        ownership.permit_returned().await;
        assert!(ownership.drained().contains(partition));
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_of_an_older_generation_starts_nothing() {
        let (ownership, partition) = owning_one();
        let permit = ownership.permit(partition).unwrap();
        ownership.grant(&[(partition, Generation(9))]);
        assert!(!permit.may_start());
        assert_eq!(ownership.permit(partition).unwrap().generation(), Generation(9));
    }
}
