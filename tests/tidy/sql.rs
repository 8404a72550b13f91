//! The statements and the migrations.

use std::collections::BTreeMap;

use crate::{files, report};

const TOKENS: &[&str] = &[
    "outbox",
    "index",
    "now",
    "age",
    "ago",
    "later",
    "int",
    "lock",
    "unlocked",
    "identity",
    "marked",
    "by",
    "delete",
    "server",
    "insert_new",
    "or_nothing",
    "ids",
    "instances",
    "partitions",
    "claims",
    "counts",
    "returned",
    "attempts",
    "token",
    "lease",
    "from",
    "to",
    "skip",
    "handlers",
    "limit",
    "candidates",
    "suspected",
    "extra_columns",
    "extra",
    "named",
    "rows",
    "hashes",
    "instance",
    "slot",
    "counter",
    "home",
    "table",
    "key",
    "keys",
    "find",
    "column",
    "given",
    "matching",
];

fn body(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n")
}

#[test]
fn statements_use_known_tokens_and_number_their_parameters_in_order() {
    let mut problems = Vec::new();
    for (file, text) in files("src/store/sql/statements", "sql") {
        let sql = body(&text);
        for part in sql.split('{').skip(1) {
            let token = part.split(['}', ':']).next().unwrap_or("");
            if !TOKENS.contains(&token) {
                problems.push(format!("{file}: unknown token {{{token}}}"));
            }
        }
        // MySQL numbers parameters by their places, so each stands once and in order. PostgreSQL may repeat them.
        let mut numbers: Vec<usize> = sql
            .match_indices('$')
            .filter_map(|(at, _)| {
                sql[at + 1..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
            })
            .collect();
        if file.contains("/postgres/") {
            numbers.sort_unstable();
            numbers.dedup();
        }
        if numbers != (1..=numbers.len()).collect::<Vec<_>>() {
            problems.push(format!("{file}: parameters {numbers:?} are not 1, 2, 3 … once each"));
        }
        if text.matches(';').count() > 0 && body(&text).contains(';') {
            problems.push(format!("{file}: more than one statement"));
        }
    }
    report(problems);
}

/// MySQL 9.7 deletes the rows of the locked table as well.
#[test]
fn no_delete_locks_rows_of_another_table() {
    let bad = files("src/store/sql/statements", "sql").into_iter().filter_map(|(file, text)| {
        let sql = body(&text).to_uppercase();
        let on_mysql = !file.contains("/postgres/");
        (on_mysql && sql.contains("DELETE") && (sql.contains("FOR UPDATE") || sql.contains("{LOCK}")))
            .then(|| format!("{file}: DELETE with a locking read"))
    });
    report(bad.collect());
}

#[test]
fn migrations_have_the_same_numbers_everywhere() {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (file, _) in files("migrations", "sql") {
        let (folder, name) = file.trim_start_matches("migrations/").split_once('/').unwrap();
        names.entry(folder.to_owned()).or_default().push(name.to_owned());
    }
    let folders: Vec<&String> = names.keys().collect();
    assert_eq!(folders, ["mysql", "postgres", "sqlite"]);
    assert_eq!(names["mysql"], names["postgres"]);
    assert_eq!(names["sqlite"], names["postgres"]);
    for (at, name) in names["postgres"].iter().enumerate() {
        assert!(name.starts_with(&format!("{:04}_", at + 1)), "{name} is not number {}", at + 1);
    }
}

/// Statements in which a negative number has a meaning, each with its reason.
const NEGATIVE: &[(&str, &str)] =
    &[("close_fences.sql", "-1 is the counter of a closed fence row, which no write can match")];

/// A value that a row does not have is null, and a named column says what a row is.
#[test]
fn no_number_stands_in_place_of_something_else() {
    let is_listed = |file: &str| NEGATIVE.iter().any(|(name, _)| file.ends_with(&format!("/{name}")));
    let bad = files("src/store/sql/statements", "sql").into_iter().filter_map(|(file, text)| {
        let bytes = body(&text).into_bytes();
        let negative = bytes.windows(2).any(|pair| pair[0] == b'-' && pair[1].is_ascii_digit());
        (negative && !is_listed(&file)).then(|| format!("{file}: a negative number in place of something"))
    });
    report(bad.collect());
}

/// Files that have parts of statements in code, each with its reason. Only fragments of a dialect are allowed.
const WRITES_SQL: &[(&str, &str)] = &[
    ("postgres.rs", "it has the fragments of PostgreSQL"),
    ("mysql.rs", "it has the fragments of MySQL and MariaDB"),
    ("sqlite.rs", "it has the fragments of SQLite"),
];

/// One mechanism places statements: a file, rendered for a database and filled for a call.
#[test]
fn statements_stand_in_files_of_their_own() {
    let mut problems = Vec::new();
    for (file, text) in files("src/store/sql", "rs") {
        let name = file.rsplit('/').next().unwrap_or_default();
        let starts = ["INSERT INTO", "INSERT IGNORE", "DELETE FROM", "DELETE ", "UPDATE ", "{outbox}"];
        let code = crate::without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code.filter(|line| starts.iter().any(|start| line.contains(start))) {
            let is_fragment =
                ["insert_new:", "delete:", "lock:", "unlocked:"].iter().any(|field| line.contains(field));
            let listed = WRITES_SQL.iter().any(|(listed, _)| *listed == name) && is_fragment;
            let names_tables = line.contains("tables.qualifier()");
            if !listed && !names_tables {
                problems.push(format!("{file}: a statement in the code: {}", line.trim()));
            }
        }
    }
    report(problems);
}

/// Records are never upserted, and no cursor remembers how far delivery has come.
#[test]
fn records_are_never_upserted_and_no_cursor_exists() {
    let mut problems = Vec::new();
    for (file, text) in files("src/store/sql/statements", "sql") {
        let sql = body(&text).to_lowercase();
        if sql.contains("insert into {outbox}record")
            && (sql.contains("on conflict") || sql.contains("on duplicate"))
        {
            problems.push(format!("{file}: upserts a record"));
        }
        let is_fetch = file.ends_with("fetch.sql") || file.ends_with("due.sql");
        if is_fetch && (sql.contains("id >") || sql.contains("id>")) && !sql.contains("<>") {
            problems.push(format!("{file}: a forward cursor"));
        }
    }
    report(problems);
}
