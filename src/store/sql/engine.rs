//! The engine of a server, by the text of its version. An engine that speaks a dialect but would break a
//! promise is refused by name.
//!
//! All else is the same on every engine, in the strictest form that any engine needs: the fence row is
//! written (never only locked), transactions are READ COMMITTED, and only the purge of the strict order's
//! keys and the check for cancelled records skip locked rows.

use crate::store::SchemaError;

/// Engines whose ids do not follow the order of inserts: the mark in the version text, the name, and the
/// reason.
const REFUSED: &[(&str, &str, &str)] = &[
    ("CockroachDB", "CockroachDB", "its identity columns are not ordered"),
    ("-YB-", "YugabyteDB", "each of its servers hands out ids from a range of its own"),
    ("TiDB", "TiDB", "each of its servers hands out ids from a range of its own"),
    ("vitess", "Vitess", "each of its shards hands out ids from a range of its own"),
];

/// Why this server is refused, or `None`. `version` is the result of `version()`.
pub(crate) fn refusal(version: &str) -> Option<SchemaError> {
    let text = version.to_lowercase();
    let found = REFUSED.iter().find(|(mark, ..)| text.contains(&mark.to_lowercase()));
    found.map(|(_, engine, reason)| SchemaError::Engine { engine, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_without_ordered_ids_are_refused_and_the_others_are_not() {
        for version in [
            "CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)",
            "PostgreSQL 15.2-YB-2.25.0.0-b0 on x86_64-pc-linux-gnu",
            "8.0.11-TiDB-v8.5.0",
            "8.0.30-Vitess",
        ] {
            assert!(refusal(version).is_some(), "{version}");
        }
        for version in [
            "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit",
            "10.11.19-MariaDB-0+deb12u1",
            "9.7.4",
        ] {
            assert!(refusal(version).is_none(), "{version}");
        }
    }
}
