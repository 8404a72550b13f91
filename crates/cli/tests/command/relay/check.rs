//! `keylane relay --check`: what is good, and what is bad, before anything is relayed.

use super::{
    away::BROKER,
    broker::{address, topic, unused_topic},
    process::Settings,
    stage::settings,
};
use crate::keylane::on_postgres;

/// The code and the lines.
pub(super) async fn check(name: &str, text: &str) -> (Option<i32>, String) {
    let done = Settings::new(name, text).run(&["relay", "--check"]).await;
    assert!(done.stderr.is_empty(), "{done:?}");
    (done.status.code(), String::from_utf8(done.stdout).unwrap())
}

/// The one line that is bad.
pub(super) fn bad(said: &str) -> &str {
    let bad: Vec<&str> = said.lines().filter(|line| line.starts_with("BAD")).collect();
    assert_eq!(bad.len(), 1, "{said}");
    bad[0]
}

#[tokio::test]
async fn a_relay_that_lacks_nothing_is_good() {
    let _shared = BROKER.read().await;
    on_postgres("relay_good", async |url| {
        let topic = topic().await;
        let text = settings(url, &[("order.*", &topic)]);
        Settings::new("tables", &text).printed(&["migrate"]).await;
        let (code, said) = check("good", &text).await;
        assert_eq!(code, Some(0), "{said}");
        for subject in ["settings", "routes", "database", "schema", "rights", "kafka", "topic"] {
            assert!(
                said.lines().any(|line| line.starts_with(&format!("ok    {subject} "))),
                "{subject}: {said}"
            );
        }
        assert!(said.contains(&format!("{topic}: 3 partitions, max.message.bytes is ")), "{said}");
    })
    .await;
}

#[tokio::test]
async fn what_is_listed_and_not_relayed_is_told() {
    let _shared = BROKER.read().await;
    on_postgres("relay_listed", async |url| {
        let topic = topic().await;
        let old = settings(url, &[("order.placed", &topic), ("order.paid", &topic)]);
        Settings::new("listed", &old).printed(&["migrate"]).await;
        let other = old.replace("[relay]", "[relay]\nhandler = 'other'");
        let (code, said) = check("listed", &other).await;
        assert!(
            code == Some(0) && said.contains("warn  handlers   relay: listed beside the relay"),
            "{said}"
        );
        let (code, said) = check("listed", &settings(url, &[("order.placed", &topic)])).await;
        assert!(code == Some(0) && said.contains("warn  handlers   relay order.paid: listed"), "{said}");
        assert!(!check("listed", &old).await.1.contains("warn"));
    })
    .await;
}

#[tokio::test]
async fn what_is_missing_has_a_line_each() {
    let _shared = BROKER.read().await;
    on_postgres("relay_bad", async |url| {
        let (there, missing) = (topic().await, unused_topic());
        let good = settings(url, &[("a", &there)]);
        let (code, said) = check("tables", &good).await;
        assert!(code == Some(1) && bad(&said).contains("run `keylane migrate`"), "{said}");
        Settings::new("tables", &good).printed(&["migrate"]).await;

        let (code, said) = check("topic", &settings(url, &[("a", &missing), ("b", &there)])).await;
        assert!(code == Some(1) && bad(&said).contains(&format!("{missing}: ")), "{said}");
        let (code, again) = check("topic", &settings(url, &[("a", &missing)])).await;
        assert!(code == Some(1) && bad(&again).contains(&missing), "asking has not made it: {again}");

        let (code, said) = check("brokers", &good.replace(&address(), "127.0.0.1:1")).await;
        assert!(code == Some(1) && bad(&said).contains("the brokers at 127.0.0.1:1"), "{said}");

        let nobody = good.replace(url, "postgres://nobody:${RELAY_PASSWORD}@127.0.0.1:1/none");
        let (code, said) = check("database", &nobody).await;
        assert!(code == Some(1) && bad(&said).starts_with("BAD   database"), "{said}");
        assert!(!said.contains("hunter2"), "{said}");
    })
    .await;
}

