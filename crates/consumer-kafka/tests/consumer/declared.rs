//! Handlers that name their topic, and one that names its group, too.

use keylane::HandlerError;
use keylane_consumer::{Consumer, ConsumerBuilder, Declared, Message, message_handler};
use sqlx::{PgConnection, Row};
use tokio::sync::broadcast;

use crate::{
    away::BROKER,
    broker,
    stage::{Effects, bounded, config},
};

/// A name in an attribute is fixed, so all runs of the tests share the topic. Each looks for its own message.
const TOPIC: &str = "keylane-consumer-declared";
const GROUP: &str = "keylane-consumer-declared-group";

/// What the handlers of this process have taken: their name and the run.
static TAKEN: std::sync::LazyLock<broadcast::Sender<(&str, String)>> =
    std::sync::LazyLock::new(|| broadcast::channel(10_000).0);

#[derive(serde::Deserialize)]
struct Run {
    run: String,
}

#[message_handler(topic = "keylane-consumer-declared")]
async fn plain(message: &Message) -> Result<(), HandlerError> {
    let _ = TAKEN.send(("plain", message.event_id().to_owned()));
    Ok(())
}

#[message_handler(topic = "keylane-consumer-declared")]
async fn claimed(run: Run) -> Result<(), HandlerError> {
    let _ = TAKEN.send(("claimed", run.run));
    Ok(())
}

/// Two runs at once are members of one group. So the effect is where both look.
#[message_handler(topic = "keylane-consumer-declared", group = "keylane-consumer-declared-group")]
async fn transactional(tx: &mut PgConnection, run: Run) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO tc_declared VALUES ($1)").bind(run.run).execute(tx).await.map(drop)
}

/// The run, after its message is in the topic.
async fn send() -> String {
    broker::shared_topic(TOPIC).await;
    let run = broker::unused_name();
    broker::send(TOPIC, [("key".to_owned(), run.clone(), format!(r#"{{"run":"{run}"}}"#))]).await;
    run
}

async fn takes(builder: ConsumerBuilder, name: &str, run: &str) {
    let mut taken = TAKEN.subscribe();
    let running = builder.start().unwrap();
    while bounded(taken.recv()).await.unwrap() != (name, run.to_owned()) {}
    assert!(bounded(running.shutdown()).await.graceful);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_handler_gets_the_messages_of_its_topic() {
    let _shared = BROKER.read().await;
    let (run, group) = (send().await, broker::unused_name());
    assert_eq!((<plain as Declared>::TOPIC, <plain as Declared>::GROUP), (TOPIC, None));
    takes(Consumer::builder(config(&group)).handler(plain {}), "plain", &run).await;
    assert!(broker::committed(TOPIC, &group).await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_handler_with_claims_gets_the_messages_of_its_topic() {
    let _shared = BROKER.read().await;
    let (run, effects, group) = (send().await, Effects::new().await, broker::unused_name());
    let builder = Consumer::builder(config(&group)).claimed_handler(effects.inbox.clone(), claimed {});
    takes(builder, "claimed", &run).await;
    let overview = effects.inbox.overview().await.unwrap();
    assert!(overview.len() == 1 && overview[0].group == group && overview[0].success > 0, "{overview:?}");
    effects.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_declared_handler_in_a_transaction_gets_the_messages_of_its_topic_in_its_group() {
    let _shared = BROKER.read().await;
    let effects = Effects::new().await;
    effects.execute("CREATE TABLE IF NOT EXISTS tc_declared (run text)").await;
    assert_eq!(<transactional as Declared>::GROUP, Some(GROUP));
    let run = send().await;
    let builder = Consumer::builder(config(GROUP));
    let running = builder.transactional_handler(effects.inbox.clone(), transactional {}).start().unwrap();
    let effect = async {
        loop {
            let found = sqlx::query("SELECT count(*) FROM tc_declared WHERE run = $1").bind(&run);
            match found.fetch_one(effects.inbox.pool()).await.unwrap().get::<i64, _>(0) {
                0 => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
                count => break count,
            }
        }
    };
    assert_eq!(bounded(effect).await, 1);
    assert!(bounded(running.shutdown()).await.graceful);
    assert!(broker::committed(TOPIC, GROUP).await > 0);
    let delete = sqlx::query("DELETE FROM tc_declared WHERE run = $1").bind(&run);
    delete.execute(effects.inbox.pool()).await.unwrap();
    effects.end().await;
}
