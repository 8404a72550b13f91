//! What differs between the databases in the text of a statement: data, not code.

use crate::store::Tables;

/// The fragments of one family of databases.
#[derive(Debug)]
pub(crate) struct Dialect {
    /// `$1` becomes `?`; the statements name each parameter once, in order.
    pub(crate) question_marks: bool,
    /// The database's clock.
    pub(crate) now: &'static str,
    /// Microseconds since a time; `@` is the column.
    pub(crate) age: &'static str,
    /// A time that many microseconds ago; `@` is the parameter.
    pub(crate) ago: &'static str,
    /// A time that many microseconds from now; `@` is the parameter.
    pub(crate) later: &'static str,
    /// A time that many microseconds after 1970; `@` is the parameter.
    pub(crate) at: &'static str,
    /// An expression as a 64-bit integer; `@` is the expression.
    pub(crate) int: &'static str,
    /// The start and the end of an insert that leaves an existing row alone.
    pub(crate) insert_new: (&'static str, &'static str),
    /// Locks the rows that a SELECT reads.
    pub(crate) lock: &'static str,
    /// Makes a statement take an index whatever the statistics say; `@` is the index.
    pub(crate) by: &'static str,
    /// The start of a DELETE that takes an index whatever the statistics say; `@1` is the table, `@2` the index.
    pub(crate) delete: &'static str,
    /// A text that tells the tables of this row of `meta` from all others.
    pub(crate) identity: &'static str,
    /// The server and its start as a number, where ids have the history of one server.
    pub(crate) server: &'static str,
    /// Opens a transaction that writes.
    pub(crate) begin: &'static str,
    /// What a transaction bears in which code of the user's runs.
    pub(crate) mark: Mark,
}

/// A mark that ends with its transaction.
#[derive(Debug)]
pub(crate) struct Mark {
    /// Sets it.
    pub(crate) set: &'static str,
    /// Takes it away and fails without it, where that needs a statement of its own.
    pub(crate) take: Option<&'static str>,
    /// Whether that counts rows of statements before it, so that it must go by itself.
    pub(crate) counts: bool,
    /// A condition that holds while it is there; elsewhere empty.
    pub(crate) condition: &'static str,
    /// 1 if it is there; only asked where there is a condition.
    pub(crate) read: &'static str,
}

impl Dialect {
    /// Fills the tokens of a statement, all but the lists of integers that change with each call.
    pub(crate) fn render(&self, template: &str, tables: &Tables) -> String {
        let lines = template.lines().filter(|line| !line.trim_start().starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join(" ").replace("{index}", tables.prefix());
        let mut sql = expand(&sql, "delete", self.delete)
            .replace("{outbox}", &tables.qualifier())
            .replace("{index}", tables.prefix())
            .replace("{now}", self.now)
            .replace("{insert_new}", self.insert_new.0)
            .replace("{or_nothing}", self.insert_new.1)
            .replace("{lock}", self.lock)
            .replace("{server}", self.server)
            .replace("{identity}", self.identity)
            .replace("{marked}", self.mark.condition);
        for (name, fragment) in [
            ("age", self.age),
            ("ago", self.ago),
            ("later", self.later),
            ("at", self.at),
            ("int", self.int),
            ("by", self.by),
        ] {
            sql = expand(&sql, name, fragment);
        }
        if self.question_marks {
            sql = with_question_marks(&sql);
        }
        sql
    }
}

/// Replaces each `{name:argument}` by the fragment with the argument in it, or with the parts of `{name:one by
/// other}`.
fn expand(sql: &str, name: &str, fragment: &str) -> String {
    let start = format!("{{{name}:");
    let mut expanded = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some((before, after)) = rest.split_once(&start) {
        let (argument, after) = after.split_once('}').unwrap_or((after, ""));
        expanded.push_str(before);
        let (one, other) = argument.split_once(" by ").unwrap_or((argument, ""));
        expanded.push_str(&fragment.replace("@1", one).replace("@2", other).replace('@', argument));
        rest = after;
    }
    expanded.push_str(rest);
    expanded
}

fn with_question_marks(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len());
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        // A dollar is a parameter only before a digit; JSON paths have theirs in quotes before a point.
        if c == '$' && chars.peek().is_some_and(char::is_ascii_digit) {
            while chars.next_if(char::is_ascii_digit).is_some() {}
            text.push('?');
        } else {
            text.push(c);
        }
    }
    text
}

impl Dialect {
    /// A statement over {ids} with the same {attempts}, for one id: both as parameters.
    pub(crate) fn of_one(&self, sql: &str) -> std::sync::Arc<str> {
        let (id, attempts) = if self.question_marks { ("?", "?") } else { ("$1", "$2") };
        sql.replace("{ids}", id).replace("{attempts}", attempts).into()
    }

    /// A statement with the library's own values in place of its parameters, in their order.
    pub(crate) fn with_values(&self, sql: &str, values: &[String]) -> String {
        let mut sql = sql.to_owned();
        for (number, value) in (1..).zip(values) {
            let parameter = if self.question_marks { "?".to_owned() } else { format!("${number}") };
            sql = sql.replacen(&parameter, value, 1);
        }
        sql
    }
}

/// Integers of our own as a list in a statement; an empty list matches nothing.
pub(crate) fn list(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::new();
    for number in numbers {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&number.to_string());
    }
    if text.is_empty() { "NULL".to_owned() } else { text }
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
    fn values_take_the_place_of_parameters() {
        let values = ["'a'".to_owned(), "2".to_owned()];
        for question_marks in [true, false] {
            let (one, two) = if question_marks { ("?", "?") } else { ("$1", "$2") };
            let dialect = Dialect { question_marks, ..DIALECT };
            let sql = format!("SET x = x + 1 WHERE a = {one} AND b = {two}");
            assert_eq!(dialect.with_values(&sql, &values), "SET x = x + 1 WHERE a = 'a' AND b = 2");
        }
    }

    #[test]
    fn an_index_is_named_with_its_table() {
        let sql = DIALECT.render("{delete:lane by {index}lane_record} WHERE id = $1", &Tables::default());
        assert_eq!(sql, "DELETE outbox_lane FROM outbox_lane BY(outbox_lane_record) WHERE id = ?");
    }

    #[test]
    fn an_empty_list_matches_nothing() {
        assert_eq!(list([]), "NULL");
        assert_eq!(list([3, 1, 2]), "3,1,2");
    }
}
