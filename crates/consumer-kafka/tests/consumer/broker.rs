//! The broker of `dev/services`: topics, and what is in them.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::{KafkaError, KafkaResult, RDKafkaErrorCode},
    message::{Header, Headers, OwnedHeaders, OwnedMessage},
    producer::{FutureProducer, FutureRecord},
};

use crate::{
    clients::with_another_client,
    leaders::{PATIENCE_WITH_A_CLIENT, await_leaders},
};

static NAMES: AtomicU32 = AtomicU32::new(0);
const PARTITIONS: i32 = 6;
/// Longer than a broker needs for an answer here.
const SILENCE: Duration = Duration::from_secs(30);

pub(crate) fn address() -> String {
    std::env::var("KEYLANE_TEST_KAFKA").expect("KEYLANE_TEST_KAFKA is not set: eval \"$(dev/services env)\"")
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address()).set("partitioner", "murmur2_random");
    config
}

/// A name that no other run has used.
pub(crate) fn unused_name() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    format!("keylane-consumer-{}-{since}-{}", std::process::id(), NAMES.fetch_add(1, Relaxed))
}

pub(crate) async fn topic() -> String {
    topic_of(PARTITIONS).await
}

pub(crate) async fn topic_of(partitions: i32) -> String {
    let name = unused_name();
    let made = create(&name, partitions).await;
    assert!(made.is_ok(), "{made:?}");
    name
}

/// A topic of one partition that other runs may have made.
pub(crate) async fn shared_topic(name: &str) {
    let made = create(name, 1).await;
    assert!(matches!(made, Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists))), "{made:?}");
}

async fn create(name: &str, partitions: i32) -> TopicResult {
    let admin: AdminClient<DefaultClientContext> = client().create().unwrap();
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap().remove(0);
    await_leaders(client(), name, partitions).await;
    made
}

/// Sends messages in order: key, event id and body.
pub(crate) async fn send(topic: &str, messages: impl IntoIterator<Item = (String, String, String)>) {
    let producer: FutureProducer = client().set("enable.idempotence", "true").create().unwrap();
    let mut sent = Vec::new();
    for (key, id, body) in messages {
        let header = |headers: OwnedHeaders, key, value| headers.insert(Header { key, value: Some(value) });
        let mut headers = OwnedHeaders::new();
        headers = header(headers, "ce_specversion", "1.0");
        headers = header(headers, "ce_id", &id);
        headers = header(headers, "ce_source", "/test");
        headers = header(headers, "ce_type", "order.placed");
        headers =
            header(headers, "ce_traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let mut record = FutureRecord::to(topic).key(&key).payload(&body).headers(headers);
        // A key may say where it goes.
        record.partition = key.strip_prefix("partition-").map(|number| number.parse().unwrap());
        sent.push(producer.send_result(record).map_err(|(error, _)| error).unwrap());
    }
    for sent in sent {
        sent.await.unwrap().unwrap();
    }
}

/// Everything in a topic, by its key.
pub(crate) async fn read(topic: &str) -> Vec<OwnedMessage> {
    let topic = topic.to_owned();
    let read = move || with_another_client(&topic, || read_now(&topic));
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// What came instead of a message, if not all can be read.
fn read_now(topic: &str) -> Result<Vec<OwnedMessage>, Option<KafkaError>> {
    let mut config = client();
    config.set("group.id", "none").set("enable.auto.commit", "false").set("enable.partition.eof", "true");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut places = TopicPartitionList::new();
    let found = consumer.fetch_metadata(Some(topic), SILENCE)?;
    let partitions = found.topics()[0].partitions().len() as i32;
    for partition in 0..partitions {
        places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&places).unwrap();
    let (mut ended, mut messages) = (0, Vec::new());
    while ended < partitions {
        match consumer.poll(SILENCE) {
            Some(Ok(message)) => messages.push(message.detach()),
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => return Err(Some(error)),
            None => return Err(None),
        }
    }
    Ok(messages)
}

/// The headers of a message, as text.
pub(crate) fn headers(message: &OwnedMessage) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = message.headers().unwrap();
    headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect()
}

/// What a group has committed, over all partitions.
pub(crate) async fn committed(topic: &str, group: &str) -> i64 {
    let (topic, group) = (topic.to_owned(), group.to_owned());
    let what = format!("what {group} has committed");
    let read = move || with_another_client(&what, || committed_now(&topic, &group));
    tokio::task::spawn_blocking(read).await.unwrap()
}

fn committed_now(topic: &str, group: &str) -> KafkaResult<i64> {
    let consumer: BaseConsumer = client().set("group.id", group).create().unwrap();
    let mut places = TopicPartitionList::new();
    let found = consumer.fetch_metadata(Some(topic), PATIENCE_WITH_A_CLIENT)?;
    for partition in found.topics()[0].partitions() {
        places.add_partition(topic, partition.id());
    }
    let committed = consumer.committed_offsets(places, PATIENCE_WITH_A_CLIENT)?;
    let offsets = committed.elements().into_iter().map(|element| match element.offset() {
        Offset::Offset(offset) => offset,
        _ => 0,
    });
    Ok(offsets.sum())
}

/// Waits until the group has committed this many messages, while its members run.
pub(crate) async fn until_committed(topic: &str, group: &str, messages: usize) {
    while committed(topic, group).await < messages as i64 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
