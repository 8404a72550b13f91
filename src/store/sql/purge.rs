//! Purges rows in batches. Each batch is a short transaction that finds its rows by an index. The next round
//! deletes the rows that a round has left.

use std::{sync::Arc, time::Duration};

use super::{
    SqlStore,
    call::{begin, commit, query},
    dialect::Family,
    driver::{Cell, Driver, Kind, Row, Value},
    statements::{fill, filled, safe},
};
use crate::{
    instance::InstanceId,
    store::{PURGED_AT_ONCE, StoreError},
};

/// The most rows that one statement deletes.
const BATCH: u64 = 2_000;

/// Rows of a table that a query finds by their keys.
struct Old<'a> {
    table: &'static str,
    key: &'static str,
    kind: &'static [Kind],
    find: &'a Arc<str>,
}

fn micros(duration: Duration) -> Value {
    Value::Int(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX))
}

impl<D: Driver> SqlStore<D> {
    pub(super) async fn purge_round(&self, age: Duration, dedup_age: Duration) -> Result<u64, StoreError> {
        let sql = &self.sql;
        let completed = Old { table: "record", key: "id", kind: &[Kind::Int], find: &sql.old_completed };
        let archived = Old { table: "archive", key: "id", kind: &[Kind::Int], find: &sql.old_archived };
        let dedup = Old { table: "dedup", key: "dedup_key", kind: &[Kind::Text], find: &sql.old_dedup };
        let mut purged = 0;
        for (from, to) in completed_parts(D::FAMILY) {
            let values = [Value::Int(from), Value::Int(to), micros(age)];
            purged += self.purge_old(&completed, &values).await?;
            if purged >= PURGED_AT_ONCE {
                break;
            }
        }
        purged += self.purge_old(&archived, &[micros(age)]).await?;
        purged += self.purge_old(&dedup, &[micros(dedup_age)]).await?;
        Ok(purged + self.purge_keys().await?)
    }

    async fn purge_old(&self, old: &Old<'_>, values: &[Value]) -> Result<u64, StoreError> {
        let mut purged = 0;
        while purged < PURGED_AT_ONCE {
            let mut values = values.to_vec();
            values.push(Value::Int(BATCH as i64));
            let deleted = match D::FAMILY {
                Family::MySql => self.purge_found(old, values).await?,
                Family::Postgres | Family::Sqlite => {
                    self.write("purge", &self.delete_old(old, &[("{find}", old.find.to_string())]), values)
                        .await?
                }
            };
            purged += deleted;
            if deleted < BATCH {
                break;
            }
        }
        Ok(purged)
    }

    /// Reads the keys first, then deletes by the keys. If both were one statement, the search would lock the
    /// rows that it passes, and wait for rows of open transactions.
    async fn purge_found(&self, old: &Old<'_>, values: Vec<Value>) -> Result<u64, StoreError> {
        let found = self.read("purge", safe(old.find), values, old.kind).await?;
        match found.is_empty() {
            true => Ok(0),
            false => self.write("purge", &self.delete_by_key(old, &found), Vec::new()).await,
        }
    }

    /// Renders the statement that deletes rows of a table.
    fn delete_old(&self, old: &Old<'_>, values: &[(&str, String)]) -> Arc<str> {
        let names = [("{table}", old.table.to_owned()), ("{key}", old.key.to_owned())];
        filled(&filled(&self.sql.delete_old, &names), values).into()
    }

    /// Renders the statement that deletes rows by their keys. The keys are in the text, which differs each
    /// time.
    fn delete_by_key(&self, old: &Old<'_>, found: &[Row]) -> Arc<str> {
        let keys: Vec<String> = found.iter().filter_map(|row| row.0.first().and_then(element)).collect();
        let (column, given) = match old.kind {
            [Kind::Int] => ("BIGINT", "x.k"),
            _ => ("VARCHAR(510) CHARACTER SET latin1", "UNHEX(x.k)"),
        };
        let (column, given) = (column.to_owned(), given.to_owned());
        self.delete_old(old, &[("{column}", column), ("{given}", given), ("{keys}", keys.join(","))])
    }

    /// Purges unlocked keys of the strict order, in one pass over the table. A deleted row is not missed: the
    /// next transaction that locks the key inserts it again.
    async fn purge_keys(&self) -> Result<u64, StoreError> {
        let Some(find) = &self.sql.unlocked_keys else { return Ok(0) };
        let old = Old { table: "key", key: "record_key", kind: &[Kind::Text], find };
        let (mut purged, mut after) = (0, String::new());
        while purged < PURGED_AT_ONCE {
            let found = self.purge_unlocked(&old, after).await?;
            purged += found.len() as u64;
            match found.last() {
                Some(last) => after = last.text(0),
                None => break,
            }
        }
        Ok(purged)
    }

    async fn purge_unlocked(&self, old: &Old<'_>, after: String) -> Result<Vec<Row>, StoreError> {
        self.call("purge", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let values = vec![Value::Bytes(after.into_bytes()), Value::Int(BATCH as i64)];
            let found = query::<D>(&mut conn, safe(old.find), values, old.kind).await?;
            if !found.is_empty() {
                D::execute(&mut conn, safe(&self.delete_by_key(old, &found)), Vec::new()).await?;
            }
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(found)
        })
        .await
    }

    /// Purges a batch of instances that ended long ago, with their fence rows.
    pub(super) async fn purge_some_instances(&self, silent_for: Duration) -> Result<usize, StoreError> {
        let values = vec![micros(silent_for), Value::Int(BATCH as i64)];
        let gone = self.read("purge instances", safe(&self.sql.old_instances), values, &[Kind::Text]).await?;
        let gone = gone.iter().filter_map(|row| row.text(0).parse::<InstanceId>().ok());
        let gone: Vec<String> = gone.map(|instance| format!("'{instance}'")).collect();
        if gone.is_empty() {
            return Ok(0);
        }
        let instances = [("{instances}", gone.join(","))];
        self.call("purge instances", async {
            let mut conn = self.control.borrow().await?;
            begin::<D>(&mut conn).await?;
            let purge = fill(&self.sql.purge_instances, &instances);
            let purged = D::execute(&mut conn, purge, Vec::new()).await?;
            D::execute(&mut conn, fill(&self.sql.purge_fences, &instances), Vec::new()).await?;
            commit::<D>(&mut conn).await?;
            conn.keep();
            Ok(purged as usize)
        })
        .await
    }
}

/// A key as an element of a JSON array: a number, or the digits of its bytes.
fn element(key: &Cell) -> Option<String> {
    match key {
        Cell::Int(id) => Some(id.to_string()),
        Cell::Text(text) => {
            let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            Some(format!("\"{digits}\""))
        }
        Cell::Null | Cell::Bytes(_) | Cell::Uuid(_) => None,
    }
}

/// The ranges of partitions, both ends included, in which a batch searches for kept records. The index of the
/// MySQL family has partition and id, so a search over all partitions would read the young records of all
/// partitions before each batch.
fn completed_parts(family: Family) -> Vec<(i64, i64)> {
    match family {
        Family::MySql => (0..256).map(|partition| (partition, partition)).collect(),
        Family::Postgres | Family::Sqlite => vec![(0, 255)],
    }
}
