//! The events of a history: one event per line.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// The time in nanoseconds on the one clock of the whole history.
    pub at: u64,
    /// The process that wrote the line. One process writes one file.
    pub process: String,
    /// The content of the event.
    pub what: What,
}

/// The content of an event.
///
/// Events about the content of the database (`Stored` to `Evicted`) are in the order of commits, those of one
/// transaction in the order of ids. They come before the event of the returned commit. An action of a person
/// is written before it is done. A call whose handler cannot read the payload is written as a failed call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// A call that schedules an event has begun.
    Scheduling {
        /// The number of the call, unique in the whole history.
        call: u64,
        /// The number of the transaction, unique in the whole history.
        tx: u64,
        /// The identity of the event.
        event: Uuid,
        /// The key.
        key: String,
        /// The handlers of the event; none if the producer does not know them.
        handlers: Vec<String>,
        /// Whether the event is scheduled for later: until it is due, it has no place in the order of its
        /// key.
        delayed: bool,
    },
    /// The event of the call has a dedup key. Written between the begin of the call and its return.
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
    /// The call has found its dedup key in the table, and has written nothing.
    Duplicate {
        /// The call.
        call: u64,
    },
    /// The call was refused and has written nothing.
    ScheduleFailed {
        /// The call.
        call: u64,
    },
    /// The call ended with an error that does not say whether it has written.
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
        /// The events that were rolled back.
        events: Vec<Uuid>,
    },
    /// A call of the user's handler begins.
    CallBegan {
        /// The number of the call, unique in the whole history.
        call: u64,
        /// The instance that calls.
        instance: String,
        /// The form of the handler.
        kind: CallKind,
        /// The records of the call, in their order.
        records: Vec<Called>,
    },
    /// The call has ended.
    CallEnded {
        /// The call.
        call: u64,
        /// The end of each record, in the order of the call.
        ends: Vec<End>,
    },
    /// An effect of a handler, written in the transaction of the completion, as read from the database.
    Effect {
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
    },
    /// A handler itself commits the transaction of its completion: this effect stays, without a completion.
    /// Written before the commit.
    EffectApart {
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
    },
    /// A row became visible.
    Stored {
        /// The id in the database.
        id: i64,
        /// The event.
        event: Uuid,
        /// The handler.
        handler: String,
        /// The key.
        key: String,
        /// The partition.
        partition: u16,
        /// The status at the insert.
        status: Status,
    },
    /// A row has changed.
    Changed {
        /// The record.
        id: i64,
        /// The new status.
        status: Status,
        /// The new count of attempts.
        attempts: u32,
        /// The instance whose settle wrote the change; none for any other writer.
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
    /// A partition has lost its owner.
    Unclaimed {
        /// The partition.
        partition: u16,
        /// The generation that has ended.
        generation: i64,
    },
    /// In claimed mode, an instance has claimed a record, or has renewed its claim.
    RecordClaimed {
        /// The record.
        id: i64,
        /// The instance.
        instance: String,
        /// The token of the claim, which grows by one with each claim of the record.
        token: i64,
        /// The end of the lease, on the clock of the history.
        until: u64,
    },
    /// In claimed mode, the claim of a record has ended.
    RecordUnclaimed {
        /// The record.
        id: i64,
        /// The token of the claim.
        token: i64,
    },
    /// An instance has joined.
    Joined {
        /// The instance.
        instance: String,
    },
    /// An instance claims no more partitions; it will leave.
    Draining {
        /// The instance.
        instance: String,
    },
    /// An instance has left.
    Left {
        /// The instance.
        instance: String,
    },
    /// An instance was declared dead.
    Evicted {
        /// The instance.
        instance: String,
    },
    /// A person retries a failed record.
    Retried {
        /// The record.
        id: i64,
    },
    /// A person discards a failed record.
    Discarded {
        /// The record.
        id: i64,
    },
    /// A person gives a failed record another payload and retries it.
    Replaced {
        /// The record.
        id: i64,
    },
    /// A producer cancels a delayed event of another transaction, in this one. Written before the commit.
    Cancelled {
        /// The transaction.
        tx: u64,
        /// The event.
        event: Uuid,
    },
    /// An instance trusts its last acknowledged heartbeat until this time.
    LeaseUntil {
        /// The instance.
        instance: String,
        /// The end of the lease, on the clock of the history.
        until: u64,
    },
    /// A sample that must stay within a bound of [`Expect::bounds`](crate::Expect::bounds).
    Sampled {
        /// The name of the sample.
        name: String,
        /// The value.
        value: u64,
    },
    /// A count after the end that must be zero: sessions, locks.
    Remains {
        /// The name of the count.
        name: String,
        /// The value.
        value: u64,
    },
    /// A line of a log.
    Logged {
        /// The text.
        text: String,
    },
    /// A fault begins.
    FaultBegan {
        /// The kind: `crash`, `pause`, `outage` …
        fault: String,
        /// The instance that it concerns; none for all.
        instance: Option<String>,
    },
    /// A fault has ended. A crash has no end.
    FaultEnded {
        /// The kind.
        fault: String,
        /// The instance that it concerned; none for all.
        instance: Option<String>,
    },
    /// Another server has replaced the database, without the commits after this time.
    FailedOver {
        /// The last moment that the new server knows.
        back_to: u64,
    },
    /// The faults are over: from now on, work must be done within its time.
    Settling,
    /// The end: all work must be done.
    Finished,
    /// A state that must occur in some run of a class, and that only the producer of the history sees.
    Saw {
        /// The name of the state.
        what: String,
    },
}

/// One record of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Called {
    /// The id in the database.
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
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// The form of the called handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// One record.
    Single,
    /// Several records.
    Batch,
    /// One record, in the transaction of its completion.
    Transactional,
    /// Several records, in the transaction of their completions.
    TransactionalBatch,
    /// The fallback, with a record whose retries are spent.
    Fallback,
}

/// The end of a call for one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Success.
    Ok,
    /// An error; the record may be tried again.
    Failed,
    /// An error that is not retried.
    Permanent,
    /// The target is unreachable: no attempt counts.
    Unavailable,
    /// The handler panicked.
    Panicked,
    /// The handler took longer than its timeout.
    TimedOut,
    /// The handler succeeded, but in another transaction than the given one: if the database has answered, an
    /// error that is not retried. Without an answer no attempt counts.
    Refused,
    /// The call was cancelled, or has no result for this record: no attempt counts.
    Dropped,
}

/// The status of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for delivery.
    Pending,
    /// Not due yet: scheduled for later, or waiting for its next attempt.
    Delayed,
    /// Waits behind a record that has stopped its lane.
    Held,
    /// Completed, and kept.
    Completed,
    /// The retries and the fallback are spent; a person decides.
    Failed,
    /// The row is deleted.
    Gone,
}
