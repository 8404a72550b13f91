//! Keys that wait for their next attempt, and keys that stand still.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{HandlerError, RetryPolicy};
use keylane_consumer::Consumer;
use tokio::{sync::mpsc::unbounded_channel, time::Instant};

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, bounded, config, take},
};

fn message(key: &str, body: &str) -> (String, String, String) {
    (key.to_owned(), format!("{key}-{body}"), body.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_are_as_far_apart_as_the_policy_says() {
    let _shared = BROKER.read().await;
    let topic = broker::topic_of(1).await;
    broker::send(&topic, [message("bad", "poison"), message("bad", "after")]).await;
    let (tried, mut attempts) = unbounded_channel();
    let (handler, mut seen) = Told::new(move |(_, body): Seen| {
        let tried = tried.clone();
        async move {
            if body == "after" {
                return Ok(());
            }
            let _ = tried.send(Instant::now());
            Err(HandlerError::new("no"))
        }
    });
    // The longest delay is longer than a test waits: the delays are those of the attempts.
    let retry = RetryPolicy::exponential()
        .initial_delay(Duration::from_millis(200))
        .max_delay(Duration::from_secs(120));
    let consumer = Consumer::builder(config(&broker::unused_name()).retry(retry.jitter(0.0).max_retries(3)))
        .topic(topic.as_str(), handler)
        .dead_letters(broker::topic_of(1).await)
        .start()
        .unwrap();
    assert_eq!(take(&mut seen, 1).await, [("bad".to_owned(), "after".to_owned())]);
    assert!(consumer.shutdown().await.graceful);
    let mut times = Vec::new();
    while let Ok(time) = attempts.try_recv() {
        times.push(time);
    }
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let least = [200, 400, 800].map(Duration::from_millis);
    assert!(waits.len() == 3 && waits.iter().zip(least).all(|(wait, least)| *wait >= least), "{waits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_dead_letters_a_key_stands_still_until_its_message_is_handled() {
    let _shared = BROKER.read().await;
    let (topic, group) = (broker::topic_of(1).await, broker::unused_name());
    let messages = [message("bad", "poison"), message("bad", "after")];
    broker::send(&topic, messages.into_iter().chain((0..20).map(|n| message("good", &n.to_string())))).await;
    let (tried, mut attempts) = unbounded_channel();
    let is_mended = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_mended);
    let (handler, mut seen) = Told::new(move |(_, body): Seen| {
        let fails = body == "poison" && !asked.load(SeqCst);
        if fails {
            let _ = tried.send(Instant::now());
        }
        async move { if fails { Err(HandlerError::new("no")) } else { Ok(()) } }
    });
    let (delay, longest) = (Duration::from_millis(10), Duration::from_millis(300));
    let retry = RetryPolicy::fixed(delay).jitter(0.0).max_delay(longest).max_retries(2);
    let consumer =
        Consumer::builder(config(&group).retry(retry)).topic(topic.as_str(), handler).start().unwrap();
    assert!(take(&mut seen, 20).await.iter().all(|(key, _)| key == "good"));
    // After the last attempt of the policy it is tried again and again, with the longest delay in between.
    let mut times = Vec::new();
    while times.len() < 6 {
        times.push(bounded(attempts.recv()).await.unwrap());
    }
    assert!(times[2..].windows(2).all(|pair| pair[1] - pair[0] >= longest), "{times:?}");
    assert!(seen.try_recv().is_err(), "a message has overtaken the one before it");
    assert_eq!(broker::committed(&topic, &group).await, 0);
    is_mended.store(true, SeqCst);
    let bodies: Vec<String> = take(&mut seen, 2).await.into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["poison", "after"]);
    assert!(consumer.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, 22);
}
