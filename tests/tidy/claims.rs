//! The tables of claims on the pages of guarantees and of testing: each test that they name exists, and they name a
//! test of each module.

use std::{collections::BTreeSet, fs};

use crate::{files, report};

fn text(path: &str) -> String {
    fs::read_to_string(format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap_or_default()
}

/// The claims with the tests that each names.
fn claims() -> Vec<(String, Vec<String>)> {
    let tables = [("docs/guarantees.md", "| claim | tests |"), ("docs/testing.md", "| works when | tests |")];
    tables.into_iter().flat_map(|(page, head)| claims_of(page, head)).collect()
}

fn claims_of(page: &str, head: &str) -> Vec<(String, Vec<String>)> {
    let page = text(page);
    let (_, table) = page.split_once(head).expect("a table of claims");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let parsed = rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let claim = cells.next().unwrap_or_default().to_owned();
        let tests = cells.next().unwrap_or_default();
        (claim, tests.split('`').skip(1).step_by(2).map(str::to_owned).collect())
    });
    parsed.collect()
}

const BEHAVIOUR: &[&str] =
    &["tests/behaviour/main.rs", "tests/behaviour/claimed_list.rs", "tests/behaviour/failures_list.rs"];
const CONFORMANCE: &[&str] = &["tests/conformance/lists.rs", "tests/conformance/lists_of_some.rs"];

/// The file of a module of a suite, and the files that list the tests that run on several stores.
fn place(suite: &str, module: &str) -> Option<(String, &'static [&'static str])> {
    match suite {
        "behaviour" => Some((format!("tests/behaviour/{module}.rs"), BEHAVIOUR)),
        "conformance" => Some((format!("tests/conformance/{module}.rs"), CONFORMANCE)),
        "cluster" => Some((
            format!("crates/cluster-tests/tests/cluster/{module}.rs"),
            &["crates/cluster-tests/tests/cluster/main.rs"],
        )),
        "inbox" => {
            let of_each = &[
                "crates/inbox/tests/inbox/claims.rs",
                "crates/inbox/tests/inbox/crashes.rs",
                "crates/inbox/tests/inbox/duplicates.rs",
                "crates/inbox/tests/inbox/failures.rs",
                "crates/inbox/tests/inbox/retention.rs",
            ];
            Some((format!("crates/inbox/tests/inbox/{module}.rs"), of_each))
        }
        "lock" => {
            let of_each = &[
                "crates/lock/tests/lock/crashes.rs",
                "crates/lock/tests/lock/entries.rs",
                "crates/lock/tests/lock/exclusion.rs",
                "crates/lock/tests/lock/failures.rs",
                "crates/lock/tests/lock/history.rs",
                "crates/lock/tests/lock/leases.rs",
                "crates/lock/tests/lock/queueing.rs",
                "crates/lock/tests/lock/signals.rs",
                "crates/lock/tests/lock/transactions.rs",
            ];
            Some((format!("crates/lock/tests/lock/{module}.rs"), of_each))
        }
        "web" => Some((format!("crates/web/tests/web/{module}.rs"), &["crates/web/tests/web/tables.rs"])),
        "consumer" => Some((format!("crates/consumer-kafka/tests/consumer/{module}.rs"), &[])),
        "kafka" => Some((format!("crates/sink-kafka/tests/kafka/{module}.rs"), &[])),
        "messages" => Some((format!("crates/message/tests/message/{module}.rs"), &[])),
        "webhook" => Some((format!("crates/sink-webhook/tests/webhook/{module}.rs"), &[])),
        "relay" => Some((format!("crates/cli/tests/command/relay/{module}.rs"), &[])),
        "rules" => Some((format!("crates/rule-tests/tests/rules/{module}.rs"), &[])),
        _ => None,
    }
}

/// Whether a function is a test: by its attribute, or by its name in a list.
fn is_test(name: &str, file: &str, list: &str) -> bool {
    let lines: Vec<&str> = file.lines().map(str::trim).collect();
    let is_it = |line: &&str| {
        let found = line.split_once("fn ").map(|(_, rest)| rest);
        found.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let Some(at) = lines.iter().position(is_it) else { return false };
    let attributes =
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    attributes.into_iter().any(|line| line.starts_with("#[") && line.contains("test"))
        || list.lines().any(|line| line.trim().split([':', ',']).next() == Some(name))
}

#[test]
fn every_test_that_a_claim_names_exists() {
    let mut problems = Vec::new();
    let claims = claims();
    assert!(claims.len() > 20, "{claims:?}");
    for (claim, tests) in claims {
        if tests.is_empty() {
            problems.push(format!("the claim {claim:?} names no test"));
        }
        for test in tests {
            let parts: Vec<&str> = test.split("::").collect();
            let found = match parts[..] {
                [suite, module, name] => place(suite, module).is_some_and(|(file, list)| {
                    is_test(name, &text(&file), &list.iter().map(|path| text(path)).collect::<String>())
                }),
                _ => false,
            };
            if !found {
                problems.push(format!("the claim {claim:?} names `{test}`, which is no test"));
            }
        }
    }
    report(problems);
}

#[test]
fn every_module_of_tests_belongs_to_a_claim() {
    let named: BTreeSet<String> = claims().into_iter().flat_map(|(_, tests)| tests).collect();
    let mut problems = Vec::new();
    for (suite, lists) in [("behaviour", BEHAVIOUR), ("conformance", CONFORMANCE)] {
        let list: String = lists.iter().map(|path| text(path)).collect();
        for (file, content) in files(&format!("tests/{suite}"), "rs") {
            let module = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
            let listed = list.lines().any(|line| line.trim() == format!("{module} {{"));
            let alone = content.contains("#[test]") || content.contains("#[tokio::test");
            if matches!(module, "main" | "lists" | "lists_of_some") || !(listed || alone) {
                continue;
            }
            if !named.iter().any(|test| test.starts_with(&format!("{suite}::{module}::"))) {
                problems.push(format!("no claim in docs/guarantees.md names a test of {file}"));
            }
        }
    }
    report(problems);
}

#[test]
fn the_scanner_tells_tests_from_other_functions() {
    let file =
        "#[tokio::test]\n// why\nasync fn one() {}\nfn two(a: u8) {}\npub(crate) async fn three<T>() {}";
    assert!(is_test("one", file, "") && !is_test("two", file, "") && !is_test("on", file, ""));
    assert!(is_test("three", file, "  three\n") && !is_test("three", file, "threes"));
}
