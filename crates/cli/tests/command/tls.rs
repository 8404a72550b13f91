//! The command over TLS. Of the servers of the tests, MySQL makes a certificate for itself, PgBouncer has one of
//! `dev/services`, and PostgreSQL has none.

use std::process::Command;

use crate::keylane::url;

/// What `keylane status` says, whether it went well or not.
fn status(url: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane"));
    let done = command.args(["--database-url", url, "status"]).output().unwrap();
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// Asserts that the command asks for the tables, which need not be there. On a busy machine, a first connection may take
/// longer than the command waits.
fn connects(url: &str) {
    let mut said = String::new();
    for _ in 0..5 {
        said = status(url);
        if said.is_empty() || said.contains("records") || said.contains("tables are missing") {
            return;
        }
    }
    panic!("{said}");
}

#[test]
fn tls_that_is_required_is_had_where_the_server_offers_it() {
    let Ok(url) = std::env::var("KEYLANE_TEST_MYSQL_URL") else {
        eprintln!("skipped: MySQL does not run here");
        return;
    };
    let (url, _) = url.split_once('?').unwrap_or((&url, ""));
    connects(&format!("{url}?ssl-mode=REQUIRED"));
    let said = status(&format!("{url}?ssl-mode=VERIFY_CA"));
    assert!(said.contains("certificate"), "its own certificate is nobody's: {said}");
}

#[test]
fn a_certificate_is_verified_by_its_authority() {
    let url_of_tls = format!("{}?sslmode=verify-full", url("KEYLANE_TEST_PGBOUNCER_SESSION_URL"));
    connects(&format!("{url_of_tls}&sslrootcert={}", url("KEYLANE_TEST_PGBOUNCER_CA")));
    let said = status(&url_of_tls);
    assert!(said.contains("certificate"), "{said}");
}

#[test]
fn tls_that_is_required_and_not_offered_is_told() {
    let said = status(&format!("{}?sslmode=require", url("KEYLANE_TEST_POSTGRES_URL")));
    assert!(said.contains("server does not support TLS"), "{said}");
}
