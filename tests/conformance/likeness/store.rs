//! The store of a comparison.

use keylane::RecordId;
use uuid::Uuid;

use crate::{
    outbox::Outbox,
    target::{MariaDbTarget, MemoryTarget, MySqlTarget, PostgresTarget, SqlTarget, SqliteTarget, Target, Tx},
};

/// What transactions of users see and allow.
#[derive(Clone, Copy)]
pub(crate) struct Isolation {
    /// Whether they can be open at the same time, and during other writes.
    pub(super) crossing: bool,
    /// Whether they find only what was committed before they first looked for something.
    pub(super) snapshots: bool,
}

/// A store that can be compared.
pub(crate) trait Likened: Target {
    const ISOLATION: Isolation = Isolation { crossing: true, snapshots: false };
    /// Begins a transaction of a user. One that waits for a lock soon fails, because a failure is repeated often to
    /// shrink it.
    fn begin(outbox: &Outbox<Self>) -> impl Future<Output = Tx<Self>>;
    /// Empties the tables.
    fn clear(outbox: &Outbox<Self>) -> impl Future<Output = ()>;
    /// The newest record of an event. `drawn` is the id if ids began with 1 and none was left out.
    fn id_of(outbox: &Outbox<Self>, event: Uuid, drawn: RecordId) -> impl Future<Output = RecordId>;
    /// Rolls a transaction back, before anything else happens.
    fn roll_back(tx: Tx<Self>) -> impl Future<Output = ()>;
}

impl Likened for MemoryTarget {
    async fn begin(outbox: &Outbox<Self>) -> Tx<Self> {
        outbox.begin().await
    }

    async fn clear(_: &Outbox<Self>) {}

    async fn id_of(_: &Outbox<Self>, _: Uuid, drawn: RecordId) -> RecordId {
        drawn
    }

    async fn roll_back(tx: Tx<Self>) {
        tx.rollback().await.unwrap();
    }
}

const CLEAR: &str = "DELETE FROM {outbox}record; DELETE FROM {outbox}archive; DELETE FROM {outbox}dead_letter; \
    DELETE FROM {outbox}lane; DELETE FROM {outbox}instance; DELETE FROM {outbox}fence; DELETE FROM {outbox}handler; \
    DELETE FROM {outbox}dedup; DELETE FROM {outbox}start; UPDATE {outbox}meta SET cluster_changes = 0; \
    UPDATE {outbox}partition SET owner = NULL, generation = 0, claimed_at = NULL, crashes = 0";

macro_rules! likened {
    ($($target:ty, $crossing:literal, $snapshots:literal, $patience:literal, $before:literal, $after:literal;)*) => {$(
        impl Likened for $target {
            const ISOLATION: Isolation = Isolation { crossing: $crossing, snapshots: $snapshots };

            async fn begin(outbox: &Outbox<Self>) -> Tx<Self> {
                let mut tx = outbox.begin().await;
                Self::execute(&mut tx, $patience.to_owned()).await.unwrap();
                tx
            }

            async fn clear(outbox: &Outbox<Self>) {
                outbox.execute(CLEAR).await;
            }

            async fn id_of(outbox: &Outbox<Self>, event: Uuid, _: RecordId) -> RecordId {
                let event = format!("{}{}{}", $before, event.simple(), $after);
                let find = "SELECT coalesce(max(id), 0) FROM {outbox}record WHERE event_id =";
                outbox.number(&format!("{find} {event}")).await
            }

            async fn roll_back(mut tx: Tx<Self>) {
                Self::execute(&mut tx, "ROLLBACK".to_owned()).await.unwrap();
            }
        }
    )*};
}

likened! {
    PostgresTarget, true, false, "SET LOCAL lock_timeout = '2s'", "'", "'::uuid";
    MariaDbTarget, true, true, "SET innodb_lock_wait_timeout = 2", "x'", "'";
    MySqlTarget, true, true, "SET innodb_lock_wait_timeout = 2", "x'", "'";
    SqliteTarget, false, false, "PRAGMA busy_timeout = 2000", "x'", "'";
}
