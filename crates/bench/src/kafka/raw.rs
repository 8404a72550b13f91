//! The client alone: an idempotent producer that is given the same messages as fast as it takes them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use keylane_message::{Binding, Form};
use rdkafka::{
    ClientContext,
    config::FromClientConfigAndContext,
    message::{Header, OwnedHeaders},
    producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Event, Load, Result, topic::Topic};

/// Messages under way at most: fewer than the client refuses.
const UNDER_WAY: u32 = 50_000;

/// Counts what the brokers have acknowledged.
#[derive(Default)]
struct Acknowledged(AtomicUsize);

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = Box<OwnedSemaphorePermit>;

    fn delivery(&self, result: &DeliveryResult<'_>, room: Self::DeliveryOpaque) {
        self.0.fetch_add(usize::from(result.is_ok()), Relaxed);
        drop(room);
    }
}

/// Sends the messages of so many events and waits for all acknowledgements.
pub(super) async fn send(topic: &Topic, records: usize, load: Load) -> Result<()> {
    let mut client = topic.client();
    client.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "2");
    client.set("partitioner", "murmur2_random");
    let producer = ThreadedProducer::from_config_and_context(&client, Acknowledged::default())?;
    let room = Arc::new(Semaphore::new(UNDER_WAY as usize));
    for number in 0..records {
        let permit = Box::new(Arc::clone(&room).acquire_owned().await?);
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
        let record = BaseRecord::with_opaque_to(topic.name(), permit);
        producer.send(record.key(&key).payload(&*body).headers(headers)).map_err(|(error, _)| error)?;
    }
    // Every permit comes back with its answer.
    let _all = room.acquire_many(UNDER_WAY).await?;
    let acknowledged = producer.context().0.load(Relaxed);
    match acknowledged == records {
        true => Ok(()),
        false => Err(format!("{acknowledged} of {records} messages were acknowledged").into()),
    }
}
