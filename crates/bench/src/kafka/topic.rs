//! A topic of a bench: creates it, reads it to its end, deletes it.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{BorrowedMessage, Headers},
};

use super::Result;

/// A topic on these brokers.
#[derive(Clone)]
pub(crate) struct Topic {
    brokers: String,
    name: String,
    partitions: i32,
}

impl Topic {
    /// A new topic, whose name no other bench uses.
    pub(crate) async fn make(brokers: &str, partitions: i32) -> Result<Self> {
        let name = format!("keylane-bench-{}", uuid::Uuid::now_v7());
        let topic = Self { brokers: brokers.to_owned(), name, partitions };
        let wanted = NewTopic::new(&topic.name, partitions, TopicReplication::Fixed(1));
        for made in topic.admin()?.create_topics([&wanted], &AdminOptions::new()).await? {
            made.map_err(|(name, error)| format!("topic {name} cannot be made: {error}"))?;
        }
        Ok(topic)
    }

    pub(crate) async fn remove(self) -> Result<()> {
        self.admin()?.delete_topics(&[&self.name], &AdminOptions::new()).await?;
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        client
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    /// All partitions, from the beginning.
    pub(super) fn places(&self) -> Result<TopicPartitionList> {
        let mut places = TopicPartitionList::new();
        for partition in 0..self.partitions {
            places.add_partition_offset(&self.name, partition, Offset::Beginning)?;
        }
        Ok(places)
    }

    /// # Errors
    /// Unless the topic has this many records, each once, and those of each key in order.
    pub(super) async fn check(&self, records: usize) -> Result<()> {
        let topic = self.clone();
        let read = tokio::task::spawn_blocking(move || topic.read()).await??;
        let (found, doubled, swapped) = (read.found.len(), read.doubled, read.swapped);
        if (found, doubled, swapped) == (records, 0, 0) {
            return Ok(());
        }
        let problem =
            format!("{found} of {records} records, {doubled} of them twice, {swapped} out of order");
        Err(format!("the topic has {problem}").into())
    }

    fn read(&self) -> Result<Read> {
        let mut client = self.client();
        client.set("group.id", &self.name).set("enable.partition.eof", "true");
        client.set("enable.auto.commit", "false");
        let consumer: BaseConsumer = client.create()?;
        consumer.assign(&self.places()?)?;
        let (mut read, mut ended) = (Read::default(), BTreeSet::new());
        while ended.len() < self.partitions as usize {
            match consumer.poll(Duration::from_secs(30)) {
                Some(Ok(message)) => read.note(&message)?,
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    ended.insert(partition);
                }
                Some(Err(error)) => return Err(error.into()),
                None => return Err("the topic could not be read within 30 s".into()),
            }
        }
        Ok(read)
    }
}

/// The records that were read from a topic.
#[derive(Default)]
struct Read {
    found: BTreeSet<i64>,
    doubled: usize,
    swapped: usize,
    /// The last record of each key.
    last: HashMap<Vec<u8>, i64>,
}

impl Read {
    fn note(&mut self, message: &BorrowedMessage<'_>) -> Result<()> {
        let sequence = message.headers().and_then(|headers| {
            let header = headers.iter().find(|header| header.key == "ce_sequence")?;
            std::str::from_utf8(header.value?).ok()?.parse().ok()
        });
        let sequence: i64 = sequence.ok_or("a message has no ce_sequence")?;
        self.doubled += usize::from(!self.found.insert(sequence));
        let last = self.last.insert(message.key().unwrap_or_default().to_vec(), sequence);
        self.swapped += usize::from(last.is_some_and(|last| last > sequence));
        Ok(())
    }
}
