//! Docs and code agree: every settings key, signal, error and status is on its page.

use std::fs;

use keylane::{Config, admin::Status};
use keylane_checker::Invariant;

use crate::{files, report};

pub(crate) fn page(name: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_settings_key_is_in_the_configuration_page() {
    let page = page("docs/configuration.md");
    let defaults = toml::Value::try_from(Config::default()).unwrap();
    let mut problems = Vec::new();
    let mut tables = vec![(String::new(), defaults)];
    while let Some((prefix, value)) = tables.pop() {
        for (key, value) in value.as_table().unwrap() {
            let key = format!("{prefix}{key}");
            match value {
                // The kinds of back-off are one key, whose parts have lines of their own.
                toml::Value::Table(_) if key != "retry.backoff" => {
                    tables.push((format!("{key}."), value.clone()))
                }
                _ if !page.contains(&format!("`{key}`")) => {
                    problems.push(format!("docs/configuration.md lacks `{key}`"))
                }
                _ => {}
            }
        }
    }
    for optional in ["schema", "delivery.on_failure", "cluster.instance_name"] {
        if !page.contains(&format!("`{optional}`")) {
            problems.push(format!("docs/configuration.md lacks `{optional}`"));
        }
    }
    report(problems);
}

/// The variants of a public enum, from its text.
fn variants(file: &str, name: &str) -> Vec<String> {
    let text = page(file);
    let start = text.find(&format!("pub enum {name}")).unwrap_or_else(|| panic!("{file} has no enum {name}"));
    let body = &text[start..];
    let body = &body[..body.find("\n}").unwrap()];
    let variant = |line: &str| {
        let line = line.strip_prefix("    ")?;
        let word: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
        word.starts_with(char::is_uppercase).then_some(word)
    };
    body.lines().skip(1).filter_map(variant).collect()
}

#[test]
fn every_invariant_is_in_the_page_of_tests() {
    let page = page("docs/testing.md");
    let wanted =
        Invariant::ALL.map(|invariant| format!("| {} | {} | ", invariant.number(), invariant.name()));
    let lacking = wanted.iter().filter(|row| !page.contains(*row));
    report(lacking.map(|row| format!("docs/testing.md lacks {row}")).collect());
}

#[test]
fn every_signal_is_in_the_operations_page() {
    let page = page("docs/operations.md");
    let signals = variants("src/telemetry/mod.rs", "Signal");
    assert!(signals.len() > 15, "{signals:?}");
    report(
        signals
            .into_iter()
            .filter(|signal| !page.contains(&format!("`{signal}`")))
            .map(|s| format!("docs/operations.md lacks `{s}`"))
            .collect(),
    );
}

#[test]
fn every_setting_and_verdict_of_a_sink_is_in_its_page() {
    let mut problems = Vec::new();
    for (sink, least) in [("kafka", 8), ("webhook", 9)] {
        let page = page(&format!("docs/{sink}.md"));
        let config = self::page(&format!("crates/sink-{sink}/src/config.rs"));
        let setter = |line: &str| {
            let name = line.trim_start().strip_prefix("pub fn ")?.split_once("(mut self")?.0;
            Some(name.to_owned())
        };
        let mut names: Vec<String> = config.lines().filter_map(setter).collect();
        assert!(names.len() >= least, "{names:?}");
        names.extend(variants(&format!("crates/sink-{sink}/src/verdict.rs"), "Verdict"));
        let lacking = names.into_iter().filter(|name| !page.contains(&format!("| `{name}` |")));
        problems.extend(lacking.map(|name| format!("docs/{sink}.md lacks `{name}`")));
    }
    report(problems);
}

#[test]
fn every_form_and_field_of_a_route_is_in_the_page_of_messages() {
    let page = page("docs/messages.md");
    let config = self::page("crates/message/src/config.rs");
    let (_, config) = config.split_once("pub struct RouteConfig {").unwrap();
    let fields = config.lines().take_while(|line| *line != "}");
    let field = |line: &str| Some(format!("| `{}` |", line.trim().strip_prefix("pub ")?.split_once(':')?.0));
    let mut wanted: Vec<String> = fields.filter_map(field).collect();
    assert!(wanted.len() > 5, "{wanted:?}");
    let errors = variants("crates/message/src/read.rs", "ReadError");
    wanted.extend(errors.iter().map(|name| format!("| `ReadError::{name}` |")));
    let lacking = wanted.iter().filter(|wanted| !page.contains(*wanted));
    report(lacking.map(|wanted| format!("docs/messages.md lacks {wanted}")).collect());
}

/// The fields of a struct, from its text.
fn fields(file: &str, name: &str) -> Vec<String> {
    let text = page(file);
    let (_, body) = text
        .split_once(&format!("pub struct {name} {{"))
        .or_else(|| text.split_once(&format!("pub(crate) struct {name} {{")))
        .unwrap_or_else(|| panic!("{file} has no struct {name}"));
    let lines = body.lines().take_while(|line| *line != "}").map(str::trim_start);
    let lines = lines.filter(|line| !line.starts_with(['/', '#']));
    let field = |line: &str| {
        let (name, _) = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ").split_once(':')?;
        Some(name.to_owned())
    };
    lines.filter_map(field).collect()
}

#[test]
fn every_setting_of_the_relay_is_in_its_page() {
    let page = page("docs/relay.md");
    let relay = fields("crates/cli/src/relay/config.rs", "RelayConfig");
    let route = fields("crates/message/src/config.rs", "RouteConfig");
    assert!(relay.len() > 6 && route.len() > 4, "{relay:?} {route:?}");
    let names = relay.into_iter().map(|name| format!("relay.{name}")).chain(route);
    let lacking = names.filter(|name| !page.contains(&format!("| `{name}` |")));
    report(lacking.map(|name| format!("docs/relay.md lacks `{name}`")).collect());
}

#[test]
fn every_setting_and_error_of_consuming_is_in_its_page() {
    let page = page("docs/consuming.md");
    let setters = |path: &str| {
        let setter = |line: &str| {
            let name = line.trim_start().strip_prefix("pub fn ")?.split_once("(mut self")?.0;
            Some(format!("| `{name}`"))
        };
        self::page(path).lines().filter_map(setter).collect::<Vec<_>>()
    };
    let mut names = setters("crates/consumer-kafka/src/config.rs");
    names.extend(setters("crates/inbox/src/inbox.rs"));
    assert!(names.len() > 12, "{names:?}");
    let errors = [
        ("crates/inbox/src/error.rs", "InboxError"),
        ("crates/inbox/src/error.rs", "OnceError"),
        ("crates/inbox/src/claim.rs", "ClaimError"),
        ("crates/inbox/src/claim.rs", "ProcessError"),
        ("crates/consumer-kafka/src/config.rs", "ConfigError"),
    ];
    for (file, name) in errors {
        names.extend(variants(file, name).into_iter().map(|variant| format!("`{name}::{variant}`")));
    }
    let lacking = names.into_iter().filter(|name| !page.contains(name));
    report(lacking.map(|name| format!("docs/consuming.md lacks {name}")).collect());
}

#[test]
fn every_setting_error_and_code_of_the_guards_is_in_their_page() {
    let page = page("docs/web.md");
    let text = |file: &str| self::page(&format!("crates/web/src/{file}.rs"));
    let setter = |line: &str| {
        let line = line.trim_start().strip_prefix("pub fn ")?;
        let (name, _) = line.split_once("(mut self").or_else(|| line.split_once("(\n"))?;
        Some(format!("`{name}"))
    };
    let files = ["rate/layer", "idempotency/layer", "redis", "envelope/layer", "sql"];
    let mut names: Vec<String> =
        files.iter().flat_map(|file| text(file).lines().filter_map(setter).collect::<Vec<_>>()).collect();
    assert!(names.len() > 9, "{names:?}");
    for (file, name) in [("error", "SettingError"), ("error", "StoreError"), ("rate/layer", "WhenAway")] {
        let all = variants(&format!("crates/web/src/{file}.rs"), name);
        names.extend(all.into_iter().map(|variant| format!("`{name}::{variant}`")));
    }
    let refusal = text("refusal");
    let codes = refusal.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split('"').nth(1));
    let codes: Vec<String> = codes.map(|code| format!("| `{code}` |")).collect();
    assert!(codes.len() > 8, "{codes:?}");
    names.extend(codes);
    let lacking = names.into_iter().filter(|name| !page.contains(name));
    report(lacking.map(|name| format!("docs/web.md lacks {name}")).collect());
}

