//! The tables as a whole. One script creates them, and a table of its own has their version.

use sqlx::{Connection, Pool};

use crate::{database::SqlDatabase, lent::Lent, tables::Tables, value::Kind};

/// The script that creates the tables of a crate, and the query of their version.
#[derive(Clone, Debug)]
pub struct Schema {
    script: String,
    version: String,
    number: i64,
}

impl Schema {
    /// `migration` creates the tables if they do not exist. One of them is `meta`, with the version in its column
    /// `schema_version`. The number tells these tables from those of another crate.
    pub fn new<DB: SqlDatabase>(migration: &str, tables: &Tables, number: i64) -> Self {
        let version = format!("SELECT {{int:schema_version}} FROM {}meta", tables.qualifier());
        Self { script: tables.name(migration), version: DB::DIALECT.render(&version, tables), number }
    }

    /// The statements that create the tables.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// Creates the tables if they do not exist. Several processes may call this at once.
    ///
    /// # Errors
    /// The database's.
    pub async fn migrate<DB: SqlDatabase>(&self, pool: &Pool<DB>) -> Result<(), sqlx::Error> {
        let (before, after) = DB::DIALECT.alone;
        let before = before.replace('@', &self.number.to_string());
        // After a failure the connection is dropped, not returned, because a transaction may be open on it.
        let mut conn = pool.acquire().await?.detach();
        DB::script(&mut conn, &format!("{before}\n{}\n{after}", self.script)).await?;
        conn.close().await
    }

    /// The version of the tables; 0 if there are none.
    ///
    /// # Errors
    /// The database's.
    pub async fn version<DB: SqlDatabase>(&self, pool: &Pool<DB>) -> Result<i64, sqlx::Error> {
        let named = DB::may_name(pool);
        let mut lent = Lent::from(pool, named).await?;
        match DB::query(lent.conn(), &self.version, Vec::new(), &[Kind::Int], named).await {
            Ok(rows) => {
                lent.commit().await?;
                Ok(rows.first().and_then(|row| row.int(0)).unwrap_or(0))
            }
            Err(error) if DB::is_refusal(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
