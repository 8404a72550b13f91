//! The taking of messages, and the states of those that could not be taken.

use std::{collections::BTreeSet, time::Duration};

use keylane_sql::{Family, Kind, Value};

use crate::{core::Shared, error::InboxError, inbox::InboxDatabase};

/// A message that could not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// The message was consumed before.
    Seen,
    /// Another consumer holds the message, and its lease lasts this long.
    Busy { owner: String, left: Duration },
}

/// The outcome of a taking.
#[derive(Debug)]
pub(crate) struct Taken {
    /// The token in the rows.
    pub(crate) token: String,
    /// The messages that are to be consumed now.
    pub(crate) ours: BTreeSet<String>,
    pub(crate) met: Vec<(String, Met)>,
}

/// Id, status, token, owner, and the rest of the lease.
const STATES: &[Kind] = &[Kind::Text, Kind::Text, Kind::Text, Kind::Text, Kind::Int];

impl Shared {
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
        let ids = wanted.iter().cloned().collect();
        let taken = match DB::DIALECT.family {
            Family::MySql => self.take_and_look::<DB>(conn, group, &token, ids).await,
            Family::Postgres | Family::Sqlite => self.take_returning::<DB>(conn, group, &token, ids).await,
        };
        let ours = taken.map_err(InboxError::of::<DB>("take"))?;
        let others: Vec<String> = wanted.difference(&ours).cloned().collect();
        let met = match others.is_empty() {
            true => Vec::new(),
            false => self.states::<DB>(conn, group, others).await?,
        };
        Ok(Taken { token, ours, met })
    }

    /// The first values of each row of a taking.
    fn head(&self, group: &str, token: &str) -> [Value; 4] {
        [
            Value::Exact(group.to_owned()),
            Value::Text(token.to_owned()),
            Value::Text(self.owner.clone()),
            Value::millis(self.lease),
        ]
    }

    /// The taking on databases whose insert returns the messages that it has taken.
    async fn take_returning<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        token: &str,
        ids: Vec<String>,
    ) -> Result<BTreeSet<String>, sqlx::Error> {
        let values = self.head(group, token).into_iter().chain([Value::Exacts(ids)]).collect();
        let taken = DB::query(conn, &self.sql.take, values, &[Kind::Text], self.named).await?;
        Ok(taken.into_iter().map(|mut row| row.take_text(0)).collect())
    }

    /// The taking on databases whose insert tells only whether any of the messages was there before.
    async fn take_and_look<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        token: &str,
        ids: Vec<String>,
    ) -> Result<BTreeSet<String>, sqlx::Error> {
        let row = &*self.sql.take_row;
        let sql = self.sql.take.replace("{rows}", &vec![row; ids.len()].join(", "));
        let head = self.head(group, token);
        let each = |id: &String| head.iter().cloned().chain([Value::Exact(id.clone())]);
        // A text with many rows would fill the server's cache of statements.
        let named = self.named && ids.len() == 1;
        let done = DB::execute(conn, &sql, ids.iter().flat_map(each).collect(), named).await?;
        if done.last_insert_id == 0 {
            return Ok(ids.into_iter().collect());
        }
        let values = vec![Value::Exact(group.to_owned()), Value::Exacts(ids)];
        let rows = DB::query(conn, &self.sql.states, values, STATES, false).await?;
        let ours = rows.into_iter().filter(|row| row.text(2) == token);
        Ok(ours.map(|mut row| row.take_text(0)).collect())
    }

    /// The states of messages that could not be taken.
    async fn states<DB: InboxDatabase>(
        &self,
        conn: &mut DB::Connection,
        group: &str,
        ids: Vec<String>,
    ) -> Result<Vec<(String, Met)>, InboxError> {
        let values = vec![Value::Exact(group.to_owned()), Value::Exacts(ids.clone())];
        let rows = DB::query(conn, &self.sql.states, values, STATES, self.named).await;
        let rows = rows.map_err(InboxError::of::<DB>("read states"))?;
        let mut met: Vec<(String, Met)> = Vec::with_capacity(ids.len());
        for mut row in rows {
            let state = match row.text(1) {
                "SUCCESS" => Met::Seen,
                _ => Met::Busy { owner: row.take_text(3), left: row.millis(4) },
            };
            met.push((row.take_text(0), state));
        }
        // Rows that have gone since: the owner has rolled back, or a purge has deleted them. The messages are neither
        // taken nor consumed.
        for id in ids {
            if !met.iter().any(|(known, _)| *known == id) {
                met.push((id, Met::Busy { owner: String::new(), left: Duration::ZERO }));
            }
        }
        Ok(met)
    }
}
