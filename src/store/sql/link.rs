//! A connection of the store, opened when needed and never shared after a failure.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use sqlx::{AssertSqlSafe, pool::PoolConnection};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use super::{
    connecting::connect,
    driver::{Driver, Kind, Role, Session},
    proof::Proof,
};
use crate::{
    rules::horizon::Server,
    store::{HomeServer, OTHER_SERVER},
};

/// The place of one connection.
pub(crate) struct Link<D: Driver> {
    pool: D::Pool,
    session: Session,
    /// Statements of the user for a new connection. Never changes.
    on_connect: Arc<[String]>,
    /// The proof that the address keeps the session of a connection. Asked for before a setting is made.
    proof: Proof,
    /// The only server to which the connection may lead. `None` if the store is bound to no server.
    home: Option<HomeServer>,
    place: Mutex<Place<D>>,
}

/// The idle connection, and when it was put back. Written by `open_anew`, `discard`, `close_idle` and the
/// borrower.
struct Place<D: Driver> {
    idle: Option<D::Connection>,
    used_at: Instant,
}

impl<D: Driver> Place<D> {
    /// Takes the idle connection, unless it has rested for longer than this.
    fn take(&mut self, longest_rest: Duration) -> Option<D::Connection> {
        let rested = self.used_at.elapsed();
        self.idle.take().filter(|_| rested <= longest_rest)
    }
}

impl<D: Driver> Link<D> {
    pub(crate) fn new(
        pool: D::Pool,
        session: Session,
        on_connect: Arc<[String]>,
        proof: Proof,
        home: Option<HomeServer>,
    ) -> Self {
        let place = Mutex::new(Place { idle: None, used_at: Instant::now() });
        Self { pool, session, on_connect, proof, home, place }
    }

    /// Borrows the connection. If there is none, opens it.
    pub(crate) async fn borrow(&self) -> Result<Borrowed<'_, D>, sqlx::Error> {
        let mut place = self.place.lock().await;
        let conn = match place.take(D::longest_rest(self.session.role)) {
            Some(conn) => conn,
            None => self.open(self.session).await?,
        };
        Ok(Borrowed { place, conn: Some(conn) })
    }

    /// Opens the connection for the next borrower. The server cancels its statements after `timeout`.
    pub(crate) async fn open_anew(&self, timeout: Duration) -> Result<(), sqlx::Error> {
        let mut place = self.place.lock().await;
        let conn = self.open(Session { timeout, ..self.session }).await?;
        *place = Place { idle: Some(conn), used_at: Instant::now() };
        Ok(())
    }

    /// Closes the idle connection, so that the next borrower opens another one.
    pub(crate) async fn discard(&self) {
        self.place.lock().await.idle = None;
    }

    /// Opens a connection. A connection leads to the same process of a server until its end, so only this
    /// function asks for the server.
    async fn open(&self, session: Session) -> Result<D::Connection, sqlx::Error> {
        if session.role == Role::Plain {
            return connect::<D>(&self.pool, session, &self.on_connect).await;
        }
        self.proof.of::<D>(&self.pool).await?;
        let mut conn = connect::<D>(&self.pool, session, &self.on_connect).await?;
        if let Some(home) = &self.home
            && !home.is(answering::<D>(&mut conn).await?)
        {
            return Err(sqlx::Error::Io(std::io::Error::other(OTHER_SERVER)));
        }
        Ok(conn)
    }

    /// Closes the connection if it was not used for this long. The next borrower opens another one.
    pub(crate) async fn close_idle(&self, unused_for: Duration) {
        let Ok(mut place) = self.place.try_lock() else { return };
        if place.used_at.elapsed() < unused_for {
            return;
        }
        let idle = place.idle.take();
        drop(place);
        if let Some(conn) = idle {
            // The connection is dropped either way, so an error of closing does not matter.
            drop(D::close(conn).await);
        }
    }
}

/// The server to which a connection leads.
pub(super) async fn answering<D: Driver>(conn: &mut D::Connection) -> Result<Server, sqlx::Error> {
    let sql = AssertSqlSafe(Arc::from(format!("SELECT {}", D::DIALECT.server)));
    let rows = D::query_text(conn, sql, &[Kind::Int]).await?;
    Ok(Server(rows.first().map_or(0, |row| row.int(0))))
}

