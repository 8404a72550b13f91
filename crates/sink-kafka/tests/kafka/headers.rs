//! What a consumer sees of a record.

use keylane::{OutboxEvent, RawEvent, ScheduleError, ScheduleOptions};
use keylane_kafka::{Form, KafkaSink, Route, route};
use keylane_message::Received;
use rdkafka::Message as _;

use crate::{
    away::BROKER,
    broker,
    stage::{Identity, Stage, sink},
};

#[tokio::test]
async fn a_message_is_a_cloud_event() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let registration = route(sink(|config| config.source("/shop")).skip_unrouted())
        .events(["order.*"])
        .to(&topic)
        .key(|record| record.delivery.key.to_string())
        .header("team", "sales")
        .registration("kafka");
    let mut stage = Stage::of([registration]).await;
    stage.schedule("refund.paid", [("skipped".to_owned(), "x".to_owned())]).await;
    stage.schedule("order.placed", [("key-1".to_owned(), "the body".to_owned())]).await;
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    let messages: Vec<_> = content.messages().collect();
    assert_eq!(messages.len(), 1, "what no route takes is skipped");
    assert_eq!(messages[0].payload(), Some("the body".as_bytes()));
    assert_eq!(messages[0].key(), Some("key-1".as_bytes()));
    let mut headers = broker::headers(messages[0]);
    let Identity { event_id, traceparent } = stage.identity(["order.placed", "key-1", "the body"]);
    assert_eq!(headers.remove("ce_id"), Some(event_id));
    let expected = [
        ("ce_partitionkey", "key-1"),
        ("ce_sequence", "00000000000000000002"),
        ("ce_source", "/shop"),
        ("ce_specversion", "1.0"),
        ("ce_traceparent", &*traceparent),
        ("ce_type", "order.placed"),
        ("content-type", "application/json"),
        ("team", "sales"),
        ("traceparent", &*traceparent),
    ];
    let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(headers, expected);
    stage.end().await;
}

#[tokio::test]
async fn a_sink_is_given_what_its_routes_take_and_nothing_else() {
    let _shared = BROKER.read().await;
    let (orders, refunds) = (broker::topic(&[]).await, broker::topic(&[]).await);
    let target = refunds.clone();
    let registration = route(sink(|config| config))
        .events(["order.*"])
        .to(&orders)
        .route()
        .events(["refund.paid"])
        .to_by(move |_| target.clone())
        .registration("kafka");
    let mut stage = Stage::of([registration]).await;
    let invoice = RawEvent::new("invoice.sent", "key-1", "x");
    let refused = stage
        .outbox
        .transaction(async |tx| stage.outbox.schedule_raw(tx, invoice, ScheduleOptions::new()).await);
    let refused = refused.await.unwrap_err().to_string();
    assert!(refused.contains("invoice.sent"), "{refused}");
    stage.schedule("order.placed", [("key-1".to_owned(), "1".to_owned())]).await;
    stage.schedule("refund.paid", [("key-1".to_owned(), "2".to_owned())]).await;
    stage.until_idle().await;
    assert_eq!(broker::read(&orders).await.first_occurrences("key-1"), ["1"]);
    assert_eq!(broker::read(&refunds).await.first_occurrences("key-1"), ["2"]);
    stage.end().await;
}

