//! TLS, passwords and rights, on the broker's listener that asks for them.

use keylane_consumer::{Consumer, ConsumerConfig};

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, bounded, take},
};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(dev/services env)\""))
}

/// The settings of a user whose password is its name.
fn signed_in(group: &str, user: &str) -> ConsumerConfig {
    ConsumerConfig::new(variable("KEYLANE_TEST_KAFKA_TLS"), group)
        .property("heartbeat.interval.ms", "500")
        .property("security.protocol", "sasl_ssl")
        .property("sasl.mechanism", "PLAIN")
        .property("sasl.username", user)
        .property("sasl.password", user)
        .property("ssl.ca.location", variable("KEYLANE_TEST_KAFKA_CA"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_read_gets_everything_through_tls_and_who_may_not_gets_nothing() {
    let _shared = BROKER.read().await;
    let (topic, group) = (broker::topic_of(2).await, broker::unused_name());
    let messages = (0..50).map(|number| ("key".to_owned(), number.to_string(), number.to_string()));
    broker::send(&topic, messages).await;
    let (handler, mut seen) = Told::new(|_: Seen| async { Ok(()) });
    let stranger =
        Consumer::builder(signed_in(&group, "stranger")).topic(topic.as_str(), handler).start().unwrap();
    let (handler, mut seen_by_user) = Told::new(|_: Seen| async { Ok(()) });
    let user =
        Consumer::builder(signed_in(&group, "keylane")).topic(topic.as_str(), handler).start().unwrap();
    let bodies: Vec<String> = take(&mut seen_by_user, 50).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    assert!(seen.try_recv().is_err(), "who may not read is in nobody's way");
    assert!(bounded(user.shutdown()).await.graceful);
    assert!(bounded(stranger.shutdown()).await.graceful);
}
