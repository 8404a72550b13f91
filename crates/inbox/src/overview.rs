//! What is in the inbox, group by group.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    core::millis,
    database::{InboxDatabase, Kind, Value},
    error::InboxError,
    inbox::Inbox,
};

/// How long ago a message may have been finished to count as recent.
const RECENT: Duration = Duration::from_secs(300);

/// The messages of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOverview {
    /// Its name.
    pub group: String,
    /// Messages that a consumer holds, or held when it crashed.
    pub processing: u64,
    /// Messages that were consumed and not yet purged.
    pub success: u64,
    /// Messages whose last attempt has failed.
    pub failed: u64,
    /// Messages that were consumed within the last 5 minutes.
    pub recent: u64,
    /// How long the work took for those, on average.
    pub recent_average: Duration,
    /// How long it took at most.
    pub recent_longest: Duration,
}

impl<DB: InboxDatabase> Inbox<DB> {
    /// Counts and costs, group by group. Reads all of the table's keys: a page may ask every minute, not every
    /// second.
    ///
    /// # Errors
    /// The database's.
    pub async fn overview(&self) -> Result<Vec<GroupOverview>, InboxError> {
        const COUNTS: &[Kind] = &[Kind::Text, Kind::Text, Kind::Int];
        const COSTS: &[Kind] = &[Kind::Text, Kind::Int, Kind::Int, Kind::Int];
        let read = async {
            let mut conn = self.pool.acquire().await?;
            let sql = &self.shared.sql;
            let counts = DB::rows(&mut conn, sql.counts.as_str().into(), Vec::new(), COUNTS, false).await?;
            let recent = vec![Value::Int(millis(RECENT))];
            let costs = DB::rows(&mut conn, sql.costs.as_str().into(), recent, COSTS, false).await?;
            Ok((counts, costs))
        };
        let (counts, costs) = read.await.map_err(InboxError::of::<DB>("overview"))?;
        let number = |number: Option<i64>| number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        let mut groups: BTreeMap<String, GroupOverview> = BTreeMap::new();
        for row in counts {
            let group = groups.entry(row.texts[0].clone()).or_default();
            match &*row.texts[1] {
                "PROCESSING" => group.processing = number(row.ints[0]),
                "SUCCESS" => group.success = number(row.ints[0]),
                _ => group.failed = number(row.ints[0]),
            }
        }
        for row in costs {
            let group = groups.entry(row.texts[0].clone()).or_default();
            group.recent = number(row.ints[0]);
            group.recent_average = Duration::from_millis(number(row.ints[1]));
            group.recent_longest = Duration::from_millis(number(row.ints[2]));
        }
        let named = groups.into_iter().map(|(group, overview)| GroupOverview { group, ..overview });
        Ok(named.collect())
    }
}
