//! The docs of the public items of a service: verbs and traits have an example, settings say their default.

use crate::{docs::page, files, report, without_tests};

/// The types whose verbs need an example in their file. An example in the docs of the type may show several.
const TYPES: &[&str] =
    &["Outbox", "OutboxBuilder", "Running", "Admin", "ScheduleOptions", "RawEvent", "HandlerError"];

/// The traits that a service implements, with their files.
const TRAITS: &[(&str, &str)] = &[
    ("src/record.rs", "OutboxEvent"),
    ("src/handler/forms.rs", "Handler"),
    ("src/handler/forms.rs", "GenericHandler"),
    ("src/handler/forms.rs", "BatchHandler"),
    ("src/handler/forms.rs", "GenericBatchHandler"),
    ("src/handler/forms.rs", "TransactionalHandler"),
    ("src/handler/forms.rs", "TransactionalBatchHandler"),
    ("src/handler/forms.rs", "FallbackHandler"),
    ("src/handler/forms.rs", "GenericFallbackHandler"),
    ("src/handler/error.rs", "ClassifiedError"),
    ("src/telemetry/mod.rs", "Observer"),
];

/// Public functions without an example, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("Outbox::config", "it only returns the settings"),
    ("Running::instance", "the example of Admin::drain shows it"),
    ("HandlerError::kind", "it only returns a part of the error"),
    ("HandlerError::chain", "it only returns a part of the error"),
    ("HandlerError::text", "it only returns the text of the error"),
];

fn text(path: &str) -> String {
    let found = files("src", "rs").into_iter().find(|(file, _)| file == path);
    found.unwrap_or_else(|| panic!("there is no {path}: put the new file into the list")).1
}

/// The lines of all examples in the docs of a file.
fn examples(text: &str) -> String {
    let mut inside = false;
    let mut lines = String::new();
    for line in text.lines() {
        let Some(doc) =
            line.trim_start().strip_prefix("///").or_else(|| line.trim_start().strip_prefix("//!"))
        else {
            // Code that is included from a file stands between the lines of an example.
            inside &= line.trim_start().starts_with("#[doc");
            continue;
        };
        if doc.trim_start().starts_with("```") {
            inside = !inside;
        } else if inside {
            lines.push_str(doc);
            lines.push('\n');
        }
    }
    lines
}

/// The public functions of a type.
fn verbs(text: &str, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut within = false;
    for line in without_tests(text).lines() {
        if line.starts_with("impl") {
            let of = line.trim_end_matches(" {").rsplit(['>', ' ']).find(|part| !part.is_empty());
            within = !line.contains(" for ") && (of == Some(name) || line.contains(&format!(" {name}<")));
        }
        let function = line.strip_prefix("    pub ").filter(|_| within).map(|rest| {
            let rest = rest.trim_start_matches("const ").trim_start_matches("async ");
            rest.strip_prefix("fn ").map(|rest| rest.split(['(', '<']).next().unwrap_or_default().to_owned())
        });
        found.extend(function.flatten());
    }
    found
}

/// What is wrong with the docs of a verb.
fn problem(name: &str, verb: &str, file: &str, examples: &str) -> Option<String> {
    let shown = [".", "::"].iter().any(|before| examples.contains(&format!("{before}{verb}(")));
    let full = format!("{name}::{verb}");
    let listed = EXCEPTIONS.iter().any(|(listed, _)| *listed == full);
    match (shown, listed) {
        (false, false) => Some(format!("{full} has no example in the docs of {file}")),
        (true, true) => Some(format!("{full} has an example: take it off the list")),
        _ => None,
    }
}

#[test]
fn every_verb_has_an_example() {
    let mut problems = Vec::new();
    let public = files("src", "rs").into_iter().filter(|(file, _)| !file.starts_with("src/store/"));
    let sources: Vec<(String, String)> = public.collect();
    for name in TYPES {
        let found = sources.iter().map(|(file, text)| (file, examples(text), verbs(text, name)));
        let found: Vec<_> = found.filter(|(.., verbs)| !verbs.is_empty()).collect();
        assert!(!found.is_empty(), "{name} has no verbs: does this test still see them?");
        for (file, examples, verbs) in found {
            problems.extend(verbs.iter().filter_map(|verb| problem(name, verb, file, &examples)));
        }
    }
    report(problems);
}

