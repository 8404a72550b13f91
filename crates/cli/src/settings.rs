//! The file of settings: those of the outbox, and in its table `[relay]` those of the relay.

mod refusal;
mod secrets;

use std::path::{Path, PathBuf};

use keylane::Config;
use toml::{Table, Value};

use self::refusal::refusal;
pub(crate) use self::secrets::Secrets;

/// The most records that a relay has in memory, unless the file sets it. Brokers answer in batches, and several
/// batches are under way at once.
const RELAY_IN_FLIGHT: i64 = 16_000;

/// The most records per fetch of a relay, unless the file sets it. The relay shares its processors with the threads of
/// the Kafka client, so it often waits for one between two fetches.
const RELAY_BATCH: i64 = 2_000;

/// The settings of a file.
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The table `[relay]`, not yet checked.
    pub(crate) relay: Option<Table>,
    /// The values that came from variables of the environment.
    #[cfg_attr(not(feature = "kafka"), expect(dead_code, reason = "only the relay reads on from here"))]
    pub(crate) secrets: Secrets,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SettingsError {
    #[error("{} cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: std::io::Error },
    /// The text of the parser quotes lines of the file, which can have secrets.
    #[error("{} is no TOML, line {line}: {problem}", path.display())]
    Syntax { path: PathBuf, line: usize, problem: String },
    #[error(
        "{key} names the variable {name}, which the environment does not have: set {name}, or write $${{{name}}} for the text itself"
    )]
    Variable { key: String, name: String },
    #[error("{key} has a ${{ without its }}: write ${{NAME}} for a variable, or $${{ for the text itself")]
    Unclosed { key: String },
    /// The value can be a part of a secret, so it is not shown.
    #[error(
        "{key} has a ${{ that begins no variable: write ${{NAME}} with letters, digits and _, or $${{ for the text itself"
    )]
    NoName { key: String },
    /// An unknown key or an invalid value.
    #[error("{0}")]
    Refused(String),
}

impl Settings {
    /// Reads a file; the defaults if there is none.
    pub(crate) fn read(path: Option<&Path>) -> Result<Self, SettingsError> {
        let Some(path) = path else { return Self::parse("", Path::new(""), |_| None) };
        let text = std::fs::read_to_string(path)
            .map_err(|error| SettingsError::Read { path: path.to_owned(), error })?;
        Self::parse(&text, path, |name| std::env::var(name).ok())
    }

    /// The address of the database in the table `[relay]`.
    pub(crate) fn database_url(&self) -> Option<String> {
        self.relay.as_ref()?.get("database_url")?.as_str().map(str::to_owned)
    }

    /// Reads the text of a file.
    pub(crate) fn parse(
        text: &str,
        path: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let mut table: Table = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text[..at].matches('\n').count() + 1;
            let problem = error.message().to_owned();
            SettingsError::Syntax { path: path.to_owned(), line, problem }
        })?;
        let mut secrets = Secrets::default();
        secrets.fill(&mut table, &variable)?;
        let relay = match table.remove("relay") {
            Some(Value::Table(relay)) => Some(relay),
            Some(_) => return Err(SettingsError::Refused("relay must be a table: write [relay]".to_owned())),
            None => None,
        };
        if relay.is_some() {
            let delivery = table.entry("delivery").or_insert_with(|| Table::new().into());
            if let Value::Table(delivery) = delivery {
                let in_memory =
                    delivery.entry("max_in_flight").or_insert(RELAY_IN_FLIGHT.into()).as_integer();
                // A batch must have room in memory.
                if let Some(in_memory) = in_memory.filter(|in_memory| *in_memory > 0) {
                    delivery.entry("batch_size").or_insert(RELAY_BATCH.min(in_memory).into());
                }
            }
        }
        let config = secrets.deserialize("", table)?;
        Ok(Self { config, relay, secrets })
    }
}

