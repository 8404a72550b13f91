//! What the tests on PostgreSQL share: settings, rows by SQL.

use sqlx::{Connection, PgConnection};

use super::broker;

/// A relay that has crashed counts as dead after a short time.
const QUICK: &str = "
    [cluster]
    heartbeat_interval = '500ms'
    stale_instance_timeout = '4s'
    rebalance_interval = '1s'
    [database]
    call_timeout = '3s'
";

/// As [`settings`], for relays that crash.
pub(crate) fn quick_settings(url: &str, routes: &[(&str, &str)]) -> String {
    QUICK.to_owned() + &settings(url, routes)
}

/// Settings with these routes, each of a record type and its topic.
pub(crate) fn settings(url: &str, routes: &[(&str, &str)]) -> String {
    let brokers = broker::address();
    let head = format!(
        "[delivery]
        poll_interval = '200ms'
        [relay]
        database_url = '{url}'
        health = '127.0.0.1:0'
        log = 'json'
        [relay.kafka]
        brokers = '{brokers}'
        "
    );
    let routes = routes
        .iter()
        .map(|(record_type, topic)| format!("[[relay.route]]\nevents = ['{record_type}']\nto = '{topic}'\n"));
    head + &routes.collect::<String>()
}

/// Settings of a route to an endpoint of the test.
pub(crate) fn endpoint_route(record_type: &str, target: &str) -> String {
    format!(
        "[relay.webhook]
        unsigned = true
        allow_http = true
        allow_networks = ['127.0.0.1']
        [[relay.route]]
        events = ['{record_type}']
        to = '{target}'
        "
    )
}

/// A service in another language.
pub(crate) struct Producer(PgConnection);

impl Producer {
    pub(crate) async fn connect(url: &str) -> Self {
        Self(PgConnection::connect(url).await.unwrap())
    }

    /// The numbers of this range for each key, a transaction for each number.
    pub(crate) async fn schedule(&mut self, record_type: &str, keys: usize, from: usize, to: usize) {
        for number in from..to {
            self.try_schedule(record_type, keys, number).await.unwrap();
        }
    }

    /// One number for each key.
    pub(crate) async fn try_schedule(
        &mut self,
        record_type: &str,
        keys: usize,
        number: usize,
    ) -> Result<(), sqlx::Error> {
        let sql =
            "SELECT outbox_schedule($1, 'key-' || k, to_jsonb($2::bigint)) FROM generate_series(1, $3) AS k";
        let rows = sqlx::query(sql).bind(record_type).bind(number as i64).bind(keys as i64);
        rows.execute(&mut self.0).await.map(|_| ())
    }

    /// The states of all relays that have been in the cluster, and how many partitions have an owner.
    pub(crate) async fn cluster(&mut self) -> (Vec<String>, i64) {
        let states = "SELECT state FROM outbox_instance ORDER BY state";
        let owned = "SELECT count(*) FROM outbox_partition WHERE owner IS NOT NULL";
        let states = sqlx::query_scalar(states).fetch_all(&mut self.0).await.unwrap();
        (states, sqlx::query_scalar(owned).fetch_one(&mut self.0).await.unwrap())
    }
}
