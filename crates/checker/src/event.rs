//! What a history consists of: one event a line.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One line of a history: who saw what, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Nanoseconds on the one clock of the whole history.
    pub at: u64,
    /// Who wrote the line; one process writes one file.
    pub process: String,
    /// What happened.
    pub what: What,
}

/// What happened.
///
/// Events that tell what the database contains (`Stored` to `Evicted`) stand in the order of commits, those of one
/// transaction in the order of ids, and before the event that tells that its commit returned. What a person does is told
/// before it is done. A call whose handler cannot read the payload is told as one that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// A call that schedules an event has begun.
    Scheduling {
        /// Names the call, in the whole history.
        call: u64,
        /// Names the transaction, in the whole history.
        tx: u64,
        /// The identity of the event.
        event: Uuid,
        /// The key.
        key: String,
        /// The handlers that get it, if the producer knows them; none if it does not.
        handlers: Vec<String>,
        /// Whether it is scheduled for later: until it is due it has no place in the order of its key.
        delayed: bool,
    },
    /// The event of the call has a dedup key. Told between its begin and its return.
    Keyed {
        /// The call.
        call: u64,
        /// The key.
        dedup_key: String,
    },
    /// The call returned without an error.
    Scheduled {
        /// The call.
        call: u64,
    },
    /// The call found its dedup key noted and has written nothing.
    Duplicate {
        /// The call.
        call: u64,
    },
    /// The call was refused and has written nothing.
    ScheduleFailed {
        /// The call.
        call: u64,
    },
    /// The call ended with an error that does not tell whether it has written something.
    ScheduleUnknown {
        /// The call.
        call: u64,
    },
    /// A commit has begun.
    Committing {
        /// The transaction.
        tx: u64,
    },
    /// The commit returned without an error.
    Committed {
        /// The transaction.
        tx: u64,
    },
    /// The reply of the commit was lost.
    CommitUnknown {
        /// The transaction.
        tx: u64,
    },
    /// The transaction was rolled back, or its commit was refused.
    RolledBack {
        /// The transaction.
        tx: u64,
    },
    /// A savepoint was rolled back, and these events with it.
    Undone {
        /// The transaction.
        tx: u64,
        /// The events that went.
        events: Vec<Uuid>,
    },
    /// A call of the user's handler begins.
    CallBegan {
        /// Names the call, in the whole history.
        call: u64,
        /// The instance that calls.
        instance: String,
        /// The form of the handler.
        kind: CallKind,
        /// The records it is given, in their order.
        records: Vec<Called>,
    },
    /// The call has ended.
    CallEnded {
        /// The call.
        call: u64,
        /// What became of each record, in the order of the call.
        ends: Vec<End>,
    },
    /// An effect of a handler, written in the transaction of the completion, as it stands in the database.
    Effect {
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
    },
    /// A handler commits the transaction that it was given by itself: this effect stays, without a completion. Told
    /// before it is done.
    EffectApart {
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
    },
    /// A row became visible.
    Stored {
        /// The number that the database gave it.
        id: i64,
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
        /// The key.
        key: String,
        /// The partition.
        partition: u16,
        /// The status it was inserted with.
        status: Status,
    },
    /// A row has changed.
    Changed {
        /// The record.
        id: i64,
        /// Its status now.
        status: Status,
        /// Its count of attempts now.
        attempts: u32,
        /// The instance whose settle wrote it; none if somebody else did.
        by: Option<String>,
    },
    /// An instance has claimed a partition.
    Claimed {
        /// The partition.
        partition: u16,
        /// The new owner.
        instance: String,
        /// The new generation.
        generation: i64,
    },
    /// A partition has no owner any more.
    Unclaimed {
        /// The partition.
        partition: u16,
        /// The generation that has ended.
        generation: i64,
    },
    /// An instance has joined.
    Joined {
        /// The instance.
        instance: String,
    },
    /// An instance takes no partitions any more; it will leave.
    Draining {
        /// The instance.
        instance: String,
    },
    /// An instance has left by itself.
    Left {
        /// The instance.
        instance: String,
    },
    /// An instance was declared dead.
    Evicted {
        /// The instance.
        instance: String,
    },
    /// A person has a failed record tried again.
    Retried {
        /// The record.
        id: i64,
    },
    /// A person removes a failed record.
    Discarded {
        /// The record.
        id: i64,
    },
    /// A person gives a failed record another payload and has it tried again.
    Replaced {
        /// The record.
        id: i64,
    },
    /// A producer takes back a delayed event of another transaction, in this one. Told before its commit.
    Cancelled {
        /// The transaction.
        tx: u64,
        /// The event.
        event: Uuid,
    },
    /// An instance trusts its last acknowledged heartbeat until then.
    LeaseUntil {
        /// The instance.
        instance: String,
        /// The end of the lease, on the clock of the history.
        until: u64,
    },
    /// A number that must stay within a bound of [`Expect::bounds`](crate::Expect::bounds).
    Sampled {
        /// What was counted.
        name: String,
        /// How much there was.
        value: u64,
    },
    /// Something that was counted after the end, of which nothing may be left: sessions, locks.
    Remains {
        /// What was counted.
        name: String,
        /// How much there was.
        value: u64,
    },
    /// A line of a log.
    Logged {
        /// Its text.
        text: String,
    },
    /// A fault begins.
    FaultBegan {
        /// Which: `crash`, `pause`, `outage` …
        fault: String,
        /// Whom it strikes; none: everybody.
        instance: Option<String>,
    },
    /// A fault has ended. A crash has no end.
    FaultEnded {
        /// Which.
        fault: String,
        /// Whom it has struck.
        instance: Option<String>,
    },
    /// Another server took the place of the database; it has nothing that was committed after this time.
    FailedOver {
        /// The last moment that is known to the new server.
        back_to: u64,
    },
    /// The faults are over: from now on everything must go its way in time.
    Settling,
    /// The end: everything must be done.
    Finished,
    /// Something that must happen in some run of a class, and that only the producer of the history sees.
    Saw {
        /// What.
        what: String,
    },
}

/// One record of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Called {
    /// The number that the database gave it.
    pub id: i64,
    /// The event.
    pub event: Uuid,
    /// The handler.
    pub handler: String,
    /// The key.
    pub key: String,
    /// The partition of the key.
    pub partition: u16,
    /// The generation under which the instance owns the partition.
    pub generation: i64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// The form of the handler that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// One record.
    Single,
    /// Several records.
    Batch,
    /// One record, within the transaction of its completion.
    Transactional,
    /// Several records, within the transaction of their completion.
    TransactionalBatch,
    /// The fallback, with a record whose retries are spent.
    Fallback,
}

/// What a call came to, for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Success.
    Ok,
    /// An error; the record may be tried again.
    Failed,
    /// An error for good.
    Permanent,
    /// The target is away: no attempt is counted.
    Unavailable,
    /// The handler panicked.
    Panicked,
    /// The handler took too long.
    TimedOut,
    /// Success, but in another transaction than the one that the handler was given: an error for good, once the
    /// database has answered. Without an answer no attempt is counted.
    Refused,
    /// The call was cancelled, or said nothing of this record: no attempt is counted.
    Dropped,
}

/// The status of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits to be delivered.
    Pending,
    /// Is not due yet: scheduled for later, or waits for its next attempt.
    Delayed,
    /// Waits behind a record that has stopped its lane.
    Held,
    /// Delivered, and kept.
    Completed,
    /// Its retries and its fallback are spent; a person decides.
    Failed,
    /// The row is not there any more.
    Gone,
}
