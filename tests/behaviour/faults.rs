//! A database that fails on demand: the store in memory, on a paused clock.

use std::time::Duration;

use keylane::{
    Delivery, HandlerError, Registration, RetryPolicy, Signal, TransactionError, TransactionalHandler,
    admin::Status,
    memory::{Fault, Memory, MemoryConnection},
};
use tokio::time::{Instant, sleep};

use crate::{
    leases::{Paused, s},
    ledger::{Ledger, Placed, Step, dealt, placed, run_of},
    retrying::{failing, refused},
    stage::{until_count, until_empty},
};

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_settle_delivers_nothing_twice() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    stage.pool.fail_next("settle", 3, Fault::LostReply);
    stage.pool.fail_next("resolve", 2, Fault::LostReply);
    stage.schedule(&outbox, &dealt(5, 20)).await;
    ledger.until_done(100).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 100);
    let applied = |signal: &Signal| matches!(signal, Signal::LostReplyResolved { applied: true });
    assert!(stage.signals.count(applied) >= 1);
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_was_not_written_is_written_again() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([failing(&ledger, 3, 1, refused)]).await;
    stage.pool.fail_next("settle", 4, Fault::NotApplied);
    stage.pool.fail_next("resolve", 3, Fault::NotApplied);
    stage.schedule(&outbox, &run_of("order-1", 6)).await;
    ledger.until_done(6).await;
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(ledger.assert_in_order(), 6);
    let lost = |signal: &Signal| matches!(signal, Signal::LostReplyResolved { applied: false });
    assert_eq!(stage.signals.count(lost), 4);
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_around_a_failure_keeps_the_order() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([failing(&ledger, 2, 2, refused)]).await;
    for _ in 0..6 {
        stage.pool.fail_next("settle", 1, Fault::LostReply);
        stage.pool.fail_next("settle", 1, Fault::NotApplied);
    }
    for number in 1..=8 {
        stage.schedule(&outbox, &[placed("order-1", number)]).await;
        sleep(Duration::from_millis(15)).await;
    }
    ledger.until_done(8).await;
    until_empty(&outbox).await;
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 8);
}

#[tokio::test(start_paused = true)]
async fn fetches_that_fail_are_told_and_tried_again() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([ledger.keeper("bookkeeper")]).await;
    for call in ["fetch by partition", "fetch due", "stops"] {
        stage.pool.fail_next(call, 10, Fault::NotApplied);
    }
    stage.schedule(&outbox, &run_of("order-1", 3)).await;
    ledger.until_done(3).await;
    until_empty(&outbox).await;
    for wanted in ["fetch by partition", "fetch due"] {
        let told = |signal: &Signal| match signal {
            Signal::StoreFailed { call, error } if *call == wanted => Some(error.clone()),
            _ => None,
        };
        let error = stage.signals.first(wanted, told).await;
        assert!(error.contains("as the test asked"), "{error}");
    }
    running.shutdown().await;
    assert_eq!(ledger.assert_in_order(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_says_what_it_does_not_know() {
    let stage = Paused::new();
    let outbox = stage.outbox([Ledger::default().keeper("bookkeeper")]).await;
    stage.pool.fail_next("begin", 1, Fault::NotApplied);
    let work = async |tx: &mut MemoryConnection| outbox.schedule(tx, &placed("order-1", 1)).await;
    let error = outbox.transaction(work).await.unwrap_err();
    assert!(matches!(error, TransactionError::Begin(_)), "{error:?}");
    for (fault, records) in [(Fault::NotApplied, 0), (Fault::LostReply, 1)] {
        stage.pool.fail_next("commit", 1, fault);
        let error = outbox.transaction(work).await.unwrap_err();
        assert!(matches!(error, TransactionError::Commit(_)), "{error:?}");
        let told = error.to_string();
        assert!(told.starts_with("whether the commit happened is not known: commit failed: "), "{told}");
        until_count(&outbox, Status::Pending, records).await;
    }
}

/// Writes an effect and succeeds.
struct Book(Ledger);

impl TransactionalHandler<Memory> for Book {
    type Event = Placed;

    async fn handle(
        &self,
        event: Placed,
        tx: &mut MemoryConnection,
        delivery: &Delivery,
    ) -> Result<(), HandlerError> {
        self.0.push(Step::Began, &event, delivery);
        tx.push_effect(event.number.to_string());
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_handlers_commit_leaves_one_effect() {
    let stage = Paused::new();
    let ledger = Ledger::default();
    let (outbox, running) = stage.run([Registration::transactional("books", Book(ledger.clone()))]).await;
    stage.schedule(&outbox, &run_of("order-1", 6)).await;
    // The event is scheduled first, so that the faults are the handler's own.
    stage.pool.fail_next("commit", 1, Fault::LostReply);
    stage.pool.fail_next("commit", 2, Fault::NotApplied);
    stage.pool.fail_next("complete", 2, Fault::NotApplied);
    stage.pool.fail_next("begin", 2, Fault::NotApplied);
    until_empty(&outbox).await;
    assert!(running.shutdown().await.graceful);
    assert_eq!(stage.pool.effects(), ["1", "2", "3", "4", "5", "6"]);
    assert!(ledger.all().iter().all(|entry| entry.delivery.attempt == 1), "an attempt was burned");
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_retries_takes_no_time() {
    let mut stage = Paused::new();
    stage.config.delivery.poll_interval = s(10);
    stage.config.cluster.heartbeat_interval = s(60);
    stage.config.cluster.stale_instance_timeout = s(600);
    stage.config.cluster.rebalance_interval = s(60);
    let ledger = Ledger::default();
    let policy = RetryPolicy::fixed(s(1800)).max_delay(s(3600)).max_retries(2);
    let (outbox, running) = stage.run([failing(&ledger, 1, 2, refused).retry(policy)]).await;
    let since = Instant::now();
    let mut tx = stage.pool.begin().await.unwrap();
    outbox.schedule_after(&mut tx, &placed("order-2", 2), s(4200)).await.unwrap();
    tx.commit().await.unwrap();
    stage.schedule(&outbox, &[placed("order-1", 1)]).await;
    // The limit of a wait is on the same clock, so this wait goes in steps that are shorter than those of the
    // polls.
    let until = async |key: &str, longest: Duration| {
        while ledger.done_of(key).is_empty() && since.elapsed() < longest {
            sleep(s(1)).await;
        }
        since.elapsed()
    };
    let took = until("order-1", s(4000)).await;
    assert!((s(3600)..s(3620)).contains(&took), "{took:?}");
    let took = until("order-2", s(5000)).await;
    assert!((s(4200)..s(4220)).contains(&took), "{took:?}");
    running.shutdown().await;
}
