//! Locks by name (`GET_LOCK`), one for each ticket. A session of the ticket's client holds the name. A waiter asks
//! the server for the name, and gets it when the ticket has gone.

use std::{sync::Arc, time::Duration};

use keylane_sql::Lent;
use sqlx::{ConnectOptions, Connection, MySql, MySqlConnection, MySqlPool, mysql::MySqlPoolOptions};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use crate::{
    database::{LockDatabase, Wake},
    rules::POLL_INTERVAL,
    signals::{Waiter, Waiters},
};

/// The most sessions of a client that wait for names. Further waiters poll.
const WAITING_SESSIONS: u32 = 64;
/// A time longer than the longest lease, which ends each wait.
const LONGEST_WAIT_SECONDS: i64 = 100_000;
/// How long a call that does not wait for a name may take.
const CALL_LIMIT: Duration = Duration::from_secs(5);

/// The sessions of a client that hold names and wait for names.
#[derive(Debug)]
pub struct Names {
    direct: MySqlPool,
    /// Holds the names of all tickets of this client.
    holding: Mutex<Option<MySqlConnection>>,
    /// Each session asks for one name.
    waiting: MySqlPool,
}

impl LockDatabase for MySql {
    type Wake = Names;
}

impl Wake<MySql> for Names {
    fn new(direct: &MySqlPool, _: &MySqlPool, _: Arc<Waiters>) -> Self {
        let waiting = MySqlPoolOptions::new()
            .max_connections(WAITING_SESSIONS)
            .acquire_timeout(POLL_INTERVAL)
            .idle_timeout(Duration::from_secs(10))
            .test_before_acquire(false)
            .connect_lazy_with((*direct.connect_options()).clone());
        Self { direct: direct.clone(), holding: Mutex::default(), waiting }
    }

    async fn open(&self, ticket: &str) {
        self.hold(ticket, "SELECT GET_LOCK(?, 0)").await;
    }

    async fn close(&self, ticket: &str) {
        self.hold(ticket, "SELECT RELEASE_LOCK(?)").await;
    }

    /// A server, and sometimes a network, closes sessions that send nothing for long.
    async fn keep(&self, tickets: &[&str]) {
        if !self.is_alive().await {
            for ticket in tickets {
                self.open(ticket).await;
            }
        }
    }

    async fn wait(&self, waiter: &Waiter, ticket: &str, longest: Duration) {
        // The name was free although the ticket was there: no session holds the name, so it brings no signal.
        if waiter.ignores(ticket) {
            return sleep(longest.min(POLL_INTERVAL)).await;
        }
        match timeout(longest, self.got(ticket)).await {
            Ok(Ok(true)) => waiter.ignore(ticket),
            Ok(_) => sleep(longest.min(POLL_INTERVAL)).await,
            Err(_) => {}
        }
    }
}

impl Names {
    /// Runs the statement in the session that holds the names. If that fails, other clients poll.
    async fn hold(&self, ticket: &str, sql: &'static str) {
        let mut holding = self.holding.lock().await;
        // The session is taken out, so that a call that is dropped leaves none with a half-read answer.
        let session = holding.take();
        let held = async {
            let mut session = match session {
                Some(session) => session,
                None => self.direct.connect_options().connect().await?,
            };
            sqlx::query(sql).bind(name(ticket)).execute(&mut session).await?;
            Ok::<_, sqlx::Error>(session)
        };
        match timeout(CALL_LIMIT, held).await {
            Ok(Ok(session)) => *holding = Some(session),
            Ok(Err(error)) => {
                tracing::warn!(target: "keylane_lock", %error, "the names of tickets are not held");
            }
            Err(_) => tracing::warn!(target: "keylane_lock", "the names of tickets are not held: no answer"),
        }
    }

    /// Whether the session that holds the names answers.
    async fn is_alive(&self) -> bool {
        let mut holding = self.holding.lock().await;
        let Some(mut session) = holding.take() else { return false };
        let is_alive = matches!(timeout(CALL_LIMIT, session.ping()).await, Ok(Ok(())));
        *holding = is_alive.then_some(session);
        is_alive
    }

    /// Whether the session got the name. It gives the name back at once, for the next waiter.
    async fn got(&self, ticket: &str) -> Result<bool, sqlx::Error> {
        let mut session = Lent::<MySql>::from(&self.waiting, true).await?;
        let got = sqlx::query_scalar("SELECT CASE GET_LOCK(?, ?) WHEN 1 THEN RELEASE_LOCK(?) END")
            .bind(name(ticket))
            .bind(LONGEST_WAIT_SECONDS)
            .bind(name(ticket));
        let got: Option<i64> = got.fetch_one(session.conn()).await?;
        session.commit().await?;
        Ok(got == Some(1))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let Some(session) = self.holding.get_mut().take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(session.close());
        }
    }
}

/// Names are global on a server: the prefix keeps them apart from those of other programs.
fn name(ticket: &str) -> String {
    format!("keylane_lock_{ticket}")
}
