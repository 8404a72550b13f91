//! The calls of claimed mode: take records for the length of a lease, renew, write outcomes.
//!
//! A claim is its own fence: each gives the record a token that is larger than the one before, and an outcome
//! names owner and token. If another claim has come since, the outcome matches no row.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{Handlers, StoreError};
use crate::{
    instance::InstanceId,
    record::{Record, RecordId},
    rules::claim::Reading,
};

/// How the records of an outbox are delivered. In settings: `partitioned` or `claimed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mode {
    /// In order per key. The instances share the partitions.
    #[default]
    Partitioned,
    /// Without order. Each instance claims records one batch after another, and there is no cluster.
    Claimed,
}

impl Mode {
    /// The word stored in `outbox_meta.mode`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Partitioned => "partitioned",
            Self::Claimed => "claimed",
        }
    }
}

/// The calls of claimed mode.
#[async_trait]
#[doc(hidden)]
pub trait ClaimStore: Send + Sync + 'static {
    /// Whether the database has one writer at a time, so that a claim and a write of outcomes wait for each
    /// other.
    fn has_one_writer(&self) -> bool;

    /// The mode of the tables. If it differs from the wanted mode, changes it to claimed mode, unless the
    /// other mode is in use.
    async fn enter(&self, wanted: Mode) -> Result<Mode, StoreError>;

    /// Claims records that no other instance has claimed or is claiming, in one transaction of three steps.
    async fn claim_records(&self, claim: Claiming) -> Result<Claimed, StoreError>;

    /// Restarts the leases of these records. Returns the records that this owner no longer holds.
    async fn renew_claims(
        &self,
        owner: InstanceId,
        lease: Duration,
        records: &[RecordId],
    ) -> Result<Vec<RecordId>, StoreError>;

    /// Writes the outcomes of claims in one transaction. Returns how many records were still claimed under
    /// their tokens; the others have a newer owner, and keep what that owner has written. May be repeated
    /// after a lost reply.
    async fn settle_claims(&self, owner: InstanceId, outcomes: &[ClaimOutcome]) -> Result<usize, StoreError>;
}

/// What to claim.
#[derive(Clone, Debug)]
#[doc(hidden)]
pub struct Claiming {
    /// The owner of the claims.
    pub owner: InstanceId,
    /// The length of the lease, from the claim on, by the database's clock.
    pub lease: Duration,
    /// Which records.
    pub source: Source,
    /// The handlers whose records are claimed.
    pub handlers: Handlers,
    /// The most records.
    pub limit: usize,
}

/// Which records are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum Source {
    /// Pending records.
    Pending(Reading),
    /// Delayed records whose time has come, and records whose leases have ended; without suspects.
    Due,
    /// Records whose leases have run out twice in a row: their owners may have crashed because of them.
    Suspect,
}

/// The result of a claim.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct Claimed {
    /// The claimed records in id order. The generation of each is the token of its claim.
    pub records: Vec<Arc<Record>>,
    /// The number of records that the first step has found. The second step claims all of them, unless a row
    /// was changed although it was locked.
    pub selected: usize,
    /// Whether there may be more such records.
    pub is_full: bool,
    /// How many leases of a suspect have run out. 0 for other sources.
    pub crashes: u32,
}

/// The outcome of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct ClaimOutcome {
    /// The id of the record.
    pub id: RecordId,
    /// The token of the claim.
    pub token: i64,
    /// What is written.
    pub end: ClaimEnd,
}

/// What becomes of a claimed record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub enum ClaimEnd {
    /// Completed: the row is deleted, archived or kept, as configured.
    Complete,
    /// Pending again: its handler was not called.
    Release,
    /// Another attempt follows after the delay.
    Retry {
        /// The time from the write, by the database's clock.
        delay: Duration,
        /// The error of the attempt, cut to a limit.
        error: String,
        /// Whether the attempt counts.
        counted: bool,
    },
    /// Failed for good.
    Fail {
        /// The error of the last attempt, cut to a limit.
        error: String,
        /// Whether the attempt counts.
        counted: bool,
    },
}
