//! The narrow waist between the store and sqlx: two verbs over plain values, and one fast path.

use std::{ops::DerefMut, sync::Arc};

use sqlx::AssertSqlSafe;
use uuid::Uuid;

use super::{
    dialect::{Dialect, Family},
    insert::{Insert, Producer},
    statements::{Statements, elsewhere},
};
pub(crate) use crate::statement::Value;
use crate::{
    database::Database,
    handler::BoxFuture,
    partition::{Partition, PartitionSet},
    record::{Record, RecordId},
    rules::{
        horizon::{Bystanders, Head, Horizon, Server},
        witnesses::Witness,
    },
    store::{ErrorClass, FenceRow, IdScan, Notifier, Pick, SchemaError, StoreSettings},
};

/// The kind of a column of a result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Int,
    Text,
    Bytes,
    Uuid,
}

/// A decoded column. Null only where the statement allows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(Uuid),
}

/// A decoded row. If the kind of a column does not match, an accessor returns an empty value: the kinds of a
/// statement stand beside its call, and the conformance suite runs each call.
#[derive(Clone, Debug)]
pub(crate) struct Row(pub(crate) Vec<Cell>);

impl Row {
    pub(crate) fn int(&self, column: usize) -> i64 {
        self.optional_int(column).unwrap_or(0)
    }

    pub(crate) fn optional_int(&self, column: usize) -> Option<i64> {
        match self.0.get(column) {
            Some(Cell::Int(number)) => Some(*number),
            _ => None,
        }
    }

    pub(crate) fn text(&self, column: usize) -> String {
        self.optional_text(column).unwrap_or_default()
    }