/// The body and the headers of a form, as the page of messages has them.
fn expected(form: Form, sequence: usize, identity: &Identity) -> (String, Vec<(&'static str, String)>) {
    const PAYLOAD: &str = r#"{"id":42}"#;
    let Identity { event_id: id, traceparent } = identity;
    let (name, trace) = (form.as_str(), traceparent.split('-').nth(1).unwrap());
    let number = format!("{sequence:020}");
    let (body, headers) = match form {
        Form::CloudEvents => {
            let attributes = [
                ("ce_id", id.clone()),
                ("ce_partitionkey", format!("key of {name}")),
                ("ce_sequence", number),
                ("ce_source", "/keylane".to_owned()),
                ("ce_specversion", "1.0".to_owned()),
                ("ce_traceparent", traceparent.clone()),
                ("ce_type", name.to_owned()),
                ("content-type", "application/json".to_owned()),
            ];
            (PAYLOAD.to_owned(), attributes.to_vec())
        }
        Form::CloudEventsJson => {
            let attributes = format!(
                r#""specversion":"1.0","id":"{id}","source":"/keylane","type":"{name}","partitionkey":"key of {name}""#
            );
            let rest = format!(r#""datacontenttype":"application/json","traceparent":"{traceparent}""#);
            let body = format!(r#"{{{attributes},"sequence":"{number}",{rest},"data":{PAYLOAD}}}"#);
            (body, vec![("content-type", "application/cloudevents+json".to_owned())])
        }
        Form::BaseEvent => {
            let ids = format!(r#""messageId":"{id}","eventId":"{id}","traceId":"{trace}""#);
            let body = format!(r#"{{{ids},"bizKey":"key of {name}","payload":{PAYLOAD}}}"#);
            let headers = [
                ("content-type", "application/json".to_owned()),
                ("keylane-payload-type", "application/json".to_owned()),
                ("keylane-sequence", number),
                ("keylane-type", name.to_owned()),
                ("traceId", trace.to_owned()),
            ];
            (body, headers.to_vec())
        }
        Form::Debezium => {
            let headers = [
                ("content-type", "application/json".to_owned()),
                ("eventType", name.to_owned()),
                ("id", id.clone()),
                ("keylane-sequence", number),
            ];
            (PAYLOAD.to_owned(), headers.to_vec())
        }
        _ => (PAYLOAD.to_owned(), Vec::new()),
    };
    (body, [headers, vec![("traceparent", traceparent.clone())]].concat())
}

#[tokio::test]
async fn every_form_arrives_and_is_read_back() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let routes = Form::ALL.map(|form| Route::to(&topic).events([form.as_str()]).form(form));
    let sink = routes.into_iter().fold(sink(|config| config), KafkaSink::route);
    let mut stage = Stage::of([sink.registration("kafka")]).await;
    for form in Form::ALL.map(Form::as_str) {
        stage.schedule(form, [(format!("key of {form}"), r#"{"id":42}"#.to_owned())]).await;
    }
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    assert_eq!(content.messages().count(), Form::ALL.len());
    for (at, form) in Form::ALL.into_iter().enumerate() {
        let (name, key) = (form.as_str(), format!("key of {}", form.as_str()));
        let message = content.messages().find(|message| message.key() == Some(key.as_bytes())).unwrap();
        let identity = stage.identity([name, &key, r#"{"id":42}"#]);
        let (body, headers) = expected(form, at + 1, &identity);
        assert_eq!(String::from_utf8_lossy(message.payload().unwrap()), body);
        let written = broker::headers(message);
        assert!(
            written
                .iter()
                .map(|(name, value)| (name.as_str(), value))
                .eq(headers.iter().map(|(name, value)| (*name, value))),
            "{written:?} instead of {headers:?}"
        );

        let pairs = written.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let read = Received::read(pairs, message.key(), message.payload().unwrap()).unwrap();
        let has_place = |text: &str| (form != Form::Plain).then(|| text.to_owned());
        assert_eq!((read.form, &*read.payload), (form, &br#"{"id":42}"#[..]));
        assert_eq!((read.key, read.event_id), (Some(key), has_place(&identity.event_id)), "{name}");
        assert_eq!((read.record_type, read.content_type), (has_place(name), has_place("application/json")));
        assert_eq!(read.trace.traceparent, Some(identity.traceparent), "{name}");
    }
    stage.end().await;
}

#[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
#[outbox(record_type = "cbor", key = "{number}", codec = cbor)]
struct InCbor {
    number: i64,
}

#[derive(prost::Message, serde::Serialize, serde::Deserialize, OutboxEvent)]
#[outbox(record_type = "protobuf", key = "{number}", codec = protobuf)]
struct InProtobuf {
    #[prost(int64, tag = "1")]
    number: i64,
}

/// The bytes are those of RFC 8949 and of the wire format of Protobuf; neither is UTF-8.
#[tokio::test]
async fn an_event_that_is_not_json_arrives_byte_for_byte_with_its_media_type() {
    let _shared = BROKER.read().await;
    let topic = broker::topic(&[]).await;
    let mut stage = Stage::of([sink(|config| config).route(Route::to(&topic)).registration("kafka")]).await;
    let scheduled = stage.outbox.transaction(async |tx| {
        stage.outbox.schedule(tx, &InCbor { number: 300 }).await?;
        stage.outbox.schedule(tx, &InProtobuf { number: 301 }).await?;
        Ok::<_, ScheduleError>(())
    });
    scheduled.await.unwrap();
    stage.until_idle().await;
    let content = broker::read(&topic).await;
    let cbor: &[u8] = b"\xA1\x66number\x19\x01\x2C";
    let table = [("300", "application/cbor", cbor), ("301", "application/protobuf", b"\x08\xAD\x02")];
    for (key, media_type, body) in table {
        let message = content.messages().find(|message| message.key() == Some(key.as_bytes())).unwrap();
        assert_eq!(message.payload(), Some(body), "{media_type}");
        assert_eq!(broker::headers(message)["content-type"], media_type);
    }
    assert_eq!(content.messages().count(), 2);
    stage.end().await;
}
