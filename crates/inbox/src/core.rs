//! The steps that all calls of the inbox share, on a connection that the caller has opened.

use std::time::Duration;

use keylane_sql::{Schema, Value};

use crate::{
    error::InboxError, inbox::InboxDatabase, statements::Statements, take::Taken, templates::Templates,
};

/// The longest event id, in bytes.
pub(crate) const LONGEST_ID: usize = 255;
/// The longest group, in bytes.
pub(crate) const LONGEST_GROUP: usize = 100;
/// The longest error text, in characters.
const LONGEST_ERROR: usize = 1000;

/// What all clones of an inbox share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sql: Statements,
    pub(crate) schema: Schema,
    pub(crate) owner: String,
    pub(crate) lease: Duration,
    /// Whether statements may have names on the server.
    pub(crate) named: bool,
}

/// The text of an error, cut to what the column takes.
pub(crate) fn bounded(error: &str) -> String {
    // PostgreSQL takes every character in a text except NUL.
    error.chars().filter(|c| *c != '\0').take(LONGEST_ERROR).collect()
}

impl Shared {
    /// Refuses texts that the columns do not take.
    pub(crate) fn check(group: &str, ids: &[&str]) -> Result<(), InboxError> {
        let fits = |what: &'static str, text: &str, limit: usize| match text.len() {
            length if length == 0 || length > limit || text.contains('\0') => {
                Err(InboxError::BadId { what, length, limit })
            }
            _ => Ok(()),
        };
        fits("consumer group", group, LONGEST_GROUP)?;
        ids.iter().try_for_each(|id| fits("event id", id, LONGEST_ID))
    }

    /// Whether the open transaction is the one with the mark, on databases where [`finish`](Self::finish) does not
    /// check that itself. Removes the mark.
    pub(crate) async fn is_same<DB: InboxDatabase>(conn: &mut DB::Connection) -> Result<bool, InboxError> {
        let Some((_, take)) = Templates::of::<DB>().mark else { return Ok(true) };
        match DB::script(conn, take).await {
            Ok(()) => Ok(true),
            Err(error) if DB::is_refusal(&error) => Ok(false),
            Err(error) => Err(InboxError::of::<DB>("finish")(error)),
        }
    }

    /// Writes the success of messages. `false` if another consumer has taken some of them. With `marked`, the open
    /// transaction must be the one that has taken them.
    pub(crate) async fn finish<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        taken: &Taken,
        cost: Duration,
        marked: bool,
    ) -> Result<bool, InboxError> {
        let ids: Vec<String> = taken.ours.iter().cloned().collect();
        let all = ids.len() as u64;
        let sql = if marked { &self.sql.finish_marked } else { &self.sql.finish };
        let values = vec![
            Value::millis(cost),
            Value::Exact(group.to_owned()),
            Value::Text(taken.token.clone()),
            Value::Exacts(ids),
        ];
        let done =
            DB::execute(conn, sql, values, self.named).await.map_err(InboxError::of::<DB>("finish"))?;
        Ok(done.rows == all)
    }

    /// Writes a failure, after a rollback of its effects and of the taking.
    pub(crate) async fn write_failure<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        id: &str,
        error: &str,
        cost: Duration,
    ) -> Result<(), InboxError> {
        Self::check(group, &[id])?;
        let values = vec![
            Value::Exact(group.to_owned()),
            Value::Exact(id.to_owned()),
            Value::Text(uuid::Uuid::now_v7().simple().to_string()),
            Value::Text(self.owner.clone()),
            Value::millis(cost),
            Value::Text(bounded(error)),
        ];
        let done = DB::execute(conn, &self.sql.write_failure, values, self.named).await;
        done.map(drop).map_err(InboxError::of::<DB>("write failure"))
    }
}