#[test]
fn every_setting_and_error_of_the_lock_is_in_its_page() {
    let page = page("docs/lock.md");
    let setter = |line: &str| {
        let name = line.trim_start().strip_prefix("pub fn ")?.split_once("(mut self")?.0;
        Some(format!("| `{name}`"))
    };
    let mut names: Vec<String> = ["client", "request"]
        .iter()
        .flat_map(|file| {
            let text = self::page(&format!("crates/lock/src/{file}.rs"));
            text.lines().filter_map(setter).collect::<Vec<_>>()
        })
        .collect();
    assert!(names.len() > 7, "{names:?}");
    let errors = variants("crates/lock/src/error.rs", "LockError");
    names.extend(errors.iter().map(|name| format!("`LockError::{name}`")));
    // The limits, as the code has them.
    for (file, name) in
        [("request", "LONGEST_RESOURCE"), ("request", "LONGEST_OWNER"), ("client", "LONGEST_LIST")]
    {
        let text = self::page(&format!("crates/lock/src/{file}.rs"));
        let (_, rest) = text.split_once(&format!("const {name}: ")).unwrap();
        let limit: String =
            rest.lines().next().unwrap().split('=').nth(1).unwrap().replace(['_', ';', ' '], "");
        if !page.replace(',', "").contains(&format!(" {limit} ")) {
            names.push(format!("{name} {limit}"));
        }
    }
    let lacking = names.into_iter().filter(|name| !page.contains(name));
    report(lacking.map(|name| format!("docs/lock.md lacks {name}")).collect());
}

