//! What `keylane migrate --print` and `keylane grants` print is what the library gives, and works on a server.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use keylane::{
    Outbox,
    admin::Rights,
    sqlx::{MySqlPool, PgPool, Postgres, SqlitePool},
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use crate::keylane::{File, on_mariadb, on_postgres};

const ROLES: [(&str, Rights); 3] =
    [("producer", Rights::Producer), ("worker", Rights::Worker), ("admin", Rights::Admin)];

/// Runs the command with these words and no address from the environment.
fn keylane(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_keylane")).args(words).env_remove("DATABASE_URL").output().unwrap()
}

/// What the command prints when it goes well.
fn printed(words: &[&str]) -> String {
    let done = keylane(words);
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn migration(database: &str, from: i64) -> String {
    printed(&["migrate", "--print", "--database", database, "--from", &from.to_string()])
}

/// The version of the schema that this build makes. It works with the next one, too.
fn own_version() -> i64 {
    *Outbox::<Postgres>::SCHEMA_VERSIONS.end() - 1
}

/// The tables of the version before this build's, and what brings them up.
fn older_and_rest(database: &str) -> (String, String) {
    let (whole, rest) = (migration(database, 0), migration(database, own_version() - 1));
    let older = whole.strip_suffix(&rest).expect("a script ends with what is new in the last version");
    (older.to_owned(), rest)
}

#[tokio::test]
async fn migrations_are_printed_as_the_library_gives_them() {
    let postgres = Outbox::builder(PgPool::connect_lazy("postgres://localhost/x").unwrap());
    let mysql = Outbox::builder(MySqlPool::connect_lazy("mysql://localhost/x").unwrap());
    let sqlite = Outbox::builder(SqlitePool::connect_lazy("sqlite://x").unwrap());
    let (postgres, mysql) = (postgres.build().await.unwrap(), mysql.build().await.unwrap());
    let sqlite = sqlite.build().await.unwrap();
    for from in 0..=own_version() {
        assert_eq!(migration("postgres", from), postgres.migration_script(from));
        assert_eq!(migration("mysql", from), mysql.migration_script(from));
        assert_eq!(migration("sqlite", from), sqlite.migration_script(from));
    }
    assert!(migration("postgres", 0).contains("CREATE TABLE"));
    assert!(migration("postgres", own_version()).is_empty());
}

#[tokio::test]
async fn grants_are_printed_as_the_library_gives_them() {
    let postgres = Outbox::builder(PgPool::connect_lazy("postgres://localhost/x").unwrap());
    let mysql = Outbox::builder(MySqlPool::connect_lazy("mysql://localhost/x").unwrap());
    let (postgres, mysql) = (postgres.build().await.unwrap(), mysql.build().await.unwrap());
    for (role, rights) in ROLES {
        let of = |database, to| printed(&["grants", role, "--database", database, "--to", to]);
        assert_eq!(of("postgres", "app"), postgres.grant_script(rights, "app"));
        assert_eq!(of("mysql", "'app'@'10.0.%'"), mysql.grant_script(rights, "'app'@'10.0.%'"));
        assert!(of("postgres", "app").contains("GRANT"));
    }
}

#[test]
fn an_address_or_a_database_is_asked_for() {
    for words in [&["migrate", "--print"][..], &["grants", "worker", "--to", "app"]] {
        let done = keylane(words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(!done.status.success() && said.contains("give --database-url"), "{said}");
    }
    let said = keylane(&["migrate", "--from", "2"]);
    assert!(!said.status.success(), "--from is for --print: what a server has, it says itself");
}

/// The command finds tables that were made by hand as it would have made them itself.
fn accepted(url: &str) {
    assert_eq!(printed(&["--database-url", url, "status"]), "");
    assert_eq!(printed(&["--database-url", url, "migrate"]), "the outbox schema is up to date\n");
}

/// Brings the tables of the version before up to this build's, and makes a user that has what the printed grants
/// give it and nothing else. `password` is what a CREATE USER says before the password.
async fn made_by_hand(url: &str, family: &str, password: &str, mut execute: impl AsyncFnMut(String)) {
    let (older, rest) = older_and_rest(family);
    execute(older).await;
    execute(rest).await;
    accepted(url);

    let user = format!("keylane_command_{}", std::process::id());
    execute(format!("CREATE USER {user} {password} 'secret'")).await;
    let (scheme, _) = url.split_once("://").unwrap();
    let (_, place) = url.rsplit_once('@').unwrap();
    let url_of_user = format!("{scheme}://{user}:secret@{place}");
    let status = ["--database-url", &url_of_user, "status"];
    assert!(!keylane(&status).status.success(), "no rights yet");
    execute(printed(&["--database-url", url, "grants", "admin", "--to", &user])).await;
    assert_eq!(printed(&status), "");
    if family == "postgres" {
        execute(format!("DROP OWNED BY {user}")).await;
    }
    execute(format!("DROP USER {user}")).await;
}

#[tokio::test]
async fn printed_migrations_and_grants_work_on_postgres() {
    on_postgres("schema", async |url| {
        let mut conn = PgConnection::connect(url).await.unwrap();
        made_by_hand(url, "postgres", "PASSWORD", async |sql| {
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn printed_migrations_and_grants_work_on_mariadb() {
    on_mariadb("schema", async |url| {
        made_by_hand(url, "mysql", "IDENTIFIED BY", async |sql| in_the_client(url, &sql)).await;
    })
    .await;
}

/// Runs a script as a DBA does: in the client of the server, which takes delimiters for itself.
fn in_the_client(url: &str, script: &str) {
    let (user, place) = url.strip_prefix("mysql://").unwrap().split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let (host, database) = place.split_once('/').unwrap();
    let (host, port) = host.split_once(':').unwrap();
    let mut client = Command::new("mariadb")
        .args(["--no-defaults", "-h", host, "-P", port, "-u", user, database])
        .env("MYSQL_PWD", password)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    client.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success());
}

#[tokio::test]
async fn printed_migrations_work_on_sqlite() {
    let file = File::new("schema");
    let url = file.url();
    let mut conn = SqliteConnection::connect(&url).await.unwrap();
    let (older, rest) = older_and_rest("sqlite");
    for sql in [older, rest] {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.unwrap();
    }
    accepted(&url);
}
