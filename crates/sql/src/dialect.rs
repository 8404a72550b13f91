//! The differences between the databases in the text of a statement: data, not code.

use crate::tables::Tables;

/// The families of databases that share statements. MariaDB is of the family of MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// PostgreSQL 15 and later.
    Postgres,
    /// MySQL 8 and later, MariaDB 10.6 and later.
    MySql,
    /// SQLite: one transaction writes at a time.
    Sqlite,
}

/// The fragments of one family.
///
/// | token | stands for |
/// | --- | --- |
/// | `{now}` | the clock of the database |
/// | `{micros}` | the same, in microseconds since 1970 |
/// | `{later:$1}`, `{ago:$1}` | the time so many milliseconds from now, or ago |
/// | `{left:column}` | the milliseconds until a time |
/// | `{int:expression}` | an expression as a 64-bit integer |
/// | `{in:$1}` | the condition that a value is in a list: [`Value::Texts`](crate::Value::Texts) or `Exacts` |
#[derive(Debug)]
pub struct Dialect {
    /// Which family.
    pub family: Family,
    /// Opens a transaction that writes.
    pub begin: &'static str,
    pub(crate) now: &'static str,
    pub(crate) micros: &'static str,
    /// `@` is the parameter; in `left` the column, in `int` the expression.
    pub(crate) later: &'static str,
    pub(crate) ago: &'static str,
    pub(crate) left: &'static str,
    pub(crate) int: &'static str,
    pub(crate) is_in: &'static str,
    /// The statements before and after a migration, so that two migrations never run at once; `@` is the number of
    /// the tables.
    pub(crate) alone: (&'static str, &'static str),
}

impl Dialect {
    /// The text of a statement on these tables.
    ///
    /// Number the parameters `$1`, `$2` in their order and name each once: where the database counts them by their
    /// places, each becomes `?`. A token that is not in the table above stays, and the caller fills it.
    pub fn render(&self, template: &str, tables: &Tables) -> String {
        let mut sql = String::with_capacity(template.len() * 2);
        self.expand(&tables.name(template), &mut sql);
        sql
    }

    /// Appends a text with its tokens and parameters filled, from left to right.
    fn expand(&self, mut text: &str, sql: &mut String) {
        while let Some(at) = text.find(['{', '$']) {
            sql.push_str(&text[..at]);
            text = &text[at..];
            if let Some(rest) = text.strip_prefix('$') {
                let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                let number = &rest[..rest.len() - after.len()];
                let counts_places = self.family == Family::MySql && !number.is_empty();
                sql.push_str(if counts_places { "?" } else { &text[..1 + number.len()] });
                text = after;
                continue;
            }
            let Some(end) = end_of_token(text) else { break };
            match self.fragment(&text[1..end - 1]) {
                Some(filled) => self.expand(&filled, sql),
                None => sql.push_str(&text[..end]),
            }
            text = &text[end..];
        }
        sql.push_str(text);
    }

    /// The fragment of a token, if the token is one of the dialect's.
    fn fragment(&self, token: &str) -> Option<String> {
        let (name, argument) = token.split_once(':').unwrap_or((token, ""));
        let fragment = match name {
            "now" => self.now,
            "micros" => self.micros,
            "later" => self.later,
            "ago" => self.ago,
            "left" => self.left,
            "int" => self.int,
            "in" => self.is_in,
            _ => return None,
        };
        Some(fragment.replace('@', argument))
    }
}

/// The place after the brace that closes the one at the start.
fn end_of_token(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => continue,
        }
        if open == 0 {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
#[cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod tests {
    use crate::{SqlDatabase, Tables};

    /// On PostgreSQL, MySQL and SQLite.
    fn rendered(template: &str) -> [String; 3] {
        let tables = Tables::of("shop");
        let dialects = [sqlx::Postgres::DIALECT, sqlx::MySql::DIALECT, sqlx::Sqlite::DIALECT];
        dialects.map(|dialect| dialect.render(template, &tables))
    }

    #[test]
    fn parameters_become_question_marks_where_places_count() {
        let [postgres, mysql, sqlite] = rendered("SELECT $1, {int:$2}, $10 FROM {shop}cart, '$.a', '$'");
        assert_eq!(postgres, "SELECT $1, ($2)::int8, $10 FROM shop_cart, '$.a', '$'");
        assert_eq!(mysql, "SELECT ?, CAST(? AS SIGNED), ? FROM shop_cart, '$.a', '$'");
        assert_eq!(sqlite, "SELECT $1, CAST($2 AS INTEGER), $10 FROM shop_cart, '$.a', '$'");
    }

    #[test]
    fn tokens_may_stand_within_tokens() {
        let [postgres, mysql, sqlite] = rendered("{int:{left:ends_at}}");
        assert_eq!(postgres, "(extract(epoch FROM ends_at - clock_timestamp()) * 1000)::int8");
        assert_eq!(mysql, "CAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ends_at) / 1000 AS SIGNED)");
        let now = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
        assert_eq!(sqlite, format!("CAST((ends_at - {now}) / 1000 AS INTEGER)"));
    }

    #[test]
    fn what_is_not_known_stays() {
        let [postgres, mysql, _] = rendered("{rows} {ids:$1} {in:$2} {now");
        assert_eq!(postgres, "{rows} {ids:$1} = ANY($2::text[]) {now");
        assert_eq!(mysql, "{rows} {ids:$1} IN ({list}) {now");
    }
}
