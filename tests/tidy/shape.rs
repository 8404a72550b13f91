//! Sizes, names and left-overs.

use std::collections::BTreeSet;

use crate::{files, report, without_tests};

const FILE_LIMIT: usize = 400;
const FUNCTION_LIMIT: usize = 70;

fn all_rust() -> Vec<(String, String)> {
    ["src", "crates", "examples", "tests", "benches"].iter().flat_map(|folder| files(folder, "rs")).collect()
}

#[test]
fn files_are_short() {
    let long = all_rust().into_iter().filter_map(|(file, text)| {
        let lines = without_tests(&text).lines().count();
        (lines > FILE_LIMIT).then(|| format!("{file} has {lines} lines, the limit is {FILE_LIMIT}"))
    });
    report(long.collect());
}

#[test]
fn functions_are_short() {
    let mut problems = Vec::new();
    for (file, text) in all_rust() {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let body = line.trim_start();
            let indent = line.len() - body.len();
            let is_function = ["fn ", "pub fn ", "async fn ", "pub async fn "].iter().any(|start| {
                body.starts_with(start) || body.starts_with("pub(") && body.contains(&format!(") {start}"))
            });
            let head = lines[at..].iter().find(|line| line.ends_with([';', '{', '}']));
            if !is_function || head.is_some_and(|line| line.ends_with(';')) {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines[at..].iter().position(|line| *line == close).map_or(1, |end| end + 1);
            if length > FUNCTION_LIMIT {
                problems.push(format!(
                    "{file}:{}: function of {length} lines, the limit is {FUNCTION_LIMIT}",
                    at + 1
                ));
            }
        }
    }
    report(problems);
}

#[test]
fn names_say_something() {
    let nothing = ["util", "utils", "helper", "helpers", "common", "manager", "misc"];
    let bad = all_rust().into_iter().filter_map(|(file, _)| {
        let parts = file.trim_end_matches(".rs").split('/');
        parts
            .into_iter()
            .any(|part| nothing.contains(&part))
            .then(|| format!("{file}: a name that says nothing"))
    });
    report(bad.collect());
}

#[test]
fn every_module_says_what_it_is() {
    let bad =
        all_rust().into_iter().filter(|(file, _)| !file.contains("/refused/")).filter_map(|(file, text)| {
            (!text.starts_with("//!")).then(|| format!("{file} does not open with a //! comment"))
        });
    report(bad.collect());
}

#[test]
fn nothing_is_left_over() {
    let words = ["todo!", "unimplemented!", "dbg!(", "FIXME", "XXX", "#[ignore"];
    let mut problems = Vec::new();
    for (file, text) in all_rust().into_iter().filter(|(file, _)| !file.starts_with("tests/tidy")) {
        for word in words.iter().filter(|word| text.contains(*word)) {
            problems.push(format!("{file}: {word}"));
        }
    }
    report(problems);
}

#[test]
fn features_gate_modules_only() {
    let mut problems = Vec::new();
    for (file, text) in files("src", "rs") {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (at, _) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.starts_with("#[cfg(") && line.contains("feature"))
        {
            let next = lines[at + 1..].iter().find(|line| !line.starts_with("#[")).copied().unwrap_or("");
            let allowed = ["mod ", "pub mod ", "pub(crate) mod ", "pub use ", "use ", "pub(crate) use "];
            // A function that only some databases call may be gated with these databases.
            let function = next.contains("fn ") && file.starts_with("src/store/sql/");
            if !allowed.iter().any(|start| next.starts_with(start)) && !function {
                problems.push(format!("{file}:{}: a feature gates {next:?}", at + 1));
            }
        }
    }
    report(problems);
}

#[test]
fn rules_are_pure() {
    let impure = [
        "async ", ".await;", ".await?", "::now()", "rand", "tokio", "tracing", "std::fs", "std::env",
        "std::net",
    ];
    let mut problems = Vec::new();
    for (file, text) in files("src/rules", "rs") {
        let code = without_tests(&text).lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for word in impure.iter().filter(|word| line.contains(*word)) {
                problems.push(format!("{file}: {word:?} in {line:?}"));
            }
        }
    }
    report(problems);
}

/// The most names at the root: those that a service writes. All other names stand in a module of their theme.
const ROOT_LIMIT: usize = 51;

#[test]
fn the_root_has_few_names() {
    let (_, text) = files("src", "rs").into_iter().find(|(file, _)| file == "src/lib.rs").unwrap();
    let uses = text.split("\npub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let words = uses.flat_map(|names| names.split(|c: char| !c.is_alphanumeric() && c != '_'));
    // A derive has the name of its trait.
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with(char::is_uppercase)).collect();
    assert!((40..=ROOT_LIMIT).contains(&names.len()), "{} names: {names:?}", names.len());
}
