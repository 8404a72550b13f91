//! The architecture as a test: floors, sizes, names, statements, and docs in step with the code.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod circles;
mod claims;
mod docs;
mod examples;
mod floors;
mod package;
mod pages;
mod shape;
mod sql;
mod stations;
mod words;

use std::{fs, path::Path};

/// All files below a folder of the repository with this extension, with their text.
fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let name = name(root, &path);
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files below {folder}");
    found
}

fn name(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap().to_string_lossy().into_owned()
}

/// A source text without its test module, which always comes last.
fn without_tests(text: &str) -> &str {
    text.split_once("\nmod tests {").map_or(text, |(code, _)| code)
}

/// Fails with all sentences at once.
fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
