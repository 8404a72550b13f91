//! A stage: one set of tables on one store, and processes (outboxes) that use it.

use std::{sync::Arc, time::Duration};

use keylane::{
    Config, Outbox, OutboxBuilder, Registration, RetryPolicy, Running,
    admin::Status,
    database::Database,
    inner::{Store, StoreSettings, Tables},
};

use crate::{
    ledger::Placed,
    recorder::{Recorder, eventually},
    target::{Pool, SqlTarget, Target},
    user::{User, qualifier},
};

/// Tables of their own, with the pool and the settings of their processes.
pub(crate) struct Stage<T: Target> {
    pub(crate) pool: Pool<T>,
    pub(crate) tables: Tables,
    pub(crate) config: Config,
    /// The signals of all outboxes of this stage.
    pub(crate) signals: Recorder,
    unique: String,
}

/// Short intervals, so that no case waits for a poll; long limits, so that a busy machine causes no failure.
pub(crate) fn quick_config(tables: &Tables) -> Config {
    let mut config = Config::default().table_prefix(tables.prefix());
    config.schema = tables.schema().map(str::to_owned);
    config.delivery.poll_interval = Duration::from_millis(50);
    // Some handlers wait until a case has done its part.
    config.delivery.handler_timeout = Duration::from_secs(60);
    config.delivery.transactional_concurrency = 2;
    config.cluster.heartbeat_interval = Duration::from_millis(300);
    config.cluster.stale_instance_timeout = Duration::from_secs(15);
    config.cluster.rebalance_interval = Duration::from_millis(100);
    config.cluster.graceful_shutdown_timeout = Duration::from_secs(10);
    config.cluster.handover_timeout = Duration::from_secs(120);
    config.retry = RetryPolicy::fixed(Duration::from_millis(30)).max_retries(2);
    config
}

impl<T: Target> Stage<T> {
    /// `None` if the store is skipped.
    pub(crate) async fn open() -> Option<Self> {
        let stage = Self::bare().await?;
        let outbox = Outbox::builder(stage.pool.clone()).config(stage.config.clone()).build().await.unwrap();
        outbox.migrate().await.unwrap();
        Some(stage)
    }

    /// Does as `open`, without the migration.
    pub(crate) async fn bare() -> Option<Self> {
        // The last bits of a uuid v7 are random.
        let unique = format!("b{:012x}", uuid::Uuid::now_v7().as_u128() & 0xffff_ffff_ffff);
        let pool = T::open(&unique).await?;
        let tables = T::tables(&unique);
        let config = quick_config(&tables);
        Some(Self { pool, tables, config, signals: Recorder::default(), unique })
    }

    /// A unique name.
    pub(crate) fn unique(&self) -> &str {
        &self.unique
    }

    pub(crate) async fn erase(self) {
        T::erase(&self.pool, &self.unique).await;
    }

    /// The builder of another process, with a separate pool if the store can have several.
    pub(crate) async fn builder(&self) -> OutboxBuilder<T::Db> {
        let pool = match T::Db::NAME {
            "memory" => self.pool.clone(),
            _ => T::open(&self.unique).await.expect("it was not skipped before"),
        };
        Outbox::builder(pool).config(self.config.clone()).observer(self.signals.clone())
    }

    /// A process with these handlers that is not started.
    pub(crate) async fn outbox(&self, handlers: impl IntoIterator<Item = Registration>) -> Outbox<T::Db> {
        self.builder().await.handlers(handlers).build().await.unwrap()
    }

    /// A process with these handlers that runs and owns all partitions.
    pub(crate) async fn run(
        &self,
        handlers: impl IntoIterator<Item = Registration>,
    ) -> (Outbox<T::Db>, Running) {
        let outbox = self.outbox(handlers).await;
        let running = outbox.start().await.unwrap();
        (outbox, running)
    }

    /// The store of the workers.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        store_of::<T::Db>(&self.pool, &self.config)
    }
}

/// The store of the workers for these settings.
pub(crate) fn store_of<DB: Database>(pool: &DB::Pool, config: &Config) -> Arc<dyn Store> {
    let settings = StoreSettings {
        tables: Tables::new(config.schema.as_deref(), &config.table_prefix).unwrap(),
        async_settle: false,
        ..StoreSettings::default()
    };
    DB::open(pool, settings).unwrap()
}

impl<T: User> Stage<T> {
    /// Schedules in the user's own transaction, commits and wakes.
    pub(crate) async fn schedule(&self, outbox: &Outbox<T::Db>, events: &[Placed]) {
        let mut work = T::begin(&self.pool).await;
        outbox.schedule_all(&mut work, events).await.unwrap();
        T::commit(work).await;
        outbox.wake();
    }
}

impl<T: SqlTarget> Stage<T> {
    /// Runs statements, `{outbox}` standing for the names of the tables, in one transaction.
    pub(crate) async fn execute(&self, text: &str) -> u64 {
        let mut tx = T::Db::begin(&self.pool).await.unwrap();
        let sql = text.replace("{outbox}", &qualifier(&self.tables));
        let done = T::execute(&mut tx, sql).await.unwrap();
        T::Db::commit(tx).await.unwrap();
        done
    }
}

/// Waits until no record of any status is left.
pub(crate) async fn until_empty<DB: Database>(outbox: &Outbox<DB>) {
    eventually("an empty outbox", async || {
        outbox.admin().counts().await.unwrap().records.is_empty().then_some(())
    })
    .await;
}

/// Waits until there are `count` records of this status.
pub(crate) async fn until_count<DB: Database>(outbox: &Outbox<DB>, status: Status, count: u64) {
    let what = format!("{count} records that are {status}");
    eventually(&what, async || (outbox.admin().counts().await.unwrap().of(status) == count).then_some(()))
        .await;
}
