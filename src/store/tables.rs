//! The names of the tables, validated once: no other text of the user is spliced into a statement.

/// Names of the outbox's tables: an optional schema and a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tables {
    schema: Option<String>,
    prefix: String,
}

/// A prefix or schema that is not a valid identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} is not valid: use at most {limit} lower-case letters, digits and underscores, not starting with a digit"
)]
pub struct BadName {
    /// The name of the setting: `table_prefix` or `schema`.
    pub what: &'static str,
    /// The refused name.
    pub name: String,
    /// The longest allowed length in bytes.
    pub limit: usize,
}

impl Default for Tables {
    fn default() -> Self {
        Self { schema: None, prefix: "outbox_".to_owned() }
    }
}

impl Tables {
    /// Names from a schema and a prefix. The default prefix is `outbox_`.
    ///
    /// # Errors
    /// [`BadName`] unless both are lower-case identifiers of at most 40 bytes (schema) and 32 bytes (prefix).
    pub fn new(schema: Option<&str>, prefix: &str) -> Result<Self, BadName> {
        let is_identifier = |name: &str, limit: usize| {
            let tail = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            name.len() <= limit && name.bytes().all(tail) && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        if !is_identifier(prefix, 32) || prefix.is_empty() {
            return Err(BadName { what: "table_prefix", name: prefix.to_owned(), limit: 32 });
        }
        if let Some(schema) = schema.filter(|schema| schema.is_empty() || !is_identifier(schema, 40)) {
            return Err(BadName { what: "schema", name: schema.to_owned(), limit: 40 });
        }
        Ok(Self { schema: schema.map(str::to_owned), prefix: prefix.to_owned() })
    }

    /// The schema, or `None` if none was given.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The prefix, `outbox_` by default.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The text before the own name of a table in a statement: `schema.prefix`.
    pub fn qualifier(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{}", self.prefix),
            None => self.prefix.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_carry_sql_are_refused() {
        let long = "x".repeat(33);
        for prefix in ["", "Outbox_", "out box", "a;b", "a\"b", "1st_", "über", "a.b", "a'--", long.as_str()]
        {
            assert!(Tables::new(None, prefix).is_err(), "{prefix:?}");
        }
        for schema in ["", "pg-catalog", "x;drop", "Öl"] {
            assert!(Tables::new(Some(schema), "outbox_").is_err(), "{schema:?}");
        }
    }

    #[test]
    fn a_qualifier_has_schema_and_prefix() {
        assert_eq!(Tables::default().qualifier(), "outbox_");
        assert_eq!(Tables::new(Some("billing"), "ob_").unwrap().qualifier(), "billing.ob_");
    }
}
