//! `keylane bench`: what it prints, and that it leaves nothing behind.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output},
};

use serde_json::Value;
use sqlx::{Connection, MySqlConnection, PgConnection, SqliteConnection};

/// Everything in a PostgreSQL schema whose name has the prefix.
const LEFT_IN_POSTGRES: &str = r"
    SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'keylane\_bench\_%')
         + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'keylane\_bench\_%')";
const LEFT_IN_MYSQL: &str = r"
    SELECT COUNT(*) FROM information_schema.tables
    WHERE table_schema = DATABASE() AND table_name LIKE 'keylane\_bench\_%'";
const LEFT_IN_SQLITE: &str =
    r"SELECT COUNT(*) FROM sqlite_schema WHERE name LIKE 'keylane\_bench\_%' ESCAPE '\'";

/// An address out of the environment: missing is a failure, never a skip.
fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

/// A database file of a test's own, taken away in the end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let folder = env::temp_dir().join(format!("keylane-command-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.0.join("bench.sqlite").display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn drain(url: &str, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
    command.args(["bench", "drain", "--database-url", url, "--runs", "1", "--format", "json"]);
    command.args(options).output().unwrap()
}

/// The lines of a drain that went well.
fn figures(url: &str, options: &[&str]) -> Vec<Value> {
    let output = drain(url, options);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(err, "", "no progress bar without a terminal");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Each of these references has its rate beside the library's.
fn has_ratios(lines: &[Value], references: &[&str]) {
    for reference in references {
        let subject = format!("library / {reference}");
        let is_it = |line: &&Value| line["subject"] == *subject && line["name"] == "rate";
        let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("no rate of {subject} in {lines:#?}"));
        assert_eq!((&line["unit"], &line["runs"]), (&"ratio".into(), &1.into()), "{line}");
        let [value, min, max] = ["value", "min", "max"].map(|name| line[name].as_f64().unwrap());
        assert!(value > 0.0 && min == value && max == value, "{line}");
    }
}

async fn left_in_sqlite(file: &File) -> i64 {
    let mut conn = SqliteConnection::connect(&file.url()).await.unwrap();
    sqlx::query_scalar(LEFT_IN_SQLITE).fetch_one(&mut conn).await.unwrap()
}

#[tokio::test]
async fn drains_postgres_with_every_reference() {
    let url = url("KEYLANE_TEST_POSTGRES_URL");
    has_ratios(&figures(&url, &["--records", "2000"]), &["loop", "best", "naive1", "naive8"]);
    let transactional = ["--records", "200", "--keys", "20", "--handler-form", "transactional"];
    has_ratios(&figures(&url, &transactional), &["loop"]);
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let left: i64 = sqlx::query_scalar(LEFT_IN_POSTGRES).fetch_one(&mut conn).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn drains_mariadb_with_every_reference() {
    let url = url("KEYLANE_TEST_MARIADB_URL");
    has_ratios(&figures(&url, &["--records", "2000"]), &["loop", "best", "naive1", "naive8"]);
    let mut conn = MySqlConnection::connect(&url).await.unwrap();
    let left: i64 = sqlx::query_scalar(LEFT_IN_MYSQL).fetch_one(&mut conn).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn drains_sqlite_with_every_reference_and_draws_it() {
    let file = File::new("drain");
    let plot = file.0.join("drain.svg");
    let options = ["--records", "2000", "--handler-form", "batch", "--plot", plot.to_str().unwrap()];
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
