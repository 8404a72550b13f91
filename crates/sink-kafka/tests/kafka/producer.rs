//! A producer without an outbox beside the sink.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use keylane_kafka::{Event, Form, KafkaConfig, KafkaProducer, Route, Verdict};
use rdkafka::{Message as _, message::OwnedMessage};

use crate::{
    away::BROKER,
    broker,
    relay::Relay,
    stage::{Stage, bounded, sink},
};

const KEYS: usize = 20;
const PATIENCE: Duration = Duration::from_secs(3);

fn producer() -> KafkaProducer {
    KafkaProducer::new(KafkaConfig::new(broker::address()).source("/shop")).unwrap()
}

/// The headers, without the values that differ from event to event.
fn lasting(message: &OwnedMessage) -> BTreeMap<String, String> {
    let mut headers = broker::headers(message);
    headers.retain(|name, _| !["ce_id", "ce_sequence"].contains(&&**name));
    for name in ["ce_traceparent", "traceparent"] {
        headers.entry(name.to_owned()).and_modify(|trace| "a trace".clone_into(trace));
    }
    headers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_without_an_outbox_is_the_message_that_the_sink_sends_on_the_same_partition() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    let (producer, traced) =
        (producer(), BTreeMap::from([("traceparent".into(), "00-trace-span-01".into())]));
    for key in &keys {
        let mut event = Event::new(format!("id-of-{key}"), "order.placed", key, b"{}");
        event.headers = &traced;
        bounded(producer.send(&topic, &event)).await.unwrap();
    }
    // A message is there when its sending has ended.
    assert_eq!(broker::read(&topic).await.messages().count(), KEYS);
    let sink = sink(|config| config.source("/shop")).route(Route::to(&topic));
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    stage.schedule("order.placed", keys.iter().map(|key| (key.clone(), "{}".to_owned()))).await;
    stage.until_idle().await;
    stage.end().await;

    let content = broker::read(&topic).await;
    let mut partitions = BTreeSet::new();
    for key in &keys {
        let [of_producer, of_sink] = content.of(key) else { panic!("two messages of {key}") };
        let headers = broker::headers(of_producer);
        assert_eq!(headers["ce_id"], format!("id-of-{key}"));
        assert_eq!([&headers["ce_traceparent"], &headers["traceparent"]], ["00-trace-span-01"; 2]);
        assert_eq!(lasting(of_producer), lasting(of_sink));
        assert_eq!(of_producer.payload(), of_sink.payload());
        assert_eq!(of_producer.partition(), of_sink.partition(), "{key}");
        partitions.insert(of_sink.partition());
    }
    assert!(partitions.len() > 1, "all keys have one partition, so that the test shows nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_writes_the_form_that_it_has_and_says_what_is_refused() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[("max.message.bytes", "20000")]).await;
    let producer = producer().form(Form::CloudEventsJson);
    let large = format!("\"{}\"", "x".repeat(50_000));
    let large = Event::new("large", "order.placed", "key", large.as_bytes());
    let refused = bounded(producer.send(&topic, &large)).await.unwrap_err();
    assert!(refused.verdict == Verdict::MessageRejected && !refused.is_retryable(), "{refused:?}");
    assert!(refused.to_string().contains("Message size too large"), "{refused}");
    // What follows a refusal is sent all the same.
    let small = Event::new("small", "order.placed", "key", b"{}");
    bounded(producer.send(&topic, &small)).await.unwrap();
    let content = broker::read(&topic).await;
    let [message] = content.of("key") else { panic!("one message") };
    let body = std::str::from_utf8(message.payload().unwrap()).unwrap();
    assert!(body.contains(r#""id":"small""#) && body.contains(r#""source":"/shop""#), "{body}");
    assert!(broker::headers(message)["content-type"].starts_with("application/cloudevents+json"));
}

/// What a call of the sink does, a call of the producer does, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_forgets_its_brokers_is_replaced() {
    let _shared = BROKER.read().await;
    let (topic, relay) = (broker::topic(&[]).await, Arc::new(Relay::default()));
    let config = KafkaConfig::new(Arc::clone(&relay).start().await).source("/shop").patience(PATIENCE);
    let config = config
        .property("topic.metadata.refresh.interval.ms", "500")
        .property("metadata.recovery.strategy", "none");
    let producer = KafkaProducer::new(config).unwrap();
    let event = Event::new("first", "order.placed", "key", b"{}");
    bounded(producer.send(&topic, &event)).await.unwrap();
    bounded(relay.until_forgotten()).await;
    let event = Event::new("second", "order.placed", "key", b"{}");
    let sent = async {
        while let Err(gave_up) = producer.send(&topic, &event).await {
            assert!(gave_up.is_retryable(), "{gave_up}");
        }
    };
    bounded(sent).await;
}
