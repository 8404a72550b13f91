//! `keylane failed` and `keylane dead-letters`, on records that a handler has refused.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    time::Duration,
};

use keylane::{
    HandlerError, Outbox, RawEvent, Record, RecordTypes, Registration, ScheduleOptions,
    admin::{Filter, Status},
    database::{Database, Pool},
    handler::GenericHandler,
    sqlx::{MySqlPool, PgPool, SqlitePool},
};
use serde_json::Value;

use crate::keylane::{File, on_mariadb, on_postgres};

/// Text in a record that a terminal must not be given.
const SLY: &str = "order-\u{1b}[2J\n7";

struct Refuses;

impl GenericHandler for Refuses {
    async fn handle(&self, _: &Record) -> Result<(), HandlerError> {
        Err(HandlerError::permanent("no such address").class("unknown-address"))
    }
}

/// Runs the command on this database.
fn keylane(url: &str, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keylane")).args(["--database-url", url]).args(words).output().unwrap()
}

fn said(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

/// What the command prints when it goes well.
fn printed(url: &str, words: &[&str]) -> String {
    let (success, out, err) = said(&keylane(url, words));
    assert!(success && err.is_empty(), "{words:?}: {out}{err}");
    out
}

/// What the command prints, and its error, when it does not go well.
fn refused(url: &str, words: &[&str]) -> (String, String) {
    let (success, out, err) = said(&keylane(url, words));
    assert!(!success, "{words:?}: {out}");
    (out, err)
}

fn lines(url: &str, words: &[&str]) -> Vec<Value> {
    let out = printed(url, &[words, &["--json"]].concat());
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn ids(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| line["id"].to_string()).collect()
}

/// Seven records fail for good in `mailer`, and the same events are dead letters of `bookkeeper`.
async fn seven_fail<P>(pool: P) -> Outbox<P::Database>
where
    P: Pool,
    P::Database: Database<Pool = P>,
{
    let mailer = Registration::generic("mailer", RecordTypes::all(), Refuses);
    let bookkeeper = Registration::generic("bookkeeper", RecordTypes::all(), Refuses).dead_letter_table();
    let outbox = Outbox::builder(pool).handlers([mailer, bookkeeper]).build().await.unwrap();
    outbox.migrate().await.unwrap();
    outbox.publish_handlers().await.unwrap();
    let keys = (1..7).map(|number| format!("order-{number}")).chain([SLY.to_owned()]);
    for key in keys {
        let payload = if key == SLY { vec![0, 255] } else { format!("{{\"of\":\"{key}\"}}").into_bytes() };
        let event = RawEvent::new("order.placed", key, payload);
        let options = ScheduleOptions::new().header("tenant", "north");
        outbox.transaction(async |tx| outbox.schedule_raw(tx, event, options).await).await.unwrap();
    }
    deliver(&outbox, 7, 7).await;
    outbox
}

/// Runs workers until so many records have failed and there are so many dead letters.
async fn deliver<DB: Database>(outbox: &Outbox<DB>, failed: u64, letters: usize) {
    let running = outbox.start().await.unwrap();
    let admin = outbox.admin();
    let arrived = async {
        loop {
            let counts = admin.counts().await.unwrap();
            let found = admin.dead_letters(&Filter::all(), 0, 100).await.unwrap().len();
            if (counts.of(Status::Failed), found, counts.of(Status::Pending)) == (failed, letters, 0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), arrived).await.expect("all have failed");
    running.shutdown().await;
}

async fn repairs<P>(url: &str, pool: P)
where
    P: Pool,
    P::Database: Database<Pool = P>,
{
    let outbox = seven_fail(pool).await;
    lists_are_filtered_and_read_page_by_page(url);
    nothing_is_changed_by_mistake(url);
    records_are_repaired(url);
    // Three were discarded, and those that were delivered again have failed again.
    deliver(&outbox, 4, 7).await;
    letters_are_repaired(url);
    // Those that are scheduled again are dead letters again, under new ids.
    deliver(&outbox, 4, 4).await;
    assert_eq!(printed(url, &["dead-letters", "discard", "--all", "--yes"]), "4 dead letters deleted\n");
    assert_eq!(printed(url, &["dead-letters", "list"]), "");
}

fn lists_are_filtered_and_read_page_by_page(url: &str) {
    for list in ["failed", "dead-letters"] {
        let all = lines(url, &[list, "list"]);
        assert_eq!(all.len(), 7, "{list}");
        let mut paged = Vec::new();
        let mut after = "0".to_owned();
        loop {
            let page = lines(url, &[list, "list", "--limit", "3", "--after", &after]);
            let Some(last) = page.last() else { break };
            after = last["id"].to_string();
            paged.extend(page);
        }
        assert_eq!(ids(&paged), ids(&all));
        let one = lines(url, &[list, "list", "--key", "order-2"]);
        let partition = one[0]["partition"].to_string();
        assert_eq!(
            (one.len(), &one[0]["key"], &one[0]["error"]),
            (1, &"order-2".into(), &"no such address".into())
        );
        assert!(one[0].get("payload").is_none() && one[0].get("headers").is_none(), "{one:?}");
        let of = |words: &[&str]| lines(url, &[&[list, "list"], words].concat()).len();
        assert_eq!(of(&["--key", "order-2", "--partition", &partition]), 1);
        assert_eq!((of(&["--handler", "nobody"]), of(&["--partition", &partition]) >= 1), (0, true));
        let shown = lines(url, &[list, "list", "--payload"]);
        assert_eq!(
            (&shown[0]["payload"], &shown[0]["headers"]["tenant"]),
            (&r#"{"of":"order-1"}"#.into(), &"north".into())
        );
        assert_eq!((&shown[6]["payload_base64"], &shown[6]["payload_bytes"]), (&"AP8=".into(), &2.into()));

        let text = printed(url, &[list, "list", "--limit", "2"]);
        let next = format!("there may be more: --after {}\n", all[1]["id"]);
        assert!(
            text.contains("key \"order-1\"") && text.ends_with(&next) && !text.contains("payload"),
            "{text}"
        );
        let text = printed(url, &[list, "list", "--payload"]);
        assert!(text.contains(r#"{"of":"order-1"}"#) && text.contains("base64 AP8="), "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains("there may be more"), "{text}");
    }
    assert_eq!(lines(url, &["dead-letters", "list"])[0]["error_class"], "unknown-address");
}

fn nothing_is_changed_by_mistake(url: &str) {
    for list in ["failed", "dead-letters"] {
        for action in ["retry", "discard"] {
            let (_, error) = refused(url, &[list, action]);
            assert_eq!(
                error,
                "keylane: nothing is selected: give ids, --handler, --key or --partition, or --all for all of them\n"
            );
            for words in [
                &["5", "--all"][..],
                &["5", "--key", "a"],
                &["--all", "--key", "a"],
                &["--limit", "0", "--all"],
            ] {
                refused(url, &[&[list, action], words].concat());
            }
        }
        let noun = if list == "failed" { "failed records" } else { "dead letters" };
        let (_, error) = refused(url, &[list, "discard", "--all"]);
        assert_eq!(error, format!("keylane: this would delete 7 {noun} for good: add --yes to do it\n"));
        let (_, error) = refused(url, &[list, "discard", "--all", "--limit", "2"]);
        assert!(error.contains("delete 2 "), "{error}");
        for (words, sentence) in [
            (["--limit", "1001"], "it must be 1 to 1000: read on from page to page with --after"),
            (["--limit", "0"], "it must be 1 to 1000"),
            (["--partition", "256"], "it must be a number from 0 to 255"),
            (["--after", "x"], "it must be a whole number, as `list` prints the ids"),
        ] {
            let (_, error) = refused(url, &[&[list, "list"][..], &words].concat());
            assert!(error.contains(sentence), "{error}");
        }
        assert_eq!(lines(url, &[list, "list"]).len(), 7);
    }
}

fn records_are_repaired(url: &str) {
    let all = ids(&lines(url, &["failed", "list"]));
    let (out, error) = refused(url, &["failed", "discard", &all[0], "999999"]);
    assert_eq!(out, "1 failed record deleted\n");
    assert_eq!(
        error,
        "keylane: 1 of 2 ids are not among the failed records: 999999; `list` shows those that are\n"
    );
    let some = ["failed", "discard", "--handler", "mailer", "--limit", "2", "--yes"];
    assert_eq!(printed(url, &some), "2 failed records deleted\n");
    assert_eq!(ids(&lines(url, &["failed", "list"])), all[3..]);
    assert_eq!(
        printed(url, &["failed", "retry", "--key", "order-5"]),
        "1 failed record to be delivered again\n"
    );
    let said = with_input(url, &["failed", "replace", &all[3], "--payload", "-"], b"{\"of\":\"nobody\"}");
    assert_eq!(said, "the record has its new payload and is delivered again\n");
    let (_, error) = refused(url, &["failed", "replace", &all[3], "--payload", "/nowhere"]);
    assert!(error.starts_with("keylane: the payload /nowhere cannot be read: "), "{error}");
    assert_eq!(printed(url, &["failed", "retry", "--all"]), "2 failed records to be delivered again\n");
    assert_eq!(printed(url, &["failed", "retry", "--all"]), "0 failed records to be delivered again\n");
}

fn letters_are_repaired(url: &str) {
    let again = lines(url, &["failed", "list", "--payload"]);
    assert_eq!((&again[0]["payload"], &again[0]["attempts"]), (&r#"{"of":"nobody"}"#.into(), &1.into()));
    let all = ids(&lines(url, &["dead-letters", "list"]));
    let (out, error) = refused(url, &["dead-letters", "retry", &all[6], &again[0]["id"].to_string()]);
    assert_eq!(out, "1 dead letter to be delivered again\n");
    assert!(error.contains("1 of 2 ids are not among the dead letters"), "{error}");
    assert_eq!(printed(url, &["dead-letters", "discard", &all[0]]), "1 dead letter deleted\n");
    let key = ["dead-letters", "discard", "--key", "order-2", "--yes"];
    assert_eq!(printed(url, &key), "1 dead letter deleted\n");
    let some = ["dead-letters", "retry", "--handler", "bookkeeper", "--limit", "2"];
    assert_eq!(printed(url, &some), "2 dead letters to be delivered again\n");
    assert_eq!(ids(&lines(url, &["dead-letters", "list"])), all[4..6]);
    let discard = ["dead-letters", "discard", &all[4]];
    assert_eq!(printed(url, &discard), "1 dead letter deleted\n");
    assert_eq!(printed(url, &["dead-letters", "retry", "--all"]), "1 dead letter to be delivered again\n");
}

/// What the command prints when it is given this on its standard input.
fn with_input(url: &str, words: &[&str], input: &[u8]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
    command.args(["--database-url", url]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let (success, out, _) = said(&child.wait_with_output().unwrap());
    assert!(success, "{out}");
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_failed_is_listed_and_repaired_on_postgres() {
    on_postgres("repair", async |url| {
        let pool = PgPool::connect(url).await.unwrap();
        repairs(url, pool.clone()).await;
        pool.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_failed_is_listed_and_repaired_on_mariadb() {
    on_mariadb("repair", async |url| repairs(url, MySqlPool::connect(url).await.unwrap()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_failed_is_listed_and_repaired_on_sqlite() {
    let file = File::new("repair");
    repairs(&file.url(), SqlitePool::connect(&file.url()).await.unwrap()).await;
}