#[tokio::test]
async fn missing_rights_are_named() {
    let _shared = BROKER.read().await;
    on_postgres("relay_rights", async |url| {
        let text = settings(url, &[("a", &topic().await)]);
        let file = Settings::new("rights", &text);
        file.printed(&["migrate"]).await;
        let role = format!("keylane_relay_{}", std::process::id());
        let mut admin = <sqlx::PgConnection as sqlx::Connection>::connect(url).await.unwrap();
        let mut execute = async |sql: String| {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut admin).await.unwrap();
        };
        execute(format!("CREATE ROLE {role} LOGIN PASSWORD 'secret'")).await;
        execute(file.printed(&["grants", "worker", "--to", &role]).await).await;
        let (_, place) = url.rsplit_once('@').unwrap();
        let text = text.replace(url, &format!("postgres://{role}:secret@{place}"));
        assert_eq!(check("granted", &text).await.0, Some(0));
        execute(format!("REVOKE INSERT ON outbox_dead_letter FROM {role}")).await;
        assert!(bad(&check("letters", &text).await.1).contains("INSERT on outbox_dead_letter"));
        execute(format!("GRANT INSERT ON outbox_dead_letter TO {role}")).await;
        execute(format!("REVOKE DELETE ON outbox_dedup FROM {role}")).await;
        let (code, said) = check("revoked", &text).await;
        let line = bad(&said);
        assert!(code == Some(1) && line.contains("DELETE on outbox_dedup"), "{said}");
        assert!(line.contains("keylane grants worker"), "{line}");
        execute(format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    })
    .await;
}

#[tokio::test]
async fn settings_that_cannot_be_are_told_before_anything_is_asked() {
    let good = settings("postgres://nobody@127.0.0.1:1/none", &[("order.*", "orders")]);
    let with = |line: &str| good.replace("to = 'orders'", &format!("to = 'orders'\n{line}"));
    let table = [
        (good.replace("health", "helth"), "the key relay.helth is unknown: did you mean health?"),
        (with("event = 'a'"), "the key relay.route.event is unknown: did you mean events?"),
        (with("form = 'xml'"), "form"),
        (with("key = '{kye}'"), "names {kye}"),
        (
            with("dead_letters = 'dead'\ndead_letter_table = true"),
            "take out dead_letters or dead_letter_table",
        ),
        (good.replace("order.*", "order *"), "the pattern \"order *\" is not valid"),
        (
            good.replace("[relay.kafka]", "[relay.kafka]\nbatch_size = '${RELAY_PASSWORD}'"),
            "relay.kafka.batch_size",
        ),
        (good.replace("[relay.kafka]", "[relay.kafka]\npatience = '5'"), "write it as in \"2s\""),
        (
            good.replace("[relay.kafka]", "[relay.kafka]\nproperties = { acks = '1' }"),
            "acks is the sink's own",
        ),
        (good.replace("orders", "${RELAY_NOTHING}"), "the variable RELAY_NOTHING"),
        (good.split("[[relay.route]]").next().unwrap().to_owned(), "there is no route"),
        ("table_prefix = 'a_'".to_owned(), "has no table [relay]"),
        (good.replace("'orders'", "'https://example.org/hook'"), "relay.webhook.secrets is empty"),
        (
            good.replace("[relay.kafka]", "[relay.webhook]").replace("brokers", "source"),
            "no table [relay.kafka]",
        ),
        (
            good.clone()
                + "[relay.webhook]\nsecrets = ['${RELAY_PASSWORD}']\n[[relay.route]]\nto = 'https://a.b'",
            "not base64",
        ),
    ];
    for (text, expected) in table {
        let (code, said) = check("settings", &text).await;
        let line = said.lines().find(|line| line.starts_with("BAD")).unwrap_or_default();
        assert!(code == Some(1) && line.contains(expected), "{expected}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

/// Without quotes a password can be a number, and the refusal had it.
#[tokio::test]
async fn a_secret_that_is_no_text_is_refused_without_it() {
    let good = settings("postgres://nobody@127.0.0.1:1/none", &[("order.*", "orders")]);
    let table = [
        ("[relay.kafka]\nproperties = { 'sasl.password' = 7734512 }", "relay.kafka.properties"),
        ("[relay.webhook]\nsecrets = [7734512]\n[relay.kafka]", "relay.webhook.secrets"),
        (
            "[relay.webhook]\nheaders = { authorization = [7734512.5] }\n[relay.kafka]",
            "relay.webhook.headers",
        ),
        ("database_url = 7734512\n[relay.kafka]", "relay.database_url"),
    ];
    for (lines, key) in table {
        let text = good.replace("[relay.kafka]", lines);
        let text =
            if key == "relay.database_url" { text.replacen("database_url = 'p", "# 'p", 1) } else { text };
        let (code, said) = check("secrets", &text).await;
        assert!(code == Some(1) && said.contains(key) && said.contains("must be a text"), "{said}");
        assert!(!said.contains("7734512"), "{said}");
    }
}
