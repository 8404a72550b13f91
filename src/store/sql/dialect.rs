//! The fragments of statements that differ between the databases: data, not code.

use crate::store::Tables;

/// The families of databases that share statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Postgres,
    MySql,
    Sqlite,
}

/// The fragments of one family of databases.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// Whether `$1` becomes `?`. The statements name each parameter once, in order.
    pub(crate) question_marks: bool,
    /// The clock of the database.
    pub(crate) now: &'static str,
    /// The microseconds since a time; `@` is the column.
    pub(crate) age: &'static str,
    /// The time some microseconds ago; `@` is the parameter.
    pub(crate) ago: &'static str,
    /// The time some microseconds from now; `@` is the parameter.
    pub(crate) later: &'static str,
    /// The time some microseconds after 1970; `@` is the parameter.
    pub(crate) at: &'static str,
    /// The end of a SELECT that leaves out rows that another transaction is about to change, and locks the
    /// other rows. Empty if the database has one writer at a time.
    pub(crate) unlocked: &'static str,
    /// Whether ranges of ids, joined by OR, are read by the primary key and lock no other row.
    pub(crate) or_of_ranges: bool,
    /// An expression as a 64-bit integer; `@` is the expression.
    pub(crate) int: &'static str,
    /// The start and the end of an insert that leaves an existing row unchanged.
    pub(crate) insert_new: (&'static str, &'static str),
    /// The end of a SELECT that locks its rows.
    pub(crate) lock: &'static str,
    /// Forces an index in spite of the statistics; `@` is the index.
    pub(crate) by: &'static str,
    /// The start of a DELETE that forces an index; `@1` is the table, `@2` the index.
    pub(crate) delete: &'static str,
    /// A text that identifies the tables of this row of `meta` among all databases.
    pub(crate) identity: &'static str,
    /// The number of the server. Another server has another number, and so has the same server once it may
    /// have lost commits. 0 if the database is a single file.
    pub(crate) server: &'static str,
    /// The statement that opens a transaction that writes.
    pub(crate) begin: &'static str,
    /// The mark of a transaction in which code of the user runs.
    pub(crate) mark: Mark,
}

/// A mark that ends with its transaction.
#[derive(Debug)]
pub(crate) struct Mark {
    /// The statement that sets the mark.
    pub(crate) set: &'static str,
    /// A statement that removes the mark and fails if there is none. `None` if a condition tests the mark.
    pub(crate) take: Option<&'static str>,
    /// Whether the row count of `take` includes rows of earlier statements, so that it is sent by itself.
    pub(crate) counts: bool,
    /// A condition that is true while the mark is there. Empty if `take` tests the mark.
    pub(crate) condition: &'static str,
    /// A query that returns 1 if the mark is there. Only sent if there is a condition.
    pub(crate) read: &'static str,
}

impl Dialect {
    /// Whether the database has one writer at a time, and no row locks.
    pub(crate) fn has_one_writer(&self) -> bool {
        self.unlocked.is_empty()
    }

    /// Renders a statement for these tables. Tokens without a fragment stay: each call fills them, see
    /// [`fill`](super::statements::fill).
    pub(crate) fn render(&self, template: &str, tables: &Tables) -> String {
        let lines = template.lines().filter(|line| !line.trim_start().starts_with("--"));
        let text = lines.collect::<Vec<_>>().join(" ");
        let mut sql = String::with_capacity(text.len() * 2);
        self.expand(&text, tables, &mut sql);
        if self.question_marks { with_question_marks(&sql) } else { sql }
    }

    /// The text of a parameter that replaces a token.
    pub(crate) fn parameter(&self, number: usize) -> String {
        if self.question_marks { "?".to_owned() } else { format!("${number}") }
    }

