//! The broker of `dev/services`: topics, and what is in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{Headers, OwnedMessage},
};

use crate::{clients::with_another_client, leaders::await_leaders};

const PARTITIONS: i32 = 6;
/// Longer than a broker needs for an answer here.
const SILENCE: Duration = Duration::from_secs(30);
static TOPICS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn address() -> String {
    std::env::var("KEYLANE_TEST_KAFKA").expect("KEYLANE_TEST_KAFKA is not set: eval \"$(dev/services env)\"")
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address());
    config
}

/// A name that no other run has used.
pub(crate) fn unused_topic() -> String {
    let number = TOPICS.fetch_add(1, Relaxed);
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    format!("keylane-{}-{since}-{number}", std::process::id())
}

/// A new topic with these settings.
pub(crate) async fn topic(settings: &[(&str, &str)]) -> String {
    let name = unused_topic();
    let admin: AdminClient<DefaultClientContext> = client().create().unwrap();
    let mut topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
    for (key, value) in settings {
        topic = topic.set(key, value);
    }
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    await_leaders(client(), &name, PARTITIONS).await;
    name
}

/// What a topic has: the messages of each key in the order in which they came, repetitions among them.
pub(crate) struct Content(BTreeMap<String, Vec<OwnedMessage>>);

/// Everything in the topic, read to the end of each partition.
pub(crate) async fn read(topic: &str) -> Content {
    let topic = topic.to_owned();
    let read = move || with_another_client(&topic, || read_now(&topic));
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// What came instead of a message, if not all can be read.
fn read_now(topic: &str) -> Result<Content, Option<KafkaError>> {
    let config = client()
        .set("group.id", "none")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .clone();
    let consumer: BaseConsumer = config.create().unwrap();
    let mut places = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&places).unwrap();
    let (mut ended, mut found) = (BTreeSet::new(), BTreeMap::<String, Vec<OwnedMessage>>::new());
    while ended.len() < PARTITIONS as usize {
        match consumer.poll(SILENCE) {
            Some(Ok(message)) => {
                let key = String::from_utf8(message.key().unwrap().to_vec()).unwrap();
                found.entry(key).or_default().push(message.detach());
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            Some(Err(error)) => return Err(Some(error)),
            None => return Err(None),
        }
    }
    Ok(Content(found))
}

impl Content {
    /// The bodies of a key, each where it came first.
    pub(crate) fn first_occurrences(&self, key: &str) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let bodies = self.0.get(key).into_iter().flatten();
        let bodies =
            bodies.map(|message| String::from_utf8(message.payload().unwrap_or_default().to_vec()).unwrap());
        bodies.filter(|body| seen.insert(body.clone())).collect()
    }

    pub(crate) fn messages(&self) -> impl Iterator<Item = &OwnedMessage> {
        self.0.values().flatten()
    }

    /// The messages of a key.
    pub(crate) fn of(&self, key: &str) -> &[OwnedMessage] {
        self.0.get(key).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn partitions_of(&self, key: &str) -> BTreeSet<i32> {
        self.0[key].iter().map(|message| message.partition()).collect()
    }
}

/// The headers of a message, as text.
pub(crate) fn headers(message: &OwnedMessage) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = message.headers().unwrap();
    headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect()
}
