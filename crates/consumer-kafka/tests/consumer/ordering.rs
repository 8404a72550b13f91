//! Keys in order, and different keys at once.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::HandlerError;
use keylane_consumer::Consumer;

use crate::{
    away::BROKER,
    broker,
    stage::{Seen, Told, config, take},
};

const KEYS: usize = 20;
const EACH: usize = 40;

/// Every message of a key fails now and then: by an error, a panic, or too late.
async fn fails_at_first(tried: Arc<Mutex<HashMap<Seen, usize>>>, seen: Seen) -> Result<(), HandlerError> {
    let number: usize = seen.1.parse().unwrap();
    let tries = {
        let mut tried = tried.lock().unwrap();
        let tries = tried.entry(seen).or_default();
        *tries += 1;
        *tries
    };
    match (tries, number % 10) {
        (1, 3) => Err(HandlerError::new("not yet")),
        (1, 5) => panic!("a bug"),
        (1, 7) => std::future::pending().await,
        (1..=5, 9) => Err(HandlerError::unavailable(Duration::from_millis(100))),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_stay_in_order_while_others_run_and_handlers_fail() {
    let _shared = BROKER.read().await;
    let topic = broker::topic().await;
    let messages = (0..EACH * KEYS).map(|number| {
        let (key, body) = (format!("key-{}", number % KEYS), (number / KEYS).to_string());
        (key.clone(), format!("{key}-{body}"), body)
    });
    broker::send(&topic, messages).await;
    let tried = Arc::new(Mutex::new(HashMap::new()));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&running), Arc::clone(&most));
    let (handler, mut seen) = Told::new(move |seen| {
        let (tried, counted, peak) = (Arc::clone(&tried), Arc::clone(&counted), Arc::clone(&peak));
        async move {
            peak.fetch_max(counted.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            counted.fetch_sub(1, SeqCst);
            fails_at_first(tried, seen).await
        }
    });
    let group = broker::unused_name();
    let config = config(&group).concurrency(8).handler_timeout(Duration::from_millis(200));
    let consumer = Consumer::builder(config).topic(topic.as_str(), handler).start().unwrap();
    let mut of_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, body) in take(&mut seen, KEYS * EACH).await {
        of_key.entry(key).or_default().push(body);
    }
    let expected: Vec<String> = (0..EACH).map(|number| number.to_string()).collect();
    assert_eq!(of_key.len(), KEYS);
    for (key, bodies) in of_key {
        assert_eq!(bodies, expected, "{key}");
    }
    assert!((4..=8).contains(&most.load(SeqCst)), "{most:?} at once");
    assert!(consumer.shutdown().await.graceful);
    assert_eq!(broker::committed(&topic, &group).await, (KEYS * EACH) as i64);
}
