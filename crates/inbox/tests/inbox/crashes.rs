//! A process that is killed while it consumes.

use std::{env, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    time::Instant,
};

use crate::{
    stage::Stage,
    target::{OnMariaDb, OnMySql, OnPostgres, OnSqlite, Target, on_each},
};

on_each! {
    a_consumer_killed_in_between_has_each_effect_once,
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

/// The process that is killed; in a run of the tests it does nothing.
#[tokio::test]
async fn worker() {
    let Ok(what) = env::var(WORKER) else { return };
    let (target, prefix) = what.split_once(' ').unwrap();
    match target {
        name if name.ends_with("OnPostgres") => consume::<OnPostgres>(prefix).await,
        name if name.ends_with("OnMariaDb") => consume::<OnMariaDb>(prefix).await,
        name if name.ends_with("OnMySql") => consume::<OnMySql>(prefix).await,
        _ => consume::<OnSqlite>(prefix).await,
    }
}

async fn a_consumer_killed_in_between_has_each_effect_once<T: Target>() {
    let Some(stage) = Stage::<T>::new().await else { return };
    let began = Instant::now();
    let mut kills = 0;
    loop {
        let mut worker = Command::new(env::current_exe().unwrap())
            .args(["--exact", "crashes::worker", "--nocapture"])
            .env(WORKER, format!("{} {}", std::any::type_name::<T>(), stage.prefix))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(worker.stderr.take().unwrap()).lines();
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
