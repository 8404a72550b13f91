//! What is never logged: keys, payloads, headers. All lines that this crate traces are checked, of this case
//! and of all cases beside it.

use std::{
    io,
    sync::{
        Mutex, Once,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use keylane::{
    HandlerError, RawEvent, RetryPolicy, ScheduleOptions, Signal,
    admin::{Filter, Status},
    handler::OnUndecodable,
};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::{
    ledger::{Ledger, Placed, placed, run_of},
    stage::{Stage, until_count},
    user::User,
};

const CANARY: &str = "canary-3f9a7c";

static LINES: AtomicUsize = AtomicUsize::new(0);
static ALERTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SUNG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Reads the log line by line and keeps the lines that must not exist.
struct Listener;

impl io::Write for Listener {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        LINES.fetch_add(1, SeqCst);
        if line.contains("[ALERT] record failed for good") {
            ALERTS.lock().unwrap().push(line.to_string());
        }
        if line.contains(CANARY) {
            SUNG.lock().unwrap().push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Listener {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        Self
    }
}

fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = EnvFilter::new("keylane=trace");
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Listener).init();
    });
}

/// What the line of a failed record must have.
fn failure(signal: &Signal) -> Option<Vec<String>> {
    match signal {
        Signal::RecordFailed { record, event_id, trace_id, lane, attempts, error, .. } => Some(vec![
            format!("record={record} event_id={event_id}"),
            trace_id.as_ref().map_or(String::new(), |id| format!("trace_id={id:?}")),
            format!("handler={} attempts={attempts} error={error:?}", lane.handler),
        ]),
        _ => None,
    }
}

/// Retries, a blocked and an unroutable lane, payloads that do not fit, refusals, an eviction.
pub(crate) async fn payloads_and_keys_are_never_logged<T: User>(stage: &Stage<T>) {
    listen();
    let before = LINES.load(SeqCst);
    let (_, running) = stage.run([Ledger::default().keeper("mail")]).await;
    running.shutdown().await;
    let ledger = Ledger::default();
    let handler = ledger.handler("bookkeeper", |event: &Placed, delivery| match event.number {
        2 if delivery.attempt == 1 => Err(HandlerError::new("not yet")),
        4 => Err(HandlerError::permanent("no")),
        _ => Ok(()),
    });
    let policy = RetryPolicy::fixed(Duration::from_millis(20)).max_retries(1);
    let policy = policy.undecodable(OnUndecodable::Fail);
    let (outbox, running) = stage.run([handler.retry(policy)]).await;
    let key = format!("key-{CANARY}");
    let options = || ScheduleOptions::new().header("secret", CANARY).trace_id("4bf92f35").dedup_key(CANARY);
    let payload = format!(r#"{{"key":"{CANARY}","number":"{CANARY}"}}"#);
    let misfit = RawEvent::new("order.placed", format!("other-{CANARY}"), payload);
    let mut work = T::begin(&stage.pool).await;
    outbox.schedule_all(&mut work, &run_of(&key, 6)).await.unwrap();
    outbox.schedule_raw(&mut work, misfit, options()).await.unwrap();
    let too_long = placed(&format!("{CANARY}{}", "x".repeat(300)), 1);
    assert!(outbox.schedule(&mut work, &too_long).await.is_err());
    T::commit(work).await;
    outbox.wake();
    until_count(&outbox, Status::Failed, 2).await;
    assert_eq!(ledger.done_of(&key), [1, 2, 3]);
    stage.store().evict(running.instance(), None).await.unwrap();
    let evicted = |signal: &Signal| matches!(signal, Signal::Evicted { .. }).then_some(());
    stage.signals.first("the eviction", evicted).await;
    let failed = outbox.admin().failed(&Filter::all(), 0, 10).await.unwrap();
    assert!(outbox.admin().discard(failed[0].id).await.unwrap());
    ledger.until_done(5).await;
    running.shutdown().await;

    let lines = LINES.load(SeqCst) - before;
    assert!(lines > 20, "nothing was received: {lines} lines");
    let failures = stage.signals.picked(failure);
    assert_eq!(failures.len(), 2);
    let alerts = ALERTS.lock().unwrap().clone();
    for parts in failures {
        let is_told = |line: &String| parts.iter().all(|part| line.contains(part));
        assert!(alerts.iter().any(is_told), "{parts:?} are in no line of {alerts:?}");
    }
    assert_eq!(SUNG.lock().unwrap().as_slice(), [] as [String; 0]);
    // A printed signal does not show a key either.
    let printed = format!("{:?}", stage.signals.all());
    assert!(printed.contains("RecordFailed") && !printed.contains(CANARY), "{printed}");
}
