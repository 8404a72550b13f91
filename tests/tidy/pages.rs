//! Pages can be read as plain text: lines of prose have at most 110 columns.

use std::{fs, path::Path};

use crate::{files, report};

const COLUMNS: usize = 110;

/// Pages outside of `docs`.
const PAGES: [&str; 5] =
    ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md"];

/// The numbers of lines that are too long and could be broken, which those of tables, code and links cannot.
fn long_lines(text: &str) -> Vec<usize> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let may_be_long = in_code || line.starts_with('|') || line.starts_with('#');
        // One word without a blank, such as an address, cannot be broken.
        let words = line.split_whitespace().count();
        if line.chars().count() > COLUMNS && !may_be_long && words > 2 {
            found.push(at + 1);
        }
    }
    found
}

#[test]
fn prose_is_narrow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files("docs", "md");
    pages.extend(PAGES.map(|page| (page.to_owned(), fs::read_to_string(root.join(page)).unwrap())));
    let mut problems = Vec::new();
    for (file, text) in pages {
        let lines = long_lines(&text);
        problems.extend(
            lines.into_iter().map(|line| format!("{file}:{line} has more than {COLUMNS} columns: wrap it")),
        );
    }
    report(problems);
}

#[test]
fn tables_and_code_may_be_wide() {
    let long = "word ".repeat(30);
    assert_eq!(long_lines(&format!("short\n{long}\n| {long}\n```sh\n{long}\n```\n{long}")), [2, 7]);
}
