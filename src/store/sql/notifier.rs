//! Notifications of PostgreSQL.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, PgPool, Postgres,
    postgres::{PgListener, PgPoolOptions},
};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    call::{store_error, within},
    driver::{Role, Session},
    link::Link,
    proof::Proof,
    sessions,
};
use crate::store::{ErrorClass, Listener, Notifier, StoreError, StoreSettings, Tables};

/// The start of a text that a listener sends to itself. It announces no commit.
const PROBE: &str = "probe ";
const NOTHING_ARRIVES: &str = "what is notified does not arrive here, as behind a pooler in transaction mode: give \
                               the workers a direct address, or set database.notifications to false";

/// The notifier of one set of tables.
pub(super) struct PgNotifier {
    channel: String,
    /// The text that this process sends, by which its listener skips its own notifications.
    sender: String,
    timeout: Duration,
    notifying: Link<Postgres>,
    pool: PgPool,
}

struct PgNotifyListener {
    listener: PgListener,
    sender: String,
}

impl PgNotifier {
    pub(super) fn shared(pool: &PgPool, settings: &StoreSettings) -> Arc<dyn Notifier> {
        let timeout = settings.call_timeout;
        let session = Session { role: Role::Plain, timeout, async_commit: false };
        Arc::new(Self {
            channel: channel(&settings.tables),
            sender: Uuid::now_v7().to_string(),
            timeout,
            notifying: Link::new(pool.clone(), session, Arc::default(), Proof::default(), None),
            pool: pool.clone(),
        })
    }
}

impl PgNotifier {
    /// A pool of one connection, which is closed with its listener. The listener waits without limit, so its
    /// statements have no time limit.
    fn listening(&self) -> PgPool {
        let options = PgPoolOptions::new().max_connections(1).acquire_timeout(self.timeout);
        options.connect_lazy_with(sessions::options(&self.pool))
    }

    /// Sends as text, which any pooler passes on. `NOTIFY` needs no plan and no right, unlike `pg_notify`. Channel and
    /// text consist of hexadecimal digits and a word.
    async fn send(&self, text: &str) -> Result<(), sqlx::Error> {
        let mut conn = self.notifying.borrow().await?;
        let notify = AssertSqlSafe(format!("NOTIFY {}, '{text}'", self.channel));
        sqlx::raw_sql(notify).execute(&mut *conn).await?;
        conn.keep();
        Ok(())
    }
}

async fn recv_probe(listener: &mut PgListener, probe: &str) -> Result<(), StoreError> {
    loop {
        match listener.try_recv().await {
            Ok(Some(notification)) if notification.payload() == probe => return Ok(()),
            Ok(Some(_)) => {}
            // The probe may have been sent while nobody listened.
            Ok(None) => {
                return Err(StoreError::new("listen", ErrorClass::Reconnect, "the connection was lost"));
            }
            Err(error) => return Err(store_error::<Postgres>("listen", error)),
        }
    }
}

/// The channel of these tables: a hash, because the server limits the length of a name.
fn channel(tables: &Tables) -> String {
    let name = format!("{}.{}", tables.schema().unwrap_or_default(), tables.prefix());
    format!("keylane_{:016x}", xxh3_64(name.as_bytes()))
}

#[async_trait]
impl Notifier for PgNotifier {
    async fn notify(&self) -> Result<(), StoreError> {
        within::<Postgres, _>("notify", self.timeout, self.send(&self.sender)).await
    }

    async fn listen(&self) -> Result<Box<dyn Listener>, StoreError> {
        let mut listener = within::<Postgres, _>("listen", self.timeout, async {
            let mut listener = PgListener::connect_with(&self.listening()).await?;
            listener.listen(&self.channel).await?;
            Ok(listener)
        })
        .await?;
        // A pooler in transaction mode accepts the LISTEN, but no notification arrives.
        let probe = format!("{PROBE}{}", Uuid::now_v7());
        within::<Postgres, _>("notify", self.timeout, self.send(&probe)).await?;
        match tokio::time::timeout(self.timeout, recv_probe(&mut listener, &probe)).await {
            Ok(received) => received?,
            Err(_) => return Err(StoreError::new("listen", ErrorClass::Setup, NOTHING_ARRIVES)),
        }
        // A process that only delivers does not need the notifying connection again.
        self.close_idle(Duration::ZERO).await;
        Ok(Box::new(PgNotifyListener { listener, sender: self.sender.clone() }))
    }

    async fn close_idle(&self, unused_for: Duration) {
        let closing = async {
            self.notifying.close_idle(unused_for).await;
            Ok(())
        };
        // The connection is dropped either way, so an error of closing does not matter.
        drop(within::<Postgres, ()>("close", self.timeout, closing).await);
    }
}

#[async_trait]
impl Listener for PgNotifyListener {
    async fn recv(&mut self) -> Result<(), StoreError> {
        loop {
            match self.listener.try_recv().await {
                Ok(Some(received))
                    if received.payload() == self.sender || received.payload().starts_with(PROBE) => {}
                // `None`: the connection was lost and will be opened again.
                Ok(_) => return Ok(()),
                Err(error) => return Err(store_error::<Postgres>("listen", error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_short_and_of_one_set_of_tables() {
        let of = |schema, prefix| channel(&Tables::new(schema, prefix).unwrap());
        let long = "a".repeat(32);
        assert!(of(Some("billing"), &long).len() < 64, "the limit of PostgreSQL");
        assert_ne!(of(None, "a_"), of(None, "b_"));
        assert_ne!(of(Some("a"), "outbox_"), of(Some("b"), "outbox_"));
        assert_eq!(of(Some("a"), "outbox_"), of(Some("a"), "outbox_"));
    }
}
