//! The names of the tables, checked once: nothing else is ever spliced into a statement.

/// The longest prefix, in bytes.
const LONGEST_PREFIX: usize = 32;
/// The longest schema, in bytes.
const LONGEST_SCHEMA: usize = 40;

/// A schema or prefix that cannot be.
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

/// The names of the tables of one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tables {
    /// The token that stands for the schema and the prefix.
    token: String,
    /// What stands before a table's own name.
    qualifier: String,
    prefix: String,
}

impl Tables {
    /// The default names: for `inbox`, the token `{inbox}` stands for `inbox_`, in the schema of the connection.
    pub fn of(name: &'static str) -> Self {
        let prefix = format!("{name}_");
        Self { token: format!("{{{name}}}"), qualifier: prefix.clone(), prefix }
    }

    /// The same tables in another schema, with another prefix.
    ///
    /// # Errors
    /// [`BadName`] for anything but lower-case letters, digits and underscores.
    pub fn placed(self, schema: Option<&str>, prefix: &str) -> Result<Self, BadName> {
        check("table_prefix", prefix, LONGEST_PREFIX)?;
        if let Some(schema) = schema {
            check("schema", schema, LONGEST_SCHEMA)?;
        }
        let qualifier = schema.map_or_else(|| prefix.to_owned(), |schema| format!("{schema}.{prefix}"));
        Ok(Self { token: self.token, qualifier, prefix: prefix.to_owned() })
    }

    /// A text with the names in the place of their tokens. `{index}` stands for the prefix alone, because an index is
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
            assert!(Tables::of("lock").placed(None, name).is_err(), "{name:?}");
            assert!(Tables::of("lock").placed(Some(name), "lock_").is_err(), "{name:?}");
        }
        assert!(Tables::of("lock").placed(Some(&long[..40]), &long[..32]).is_ok());
        assert!(Tables::of("lock").placed(None, &long[..33]).is_err());
    }

    #[test]
    fn tokens_become_names() {
        let text = "CREATE INDEX {index}by_age ON {lock}ticket ({other})";
        assert_eq!(Tables::of("lock").name(text), "CREATE INDEX lock_by_age ON lock_ticket ({other})");
        let placed = Tables::of("lock").placed(Some("billing"), "l_").unwrap();
        assert_eq!(placed.name(text), "CREATE INDEX l_by_age ON billing.l_ticket ({other})");
    }
}
