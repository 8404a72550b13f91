//! Two connections at the fence, statement by statement (`distributed.md` 3.1): a settle in an open
//! transaction makes the evictor wait, and an open eviction makes the settle wait. A fence row that is only
//! read does neither: a case shows this, too, to prove that the other cases can fail.

use std::{sync::Arc, time::Duration};

use keylane::{
    Completed, RecordId,
    inner::{Change, SettleError, Store, StoreSettings},
};

use crate::{
    outbox::{Outbox, Worker, assert_waits, promptly, settlement, stop},
    target::{Server, Tx},
};

/// A statement of the library with its parameters in the text.
fn with_values(statement: &str, worker: &Worker, id: RecordId) -> String {
    let lines: Vec<&str> = statement.lines().filter(|line| !line.starts_with("--")).collect();
    let (instance, counter) = (format!("'{}'", worker.id), worker.counter.to_string());
    let server = worker.server.0.to_string();
    let statement = lines.join("\n").replace("{ids}", &id.to_string());
    match statement.contains("fence") {
        true => statement
            .replace("$1", &instance)
            .replace("$2", "0")
            .replace("$3", &counter)
            .replace("$4", &server)
            .replace("$5", &format!("'{{{id}}}'"))
            .replace("$6", "0")
            .replace("{server}", &format!("{server}::int8"))
            .replacen('?', &instance, 1)
            .replacen('?', "0", 1)
            .replacen('?', &counter, 1)
            .replacen('?', &server, 1),
        false => statement.replace("{attempts}", "0"),
    }
}

/// Begins a transaction as workers do and runs the statements of a settle in it.
async fn open_settle<T: Server>(outbox: &Outbox<T>, worker: &Worker, id: RecordId) -> Tx<T> {
    let mut tx = begin(outbox).await;
    let named = outbox.store.statements();
    for statement in T::SETTLE {
        let rendered = named.iter().find(|(name, _)| name == statement);
        let statement = rendered.map_or(*statement, |(_, sql)| sql);
        run(outbox, &mut tx, &with_values(statement, worker, id)).await;
    }
    tx
}

async fn begin<T: Server>(outbox: &Outbox<T>) -> Tx<T> {
    let mut tx = outbox.begin().await;
    T::execute(&mut tx, T::BEGIN_AGAIN.to_owned()).await.unwrap();
    tx
}

async fn run<T: Server>(outbox: &Outbox<T>, tx: &mut Tx<T>, sql: &str) -> u64 {
    T::execute(tx, outbox.sql(sql)).await.unwrap()
}

/// Another process, whose calls wait for at most a second.
fn impatient<T: Server>(outbox: &Outbox<T>) -> Arc<dyn Store> {
    let call_timeout = Duration::from_secs(1);
    outbox.store_with(StoreSettings { call_timeout, ..outbox.settings(Completed::Delete) })
}

async fn one<T: Server>(outbox: &Outbox<T>) -> (Worker, RecordId) {
    (outbox.join().await, outbox.schedule_keys(&["order-1"]).await[0])
}

pub(crate) async fn an_open_settle_makes_the_evictor_wait<T: Server>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let rows = outbox.fence_rows().await;
    let settle = open_settle(outbox, &worker, id).await;
    assert!(impatient(outbox).evict(worker.id, Some(0)).await.is_err(), "the evictor came through");
    let mut evict = Box::pin(outbox.store.evict(worker.id, Some(0)));
    assert_waits(&mut evict).await;
    assert_eq!(outbox.pending().await.len(), 1, "nobody may see the open settle");
    outbox.commit(settle).await;
    assert!(promptly(evict).await.unwrap());
    assert!(outbox.pending().await.is_empty(), "what was written before the eviction counts");
    assert_eq!(outbox.fence_rows().await, rows);
}

pub(crate) async fn an_open_settle_that_rolls_back_is_refused_afterwards<T: Server>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let settle = open_settle(outbox, &worker, id).await;
    let mut evict = Box::pin(outbox.store.evict(worker.id, Some(0)));
    assert_waits(&mut evict).await;
    drop(settle);
    assert!(promptly(evict).await.unwrap());
    let late = outbox.store.settle(worker.fence(), &[settlement((id, 0, Change::Complete))]).await;
    assert!(matches!(late, Err(SettleError::Fenced)), "{late:?}");
    assert_eq!(outbox.pending().await.len(), 1);
}

/// The transaction of the evictor is open when the settle comes.
async fn an_open_eviction_holds_back<T: Server>(outbox: &Outbox<T>, change: Change) {
    let (worker, id) = one(outbox).await;
    let rows = outbox.fence_rows().await;
    let mut evictor = begin(outbox).await;
    let (is, me) = ("'ACTIVE', 'DRAINING'", worker.id);
    let dead = format!(
        "UPDATE {{outbox}}instance SET state = 'DEAD' WHERE instance_id = '{me}' AND state IN ({is})"
    );
    assert_eq!(run(outbox, &mut evictor, &dead).await, 1);
    let close = format!("UPDATE {{outbox}}fence SET counter = -1 WHERE instance_id = '{me}'");
    assert_eq!(run(outbox, &mut evictor, &close).await, 2);
    let late = [settlement((id, 0, change))];
    let mut settle = Box::pin(worker.store.settle(worker.fence(), &late));
    assert_waits(&mut settle).await;
    outbox.commit(evictor).await;
    let refused = promptly(settle).await;
    assert!(matches!(refused, Err(SettleError::Fenced)), "{refused:?}");
    assert_eq!(outbox.pending_ids("order-1").await, [id]);
    assert!(outbox.stops().await.is_empty());
    assert_eq!(outbox.fence_rows().await, rows);
}

