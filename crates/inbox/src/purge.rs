//! Retention.

use std::time::Duration;

use keylane_sql::Value;

use crate::{
    error::InboxError,
    inbox::{Inbox, InboxDatabase},
};

/// Rows per step: each step is a transaction of its own.
const STEP: u64 = 1000;

impl<DB: InboxDatabase> Inbox<DB> {
    /// Deletes messages that were finished, or whose lease has ended, longer ago than that, in steps of 1,000.
    /// Returns how many. Several processes may call this at once.
    ///
    /// A message that the broker delivers again after it was purged is new to the inbox: keep messages for longer
    /// than the broker does.
    ///
    /// # Errors
    /// The database's. What was deleted by then stays deleted.
    ///
    /// # Cancel safety
    /// It may be dropped at any time.
    pub async fn purge(&self, older_than: Duration) -> Result<u64, InboxError> {
        let sql = &self.shared.sql;
        let age = Value::millis(older_than);
        let mut purged = 0;
        let old = [
            ("PROCESSING", &sql.purge_abandoned),
            ("SUCCESS", &sql.purge_finished),
            ("FAILED", &sql.purge_finished),
        ];
        for (status, sql) in old {
            loop {
                let values = vec![Value::Text(status.to_owned()), age.clone(), Value::Int(STEP as i64)];
                let step = self.execute("purge", sql, values).await?;
                purged += step;
                if step < STEP {
                    break;
                }
            }
        }
        Ok(purged)
    }
}
