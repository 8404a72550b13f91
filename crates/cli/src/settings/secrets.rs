//! Variables of the environment in a file: `${NAME}` stands for a variable, and `$${` for `${` itself.

use std::cmp::Reverse;

use toml::{Table, Value};

use super::SettingsError;

/// The values that came from the environment. No text for the user contains them.
#[derive(Clone, Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// A value from outside the file, which must not be shown.
    pub(crate) fn keep(&mut self, name: &str, value: &str) {
        if value.is_empty() {
            return;
        }
        // Sentences quote a value as it is, or with its quotes and line ends escaped.
        let quoted = format!("{value:?}");
        let name = format!("${{{name}}}");
        self.0.push((name.clone(), quoted[1..quoted.len() - 1].to_owned()));
        self.0.push((name, value.to_owned()));
        // Longer values come first, because a value can be a part of another one and no part may be left.
        self.0.sort_by_key(|(_, value)| Reverse(value.len()));
        self.0.dedup();
    }

    /// The text with the names of the variables in place of their values.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(value, name))
    }

    /// Puts the values in, in all texts of a table.
    pub(super) fn fill(
        &mut self,
        table: &mut Table,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), SettingsError> {
        table.iter_mut().try_for_each(|(key, value)| self.fill_value(key, value, variable))
    }

    fn fill_value(
        &mut self,
        key: &str,
        value: &mut Value,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(), SettingsError> {
        match value {
            Value::String(text) if text.contains("${") => *text = self.filled(key, text, variable)?,
            Value::Array(values) => {
                for value in values {
                    self.fill_value(key, value, variable)?;
                }
            }
            Value::Table(table) => {
                for (inner, value) in table.iter_mut() {
                    self.fill_value(&format!("{key}.{inner}"), value, variable)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn filled(
        &mut self,
        key: &str,
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, SettingsError> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            if let Some(before) = before.strip_suffix('$') {
                filled.push_str(before);
                filled.push_str("${");
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err(SettingsError::Unclosed { key: key.to_owned() });
            };
            if !is_name(name) {
                return Err(SettingsError::NoName { key: key.to_owned() });
            }
            let value = variable(name);
            let value = value
                .ok_or_else(|| SettingsError::Variable { key: key.to_owned(), name: name.to_owned() })?;
            self.keep(name, &value);
            filled.push_str(before);
            filled.push_str(&value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn is_name(name: &str) -> bool {
    let joins = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(joins) && !name.starts_with(|c: char| c.is_ascii_digit())
}
