//! The table of dead letters behind a handler, as a service uses it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use keylane::{HandlerError, Signal, admin::Filter, memory::Fault};

use crate::{
    ledger::{Ledger, run_of},
    recorder::bounded,
    retrying::failing,
    stage::{Stage, until_empty},
    target::MemoryTarget,
    user::User,
};

fn refused() -> HandlerError {
    HandlerError::permanent("the bank has no such account").class("unknown-account")
}

pub(crate) async fn what_fails_goes_to_the_table_and_its_key_goes_on<T: User>(stage: &Stage<T>) {
    let (ledger, has_failed) = (Ledger::default(), AtomicBool::new(false));
    let handler = ledger.handler("bookkeeper", move |event, _| match event.number {
        2 if !has_failed.swap(true, Relaxed) => Err(refused()),
        _ => Ok(()),
    });
    let (outbox, running) = stage.run([handler.dead_letter_table()]).await;
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    until_empty(&outbox).await;
    assert_eq!(ledger.done_of("order-1"), [1, 3]);

    let admin = outbox.admin();
    let letters = admin.dead_letters(&Filter::all(), 0, 100).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.lane.key.as_str(), letter.target.as_str()), ("order-1", "bookkeeper"));
    assert_eq!((letter.error.as_str(), letter.attempts), ("the bank has no such account", 1));
    assert_eq!(
        (letter.error_class.as_deref(), letter.error_kind.as_str()),
        (Some("unknown-account"), "error")
    );
    let shown = format!("{letter:?}");
    assert!(!shown.contains("bank") && !shown.contains("order-1"), "{shown}");

    assert!(!admin.discard_dead_letter(letter.id + 1).await.unwrap(), "there is none of that record");
    let step = admin.retry_dead_letters(&Filter::all(), 0).await.unwrap();
    assert_eq!((step.changed, step.next), (1, None));
    assert!(!admin.retry_dead_letter(letter.id).await.unwrap(), "it is a record again");
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(stage.signals.count(|signal| matches!(signal, Signal::RecordFailed { .. })), 0);
    assert_eq!(ledger.done_of("order-1"), [1, 3, 2], "the handler takes it now");
    assert!(admin.dead_letters(&Filter::all(), 0, 100).await.unwrap().is_empty());
    assert_eq!(admin.discard_dead_letters(&Filter::all(), 0).await.unwrap().changed, 0);
}

#[tokio::test(start_paused = true)]
async fn memory_a_table_that_cannot_be_written_costs_no_attempt() {
    let stage = Stage::<MemoryTarget>::open().await.unwrap();
    stage.pool.fail_next("copy to dead letters", 3, Fault::NotApplied);
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([failing(&ledger, 1, u32::MAX, refused).dead_letter_table()]).await;
    stage.schedule(&outbox, &run_of("order-1", 2)).await;
    let waits = |signal: &Signal| matches!(signal, Signal::TargetUnavailable { .. });
    bounded("the letter", until_empty(&outbox)).await;
    running.shutdown().await;
    assert_eq!(stage.signals.count(waits), 3);
    let letters = outbox.admin().dead_letters(&Filter::all(), 0, 100).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.attempts).collect::<Vec<_>>(), [1]);
    assert_eq!(ledger.done_of("order-1"), [2]);
}
