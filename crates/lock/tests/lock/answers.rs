//! Answers that get lost on their way: what was asked for is done, and its connection ends.

use keylane_lock::LockClient;
use sqlx::{
    MySqlPool, PgPool,
    mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlSslMode},
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};

use crate::{
    relay::Relay,
    stage::{LONG, Stage},
    target::{OnMariaDb, OnMySql, OnPostgres, Target, url},
};

const RESOURCE: &str = "lost-and-found";

/// A database that is reached over a network.
trait Remote: Target {
    /// What the message has that queues a ticket for good. Of a prepared statement it has the parameters only.
    const QUEUES: &str;
    /// Reads the first 15 digits of a ticket.
    const TICKET: &str;

    fn port() -> u16;

    /// One connection, by this port, which says nothing of its own.
    fn by(port: u16) -> sqlx::Pool<Self::Db>;
}

impl Remote for OnPostgres {
    const QUEUES: &str = RESOURCE;
    const TICKET: &str = "SELECT ('x' || left(ticket, 15))::bit(60)::int8 FROM {}ticket";

    fn port() -> u16 {
        url("KEYLANE_TEST_POSTGRES_URL").parse::<PgConnectOptions>().unwrap().get_port()
    }

    fn by(port: u16) -> PgPool {
        let options: PgConnectOptions = url("KEYLANE_TEST_POSTGRES_URL").parse().unwrap();
        let limits = PgPoolOptions::new().max_connections(1).test_before_acquire(false);
        limits.connect_lazy_with(options.port(port).ssl_mode(PgSslMode::Disable))
    }
}

macro_rules! remote {
    ($target:ty, $url:literal) => {
        impl Remote for $target {
            const QUEUES: &str = "COMMIT";
            const TICKET: &str = "SELECT CAST(CONV(LEFT(ticket, 15), 16, 10) AS SIGNED) FROM {}ticket";

            fn port() -> u16 {
                url($url).parse::<MySqlConnectOptions>().unwrap().get_port()
            }

            fn by(port: u16) -> MySqlPool {
                let options: MySqlConnectOptions = url($url).parse().unwrap();
                let limits = MySqlPoolOptions::new().max_connections(1).test_before_acquire(false);
                limits.connect_lazy_with(options.port(port).ssl_mode(MySqlSslMode::Disabled))
            }
        }
    };
}

remote!(OnMariaDb, "KEYLANE_TEST_MARIADB_URL");
remote!(OnMySql, "KEYLANE_TEST_MYSQL_URL");

async fn a_request_and_a_release_whose_answers_are_lost<T: Remote>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let relay = Relay::to(T::port()).await;
    let locks = LockClient::builder(T::by(relay.port())).signal_pool(T::by(T::port()));
    let locks = locks.table_prefix(stage.prefix.as_str()).lease(LONG).build().unwrap();
    // The statements are prepared: each call is one question from now on.
    locks.lock(RESOURCE).await.unwrap().release().await.unwrap();

    relay.lose_the_answer_to(T::QUEUES);
    let guard = locks.lock(RESOURCE).await.unwrap();
    assert!(relay.has_lost_an_answer());
    let queue = stage.locks.queue(RESOURCE).await.unwrap();
    assert!(queue.len() == 1 && queue[0].token == guard.token(), "{queue:?}");
    guard.release().await.unwrap();

    let guard = locks.lock(RESOURCE).await.unwrap();
    relay.lose_the_answer_to(&format!("{:015x}", stage.number(T::TICKET).await));
    guard.release().await.unwrap();
    assert!(relay.has_lost_an_answer());
    stage.queued(RESOURCE, 0).await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_a_request_and_a_release_whose_answers_are_lost() {
    a_request_and_a_release_whose_answers_are_lost::<OnPostgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_a_request_and_a_release_whose_answers_are_lost() {
    a_request_and_a_release_whose_answers_are_lost::<OnMariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql_a_request_and_a_release_whose_answers_are_lost() {
    a_request_and_a_release_whose_answers_are_lost::<OnMySql>().await;
}
