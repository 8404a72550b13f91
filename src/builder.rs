//! Building an outbox: all settings and handlers are checked, and no connection is opened.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    commit_wake::CommitWake,
    config::{Config, ConfigError},
    database::{Database, Pool},
    handler::{
        DeadLetterTable, Defaults, Entry, Registration, Registry, RegistryError, States,
        TransactionalBatchCall,
    },
    notifications::{Announcer, Owned},
    outbox::Outbox,
    parts::Parts,
    record::Headers,
    rules::lease,
    schedule::{DefaultHeaders, Routes, Scheduler},
    store::{Mode, OpenError, TransactionalRun},
    telemetry::{LogObserver, Observer, Observers},
};

/// Why an outbox was not built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The configuration has problems.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The handlers have problems.
    #[error("handlers have {} problem(s): {}", .problems.len(), join(.problems))]
    Handlers {
        /// All problems, at least one.
        problems: Vec<RegistryError>,
    },
    /// The database cannot be used with these settings.
    #[error(transparent)]
    Database(#[from] OpenError),
}

fn join(problems: &[RegistryError]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Builds an [`Outbox`].
#[must_use = "finish with .build()"]
pub struct OutboxBuilder<DB: Database> {
    pool: DB::Pool,
    worker_pool: Option<DB::Pool>,
    config: Config,
    registrations: Vec<Registration>,
    states: States,
    observers: Vec<Arc<dyn Observer>>,
    shutdown: CancellationToken,
    default_headers: Option<DefaultHeaders>,
}

impl<DB: Database> Outbox<DB> {
    /// Begins to build an outbox on a `PgPool`, `MySqlPool`, `SqlitePool` or
    /// [`MemoryPool`](crate::memory::MemoryPool).
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let outbox = Outbox::builder(MemoryPool::new()).handlers(handlers![send_mail]).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn builder<P: Pool<Database = DB>>(pool: P) -> OutboxBuilder<DB>
    where
        DB: Database<Pool = P>,
    {
        OutboxBuilder::new(pool)
    }
}

impl<DB: Database> OutboxBuilder<DB> {
    fn new(pool: DB::Pool) -> Self {
        Self {
            pool,
            worker_pool: None,
            config: Config::default(),
            registrations: Vec::new(),
            states: States::default(),
            observers: vec![Arc::new(LogObserver::default())],
            shutdown: CancellationToken::new(),
            default_headers: None,
        }
    }

    /// Sets all settings.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let mut config = Config::default();
    /// config.delivery.poll_interval = Duration::from_millis(250);
    /// let outbox = Outbox::builder(pool).config(config).build().await?;
    /// assert_eq!(outbox.config().delivery.poll_interval.as_millis(), 250);
    /// # Ok(())
    /// # }
    /// ```
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Gives the workers a pool with another address of the same database. Use it if the address of the
    /// outbox's pool leads through a pooler in transaction mode. The connections of the workers, of the
    /// heartbeat and of notifications, and all calls of the outbox outside of your transactions, take the
    /// options of this pool. Transactions (your own, those of [`Outbox::transaction`] and of transactional
    /// handlers) use the pool of the outbox.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let (through_pooler, direct) = (pool.clone(), pool); // two addresses of one database
    /// let outbox = Outbox::builder(through_pooler).worker_pool(direct).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn worker_pool(mut self, pool: DB::Pool) -> Self {
        self.worker_pool = Some(pool);
        self
    }

    /// Shares a value with handlers that take `State<T>`: one value per type, and exactly that type. If the
    /// type has parameters, name them where the value is made (`unbounded_channel::<Order>()`), because they
    /// cannot be inferred here.
    ///
    /// ```
    /// # use keylane::{memory::MemoryPool, *};
    /// # #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
    /// # #[outbox(record_type = "order.placed", key = "order-{id}")]
    /// # struct OrderPlaced { id: u64 }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// #[derive(Clone)]
    /// struct Sender(&'static str);
    ///
    /// #[outbox_handler(id = "mailer")]
    /// async fn send_mail(order: OrderPlaced, State(sender): State<Sender>) -> Result<(), std::io::Error> {
    ///     println!("from {}: order {} is placed", sender.0, order.id);
    ///     Ok(())
    /// }
    ///
    /// let builder = Outbox::builder(MemoryPool::new()).state(Sender("shop@example.org"));
    /// let outbox = builder.handlers(handlers![send_mail]).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// Adds one handler or fallback handler.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// struct Log;
    ///
    /// impl GenericHandler for Log {
    ///     async fn handle(&self, record: &Record) -> Result<(), HandlerError> {
    ///         println!("{}: {} bytes", record.delivery.record_type, record.payload.len());
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let log = Registration::generic("log", RecordTypes::all(), Log);
    /// let outbox = Outbox::builder(pool).handler(log).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handler(mut self, registration: Registration) -> Self {
        self.registrations.push(registration);
        self
    }

    /// Adds handlers and fallback handlers; see [`handlers!`](crate::handlers).
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let outbox = Outbox::builder(pool).handlers(handlers![send_mail]).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn handlers(mut self, registrations: impl IntoIterator<Item = Registration>) -> Self {
        self.registrations.extend(registrations);
        self
    }

    /// Adds an observer of signals in addition to the log.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// struct Alarm;
    ///
    /// impl Observer for Alarm {
    ///     fn on(&self, signal: &Signal) {
    ///         if let Signal::RecordFailed { record, error, .. } = signal {
    ///             eprintln!("record {record} has failed: {error}");
    ///         }
    ///     }
    /// }
    ///
    /// let outbox = Outbox::builder(pool).observer(Alarm).handlers(handlers![send_mail]).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Gives each event the headers that this call returns when the event is scheduled, in the task that
    /// schedules it. A header of the same name in [`ScheduleOptions`](crate::ScheduleOptions) replaces it. Use it for
    /// headers of the task, such as the trace of a request: `keylane_web::event_headers`. If the call panics,
    /// `schedule` panics before anything is written.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// tokio::task_local!(static TRACE: String);
    ///
    /// let of_task = || TRACE.try_with(|trace| [("trace_id".to_owned(), trace.clone())].into()).unwrap_or_default();
    /// let outbox = Outbox::builder(pool).default_headers(of_task).handlers(handlers![send_mail]).build().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn default_headers(mut self, headers: impl Fn() -> Headers + Send + Sync + 'static) -> Self {
        self.default_headers = Some(Arc::new(headers));
        self
    }

    /// Shuts the workers down when the token is cancelled, as [`Running::shutdown`](crate::Running::shutdown)
    /// does. Use it for a service whose parts all listen to one token.
    /// [`Running::finished`](crate::Running::finished) waits for the end. After the cancellation, `start` does
    /// not wait for the database.
    ///
    /// ```
    /// # use keylane::{Finished, Outbox, Registration, memory::MemoryPool, tokio_util::sync::CancellationToken};
    /// # async fn run(mailer: Registration) -> Result<(), Box<dyn std::error::Error>> {
    /// let token = CancellationToken::new();
    /// let builder = Outbox::builder(MemoryPool::new()).handler(mailer);
    /// let running = builder.shutdown_on(token.clone()).build().await?.start().await?;
    /// token.cancel(); // by any part of the service
    /// assert!(matches!(running.finished().await, Finished::Shutdown { .. }));
    /// # Ok(())
    /// # }
    /// ```
    pub fn shutdown_on(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }

    /// Checks the settings and handlers and builds the outbox. No connection is opened. It is async because it needs a
    /// runtime of tokio, on which it starts the task that notifies other processes of commits.
    ///
    /// ```
    #[doc = include_str!("doc/outbox.txt")]
    /// let twice = Outbox::builder(pool).handlers(handlers![send_mail, send_mail]).build().await;
    /// assert!(matches!(twice.err(), Some(BuildError::Handlers { problems }) if problems.len() == 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BuildError`] with all problems of its kind.
    pub async fn build(self) -> Result<Outbox<DB>, BuildError> {
        let Self {
            pool,
            worker_pool,
            config,
            registrations,
            mut states,
            observers,
            shutdown,
            default_headers,
        } = self;
        let dead_letters = DeadLetterTable::default();
        states.insert(dead_letters.clone());
        config.validate()?;
        let settings = config.store_settings();
        let ordered = config.mode == Mode::Partitioned;
        let defaults = Defaults {
            retry: config.retry.clone(),
            timeout: config.delivery.handler_timeout,
            stop_on_first_failure: config.delivery.stop_on_first_failure && ordered,
            on_failure: config.delivery.on_failure,
            ordered,
        };
        let adopt = |call: &(dyn std::any::Any + Send + Sync)| -> Option<Arc<dyn TransactionalRun>> {
            let call = call.downcast_ref::<Arc<dyn TransactionalBatchCall<DB>>>()?;
            Some(DB::transactional(&pool, &settings, Arc::clone(call)))
        };
        let registry = Registry::build(registrations, states, &defaults, DB::NAME, &adopt)
            .map_err(|problems| BuildError::Handlers { problems })?;
        if ordered {
            check_timeouts(&config, &registry)?;
        }
        check_pool(&config, &registry, DB::pool_size(&pool))?;
        let own = worker_pool.as_ref().map(|_| DB::open(&pool, settings.clone())).transpose()?;
        let store = DB::open(worker_pool.as_ref().unwrap_or(&pool), settings.clone())?;
        dead_letters.open(&store);
        let scheduler = Scheduler {
            producer: DB::producer(&settings.tables),
            config: config.schedule.clone(),
            default_headers,
            routes: Arc::new(Routes::new(registry.routes())),
            store: Arc::clone(&store),
            named: DB::names_statements(&pool),
        };
        let observers = Observers::new(observers);
        let notifier = store.notifier().filter(|_| config.database.notifications);
        let owned = Owned::default();
        // In claimed mode no process owns a partition, so every process is notified.
        let alone = if ordered { Arc::clone(&owned) } else { Owned::default() };
        let announce = |notifier| Announcer::start(notifier, alone, observers.clone());
        let announcer = notifier.clone().and_then(announce).map(Arc::new);
        Ok(Outbox {
            inner: Arc::new(Parts {
                pool,
                config,
                store,
                own,
                registry: Arc::new(registry),
                scheduler,
                wake: CommitWake::default(),
                notifier,
                announcer,
                owned,
                observers,
                shutdown,
            }),
        })
    }
}