/// A borrowed connection. Only [`keep`](Self::keep) puts it back. After an error, a timeout or a cancelled
/// call it is closed, with all that was open on it.
pub(crate) struct Borrowed<'a, D: Driver> {
    place: MutexGuard<'a, Place<D>>,
    conn: Option<D::Connection>,
}

impl<D: Driver> Borrowed<'_, D> {
    /// Puts the connection back: the work is done and the connection is clean.
    pub(crate) fn keep(mut self) {
        *self.place = Place { idle: self.conn.take(), used_at: Instant::now() };
    }
}

#[expect(clippy::expect_used, reason = "the connection is there until `keep` takes the guard by value")]
impl<D: Driver> Deref for Borrowed<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        self.conn.as_ref().expect("borrowed connection")
    }
}

#[expect(clippy::expect_used, reason = "as above")]
impl<D: Driver> DerefMut for Borrowed<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.conn.as_mut().expect("borrowed connection")
    }
}

/// A connection lent by the pool of the user. Dropping it takes it out of the pool and closes it, because a
/// call that was cut off may have left anything open on it.
pub(crate) struct Lent<DB: sqlx::Database>(Option<PoolConnection<DB>>);

impl<DB: sqlx::Database> Lent<DB> {
    pub(crate) fn new(conn: PoolConnection<DB>) -> Self {
        Self(Some(conn))
    }

    /// Returns the connection to the pool: the work is done and the connection is clean.
    pub(crate) fn keep(mut self) {
        drop(self.0.take());
    }
}

impl<DB: sqlx::Database> Drop for Lent<DB> {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

#[expect(clippy::expect_used, reason = "the connection is there until `keep` takes the guard by value")]
impl<DB: sqlx::Database> Deref for Lent<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.0.as_ref().expect("lent connection")
    }
}

#[expect(clippy::expect_used, reason = "as above")]
impl<DB: sqlx::Database> DerefMut for Lent<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.0.as_mut().expect("lent connection")
    }
}

/// A transaction of [`Outbox::transaction`](crate::Outbox::transaction). Dropping it closes its connection,
/// which ends the transaction.
pub struct OpenTransaction<DB: sqlx::Database>(Lent<DB>);

impl<DB: sqlx::Database> OpenTransaction<DB> {
    /// Takes a connection that has a transaction open.
    pub(crate) fn on(lent: Lent<DB>) -> Self {
        Self(lent)
    }

    /// Returns the connection after the commit.
    pub(crate) fn keep(self) {
        self.0.keep();
    }
}

impl<DB: sqlx::Database> Deref for OpenTransaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.0
    }
}

impl<DB: sqlx::Database> DerefMut for OpenTransaction<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.0
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use sqlx::{Sqlite, SqlitePool, sqlite::SqliteConnectOptions};

    use super::*;
    use crate::store::sql::driver::Role;

    fn link() -> Link<Sqlite> {
        let session = Session { role: Role::Control, timeout: Duration::from_secs(5), async_commit: false };
        let options = SqliteConnectOptions::new().in_memory(true);
        Link::new(SqlitePool::connect_lazy_with(options), session, Arc::default(), Proof::default(), None)
    }

    /// The server closes a connection that rests, and a statement on it would fail.
    #[tokio::test]
    async fn a_connection_that_has_rested_too_long_is_not_used_again() {
        let link = link();
        link.borrow().await.unwrap().keep();
        let mut place = link.place.lock().await;
        let longest = Duration::from_secs(15);
        place.used_at = Instant::now() - longest + Duration::from_secs(2);
        place.idle = place.take(longest);
        assert!(place.idle.is_some(), "it has rested for 13 s");
        place.used_at -= Duration::from_secs(3);
        assert!(place.take(longest).is_none(), "it has rested for 16 s");
        assert!(place.idle.is_none(), "and is closed");
    }

    #[tokio::test]
    async fn a_connection_is_closed_once_it_was_not_used_for_so_long() {
        let link = link();
        link.borrow().await.unwrap().keep();
        link.close_idle(Duration::from_secs(60)).await;
        assert!(link.place.lock().await.idle.is_some(), "used just now");
        link.close_idle(Duration::ZERO).await;
        assert!(link.place.lock().await.idle.is_none(), "used by nobody");
        link.borrow().await.unwrap().keep();
        assert!(link.place.lock().await.idle.is_some(), "opened again");
    }
}
