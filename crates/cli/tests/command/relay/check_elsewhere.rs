//! `keylane relay --check` beyond PostgreSQL and a broker without passwords.

use sqlx::{AssertSqlSafe, Connection, MySqlConnection};

use super::{
    away::BROKER,
    broker::topic,
    check::{bad, check},
    process::Settings,
    stage::settings,
};
use crate::keylane::{File, on_mariadb};

/// Without tables one line is bad; with them none is.
async fn tables(name: &str, text: &str) {
    let (code, said) = check(name, text).await;
    assert!(code == Some(1) && bad(&said).contains("run `keylane migrate`"), "{said}");
    Settings::new(name, text).printed(&["migrate"]).await;
    let (code, said) = check(name, text).await;
    assert!(code == Some(0) && said.contains("ok    rights "), "{said}");
}

#[tokio::test]
async fn tables_and_rights_are_checked_on_mariadb() {
    let _shared = BROKER.read().await;
    on_mariadb("relay_check", async |url| {
        let text = settings(url, &[("a", &topic().await)]);
        tables("mariadb-check", &text).await;
        let user = format!("keylane_relay_{}", std::process::id());
        let mut admin = MySqlConnection::connect(url).await.unwrap();
        let mut execute = async |sql: String| {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
        };
        execute(format!("CREATE USER {user} IDENTIFIED BY 'secret'")).await;
        let grants =
            Settings::new("mariadb-check", &text).printed(&["grants", "worker", "--to", &user]).await;
        execute(grants).await;
        let (_, place) = url.rsplit_once('@').unwrap();
        let text = text.replace(url, &format!("mysql://{user}:secret@{place}"));
        let (code, said) = check("mariadb-check", &text).await;
        assert_eq!(code, Some(0), "{said}");
        execute(format!("REVOKE DELETE ON outbox_dedup FROM {user}")).await;
        let (code, said) = check("mariadb-check", &text).await;
        execute(format!("DROP USER {user}")).await;
        assert!(code == Some(1) && bad(&said).contains("DELETE on outbox_dedup"), "{said}");
    })
    .await;
}

#[tokio::test]
async fn tables_and_rights_are_checked_on_sqlite() {
    let _shared = BROKER.read().await;
    let file = File::new("relay-check-data");
    let text = settings(&file.url(), &[("a", &topic().await)]);
    tables("sqlite-check", &text).await;
    let (code, said) = check("sqlite-check", &text.replace("mode=rwc", "mode=ro")).await;
    assert!(code == Some(1) && bad(&said).contains("the database is read-only"), "{said}");
}

#[tokio::test]
async fn a_topic_with_a_name_from_the_record_is_told_to_be_unchecked() {
    let _shared = BROKER.read().await;
    let file = File::new("relay-check-open");
    let known = topic().await;
    let letters = format!("{known}'\ndead_letters = 'dead-{{type}}");
    let text = settings(&file.url(), &[("a", "orders-{header.region}"), ("b", &letters)]);
    Settings::new("open-check", &text).printed(&["migrate"]).await;
    let (code, said) = check("open-check", &text).await;
    assert_eq!(code, Some(0), "{said}");
    let warned: Vec<&str> = said.lines().filter(|line| line.starts_with("warn")).collect();
    assert_eq!(warned.len(), 2, "{said}");
    assert!(warned[0].starts_with("warn  topic      orders-{header.region}: not checked"), "{said}");
    assert!(warned[1].starts_with("warn  topic      dead-{type}: not checked"), "{said}");
    assert!(said.contains(&format!("ok    topic      {known}: 3 partitions")), "{said}");
}

/// On the listener that asks for TLS and a password; of its two users one has no rights.
#[cfg(feature = "kafka-ssl")]
#[tokio::test]
async fn a_wrong_password_and_missing_rights_at_the_broker_have_a_line_each() {
    let _shared = BROKER.read().await;
    let file = File::new("relay-check-tls");
    let topic = topic().await;
    let signed_in = |user: &str, password: &str| {
        let plain = format!("brokers = '{}'", super::broker::address());
        let secure = format!(
            "brokers = '{}'
            [relay.kafka.properties]
            'security.protocol' = 'sasl_ssl'
            'sasl.mechanism' = 'PLAIN'
            'sasl.username' = '{user}'
            'sasl.password' = '{password}'
            'ssl.ca.location' = '{}'",
            crate::keylane::url("KEYLANE_TEST_KAFKA_TLS"),
            crate::keylane::url("KEYLANE_TEST_KAFKA_CA"),
        );
        settings(&file.url(), &[("a", &topic)]).replace(&plain, &secure)
    };
    let good = signed_in("keylane", "keylane");
    Settings::new("tls-check", &good).printed(&["migrate"]).await;
    let (code, said) = check("tls-check", &good).await;
    assert!(code == Some(0) && said.contains(&format!("ok    topic      {topic}: 3 partitions")), "{said}");

    let (code, said) = check("tls-check", &signed_in("stranger", "stranger")).await;
    let line = bad(&said);
    assert!(code == Some(1) && line.starts_with(&format!("BAD   topic      {topic}: ")), "{said}");
    assert!(line.contains("authorization failed") && line.contains("give the relay the right"), "{said}");

    let (code, said) = check("tls-check", &signed_in("keylane", "${RELAY_PASSWORD}")).await;
    let line = bad(&said);
    assert!(code == Some(1) && line.starts_with("BAD   kafka      the brokers at "), "{said}");
    assert!(line.contains("password") && !said.contains("hunter2"), "{said}");
}
