//! All statements: each is a file in `statements/`, rendered once per store and once for the producers of an
//! outbox, for its database and tables, and filled per call with the values of the call.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::dialect::{Dialect, Family};
use crate::{
    name::Name,
    store::{Completed, Handlers, Tables},
};

macro_rules! statements {
    (shared: $($shared:ident)*; own: $($own:ident)*; postgres: $($postgres:ident)*; mysql: $($mysql:ident)*;) => {
        /// The statements of one store, rendered up to the tokens that each call fills.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $shared: Arc<str>,)*
            $(pub(crate) $own: Arc<str>,)*
            $(pub(crate) $postgres: Option<Arc<str>>,)*
            $(pub(crate) $mysql: Option<Arc<str>>,)*
        }

        impl Statements {
            pub(crate) fn render(dialect: &Dialect, family: Family, tables: &Tables) -> Self {
                let render = |template: &str| Arc::from(dialect.render(template, tables));
                let only = |of: Family, template: &str| (family == of).then(|| render(template));
                Self {
                    $($shared: render(template!("", $shared)),)*
                    $($own: render(match family {
                        Family::Postgres => template!("postgres/", $own),
                        Family::MySql => template!("mysql/", $own),
                        Family::Sqlite => template!("sqlite/", $own),
                    }),)*
                    $($postgres: only(Family::Postgres, template!("postgres/", $postgres)),)*
                    $($mysql: only(Family::MySql, template!("mysql/", $mysql)),)*
                }
            }

            /// All statements with their names.
            pub(crate) fn named(&self) -> Vec<(&'static str, Arc<str>)> {
                let everywhere = [
                    $((stringify!($shared), &self.$shared),)*
                    $((stringify!($own), &self.$own),)*
                ];
                let some = [
                    $((stringify!($postgres), &self.$postgres),)*
                    $((stringify!($mysql), &self.$mysql),)*
                ];
                let some = some.into_iter().filter_map(|(name, sql)| Some((name, sql.as_ref()?)));
                everywhere.into_iter().chain(some).map(|(name, sql)| (name, Arc::clone(sql))).collect()
            }
        }
    };
}

/// The text of a statement's file.
macro_rules! template {
    ($folder:literal, $name:ident) => {
        include_str!(concat!("statements/", $folder, stringify!($name), ".sql"))
    };
}

statements! {
    shared:
        join_instance join_fence beat view evict_silent evict_overdue close_fences
        claim owned release release_all drain_instance stop_instance old_instances purge_instances purge_fences
        move_fence move_marked_fence lock_records invalidate_fence read_fence complete_delete complete_keep copy_to_archive reason_of_lanes stop_lanes
        set_aside count_held resume_lanes return_held begin_release release_step stop_release return_some stops
        suspicions end_tracking calm_partitions calls_of_gone count_crash count_crash_of_calls
        counts count_lanes stopped_lanes failed failed_ids lock_failed repair_retry repair_replace repair_discard end_tracking_of instances partitions
        old_completed old_archived old_dedup still_due
        copy_to_dead_letters dead_letters dead_letter_ids lock_dead_letters schedule_dead_letters delete_dead_letters
        routes retire_handler
        insert_rows insert_dedup_key free_dedup_key
        mode claimed_enter claimed_take claimed_renew claimed_held claimed_delete claimed_keep claimed_archive claimed_release claimed_crashes
        meta shape write_version identity count_change count_partitions probe_write;
    own: publish_routes fetch_by_partition fetch_due cancel write_failures scan_by_id last_id find_head lanes_of held_of_lane track_call delete_old
        claimed_find_pending claimed_find_by_id claimed_find_due claimed_read claimed_fail;
    postgres: beat_and_view bystanders scan_others scan_plain settle_delete settle_archive settle_keep draw_number
        insert_many lock_hashes;
    mysql: ahead below below_by_partition below_of_handlers late unlocked_keys find_cancelled claimed_lock lock_keys;
}

impl Statements {
    /// The statement that writes the fence row and completions at once, on databases that can.
    pub(crate) fn settle_at_once(&self, completed: Completed) -> Option<&Arc<str>> {
        match completed {
            Completed::Delete => self.settle_delete.as_ref(),
            Completed::Archive => self.settle_archive.as_ref(),
            Completed::Keep => self.settle_keep.as_ref(),
        }
    }
}

/// A statement that some databases have. The drivers of the others do not ask for it.
#[cfg_attr(
    not(any(feature = "postgres", feature = "mysql")),
    expect(dead_code, reason = "SQLite runs no statement that only some databases have")
)]
pub(crate) fn here(sql: &Option<Arc<str>>) -> Result<&Arc<str>, sqlx::Error> {
    sql.as_ref().ok_or_else(elsewhere)
}

/// The error of a statement that other databases have.
pub(crate) fn elsewhere() -> sqlx::Error {
    sqlx::Error::Configuration("no such statement on this database".into())
}

/// Declares a rendered statement as safe. Its text holds only words of the library, validated names and
/// integers.
pub(crate) fn safe(sql: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::clone(sql))
}

/// Fills the last tokens of a rendered statement for one call: lists of integers, or parameters.
pub(crate) fn fill(sql: &str, values: &[(&str, String)]) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(Arc::from(filled(sql, values)))
}

/// Fills tokens as [`fill`] does, into a text.
pub(crate) fn filled(sql: &str, values: &[(&str, String)]) -> String {
    let mut sql = sql.to_owned();
    for (token, value) in values {
        sql = sql.replace(token, value);
    }
    sql
}

/// Integers of the library as a list in a statement. An empty list matches nothing.
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

/// A condition on the handler, empty for all handlers. Ids of handlers need no quoting: they are valid names,
/// as the builder has checked.
pub(crate) fn of_handlers(handlers: &Handlers) -> String {
    let quoted = |name: &Name| format!("'{}'", name.as_str().replace('\'', "''"));
    match handlers {
        Handlers::Every => String::new(),
        Handlers::Only(one) => format!(" AND handler = {}", quoted(one)),
        Handlers::Except(others) if others.is_empty() => String::new(),
        Handlers::Except(others) => {
            let others: Vec<String> = others.iter().map(quoted).collect();
            format!(" AND handler NOT IN ({})", others.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_matches_nothing() {
        assert_eq!(list([]), "NULL");
        assert_eq!(list([3, 1, 2]), "3,1,2");
    }
}