    /// The fragment of `{name}`.
    fn text(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "now" => self.now,
            "insert_new" => self.insert_new.0,
            "or_nothing" => self.insert_new.1,
            "lock" => self.lock,
            "unlocked" => self.unlocked,
            "server" => self.server,
            "identity" => self.identity,
            "marked" => self.mark.condition,
            _ => return None,
        })
    }

    /// The fragment of `{name:argument}`: `@` is the argument, `@1` and `@2` are its parts before and after `
    /// by `.
    fn pattern(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "age" => self.age,
            "ago" => self.ago,
            "later" => self.later,
            "int" => self.int,
            "by" => self.by,
            "delete" => self.delete,
            _ => return None,
        })
    }

    /// Appends a text with its tokens filled, in one pass from left to right.
    fn expand(&self, mut text: &str, tables: &Tables, sql: &mut String) {
        while let Some(at) = text.find('{') {
            sql.push_str(&text[..at]);
            text = &text[at..];
            let end = end_of_token(text);
            let token = text.get(1..end - 1).unwrap_or_default();
            match token.split_once(':').and_then(|(name, argument)| Some((self.pattern(name)?, argument))) {
                Some((pattern, argument)) => {
                    let (one, other) = argument.split_once(" by ").unwrap_or((argument, ""));
                    let filled = pattern.replace("@1", one).replace("@2", other).replace('@', argument);
                    self.expand(&filled, tables, sql);
                }
                None => match (token, self.text(token)) {
                    ("outbox", _) => sql.push_str(&tables.qualifier()),
                    ("index", _) => sql.push_str(tables.prefix()),
                    (_, Some(fragment)) => sql.push_str(fragment),
                    _ => sql.push_str(&text[..end]),
                },
            }
            text = &text[end..];
        }
        sql.push_str(text);
    }
}

/// The statement with a question mark for each parameter. A dollar is a parameter only before a digit: JSON
/// paths have a dollar before a point.
fn with_question_marks(sql: &str) -> String {
    let mut parts = sql.split('$');
    let mut marked = String::with_capacity(sql.len());
    marked.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        marked.push(if rest.len() < part.len() { '?' } else { '$' });
        marked.push_str(rest);
    }
    marked
}

/// The end of the token at the start of a text. An argument may contain other tokens.
fn end_of_token(text: &str) -> usize {
    let mut depth = 0;
    let closes = |(_, c): &(usize, char)| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    text.char_indices().find(closes).map_or(text.len(), |(at, _)| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect {
        question_marks: true,
        now: "NOW",
        age: "AGE(@)",
        ago: "AGO(@)",
        later: "LATER(@)",
        at: "AT(@)",
        unlocked: "SKIP LOCKED",
        or_of_ranges: false,
        int: "INT(@)",
        insert_new: ("INSERT IGNORE INTO", ""),
        lock: "FOR UPDATE",
        by: "BY(@)",
        delete: "DELETE {outbox}@1 FROM {outbox}@1 BY(@2)",
        identity: "",
        server: "SERVER",
        begin: "BEGIN",
        mark: Mark { set: "MARK", take: None, counts: false, condition: "MARKED", read: "1" },
    };

    #[test]
    fn tokens_and_parameters_are_filled() {
        let template = "-- why\nSELECT {int:a}, {age:b}\nFROM {outbox}x WHERE t < {ago:$1} AND p = '$.id' AND u = $2 {lock}";
        assert_eq!(
            DIALECT.render(template, &Tables::default()),
            "SELECT INT(a), AGE(b) FROM outbox_x WHERE t < AGO(?) AND p = '$.id' AND u = ? FOR UPDATE"
        );
    }

    #[test]
    fn what_changes_with_each_call_stays_a_token() {
        let sql = DIALECT.render("WHERE id IN ({ids}) AND {unknown:x} = '$[*]' {", &Tables::default());
        assert_eq!(sql, "WHERE id IN ({ids}) AND {unknown:x} = '$[*]' {");
        assert_eq!(DIALECT.parameter(2), "?");
        assert_eq!(Dialect { question_marks: false, ..DIALECT }.parameter(2), "$2");
    }

    #[test]
    fn an_index_is_named_with_its_table() {
        let sql = DIALECT.render("{delete:lane by {index}lane_record} WHERE id = $1", &Tables::default());
        assert_eq!(sql, "DELETE outbox_lane FROM outbox_lane BY(outbox_lane_record) WHERE id = ?");
    }
}
