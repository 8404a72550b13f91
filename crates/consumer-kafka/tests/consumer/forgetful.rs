//! A client that forgets its brokers.

use std::{collections::BTreeSet, sync::Arc};

use keylane_consumer::Consumer;

use crate::{
    away::BROKER,
    broker,
    relay::Relay,
    stage::{Told, bounded, config_at, take},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_forgets_its_brokers_is_opened_again() {
    let _shared = BROKER.read().await;
    let (topic, group, relay) = (broker::topic().await, broker::unused_name(), Arc::new(Relay::default()));
    let messages = |from: usize| {
        let message = |number: usize| {
            (format!("key-{}", number % 5), format!("event-{number}"), (number / 5).to_string())
        };
        (from..from + 50).map(message)
    };
    let (handler, mut seen) = Told::new(async |_| Ok(()));
    let config = config_at(Arc::clone(&relay).start().await, &group)
        .property("topic.metadata.refresh.interval.ms", "500")
        .property("metadata.recovery.strategy", "none")
        .property("session.timeout.ms", "6000");
    let running = Consumer::builder(config).topic(topic.as_str(), handler).start().unwrap();
    broker::send(&topic, messages(0)).await;
    let mut handled = take(&mut seen, 50).await;
    bounded(relay.until_forgotten()).await;
    broker::send(&topic, messages(50)).await;
    // What was not committed comes again.
    while handled.iter().collect::<BTreeSet<_>>().len() < 100 {
        handled.extend(take(&mut seen, 1).await);
    }
    // The last message that comes again may have been handled before.
    bounded(broker::until_committed(&topic, &group, 100)).await;
    assert!(bounded(running.shutdown()).await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 100);
    for key in (0..5).map(|key| format!("key-{key}")) {
        let mut first = BTreeSet::new();
        let bodies = handled.iter().filter(|(of, _)| *of == key).map(|(_, body)| body.parse().unwrap());
        let bodies: Vec<usize> = bodies.filter(|body| first.insert(*body)).collect();
        assert_eq!(bodies, (0..20).collect::<Vec<_>>(), "{key}");
    }
}