impl Secrets {
    /// Reads a table. The error names the key, and none of the values from the environment.
    pub(crate) fn deserialize<T: serde::de::DeserializeOwned>(
        &self,
        within: &str,
        table: Table,
    ) -> Result<T, SettingsError> {
        let read = Value::Table(table).try_into();
        // This comes before the text is split into lines: a value can have more than one line.
        read.map_err(|error: toml::de::Error| {
            SettingsError::Refused(refusal(within, &self.redact(&error.to_string())))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(text: &str) -> Result<Settings, SettingsError> {
        let variable = |name: &str| (name == "PASSWORD").then(|| "hunter2".to_owned());
        Settings::parse(text, Path::new("keylane.toml"), variable)
    }

    fn refused(text: &str) -> String {
        parse(text).err().unwrap().to_string()
    }

    #[test]
    fn an_empty_file_has_the_defaults() {
        let settings = parse("").unwrap();
        assert!(settings.config == Config::default() && settings.relay.is_none());
    }

    #[test]
    fn a_relay_has_more_records_in_memory_and_per_fetch_unless_the_file_says_how_many() {
        let in_memory = |text: &str| parse(text).unwrap().config.delivery.max_in_flight;
        assert_eq!(in_memory(""), Config::default().delivery.max_in_flight);
        assert_eq!(in_memory("[relay]"), 16_000);
        assert_eq!(in_memory("[delivery]\nbatch_size = 500\n[relay]"), 16_000);
        assert_eq!(in_memory("[delivery]\nmax_in_flight = 2000\n[relay]"), 2_000);
        let batch = |text: &str| parse(text).unwrap().config.delivery.batch_size;
        assert_eq!(batch(""), Config::default().delivery.batch_size);
        assert_eq!(batch("[relay]"), 2_000);
        assert_eq!(batch("[delivery]\nbatch_size = 500\n[relay]"), 500);
        assert_eq!(batch("[delivery]\nmax_in_flight = 700\n[relay]"), 700);
    }

    #[test]
    fn an_unknown_key_is_named_with_the_nearest_one() {
        let table = [
            (
                "[delivery]\npol_interval = \"1s\"",
                "the key delivery.pol_interval is unknown: did you mean poll_interval?",
            ),
            ("table_prefx = \"a_\"", "the key table_prefx is unknown: did you mean table_prefix?"),
        ];
        for (text, expected) in table {
            assert_eq!(refused(text), expected);
        }
        let far = refused("[database]\nzzzzzzzz = 1");
        assert!(
            far.starts_with("the key database.zzzzzzzz is unknown: it can be ")
                && far.contains("call_timeout")
        );
    }

    #[test]
    fn a_value_of_the_environment_is_in_no_refusal() {
        let said = refused("[delivery]\nbatch_size = \"${PASSWORD}\"");
        assert!(said.contains("delivery.batch_size") && !said.contains("hunter2"), "{said}");
    }

    /// A sentence had the parts of a value that were escaped, behind the end of a line, or behind another value.
    #[test]
    fn no_part_of_a_value_of_the_environment_is_in_a_refusal() {
        let variable = |name: &str| match name {
            "PASSWORD" => Some("hunter2\"\\\nswordfish".to_owned()),
            "LONGER" => Some("hunter2\"\\\nswordfish-again".to_owned()),
            _ => None,
        };
        for value in ["${PASSWORD}", "${LONGER}", "a ${PASSWORD}${LONGER}"] {
            for key in ["schedule.order", "delivery.batch_size", "delivery.poll_interval", "retry.backoff"] {
                let text = format!("schema = '${{PASSWORD}}${{LONGER}}'\n{key} = '{value}'");
                let said =
                    Settings::parse(&text, Path::new("keylane.toml"), variable).err().unwrap().to_string();
                let has_secret = ["hunter2", "swordfish", "again"].iter().any(|part| said.contains(part));
                assert!(said.contains(key.split('.').next_back().unwrap()) && !has_secret, "{said}");
            }
        }
    }

    /// The sentence had what followed, up to the next brace.
    #[test]
    fn a_secret_that_looks_like_a_variable_is_not_shown() {
        for value in ["${hunter2-swordfish}", "a${}b", "${1st}", "${a\\nb}", "${${PASSWORD}}"] {
            let said = refused(&format!("schema = \"{value}\""));
            assert!(said.starts_with("schema has a ${ that begins no variable: "), "{said}");
        }
    }

    #[test]
    fn variables_stand_in_texts() {
        let settings = parse("schema = \"a-${PASSWORD}-$${B}-$\"").unwrap();
        assert_eq!(settings.config.schema.unwrap(), "a-hunter2-${B}-$");
        let said = refused("schema = \"${MISSING}\"");
        assert!(said.starts_with("schema names the variable MISSING"), "{said}");
        assert!(refused("schema = \"${MISSING\"").contains("without its }"));
    }

    #[test]
    fn what_is_no_toml_is_told_by_its_line() {
        let said = refused("schema = \"a\"\nthis is not\n");
        assert!(said.starts_with("keylane.toml is no TOML, line 2: "), "{said}");
    }
}
