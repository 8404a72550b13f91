//! Every statement, rendered once for its database.

use std::sync::Arc;

use super::{dialect::Dialect, driver::Family};
use crate::store::Tables;

macro_rules! statements {
    (shared: $($shared:ident)* ; own: $($own:ident)*) => {
        /// The statements of one store, ready but for the lists of integers that change with each call.
        #[derive(Debug)]
        pub(crate) struct Statements {
            $(pub(crate) $shared: Arc<str>,)*
            $(pub(crate) $own: Arc<str>,)*
        }

        impl Statements {
            pub(crate) fn render(dialect: &Dialect, family: Family, tables: &Tables) -> Self {
                let render = |template: &str| Arc::from(dialect.render(template, tables));
                Self {
                    $($shared: render(include_str!(concat!("statements/", stringify!($shared), ".sql"))),)*
                    $($own: render(match family {
                        Family::Postgres => include_str!(concat!("statements/postgres/", stringify!($own), ".sql")),
                        Family::MySql => include_str!(concat!("statements/mysql/", stringify!($own), ".sql")),
                        Family::Sqlite => include_str!(concat!("statements/sqlite/", stringify!($own), ".sql")),
                    }),)*
                }
            }

            /// Each with its name.
            pub(crate) fn named(&self) -> Vec<(&'static str, Arc<str>)> {
                vec![
                    $((stringify!($shared), Arc::clone(&self.$shared)),)*
                    $((stringify!($own), Arc::clone(&self.$own)),)*
                ]
            }
        }
    };
}

statements! {
    shared:
        join_instance join_guard beat view evict_silent evict_overdue close_guards
        claim owned release release_all drain_instance stop_instance old_instances forget_instances forget_guards
        move_guard move_fence lock_records raise_guard read_guard complete_delete complete_keep copy_to_archive reason_of_lanes stop_lanes
        set_aside count_held resume_lanes return_held begin_release release_step stop_release return_some stops
        suspicions end_call calm_partitions clear_calls count_crash count_crash_of_calls
        counts count_lanes stopped_lanes failed mend_retry mend_replace mend_discard
        old_completed old_archived old_dedup
        routes retire_handler
        meta identity note_change count_partitions probe_write;
    own: publish_routes fetch due write_failures sweep last_id probe lanes_of held_of_lane note_call
}