    pub(crate) fn optional_text(&self, column: usize) -> Option<String> {
        match self.0.get(column) {
            Some(Cell::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    pub(crate) fn bytes(&self, column: usize) -> Vec<u8> {
        match self.0.get(column) {
            Some(Cell::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn uuid(&self, column: usize) -> Option<Uuid> {
        match self.0.get(column) {
            Some(Cell::Uuid(uuid)) => Some(*uuid),
            _ => None,
        }
    }
}

/// The first column after those of a record. It is null in rows that are records. A row with a value there is
/// no record: it carries what the statement reads at the same moment.
pub(crate) const AFTER_RECORD: usize = 12;

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Fetches. Reads only.
    Poll,
    /// Writes outcomes.
    Settle,
    /// Claims records.
    Claim,
    /// All other calls of a worker.
    Control,
    /// Statements that need no session: text without arguments, each outside of a transaction. No setting of
    /// the connection is changed, so that the role works behind any pooler and does not affect other clients
    /// of the pooler.
    Plain,
}

pub(crate) type DriverResult<'c, T> = BoxFuture<'c, Result<T, sqlx::Error>>;

/// One database of sqlx, with all differences that are more than a fragment of text.
pub(crate) trait Driver: Database {
    /// The fragments of its statements.
    const DIALECT: Dialect;
    /// The family, which selects the statements that differ as a whole.
    const FAMILY: Family;
    /// A statement that reads a number which changes with each commit of another connection. `None` unless
    /// reading it costs almost nothing.
    const VERSION: Option<&'static str> = None;

    /// Whether statements on connections of the pool may have names on the server.
    fn may_name(_: &Self::Pool) -> bool {
        true
    }
    /// Opens a connection outside of the pool, with the current options of the pool.
    fn open_session(pool: &Self::Pool, session: Session) -> DriverResult<'static, Self::Connection>;
    /// Sets up an open connection for its role.
    fn set_up(_: &mut Self::Connection, _: Session) -> DriverResult<'_, ()> {
        Box::pin(async { Ok(()) })
    }
    /// How long a connection of this role may be idle. After a longer time the server may have closed it.
    fn longest_rest(_: Role) -> std::time::Duration {
        std::time::Duration::MAX
    }
    /// A connection lent by the pool of the user. Dropping it takes it out of the pool and closes it.
    type Lent: DerefMut<Target = Self::Connection> + Send;
    /// Borrows a connection from the pool of the user.
    fn lend(pool: &Self::Pool) -> DriverResult<'_, Self::Lent>;
    /// Returns a clean connection to the pool.
    fn return_connection(lent: Self::Lent);
    /// Closes the connection and tells the server.
    fn close(conn: Self::Connection) -> DriverResult<'static, ()>;
    /// Finds a pooler on the way that does not keep the session of a connection. Changes no setting.
    fn find_pooler(_: &Self::Pool) -> DriverResult<'_, Option<SchemaError>> {
        Box::pin(async { Ok(None) })
    }
    /// Why the server is unfit, apart from its schema. `None` if the server is fit.
    fn check_server(_: &mut Self::Connection) -> DriverResult<'_, Option<SchemaError>> {
        Box::pin(async { Ok(None) })
    }
    /// The notifier that tells other processes of commits. `None` if the database has no notifications.
    fn notifier(_: &Self::Pool, _: &StoreSettings) -> Option<Arc<dyn Notifier>> {
        None
    }
    /// The code of an error of the server, as the server's manual lists it.
    fn code_of(error: &dyn sqlx::error::DatabaseError) -> String {
        error.code().unwrap_or_default().into_owned()
    }
    /// What to do about an error of the server.
    fn class_of(error: &dyn sqlx::error::DatabaseError) -> ErrorClass;

    /// Begins a transaction of sqlx by these statements.
    fn begin_work<'c>(conn: &'c mut Self::Connection, sql: AssertSqlSafe<Arc<str>>) -> DriverResult<'c, ()>;
    /// Commits the transaction.
    fn commit_work(conn: &mut Self::Connection) -> DriverResult<'_, ()>;
    /// Rolls the transaction back.
    fn roll_back_work(conn: &mut Self::Connection) -> DriverResult<'_, ()>;
    /// The number of nested transactions that are open on the connection, as sqlx counts them.
    fn depth(conn: &mut Self::Connection) -> DriverResult<'_, usize>;

    /// Runs a statement. Returns the number of matched rows. A statement without arguments goes as text, in
    /// one round trip.
    fn execute<'c>(
        conn: &'c mut Self::Connection,
        sql: AssertSqlSafe<Arc<str>>,
        values: Vec<Value>,
    ) -> DriverResult<'c, u64>;
    /// Runs a query.
    fn query<'c>(
        conn: &'c mut Self::Connection,
        sql: AssertSqlSafe<Arc<str>>,
        values: Vec<Value>,
        kinds: &'static [Kind],
    ) -> DriverResult<'c, Vec<Row>>;
    /// Runs a query without arguments as text, in one round trip.
    fn query_text<'c>(
        conn: &'c mut Self::Connection,
        sql: AssertSqlSafe<Arc<str>>,
        kinds: &'static [Kind],
    ) -> DriverResult<'c, Vec<Row>>;
    /// Runs several statements as text.
    fn script<'c>(conn: &'c mut Self::Connection, sql: AssertSqlSafe<Arc<str>>) -> DriverResult<'c, ()>;
    /// Reads records of these partitions.
    fn fetch_by_partition<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Arc<str>,
        partitions: &'c [Partition],
        pick: Pick<'c>,
    ) -> DriverResult<'c, Vec<Arc<Record>>>;
    /// Moves the fence row on and completes records with this count of failures, in one statement. The
    /// records have these ids, or ids from each of these to its last one. Returns the numbers of written
    /// fence rows and records, and the number of the transaction. Only called if
    /// [`Statements::settle_at_once`] is `Some`.
    fn complete_at_once<'c>(
        _: &'c mut Self::Connection,
        _: &'c Arc<str>,
        _: FenceRow,
        _: &'c [RecordId],
        _: Option<&'c [RecordId]>,
        _: u32,
    ) -> DriverResult<'c, (i64, usize, (i64, Server))> {
        Box::pin(async { Err(elsewhere()) })
    }
    /// Reads claimed records. The generation of each is the token of its claim.
    fn read_claimed(
        conn: &mut Self::Connection,
        sql: AssertSqlSafe<Arc<str>>,
    ) -> DriverResult<'_, Vec<Arc<Record>>>;
    /// Reads delayed records that are due, and the count of the cluster's changes from the row before them.
    fn fetch_due<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Arc<str>,
        partitions: PartitionSet,
        pick: Pick<'c>,
    ) -> DriverResult<'c, (Vec<Arc<Record>>, i64)>;
    /// Reads records by id, and the horizon.
    fn scan_by_id<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Statements,
        scan: IdScan<'c>,
    ) -> DriverResult<'c, (Vec<Arc<Record>>, Horizon)>;
    /// Reads the last id, then draws a number. Only on a database with numbers of transactions.
    fn draw_number<'c>(
        _: &'c mut Self::Connection,
        _: &'c Statements,
    ) -> DriverResult<'c, Option<(Witness, Server)>> {
        Box::pin(async { Ok(None) })
    }
    /// Reads the last id, then which of these transactions have written no record. Only on a database with
    /// numbers of transactions.
    fn find_bystanders<'c>(
        _: &'c mut Self::Connection,
        _: &'c Statements,
        _: &'c [i64],
    ) -> DriverResult<'c, Option<Bystanders>> {
        Box::pin(async { Ok(None) })
    }
    /// Reads the id of the head.
    fn find_head<'c>(
        conn: &'c mut Self::Connection,
        sql: &'c Statements,
        partitions: PartitionSet,
        skip: &'c [RecordId],
    ) -> DriverResult<'c, Head>;
    /// Inserts records that share their due time, as one statement.
    fn insert_rows<'c>(conn: &'c mut Self::Connection, insert: Insert<'c>) -> DriverResult<'c, ()>;
    /// The statement that locks a key of the strict order, if this database needs one.
    fn lock_key(_: &Producer, _: &str) -> Option<(String, Vec<Value>)> {
        None
    }
    /// Applies the migrations.
    fn migrate<'c>(
        conn: &'c mut Self::Connection,
        migrator: &'c sqlx::migrate::Migrator,
    ) -> BoxFuture<'c, Result<(), sqlx::migrate::MigrateError>>;
}

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    expect(dead_code, reason = "MySQL has one setup for every role")
)]
pub(crate) struct Session {
    pub(crate) role: Role,
    /// The server cancels a statement after this time, so that the statement does not outlive its caller.
    pub(crate) timeout: std::time::Duration,
    /// Whether commits do not wait for the disk, on servers that offer it.
    pub(crate) async_commit: bool,
}
