//! An inbox with tables of its own.

use keylane_inbox::{Inbox, InboxBuilder};
use keylane_sql::SqlDatabase;

use crate::target::{self, Connection, Target};

/// An inbox, and a table of effects.
pub(crate) struct Stage<T: Target> {
    pub(crate) inbox: Inbox<T::Db>,
    pub(crate) prefix: String,
}

impl<T: Target> Stage<T> {
    pub(crate) async fn new() -> Option<Self> {
        Self::with("READ COMMITTED", |builder| builder).await
    }

    pub(crate) async fn with(
        level: &str,
        settings: impl FnOnce(InboxBuilder<T::Db>) -> InboxBuilder<T::Db>,
    ) -> Option<Self> {
        let stage = Self::at(target::prefix("ti"), level, settings).await?;
        stage.inbox.migrate().await.unwrap();
        stage.execute("CREATE TABLE {}effect (event_id VARCHAR(255) NOT NULL)").await;
        Some(stage)
    }

    /// The same tables again.
    pub(crate) async fn at(
        prefix: String,
        level: &str,
        settings: impl FnOnce(InboxBuilder<T::Db>) -> InboxBuilder<T::Db>,
    ) -> Option<Self> {
        let pool = T::open(&prefix, level).await?;
        let inbox = settings(Inbox::builder(pool).table_prefix(prefix.as_str())).build().unwrap();
        Some(Self { inbox, prefix })
    }

    /// The effect of a message.
    pub(crate) async fn affect(&self, conn: &mut Connection<T>, event_id: &str) -> Result<(), sqlx::Error> {
        let insert = format!("INSERT INTO {}effect (event_id) VALUES ('{event_id}')", self.prefix);
        T::Db::script(conn, &insert).await
    }

    pub(crate) async fn effects_of(&self, event_id: &str) -> i64 {
        self.count(&format!("{{}}effect WHERE event_id = '{event_id}'")).await
    }

    /// The rows of `FROM` this, where `{}` is the prefix.
    pub(crate) async fn count(&self, from: &str) -> i64 {
        target::number(self.inbox.pool(), &self.prefix, &format!("SELECT count(*) FROM {from}")).await
    }

    pub(crate) async fn messages(&self, condition: &str) -> i64 {
        self.count(&format!("{{}}message WHERE {condition}")).await
    }

    pub(crate) async fn execute(&self, sql: &str) {
        target::execute(self.inbox.pool(), &self.prefix, sql).await.unwrap();
    }

    pub(crate) async fn end(self) {
        target::end(self.inbox.pool(), &self.prefix, &["effect", "message", "meta"]).await;
    }
}
