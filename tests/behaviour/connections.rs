//! The connections of the workers, as the server lists them.

use std::time::Duration;

use keylane::{Outbox, Running, Signal};
use sqlx::{AssertSqlSafe, Row};

use crate::{
    ledger::{Ledger, run_of},
    recorder::eventually,
    stage::{Stage, until_empty},
    target::{MariaDbTarget, MySqlTarget, Pool, PostgresTarget},
    user::User,
};

/// A server that lists its connections per user.
pub(crate) trait Doorman: User {
    /// The number of connections of an idle process: for polls, for heartbeats, and on PostgreSQL one that
    /// listens.
    const IDLE: i64;

    /// A pool of a new user with all rights. It opens no connection yet.
    fn pool_of(pool: &Pool<Self>, user: &str) -> impl Future<Output = Pool<Self>>;
    /// The number of connections of that user.
    fn connections(pool: &Pool<Self>, user: &str) -> impl Future<Output = i64>;
    /// Makes the login of the user invalid, cuts the user's connections, and gives the pool the new login.
    fn rotate(server: &Pool<Self>, user: &str, pool: &Pool<Self>) -> impl Future<Output = ()>;
    /// Runs statements about the user, outside of a transaction.
    fn order(server: &Pool<Self>, user: &str, text: &str) -> impl Future<Output = ()>;
    /// Drops the user.
    fn dismiss(pool: &Pool<Self>, user: &str) -> impl Future<Output = ()>;
}

macro_rules! doorman {
    ($($target:ty: $options:ty, $make:literal, $count:literal, $drop:literal,
        $rotate:literal, $cut:literal, $renew:expr, $idle:literal;)*) => {$(
        impl Doorman for $target {
            const IDLE: i64 = $idle;

            async fn pool_of(pool: &Pool<Self>, user: &str) -> Pool<Self> {
                Self::order(pool, user, $make).await;
                let options = (*pool.connect_options()).clone().username(user).password("first");
                <$options>::new().max_connections(3).connect_lazy_with(options)
            }

            async fn connections(pool: &Pool<Self>, user: &str) -> i64 {
                // MySQL fails if another session sends an invalid text meanwhile.
                let count = async || {
                    let count = AssertSqlSafe($count.replace("{user}", user));
                    sqlx::raw_sql(count).fetch_one(pool).await.ok()
                };
                eventually("a list of connections", count).await.get(0)
            }

            async fn rotate(server: &Pool<Self>, user: &str, pool: &Pool<Self>) {
                let renew: fn(_, &str) -> _ = $renew;
                pool.set_connect_options(renew((*pool.connect_options()).clone(), user));
                Self::order(server, user, $rotate).await;
                let cuts = async || {
                    let cuts = AssertSqlSafe($cut.replace("{user}", user));
                    sqlx::raw_sql(cuts).fetch_all(server).await.ok()
                };
                for cut in eventually("a list of connections", cuts).await {
                    // A connection that has ended by itself is not a failure.
                    drop(sqlx::raw_sql(AssertSqlSafe(cut.get::<String, _>(0))).execute(server).await);
                }
            }

            async fn dismiss(pool: &Pool<Self>, user: &str) {
                Self::order(pool, user, $drop).await;
            }

            async fn order(server: &Pool<Self>, user: &str, text: &str) {
                let orders = AssertSqlSafe(text.replace("{user}", user));
                sqlx::raw_sql(orders).execute(server).await.unwrap();
            }
        }
    )*};
}

