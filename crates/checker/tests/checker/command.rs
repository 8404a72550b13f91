//! The command `keylane-checker`, run as a process.

use std::{fs, path::PathBuf, process::Command};

use keylane_checker::{Event, What, history::line};

use crate::{
    model,
    valid::{choices, judge},
};

/// The output of the command for a history, and its exit code.
fn run(name: &str, history: &[Event]) -> (String, Option<i32>) {
    let folder: PathBuf = std::env::temp_dir().join(format!("keylane-checker-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let (expect, file) = (folder.join("expect.json"), folder.join("history"));
    fs::write(&expect, serde_json::to_vec(&model::expect()).expect("JSON")).expect("a file");
    fs::write(&file, history.iter().flat_map(|event| line(event).expect("a line")).collect::<Vec<u8>>())
        .expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_keylane-checker"));
    let output = command.arg("--expect").args([&expect, &file]).output().expect("the command");
    fs::remove_dir_all(folder).expect("a folder");
    (String::from_utf8(output.stdout).expect("text"), output.status.code())
}

#[test]
fn the_command_tells_what_was_judged() {
    let history = model::history(choices(1, 300));
    let report = judge(&history).expect("valid");
    let (said, code) = run("good", &history);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with(&format!("{} events, no violation\n   1  no loss", report.events)), "{said}");
    assert!(said.contains("reached  tea"), "{said}");
}

#[test]
fn the_command_tells_a_violation_with_its_lines() {
    let mut history = model::history(choices(1, 300));
    let place = history.iter().position(|event| matches!(event.what, What::Stored { .. })).expect("a row");
    history.insert(place, history[place].clone());
    let (said, code) = run("bad", &history);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("invariant 2 (no ghost) violated: record "), "{said}");
    let row = String::from_utf8(line(&history[place]).expect("a line")).expect("text");
    assert!(said.ends_with(&format!("\n  {row}")), "{said}");
}

#[test]
fn the_command_asks_for_files() {
    let output = Command::new(env!("CARGO_BIN_EXE_keylane-checker")).output().expect("the command");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr).trim(),
        "keylane-checker: usage: keylane-checker [--expect FILE] FILES..."
    );
}
