//! Mistakes that waiting does not fix: `start` returns them at once.

use std::time::Duration;

use keylane::{Outbox, SchemaError, Signal, StartError};
use sqlx::{
    mysql::{MySqlPoolOptions, MySqlSslMode},
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use crate::{
    connections::Doorman,
    ledger::Ledger,
    recorder::bounded,
    stage::Stage,
    target::{MariaDbTarget, MySqlTarget, Pool, PostgresTarget},
    user::User,
};

/// A server with wrong addresses, users and passwords to try.
pub(crate) trait Door: Doorman {
    fn to_another_database(pool: &Pool<Self>) -> Pool<Self>;
    fn with_another_password(pool: &Pool<Self>) -> Pool<Self>;
    /// The statement that revokes all rights on the tables.
    const REVOKE: &str;
    /// The statement that removes all grants of a user, so that the user can be dropped.
    const DROP_GRANTS: &str;
    /// The call that schedules from SQL: the text before `{outbox}schedule`, and the text after its payload.
    const CALL: (&str, &str);
    /// Closes the connections of a pool.
    fn close(pool: &Pool<Self>) -> impl Future<Output = ()>;
}

macro_rules! door {
    ($($target:ty: $options:ty, $revoke:literal, $drop_grants:literal, $call:expr;)*) => {$(
        impl Door for $target {
            const REVOKE: &str = $revoke;
            const DROP_GRANTS: &str = $drop_grants;
            const CALL: (&str, &str) = $call;

            async fn close(pool: &Pool<Self>) {
                pool.close().await;
            }

            fn to_another_database(pool: &Pool<Self>) -> Pool<Self> {
                let options = (*pool.connect_options()).clone().database("no_such_database");
                <$options>::new().max_connections(3).connect_lazy_with(options)
            }

            fn with_another_password(pool: &Pool<Self>) -> Pool<Self> {
                let options = (*pool.connect_options()).clone().password("a-wrong-secret");
                <$options>::new().max_connections(3).connect_lazy_with(options)
            }
        }
    )*};
}

door! {
    PostgresTarget: PgPoolOptions, "ALTER ROLE {user} NOSUPERUSER", "DROP OWNED BY {user}", ("SELECT", "");
    MariaDbTarget: MySqlPoolOptions, "REVOKE ALL ON *.* FROM {user}; GRANT CREATE VIEW ON *.* TO {user}", "DO 0", ("CALL", ", NULL, NULL");
    MySqlTarget: MySqlPoolOptions, "REVOKE ALL ON *.* FROM {user}; GRANT CREATE VIEW ON *.* TO {user}", "DO 0", ("CALL", ", NULL, NULL");
}

async fn outbox_on<T: User>(stage: &Stage<T>, pool: Pool<T>) -> Outbox<T::Db> {
    let builder = Outbox::builder(pool).config(stage.config.clone()).observer(stage.signals.clone());
    builder.handler(Ledger::default().keeper("bookkeeper")).build().await.unwrap()
}

/// The error that `start` returns at once on these connections. No instance has joined then.
async fn told<T: User>(stage: &Stage<T>, pool: Pool<T>) -> String {
    let outbox = outbox_on(stage, pool).await;
    let started = tokio::time::timeout(Duration::from_secs(5), outbox.start()).await;
    let error = match started.expect("it waits") {
        Err(StartError::Schema(SchemaError::Store(error))) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it started"),
    };
    let active = |signal: &Signal| matches!(signal, Signal::Joined { .. } | Signal::WorkersDropped { .. });
    assert_eq!(stage.signals.count(active), 0);
    error
}

pub(crate) async fn a_database_that_is_not_there_is_told<T: Door>(stage: &Stage<T>) {
    let error = told(stage, T::to_another_database(&stage.pool)).await;
    assert!(error.contains("no_such_database"), "{error}");
}

pub(crate) async fn a_wrong_password_is_told<T: Door>(stage: &Stage<T>) {
    let error = told(stage, T::with_another_password(&stage.pool)).await;
    assert!(error.contains("Access denied") && !error.contains("a-wrong-secret"), "{error}");
}

pub(crate) async fn a_user_without_rights_is_told<T: Door>(stage: &Stage<T>) {
    let user = format!("u{}", stage.unique());
    let pool = T::pool_of(&stage.pool, &user).await;
    T::order(&stage.pool, &user, T::REVOKE).await;
    let error = told(stage, pool).await;
    assert!(error.contains("denied"), "{error}");
    assert!(error.ends_with("give this user of the database the rights in docs/schema.md"), "{error}");
    T::dismiss(&stage.pool, &user).await;
}

/// All that is read before exists: the first refused write is the row of the instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_right_that_joining_needs_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    let schema = stage.tables.schema().unwrap().to_owned();
    let user = format!("u{}", stage.unique());
    let pool = PostgresTarget::pool_of(&stage.pool, &user).await;
    stage
        .execute(&format!(
            "ALTER ROLE {user} NOSUPERUSER; GRANT USAGE ON SCHEMA {schema} TO {user}; \
             GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}; REVOKE INSERT ON {{outbox}}instance FROM {user}"
        ))
        .await;
    let error = told(&stage, pool).await;
    assert!(error.starts_with("join failed: ") && error.contains("permission denied"), "{error}");
    stage.execute(&format!("DROP OWNED BY {user}")).await;
    PostgresTarget::dismiss(&stage.pool, &user).await;
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_right_that_migrating_needs_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::bare().await else { return };
    let user = format!("u{}", stage.unique());
    let pool = PostgresTarget::pool_of(&stage.pool, &user).await;
    PostgresTarget::order(&stage.pool, &user, PostgresTarget::REVOKE).await;
    let outbox = outbox_on(&stage, pool).await;
    let migrated = tokio::time::timeout(Duration::from_secs(5), outbox.migrate()).await;
    let error = migrated.expect("it is tried again and again").unwrap_err().to_string();
    assert!(error.contains("permission denied") && error.contains("docs/schema.md"), "{error}");
    PostgresTarget::dismiss(&stage.pool, &user).await;
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_tls_mode_that_the_server_does_not_have_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    let options = (*stage.pool.connect_options()).clone().ssl_mode(PgSslMode::Require);
    let error = told(&stage, PgPoolOptions::new().max_connections(3).connect_lazy_with(options)).await;
    assert!(error.contains("TLS"), "{error}");
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_a_tls_mode_that_the_server_does_not_have_is_told() {
    let Some(stage) = Stage::<MariaDbTarget>::open().await else { return };
    let options = (*stage.pool.connect_options()).clone().ssl_mode(MySqlSslMode::Required);
    let error = told(&stage, MySqlPoolOptions::new().max_connections(3).connect_lazy_with(options)).await;
    assert!(error.contains("TLS"), "{error}");
    stage.erase().await;
}

/// MySQL makes its own certificate. For PostgreSQL, a small server offers TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_a_certificate_that_is_not_there_is_told() {
    let Some(stage) = Stage::<MySqlTarget>::open().await else { return };
    let options = (*stage.pool.connect_options()).clone().ssl_mode(MySqlSslMode::VerifyCa);
    for options in [
        options.clone().ssl_ca("/no/such.pem"),
        options.ssl_client_cert("/no/such.pem").ssl_client_key("/no/key.pem"),
    ] {
        let error = told(&stage, MySqlPoolOptions::new().max_connections(3).connect_lazy_with(options)).await;
        assert!(error.contains("/no/such.pem") && error.contains("cannot be read"), "{error}");
    }
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_certificate_that_is_not_there_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").username("user");
    let options = options.port(listener.local_addr().unwrap().port()).ssl_mode(PgSslMode::VerifyCa);
    let door = tokio::spawn(async move {
        loop {
            let (mut visitor, _) = listener.accept().await.unwrap();
            drop(visitor.read_exact(&mut [0; 8]).await);
            drop(visitor.write_all(b"S").await);
        }
    });
    for options in [
        options.clone().ssl_root_cert("/no/such.pem"),
        options.ssl_client_cert("/no/such.pem").ssl_client_key("/no/key.pem"),
    ] {
        let error = told(&stage, PgPoolOptions::new().max_connections(3).connect_lazy_with(options)).await;
        assert!(error.contains("/no/such.pem") && error.contains("cannot be read"), "{error}");
    }
    door.abort();
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_setting_that_the_server_does_not_know_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    for (setting, value) in [("no_such_setting", "1"), ("work_mem", "much")] {
        let options = (*stage.pool.connect_options()).clone().options([(setting, value)]);
        told(&stage, PgPoolOptions::new().max_connections(3).connect_lazy_with(options)).await;
    }
    stage.erase().await;
}

