//! The client alone: an idempotent producer that is given the same messages as fast as it takes them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use keylane_message::{Binding, Form};
use rdkafka::{
    ClientConfig, ClientContext,
    config::FromClientConfigAndContext,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Event, Load, Result, topic::Topic};

/// Messages under way at most: fewer than the client refuses.
const UNDER_WAY: u32 = 50_000;

/// An address where nobody listens.
pub(super) const NOBODY: &str = "127.0.0.1:1";

/// Counts what the brokers have acknowledged.
#[derive(Default)]
pub(super) struct Acknowledged(AtomicUsize);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = Box<OwnedSemaphorePermit>;

    fn delivery(&self, result: &DeliveryResult<'_>, room: Self::DeliveryOpaque) {
        self.0.fetch_add(usize::from(result.is_ok()), Relaxed);
        drop(room);
    }
}

pub(super) type Client = ThreadedProducer<Acknowledged>;

/// Sends the messages of so many events and waits for all acknowledgements.
pub(crate) async fn send(topic: &Topic, records: usize, load: Load) -> Result<()> {
    let client = client(topic.client())?;
    let room = Arc::new(Semaphore::new(UNDER_WAY as usize));
    for number in 0..records {
        let permit = Arc::clone(&room).acquire_owned().await?;
        give(&client, topic.name(), number, load, permit)?;
    }
    // Every permit comes back with its answer.
    let _all = room.acquire_many(UNDER_WAY).await?;
    let acknowledged = client.context().0.load(Relaxed);
    match acknowledged == records {
        true => Ok(()),
        false => Err(format!("{acknowledged} of {records} messages were acknowledged").into()),
    }
}

/// A client that has no broker to send to.
pub(super) fn without_broker() -> Result<Client> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", NOBODY).set("message.timeout.ms", "0");
    client(config)
}

/// Gives so many messages to a client that has no broker to send them to.
pub(super) async fn fill(client: &Client, records: usize, load: Load) -> Result<()> {
    let room = Arc::new(Semaphore::new(records));
    for number in 0..records {
        give(client, "nowhere", number, load, Arc::clone(&room).acquire_owned().await?)?;
    }
    Ok(())
}

fn client(mut config: ClientConfig) -> Result<Client> {
    config.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "2");
    config.set("partitioner", "murmur2_random");
    Ok(ThreadedProducer::from_config_and_context(&config, Acknowledged::default())?)
}

/// Hands the message of an event to the client.
fn give(client: &Client, topic: &str, number: usize, load: Load, permit: OwnedSemaphorePermit) -> Result<()> {
    let key = Event::key_of(number * 7919 % load.keys);
    let body = serde_json::to_vec(&Event::numbered(number, load))?;
    let id = uuid::Uuid::now_v7().to_string();
    let mut event = keylane_message::Event::new(id, "bench.event", &key, &body);
    event.sequence = Some(i64::try_from(number)?);
    let (values, body) = event.write(Form::CloudEvents, Binding::Kafka);
    let mut headers = OwnedHeaders::new_with_capacity(values.len());
    for (name, value) in &values {
        headers = headers.insert(Header { key: name, value: Some(value.as_bytes()) });
    }
    let record = BaseRecord::with_opaque_to(topic, Box::new(permit));
    client.send(record.key(&key).payload(&*body).headers(headers)).map_err(|(error, _)| error)?;
    Ok(())
}
