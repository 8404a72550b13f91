//! The steps that every way of using the inbox is made of, on a connection that somebody else has opened.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use crate::{
    database::{InboxDatabase, Kind, Value},
    error::InboxError,
    statements::Statements,
};

/// The longest event id, in bytes.
pub(crate) const LONGEST_ID: usize = 255;
/// The longest group, in bytes.
pub(crate) const LONGEST_GROUP: usize = 100;
/// The longest error text, in characters.
const LONGEST_ERROR: usize = 1000;

/// What all clones of an inbox share.
#[doc(hidden)]
#[derive(Debug)]
pub struct Shared {
    pub(crate) sql: Statements,
    pub(crate) take: Arc<str>,
    pub(crate) migration: String,
    pub(crate) owner: String,
    pub(crate) lease: Duration,
    /// Whether statements may have names on the server.
    pub(crate) named: bool,
}

/// A message that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// It was consumed before.
    Seen,
    /// It is being consumed by another, whose lease has this long to go.
    Busy { owner: String, left: Duration },
}

/// What became of the messages that were to be taken.
#[derive(Debug)]
pub(crate) struct Taken {
    /// Marks the rows.
    pub(crate) token: String,
    /// Those that are to be consumed now.
    pub(crate) ours: BTreeSet<String>,
    pub(crate) met: Vec<(String, Met)>,
}

/// Ids in the place of `{ids}`: as many parameters on MySQL, one list elsewhere.
pub(crate) fn in_list(sql: &str, ids: &[String]) -> Arc<str> {
    sql.replace("{ids}", &vec!["?"; ids.len()].join(", ")).into()
}

/// Cut to what the column takes.
pub(crate) fn bounded(error: &str) -> String {
    // A NUL is the one character that PostgreSQL has no text for.
    error.chars().filter(|c| *c != '\0').take(LONGEST_ERROR).collect()
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 4096).min(i64::MAX / 4096)
}

impl Shared {
    /// Refuses what the columns do not take.
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

    /// Takes the messages, sorted, so that two batches never wait for one another.
    pub(crate) async fn take<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        ids: &[&str],
    ) -> Result<Taken, InboxError> {
        Self::check(group, ids)?;
        let wanted: BTreeSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        let token = uuid::Uuid::now_v7().simple().to_string();
        let values = [
            Value::Exact(group.to_owned()),
            Value::Text(token.clone()),
            Value::Text(self.owner.clone()),
            Value::Int(millis(self.lease)),
        ];
        let taken = DB::take(conn, self, values, wanted.iter().cloned().collect()).await;
        let Some(taken) = taken.map_err(InboxError::of::<DB>("take"))? else {
            return Ok(Taken { token, ours: wanted, met: Vec::new() });
        };
        let ours: BTreeSet<String> = taken.into_iter().collect();
        let others: Vec<String> = wanted.difference(&ours).cloned().collect();
        let met = match others.is_empty() {
            true => Vec::new(),
            false => self.states::<DB>(conn, group, others).await?,
        };
        Ok(Taken { token, ours, met })
    }

    /// What stands in the way of these.
    async fn states<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        ids: Vec<String>,
    ) -> Result<Vec<(String, Met)>, InboxError> {
        const KINDS: &[Kind] = &[Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Int];
        let sql = in_list(&self.sql.states, &ids);
        let values = vec![Value::Exact(group.to_owned()), Value::List(ids.clone())];
        let rows = DB::rows(conn, sql, values, KINDS, self.named && ids.len() == 1).await;
        let rows = rows.map_err(InboxError::of::<DB>("read states"))?;
        let mut met: Vec<(String, Met)> = Vec::with_capacity(ids.len());
        for mut row in rows {
            let left = row.ints[0].and_then(|left| u64::try_from(left).ok()).unwrap_or(0);
            let owner = row.texts.swap_remove(3);
            let state = match &*row.texts[1] {
                "SUCCESS" => Met::Seen,
                _ => Met::Busy { owner, left: Duration::from_millis(left) },
            };
            met.push((row.texts.swap_remove(0), state));
        }
        // Gone since: its owner has rolled back, or a purge came by. It is not ours, and not seen either.
        for id in ids {
            if !met.iter().any(|(known, _)| *known == id) {
                met.push((id, Met::Busy { owner: String::new(), left: Duration::ZERO }));
            }
        }
        Ok(met)
    }

    /// Whether the transaction that bears the mark is the one that is open, where [`finish`](Self::finish) does
    /// not find that out itself. Takes the mark away.
    pub(crate) async fn is_same<DB: InboxDatabase>(conn: &mut DB::Connection) -> Result<bool, InboxError> {
        let Some(take) = DB::DIALECT.take_mark else { return Ok(true) };
        match DB::script(conn, take.to_owned()).await {
            Ok(()) => Ok(true),
            Err(sqlx::Error::Database(error)) if !DB::may_retry(&*error) => Ok(false),
            Err(error) => Err(InboxError::of::<DB>("finish")(error)),
        }
    }

    /// Notes the success of messages; false if they are not ours any more. `marked` asks for the transaction of
    /// the taking.
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
        let sql = in_list(if marked { &self.sql.finish_marked } else { &self.sql.finish }, &ids);
        let named = self.named && all == 1;
        let values = vec![
            Value::Int(millis(cost)),
            Value::Exact(group.to_owned()),
            Value::Text(taken.token.clone()),
            Value::List(ids),
        ];
        let ran = DB::run(conn, sql, values, named).await.map_err(InboxError::of::<DB>("finish"))?;
        Ok(ran.rows == all)
    }

    /// Notes a failure whose effects were rolled back, and with them the taking.
    pub(crate) async fn note_failure<DB: InboxDatabase>(
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
            Value::Int(millis(cost)),
            Value::Text(bounded(error)),
        ];
        let ran = DB::run(conn, self.sql.note_failure.as_str().into(), values, self.named).await;
        ran.map(drop).map_err(InboxError::of::<DB>("note failure"))
    }
}