/// A small server that refuses every client with this state and text, as PgBouncer does, or a server that
/// asks for passwords.
async fn refusing(state: &'static str, text: &'static str) -> (sqlx::PgPool, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let fields = format!("SFATAL\0VFATAL\0C{state}\0M{text}\0\0");
    let mut answer = vec![b'E'];
    answer.extend((fields.len() as u32 + 4).to_be_bytes());
    answer.extend(fields.as_bytes());
    let door = tokio::spawn(async move {
        loop {
            let (mut visitor, _) = listener.accept().await.unwrap();
            let length = visitor.read_u32().await.unwrap_or(4);
            let mut packet = vec![0; length as usize - 4];
            drop(visitor.read_exact(&mut packet).await);
            drop(visitor.write_all(&answer).await);
        }
    });
    let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("user");
    (PgPoolOptions::new().connect_lazy_with(options.ssl_mode(PgSslMode::Disable)), door)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_refusal_at_the_door_is_told() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    for (state, text) in [
        ("28P01", "password authentication failed for user \"user\""),
        ("08P01", "unsupported startup parameter in options: statement_timeout"),
        ("08P01", "no such database: orders"),
    ] {
        let (pool, door) = refusing(state, text).await;
        let error = told(&stage, pool).await;
        assert!(error.contains(text), "{error}");
        door.abort();
    }
    stage.erase().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_what_waiting_can_mend_is_waited_for() {
    let Some(stage) = Stage::<PostgresTarget>::open().await else { return };
    for (state, text) in [
        ("57P03", "the database system is starting up"),
        ("53300", "too many connections already"),
        ("08P01", "query_wait_timeout"),
    ] {
        let (pool, door) = refusing(state, text).await;
        let outbox = outbox_on(&stage, pool).await;
        let tried =
            |signal: &Signal| matches!(signal, Signal::StoreFailed { error, .. } if error.contains(text));
        tokio::select! {
            started = outbox.start() => panic!("{:?}", started.err()),
            () = bounded("two tries", stage.signals.at_least(2, "tries", tried)) => {}
        }
        door.abort();
    }
    stage.erase().await;
}
