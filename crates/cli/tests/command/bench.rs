//! `keylane bench drain`: what it prints, and that it leaves nothing behind.

use std::{fs, process::Output};

use serde_json::Value;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

use super::keylane::{File, bench, figure, figures, url};

/// Everything in a PostgreSQL schema whose name has the prefix.
const LEFT_IN_POSTGRES: &str = r"
    SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'keylane\_bench\_%')
         + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'keylane\_bench\_%')";
const LEFT_IN_MYSQL: &str = r"
    SELECT COUNT(*) FROM information_schema.tables
    WHERE table_schema = DATABASE() AND table_name LIKE 'keylane\_bench\_%'";
const LEFT_IN_SQLITE: &str =
    r"SELECT COUNT(*) FROM sqlite_schema WHERE name LIKE 'keylane\_bench\_%' ESCAPE '\'";

fn drain(url: &str, options: &[&str]) -> Output {
    bench(url, &[&["drain", "--runs", "1", "--format", "json"], options].concat())
}

/// Each of these references has its rate beside the library's.
fn has_ratios(lines: &[Value], references: &[&str]) {
    for reference in references {
        assert!(figure(lines, &format!("library / {reference}"), "rate") > 0.0);
    }
}

async fn left_in_sqlite(file: &File) -> i64 {
    let mut conn = SqliteConnection::connect(&file.url()).await.unwrap();
    sqlx::query_scalar(LEFT_IN_SQLITE).fetch_one(&mut conn).await.unwrap()
}

#[tokio::test]
async fn drains_postgres_with_every_reference() {
    let url = url("KEYLANE_TEST_POSTGRES_URL");
    has_ratios(&figures(&url, &["drain", "--records", "2000"]), &["loop", "best", "naive1", "naive8"]);
    for form in ["transactional", "transactional-batch"] {
        let transactional = ["drain", "--records", "200", "--keys", "20", "--handler-form", form];
        has_ratios(&figures(&url, &transactional), &["loop"]);
    }
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let left: i64 = sqlx::query_scalar(LEFT_IN_POSTGRES).fetch_one(&mut conn).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn drains_mariadb_with_every_reference() {
    let url = url("KEYLANE_TEST_MARIADB_URL");
    has_ratios(&figures(&url, &["drain", "--records", "2000"]), &["loop", "best", "naive1", "naive8"]);
    let mut conn = MySqlConnection::connect(&url).await.unwrap();
    let left: i64 = sqlx::query_scalar(LEFT_IN_MYSQL).fetch_one(&mut conn).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn drains_sqlite_with_every_reference_and_draws_it() {
    let file = File::new("drain");
    let plot = file.0.join("drain.svg");
    let options = ["drain", "--records", "2000", "--handler-form", "batch", "--plot", plot.to_str().unwrap()];
    has_ratios(&figures(&file.url(), &options), &["loop", "best", "naive1"]);
    let drawn = fs::read_to_string(plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("naive1"), "{drawn}");
    assert_eq!(left_in_sqlite(&file).await, 0);
}

#[tokio::test]
async fn leaves_nothing_behind_after_an_error() {
    let file = File::new("error");
    let output = drain(&file.url(), &["--records", "10", "--batch", "0"]);
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("delivery.batch_size is 0"), "{err}");
    assert_eq!(left_in_sqlite(&file).await, 0);
}
