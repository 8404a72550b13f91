//! TLS, passwords and rights, on the broker's listener that asks for them.

use keylane::Signal;
use keylane_kafka::{KafkaConfig, KafkaSink, Route};

use crate::{
    away::BROKER,
    broker,
    stage::{Stage, in_turns, numbers},
};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: eval \"$(dev/services env)\""))
}

/// The settings of a user whose password is its name.
fn signed_in(user: &str) -> KafkaConfig {
    KafkaConfig::new(variable("KEYLANE_TEST_KAFKA_TLS"))
        .property("security.protocol", "sasl_ssl")
        .property("sasl.mechanism", "PLAIN")
        .property("sasl.username", user)
        .property("sasl.password", user)
        .property("ssl.ca.location", variable("KEYLANE_TEST_KAFKA_CA"))
        .patience(std::time::Duration::from_secs(4))
}

async fn stage(config: KafkaConfig, topic: &str) -> Stage {
    Stage::of([KafkaSink::new(config).unwrap().route(Route::to(topic)).registration("kafka")]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_arrive_through_tls_with_a_password() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let mut stage = stage(signed_in("keylane"), &topic).await;
    stage.schedule("order.placed", in_turns(4, 0, 100)).await;
    stage.until_idle().await;
    stage.end_without_failure().await;
    let content = broker::read(&topic).await;
    for key in (0..4).map(|key| format!("key-{key}")) {
        assert_eq!(content.first_occurrences(&key), numbers(100), "{key}");
    }
}

/// The broker refuses the user's session as such, before it refuses the topic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_write_fails_for_good_with_the_brokers_words() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let mut stage = stage(signed_in("stranger"), &topic).await;
    stage.schedule("order.placed", in_turns(1, 0, 2)).await;
    stage.until(|signal| matches!(signal, Signal::RecordFailed { .. })).await;
    let told = stage.end().await;
    let failures = told.failures();
    assert_eq!(told.counted_retries(), 0);
    assert!(failures[0].contains(&topic) && failures[0].contains("authorization failed"), "{failures:?}");
    assert!(broker::read(&topic).await.first_occurrences("key-0").is_empty());
}

/// Wrong credentials, or a broker that nobody vouches for, are the fault of no record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_sign_in_waits_and_counts_no_attempt() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let wrong_password = signed_in("keylane").property("sasl.password", "wrong");
    let unknown_authority =
        signed_in("keylane").property("ssl.ca.location", "/etc/ssl/certs/ca-certificates.crt");
    let no_tls = signed_in("keylane").property("security.protocol", "sasl_plaintext");
    for config in [wrong_password, unknown_authority, no_tls] {
        let mut stage = stage(config, &topic).await;
        stage.schedule("order.placed", in_turns(1, 0, 1)).await;
        stage.until(|signal| matches!(signal, Signal::TargetUnavailable { .. })).await;
        stage.end_without_failure().await;
    }
    assert!(broker::read(&topic).await.first_occurrences("key-0").is_empty());
}