/// Refuses a pool with fewer connections than transactional handlers need.
fn check_pool(config: &Config, registry: &Registry, size: Option<u32>) -> Result<(), OpenError> {
    let needs = registry.transactional().then_some(config.delivery.transactional_concurrency as u32 + 1);
    match (needs, size) {
        (Some(needs), Some(has)) if has < needs => Err(OpenError::PoolTooSmall { has, needs }),
        _ => Ok(()),
    }
}

/// Refuses a handler that may take longer than other instances wait for its partition, because its instance would be
/// evicted.
fn check_timeouts(config: &Config, registry: &Registry) -> Result<(), ConfigError> {
    let (handover, call) = (config.cluster.handover_timeout, config.database.call_timeout);
    let hold = |entry: &Arc<Entry>| lease::longest_hold(entry.timeout, call, entry.form.is_transactional());
    let too_long = registry.entries().filter(|entry| hold(entry) > handover).map(|entry| {
        let limit = handover.saturating_sub(hold(entry).saturating_sub(entry.timeout));
        format!(
            "handler {:?} has a timeout of {:?}, but cluster.handover_timeout less the database.call_timeout of \
             its writes is {limit:?}: raise handover_timeout or lower the handler's timeout",
            entry.id, entry.timeout
        )
    });
    let problems: Vec<String> = too_long.collect();
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}