pub(crate) async fn an_open_eviction_makes_a_completion_wait_and_refuses_it<T: Server>(outbox: &Outbox<T>) {
    an_open_eviction_holds_back(outbox, Change::Complete).await;
}

pub(crate) async fn an_open_eviction_makes_a_failure_wait_and_refuses_it<T: Server>(outbox: &Outbox<T>) {
    an_open_eviction_holds_back(outbox, stop()).await;
}

pub(crate) async fn an_eviction_that_rolls_back_lets_the_settle_through<T: Server>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let mut evictor = begin(outbox).await;
    let close = format!("UPDATE {{outbox}}fence SET counter = -1 WHERE instance_id = '{}'", worker.id);
    run(outbox, &mut evictor, &close).await;
    let done = [settlement((id, 0, Change::Complete))];
    let mut settle = Box::pin(worker.store.settle(worker.fence(), &done));
    assert_waits(&mut settle).await;
    drop(evictor);
    assert_eq!(promptly(settle).await.unwrap().applied, 1);
}

/// The naive form. If this case fails, the engine also locks fence rows that are only read, and the cases
/// above prove less than they seem to.
pub(crate) async fn a_fence_row_that_is_only_read_leaks<T: Server>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let rows = outbox.fence_rows().await;
    let mut naive = begin(outbox).await;
    // InnoDB locks what the subquery of a DELETE reads, but not that of an UPDATE.
    let complete = format!(
        "UPDATE {{outbox}}record SET status = 1 WHERE id = {id} AND EXISTS \
         (SELECT 1 FROM {{outbox}}fence WHERE instance_id = '{}' AND slot = 0 AND counter = 0)",
        worker.id
    );
    assert_eq!(run(outbox, &mut naive, &complete).await, 1);
    assert!(promptly(outbox.store.evict(worker.id, Some(0))).await.unwrap(), "EXISTS holds nobody back");
    // The next owner may see the record now and handle it. The naive completion is written nevertheless.
    assert_eq!(outbox.pending_ids("order-1").await, [id]);
    outbox.commit(naive).await;
    assert!(outbox.pending().await.is_empty(), "the completion of an evicted instance was written");
    assert_eq!(outbox.fence_rows().await, rows);
}

/// MySQL 9.7 deletes fence rows along with the records if the fence row is locked inside the DELETE
/// (`distributed.md` 4). The settles of the library must leave all fence rows, whatever they write.
pub(crate) async fn no_settle_takes_a_fence_row_along<T: Server>(outbox: &Outbox<T>) {
    let (mut worker, _) = (outbox.join().await, outbox.join().await);
    for completed in [Completed::Delete, Completed::Archive, Completed::Keep] {
        worker = worker.over(outbox.store_that(completed));
        let ids = outbox.schedule_keys(&["order-1", "order-2", "order-3", "order-4"]).await;
        let error = "spent".to_owned();
        let fail = Change::Fail { counted: true, error, lane: keylane::OnFailure::Block };
        worker.settle([(ids[0], 0, Change::Complete)]).await;
        worker.settle([(ids[1], 0, Change::CompleteAndResume)]).await;
        worker.settle([(ids[2], 0, stop()), (ids[3], 0, fail)]).await;
        assert_eq!(outbox.fence_rows().await, (4, 2), "{completed:?}");
    }
    outbox.store.evict(worker.id, None).await.unwrap();
    assert_eq!(outbox.fence_rows().await, (4, 2));
}

/// A settle still runs on the server when its worker resolves it: the resolution waits for the settle.
pub(crate) async fn resolve_waits_for_a_settle_that_still_runs<T: Server>(outbox: &Outbox<T>) {
    let (worker, id) = one(outbox).await;
    let settle = open_settle(outbox, &worker, id).await;
    let mut resolve = Box::pin(outbox.store.resolve(worker.fence()));
    assert_waits(&mut resolve).await;
    outbox.commit(settle).await;
    assert_eq!(promptly(resolve).await.unwrap(), keylane::inner::Resolution::Applied);
}

/// Two settles at one lane: one holds a record behind it while the other, of another process, releases it.
pub(crate) async fn a_hold_and_a_release_of_its_lane_do_not_pass_each_other<T: Server>(outbox: &Outbox<T>) {
    let ids = outbox.schedule_keys(&["order-1", "order-1"]).await;
    let mut worker = outbox.join().await;
    let error = "spent".to_owned();
    let block = Change::Fail { counted: true, error, lane: keylane::OnFailure::Block };
    worker.settle([(ids[0], 0, block)]).await;
    let mut releasing = begin(outbox).await;
    run(outbox, &mut releasing, &format!("DELETE FROM {{outbox}}lane WHERE record_id = {}", ids[0])).await;
    let hold = [settlement((ids[1], 0, Change::Hold { behind: ids[0] }))];
    let mut holding = Box::pin(worker.store.settle(worker.fence(), &hold));
    assert_waits(&mut holding).await;
    outbox.commit(releasing).await;
    assert_eq!(promptly(holding).await.unwrap().held, 0, "the lane is gone: the record stays pending");
    assert_eq!(outbox.pending_ids("order-1").await, [ids[1]]);
}
