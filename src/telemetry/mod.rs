//! Signals: everything that happens, named once. Logs, metrics, tests and pages listen to the same.
//!
//! Payloads never appear in a signal, and keys only in the lane of a signal, which the log writes
//! without the key. The text of a handler's error is the handler's own.

use std::{fmt, sync::Arc, time::Duration};

use uuid::Uuid;

mod log;
mod outage;

pub use log::LogObserver;

use crate::{
    instance::InstanceId,
    partition::{Partition, PartitionSet},
    record::{Lane, RecordId},
    unwind::caught,
};

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Signal {
    /// This process has joined the cluster.
    Joined {
        /// As whom.
        instance: InstanceId,
    },
    /// This process was evicted by another; it joins again under a new identity.
    Evicted {
        /// Who it was.
        instance: InstanceId,
    },
    /// This process has left.
    Left {
        /// Who it was.
        instance: InstanceId,
    },
    /// The last heartbeats got no answer in time: nothing is dispatched until one does.
    LeaseLapsed,
    /// This instance owns these partitions from now on.
    PartitionsGranted {
        /// Which.
        partitions: PartitionSet,
    },
    /// This instance has given these partitions back.
    PartitionsReleased {
        /// Which.
        partitions: PartitionSet,
    },
    /// The database does not name this instance as the owner of these partitions, which it was: somebody
    /// has moved them, or a restore or a failover has forgotten its claims. It joins again under a new
    /// identity.
    ClaimsLost {
        /// Which.
        partitions: PartitionSet,
    },
    /// Another server of the database answers than the one on which this instance has joined, or the server has
    /// crashed: it may have forgotten the last commits. The instance gives up what it knows and joins again under a
    /// new identity.
    ServerChanged {
        /// Who it was.
        instance: InstanceId,
    },
    /// This instance has declared another dead.
    PeerEvicted {
        /// Whom.
        instance: InstanceId,
        /// How long its beat stood still. `None`: it beats, but did not release its partitions.
        silent_for: Option<Duration>,
    },
    /// This observer was interrupted; its windows start afresh and nobody is suspected.
    ObservationInterrupted,
    /// A fetch has brought records.
    Fetched {
        /// How many.
        records: usize,
    },
    /// Outcomes are durable.
    Settled {
        /// How many records.
        records: usize,
    },
    /// A record failed and will be tried again.
    RetryScheduled {
        /// The record.
        record: RecordId,
        /// Its lane.
        lane: Lane,
        /// Failed attempts so far.
        attempts: u32,
        /// Until the next.
        delay: Duration,
    },
    /// A handler has said that its target is away: the record is tried again, no attempt counts.
    TargetUnavailable {
        /// The record.
        record: RecordId,
        /// Its lane.
        lane: Lane,
        /// Until the next try.
        delay: Duration,
    },
    /// The fallback handler took a record over.
    FallbackTaken {
        /// The record.
        record: RecordId,
        /// Its lane.
        lane: Lane,
    },
    /// A record has failed for good.
    RecordFailed {
        /// The record.
        record: RecordId,
        /// The identity of its event.
        event_id: Uuid,
        /// Its trace id, if it was scheduled with one.
        trace_id: Option<String>,
        /// Its lane, which has the handler.
        lane: Lane,
        /// Failed attempts.
        attempts: u32,
        /// The last error and its causes in one line of at most 1,000 bytes, as it is stored.
        error: String,
        /// Whether the lane stands still now.
        blocked: bool,
    },
    /// Earlier owners of these partitions have crashed, or a call of a record there has not outlived its
    /// process: calls are noted before they begin, and suspected records run one at a time.
    CrashesSuspected {
        /// Where.
        partitions: PartitionSet,
    },
    /// No handler here for a record: its lane waits for an instance that has one.
    Unroutable {
        /// The record.
        record: RecordId,
        /// Its lane.
        lane: Lane,
        /// Its record type.
        record_type: String,
    },
    /// This build cannot decode the payload of a record: its lane waits for an instance that can.
    Undecodable {
        /// The record.
        record: RecordId,
        /// Its lane.
        lane: Lane,
        /// Its record type.
        record_type: String,
        /// Why. It names places, never the payload's content.
        error: String,
    },
    /// A record stood in a partition that is not its key's: set aside as failed.
    Quarantined {
        /// The record.
        record: RecordId,
        /// Where it stood.
        partition: Partition,
        /// Where its key belongs.
        belongs: Partition,
    },
    /// A database call failed; it is tried again.
    StoreFailed {
        /// Which call.
        call: &'static str,
        /// The error and its sources.
        error: String,
    },
    /// Other processes cannot be told of commits, or their notifications do not arrive, on this address: polls go on alone.
    NotificationsAbsent {
        /// Why, and what to do.
        error: String,
    },
    /// A heartbeat was answered: the database works.
    BeatAnswered,
    /// A settle whose reply was lost was cleared up.
    LostReplyResolved {
        /// Whether it had been written.
        applied: bool,
    },
    /// What `start` has returned was dropped without a shutdown: this process delivers nothing more, and
    /// the others take over after the stale timeout.
    WorkersDropped {
        /// Who it was.
        instance: InstanceId,
    },
    /// The workers have ended though nobody asked them to: this process delivers nothing more, and the others
    /// take over after the stale timeout.
    WorkersDied {
        /// Who it was.
        instance: InstanceId,
        /// Why.
        error: String,
    },
    /// Handlers did not end within the shutdown timeout and were cancelled.
    ShutdownForced {
        /// How many records were still in flight.
        records: usize,
    },
}

/// Listens to signals. The workers call it on their own tasks: be quick and never block. A panic is caught
/// and logged; the workers and the other observers go on.
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
    /// Something happened.
    fn on(&self, signal: &Signal);
}

/// The observers of one outbox.
#[derive(Clone, Default)]
pub(crate) struct Observers(pub(crate) Arc<Vec<Arc<dyn Observer>>>);

impl Observers {
    pub(crate) fn emit(&self, signal: Signal) {
        for observer in self.0.iter() {
            if caught(|| observer.on(&signal)).is_err() {
                // The log is one of the observers, so writing to it may panic as well.
                let _ = caught(|| tracing::error!(target: "keylane", "an observer panicked at a signal"));
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Observers({})", self.0.len())
    }
}
