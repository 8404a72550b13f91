//! The messages in the inbox, counted group by group.

use std::{collections::BTreeMap, time::Duration};

use keylane_sql::{Kind, Lent, Value};

use crate::{
    error::InboxError,
    inbox::{Inbox, InboxDatabase},
};

/// How long ago a message may have been finished to count as recent.
const RECENT: Duration = Duration::from_secs(300);

/// The messages of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOverview {
    /// The name of the group.
    pub group: String,
    /// Messages that a consumer holds, or held when it crashed.
    pub processing: u64,
    /// Messages that were consumed and not yet purged.
    pub success: u64,
    /// Messages whose last attempt has failed.
    pub failed: u64,
    /// Messages that were consumed within the last 5 minutes.
    pub recent: u64,
    /// The average time of the work for the recent messages.
    pub recent_average: Duration,
    /// The longest time of the work for one of them.
    pub recent_longest: Duration,
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// Counts and costs, group by group. The call reads all keys of the table: make it once per minute, not once per
    /// second.
    ///
    /// # Errors
    /// The database's.
    pub async fn overview(&self) -> Result<Vec<GroupOverview>, InboxError> {
        const COUNTS: &[Kind] = &[Kind::Text, Kind::Text, Kind::Int];
        const COSTS: &[Kind] = &[Kind::Text, Kind::Int, Kind::Int, Kind::Int];
        let read = async {
            let mut lent = Lent::from(&self.pool, false).await?;
            let sql = &self.shared.sql;
            let counts = DB::query(lent.conn(), &sql.counts, Vec::new(), COUNTS, false).await?;
            let recent = vec![Value::millis(RECENT)];
            let costs = DB::query(lent.conn(), &sql.costs, recent, COSTS, false).await?;
            lent.commit().await?;
            Ok((counts, costs))
        };
        let (counts, costs) = read.await.map_err(InboxError::of::<DB>("overview"))?;
        let mut groups: BTreeMap<String, GroupOverview> = BTreeMap::new();
        for row in counts {
            let group = groups.entry(row.text(0).to_owned()).or_default();
            match row.text(1) {
                "PROCESSING" => group.processing = row.count(2),
                "SUCCESS" => group.success = row.count(2),
                _ => group.failed = row.count(2),
            }
        }
        for row in costs {
            let group = groups.entry(row.text(0).to_owned()).or_default();
            group.recent = row.count(1);
            group.recent_average = row.millis(2);
            group.recent_longest = row.millis(3);
        }
        let named = groups.into_iter().map(|(group, overview)| GroupOverview { group, ..overview });
        Ok(named.collect())
    }
}