#[test]
fn every_error_is_in_the_errors_page() {
    let page = page("docs/errors.md");
    let enums = [
        ("src/schedule/mod.rs", "ScheduleError"),
        ("src/builder.rs", "BuildError"),
        ("src/readiness.rs", "StartError"),
        ("src/outbox.rs", "TransactionError"),
        ("src/store/error.rs", "SchemaError"),
        ("src/store/error.rs", "OpenError"),
        ("src/store/error.rs", "ErrorClass"),
        ("src/handler/registry.rs", "RegistryError"),
        ("src/handler/error.rs", "FailureKind"),
    ];
    let mut problems = Vec::new();
    for (file, name) in enums {
        for variant in variants(file, name) {
            let entry = format!("| `{name}::{variant}` |");
            let Some(row) = page.lines().find(|line| line.starts_with(&entry)) else {
                problems.push(format!("docs/errors.md lacks a row {entry}"));
                continue;
            };
            if row.split(" | ").filter(|cell| cell.trim_matches(['|', ' ']).len() > 2).count() < 3 {
                problems.push(format!("docs/errors.md does not say when and what to do: {entry}"));
            }
        }
    }
    report(problems);
}

#[test]
fn every_status_and_table_is_in_the_schema_page() {
    let page = page("docs/schema.md");
    let mut problems = Vec::new();
    for status in Status::ALL {
        if !page.contains(&format!("| {} | {} |", status.code(), status)) {
            problems.push(format!("docs/schema.md lacks a row for status {} {status}", status.code()));
        }
    }
    for (file, text) in files("migrations/mysql", "sql") {
        for part in text.split("CREATE TABLE IF NOT EXISTS {outbox}").skip(1) {
            let table: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !page.contains(&format!("`outbox_{table}`")) {
                problems.push(format!("docs/schema.md lacks `outbox_{table}` ({file})"));
            }
        }
    }
    report(problems);
}

#[test]
fn every_example_is_listed_and_its_output_recorded() {
    let index = page("examples/README.md");
    let mut problems = Vec::new();
    for (file, _) in files("examples", "rs").into_iter().filter(|(file, _)| file.matches('/').count() == 1) {
        let name = file.trim_start_matches("examples/").trim_end_matches(".rs").to_owned();
        if !index.contains(&format!("`{name}`")) {
            problems.push(format!("examples/README.md lacks `{name}`"));
        }
        let recorded = format!("{}/examples/expected/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        if fs::metadata(&recorded).is_err() {
            problems.push(format!("{recorded} is missing"));
        }
    }
    report(problems);
}
