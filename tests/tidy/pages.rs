//! Pages can be read as plain text: lines of prose have at most 110 columns. Links lead to a page and a heading.

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

fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = files("docs", "md");
    pages.extend(PAGES.map(|page| (page.to_owned(), fs::read_to_string(root.join(page)).unwrap())));
    pages
}

/// The name of a heading in links: lower case without punctuation, and a hyphen for each blank.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
}

/// Whether a heading, or a place that is named by itself, has this name.
fn has_heading(text: &str, wanted: &str) -> bool {
    if text.contains(&format!("<a id=\"{wanted}\">")) {
        return true;
    }
    let mut in_code = false;
    text.lines().any(|line| {
        in_code ^= line.trim_start().starts_with("```");
        !in_code && line.starts_with('#') && anchor(line.trim_start_matches('#')) == wanted
    })
}

#[test]
fn links_between_pages_lead_to_a_heading() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut problems = Vec::new();
    for (file, text) in pages() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (target, heading) = link.split_once('#').unwrap_or((link, ""));
            if target.contains("://") {
                continue;
            }
            let path = match target {
                "" => root.join(&file),
                _ => root.join(&file).parent().unwrap().join(target),
            };
            let leads = path.exists()
                && (heading.is_empty()
                    || has_heading(&fs::read_to_string(&path).unwrap_or_default(), heading));
            if !leads {
                problems.push(format!("{file}: {link} leads nowhere"));
            }
        }
    }
    report(problems);
}

#[test]
fn a_heading_is_found_by_its_name_in_links() {
    let text = "# `a_b`: one, two\n```sh\n# c\n```\n";
    assert!(has_heading(text, "a_b-one-two"));
    assert!(!has_heading(text, "c"), "a comment in code");
    assert!(has_heading("| <a id=\"d\"></a>**d** |", "d"));
}

#[test]
fn prose_is_narrow() {
    let mut problems = Vec::new();
    for (file, text) in pages() {
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
