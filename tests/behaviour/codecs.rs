//! Events in codecs other than JSON.

use keylane::{Delivery, Handler, HandlerError, OutboxEvent, RawEvent, Registration, ScheduleOptions};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{
    recorder::bounded,
    stage::{Stage, until_empty},
    user::User,
};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "cbor", key = "{number}", codec = cbor)]
struct InCbor {
    number: i64,
    text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "message-pack", key = "{number}", codec = message_pack, version = 2)]
struct InMessagePack {
    number: i64,
    text: String,
}

#[derive(Clone, PartialEq, prost::Message, Serialize, Deserialize, OutboxEvent)]
#[outbox(record_type = "protobuf", key = "{number}", codec = protobuf)]
struct InProtobuf {
    #[prost(int64, tag = "1")]
    number: i64,
    #[prost(string, tag = "2")]
    text: String,
}

/// Sends the media type and the event.
struct Tells<E>(UnboundedSender<(String, E)>);

impl<E: OutboxEvent> Handler for Tells<E> {
    type Event = E;

    async fn handle(&self, event: E, delivery: &Delivery) -> Result<(), HandlerError> {
        self.0
            .send((delivery.content_type.to_string(), event))
            .map_err(|_| HandlerError::new("nobody listens"))
    }
}

fn tells<E: OutboxEvent>(id: &str) -> (Registration, UnboundedReceiver<(String, E)>) {
    let (sender, told) = unbounded_channel();
    (Registration::typed(id, Tells(sender)), told)
}

async fn next<E>(told: &mut UnboundedReceiver<(String, E)>) -> (String, E) {
    bounded("the event", told.recv()).await.unwrap()
}

pub(crate) async fn an_event_arrives_as_its_codec_wrote_it<T: User>(stage: &Stage<T>) {
    let (cbor, mut of_cbor) = tells::<InCbor>("cbor");
    let (message_pack, mut of_message_pack) = tells::<InMessagePack>("message-pack");
    let (protobuf, mut of_protobuf) = tells::<InProtobuf>("protobuf");
    let (outbox, running) = stage.run([cbor, message_pack, protobuf]).await;
    let (number, text) = (-7, "é".to_owned());
    let first = InCbor { number, text: text.clone() };
    let second = InMessagePack { number, text: text.clone() };
    let third = InProtobuf { number, text };
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule(&mut work, &first).await.unwrap();
    outbox.schedule(&mut work, &second).await.unwrap();
    outbox.schedule(&mut work, &third).await.unwrap();
    // A payload from before the event had a codec.
    let old = RawEvent::new("cbor", "old", r#"{"number":1,"text":"old"}"#);
    outbox.schedule_raw(&mut work, old, ScheduleOptions::new()).await.unwrap();
    T::commit(work).await;
    outbox.wake();
    let mut both = [next(&mut of_cbor).await, next(&mut of_cbor).await];
    both.sort_by_key(|(_, event)| event.number);
    assert_eq!(both[0], ("application/cbor".to_owned(), first));
    let old = InCbor { number: 1, text: "old".to_owned() };
    assert_eq!(both[1], ("application/json".to_owned(), old));
    assert_eq!(next(&mut of_message_pack).await, ("application/vnd.msgpack; version=2".to_owned(), second));
    assert_eq!(next(&mut of_protobuf).await, ("application/protobuf".to_owned(), third));
    until_empty(&outbox).await;
    running.shutdown().await;
}
