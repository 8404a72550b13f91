//! Claims of records in claimed mode.

use std::{collections::BTreeMap, time::Duration};

use async_trait::async_trait;
use serde::Serialize;

use super::{
    SqlStore,
    call::{begin, commit, query},
    driver::{Driver, Kind},
    ranges::among,
    statements::{Statements, fill, list, of_handlers, safe},
};
use crate::{
    instance::InstanceId,
    partition::{PARTITION_COUNT, Partition},
    record::{RecordId, Status},
    rules::claim::Reading,
    store::{ClaimEnd, ClaimOutcome, ClaimStore, Claimed, Claiming, Completed, Mode, Source, StoreError},
};

/// How many candidates are read for each record of a claim, where they are read without locks: other claims may
/// be about to take some of them.
const CANDIDATES: usize = 4;

/// One element of the JSON that `claimed_fail` reads.
#[derive(Serialize)]
struct FailureRow<'a> {
    id: RecordId,
    token: i64,
    /// 1 if the failed attempt counts, else 0.
    counted: u32,
    status: i64,
    /// The delay until the next attempt, in microseconds.
    delay: Option<i64>,
    error: &'a str,
}

/// Outcomes, sorted by the statement that writes them.
#[derive(Default)]
struct Sorted<'a> {
    /// Completed ids per token.
    completed: BTreeMap<i64, Vec<RecordId>>,
    /// Released ids per token.
    released: BTreeMap<i64, Vec<RecordId>>,
    failures: Vec<FailureRow<'a>>,
}

impl<'a> Sorted<'a> {
    fn new(outcomes: &'a [ClaimOutcome]) -> Self {
        let mut sorted = Self::default();
        for ClaimOutcome { id, token, end } in outcomes {
            let (id, token) = (*id, *token);
            let mut fail = |status: Status, delay, error, counted| {
                let (status, counted) = (status.code(), u32::from(counted));
                sorted.failures.push(FailureRow { id, token, counted, status, delay, error });
            };
            match end {
                ClaimEnd::Complete => sorted.completed.entry(token).or_default().push(id),
                ClaimEnd::Release => sorted.released.entry(token).or_default().push(id),
                ClaimEnd::Retry { delay, error, counted } => {
                    fail(Status::Delayed, Some(micros(*delay)), error, *counted);
                }
                ClaimEnd::Fail { error, counted } => fail(Status::Failed, None, error, *counted),
            }
        }
        sorted
    }
}

#[async_trait]
impl<D: Driver> ClaimStore for SqlStore<D> {
    fn has_one_writer(&self) -> bool {
        D::DIALECT.has_one_writer()
    }

    async fn enter(&self, wanted: Mode) -> Result<Mode, StoreError> {
        self.call("enter", async {
            let mut conn = self.control.borrow().await?;
            let rows = query::<D>(&mut conn, safe(&self.sql.mode), Vec::new(), &[Kind::Text]).await?;
            let is_claimed = rows.first().is_some_and(|row| row.text(0) == Mode::Claimed.as_str());
            let entered = is_claimed
                || wanted == Mode::Claimed
                    && D::execute(&mut conn, safe(&self.sql.claimed_enter), Vec::new()).await? == 1;
            conn.keep();
            Ok(if entered { Mode::Claimed } else { Mode::Partitioned })
        })
        .await
    }

