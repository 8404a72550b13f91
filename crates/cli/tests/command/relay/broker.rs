//! Topics of a test's own, and what arrives in them.

use std::{
    collections::{BTreeMap, BTreeSet},
    process,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::Headers,
};

use super::{clients::with_another_client, leaders::await_leaders};
use crate::keylane::url;

const PARTITIONS: i32 = 3;
const POLL: Duration = Duration::from_millis(200);
/// So many polls without a message are longer than anything here takes: a minute.
const SILENCE: usize = 300;
static TOPICS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn address() -> String {
    url("KEYLANE_TEST_KAFKA")
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address());
    config
}

/// A name that no other run has used.
pub(crate) fn unused_topic() -> String {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
    format!("keylane-relay-{}-{since}-{}", process::id(), TOPICS.fetch_add(1, Relaxed))
}

/// A new topic.
pub(crate) async fn topic() -> String {
    let name = unused_topic();
    let admin: AdminClient<DefaultClientContext> = client().create().unwrap();
    let topic = NewTopic::new(&name, PARTITIONS, TopicReplication::Fixed(1));
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    await_leaders(client(), &name, PARTITIONS).await;
    name
}

/// The bodies of a topic by key, in the order of their arrival, repetitions among them.
pub(crate) type Content = BTreeMap<String, Vec<String>>;

/// A message of a topic.
pub(crate) struct Arrived {
    pub(crate) key: String,
    pub(crate) body: String,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Reads from the beginning until these many different messages have come.
pub(crate) async fn messages(topic: &str, different: usize) -> Vec<Arrived> {
    let topic = topic.to_owned();
    let read = move || with_another_client(&topic, || read(&topic, different));
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// As above; what matters of them mostly.
pub(crate) async fn arrived(topic: &str, different: usize) -> Content {
    content(&messages(topic, different).await)
}

pub(crate) fn content(messages: &[Arrived]) -> Content {
    let mut content = Content::new();
    for Arrived { key, body, .. } in messages {
        content.entry(key.clone()).or_default().push(body.clone());
    }
    content
}

/// How many messages there were if no further one comes.
fn read(topic: &str, different: usize) -> Result<Vec<Arrived>, String> {
    let consumer: BaseConsumer =
        client().set("group.id", "none").set("enable.auto.commit", "false").create().unwrap();
    let mut places = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        places.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&places).unwrap();
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut silent = 0;
    while seen.len() < different {
        let Some(message) = consumer.poll(POLL) else {
            silent += 1;
            if silent == SILENCE {
                return Err(format!("{} of {different} have come", seen.len()));
            }
            continue;
        };
        silent = 0;
        let message = message.unwrap();
        let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap();
        let (key, body) = (text(message.key()), text(message.payload()));
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let headers = headers.map(|header| (header.key.to_owned(), text(header.value))).collect();
        seen.insert((key.clone(), body.clone()));
        found.push(Arrived { key, body, headers });
    }
    Ok(found)
}

/// How many messages there are, repetitions among them.
pub(crate) fn count(content: &Content) -> usize {
    content.values().map(Vec::len).sum()
}

/// Each key has the numbers up to this one in order, where the first occurrence of each counts.
pub(crate) fn is_in_order(content: &Content, keys: usize, numbers: usize) {
    assert_eq!(content.len(), keys);
    for (key, bodies) in content {
        let mut seen = BTreeSet::new();
        let first: Vec<&String> = bodies.iter().filter(|body| seen.insert(body.as_str())).collect();
        let expected: Vec<String> = (0..numbers).map(|number| number.to_string()).collect();
        assert!(first.iter().copied().eq(&expected), "{key}: {first:?}");
    }
}
