//! The command as it is run by a test, on a database that no other test uses.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};

/// An address out of the environment: missing is a failure, never a skip.
pub(crate) fn url(variable: &str) -> String {
    env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `eval \"$(dev/services env)\"` first"))
}

/// Runs `keylane bench` with these words.
pub(crate) fn bench(url: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
    command.args(["--database-url", url, "bench"]).args(words).output().unwrap()
}

/// The lines of JSON of a run that went well.
pub(crate) fn lines(url: &str, words: &[&str]) -> Vec<Value> {
    let output = bench(url, words);
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert_eq!(err, "", "no progress bar without a terminal");
    out.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// The figures of a measurement that is run once.
pub(crate) fn figures(url: &str, words: &[&str]) -> Vec<Value> {
    lines(url, &[words, &["--runs", "1", "--format", "json"]].concat())
}

/// One of the figures.
pub(crate) fn figure(lines: &[Value], subject: &str, name: &str) -> f64 {
    let is_it = |line: &&Value| line["subject"] == *subject && line["name"] == *name;
    let line = lines.iter().find(is_it).unwrap_or_else(|| panic!("no {name} of {subject} in {lines:#?}"));
    let [value, min, max] = ["value", "min", "max"].map(|name| line[name].as_f64().unwrap());
    assert!(line["runs"] == 1 && min == value && max == value, "{line}");
    value
}

/// A PostgreSQL database of a test's own.
pub(crate) async fn on_postgres(name: &str, test: impl AsyncFnOnce(&str)) {
    let server = url("KEYLANE_TEST_POSTGRES_URL");
    let name = format!("keylane_command_{name}");
    let mut conn = PgConnection::connect(&server).await.unwrap();
    let mut execute = async |sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    };
    // That of a run that was killed.
    execute(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    execute(format!("CREATE DATABASE {name}")).await;
    let (host, _) = server.rsplit_once('/').unwrap();
    test(&format!("{host}/{name}")).await;
    execute(format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

/// A MariaDB database of a test's own.
pub(crate) async fn on_mariadb(name: &str, test: impl AsyncFnOnce(&str)) {
    on_server(&url("KEYLANE_TEST_MARIADB_URL"), name, test).await;
}

/// A MySQL database of a test's own. Where MySQL cannot be had, it says so.
pub(crate) async fn on_mysql(name: &str, test: impl AsyncFnOnce(&str)) {
    match env::var("KEYLANE_TEST_MYSQL_SKIP") {
        Ok(reason) => eprintln!("MySQL is skipped: {reason}"),
        Err(_) => on_server(&url("KEYLANE_TEST_MYSQL_URL"), name, test).await,
    }
}

async fn on_server(server: &str, name: &str, test: impl AsyncFnOnce(&str)) {
    let name = format!("keylane_command_{name}");
    let mut conn = MySqlConnection::connect(server).await.unwrap();
    let mut execute = async |sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    };
    // That of a run that was killed.
    execute(format!("DROP DATABASE IF EXISTS {name}")).await;
    execute(format!("CREATE DATABASE {name}")).await;
    let (host, _) = server.rsplit_once('/').unwrap();
    test(&format!("{host}/{name}")).await;
    execute(format!("DROP DATABASE {name}")).await;
}

/// Two tests that choose the same name have two folders.
static FILES: AtomicU32 = AtomicU32::new(0);

/// A database file of a test's own, taken away in the end.
pub(crate) struct File(pub(crate) PathBuf);

impl File {
    pub(crate) fn new(name: &str) -> Self {
        let number = FILES.fetch_add(1, Relaxed);
        let folder = env::temp_dir().join(format!("keylane-command-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite://{}?mode=rwc", self.0.join("bench.sqlite").display())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
