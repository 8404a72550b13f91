//! Signals: all events of the workers, each with one name. Logs, metrics, tests and pages observe the same
//! signals.
//!
//! A payload never appears in a signal. A key appears only in a lane, which the log writes without the key.
//! The text of a handler's error comes from the handler.

use std::time::Duration;

use uuid::Uuid;

mod log;
mod observers;
mod outage;

pub use log::LogObserver;
pub(crate) use observers::Observers;

use crate::{
    instance::InstanceId,
    name::Name,
    partition::{Partition, PartitionSet},
    record::{Lane, RecordId},
};

/// An event of the workers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// This process has joined the cluster.
    Joined {
        /// The id of this process.
        instance: InstanceId,
    },
    /// This process was evicted by another. It joins again with a new id.
    Evicted {
        /// The old id of this process.
        instance: InstanceId,
    },
    /// This process has left the cluster.
    Left {
        /// The id of this process.
        instance: InstanceId,
    },
    /// The last heartbeats got no reply in time: no call of a handler begins until one does.
    LeaseLapsed,
    /// This instance owns further partitions.
    PartitionsGranted {
        /// The new partitions.
        partitions: PartitionSet,
    },
    /// This instance has released partitions.
    PartitionsReleased {
        /// The released partitions.
        partitions: PartitionSet,
    },
    /// The database no longer names this instance as the owner of these partitions: a person has moved them,
    /// or a restore or a failover has lost the claims. This instance joins again with a new id.
    ClaimsLost {
        /// The lost partitions.
        partitions: PartitionSet,
    },
    /// The server that answers is not the one on which this instance has joined, or the server has crashed:
    /// the last commits may be lost. The instance drops its state and joins again with a new id.
    ServerChanged {
        /// The old id of this process.
        instance: InstanceId,
    },
    /// This instance has declared another instance dead.
    PeerEvicted {
        /// The id of the evicted instance.
        instance: InstanceId,
        /// The time for which its beat did not move. `None` if it beats, but did not release its partitions.
        silent_for: Option<Duration>,
    },
    /// This observer was interrupted: its windows start again, and no instance is suspected.
    ObservationInterrupted,
    /// A fetch has brought records.
    Fetched {
        /// The number of records.
        records: usize,
    },
    /// The steps of a claim differ: rows were changed although the claim had locked them.
    ClaimsDiffer {
        /// The number of records that the first step has found.
        selected: usize,
        /// The number of records that were claimed.
        claimed: usize,
    },
    /// Claims have outlived their leases: the records have newer owners, and outcomes of this instance about
    /// them were not written.
    ClaimsOutlived {
        /// The number of records.
        records: usize,
    },
    /// Outcomes are durable.
    Settled {
        /// The number of records.
        records: usize,
    },
    /// An attempt of a record has failed, and the record will be tried again.
    RetryScheduled {
        /// The id of the record.
        record: RecordId,
        /// The lane of the record.
        lane: Lane,
        /// The failed attempts so far.
        attempts: u32,
        /// The time until the next attempt.
        delay: Duration,
    },
    /// A handler has said that its target is unreachable: the record is tried again, and no attempt counts.
    TargetUnavailable {
        /// The id of the record.
        record: RecordId,
        /// The lane of the record.
        lane: Lane,
        /// The time until the next try.
        delay: Duration,
    },
    /// Records of a handler have waited for its target for the alarm's time
    /// ([`RetryPolicy::unavailable_alarm`](crate::RetryPolicy)). While they wait, the signal comes again each
    /// time that long.
    TargetAway {
        /// The id of the handler.
        handler: Name,
        /// The longest wait of a record, as this process has seen it.
        lasted: Duration,
        /// The records that wait here.
        records: usize,
    },
    /// No record of this handler waits for its target any more.
    TargetBack {
        /// The id of the handler.
        handler: Name,
        /// The time since the first wait.
        lasted: Duration,
    },
    /// The fallback handler of a record is about to be called.
    FallbackTaken {
        /// The id of the record.
        record: RecordId,
        /// The lane of the record.
        lane: Lane,
    },
    /// A record has failed for good.
    RecordFailed {
        /// The id of the record.
        record: RecordId,
        /// The identity of its event.
        event_id: Uuid,
        /// The trace id, if the event was scheduled with one.
        trace_id: Option<String>,
        /// The lane of the record, which names the handler.
        lane: Lane,
        /// The failed attempts.
        attempts: u32,
        /// The last error and its causes in one line of at most 1,000 bytes, as it is stored.
        error: String,
        /// Whether the record stops its lane now.
        blocked: bool,
    },
    /// Earlier owners of these partitions have crashed, or a tracked call there has not outlived its process:
    /// calls are tracked, and suspected records run one at a time.
    CrashesSuspected {
        /// The partitions.
        partitions: PartitionSet,
    },
    /// This build has no handler for a record: the lane waits for an instance that has one.
    Unroutable {
        /// The id of the record.
        record: RecordId,
        /// The lane of the record.
        lane: Lane,
        /// The type of the record.
        record_type: String,
    },
    /// This build cannot decode the payload of a record: the lane waits for an instance that can.
    Undecodable {
        /// The id of the record.
        record: RecordId,
        /// The lane of the record.
        lane: Lane,
        /// The type of the record.
        record_type: String,
        /// The decode error. It names positions, never the payload's content.
        error: String,
    },
    /// A record was in a partition that is not its key's: it is set aside as failed.
    Quarantined {
        /// The id of the record.
        record: RecordId,
        /// The stored partition.
        partition: Partition,
        /// The partition of the key.
        belongs: Partition,
    },
    /// A database call has failed and is tried again.
    StoreFailed {
        /// The name of the call.
        call: &'static str,
        /// The error and its cause in one line.
        error: String,
    },
    /// On this address, notifications cannot be sent or do not arrive: this process relies on polls.
    NotificationsAbsent {
        /// The cause, and what to do.
        error: String,
    },
    /// A heartbeat got a reply: the database works.
    BeatAnswered,
    /// A settle whose reply was lost was resolved.
    LostReplyResolved {
        /// Whether the settle had been written.
        applied: bool,
    },
    /// The value that `start` returned was dropped without a shutdown: this process delivers nothing more,
    /// and the other instances take over after the stale timeout.
    WorkersDropped {
        /// The id of this process.
        instance: InstanceId,
    },
    /// The workers have ended without a request: this process delivers nothing more, and the other instances
    /// take over after the stale timeout.
    WorkersDied {
        /// The id of this process.
        instance: InstanceId,
        /// The cause.
        error: String,
    },
    /// Another observer blocks or is too slow: its limit of waiting signals is reached. The signal comes at the
    /// first dropped signal, and whenever the number has doubled.
    SignalsDropped {
        /// The number of signals that were dropped for the other observer.
        signals: u64,
    },
    /// Handlers have not ended within the shutdown timeout and were cancelled.
    ShutdownForced {
        /// The number of records still in flight.
        records: usize,
    },
}

/// Observes signals. While the workers run, each observer is called from a thread of its own, within their
/// runtime, for one signal after another: a signal arrives a moment after its cause. A panic is caught and logged.
///
/// An observer that blocks its thread holds up only itself. Up to 16,384 signals wait for it, and further ones are
/// dropped for it ([`Signal::SignalsDropped`]). [`Signal::Joined`] comes before the first call of a handler, and
/// [`Running::shutdown`](crate::Running::shutdown) and a drop of [`Running`](crate::Running) wait for the last signal,
/// unless an observer takes longer than 5 s.
///
/// The memory store on a runtime of one thread, whose time can be paused in tests, calls observers from the tasks of
/// the workers.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use keylane::{Observer, Signal};
///
/// #[derive(Default)]
/// struct Delivered(AtomicU64);
///
/// impl Observer for Delivered {
///     fn on(&self, signal: &Signal) {
///         if let Signal::Settled { records } = signal {
///             self.0.fetch_add(*records as u64, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Called once per signal.
    fn on(&self, signal: &Signal);
}