    async fn claim_records(&self, claim: Claiming) -> Result<Claimed, StoreError> {
        self.call("claim records", async {
            let mut conn = self.claims.borrow().await?;
            begin::<D>(&mut conn).await?;
            let is_by_id = matches!(claim.source, Source::Pending(Reading::Ids { .. }));
            let find = match claim.source {
                Source::Pending(Reading::Index { .. }) => &self.sql.claimed_find_pending,
                Source::Pending(Reading::Ids { .. }) => &self.sql.claimed_find_by_id,
                Source::Due | Source::Suspect => &self.sql.claimed_find_due,
            };
            let mut found = ids::<D>(&mut conn, find, &bounds(&claim)).await?;
            let is_full = found.len() >= claim.limit;
            if let (Some(lock), false) = (&self.sql.claimed_lock, is_by_id || found.is_empty()) {
                let values = [("{ids}", list(found)), ("{limit}", claim.limit.to_string())];
                found = ids::<D>(&mut conn, lock, &values).await?;
            }
            let mut claimed = Claimed { records: Vec::new(), selected: found.len(), is_full, crashes: 0 };
            if !found.is_empty() {
                let values = [owned(claim.owner), leased(claim.lease), among(&D::DIALECT, &found)];
                D::execute(&mut conn, fill(&self.sql.claimed_take, &values), Vec::new()).await?;
                claimed.records = D::read_claimed(&mut conn, fill(&self.sql.claimed_read, &values)).await?;
                if claim.source == Source::Suspect {
                    let crashes = ids::<D>(&mut conn, &self.sql.claimed_crashes, &values).await?;
                    claimed.crashes =
                        crashes.first().map_or(0, |crashes| u32::try_from(*crashes).unwrap_or(u32::MAX));
                }
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            claimed.records.sort_unstable_by_key(|record| record.delivery.id);
            Ok(claimed)
        })
        .await
    }

    async fn renew_claims(
        &self,
        owner: InstanceId,
        lease: Duration,
        records: &[RecordId],
    ) -> Result<Vec<RecordId>, StoreError> {
        let values = [owned(owner), leased(lease), among(&D::DIALECT, records)];
        self.call("renew claims", async {
            let mut conn = self.control.borrow().await?;
            let renew = fill(&self.sql.claimed_renew, &values);
            let renewed = D::execute(&mut conn, renew, Vec::new()).await?;
            let mut lost = Vec::new();
            if (renewed as usize) < records.len() {
                let held = ids::<D>(&mut conn, &self.sql.claimed_held, &values).await?;
                lost = records.iter().copied().filter(|id| !held.contains(id)).collect();
            }
            conn.keep();
            Ok(lost)
        })
        .await
    }

    async fn settle_claims(&self, owner: InstanceId, outcomes: &[ClaimOutcome]) -> Result<usize, StoreError> {
        let sorted = Sorted::new(outcomes);
        // One statement is a transaction of its own.
        let alone = sorted.completed.len() + sorted.released.len() + usize::from(!sorted.failures.is_empty())
            < 2
            && self.settings.completed != Completed::Archive;
        // One writer claims and settles in turn: the pages that a claim has written are still in its connection.
        let link = if D::DIALECT.has_one_writer() { &self.claims } else { &self.settle };
        self.call("settle", async {
            let mut conn = link.borrow().await?;
            if !alone {
                begin::<D>(&mut conn).await?;
            }
            let written = self.write_claims(&mut conn, owner, &sorted).await?;
            if !alone {
                commit::<D>(&mut conn).await?;
            }
            conn.keep();
            Ok(written as usize)
        })
        .await
    }
}

impl<D: Driver> SqlStore<D> {
    async fn write_claims(
        &self,
        conn: &mut D::Connection,
        owner: InstanceId,
        sorted: &Sorted<'_>,
    ) -> Result<u64, sqlx::Error> {
        let mut written = 0;
        written +=
            complete_claims::<D>(conn, &self.sql, self.settings.completed, owner, &sorted.completed).await?;
        for (token, ids) in &sorted.released {
            let values = [owned(owner), among(&D::DIALECT, ids), ("{token}", token.to_string())];
            written += D::execute(conn, fill(&self.sql.claimed_release, &values), Vec::new()).await?;
        }
        if !sorted.failures.is_empty() {
            let json = serde_json::to_string(&sorted.failures);
            let json = json.map_err(|error| sqlx::Error::Encode(error.into()))?;
            let values = vec![json.into(), owner.to_string().into()];
            written += D::execute(conn, safe(&self.sql.claimed_fail), values).await?;
        }
        Ok(written)
    }
}

/// Completes claimed records per token. Returns the number of records that were still claimed.
pub(super) async fn complete_claims<D: Driver>(
    conn: &mut D::Connection,
    sql: &Statements,
    completed: Completed,
    owner: InstanceId,
    records: &BTreeMap<i64, Vec<RecordId>>,
) -> Result<u64, sqlx::Error> {
    let mut written = 0;
    for (token, ids) in records {
        let values = [owned(owner), among(&D::DIALECT, ids), ("{token}", token.to_string())];
        let write = match completed {
            Completed::Keep => &sql.claimed_keep,
            Completed::Delete => &sql.claimed_delete,
            Completed::Archive => {
                D::execute(conn, fill(&sql.claimed_archive, &values), Vec::new()).await?;
                &sql.claimed_delete
            }
        };
        written += D::execute(conn, fill(write, &values), Vec::new()).await?;
    }
    Ok(written)
}

/// The ids that a statement finds.
async fn ids<D: Driver>(
    conn: &mut D::Connection,
    sql: &str,
    values: &[(&str, String)],
) -> Result<Vec<RecordId>, sqlx::Error> {
    let found = D::query_text(conn, fill(sql, values), &[Kind::Int]).await?;
    Ok(found.iter().map(|row| row.int(0)).collect())
}

/// The bounds of the first step of a claim.
fn bounds(claim: &Claiming) -> [(&'static str, String); 7] {
    let (first, from) = match claim.source {
        Source::Pending(Reading::Index { from }) => (from, i64::from(from.number())),
        Source::Pending(Reading::Ids { from }) => (Partition::FIRST, from),
        Source::Due | Source::Suspect => (Partition::FIRST, 0),
    };
    let partitions = Partition::all().filter(|partition| *partition >= first);
    let partitions = partitions.map(|partition| i64::from(partition.number()));
    [
        ("{from}", from.to_string()),
        ("{to}", PARTITION_COUNT.to_string()),
        ("{partitions}", list(partitions)),
        ("{suspected}", (if claim.source == Source::Suspect { "IS NOT NULL" } else { "IS NULL" }).to_owned()),
        ("{handlers}", of_handlers(&claim.handlers)),
        ("{limit}", claim.limit.to_string()),
        ("{candidates}", (claim.limit * CANDIDATES).to_string()),
    ]
}

/// The owner as a text of SQL: a uuid needs no quoting.
fn owned(owner: InstanceId) -> (&'static str, String) {
    ("{instance}", format!("'{owner}'"))
}

fn leased(lease: Duration) -> (&'static str, String) {
    ("{lease}", micros(lease).to_string())
}

/// The microseconds of a time. The settings and the rules keep times below ten years.
fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX >> 1)
}
