//! One trace id, from a request to the consumer of the message that it leads to.

use std::convert::Infallible;

use http::{Request, Response};
use keylane::{Outbox, RawEvent, ScheduleOptions, memory::MemoryPool};
use keylane_consumer::Consumer;
use keylane_kafka::{KafkaConfig, KafkaSink, Route};
use keylane_web::TraceIdLayer;
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    away::BROKER,
    broker,
    log::Log,
    stage::{Told, config, take},
};

/// The request goes through the guard, its event through outbox and broker, and the consumer logs with the id of
/// the request. The answer has the id, too.
#[tokio::test]
async fn one_trace_id_goes_from_the_request_through_the_broker_to_the_consumer() {
    let _shared = BROKER.read().await;
    // The consumer works on this thread, too.
    let (log, _guard) = Log::begin();
    let topic = broker::topic_of(1).await;
    let sink = KafkaSink::new(KafkaConfig::new(broker::address())).unwrap();
    let outbox = Outbox::builder(MemoryPool::new())
        .default_headers(keylane_web::event_headers)
        .handlers([sink.route(Route::to(&topic)).registration("kafka")])
        .build()
        .await
        .unwrap();
    outbox.migrate().await.unwrap();
    let running = outbox.start().await.unwrap();
    let (handler, mut seen) = Told::new(async |_| {
        tracing::info!("confirmed");
        Ok(())
    });
    let consumer = Consumer::builder(config(&broker::unused_name()))
        .topic(topic.as_str(), handler)
        .dead_letters(broker::topic_of(1).await)
        .start()
        .unwrap();

    let place_order = service_fn(move |_: Request<()>| {
        let outbox = outbox.clone();
        async move {
            let scheduled = outbox.transaction(async |tx| {
                let order = RawEvent::new("order.placed", "customer-7", r#"{"id":1}"#);
                outbox.schedule_raw(tx, order, ScheduleOptions::new()).await
            });
            scheduled.await.unwrap();
            Ok::<_, Infallible>(Response::new(()))
        }
    });
    let (parent, state) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1");
    let request = Request::post("/orders").header("x-trace-id", "4bf92f35").header("traceparent", parent);
    let request = request.header("tracestate", state).body(()).unwrap();
    let answer = TraceIdLayer::new().layer(place_order).oneshot(request).await.unwrap();
    assert_eq!(answer.headers()["x-trace-id"], "4bf92f35");

    take(&mut seen, 1).await;
    assert!(consumer.shutdown().await.graceful);
    assert!(running.shutdown().await.graceful);
    let [message] = &*broker::read(&topic).await else { panic!("one message") };
    let headers = broker::headers(message);
    assert_eq!((&*headers["trace_id"], &*headers["traceparent"]), ("4bf92f35", parent));
    let lines = log.lines_with("confirmed");
    let [line] = &*lines else { panic!("{lines:?}") };
    // A subscriber for a tracer makes the span a child of the request by these.
    for (field, value) in [("trace_id", "4bf92f35"), ("traceparent", parent), ("tracestate", state)] {
        assert!(line.contains(&format!(r#" {field}="{value}""#)), "{field}: {line}");
    }
}
