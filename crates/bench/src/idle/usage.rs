//! The resources that the clients of a database have used so far, on both sides.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::{super::processor, Engine, Result, statements};

/// The usage up to a moment.
pub(super) struct Usage {
    at: Instant,
    client: Option<Duration>,
    /// By sessions of the library, if it can be read here.
    sessions: Option<HashMap<u32, Duration>>,
    statements: statements::Count,
}

/// The usage between two moments.
pub(super) struct Spent {
    pub(super) seconds: f64,
    pub(super) client: Option<Duration>,
    pub(super) server: Option<Duration>,
    pub(super) statements: u64,
    /// Statements that read records.
    pub(super) polls: u64,
    /// At the end.
    pub(super) connections: Option<usize>,
}

impl Usage {
    pub(super) async fn start<E: Engine>(conn: &mut E::Connection) -> Result<Self> {
        let sessions = threads::<E>(conn).await?.map(|threads| processor::of_threads(&threads));
        let statements = statements::Count::start();
        Ok(Self { at: Instant::now(), client: processor::own(), sessions, statements })
    }

    /// The usage since then, without sessions that have ended meanwhile.
    pub(super) async fn stop<E: Engine>(self, conn: &mut E::Connection) -> Result<Spent> {
        let seconds = self.at.elapsed().as_secs_f64();
        let client = processor::own().zip(self.client).map(|(now, then)| now.saturating_sub(then));
        let (statements, polls) = self.statements.so_far();
        let threads = threads::<E>(conn).await?;
        let connections = E::sessions(conn).await?.map(|sessions| sessions.len());
        let known = self.sessions.unwrap_or_default();
        let server = threads.map(|threads| {
            let used = processor::of_threads(&threads).into_iter();
            used.map(|(thread, now)| now.saturating_sub(known.get(&thread).copied().unwrap_or_default()))
                .sum()
        });
        Ok(Spent { seconds, client, server, statements, polls, connections })
    }
}

/// The threads that serve the library, if they run on this machine.
async fn threads<E: Engine>(conn: &mut E::Connection) -> Result<Option<Vec<u32>>> {
    match E::server_process(conn).await? {
        Some(_) => E::sessions(conn).await,
        None => Ok(None),
    }
}