#[test]
fn every_trait_that_a_service_implements_has_an_example() {
    let mut problems = Vec::new();
    for (file, name) in TRAITS {
        let text = text(file);
        let at = [":", "<"].iter().find_map(|after| text.find(&format!("pub trait {name}{after}")));
        let before = &text[..at.unwrap_or_else(|| panic!("{file} has no trait {name}"))];
        let docs = before.rsplit("\n\n").next().unwrap_or_default();
        if !examples(docs).contains(name) {
            problems.push(format!("{name} has no example in its docs"));
        }
    }
    report(problems);
}

/// The settings, with their files.
const SETTINGS: &[(&str, &str)] = &[
    ("src/config.rs", "ScheduleConfig"),
    ("src/config.rs", "RetentionConfig"),
    ("src/store/settings.rs", "DatabaseConfig"),
    ("src/delivery/config.rs", "DeliveryConfig"),
    ("src/cluster/mod.rs", "ClusterConfig"),
    ("src/rules/retry.rs", "RetryPolicy"),
];

#[test]
fn every_setting_says_its_default() {
    let mut problems = Vec::new();
    for (file, name) in SETTINGS {
        let text = text(file);
        let (_, body) = text.split_once(&format!("pub struct {name} {{")).expect("the struct of settings");
        let mut docs = String::new();
        let mut fields = 0;
        for line in body.lines().take_while(|line| *line != "}") {
            match line.trim_start().strip_prefix("///") {
                Some(doc) => docs.push_str(doc),
                None if line.starts_with("    pub ") => {
                    fields += 1;
                    if !docs.contains("Default") {
                        problems.push(format!("{file}: {name}: no default in the docs of {}", line.trim()));
                    }
                    docs.clear();
                }
                None => {}
            }
        }
        assert!(fields > 2, "{name} has {fields} fields: does this test still see them?");
    }
    report(problems);
}

#[test]
fn code_on_pages_is_compiled() {
    // The page of a crate is compiled by that crate, so that others do not need what its code needs.
    let compiled = text("src/pages.rs");
    let crates: String = files("crates", "rs")
        .into_iter()
        .filter(|(file, _)| file.ends_with("/src/lib.rs"))
        .map(|(_, text)| text)
        .collect();
    let mut pages = files("docs", "md");
    pages.extend(["README.md", "examples/README.md"].map(|name| (name.to_owned(), page(name))));
    let mut problems = Vec::new();
    for (file, text) in pages {
        let fences: Vec<&str> = text.lines().filter_map(|line| line.trim().strip_prefix("```")).collect();
        let has_code = fences.iter().any(|fence| fence.starts_with("rust"));
        if fences.iter().any(|fence| fence.starts_with("rust,")) {
            problems.push(format!("{file} has code that is not compiled"));
        }
        let is_compiled = compiled.contains(&format!("include_str!(\"../{file}\")"))
            || crates.contains(&format!("include_str!(\"../../../{file}\")"));
        if has_code != is_compiled {
            problems.push(format!("{file} has code and no crate compiles it, or the other way round"));
        }
    }
    report(problems);
}

#[test]
fn the_scanner_finds_verbs_and_examples() {
    let text = "/// ```\n#[doc = include_str!(\"x\")]\n/// a.go()?;\n/// ```\n/// b.stop()\nimpl<D: X> A<D> {\n    \
                pub async fn go<T>(&self) {}\n    fn own() {}\n}\nimpl Clone for A {\n    pub fn no() {}\n}";
    assert_eq!(verbs(text, "A"), ["go"]);
    assert_eq!(examples(text).trim(), "a.go()?;");
}
