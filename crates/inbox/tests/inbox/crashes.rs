//! A process that is killed while it consumes, or while it holds a claim.

use std::{convert::Infallible, env, future::pending, process::Stdio, time::Duration};

use keylane_inbox::{InboxBuilder, Once, OnceError, ProcessError};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, Command},
    time::Instant,
};

use crate::{
    stage::Stage,
    target::{OnMariaDb, OnMySql, OnPostgres, OnSqlite, PATIENCE, Target, on_each},
};

on_each! {
    a_consumer_killed_in_between_has_each_effect_once,
    the_claim_of_a_killed_process_goes_to_another_after_its_lease,
}

const MESSAGES: usize = 48;
/// Tells a process of this test binary what it is.
const WORKER: &str = "KEYLANE_INBOX_TEST_WORKER";

/// Consumes each message three times, and says so after each.
async fn consume<T: Target>(prefix: &str) {
    let stage = Stage::<T>::at(prefix.to_owned(), "READ COMMITTED", |builder| builder).await.unwrap();
    for number in 0..MESSAGES {
        let id = format!("event-{number}");
        for _ in 0..3 {
            loop {
                match stage.inbox.run(&id, "group", async |tx| stage.affect(tx, &id).await).await {
                    Ok(_) => break,
                    Err(error) if error.is_retryable() => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        eprintln!("consumed {number}");
    }
    eprintln!("all");
}

/// The lease of a claim that nobody ends.
const LEASE: Duration = Duration::from_secs(3);

async fn with_lease<T: Target>(prefix: &str, owner: &str) -> Option<Stage<T>> {
    let settings = |builder: InboxBuilder<T::Db>| builder.lease(LEASE).owner(owner);
    Stage::<T>::at(prefix.to_owned(), "READ COMMITTED", settings).await
}

/// Claims a message, says so, and has no effect.
async fn hold<T: Target>(prefix: &str) {
    let stage = with_lease::<T>(prefix, "killed").await.unwrap();
    let held = stage.inbox.process("event", "group", async || {
        eprintln!("claimed");
        pending::<Result<(), Infallible>>().await
    });
    panic!("{:?}", held.await);
}

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    let [work, target, prefix] = what.split(' ').collect::<Vec<_>>()[..] else { panic!("{what}") };
    match target {
        name if name.ends_with("OnPostgres") => works::<OnPostgres>(work, prefix).await,
        name if name.ends_with("OnMariaDb") => works::<OnMariaDb>(work, prefix).await,
        name if name.ends_with("OnMySql") => works::<OnMySql>(work, prefix).await,
        _ => works::<OnSqlite>(work, prefix).await,
    }
}

async fn works<T: Target>(work: &str, prefix: &str) {
    match work {
        "consume" => consume::<T>(prefix).await,
        _ => hold::<T>(prefix).await,
    }
}

/// Starts a worker. Returns what it says.
fn start<T: Target>(work: &str, prefix: &str) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut worker = Command::new(env::current_exe().unwrap())
        .args(["--exact", "crashes::worker", "--nocapture"])
        .env(WORKER, format!("{work} {} {prefix}", std::any::type_name::<T>()))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(worker.stderr.take().unwrap()).lines();
    (worker, lines)
}

async fn a_consumer_killed_in_between_has_each_effect_once<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let began = Instant::now();
    let mut kills = 0;
    loop {
        let (mut worker, mut lines) = start::<T>("consume", &stage.prefix);
        let mut consumed = 0;
        let all = loop {
            let line = lines.next_line().await.unwrap().expect("the worker ends with a word");
            consumed += usize::from(line.starts_with("consumed"));
            // In the middle of whatever comes after that line.
            if line == "all" || (kills < 3 && consumed > 10 * (kills + 1)) {
                break line == "all";
            }
        };
        worker.kill().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        if all {
            break;
        }
        kills += 1;
    }
    assert_eq!(kills, 3);
    for number in 0..MESSAGES {
        assert_eq!(stage.effects_of(&format!("event-{number}")).await, 1, "{number}");
    }
    assert_eq!(stage.messages("status = 'SUCCESS'").await, MESSAGES as i64);
    stage.end().await;
}

async fn the_claim_of_a_killed_process_goes_to_another_after_its_lease<T: Target>() {
    let Some(first) = Stage::<T>::new().await else { return };
    let stage = with_lease::<T>(&first.prefix, "next").await.unwrap();
    let (mut worker, mut lines) = start::<T>("hold", &stage.prefix);
    while lines.next_line().await.unwrap().expect("the worker claims the message") != "claimed" {}
    worker.kill().await.unwrap();
    let killed = Instant::now();
    let mut refusals = 0;
    loop {
        let work = async || stage.affect(&mut *stage.inbox.pool().acquire().await?, "event").await;
        match stage.inbox.process("event", "group", work).await {
            Ok(done) => break assert_eq!(done, Once::Done(())),
            Err(ProcessError::Once(OnceError::InProgress { owner, left, .. })) => {
                assert!(owner == "killed" && left <= LEASE, "{owner} for {left:?}");
                refusals += 1;
                tokio::time::sleep(left).await;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(killed.elapsed() < PATIENCE, "the claim outlives its lease");
    }
    assert!(refusals > 0, "the claim ended with its process");
    assert_eq!(stage.effects_of("event").await, 1);
    assert_eq!(stage.messages("status = 'SUCCESS' AND attempts = 2 AND owner = 'next'").await, 1);
    stage.end().await;
}
