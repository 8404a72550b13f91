//! The names of the tables, checked once: nothing else is ever spliced into a statement.

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

/// Names of the tables.
#[derive(Clone, Debug)]
pub(crate) struct Tables {
    /// What stands before a table's own name.
    pub(crate) qualifier: String,
}

impl Tables {
    pub(crate) fn new(schema: Option<&str>, prefix: &str) -> Result<Self, BadName> {
        let checked = |what: &'static str, name: &str, limit: usize| {
            let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            let starts = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
            if starts && name.len() <= limit && name.bytes().all(tail) {
                return Ok(());
            }
            Err(BadName { what, name: name.to_owned(), limit })
        };
        checked("table_prefix", prefix, 32)?;
        if let Some(schema) = schema {
            checked("schema", schema, 40)?;
        }
        let qualifier = schema.map_or_else(|| prefix.to_owned(), |schema| format!("{schema}.{prefix}"));
        Ok(Self { qualifier })
    }

    /// A text with the name in the place of its token.
    pub(crate) fn name(&self, text: &str) -> String {
        text.replace("{lock}", &self.qualifier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_carry_sql_are_refused() {
        let long = "x".repeat(41);
        for name in ["", "Lock_", "in box", "a;b", "a\"b", "1st_", "über", "a.b", "a'--", long.as_str()] {
            assert!(Tables::new(None, name).is_err(), "{name:?}");
            assert!(Tables::new(Some(name), "lock_").is_err(), "{name:?}");
        }
        assert_eq!(Tables::new(Some("billing"), "in_").map(|t| t.qualifier), Ok("billing.in_".to_owned()));
    }
}
