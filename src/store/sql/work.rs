//! Transactions in which code of the user runs.
//!
//! They are opened through sqlx, so that a `begin` of the user on the same connection is a savepoint. The
//! user's code may still end the transaction by a statement of its own: `COMMIT`, or DDL on MySQL, which
//! commits. If a fence row is to move in a transaction, the transaction therefore has a mark that ends with
//! it: a savepoint, or on PostgreSQL a setting of the transaction, because a savepoint there would cost a
//! number. Without the mark the fence row does not move.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{
    call::{query, store_error},
    driver::{Driver, Kind},
    statements::{filled, safe},
};
use crate::store::{ErrorClass, FenceRow, StoreError};

/// The name of the mark in an error of the server.
const MARK: &str = "keylane_work";

/// Whether the fence row has moved, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// The same transaction is open, and the fence row had the expected counter.
    Moved,
    /// Another process has closed the fence row or moved it on.
    Lost,
    /// The code of the user has ended the transaction.
    Ended,
    /// The code of the user has left an inner transaction open.
    Nested,
}

/// Opens a transaction that writes.
pub(crate) async fn begin<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    D::begin_work(conn, AssertSqlSafe(Arc::from(D::DIALECT.begin))).await
}

/// Opens a transaction with the mark.
pub(super) async fn begin_marked<D: Driver>(conn: &mut D::Connection) -> Result<(), sqlx::Error> {
    let sql = format!("{}; {}", D::DIALECT.begin, D::DIALECT.mark.set);
    D::begin_work(conn, AssertSqlSafe(Arc::from(sql))).await
}

/// Refuses to commit while the work has an inner transaction open, because sqlx would end only that one.
pub(crate) async fn check<D: Driver>(conn: &mut D::Connection) -> Result<(), StoreError> {
    let depth = D::depth(conn).await.map_err(|error| store_error::<D>("commit", error))?;
    let problem = match depth {
        1 => return Ok(()),
        0 => "the work has ended the transaction itself; leave that to Outbox::transaction",
        _ => "the work has left a transaction open that it began within this one; commit it or roll it back",
    };
    Err(StoreError::new("commit", ErrorClass::Setup, problem))
}

/// Whether code of the user has ended the marked transaction, or left an inner one open. `None` if neither.
/// Removes the mark, if a statement does.
pub(super) async fn take_mark<D: Driver>(conn: &mut D::Connection) -> Result<Option<Fence>, sqlx::Error> {
    match D::depth(conn).await? {
        0 => return Ok(Some(Fence::Ended)),
        1 => {}
        _ => return Ok(Some(Fence::Nested)),
    }
    let Some(take) = D::DIALECT.mark.take else {
        return Ok((!is_marked::<D>(conn).await?).then_some(Fence::Ended));
    };
    match D::script(conn, AssertSqlSafe(Arc::from(take))).await {
        Ok(()) => Ok(None),
        Err(error) if is_of_mark(&error) => Ok(Some(Fence::Ended)),
        Err(error) => Err(error),
    }
}

async fn is_marked<D: Driver>(conn: &mut D::Connection) -> Result<bool, sqlx::Error> {
    let found = query::<D>(conn, safe(&Arc::from(D::DIALECT.mark.read)), Vec::new(), &[Kind::Int]).await?;
    Ok(found.first().is_some_and(|row| row.int(0) == 1))
}

/// Whether the server says that there is no mark.
fn is_of_mark(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.message().contains(MARK),
        _ => false,
    }
}

/// Moves the fence row on in a marked transaction, and removes the mark.
pub(super) async fn move_marked_fence<D: Driver>(
    conn: &mut D::Connection,
    sql: &Arc<str>,
    fence: FenceRow,
) -> Result<Fence, sqlx::Error> {
    match D::depth(conn).await? {
        0 => return Ok(Fence::Ended),
        1 => {}
        _ => return Ok(Fence::Nested),
    }
    let instance = fence.instance.to_string();
    let (slot, counter, home) = (i64::from(fence.slot), fence.counter, fence.server.0);
    let with = |[instance, slot, counter, home]: [String; 4]| {
        let values = [("{instance}", instance), ("{slot}", slot), ("{counter}", counter), ("{home}", home)];
        filled(sql, &values)
    };
    let bound = || Arc::from(with([1, 2, 3, 4].map(|number| D::DIALECT.parameter(number))));
    let values = || vec![instance.as_str().into(), slot.into(), counter.into(), home.into()];
    let Some(take) = D::DIALECT.mark.take else {
        if D::execute(conn, AssertSqlSafe(bound()), values()).await? == 1 {
            return Ok(Fence::Moved);
        }
        return Ok(if is_marked::<D>(conn).await? { Fence::Lost } else { Fence::Ended });
    };
    let moved = if D::DIALECT.mark.counts {
        match D::script(conn, AssertSqlSafe(Arc::from(take))).await {
            Ok(()) => D::execute(conn, AssertSqlSafe(bound()), values()).await,
            Err(error) => Err(error),
        }
    } else {
        // One round trip without parameters: the values are a uuid and three integers of the library.
        let numbers = [slot, counter, home].map(|number| number.to_string());
        let [slot, counter, home] = numbers;
        let both = format!("{take}; {}", with([format!("'{instance}'"), slot, counter, home]));
        D::execute(conn, AssertSqlSafe(Arc::from(both)), Vec::new()).await
    };
    match moved {
        Ok(1) => Ok(Fence::Moved),
        Ok(_) => Ok(Fence::Lost),
        Err(error) if is_of_mark(&error) => Ok(Fence::Ended),
        Err(error) => Err(error),
    }
}
