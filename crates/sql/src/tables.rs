//! The names of the tables, which are checked once. No other text is inserted into a statement.

/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 32;
/// The longest schema, in bytes.
const LONGEST_SCHEMA: usize = 40;

/// A schema or a prefix that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not valid: use at most {limit} lower-case letters, digits and underscores, not starting with a digit"
)]
#[non_exhaustive]
pub struct BadName {
    /// `table_prefix` or `schema`.
    pub what: &'static str,
    /// The name given.
    pub name: String,
    /// Its longest length in bytes.
    pub limit: usize,
}

/// Where the tables of a crate are: their schema and what their names begin with, as a user has set them.
#[derive(Clone, Debug)]
pub struct Placement {
    name: &'static str,
    schema: Option<String>,
    prefix: String,
}

/// The names of the tables of one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The token that stands for the schema and the prefix.
    token: String,
    /// What stands before a table's own name.
    qualifier: String,
    prefix: String,
}

impl Placement {
    /// The default: for `inbox`, the prefix `inbox_` in the schema of the connection.
    pub fn of(name: &'static str) -> Self {
        Self { name, schema: None, prefix: format!("{name}_") }
    }

    /// Another schema.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = Some(schema.into());
        self
    }

    /// Another prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// The tables there.
    ///
    /// # Errors
    /// [`BadName`] for anything but lower-case letters, digits and underscores.
    pub fn tables(&self) -> Result<Tables, BadName> {
        check("table_prefix", &self.prefix, LONGEST_PREFIX)?;
        let mut qualifier = self.prefix.clone();
        if let Some(schema) = &self.schema {
            check("schema", schema, LONGEST_SCHEMA)?;
            qualifier = format!("{schema}.{qualifier}");
        }
        Ok(Tables { qualifier, prefix: self.prefix.clone(), ..Tables::of(self.name) })
    }
}

impl Tables {
    /// The default names: for `inbox`, the token `{inbox}` stands for `inbox_`, in the schema of the connection.
    pub fn of(name: &'static str) -> Self {
        let prefix = format!("{name}_");
        Self { token: format!("{{{name}}}"), qualifier: prefix.clone(), prefix }
    }

    /// A text with the names in the place of their tokens. `{index}` is only the prefix, because an index is
    /// made in the schema of its table.
    pub fn name(&self, text: &str) -> String {
        text.replace(&self.token, &self.qualifier).replace("{index}", &self.prefix)
    }

    /// What stands before a table's own name: the schema and the prefix.
    pub fn qualifier(&self) -> &str {
        &self.qualifier
    }
}

fn check(what: &'static str, name: &str, limit: usize) -> Result<(), BadName> {
    let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    if starts && name.len() <= limit && name.bytes().all(tail) {
        return Ok(());
    }
    Err(BadName { what, name: name.to_owned(), limit })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_carry_sql_are_refused() {
        let long = "x".repeat(41);
        for name in ["", "Lock_", "in box", "a;b", "a\"b", "1st_", "über", "a.b", "a'--", long.as_str()] {
            assert!(Placement::of("lock").prefix(name).tables().is_err(), "{name:?}");
            assert!(Placement::of("lock").schema(name).tables().is_err(), "{name:?}");
        }
        assert!(Placement::of("lock").schema(&long[..40]).prefix(&long[..32]).tables().is_ok());
        assert!(Placement::of("lock").prefix(&long[..33]).tables().is_err());
    }

    #[test]
    fn tokens_become_names() {
        let text = "CREATE INDEX {index}by_age ON {lock}ticket ({other})";
        assert_eq!(Tables::of("lock").name(text), "CREATE INDEX lock_by_age ON lock_ticket ({other})");
        assert_eq!(Placement::of("lock").tables(), Ok(Tables::of("lock")));
        let placed = Placement::of("lock").schema("billing").prefix("l_").tables().unwrap();
        assert_eq!(placed.name(text), "CREATE INDEX l_by_age ON billing.l_ticket ({other})");
    }
}