doorman! {
    PostgresTarget: sqlx::postgres::PgPoolOptions,
        "CREATE ROLE {user} LOGIN SUPERUSER PASSWORD 'first'",
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'",
        "DROP ROLE {user}; DROP ROLE IF EXISTS {user}_next",
        // This server asks for no password, so another role replaces the first.
        "ALTER ROLE {user} NOLOGIN; CREATE ROLE {user}_next LOGIN SUPERUSER",
        "SELECT 'SELECT pg_terminate_backend(' || pid || ')' FROM pg_stat_activity WHERE usename = '{user}'",
        |options: sqlx::postgres::PgConnectOptions, user| options.username(&format!("{user}_next")), 3;
    MariaDbTarget: sqlx::mysql::MySqlPoolOptions,
        "CREATE USER {user} IDENTIFIED BY 'first'; GRANT ALL ON *.* TO {user}",
        "SELECT count(*) FROM information_schema.processlist WHERE user = '{user}'",
        "DROP USER {user}",
        "ALTER USER {user} IDENTIFIED BY 'second'",
        "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE user = '{user}'",
        |options: sqlx::mysql::MySqlConnectOptions, _| options.password("second"), 2;
    MySqlTarget: sqlx::mysql::MySqlPoolOptions,
        "CREATE USER {user} IDENTIFIED BY 'first'; GRANT ALL ON *.* TO {user}",
        "SELECT count(*) FROM information_schema.processlist WHERE user = '{user}'",
        "DROP USER {user}",
        "ALTER USER {user} IDENTIFIED BY 'second'",
        "SELECT concat('KILL ', id) FROM information_schema.processlist WHERE user = '{user}'",
        |options: sqlx::mysql::MySqlConnectOptions, _| options.password("second"), 2;
}

/// A process on the connections of this pool.
pub(crate) async fn run_on<T: User>(
    stage: &Stage<T>,
    pool: Pool<T>,
    ledger: &Ledger,
) -> (Outbox<T::Db>, Running) {
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    (outbox, running)
}

pub(crate) async fn a_shutdown_closes_its_connections<T: Doorman>(stage: &Stage<T>) {
    let (ledger, user) = (Ledger::default(), format!("u{}", stage.unique()));
    let pool = T::pool_of(&stage.pool, &user).await;
    let (outbox, running) = run_on(stage, pool, &ledger).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    assert!(T::connections(&stage.pool, &user).await >= 3, "the workers have connections of their own");
    assert!(running.shutdown().await.graceful);
    // The server needs a moment to notice.
    eventually("no connection of the workers", async || {
        (T::connections(&stage.pool, &user).await == 0).then_some(())
    })
    .await;
    // The outbox lives on and can start again.
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &run_of("order-2", 3)).await;
    ledger.until_done(6).await;
    running.shutdown().await;
    drop(outbox);
    T::dismiss(&stage.pool, &user).await;
}

pub(crate) async fn an_idle_process_holds_few_connections<T: Doorman>(stage: &Stage<T>) {
    let (ledger, user) = (Ledger::default(), format!("u{}", stage.unique()));
    let pool = T::pool_of(&stage.pool, &user).await;
    let mut config = stage.config.clone();
    // As by default, the replies to heartbeats come often enough to be the only views of the cluster.
    config.cluster.rebalance_interval = Duration::from_secs(2);
    let builder = Outbox::builder(pool).config(config).observer(stage.signals.clone());
    let outbox = builder.handler(ledger.keeper("bookkeeper")).build().await.unwrap();
    let running = outbox.start().await.unwrap();
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    let held = async || T::connections(&stage.pool, &user).await;
    assert!(held().await > T::IDLE, "one to settle, one for all else");
    eventually("few connections", async || (held().await <= T::IDLE).then_some(())).await;
    // No work by the clock opens another connection.
    let answered = |signal: &Signal| matches!(signal, Signal::BeatAnswered);
    let so_far = stage.signals.count(answered);
    stage.signals.at_least(so_far + 5, "beats", answered).await;
    assert_eq!(held().await, T::IDLE);
    running.shutdown().await;
    drop(outbox);
    T::dismiss(&stage.pool, &user).await;
}

pub(crate) async fn new_credentials_of_the_pool_are_taken_up<T: Doorman>(stage: &Stage<T>) {
    let (ledger, user) = (Ledger::default(), format!("u{}", stage.unique()));
    let pool = T::pool_of(&stage.pool, &user).await;
    let (outbox, running) = run_on(stage, pool.clone(), &ledger).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    T::rotate(&stage.pool, &user, &pool).await;
    stage.schedule(&outbox, &run_of("order-2", 3)).await;
    ledger.until_done(6).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    drop((outbox, pool));
    T::dismiss(&stage.pool, &user).await;
}
