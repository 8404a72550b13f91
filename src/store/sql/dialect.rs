//! What differs between the databases in the text of a statement: data, not code.

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
    /// `$1` becomes `?`; the statements name each parameter once, in order.
    pub(crate) question_marks: bool,
    /// The database's clock.
    pub(crate) now: &'static str,
    /// Microseconds since a time; `@` is the column.
    pub(crate) age: &'static str,
    /// A time that many microseconds ago; `@` is the parameter.
    pub(crate) ago: &'static str,
    /// The time so many microseconds from now; `@` is the parameter.
    pub(crate) later: &'static str,
    /// The time so many microseconds after 1970; `@` is the parameter.
    pub(crate) at: &'static str,
    /// The end of a SELECT that leaves out rows that another transaction is about to change, and locks the others
    /// against it. Empty where one transaction writes at a time.
    pub(crate) unlocked: &'static str,
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
    /// A number of the server that another server does not have, nor the same one once it may have forgotten
    /// commits. 0 where a database has but one.
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
    /// A statement for these tables. Tokens that no fragment has stay: what takes their place changes with
    /// each call, see [`fill`](super::statements::fill).
    pub(crate) fn render(&self, template: &str, tables: &Tables) -> String {
        let lines = template.lines().filter(|line| !line.trim_start().starts_with("--"));
        let text = lines.collect::<Vec<_>>().join(" ");
        let mut sql = String::with_capacity(text.len() * 2);
        self.expand(&text, tables, &mut sql);
        sql
    }

    /// A parameter of a statement whose text has a token in its place.
    pub(crate) fn parameter(&self, number: usize) -> String {
        if self.question_marks { "?".to_owned() } else { format!("${number}") }
    }

    /// What stands for `{name}`.
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

    /// What stands for `{name:argument}`: `@` is the argument, `@1` and `@2` are its parts before and after ` by `.
    fn pattern(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "age" => self.age,
            "ago" => self.ago,
            "int" => self.int,
            "by" => self.by,
            "delete" => self.delete,
            _ => return None,
        })
    }

    /// Appends a text with its tokens and parameters filled, from left to right, once.
    fn expand(&self, mut text: &str, tables: &Tables, sql: &mut String) {
        while let Some(at) = text.find(['{', '$']) {
            sql.push_str(&text[..at]);
            text = &text[at..];
            if let Some(rest) = text.strip_prefix('$') {
                let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                // A dollar is a parameter only before a digit; JSON paths have theirs before a point.
                let is_parameter = after.len() < rest.len();
                let end = if is_parameter { text.len() - after.len() } else { 1 };
                sql.push_str(if is_parameter && self.question_marks { "?" } else { &text[..end] });
                text = &text[end..];
                continue;
            }
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

/// Where a token ends that a text begins with; an argument may hold other tokens.
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
