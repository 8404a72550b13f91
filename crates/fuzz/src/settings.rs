//! Files of settings: any text gives settings, or one sentence that names the key and contains no secret.

use std::{collections::BTreeSet, path::Path};

use keylane::Config;
use toml::{Table, Value};

/// The variables of the environment. The second value begins with the first one.
const VARIABLES: [(&str, &str); 3] = [
    ("PASSWORD", "hunter2\"\\\n\t\u{1b}é"),
    ("LONGER", "hunter2\"\\\n\t\u{1b}éswordfish"),
    ("NUMBER", "31337"),
];
/// A text that no sentence may contain.
const SECRET: [&str; 2] = ["hunter2", "swordfish"];
/// The keys and tables at the top of a file.
const TOP: [&str; 9] =
    ["table_prefix", "schema", "schedule", "delivery", "cluster", "retry", "retention", "database", "relay"];

pub(crate) fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let variable = |wanted: &str| {
        VARIABLES.iter().find(|(name, _)| *name == wanted).map(|(_, value)| (*value).to_owned())
    };
    match keylane_cli::check_settings(&text, Path::new("keylane.toml"), variable) {
        Ok(config) => accepted(&config),
        Err(sentence) => refused(&text, &sentence),
    }
}

/// Settings can be used, or each problem begins with a key. Settings that can be used can be written to a file.
fn accepted(config: &Config) {
    match config.validate() {
        Ok(()) => {
            let written = toml::to_string(config).expect("settings can be written");
            let read: Config = toml::from_str(&written).unwrap_or_else(|error| panic!("{written}\n{error}"));
            assert_eq!(&read, config, "{written}");
        }
        Err(error) => {
            for problem in error.problems {
                let key = problem.split(['.', ' ']).next().unwrap_or_default();
                assert!(TOP.contains(&key), "no key: {problem}");
            }
        }
    }
}

fn refused(text: &str, sentence: &str) {
    assert!(!sentence.is_empty() && !sentence.contains('\n'), "no sentence: {sentence:?}");
    // A sentence about a mistake in a key may contain text of the file itself.
    if !SECRET.iter().any(|secret| text.contains(secret)) {
        assert!(!SECRET.iter().any(|secret| sentence.contains(secret)), "a secret: {sentence}");
    }
    let Ok(table) = toml::from_str::<Table>(text) else {
        assert!(sentence.starts_with("keylane.toml is no TOML, line "), "{sentence}");
        return;
    };
    // The value of a key that can be a secret, unless the file has the same text elsewhere.
    let hidden = table.get("relay").into_iter().flat_map(hidden);
    let counts = |value: &String| value.len() > 5 && text.matches(value.as_str()).count() == 1;
    for value in hidden.filter(|value| counts(value) && !is_variable(value)) {
        assert!(!sentence.contains(&value), "a secret {value}: {sentence}");
    }
    let mut keys = BTreeSet::new();
    keys_of(&table, &mut keys);
    assert!(keys.iter().any(|key| sentence.contains(key)), "no key of {keys:?}: {sentence}");
}

fn keys_of(table: &Table, keys: &mut BTreeSet<String>) {
    for (key, value) in table {
        keys.insert(key.clone());
        let inner = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        inner.iter().filter_map(Value::as_table).for_each(|table| keys_of(table, keys));
    }
}

/// The values, of any type, under the keys of the relay that can be secrets.
fn hidden(relay: &Value) -> Vec<String> {
    let at = |path: &[&str]| path.iter().try_fold(relay, |value, key| value.get(key));
    let paths: [&[&str]; 4] =
        [&["database_url"], &["kafka", "properties"], &["webhook", "secrets"], &["webhook", "headers"]];
    let mut open: Vec<&Value> = paths.iter().filter_map(|path| at(path)).collect();
    let mut found = Vec::new();
    while let Some(value) = open.pop() {
        match value {
            Value::Table(table) => open.extend(table.values()),
            Value::Array(values) => open.extend(values),
            Value::String(text) => found.push(text.clone()),
            other => found.push(other.to_string()),
        }
    }
    found
}

/// A sentence names the variables that are missing.
fn is_variable(value: &str) -> bool {
    let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    name.is_some_and(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}
