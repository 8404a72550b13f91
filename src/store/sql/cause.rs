//! The one-line text of an error of sqlx, without values of the user.

use super::{dialect::Family, driver::Driver};
use crate::store::{SchemaError, StoreError};

/// The text for missing tables: how to create them.
const MIGRATE: &str = "the outbox tables are missing: call Outbox::migrate(), or have a DBA run the output \
                       of `keylane migrate --print`";

/// The text for a missing right.
const GRANT: &str = "give this user of the database the rights in docs/schema.md";

/// Whether the server says that a table or its schema does not exist.
pub(super) fn lacks_table<D: Driver>(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|server| is_missing_table(D::FAMILY, &D::code_of(server), server.message()))
}

/// Whether the server says that this user lacks a right.
pub(super) fn lacks_right<D: Driver>(error: &StoreError) -> bool {
    let server = error.cause.downcast_ref().and_then(sqlx::Error::as_database_error);
    server.is_some_and(|server| is_missing_right(D::FAMILY, &D::code_of(server)))
}

/// The error in one line. If a text of the server may quote a key or a payload, the line has the code and the
/// name of the constraint instead.
pub(super) fn line<D: Driver>(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(server) => {
            let (family, code, text) = (D::FAMILY, D::code_of(&**server), server.message());
            if is_missing_table(family, &code, text) {
                return format!("{text} (code {code}); {MIGRATE}");
            }
            if is_missing_right(family, &code) {
                return format!("{text} (code {code}); {GRANT}");
            }
            match (is_plain(family, &code, text), constraint(family, &**server)) {
                (true, _) => format!("{text} (code {code})"),
                (false, Some(constraint)) => {
                    format!("the server refused it: code {code}, constraint {constraint}")
                }
                (false, None) => format!("the server refused it: code {code}"),
            }
        }
        sqlx::Error::Configuration(cause) if cause.is::<SchemaError>() => cause.to_string(),
        // The text may quote the value that could not be decoded.
        sqlx::Error::ColumnDecode { index, .. } => format!("column {index} could not be decoded"),
        sqlx::Error::Decode(_) => "a value could not be decoded".to_owned(),
        other => other.to_string(),
    }
}

fn is_missing_table(family: Family, code: &str, text: &str) -> bool {
    match family {
        Family::Postgres => matches!(code, "42P01" | "3F000"),
        Family::MySql => code == "1146",
        Family::Sqlite => code == "1" && text.starts_with("no such table"),
    }
}

fn is_missing_right(family: Family, code: &str) -> bool {
    match family {
        Family::Postgres => code == "42501",
        Family::MySql => matches!(code, "1044" | "1142" | "1143"),
        Family::Sqlite => false,
    }
}

/// The error numbers of MySQL and MariaDB whose texts name only tables, columns, users, hosts and limits.
const PLAIN_ON_MYSQL: &str = "1020 1021 1040 1041 1044 1045 1047 1049 1050 1053 1054 1077 1114 1130 1142 1143 1146 \
     1153 1203 1205 1213 1226 1227 1290 1305 1364 1370 1406 1792 1836 1927 1969 3024 3572 4031";

/// Whether the text is known to hold only names and numbers. An unknown text is treated as one that may quote
/// values.
fn is_plain(family: Family, code: &str, text: &str) -> bool {
    match family {
        Family::Postgres => {
            // Connections, rights, names, limits, states of the server and of the transaction.
            let classes = ["08", "0A", "25", "26", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"];
            code.get(..2).is_some_and(|class| classes.contains(&class))
        }
        Family::MySql => PLAIN_ON_MYSQL.split(' ').any(|plain| plain == code),
        Family::Sqlite => match code.parse::<i64>().map(|code| (code, code & 0xff)) {
            // A syntax error quotes the statement, and 1811 has the text of a trigger.
            Ok((_, 1)) => text.starts_with("no such"),
            Ok((1811, _)) => false,
            Ok((_, 3..=11 | 13..=17 | 19 | 21..=26)) => true,
            _ => false,
        },
    }
}

fn constraint(family: Family, error: &dyn sqlx::error::DatabaseError) -> Option<String> {
    if let Some(name) = error.constraint() {
        return Some(name.to_owned());
    }
    // A text of MySQL has the name at the end, after the value.
    let (_, name) = error.message().rsplit_once("for key '").filter(|_| family == Family::MySql)?;
    Some(name.trim_end_matches('\'').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_knows_is_not_quoted() {
        let plain = |family, code| is_plain(family, code, "any text");
        for code in ["23505", "22P02", "22001", "P0001", "XX000", "", "4"] {
            assert!(!plain(Family::Postgres, code), "{code}");
        }
        for code in ["1062", "1366", "1292", "1064", "1644", "65535", "", "x"] {
            assert!(!plain(Family::MySql, code), "{code}");
        }
        for code in ["1811", "1", "20", "", "x"] {
            assert!(!plain(Family::Sqlite, code), "{code}");
        }
    }

    #[test]
    fn states_of_the_server_are_told_in_its_words() {
        let plain = |family, code| is_plain(family, code, "any text");
        assert!(
            ["57P01", "42501", "53300", "40P01", "28P01"].iter().all(|code| plain(Family::Postgres, code))
        );
        assert!(["1040", "1045", "1205", "1213", "1290"].iter().all(|code| plain(Family::MySql, code)));
        assert!(["5", "517", "8", "13", "2067"].iter().all(|code| plain(Family::Sqlite, code)));
    }
}
